#include "storage/commit_sink.hpp"

#include <algorithm>
#include <cerrno>

#include "ring/base/check.hpp"
#include "storage/format.hpp"

namespace postern::storage {

namespace {

constexpr uint64_t part_bytes_min = 256_KiB;    // smaller ones cost more in commands than they gain
constexpr uint64_t part_bytes_max = 1_MiB;      // larger direct writes may be refused with EAGAIN

}  // namespace

CommitSink::CommitSink(ring::Loop& loop, SinkKind kind, Owner& owner)
    : kind_(kind), owner_(owner), parts_{Part(loop, *this), Part(loop, *this), Part(loop, *this), Part(loop, *this)} {}

void CommitSink::write(int fd, uint64_t offset, std::span<const char> octets) {
    CHECK_INVARIANT(!busy() && !octets.empty() && octets.size() <= parts_max * part_bytes_max);
    fd_ = fd;
    error_ = 0;
    flushed_ = kind_ != SinkKind::buffered;
    const uint64_t part_bytes = std::max(part_bytes_min, round_up(octets.size() / parts_max, block_bytes));
    parts_in_flight_ = (octets.size() + part_bytes - 1) / part_bytes;       // before any is submitted
    CHECK_INVARIANT(parts_in_flight_ <= parts_max);
    for (size_t part = 0, at = 0; at < octets.size(); ++part, at += part_bytes)
        parts_[part].write(offset + at, octets.subspan(at, std::min<uint64_t>(part_bytes, octets.size() - at)));
}

void CommitSink::part_done(int error) {
    if (error_ == 0) error_ = error;
    if (--parts_in_flight_ > 0) return;
    if (error_ == 0 && !flushed_) {
        flushed_ = true;
        parts_in_flight_ = 1;
        parts_[0].flush();
        return;
    }
    owner_.on_batch_written(error_);
}

void CommitSink::Part::write(uint64_t offset, std::span<const char> octets) {
    offset_ = offset;
    octets_ = octets;
    again_ = flushing_ = false;
    submit();
}

void CommitSink::Part::flush() {
    flushing_ = true;
    sync_data(sink_.fd_);
}

void CommitSink::Part::submit() {
    FileOperation::write(sink_.fd_, offset_, octets_,
                         sink_.kind_ == SinkKind::direct ? ring::Durability::data : ring::Durability::none);
}

void CommitSink::Part::on_file_done(int32_t result) {
    if (flushing_) return sink_.part_done(result < 0 ? -result : 0);
    if (result == static_cast<int32_t>(octets_.size())) return sink_.part_done(0);
    const bool transient = result >= 0 || result == -EAGAIN;
    if (!transient || again_) return sink_.part_done(result < 0 ? -result : EIO);
    again_ = true;
    submit();
}

}  // namespace postern::storage
