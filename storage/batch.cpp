#include "storage/batch.hpp"

#include "ring/base/check.hpp"
#include "storage/crc32c.hpp"

namespace postern::storage {

void Batch::begin(std::span<char> memory, uint64_t segment_bytes) {
    CHECK_INVARIANT(empty() && memory.size() >= frame_bytes_max && memory.size() % block_bytes == 0);
    memory_ = memory;
    segment_bytes_ = segment_bytes;
    used_ = index_bytes_ = 0;
}

void Batch::reset() {
    memory_ = {};
    used_ = index_bytes_ = 0;
    frames_.clear();
}

bool Batch::fits(uint64_t payload_bytes, uint64_t index_bytes) const {
    const uint64_t end = used_ + frame_bytes(payload_bytes);
    return frame_bytes(payload_bytes) <= frame_bytes_max && end <= memory_.size() && batches_begin + round_up(end, block_bytes) +
                                             IndexBuilder::footprint_of(index_bytes_ + index_bytes) <= segment_bytes_;
}

void Batch::Payload::put(std::string_view octets) {
    CHECK_INVARIANT(octets.size() <= left_);
    crc_ = crc32c_copy(crc_, at_, octets.data(), octets.size());
    at_ += octets.size();
    left_ -= static_cast<uint32_t>(octets.size());
}

Batch::Payload Batch::open_frame(FrameType type, uint32_t payload_bytes, uint64_t index_bytes) {
    CHECK_INVARIANT(fits(payload_bytes, index_bytes));      // and again in decode_frame_header() when it comes back
    frames_.push_back({static_cast<uint32_t>(used_), payload_bytes, 0, type});
    index_bytes_ += index_bytes;
    Payload payload;
    payload.at_ = memory_.data() + used_ + frame_header_bytes;
    payload.left_ = payload_bytes;
    return payload;
}

size_t Batch::close_frame(const Payload& payload) {
    CHECK_INVARIANT(payload.left_ == 0);
    Frame& frame = frames_.back();
    frame.payload_crc = payload.crc_;
    const uint64_t end = used_ + frame_bytes(frame.payload_bytes);
    char* const payload_end = memory_.data() + used_ + frame_header_bytes + frame.payload_bytes;
    std::memset(payload_end, 0, static_cast<size_t>(memory_.data() + end - payload_end));
    used_ = end;
    return frames_.size() - 1;
}

std::span<char> Batch::payload(size_t frame) {
    return memory_.subspan(frames_[frame].at + frame_header_bytes, frames_[frame].payload_bytes);
}

void Batch::update_payload_crc(size_t frame) {
    const auto octets = payload(frame);
    frames_[frame].payload_crc = crc32c(0, octets.data(), octets.size());
}

std::span<const char> Batch::seal(uint64_t epoch, uint64_t offset, uint64_t batch, uint32_t first_ordinal) {
    for (const Frame& frame : frames_) {
        FrameHeader header;
        header.type = static_cast<uint8_t>(frame.type);
        header.payload_bytes = frame.payload_bytes;
        header.ordinal = frame.type == FrameType::message ? first_ordinal++ : 0;
        header.batch = batch;
        header.payload_crc = frame.payload_crc;
        seal_frame_header(header, epoch, offset + frame.at);
        store(memory_.data() + frame.at, header);
    }
    const auto whole = memory_.first(bytes());
    std::memset(whole.data() + used_, 0, whole.size() - used_);     // no stray memory reaches the disk (S4)
    return whole;
}

}  // namespace postern::storage
