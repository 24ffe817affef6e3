#include <catch2/catch.hpp>
#include <random>

#include "tests/storage/segment_image.hpp"

using namespace postern;
using namespace postern::storage;

namespace {

struct Found {
    explicit Found(const std::vector<const SegmentImage*>& images, bool forced_scan = false) : recovery(forced_scan) {
        for (const SegmentImage* image : images) {
            MemorySource source(image->octets);
            recovery.add(source, "image");
        }
        recovery.resolve();
    }
    std::optional<MessageVerdict> verdict(uint64_t id) {
        for (const FoundMessage& message : recovery.messages())
            if (message.queue_id == id) return message.verdict;
        return std::nullopt;
    }
    Recovery recovery;
};

}  // namespace

TEST_CASE("The recovery tables are total: exactly one row for every combination", "[storage][recovery]") {
    for (const HeaderVerdict header :
         {HeaderVerdict::good, HeaderVerdict::not_a_segment, HeaderVerdict::other_format, HeaderVerdict::damaged})
        for (const bool index_good : {false, true}) CHECK(rows_for(SegmentFacts{header, index_good}) == 1);
    for (unsigned bits = 0; bits < 32; ++bits) {
        const MessageFacts facts{(bits & 1) != 0, (bits & 2) != 0, (bits & 4) != 0, (bits & 8) != 0, (bits & 16) != 0};
        CHECK(rows_for(facts) == 1);
        // What no row may ever say:
        if (!facts.whole) CHECK(verdict_on(facts) != MessageVerdict::pending);
        if (verdict_on(facts) == MessageVerdict::dropped) CHECK(facts.last_batch);
    }
}

TEST_CASE("Merging results gives the same slot in any order, and any number of times", "[storage][recovery]") {
    std::mt19937 random(Catch::rngSeed());
    INFO("seed " << Catch::rngSeed());
    for (int round = 0; round < 500; ++round) {
        std::vector<RecordHeader> records(1 + random() % 6);
        for (RecordHeader& record : records) {
            record.outcome = static_cast<uint8_t>(1 + random() % 3);
            record.attempt = static_cast<uint16_t>(random() % 4);
            record.until_ns = static_cast<int64_t>(random() % 3) * 1'000'000'000;
            record.reply_code = static_cast<uint16_t>(random() % 3);
        }
        const auto merged = [&] {
            RecipientSlot slot;
            for (const RecordHeader& record : records) merge(slot, record);
            return std::tuple(slot.state, slot.attempt, slot.until_s, slot.reply_code);
        };
        const auto expected = merged();
        std::shuffle(records.begin(), records.end(), random);
        records.insert(records.end(), records.begin(), records.begin() + static_cast<ptrdiff_t>(records.size() / 2));
        REQUIRE(merged() == expected);
        const bool any_final = std::any_of(records.begin(), records.end(), [](const RecordHeader& r) {
            return r.outcome != static_cast<uint8_t>(RecordOutcome::deferred);
        });
        REQUIRE((std::get<0>(expected) != RecipientSlot::pending) == any_final);
    }
}

TEST_CASE("Recovery says the same from an index as from a scan", "[storage][recovery]") {
    SegmentImage first(1), second(2);
    const uint32_t fragment_at = first.next_offset();
    first.fragment(std::string(500, 'f'));
    first.commit();
    for (uint64_t id = 0; id < 20; ++id) {
        first.message(id, "body", id == 7 ? std::vector<Extent>{{1, fragment_at, 500}} : std::vector<Extent>{},
                      id == 9 ? 3 : 1);
        if (id % 5 == 4) first.commit();
    }
    second.result(1, 0, RecordOutcome::delivered);
    second.result(1, 1, RecordOutcome::failed);
    second.result(1, 2, RecordOutcome::deferred);
    second.result(1, 9, RecordOutcome::delivered, 1);
    second.complete_map(1, 20, std::string("\x00\x00\x08", 3));
    second.commit();
    Found scanned({&first, &second});
    first.seal();
    second.seal();
    Found indexed({&first, &second});
    Found forced({&second, &first}, true);
    CHECK(indexed.recovery.segments()[0].plan == SegmentPlan::use_index);
    for (Found* found : {&scanned, &indexed, &forced}) {
        REQUIRE(found->recovery.messages().size() == 20);
        CHECK(found->verdict(0) == MessageVerdict::complete);
        CHECK(found->verdict(1) == MessageVerdict::held);
        CHECK(found->verdict(2) == MessageVerdict::pending);
        CHECK(found->verdict(7) == MessageVerdict::pending);
        CHECK(found->verdict(9) == MessageVerdict::pending);
        CHECK(found->verdict(18) == MessageVerdict::pending);
        CHECK(found->verdict(19) == MessageVerdict::complete);
    }
}

