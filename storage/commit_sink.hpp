// How one batch becomes durable, and the one place that says what counts as a failure.
//
// Direct: one write with DSYNC.  Buffered: a write, then a flush.  None: a write, for measurements only.
// A write that was short, moved nothing or got EAGAIN is given once more as a whole: nobody was told about it.  A flush is
// never repeated: the kernel may have dropped the pages, and a second flush would lie.
#pragma once

#include "ring/loop.hpp"
#include "storage/probe.hpp"

namespace postern::storage {

class CommitSink final : private ring::FileOperation {
public:
    class Owner {
    public:
        virtual void on_batch_written(int error) = 0;   // 0: durable; else an errno

    protected:
        ~Owner() = default;
    };
    CommitSink(ring::Loop& loop, SinkKind kind, Owner& owner) : FileOperation(loop), kind_(kind), owner_(owner) {}

    bool busy() const { return busy_; }
    void write(int fd, uint64_t offset, std::span<const char> octets);

private:
    void on_file_done(int32_t result) override;
    void submit();
    void finish(int error);

    const SinkKind kind_;
    Owner& owner_;
    int fd_ = -1;
    uint64_t offset_ = 0;
    std::span<const char> octets_;
    bool busy_ = false;
    bool again_ = false;        // the second attempt
    bool flushing_ = false;
};

}  // namespace postern::storage
