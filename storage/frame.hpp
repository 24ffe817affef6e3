// Encoding and checking of what format.hpp lays out: headers, trailers, frames, message payloads, records, the index.
//
// Decoding never trusts: every length is checked against what is there.  Pure; any thread; nothing allocates but
// IndexBuilder.
#pragma once

#include <cstring>
#include <optional>
#include <span>
#include <string_view>
#include <vector>

#include "storage/format.hpp"

namespace postern::storage {

// Copies between octets and the structs of format.hpp, whatever the alignment.
template <class Struct>
Struct load(const char* from) {
    Struct value;
    std::memcpy(&value, from, sizeof value);
    return value;
}
template <class Struct>
void store(char* to, const Struct& value) {
    std::memcpy(to, &value, sizeof value);
}

bool all_zero(std::string_view octets);
uint32_t seeded_crc(uint64_t epoch, uint64_t offset, const void* octets, size_t bytes);

// Segment header and trailer fill one block each: the struct, then zeros.
void encode_segment_header(SegmentHeader header, std::span<char> block);
enum class HeaderVerdict : uint8_t { good, not_a_segment, other_format, damaged };
HeaderVerdict decode_segment_header(std::string_view block, SegmentHeader& header);
void encode_trailer(SegmentTrailer trailer, std::span<char> block);
// `epoch` is the header's; without one (the header is damaged) the trailer vouches for itself.
bool decode_trailer(std::string_view block, std::optional<uint64_t> epoch, uint64_t segment_bytes,
                    SegmentTrailer& trailer);

// Sets the CRC; the other fields are the caller's.
void seal_frame_header(FrameHeader& header, uint64_t epoch, uint64_t offset);
// The header alone: magic, CRC, a known type, reserved fields, a payload that fits a batch.
std::optional<FrameHeader> decode_frame_header(std::string_view octets, uint64_t epoch, uint64_t offset);
bool payload_intact(const FrameHeader& header, std::string_view payload);

// A message frame's payload, taken apart; the views point into it.
struct MessagePayload {
    MessageHeader header;
    std::string_view extents;       // extent_count times Extent
    std::string_view envelope;
    std::string_view tail;
    Extent extent(size_t index) const { return load<Extent>(extents.data() + index * sizeof(Extent)); }
};
constexpr uint64_t message_payload_bytes(uint64_t extent_count, uint64_t envelope, uint64_t tail) {
    return sizeof(MessageHeader) + extent_count * sizeof(Extent) + envelope + tail;
}
std::optional<MessagePayload> decode_message(std::string_view payload);

// Records follow one another in a records frame and in the index.
struct Record {
    RecordHeader header;
    std::string_view detail;
};
constexpr uint32_t record_bytes(uint64_t detail) {
    return static_cast<uint32_t>(round_up(sizeof(RecordHeader) + detail, 8));
}
// Appends; the caller's record_bytes and detail_bytes are set here.
void append_record(RecordHeader header, std::string_view detail, std::vector<char>& out);
// Takes the first record off `octets`; nothing when what is there is not one.
std::optional<Record> take_record(std::string_view& octets);
bool complete_in(const Record& complete_map, uint32_t ordinal);

// What the trailer's index holds: enough to know a segment's messages without reading their octets.
class IndexBuilder {
public:
    void clear();
    void add_message(IndexEntry entry, std::string_view extents);
    void add_records(std::string_view records);     // diagnostics are left out
    // Whole blocks, the trailer included; what a segment must keep free for it.
    uint64_t footprint() const { return footprint_of(entries_.size() + records_.size()); }
    static uint64_t footprint_of(uint64_t bytes) { return round_up(bytes, block_bytes) + block_bytes; }
    uint64_t bytes() const { return entries_.size() + records_.size(); }
    uint32_t message_count() const { return message_count_; }
    // Writes index and trailer as they lie at the end of the segment: out.size() == footprint().
    void encode(SegmentTrailer trailer, uint64_t segment_bytes, std::span<char> out) const;

private:
    std::vector<char> entries_;
    std::vector<char> records_;
    uint32_t message_count_ = 0;
};

struct IndexedMessage {
    IndexEntry entry;
    std::string_view extents;
    Extent extent(size_t index) const { return load<Extent>(extents.data() + index * sizeof(Extent)); }
};
// Takes the first entry off `entries`.
std::optional<IndexedMessage> take_entry(std::string_view& entries);

}  // namespace postern::storage
