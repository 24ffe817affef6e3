// A segment in memory, written with the spool's own Batch and IndexBuilder: what the pure tests read and damage.
#pragma once

#include <algorithm>
#include <string>
#include <vector>

#include "storage/batch.hpp"
#include "storage/recovery.hpp"

namespace postern::storage {

class MemorySource final : public SegmentSource {
public:
    explicit MemorySource(const std::vector<char>& octets) : octets_(octets) {}
    uint64_t bytes() const override { return octets_.size(); }
    bool read(uint64_t offset, std::span<char> into) override {
        if (offset + into.size() > octets_.size()) return false;
        if (bad_block != UINT64_MAX && offset <= bad_block && bad_block < offset + into.size()) return false;
        std::copy_n(octets_.begin() + static_cast<ptrdiff_t>(offset), into.size(), into.begin());
        return true;
    }
    uint64_t bad_block = UINT64_MAX;

private:
    const std::vector<char>& octets_;
};

class SegmentImage {
public:
    explicit SegmentImage(uint64_t segment_epoch, uint64_t bytes = 1_MiB)
        : octets(bytes), epoch(segment_epoch), memory_(frame_bytes_max) {
        begin_life(segment_epoch);
    }
    // A new life over what is there, as recycling does it: only the header changes.
    void begin_life(uint64_t new_epoch) {
        epoch = new_epoch;
        SegmentHeader header;
        header.epoch = epoch;
        header.sequence = ++lives_;
        header.segment_bytes = octets.size();
        header.boot = 5;
        encode_segment_header(header, std::span(octets).first(block_bytes));
        end = batches_begin;
        batches = ordinals = 0;
        index_.clear();
    }

    void fragment(const std::string& body) { add(FrameType::fragment, body, 0); }
    void message(uint64_t id, const std::string& body, const std::vector<Extent>& extents = {},
                 uint32_t recipients = 1) {
        const std::string envelope = "envelope";
        uint64_t bytes = body.size();
        for (const Extent& extent : extents) bytes += extent.bytes;
        const MessageHeader header{.queue_id = id,
                                   .received_ns = static_cast<int64_t>(id),
                                   .message_bytes = bytes,
                                   .recipient_count = recipients,
                                   .envelope_bytes = 8,
                                   .tail_bytes = static_cast<uint32_t>(body.size()),
                                   .extent_count = static_cast<uint16_t>(extents.size()),
                                   .flags = 0};
        std::string payload(reinterpret_cast<const char*>(&header), sizeof header);
        payload.append(reinterpret_cast<const char*>(extents.data()), extents.size() * sizeof(Extent));
        add(FrameType::message, payload + envelope + body, sizeof(IndexEntry) + extents.size() * sizeof(Extent));
    }
    void result(uint64_t of_epoch, uint32_t ordinal, RecordOutcome outcome, uint32_t recipient = 0,
                uint16_t attempt = 1) {
        RecordHeader header;
        header.kind = static_cast<uint8_t>(RecordKind::recipient);
        header.outcome = static_cast<uint8_t>(outcome);
        header.epoch = of_epoch;
        header.ordinal = ordinal;
        header.recipient = recipient;
        header.attempt = attempt;
        std::vector<char> record;
        append_record(header, {}, record);
        add(FrameType::records, {record.data(), record.size()}, record.size());
    }
    void complete_map(uint64_t of_epoch, uint32_t count, const std::string& map) {
        RecordHeader header;
        header.kind = static_cast<uint8_t>(RecordKind::complete_map);
        header.epoch = of_epoch;
        header.ordinal = count;
        std::vector<char> record;
        append_record(header, map, record);
        add(FrameType::records, {record.data(), record.size()}, record.size());
    }
    // Where the next frame of the batch being formed will lie.
    uint32_t next_offset() const { return end + static_cast<uint32_t>(used_); }
    void commit() {
        const auto written = batch_.seal(epoch, end, ++batches, ordinals);
        std::copy(written.begin(), written.end(), octets.begin() + end);
        for (size_t i = 0; i < batch_.frame_count(); ++i) {
            frames.push_back(end + batch_.at(i));
            const auto payload = batch_.payload(i);
            if (batch_.type(i) == FrameType::records) index_.add_records({payload.data(), payload.size()});
            if (batch_.type(i) != FrameType::message) continue;
            const auto decoded = *decode_message({payload.data(), payload.size()});
            index_.add_message({.offset = frames.back(), .payload_bytes = static_cast<uint32_t>(payload.size()),
                                .queue_id = decoded.header.queue_id, .received_ns = decoded.header.received_ns,
                                .message_bytes = decoded.header.message_bytes, .ordinal = ordinals++,
                                .recipient_count = decoded.header.recipient_count, .batch = batches},
                               decoded.extents);
        }
        end += static_cast<uint32_t>(written.size());
        batch_.reset();
        used_ = 0;
    }
    void seal() {
        SegmentTrailer trailer;
        trailer.epoch = epoch;
        trailer.sequence = lives_;
        trailer.batch_count = static_cast<uint32_t>(batches);
        trailer.end_offset = end;
        const uint64_t bytes = index_.footprint();
        index_.encode(trailer, octets.size(), std::span(octets).last(bytes));
    }

    std::vector<char> octets;
    uint64_t epoch;
    uint32_t end = batches_begin;
    uint64_t batches = 0;
    uint32_t ordinals = 0;
    std::vector<uint32_t> frames;       // offsets

private:
    void add(FrameType type, const std::string& payload, uint64_t index_bytes) {
        if (!batch_.begun()) batch_.begin(memory_, octets.size());
        auto open = batch_.open_frame(type, static_cast<uint32_t>(payload.size()), index_bytes);
        open.put(payload);
        batch_.close_frame(open);
        used_ += frame_bytes(payload.size());
    }
    std::vector<char> memory_;
    Batch batch_;
    IndexBuilder index_;
    uint64_t used_ = 0;
    uint64_t lives_ = 0;
};

}  // namespace postern::storage
