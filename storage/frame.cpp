#include "storage/frame.hpp"

#include <algorithm>

#include "ring/base/check.hpp"
#include "storage/crc32c.hpp"

namespace postern::storage {
namespace {

template <class Struct>
constexpr size_t crc_covers = sizeof(Struct) - sizeof(uint32_t);     // the CRC is the last field of each

void fill_block(std::span<char> block, const void* head, size_t bytes) {
    CHECK_INVARIANT(block.size() == block_bytes);
    std::memcpy(block.data(), head, bytes);
    std::memset(block.data() + bytes, 0, block.size() - bytes);
}

bool known_type(uint8_t type) {
    switch (static_cast<FrameType>(type)) {
        case FrameType::fragment:
        case FrameType::message:
        case FrameType::records:
        case FrameType::hold:
        case FrameType::moved: return true;
    }
    return false;
}

}  // namespace

bool all_zero(std::string_view octets) {
    return std::all_of(octets.begin(), octets.end(), [](char c) { return c == 0; });
}

uint32_t seeded_crc(uint64_t epoch, uint64_t offset, const void* octets, size_t bytes) {
    const uint64_t seed[] = {epoch, offset};
    return crc32c(crc32c(0, seed, sizeof seed), octets, bytes);
}

void encode_segment_header(SegmentHeader header, std::span<char> block) {
    header.crc = crc32c(0, &header, crc_covers<SegmentHeader>);
    fill_block(block, &header, sizeof header);
}

HeaderVerdict decode_segment_header(std::string_view block, SegmentHeader& header) {
    if (block.size() < block_bytes) return HeaderVerdict::not_a_segment;
    header = load<SegmentHeader>(block.data());
    const bool intact = header.crc == crc32c(0, &header, crc_covers<SegmentHeader>);
    if (header.magic != segment_magic) return HeaderVerdict::not_a_segment;
    if (!intact) return HeaderVerdict::damaged;
    if (header.version != format_version || header.block != block_bytes) return HeaderVerdict::other_format;
    const bool sane = header.segment_bytes >= segment_bytes_min && header.segment_bytes <= segment_bytes_max &&
                      header.segment_bytes % block_bytes == 0 &&
                      all_zero(block.substr(sizeof header, block_bytes - sizeof header));
    return sane ? HeaderVerdict::good : HeaderVerdict::damaged;
}

void encode_trailer(SegmentTrailer trailer, std::span<char> block) {
    trailer.crc = seeded_crc(trailer.epoch, 0, &trailer, crc_covers<SegmentTrailer>);
    fill_block(block, &trailer, sizeof trailer);
}

bool decode_trailer(std::string_view block, std::optional<uint64_t> epoch, uint64_t segment_bytes,
                    SegmentTrailer& trailer) {
    if (block.size() < block_bytes) return false;
    trailer = load<SegmentTrailer>(block.data());
    if (trailer.magic != trailer_magic) return false;
    if (trailer.crc != seeded_crc(epoch.value_or(trailer.epoch), 0, &trailer, crc_covers<SegmentTrailer>)) return false;
    const uint64_t index_end = round_up(uint64_t{trailer.index_offset} + trailer.index_bytes, block_bytes);
    return all_zero(block.substr(sizeof trailer, block_bytes - sizeof trailer)) &&
           trailer.index_offset % block_bytes == 0 && trailer.end_offset >= batches_begin &&
           trailer.end_offset <= trailer.index_offset && trailer.entries_bytes <= trailer.index_bytes &&
           index_end + block_bytes == segment_bytes;
}

void seal_frame_header(FrameHeader& header, uint64_t epoch, uint64_t offset) {
    header.crc = seeded_crc(epoch, offset, &header, crc_covers<FrameHeader>);
}

std::optional<FrameHeader> decode_frame_header(std::string_view octets, uint64_t epoch, uint64_t offset) {
    if (octets.size() < frame_header_bytes) return std::nullopt;
    const auto header = load<FrameHeader>(octets.data());
    if (header.magic != frame_magic) return std::nullopt;       // cheap: most of what is not a frame ends here
    if (header.crc != seeded_crc(epoch, offset, &header, crc_covers<FrameHeader>)) return std::nullopt;
    if (!known_type(header.type) || header.reserved0 || header.reserved1 || header.batch == 0) return std::nullopt;
    if (frame_bytes(header.payload_bytes) > frame_bytes_max) return std::nullopt;
    return header;
}

bool payload_intact(const FrameHeader& header, std::string_view payload) {
    return payload.size() == header.payload_bytes && crc32c(0, payload) == header.payload_crc;
}

std::optional<MessagePayload> decode_message(std::string_view payload) {
    if (payload.size() < sizeof(MessageHeader)) return std::nullopt;
    MessagePayload message;
    message.header = load<MessageHeader>(payload.data());
    const MessageHeader& header = message.header;
    if (header.extent_count > extents_max) return std::nullopt;
    if (payload.size() != message_payload_bytes(header.extent_count, header.envelope_bytes, header.tail_bytes))
        return std::nullopt;
    size_t at = sizeof(MessageHeader);
    const auto take = [&](size_t bytes) {
        const std::string_view part = payload.substr(at, bytes);
        at += bytes;
        return part;
    };
    message.extents = take(header.extent_count * sizeof(Extent));
    message.envelope = take(header.envelope_bytes);
    message.tail = take(header.tail_bytes);
    uint64_t bytes = header.tail_bytes;
    for (size_t i = 0; i < header.extent_count; ++i) bytes += message.extent(i).bytes;
    if (bytes != header.message_bytes) return std::nullopt;
    return message;
}

void append_record(RecordHeader header, std::string_view detail, std::vector<char>& out) {
    header.detail_bytes = static_cast<uint32_t>(detail.size());
    header.record_bytes = record_bytes(detail.size());
    const size_t at = out.size();
    out.resize(at + header.record_bytes);       // zeros
    store(out.data() + at, header);
    if (!detail.empty()) std::memcpy(out.data() + at + sizeof header, detail.data(), detail.size());
}

std::optional<Record> take_record(std::string_view& octets) {
    if (octets.size() < sizeof(RecordHeader)) return std::nullopt;
    Record record{load<RecordHeader>(octets.data()), {}};
    const RecordHeader& header = record.header;
    if (header.record_bytes > octets.size() || header.detail_bytes > octets.size()) return std::nullopt;
    if (header.record_bytes != record_bytes(header.detail_bytes)) return std::nullopt;
    switch (static_cast<RecordKind>(header.kind)) {
        case RecordKind::recipient:
            if (header.outcome < 1 || header.outcome > 3) return std::nullopt;
            break;
        case RecordKind::withdrawn: break;
        case RecordKind::complete_map:
            if (header.detail_bytes != (uint64_t{header.ordinal} + 7) / 8) return std::nullopt;
            break;
        default: return std::nullopt;
    }
    record.detail = octets.substr(sizeof(RecordHeader), header.detail_bytes);
    octets.remove_prefix(header.record_bytes);
    return record;
}

bool complete_in(const Record& complete_map, uint32_t ordinal) {
    return ordinal < complete_map.header.ordinal &&
           (static_cast<uint8_t>(complete_map.detail[ordinal / 8]) >> ordinal % 8 & 1);
}

void IndexBuilder::clear() {
    entries_.clear();
    records_.clear();
    message_count_ = 0;
}

void IndexBuilder::add_message(IndexEntry entry, std::string_view extents) {
    entry.extent_count = static_cast<uint32_t>(extents.size() / sizeof(Extent));
    const auto* head = reinterpret_cast<const char*>(&entry);
    entries_.insert(entries_.end(), head, head + sizeof entry);
    entries_.insert(entries_.end(), extents.begin(), extents.end());
    ++message_count_;
}

void IndexBuilder::add_records(std::string_view records) {
    while (const auto record = take_record(records)) {
        const bool map = record->header.kind == static_cast<uint8_t>(RecordKind::complete_map);
        append_record(record->header, map ? record->detail : std::string_view(), records_);
    }
}

void IndexBuilder::encode(SegmentTrailer trailer, uint64_t segment_bytes, std::span<char> out) const {
    CHECK_INVARIANT(out.size() == footprint());
    trailer.index_offset = static_cast<uint32_t>(segment_bytes - out.size());
    trailer.index_bytes = static_cast<uint32_t>(bytes());
    trailer.entries_bytes = static_cast<uint32_t>(entries_.size());
    trailer.message_count = message_count_;
    std::memset(out.data(), 0, out.size());
    std::copy(entries_.begin(), entries_.end(), out.begin());
    std::copy(records_.begin(), records_.end(), out.begin() + static_cast<ptrdiff_t>(entries_.size()));
    trailer.index_crc = seeded_crc(trailer.epoch, trailer.index_offset, out.data(), trailer.index_bytes);
    encode_trailer(trailer, out.subspan(out.size() - block_bytes));
}

std::optional<IndexedMessage> take_entry(std::string_view& entries) {
    if (entries.size() < sizeof(IndexEntry)) return std::nullopt;
    IndexedMessage message{load<IndexEntry>(entries.data()), {}};
    if (message.entry.extent_count > extents_max) return std::nullopt;
    const size_t extents = message.entry.extent_count * sizeof(Extent);
    if (entries.size() - sizeof(IndexEntry) < extents) return std::nullopt;
    message.extents = entries.substr(sizeof(IndexEntry), extents);
    entries.remove_prefix(sizeof(IndexEntry) + extents);
    return message;
}

}  // namespace postern::storage
