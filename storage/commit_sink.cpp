#include "storage/commit_sink.hpp"

#include <cerrno>

#include "ring/base/check.hpp"

namespace postern::storage {

void CommitSink::write(int fd, uint64_t offset, std::span<const char> octets) {
    CHECK_INVARIANT(!busy_);
    fd_ = fd;
    offset_ = offset;
    octets_ = octets;
    busy_ = true;
    again_ = flushing_ = false;
    submit();
}

void CommitSink::submit() {
    FileOperation::write(fd_, offset_, octets_,
                         kind_ == SinkKind::direct ? ring::Durability::data : ring::Durability::none);
}

void CommitSink::on_file_done(int32_t result) {
    if (flushing_) return finish(result < 0 ? -result : 0);
    if (result != static_cast<int32_t>(octets_.size())) {
        const bool transient = result >= 0 || result == -EAGAIN;
        if (!transient || again_) return finish(result < 0 ? -result : EIO);
        again_ = true;
        return submit();
    }
    if (kind_ != SinkKind::buffered) return finish(0);
    flushing_ = true;
    sync_data(fd_);
}

void CommitSink::finish(int error) {
    busy_ = false;
    owner_.on_batch_written(error);
}

}  // namespace postern::storage
