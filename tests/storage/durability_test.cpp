// Crashes, damage, recycling, full disks, failing writes: the spool as a whole on a real file system.
#include <csignal>
#include <set>
#include <sys/resource.h>

#include "ring/files.hpp"
#include "storage/shard_folder.hpp"
#include "tests/storage/spool_fixture.hpp"

using namespace postern;
using namespace postern::storage;

namespace {

std::map<uint64_t, std::string> bodies_of(SpoolUnderTest& under) {
    std::map<uint64_t, std::string> bodies;
    for (const RecoveredMessage& message : under.recovered) {
        CHECK(bodies.emplace(under.spool().id_of(message.index).value, under.read(message.index).body).second);
    }
    return bodies;
}

// Pretends that the active segment's disk refuses writes.
void break_active_segment(SpoolUnderTest& under) {
    auto& segment = under.impl().segments[under.impl().segments.active()];
    auto read_only = ring::open_file(segment.path(), ring::OpenMode::read);
    REQUIRE(read_only);
    segment.fd = std::move(*read_only);
}

uint32_t sealed_count(SpoolUnderTest& under) { return under.spool().status().segments_sealed; }

}  // namespace

TEST_CASE("At whatever moment the machine stops, every acknowledged message is recovered whole, and no other in part",
          "[storage][crash]") {
    const uint64_t seed = Catch::rngSeed();
    INFO("seed " << seed);
    Random random(seed);
    for (int round = 0; round < 6; ++round) {
        ScratchFolder folder(ScratchFolder::memory());
        std::map<uint64_t, std::string> sent, owed, owed_at_crash;
        const std::string image = folder / "image";
        {
            SpoolUnderTest under(folder / "live", small_segments(1_MiB));
            std::vector<std::unique_ptr<Delivery>> deliveries;
            std::vector<std::pair<uint64_t, MessageIndex>> pending;
            const size_t stop_at = 30 + random.below(60);
            for (size_t i = 0; i < stop_at; ++i) {
                const QueueId id = under.spool().next_id();
                const std::string body =
                    octets_of_size(random.below(8) ? random.below(20'000) : random.below(900'000), i);
                sent[id.value] = body;
                deliveries.push_back(std::make_unique<Delivery>(under.spool()));
                Delivery& delivery = *deliveries.back();
                under.send(delivery, body, id);
                delivery.then = [&, id] {
                    if (!delivery.outcome->has_value()) return;
                    owed[id.value] = sent[id.value];
                    pending.emplace_back(id.value, **delivery.outcome);
                };
                under.commit(delivery);
                if (random.below(3) == 0) under.loop->run_turn(milliseconds(1));
                if (random.below(4) == 0 && !pending.empty()) {
                    const size_t which = random.below(pending.size());
                    owed.erase(pending[which].first);
                    under.deliver(pending[which].second);
                    pending.erase(pending.begin() + static_cast<ptrdiff_t>(which));
                }
            }
            crash_image(folder / "live", image);
            owed_at_crash = owed;
        }
        SpoolUnderTest again(image, small_segments(1_MiB));
        const auto found = bodies_of(again);
        for (const auto& [id, body] : found) CHECK((sent.at(id) == body));
        for (const auto& [id, body] : owed_at_crash) CHECK(found.count(id) == 1);
        CHECK(again.spool().recovery().damaged_frames == 0);
        CHECK(again.spool().recovery().messages_lost_to_damage == 0);
    }
}

