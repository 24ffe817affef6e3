#include "tests/storage/spool_fixture.hpp"

using namespace postern;
using namespace postern::storage;

namespace {

SpoolConfig with(SinkChoice sink, uint64_t segment_bytes = 4_MiB) {
    SpoolConfig config = small_segments(segment_bytes);
    config.sink = sink;
    return config;
}

}  // namespace

TEST_CASE("A message reads back byte for byte, whatever its size and sink", "[storage]") {
    const auto [base, sink] = GENERATE(std::pair(ScratchFolder::disk(), SinkChoice::automatic),
                                       std::pair(ScratchFolder::memory(), SinkChoice::buffered),
                                       std::pair(ScratchFolder::memory(), SinkChoice::none));
    ScratchFolder folder(base);
    std::map<std::string, std::string> expected;       // by queue id
    const size_t sizes[] = {0,          1,         4095,         4096,    4097,        16_KiB - 1, 16_KiB,
                            16_KiB + 1, 64_KiB,    256_KiB - 1,  256_KiB, 256_KiB + 1, 512_KiB,    1_MiB - 4096,
                            1_MiB,      1_MiB + 1, 3_MiB + 12345};
    {
        SpoolUnderTest under(folder.path(), with(sink));
        for (const size_t size : sizes) {
            const std::string body = octets_of_size(size);
            const MessageIndex message = under.store(body, "envelope of " + std::to_string(size), 2);
            INFO("size " << size);
            const Stored stored = under.read(message);
            CHECK((stored.body == body));
            CHECK(stored.envelope == "envelope of " + std::to_string(size));
            CHECK(stored.attributes.bytes == size);
            CHECK(stored.attributes.recipient_count == 2);
            CHECK(stored.attributes.flags == 7);
            CHECK((under.read_by_worker(message) == body));
            expected[std::string(std::string_view(text_of(under.spool().id_of(message))))] = body;
        }
        CHECK(under.probe.failed == 0);
    }
    SpoolUnderTest again(folder.path(), with(sink));
    REQUIRE(again.recovered.size() == std::size(sizes));
    for (const RecoveredMessage& message : again.recovered) {
        const auto id = std::string(std::string_view(text_of(again.spool().id_of(message.index))));
        CHECK((again.read(message.index).body == expected[id]));
        CHECK((again.read_by_worker(message.index) == expected[id]));
    }
    CHECK(again.probe.from_disk > 0);
    CHECK(again.spool().recovery().damaged_frames == 0);
}

TEST_CASE("The probe finds direct writes on a disk, and status says which sink is used", "[storage]") {
    ScratchFolder folder;
    SpoolUnderTest under(folder.path(), small_segments());
    CHECK(under.spool().status().sink == SinkKind::direct);
    ScratchFolder memory(ScratchFolder::memory());
    SpoolUnderTest buffered(memory.path(), with(SinkChoice::buffered));
    CHECK(buffered.spool().status().sink == SinkKind::buffered);
}

