// Reads one segment front to back without trusting it: finds its frames, and tells a torn tail from damage.
//
// Pure over SegmentSource, so that tests and the fuzzer read from memory.  Threads: one; blocks in the source.
#pragma once

#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "storage/frame.hpp"

namespace postern::storage {

class SegmentSource {
public:
    virtual uint64_t bytes() const = 0;
    // Whole blocks inside the file.  False: could not be read.
    virtual bool read(uint64_t offset, std::span<char> into) = 0;

protected:
    ~SegmentSource() = default;
};

// A segment file; `into` must be aligned to blocks when the descriptor is open for direct I/O.
class FileSource final : public SegmentSource {
public:
    FileSource(int fd, uint64_t bytes) : fd_(fd), bytes_(bytes) {}
    uint64_t bytes() const override { return bytes_; }
    bool read(uint64_t offset, std::span<char> into) override;

private:
    int fd_;
    uint64_t bytes_;
};

// Memory in whole, aligned blocks.
class AlignedBuffer {
public:
    AlignedBuffer() = default;
    explicit AlignedBuffer(size_t bytes);
    AlignedBuffer(AlignedBuffer&& other) noexcept;
    AlignedBuffer& operator=(AlignedBuffer&& other) noexcept;
    ~AlignedBuffer();
    std::span<char> span() const { return {data_, bytes_}; }
    size_t bytes() const { return bytes_; }

private:
    char* data_ = nullptr;
    size_t bytes_ = 0;
};

struct ScannedFrame {
    FrameHeader header;
    uint32_t offset = 0;
    std::string_view payload;       // valid until the next call
};

// A place where something else than a frame or padding was.
struct BadSpot {
    uint32_t offset = 0;
    bool damage = false;            // a later batch is there: acknowledged data was hurt.  Otherwise a torn tail
    const char* what = "";
};

class SegmentScanner {
public:
    // `window`: at least 2 batches, aligned as the source wants it.
    SegmentScanner(SegmentSource& source, uint64_t epoch, std::span<char> window);

    // The next frame that is intact; false at the end.  After a bad spot it goes on at the next frame that can be found,
    // since any intact frame of this epoch was written by us.
    bool next(ScannedFrame& frame);

    const std::vector<BadSpot>& bad_spots() const { return bad_spots_; }
    uint64_t last_batch() const { return batch_; }      // of the frames found
    uint32_t end() const { return end_; }               // behind the last frame's batch
    uint64_t unreadable_bytes() const { return unreadable_; }

private:
    bool take(ScannedFrame& frame);
    bool skip_padding();
    bool resume_at_a_block();
    void bad(const char* what);
    std::string_view view(uint64_t offset, uint64_t bytes);
    void fill(uint64_t offset);

    SegmentSource& source_;
    uint64_t epoch_;
    uint64_t limit_;                    // the trailer's block is not read
    std::span<char> window_;
    uint64_t window_offset_ = 0;
    uint64_t window_bytes_ = 0;
    uint64_t position_ = batches_begin;
    uint64_t batch_ = 0;
    uint64_t bad_batch_ = 0;            // newest batch that the open bad spots may belong to
    size_t bad_settled_ = 0;            // bad spots before this index are known to be damage
    uint32_t end_ = batches_begin;
    uint64_t unreadable_ = 0;
    std::vector<BadSpot> bad_spots_;
};

}  // namespace postern::storage
