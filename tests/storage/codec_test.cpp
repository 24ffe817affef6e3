#include <catch2/catch.hpp>
#include <random>
#include <string>
#include <vector>

#include "storage/crc32c.hpp"
#include "storage/frame.hpp"
#include "storage/queue_id.hpp"

using namespace postern;
using namespace postern::storage;

namespace {

std::string random_octets(std::mt19937_64& random, size_t bytes) {
    std::string octets(bytes, '\0');
    for (char& c : octets) c = static_cast<char>(random());
    return octets;
}
std::string_view view(const std::vector<char>& octets) { return {octets.data(), octets.size()}; }

template <class Check>
void with_every_bit_flipped(std::vector<char> octets, Check&& check) {
    for (size_t i = 0; i < octets.size(); ++i)
        for (int bit = 0; bit < 8; ++bit) {
            octets[i] = static_cast<char>(octets[i] ^ 1 << bit);
            check(octets);
            octets[i] = static_cast<char>(octets[i] ^ 1 << bit);
        }
}

}  // namespace

TEST_CASE("CRC32C gives the values of RFC 3720", "[storage][crc]") {
    CHECK(crc32c(0, "123456789") == 0xe3069283);
    CHECK(crc32c(0, std::string(32, '\0')) == 0x8a9136aa);
    CHECK(crc32c(0, std::string(32, '\xff')) == 0x62a8ab43);
    CHECK(crc32c_by_table(0, "123456789", 9) == 0xe3069283);
    CHECK(crc32c(0, "") == 0);
}