TEST_CASE("A message whose fragment is missing is dropped from the last batch, and held as damaged before it",
          "[storage][recovery]") {
    SegmentImage image(1);
    image.message(1, "tail", {{1, 512 * 1024, 100}});
    image.commit();
    image.message(2, "tail", {{1, 512 * 1024, 100}});
    image.message(3, "tail", {{99, 4096, 100}});
    image.message(4, "whole");
    image.commit();
    Found found({&image});
    CHECK(found.verdict(1) == MessageVerdict::damaged);
    CHECK(found.verdict(2) == MessageVerdict::dropped);
    CHECK(found.verdict(3) == MessageVerdict::dropped);
    CHECK(found.verdict(4) == MessageVerdict::pending);
}

TEST_CASE("A sealed segment with a damaged header is read by its index, one without is left alone",
          "[storage][recovery]") {
    SegmentImage image(1);
    image.message(1, "body");
    image.commit();
    SegmentImage unsealed = image;
    image.seal();
    image.octets[20] ^= 1;
    unsealed.octets[20] ^= 1;
    CHECK(Found({&image}).verdict(1) == MessageVerdict::pending);
    Found found({&unsealed});
    CHECK_FALSE(found.verdict(1));
    CHECK(found.recovery.segments()[0].header == HeaderVerdict::damaged);
    image.octets[0] ^= 1;       // not even the magic
    CHECK(Found({&image}).verdict(1) == MessageVerdict::pending);
}

TEST_CASE("A damaged index falls back to a scan, and an index of an earlier life is not used", "[storage][recovery]") {
    SegmentImage image(1);
    image.message(1, "body");
    image.commit();
    image.seal();
    SegmentImage hurt = image;
    hurt.octets[hurt.octets.size() - 2 * block_bytes] ^= 1;
    Found found({&hurt});
    CHECK(found.recovery.segments()[0].plan == SegmentPlan::scan);
    CHECK(found.verdict(1) == MessageVerdict::pending);
    image.begin_life(2);
    Found empty({&image});
    CHECK(empty.recovery.segments()[0].plan == SegmentPlan::scan);
    CHECK(empty.recovery.messages().empty());
}

TEST_CASE("A copy of a segment is read once, and files that are not segments are ignored", "[storage][recovery]") {
    SegmentImage image(1);
    image.message(1, "body");
    image.commit();
    SegmentImage noise(2);
    std::fill(noise.octets.begin(), noise.octets.end(), 'n');
    SegmentImage tiny(3);
    tiny.octets.resize(5000);
    Found found({&image, &noise, &image, &tiny});
    CHECK(found.recovery.messages().size() == 1);
    CHECK(found.recovery.segments()[1].plan == SegmentPlan::ignore);
    CHECK(found.recovery.segments()[2].plan == SegmentPlan::ignore);
    CHECK(found.recovery.segments()[3].plan == SegmentPlan::ignore);
}

TEST_CASE("Results about messages that are not there any more are ignored", "[storage][recovery]") {
    SegmentImage image(1);
    image.message(1, "body");
    image.result(77, 0, RecordOutcome::delivered);
    image.result(1, 5000, RecordOutcome::delivered);
    image.result(1, 0, RecordOutcome::delivered, 99);
    image.commit();
    CHECK(Found({&image}).verdict(1) == MessageVerdict::pending);
}
