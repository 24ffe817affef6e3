#include <catch2/catch.hpp>
#include <random>

#include "tests/storage/segment_image.hpp"

using namespace postern;
using namespace postern::storage;

namespace {

struct Scan {
    std::vector<std::string> payloads;
    std::vector<uint32_t> offsets;
    std::vector<BadSpot> bad;
    uint64_t unreadable = 0;
    bool damaged() const {
        return std::any_of(bad.begin(), bad.end(), [](const BadSpot& spot) { return spot.damage; });
    }
    bool torn() const { return !bad.empty() && !damaged(); }
};
Scan scan(const std::vector<char>& octets, uint64_t epoch, uint64_t bad_block = UINT64_MAX) {
    MemorySource source(octets);
    source.bad_block = bad_block;
    static const AlignedBuffer window(4_MiB);
    SegmentScanner scanner(source, epoch, window.span());
    ScannedFrame frame;
    Scan result;
    while (scanner.next(frame)) {
        result.payloads.emplace_back(frame.payload);
        result.offsets.push_back(frame.offset);
    }
    result.bad = scanner.bad_spots();
    result.unreadable = scanner.unreadable_bytes();
    return result;
}

// Three batches: two small messages; one over several blocks; two more.
SegmentImage three_batches() {
    SegmentImage image(1000);
    image.message(1, "first");
    image.message(2, "second");
    image.commit();
    image.message(3, std::string(10'000, 'x'));
    image.commit();
    image.message(4, "fourth");
    image.message(5, "fifth");
    image.commit();
    return image;
}

}  // namespace

TEST_CASE("A scan finds every frame in order, and a clean end", "[storage][reader]") {
    const SegmentImage image = three_batches();
    const Scan found = scan(image.octets, image.epoch);
    CHECK(found.offsets == image.frames);
    CHECK(found.bad.empty());
}

TEST_CASE("An empty segment, and one that is nothing but noise, end cleanly", "[storage][reader]") {
    SegmentImage image(7);
    CHECK(scan(image.octets, 7).payloads.empty());
    std::mt19937_64 random(Catch::rngSeed());
    INFO("seed " << Catch::rngSeed());
    for (size_t i = block_bytes; i < image.octets.size(); ++i) image.octets[i] = static_cast<char>(random());
    const Scan noise = scan(image.octets, 7);
    CHECK(noise.payloads.empty());
    CHECK_FALSE(noise.damaged());
}

TEST_CASE("Frames of an earlier life never come back", "[storage][reader]") {
    SegmentImage image = three_batches();
    image.begin_life(2000);
    CHECK(scan(image.octets, 2000).payloads.empty());
    CHECK(scan(image.octets, 2000).bad.empty());
    image.message(9, "of the new life");
    image.commit();
    const Scan found = scan(image.octets, 2000);
    CHECK(found.payloads.size() == 1);
    CHECK(found.bad.empty());
}

TEST_CASE("A batch at another place than it was written for is not read", "[storage][reader]") {
    SegmentImage image = three_batches();
    SegmentImage shifted(image.epoch);
    std::copy(image.octets.begin() + block_bytes, image.octets.begin() + image.end,
              shifted.octets.begin() + 2 * block_bytes);
    CHECK(scan(shifted.octets, image.epoch).payloads.empty());
}

TEST_CASE("Whatever single octet is damaged, no frame is read that was not written, and at most one batch is lost",
          "[storage][reader]") {
    SegmentImage image = three_batches();
    const Scan whole = scan(image.octets, image.epoch);
    for (size_t at = batches_begin; at < image.end; ++at) {
        // Every octet of the small frames, of all headers and around block boundaries; a sample of the long payload.
        const bool inside_long =
            at > image.frames[2] + 100 && at < image.frames[3] - 100 && (at + 8) % block_bytes > 16;
        if (inside_long && at % 97 != 0) continue;
        const bool far_padding = at > image.frames[1] + 200 && at < image.frames[2] && at % 97 != 0;
        if (far_padding) continue;
        image.octets[at] = static_cast<char>(image.octets[at] ^ 0x40);
        const Scan hurt = scan(image.octets, image.epoch);
        image.octets[at] = static_cast<char>(image.octets[at] ^ 0x40);
        INFO("octet " << at);
        REQUIRE(std::includes(whole.payloads.begin(), whole.payloads.end(), hurt.payloads.begin(), hurt.payloads.end(),
                              [](const auto& a, const auto& b) { return a.substr(0, 8) < b.substr(0, 8); }));
        REQUIRE(hurt.payloads.size() + 2 >= whole.payloads.size());
        REQUIRE((!hurt.bad.empty() || at >= image.frames[3]));  // the first octets of the last batch look like its end
        if (at < image.frames[2]) REQUIRE(hurt.damaged());          // two batches follow, or one that proves it
        if (at >= image.frames[3]) REQUIRE_FALSE(hurt.damaged());   // nothing follows: a torn tail
    }
}

TEST_CASE("A last batch torn at any block is a torn tail, and keeps what came before", "[storage][reader]") {
    SegmentImage image(50);
    image.message(1, "acknowledged");
    image.commit();
    const uint32_t begin = image.end;
    image.message(2, std::string(3'000, 'a'));
    image.message(3, std::string(30'000, 'b'));
    image.message(4, std::string(3'000, 'c'));
    image.commit();
    for (const uint32_t unit : {512u, 4096u})
        for (uint32_t lost = begin; lost < image.end; lost += unit) {
            std::vector<char> torn = image.octets;
            std::fill_n(torn.begin() + lost, unit, '\0');
            const Scan found = scan(torn, 50);
            INFO("lost " << lost << " unit " << unit);
            REQUIRE(found.payloads.size() >= 1);
            REQUIRE_FALSE(found.damaged());
            std::fill(torn.begin() + lost, torn.begin() + image.end, '\0');
            REQUIRE(scan(torn, 50).payloads.size() >= 1);
            REQUIRE_FALSE(scan(torn, 50).damaged());
        }
}

TEST_CASE("Damage in the middle is told from a torn tail, and what lies behind it is kept", "[storage][reader]") {
    SegmentImage image = three_batches();
    std::fill_n(image.octets.begin() + image.frames[2], 100, '\xee');
    const Scan found = scan(image.octets, image.epoch);
    CHECK(found.payloads.size() == 4);
    // One batch behind the damage could still be the torn one itself; with a second it is proven.
    SegmentImage longer = three_batches();
    longer.message(6, "sixth");
    longer.commit();
    std::fill_n(longer.octets.begin() + longer.frames[2], 100, '\xee');
    CHECK(scan(longer.octets, longer.epoch).damaged());
    CHECK(scan(longer.octets, longer.epoch).payloads.size() == 5);
}

TEST_CASE("A bad payload costs one message, not its batch", "[storage][reader]") {
    SegmentImage image = three_batches();
    image.octets[image.frames[0] + frame_header_bytes] ^= 1;
    const Scan found = scan(image.octets, image.epoch);
    CHECK(found.payloads.size() == 4);
    CHECK(found.damaged());
}

TEST_CASE("Blocks that cannot be read are counted, and the rest is kept", "[storage][reader]") {
    const SegmentImage image = three_batches();
    const Scan found = scan(image.octets, image.epoch, image.frames[2] + 4096);
    CHECK(found.payloads.size() == 4);
    CHECK(found.unreadable == block_bytes);
}

TEST_CASE("Padding is zero, whatever was in the memory before", "[storage][batch]") {
    std::vector<char> memory(frame_bytes_max, '\xaa');
    Batch batch;
    batch.begin(memory, 1_MiB);
    auto payload = batch.open_frame(FrameType::fragment, 13, 0);
    payload.put("thirteen byte");
    batch.close_frame(payload);
    const auto written = batch.seal(1, 4096, 1, 0);
    REQUIRE(written.size() == block_bytes);
    CHECK(std::all_of(written.begin() + frame_header_bytes + 13, written.end(), [](char c) { return c == 0; }));
}

TEST_CASE("A batch takes what fits, with its index, and not an octet more", "[storage][batch]") {
    std::vector<char> memory(frame_bytes_max);
    Batch batch;
    batch.begin(memory, 64_MiB);
    CHECK(batch.fits(frame_bytes_max - frame_header_bytes, 0));
    CHECK_FALSE(batch.fits(frame_bytes_max - frame_header_bytes + 1, 0));
    Batch in_small_segment;
    in_small_segment.begin(memory, 1_MiB);
    CHECK_FALSE(in_small_segment.fits(frame_bytes_max - frame_header_bytes, 0));
    CHECK(in_small_segment.fits(768_KiB, 16_KiB));
}