TEST_CASE("Envelopes up to 300 KB are kept, and larger than the format holds is refused", "[storage]") {
    ScratchFolder folder;
    SpoolUnderTest under(folder.path(), small_segments(1_MiB));
    for (const size_t size : {size_t{0}, size_t{1}, size_t{70'000}, size_t{300'000}}) {
        const std::string envelope = octets_of_size(size, 3), body = octets_of_size(300'000);
        const MessageIndex message = under.store(body, envelope, 1000);
        CHECK((under.read(message).envelope == envelope));
        CHECK((under.read(message).body == body));
    }
    CHECK(under.try_store("x", octets_of_size(600'000)).error() == SpoolError::too_fragmented);
}

TEST_CASE("Many messages that arrive together share batches", "[storage]") {
    ScratchFolder folder;
    SpoolUnderTest under(folder.path(), small_segments());
    std::vector<std::unique_ptr<Delivery>> deliveries;
    for (size_t i = 0; i < 200; ++i) {
        deliveries.push_back(std::make_unique<Delivery>(under.spool()));
        under.send(*deliveries.back(), octets_of_size(5000, i), under.spool().next_id());
        under.commit(*deliveries.back());
        CHECK_FALSE(deliveries.back()->outcome.has_value());       // never from within commit()
    }
    REQUIRE(under.eventually([&] {
        return std::all_of(deliveries.begin(), deliveries.end(), [](auto& d) { return d->outcome.has_value(); });
    }));
    for (size_t i = 0; i < 200; ++i) CHECK((under.read(**deliveries[i]->outcome).body == octets_of_size(5000, i)));
    CHECK(under.probe.batches <= 10);
    CHECK(under.probe.from_memory > 0);
}

TEST_CASE("Interleaved large messages do not mix", "[storage]") {
    ScratchFolder folder;
    SpoolConfig config = small_segments();
    config.chunk_bytes_max = 2_MiB;         // too little for all: they spill early, and wait
    SpoolUnderTest under(folder.path(), config);
    std::vector<std::unique_ptr<Delivery>> deliveries;
    std::vector<std::string> bodies;
    for (size_t i = 0; i < 12; ++i) {
        deliveries.push_back(std::make_unique<Delivery>(under.spool()));
        bodies.push_back(octets_of_size(400'000 + i * 33'333, i));
        REQUIRE(deliveries.back()->writer.begin(under.spool().next_id()));
    }
    for (size_t at = 0; at < 800'000; at += 10'000)
        for (size_t i = 0; i < 12; ++i) {
            if (at >= bodies[i].size()) continue;
            while (under.spool().congested()) under.loop->run_turn(milliseconds(5));
            REQUIRE(deliveries[i]->writer.append(std::string_view(bodies[i]).substr(at, 10'000)));
            deliveries[i]->writer.settle();
            CHECK(under.spool().status().chunk_bytes <= 3_MiB);
        }
    for (auto& delivery : deliveries) under.commit(*delivery);
    REQUIRE(under.eventually([&] {
        return std::all_of(deliveries.begin(), deliveries.end(), [](auto& d) { return d->outcome.has_value(); });
    }));
    for (size_t i = 0; i < 12; ++i) {
        REQUIRE(deliveries[i]->outcome->has_value());
        CHECK((under.read(**deliveries[i]->outcome).body == bodies[i]));
    }
    CHECK(under.spool().status().chunk_bytes == 0);
}

TEST_CASE("A session that stopped for want of memory is told when there is some again", "[storage]") {
    struct Session final : Spool::Relief {
        void on_relieved() override { ++relieved; }
        int relieved = 0;
    };
    ScratchFolder folder;
    SpoolConfig config = small_segments();
    config.chunk_bytes_max = 1_MiB;
    SpoolUnderTest under(folder.path(), config);
    std::vector<std::unique_ptr<MessageWriter>> writers;
    const std::string octets = octets_of_size(48_KiB);
    while (!under.spool().congested()) {
        writers.push_back(std::make_unique<MessageWriter>(under.spool()));
        REQUIRE(writers.back()->begin(under.spool().next_id()));
        REQUIRE(writers.back()->append(octets));
        writers.back()->settle();
        REQUIRE(writers.size() < 200);
    }
    Session session;
    under.spool().wait_for_relief(session);
    CHECK(session.relieved == 0);
    SECTION("the log takes it") {
        CHECK(under.eventually([&] { return session.relieved > 0; }));
        CHECK(under.probe.fragments > 0);
    }
    SECTION("others give up") {
        writers.clear();
        CHECK(under.eventually([&] { return session.relieved > 0; }));
    }
    CHECK_FALSE(under.spool().congested());
}

TEST_CASE("An abandoned message leaves nothing behind, at whichever stage", "[storage]") {
    ScratchFolder folder;
    {
        SpoolUnderTest under(folder.path(), small_segments());
        const std::string large = octets_of_size(700'000);
        SECTION("begun") {
            Delivery delivery(under.spool());
            REQUIRE(delivery.writer.begin(under.spool().next_id()));
        }
        SECTION("with octets in chunks and in the log") {
            Delivery delivery(under.spool());
            under.send(delivery, large, under.spool().next_id());
            under.loop->run_turn({});
        }
        SECTION("committed, in the batch that forms") {
            Delivery delivery(under.spool());
            under.send(delivery, "small", under.spool().next_id());
            under.commit(delivery);
            delivery.writer.abandon();
            REQUIRE(under.flush());
            CHECK_FALSE(delivery.outcome.has_value());
        }
        SECTION("committed, in flight") {
            Delivery delivery(under.spool());
            under.send(delivery, "small", under.spool().next_id());
            under.commit(delivery);
            REQUIRE(under.eventually([&] { return under.impl().committer.in_flight(); }));
            delivery.writer.abandon();
            REQUIRE(under.flush());
            CHECK_FALSE(delivery.outcome.has_value());
        }
        SECTION("committed, waiting behind a full batch") {
            std::vector<std::unique_ptr<Delivery>> deliveries;
            for (size_t i = 0; i < 10; ++i) {
                deliveries.push_back(std::make_unique<Delivery>(under.spool()));
                under.send(*deliveries.back(), octets_of_size(250'000, i), under.spool().next_id(), 100);
                under.commit(*deliveries.back());
            }
            deliveries.clear();
        }
        REQUIRE(under.flush());
        CHECK(under.spool().status().messages == 0);
        CHECK(under.spool().status().chunk_bytes == 0);
        for (size_t i = 0; i < under.impl().segments.count(); ++i)
            CHECK(under.impl().segments[static_cast<uint32_t>(i)].pins == 0);
    }
    SpoolUnderTest again(folder.path(), small_segments());
    CHECK(again.recovered.empty());
}

TEST_CASE("A call-back may commit the next message and abandon another", "[storage]") {
    ScratchFolder folder;
    SpoolUnderTest under(folder.path(), small_segments());
    Delivery first(under.spool()), second(under.spool()), third(under.spool());
    for (Delivery* delivery : {&first, &second}) {
        under.send(*delivery, "one", under.spool().next_id());
        under.commit(*delivery);
    }
    first.then = [&] {
        CHECK_FALSE(first.writer.open());
        second.writer.abandon();
        under.send(third, "three", under.spool().next_id());
        under.commit(third);
    };
    REQUIRE(under.eventually([&] { return third.outcome.has_value(); }));
    CHECK_FALSE(second.outcome.has_value());
    REQUIRE(under.flush());
    CHECK(under.spool().status().messages == 2);
}

TEST_CASE("Results survive a restart: delivered messages are gone, deferred and partly delivered ones are as they were",
          "[storage]") {
    ScratchFolder folder;
    {
        SpoolUnderTest under(folder.path(), small_segments());
        CHECK(under.deliver(under.store("delivered")));
        const MessageIndex deferred = under.store("deferred");
        CHECK_FALSE(under.record(deferred, {.outcome = RecipientOutcome::deferred,
                                            .attempt = 3,
                                            .until = {5'000'000'000'000},
                                            .reply_code = 451,
                                            .diagnostic = "later"}));
        const MessageIndex partly = under.store("partly", "e", 3);
        CHECK_FALSE(under.deliver(partly, 1));
        CHECK_FALSE(under.record(
            partly, {.recipient = 2, .outcome = RecipientOutcome::failed, .attempt = 1, .reply_code = 550}));
        const MessageIndex held = under.store("held", "e", 2);
        CHECK_FALSE(under.deliver(held, 0));
        CHECK(under.record(held, {.recipient = 1,
                                  .outcome = RecipientOutcome::failed,
                                  .attempt = 2,
                                  .reply_code = 550,
                                  .diagnostic = std::string(500, 'x')}));
        REQUIRE(under.flush());
        CHECK(under.spool().status().messages == 3);
        CHECK(under.spool().status().messages_held == 1);
    }
    SpoolUnderTest again(folder.path(), small_segments());
    REQUIRE(again.recovered.size() == 2);
    CHECK(again.spool().recovery().held == 1);
    CHECK((again.read(again.recovered[0].index).body == "deferred"));
    CHECK(again.recovered[0].attempts == 3);
    CHECK(again.recovered[0].not_before.seconds() == 5000);
    const MessageIndex partly = again.recovered[1].index;
    CHECK((again.read(partly).body == "partly"));
    CHECK(again.recovered[1].not_before.ns == 0);
    CHECK(again.spool().state_of(partly, 0) == RecipientState::pending);
    CHECK(again.spool().state_of(partly, 1) == RecipientState::delivered);
    CHECK(again.spool().state_of(partly, 2) == RecipientState::failed);
    CHECK(again.deliver(partly, 0));
    REQUIRE(again.flush());
    CHECK(again.spool().status().messages_held == 2);
}

TEST_CASE("A second process is refused while the first one runs", "[storage]") {
    ScratchFolder folder;
    auto first = open_directory(folder.path());
    REQUIRE(first);
    auto second = open_directory(folder.path());
    REQUIRE_FALSE(second);
    CHECK(second.error().gate == SpoolGate::locked);
    first->lock.reset();
    CHECK(open_directory(folder.path()));
}

TEST_CASE("Queue ids are never given twice, not even when the meta file is lost or damaged", "[storage]") {
    ScratchFolder folder;
    QueueId last;
    for (int start = 0; start < 4; ++start) {
        SpoolUnderTest under(folder.path(), small_segments(1_MiB));
        const QueueId first = under.spool().next_id();
        CHECK(first > last);
        last = under.spool().next_id();
        CHECK(last > first);
        under.deliver(under.store("x"));
        REQUIRE(under.flush());
        if (start == 1) overwrite(folder / "meta", 12, "garbage");
        if (start == 2) std::filesystem::remove(folder / "meta");
    }
}
