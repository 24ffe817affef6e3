// How one batch becomes durable, and the one place that says what counts as a failure.
//
// Direct: writes with DSYNC.  Buffered: writes, then a flush.  None: writes, for measurements only.
// A larger batch goes out in up to four parts at once, since one write in flight leaves a device half idle (storage/README.md,
// "Two sinks, measured").  It is durable when all parts are; until then nobody was told about any of it.
// A part that was short, moved nothing or got EAGAIN is given once more.  A flush is never repeated: the kernel may have
// dropped the pages, and a second flush would lie.
#pragma once

#include <array>

#include "ring/loop.hpp"
#include "storage/probe.hpp"

namespace postern::storage {

class CommitSink final {
public:
    class Owner {
    public:
        virtual void on_batch_written(int error) = 0;   // 0: durable; else an errno

    protected:
        ~Owner() = default;
    };
    CommitSink(ring::Loop& loop, SinkKind kind, Owner& owner);

    bool busy() const { return parts_in_flight_ > 0; }
    // `octets` in whole blocks, in memory that stays until the owner is called.
    void write(int fd, uint64_t offset, std::span<const char> octets);

private:
    static constexpr size_t parts_max = 4;

    class Part final : private ring::FileOperation {
    public:
        Part(ring::Loop& loop, CommitSink& sink) : FileOperation(loop), sink_(sink) {}
        void write(uint64_t offset, std::span<const char> octets);
        void flush();

    private:
        void on_file_done(int32_t result) override;
        void submit();

        CommitSink& sink_;
        uint64_t offset_ = 0;
        std::span<const char> octets_;
        bool again_ = false;        // the second attempt
        bool flushing_ = false;
    };
    void part_done(int error);

    const SinkKind kind_;
    Owner& owner_;
    std::array<Part, parts_max> parts_;
    size_t parts_in_flight_ = 0;
    int fd_ = -1;
    int error_ = 0;
    bool flushed_ = false;          // buffered: the flush is under way, or not needed
};

}  // namespace postern::storage