TEST_CASE("What was acknowledged before the crash is there after it", "[storage][crash]") {
    ScratchFolder folder;
    std::map<uint64_t, std::string> acknowledged;
    SpoolUnderTest under(folder / "live", small_segments(1_MiB));
    for (size_t i = 0; i < 40; ++i) {
        const std::string body = octets_of_size(i * 7001 % 300'000, i);
        const MessageIndex message = under.store(body);
        acknowledged[under.spool().id_of(message).value] = body;
        if (i % 10 != 9) continue;
        const std::string image = folder / ("image" + std::to_string(i));
        crash_image(folder / "live", image);
        SpoolUnderTest again(image, small_segments(1_MiB));
        CHECK((bodies_of(again) == acknowledged));
        const auto report = verify_spool(image);
        REQUIRE(report);
        CHECK(report->intact());
        CHECK(report->pending == acknowledged.size());
    }
}

TEST_CASE("Damage in the middle costs what it hit, is reported, and never stops the start", "[storage][crash]") {
    ScratchFolder folder;
    {
        SpoolUnderTest under(folder.path(), small_segments());
        for (size_t i = 0; i < 10; ++i) under.store(octets_of_size(6000, i));
    }
    const auto files = segment_paths(folder.path());
    for (const std::string& file : files) overwrite(file, batches_begin + 3 * 8192 + 100, "damage");
    const auto report = verify_spool(folder.path());
    REQUIRE(report);
    CHECK_FALSE(report->intact());
    SpoolUnderTest again(folder.path(), small_segments());
    CHECK(again.recovered.size() == 9);
    CHECK(again.spool().recovery().damaged_frames == 1);
    CHECK(again.probe.damage == 1);
    for (const RecoveredMessage& message : again.recovered) CHECK(again.read(message.index).body.size() == 6000);
}

TEST_CASE("A message damaged after it was stored is refused by the reader, not given out", "[storage][crash]") {
    ScratchFolder folder;
    {
        SpoolUnderTest under(folder.path(), small_segments());
        under.store(octets_of_size(600'000));
    }
    SpoolUnderTest again(folder.path(), small_segments());
    REQUIRE(again.recovered.size() == 1);
    for (const std::string& file : segment_paths(folder.path())) overwrite(file, batches_begin + 100'000, "damage");
    CHECK_FALSE(again.try_read(again.recovered[0].index));
    CHECK(again.probe.damage == 1);
    CHECK_FALSE(again.spool().stored(again.recovered[0].index).read([](std::string_view) { return true; }));
}

TEST_CASE("Segments are used again, and what they said about others is said anew first", "[storage][recycling]") {
    const auto base = GENERATE(ScratchFolder::disk(), ScratchFolder::memory());
    ScratchFolder folder(base);
    const std::string image = folder / "image";
    std::string kept_body = "kept from the very beginning", partly_body = "for three, one of whom has it";
    {
        SpoolUnderTest under(folder / "live", small_segments(1_MiB));
        // In the first segment: one that stays, one partly delivered, and many that go.
        under.store(kept_body);
        const MessageIndex partly = under.store(partly_body, "e", 3);
        std::vector<MessageIndex> early;
        for (size_t i = 0; i < 20; ++i) early.push_back(under.store(octets_of_size(3000, i)));
        for (size_t i = 0; i < 8; ++i) under.deliver(under.store(octets_of_size(200'000, i)));  // on to another segment
        REQUIRE(under.eventually([&] { return sealed_count(under) >= 1; }));
        for (const MessageIndex message : early) under.deliver(message);
        under.deliver(partly, 1);
        REQUIRE(under.flush());
        // Everything that holds those results is recycled, more than once.
        for (size_t i = 0; under.probe.recycled < 12 && i < 400; ++i) {
            under.deliver(under.store(octets_of_size(150'000, i)));
            under.loop->run_turn(milliseconds(1));
        }
        CHECK(under.probe.recycled >= 12);
        REQUIRE(under.flush());
        CHECK(under.spool().status().messages == 2);
        CHECK(under.spool().status().bytes_allocated <= 10_MiB);
        crash_image(folder / "live", image);
    }
    SpoolUnderTest again(image, small_segments(1_MiB));
    REQUIRE(again.recovered.size() == 2);
    CHECK((again.read(again.recovered[0].index).body == kept_body));
    CHECK((again.read(again.recovered[1].index).body == partly_body));
    CHECK(again.spool().state_of(again.recovered[1].index, 0) == RecipientState::pending);
    CHECK(again.spool().state_of(again.recovered[1].index, 1) == RecipientState::delivered);
}

TEST_CASE("Disk use shrinks again after a peak", "[storage][recycling]") {
    ScratchFolder folder(ScratchFolder::memory());
    SpoolUnderTest under(folder.path(), small_segments(1_MiB));
    std::vector<MessageIndex> messages;
    for (size_t i = 0; i < 60; ++i) messages.push_back(under.store(octets_of_size(200'000, i)));
    CHECK(under.spool().status().bytes_allocated > 12_MiB);
    for (const MessageIndex message : messages) under.deliver(message);
    CHECK(under.eventually([&] { return under.spool().flushed() && under.spool().status().bytes_allocated <= 6_MiB; }));
    CHECK(segment_paths(folder.path()).size() <= 6);
}

TEST_CASE("A full disk refuses early and honestly, and takes mail again when there is room", "[storage][full]") {
    ScratchFolder folder(ScratchFolder::memory());
    SpoolConfig config = small_segments(1_MiB);
    const auto space = ring::file_system_space(folder.path());
    REQUIRE(space);
    config.reserve_bytes = space->bytes_free - 6_MiB - 512_KiB;        // room for about six segments
    SpoolUnderTest under(folder.path(), config);
    std::vector<MessageIndex> messages;
    std::optional<SpoolError> refused;
    for (size_t i = 0; i < 100 && !refused; ++i) {
        if (!under.spool().has_room(100'000)) {
            Delivery delivery(under.spool());
            const auto begun = delivery.writer.begin(under.spool().next_id());
            if (!begun) refused = begun.error();
            else break;
        } else if (const auto stored = under.try_store(octets_of_size(100'000, i))) {
            messages.push_back(*stored);
        } else {
            refused = stored.error();
        }
    }
    CHECK(messages.size() >= 20);
    CHECK_FALSE(under.spool().has_room(1_MiB));
    CHECK(under.spool().healthy());
    for (size_t i = 0; i < messages.size(); ++i) CHECK((under.read(messages[i]).body == octets_of_size(100'000, i)));
    // Results still find a place, and make room.
    for (const MessageIndex message : messages) under.deliver(message);
    REQUIRE(under.eventually([&] { return under.spool().flushed() && under.spool().has_room(1_MiB); }));
    CHECK(under.spool().status().messages == 0);
    under.store("after the flood");
}

TEST_CASE("A failed write refuses exactly its batch, and storing goes on in another segment", "[storage][failure]") {
    ScratchFolder folder;
    {
        SpoolUnderTest under(folder.path(), small_segments(1_MiB));
        const MessageIndex before = under.store("before");
        REQUIRE(under.eventually([&] { return under.spool().status().segments_ready >= 2; }));
        under.deliver(before);                  // its record rides with the batch that fails
        break_active_segment(under);
        CHECK(under.try_store("lost").error() == SpoolError::failed);
        CHECK(under.probe.failed == 1);
        CHECK(under.probe.last_error == EBADF);
        CHECK(under.spool().healthy());
        CHECK(under.read(under.store("after")).body == "after");
        REQUIRE(under.flush());
        CHECK(under.spool().status().messages == 1);
        CHECK(under.probe.failed == 1);
    }
    SpoolUnderTest again(folder.path(), small_segments(1_MiB));
    REQUIRE(again.recovered.size() == 1);
    CHECK(again.read(again.recovered[0].index).body == "after");
}

TEST_CASE("A large message with a fragment in the batch that failed is refused, and others are not",
          "[storage][failure]") {
    ScratchFolder folder;
    SpoolUnderTest under(folder.path(), small_segments(1_MiB));
    under.store("first");
    REQUIRE(under.eventually([&] { return under.spool().status().segments_ready >= 2; }));
    Delivery large(under.spool()), small(under.spool());
    break_active_segment(under);
    under.send(large, octets_of_size(400'000), under.spool().next_id());
    REQUIRE(under.eventually([&] { return under.probe.failed == 1; }));
    under.commit(large);
    under.send(small, "small", under.spool().next_id());
    under.commit(small);
    REQUIRE(under.eventually([&] { return large.outcome && small.outcome; }));
    CHECK(large.outcome->error() == SpoolError::failed);
    CHECK(small.outcome->has_value());
}

TEST_CASE("After several failures in a row the spool says that it is not healthy, and finds back by itself",
          "[storage][failure]") {
    ScratchFolder folder;
    SpoolUnderTest under(folder.path(), small_segments(1_MiB));
    under.store("first");
    for (int failure = 0; failure < 3; ++failure) {
        REQUIRE(under.eventually([&] { return under.spool().status().segments_ready >= 2; }));
        for (uint32_t i = 0; i < under.impl().segments.count(); ++i) {
            auto& segment = under.impl().segments[i];
            if (segment.state != Segment::State::active && segment.state != Segment::State::spare) continue;
            auto read_only = ring::open_file(segment.path(), ring::OpenMode::read);
            REQUIRE(read_only);
            segment.fd = std::move(*read_only);
        }
        const auto outcome = under.try_store("lost");
        REQUIRE_FALSE(outcome);
        CHECK(outcome.error() == SpoolError::failed);
    }
    CHECK_FALSE(under.spool().healthy());
    Delivery delivery(under.spool());
    CHECK(delivery.writer.begin(under.spool().next_id()).error() == SpoolError::failed);
    CHECK(under.eventually([&] { return under.spool().healthy(); }));
    under.store("back again");
}

TEST_CASE("A file size limit in the way of a commit is an error like any other", "[storage][failure]") {
    ScratchFolder folder;
    SpoolUnderTest under(folder.path(), small_segments(1_MiB));
    under.store("first");
    REQUIRE(under.eventually([&] { return under.spool().status().segments_ready >= 2; }));
    rlimit before{};
    getrlimit(RLIMIT_FSIZE, &before);
    std::signal(SIGXFSZ, SIG_IGN);
    rlimit tiny = before;
    tiny.rlim_cur = 4096;
    setrlimit(RLIMIT_FSIZE, &tiny);
    const auto outcome = under.try_store("too far out");
    setrlimit(RLIMIT_FSIZE, &before);
    REQUIRE_FALSE(outcome);
    CHECK(under.probe.last_error == EFBIG);
    under.store("and on");
}

TEST_CASE("Folders of shards that are no more are adopted, drained, and go", "[storage][shards]") {
    ScratchFolder folder(ScratchFolder::memory());
    std::map<uint64_t, std::string> stored;
    for (unsigned shard = 0; shard < 4; ++shard) {
        SpoolConfig config = small_segments(1_MiB);
        config.shard = shard;
        config.shard_count = 4;
        SpoolUnderTest under(folder.path(), config);
        for (size_t i = 0; i < 3; ++i) {
            const std::string body = octets_of_size(50'000 + shard, i);
            stored[under.spool().id_of(under.store(body)).value] = body;
        }
    }
    std::map<uint64_t, std::string> found;
    for (unsigned shard = 0; shard < 2; ++shard) {
        SpoolConfig config = small_segments(1_MiB);
        config.shard = shard;
        config.shard_count = 2;
        SpoolUnderTest under(folder.path(), config);
        CHECK(under.recovered.size() == 6);
        found.merge(bodies_of(under));
        for (const RecoveredMessage& message : under.recovered) under.deliver(message.index);
        REQUIRE(under.flush());
        CHECK(under.eventually([&] { return !std::filesystem::exists(shard_folder(folder.path(), shard + 2)); }));
    }
    CHECK((found == stored));
    // Four shards again: nothing is delivered twice.
    for (unsigned shard = 0; shard < 4; ++shard) {
        SpoolConfig config = small_segments(1_MiB);
        config.shard = shard;
        config.shard_count = 4;
        SpoolUnderTest under(folder.path(), config);
        CHECK(under.recovered.empty());
    }
}

TEST_CASE("A segment that was being made when the machine stopped is cleared away", "[storage][crash]") {
    ScratchFolder folder;
    { SpoolUnderTest under(folder.path(), small_segments(1_MiB)); }
    const std::string unfinished = shard_folder(folder.path(), 0) + "/00000000000000ff.seg.new";
    std::ofstream(unfinished) << "half";
    std::ofstream(shard_folder(folder.path(), 0) + "/notes.txt") << "an operator's";
    SpoolUnderTest again(folder.path(), small_segments(1_MiB));
    CHECK_FALSE(std::filesystem::exists(unfinished));
    CHECK(std::filesystem::exists(shard_folder(folder.path(), 0) + "/notes.txt"));
}

TEST_CASE("Commits to segments that were written before need no kernel worker thread", "[storage]") {
    ScratchFolder folder;
    SpoolUnderTest under(folder.path(), small_segments());
    if (under.spool().status().sink != SinkKind::direct) {
        WARN("no direct writes here: not tested");
        return;
    }
    const auto kernel_workers = [] {        // those of rings that are gone may linger
        std::set<std::string> tasks;
        for (const auto& task : std::filesystem::directory_iterator("/proc/self/task")) {
            std::string name;
            std::getline(std::ifstream(task.path() / "comm"), name);
            if (name.starts_with("iou-wrk")) tasks.insert(task.path().filename());
        }
        return tasks;
    };
    const auto before = kernel_workers();
    for (size_t i = 0; i < 100; ++i) under.deliver(under.store(octets_of_size(5000, i)));
    for (const std::string& task : kernel_workers()) CHECK(before.count(task) == 1);
}
