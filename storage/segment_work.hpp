// One piece of housekeeping on one segment file: what it needs is copied in, so that the worker touches nothing of the
// shard's.
#pragma once

#include "storage/segments.hpp"

namespace postern::storage {

class SegmentPool::Work final : public ring::Job {
public:
    enum class Kind : uint8_t { create, recycle, write_index, remove, look_at_space };

    Work(SegmentPool& pool, Kind work_kind, uint32_t of)
        : kind(work_kind), segment(of), pool_(&pool), own_folder_(pool.folder_), direct_(pool.direct_) {}

    // Takes what run() needs of the segment, and marks it.
    void take_over(Segment& of);
    // Nobody is interested any more: deletes itself when it is done.
    void forget() { pool_ = nullptr; }

    void run() override;
    void done() override;

    const Kind kind;
    const uint32_t segment;
    SegmentHeader header;           // create, recycle: of the life that begins
    AlignedBuffer index;            // write_index
    // Results.
    int result = 0;
    UniqueFd opened;                // create; recycle when the file moved
    std::string name;               // the file's, in our own folder
    uint64_t bytes_free = 0;

private:
    int create();
    int recycle();
    int write_index();
    int remove();
    int open(const std::string& path);
    void remove_folder_when_empty();

    SegmentPool* pool_;
    const std::string own_folder_;
    const bool direct_;
    std::string folder_;
    int fd_ = -1;
    uint64_t bytes_ = 0;
};

}  // namespace postern::storage
