#include "storage/segment_reader.hpp"

#include <algorithm>
#include <new>
#include <utility>

#include "ring/base/check.hpp"
#include "ring/files.hpp"

namespace postern::storage {

bool FileSource::read(uint64_t offset, std::span<char> into) {
    return ring::read_at(fd_, offset, into) == static_cast<int>(into.size());
}

AlignedBuffer::AlignedBuffer(size_t bytes)
    : data_(static_cast<char*>(::operator new(bytes, std::align_val_t{block_bytes}))), bytes_(bytes) {}
AlignedBuffer::AlignedBuffer(AlignedBuffer&& other) noexcept
    : data_(std::exchange(other.data_, nullptr)), bytes_(std::exchange(other.bytes_, 0)) {}
AlignedBuffer& AlignedBuffer::operator=(AlignedBuffer&& other) noexcept {
    std::swap(data_, other.data_);
    std::swap(bytes_, other.bytes_);
    return *this;
}
AlignedBuffer::~AlignedBuffer() { ::operator delete(data_, std::align_val_t{block_bytes}); }

SegmentScanner::SegmentScanner(SegmentSource& source, uint64_t epoch, std::span<char> window)
    : source_(source), epoch_(epoch), window_(window.first(window.size() / block_bytes * block_bytes)) {
    CHECK_INVARIANT(window_.size() >= 2 * frame_bytes_max);
    const uint64_t whole = std::min(source.bytes(), segment_bytes_max) / block_bytes * block_bytes;
    limit_ = whole < 2 * block_bytes ? batches_begin : whole - block_bytes;
}

bool SegmentScanner::next(ScannedFrame& frame) {
    for (;;) {
        if (position_ + frame_header_bytes > limit_) return false;
        if (take(frame)) return true;
        if (skip_padding()) continue;
        if (!resume_at_a_block()) return false;
    }
}

// A frame at position_?  One with a valid header and a bad payload is stepped over: the rest of its batch can be read.
bool SegmentScanner::take(ScannedFrame& frame) {
    for (;;) {
        if (position_ + frame_header_bytes > limit_) return false;
        const auto header = decode_frame_header(view(position_, frame_header_bytes), epoch_, position_);
        if (!header || header->batch < batch_ || position_ + frame_bytes(header->payload_bytes) > limit_) return false;
        const std::string_view octets = view(position_, frame_bytes(header->payload_bytes));
        const std::string_view payload = octets.substr(frame_header_bytes, header->payload_bytes);
        const std::string_view padding = octets.substr(frame_header_bytes + payload.size());
        if (header->batch > bad_batch_)  // written after a bad spot's batch was durable (S2): that spot is damage
            for (; bad_settled_ < bad_spots_.size(); ++bad_settled_) bad_spots_[bad_settled_].damage = true;
        batch_ = header->batch;
        if (!all_zero(padding)) bad("padding is not zero");
        if (!payload_intact(*header, payload)) {
            bad("payload does not match its CRC");
            position_ += octets.size();
            continue;
        }
        frame = {*header, static_cast<uint32_t>(position_), payload};
        position_ += octets.size();
        end_ = static_cast<uint32_t>(round_up(position_, block_bytes));
        return true;
    }
}

bool SegmentScanner::skip_padding() {
    const uint64_t boundary = round_up(position_, block_bytes);
    if (boundary == position_) return false;
    if (!all_zero(view(position_, std::min(boundary, limit_) - position_))) return false;
    position_ = boundary;
    return true;
}

// No frame here.  On a block boundary that is how every segment ends, unless a frame of this epoch follows.
bool SegmentScanner::resume_at_a_block() {
    const bool inside = position_ % block_bytes != 0;
    const uint64_t from = position_;
    for (uint64_t at = round_up(position_ + 1, block_bytes); at + frame_header_bytes <= limit_; at += block_bytes) {
        const auto header = decode_frame_header(view(at, frame_header_bytes), epoch_, at);
        if (!header || header->batch < batch_) continue;
        bad("no frame where one should be");
        if (!inside) bad_batch_ = std::max(bad_batch_, batch_ + 1);  // the batch that begins here may be the torn one
        position_ = at;
        return true;
    }
    if (inside && from == position_) bad("batch ends in the middle");
    position_ = limit_;
    return false;
}

void SegmentScanner::bad(const char* what) {
    bad_batch_ = std::max(bad_batch_, batch_);
    bad_spots_.push_back({static_cast<uint32_t>(position_), false, what});
}

std::string_view SegmentScanner::view(uint64_t offset, uint64_t bytes) {
    if (offset < window_offset_ || offset + bytes > window_offset_ + window_bytes_) fill(offset);
    CHECK_INVARIANT(offset + bytes <= window_offset_ + window_bytes_);
    return {window_.data() + (offset - window_offset_), bytes};
}

void SegmentScanner::fill(uint64_t offset) {
    window_offset_ = offset / block_bytes * block_bytes;
    window_bytes_ = std::min<uint64_t>(window_.size(), limit_ - window_offset_);
    const auto whole = window_.first(window_bytes_);
    if (source_.read(window_offset_, whole)) return;
    for (uint64_t at = 0; at < window_bytes_; at += block_bytes) {      // keep what can be read
        const auto block = whole.subspan(at, block_bytes);
        if (source_.read(window_offset_ + at, block)) continue;
        std::fill(block.begin(), block.end(), '\0');
        unreadable_ += block_bytes;
    }
}

}  // namespace postern::storage
