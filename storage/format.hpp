// The layout on disk, version 1, little endian (storage/README.md has it as tables).
//
// A segment file: one header block, batches of frames, room, an index and a trailer block.  Plain structs without padding,
// copied in and out with memcpy.  Everything here is pure.
#pragma once

#include <bit>
#include <cstdint>
#include <type_traits>

#include "ring/base/units.hpp"

namespace postern::storage {

static_assert(std::endian::native == std::endian::little, "the structs below are copied to disk as they are");

constexpr uint32_t format_version = 1;
constexpr uint32_t block_bytes = 4096;              // batches begin on a block: acknowledged blocks are never rewritten (S3)
constexpr uint32_t frame_bytes_max = 1_MiB;         // header and padding included
constexpr uint32_t frame_alignment = 8;
constexpr uint32_t fragment_bytes_max = 256_KiB;
constexpr uint32_t tail_bytes_max = 256_KiB;        // octets of a message inside its message frame
constexpr uint32_t envelope_bytes_max = 480_KiB;
constexpr uint32_t extents_max = 1024;
constexpr uint32_t diagnostic_bytes_max = 200;
constexpr uint64_t segment_bytes_min = 1_MiB;
constexpr uint64_t segment_bytes_max = 1_GiB;       // offsets fit 32 bits

constexpr uint64_t segment_magic = 0x3130474553545350;  // "PSTSEG01"
constexpr uint64_t trailer_magic = 0x3130584449545350;  // "PSTIDX01"
constexpr uint64_t meta_magic = 0x313041544D545350;     // "PSTMTA01"
constexpr uint32_t frame_magic = 0x4D524650;            // "PFRM"

// Block 0.  Durable before the first batch of its epoch is written.
struct SegmentHeader {
    uint64_t magic = segment_magic;
    uint32_t version = format_version;
    uint32_t block = block_bytes;
    uint64_t epoch = 0;             // random, new at every life of the segment; seeds every frame's CRC
    uint64_t sequence = 0;          // increasing in a shard
    uint64_t segment_bytes = 0;
    uint32_t shard = 0;
    uint32_t boot = 0;              // of the process that wrote it: repairs a damaged meta file
    uint32_t reserved = 0;
    uint32_t crc = 0;               // of all before it
};
static_assert(sizeof(SegmentHeader) == 56);

// The last block, once the segment is sealed.
struct SegmentTrailer {
    uint64_t magic = trailer_magic;
    uint64_t epoch = 0;
    uint64_t sequence = 0;
    uint32_t index_offset = 0;
    uint32_t index_bytes = 0;       // of the entries and, behind them, the records
    uint32_t index_crc = 0;
    uint32_t entries_bytes = 0;     // of which entries
    uint32_t message_count = 0;
    uint32_t batch_count = 0;
    uint32_t end_offset = 0;        // behind the last batch
    uint32_t shard = 0;
    uint32_t boot = 0;
    uint32_t crc = 0;               // of all before it, seeded with the epoch
};
static_assert(sizeof(SegmentTrailer) == 64);

enum class FrameType : uint8_t {
    fragment = 1,   // octets of a message that is still arriving; garbage unless a message frame refers to it
    message = 2,    // MessageHeader, extents, envelope, tail octets
    records = 3,    // what became of messages
    hold = 4,       // reserved
    moved = 5,      // reserved, for compaction
};

struct FrameHeader {
    uint32_t magic = frame_magic;
    uint8_t type = 0;
    uint8_t reserved0 = 0;
    uint16_t reserved1 = 0;
    uint32_t payload_bytes = 0;
    uint32_t ordinal = 0;           // message frames: which of this segment, from 0; else 0
    uint64_t batch = 0;             // from 1, by one from batch to batch of a segment
    uint32_t payload_crc = 0;       // plain, so that it can be computed while copying
    uint32_t crc = 0;               // of all before it, seeded with the epoch and the frame's offset
};
static_assert(sizeof(FrameHeader) == 32);
constexpr uint32_t frame_header_bytes = sizeof(FrameHeader);

struct MessageHeader {
    uint64_t queue_id = 0;
    int64_t received_ns = 0;
    uint64_t message_bytes = 0;     // extents and tail together
    uint32_t recipient_count = 0;
    uint32_t envelope_bytes = 0;
    uint32_t tail_bytes = 0;
    uint16_t extent_count = 0;
    uint16_t flags = 0;
};
static_assert(sizeof(MessageHeader) == 40);

// Where a fragment lies: the offset is that of its frame.
struct Extent {
    uint64_t epoch = 0;
    uint32_t offset = 0;
    uint32_t bytes = 0;
    bool operator==(const Extent&) const = default;
};
static_assert(sizeof(Extent) == 16);

enum class RecordKind : uint8_t {
    recipient = 1,      // one recipient's outcome
    withdrawn = 2,      // the whole message: its client went away before it could be told
    complete_map = 3,   // a bit for each message of a segment: complete or not
};
enum class RecordOutcome : uint8_t { delivered = 1, deferred = 2, failed = 3 };

struct RecordHeader {
    uint32_t record_bytes = 0;      // this header, the detail, zeros up to a multiple of 8
    uint8_t kind = 0;
    uint8_t outcome = 0;            // recipient; else 0
    uint16_t attempt = 0;
    uint64_t epoch = 0;             // of the segment that holds the message
    uint32_t ordinal = 0;           // of the message there; complete_map: how many messages the map covers
    uint32_t recipient = 0;
    int64_t until_ns = 0;
    uint16_t reply_code = 0;
    uint16_t reserved = 0;
    uint32_t detail_bytes = 0;      // the diagnostic, or the map
};
static_assert(sizeof(RecordHeader) == 40);

struct IndexEntry {                 // followed by the message's extents
    uint32_t offset = 0;
    uint32_t payload_bytes = 0;
    uint64_t queue_id = 0;
    int64_t received_ns = 0;
    uint64_t message_bytes = 0;
    uint32_t ordinal = 0;
    uint32_t recipient_count = 0;
    uint64_t batch = 0;
    uint32_t extent_count = 0;
    uint32_t reserved = 0;
};
static_assert(sizeof(IndexEntry) == 56);

// `<spool>/meta`, rewritten at every start.
struct MetaFile {
    uint64_t magic = meta_magic;
    uint32_t version = format_version;
    uint32_t boot = 0;
    uint32_t reserved = 0;
    uint32_t crc = 0;
};
static_assert(sizeof(MetaFile) == 24);

static_assert(frame_header_bytes + sizeof(MessageHeader) + extents_max * sizeof(Extent) + envelope_bytes_max +
                      tail_bytes_max <= 768_KiB,
              "any frame fits a batch, and the smallest segment with its index (S6)");
static_assert(std::has_unique_object_representations_v<SegmentHeader> &&
              std::has_unique_object_representations_v<SegmentTrailer> &&
              std::has_unique_object_representations_v<FrameHeader> &&
              std::has_unique_object_representations_v<MessageHeader> &&
              std::has_unique_object_representations_v<RecordHeader> &&
              std::has_unique_object_representations_v<IndexEntry>, "no padding reaches the disk");

constexpr uint64_t frame_bytes(uint64_t payload_bytes) {
    return round_up(frame_header_bytes + payload_bytes, frame_alignment);
}
constexpr uint32_t batches_begin = block_bytes;

}  // namespace postern::storage