TEST_CASE("The instruction, the table and the copying CRC agree on every length, start and split", "[storage][crc]") {
    std::mt19937_64 random(Catch::rngSeed());
    INFO("seed " << Catch::rngSeed());
    const std::string octets = random_octets(random, 20'000);
    for (size_t round = 0; round < 3000; ++round) {
        const size_t bytes = round < 1000 ? round : random() % 19'000;
        const size_t start = random() % 64;
        const char* from = octets.data() + start;
        const uint32_t expected = crc32c_by_table(0, from, bytes);
        REQUIRE(crc32c(0, from, bytes) == expected);
        std::string copy(bytes, '?');
        REQUIRE(crc32c_copy(0, copy.data(), from, bytes) == expected);
        REQUIRE(copy == octets.substr(start, bytes));
        const size_t split = bytes ? random() % bytes : 0;
        REQUIRE(crc32c(crc32c(0, from, split), from + split, bytes - split) == expected);
    }
}

TEST_CASE("A queue id reads back from its text, sorts as the number does, and nothing else parses",
          "[storage][queue_id]") {
    const uint64_t values[] = {0, 1, 31, 32, uint64_t{1} << 40, UINT64_MAX - 1, UINT64_MAX};
    std::string last;
    for (const uint64_t value : values) {
        const auto text = text_of({value});
        const std::string characters{std::string_view(text)};
        CHECK(parse_queue_id(characters) == QueueId{value});
        CHECK(characters > last);
        last = characters;
    }
    CHECK_FALSE(parse_queue_id("000000000000"));
    CHECK_FALSE(parse_queue_id("00000000000000"));
    CHECK_FALSE(parse_queue_id("00000000000U0"));
    CHECK_FALSE(parse_queue_id("0000000000a00"));
    CHECK_FALSE(parse_queue_id("G000000000000"));      // more than 64 bits
}

TEST_CASE("A segment header reads back, and any flipped bit in its block is noticed", "[storage][codec]") {
    std::vector<char> block(block_bytes);
    SegmentHeader header;
    header.epoch = 0x1122334455667788;
    header.sequence = 42;
    header.segment_bytes = 64_MiB;
    header.shard = 3;
    header.boot = 17;
    encode_segment_header(header, block);
    SegmentHeader read;
    REQUIRE(decode_segment_header(view(block), read) == HeaderVerdict::good);
    CHECK(read.epoch == header.epoch);
    CHECK(read.sequence == 42);
    CHECK(read.boot == 17);
    size_t accepted = 0;
    with_every_bit_flipped(
        block, [&](const auto& hurt) { accepted += decode_segment_header(view(hurt), read) == HeaderVerdict::good; });
    CHECK(accepted == 0);
}

TEST_CASE("A header of a later version is told from damage", "[storage][codec]") {
    std::vector<char> block(block_bytes);
    SegmentHeader header;
    header.version = format_version + 1;
    header.segment_bytes = 64_MiB;
    encode_segment_header(header, block);
    CHECK(decode_segment_header(view(block), header) == HeaderVerdict::other_format);
}

TEST_CASE("A trailer belongs to one epoch, and any flipped bit in its block is noticed", "[storage][codec]") {
    IndexBuilder index;
    index.add_message({.offset = 4096, .payload_bytes = 100, .queue_id = 5}, {});
    std::vector<char> end(index.footprint());
    SegmentTrailer trailer;
    trailer.epoch = 77;
    trailer.end_offset = 8192;
    index.encode(trailer, 1_MiB, end);
    const std::vector<char> block(end.end() - block_bytes, end.end());
    SegmentTrailer read;
    REQUIRE(decode_trailer(view(block), 77, 1_MiB, read));
    REQUIRE(decode_trailer(view(block), std::nullopt, 1_MiB, read));
    CHECK(read.message_count == 1);
    CHECK_FALSE(decode_trailer(view(block), 78, 1_MiB, read));
    CHECK_FALSE(decode_trailer(view(block), 77, 2_MiB, read));
    size_t accepted = 0;
    with_every_bit_flipped(block, [&](const auto& hurt) { accepted += decode_trailer(view(hurt), 77, 1_MiB, read); });
    CHECK(accepted == 0);
}

TEST_CASE("A frame header is good only in its epoch, at its offset, bit for bit", "[storage][codec]") {
    FrameHeader header;
    header.type = static_cast<uint8_t>(FrameType::message);
    header.payload_bytes = 1000;
    header.ordinal = 9;
    header.batch = 3;
    seal_frame_header(header, 1234, 8192);
    std::vector<char> octets(frame_header_bytes);
    store(octets.data(), header);
    REQUIRE(decode_frame_header(view(octets), 1234, 8192));
    CHECK_FALSE(decode_frame_header(view(octets), 1235, 8192));
    CHECK_FALSE(decode_frame_header(view(octets), 1234, 8200));
    size_t accepted = 0;
    with_every_bit_flipped(
        octets, [&](const auto& hurt) { accepted += decode_frame_header(view(hurt), 1234, 8192).has_value(); });
    CHECK(accepted == 0);
}

TEST_CASE("A message payload is taken apart exactly, and refused when a length does not add up", "[storage][codec]") {
    const Extent extents[] = {{1, 4096, 300}, {2, 8192, 500}};
    MessageHeader header{.queue_id = 1,
                         .received_ns = 2,
                         .message_bytes = 810,
                         .recipient_count = 3,
                         .envelope_bytes = 4,
                         .tail_bytes = 10,
                         .extent_count = 2,
                         .flags = 5};
    std::string payload(reinterpret_cast<const char*>(&header), sizeof header);
    payload.append(reinterpret_cast<const char*>(extents), sizeof extents);
    payload += "ENVEtail octet";
    const auto message = decode_message(payload);
    REQUIRE(message);
    CHECK(message->envelope == "ENVE");
    CHECK(message->tail == "tail octet");
    CHECK(message->extent(1) == extents[1]);
    for (size_t length = 0; length < payload.size(); ++length) CHECK_FALSE(decode_message(payload.substr(0, length)));
    CHECK_FALSE(decode_message(payload + "x"));
    header.message_bytes = 811;
    store(payload.data(), header);
    CHECK_FALSE(decode_message(payload));
}

TEST_CASE("Records and index entries read back one after another, and stop at what is cut short", "[storage][codec]") {
    std::vector<char> octets;
    RecordHeader header;
    header.kind = static_cast<uint8_t>(RecordKind::recipient);
    header.outcome = static_cast<uint8_t>(RecordOutcome::deferred);
    header.epoch = 99;
    append_record(header, "451 try later", octets);
    header.kind = static_cast<uint8_t>(RecordKind::complete_map);
    header.ordinal = 11;
    append_record(header, std::string("\x05\x04", 2), octets);
    std::string_view rest = view(octets);
    const auto first = take_record(rest);
    REQUIRE(first);
    CHECK(first->detail == "451 try later");
    const auto map = take_record(rest);
    REQUIRE(map);
    CHECK(rest.empty());
    std::vector<uint32_t> complete;
    for (uint32_t i = 0; i < 20; ++i)
        if (complete_in(*map, i)) complete.push_back(i);
    CHECK(complete == std::vector<uint32_t>{0, 2, 10});
    for (size_t cut = 0; cut < octets.size(); ++cut) {
        std::string_view part = view(octets).substr(0, cut);
        size_t count = 0;
        while (take_record(part)) ++count;
        CHECK(count == (cut >= record_bytes(13) ? 1 : 0));
    }

    IndexBuilder index;
    const Extent extent{7, 4096, 12};
    index.add_message({.offset = 1, .ordinal = 0}, {});
    index.add_message({.offset = 2, .ordinal = 1}, {reinterpret_cast<const char*>(&extent), sizeof extent});
    index.add_records(view(octets));
    std::vector<char> end(index.footprint());
    SegmentTrailer trailer;
    trailer.end_offset = batches_begin;
    index.encode(trailer, 1_MiB, end);
    REQUIRE(decode_trailer(view(end).substr(end.size() - block_bytes), std::nullopt, 1_MiB, trailer));
    std::string_view entries = view(end).substr(0, trailer.entries_bytes);
    CHECK(take_entry(entries)->entry.offset == 1);
    CHECK(take_entry(entries)->extent(0) == extent);
    CHECK_FALSE(take_entry(entries));
    std::string_view records = view(end).substr(trailer.entries_bytes, trailer.index_bytes - trailer.entries_bytes);
    CHECK(take_record(records)->detail.empty());       // diagnostics are left out
    CHECK(take_record(records)->detail.size() == 2);
}
