// Memory of unfinished messages: 16 KiB chunks, at most so many in all (P4).  Threads: the shard.
#pragma once

#include <cstdint>
#include <memory>
#include <string_view>
#include <vector>

#include "storage/format.hpp"

namespace postern::storage {

constexpr uint32_t chunk_bytes = 16_KiB;

class ChunkPool {
public:
    explicit ChunkPool(uint64_t bytes_max) : bytes_max_(round_up(bytes_max, chunk_bytes)) {}
    ChunkPool(const ChunkPool&) = delete;

    char* take();               // null beyond the limit and its margin
    void give_back(char* chunk);

    uint64_t bytes_used() const { return used_ * chunk_bytes; }
    bool low() const { return bytes_used() >= bytes_max_ / 4 * 3; }             // unfinished messages spill early
    bool exhausted() const { return bytes_used() >= bytes_max_ / 16 * 15; }     // sessions stop receiving

private:
    // What a turn may still bring in after exhausted() was seen.
    uint64_t margin() const { return bytes_max_ / 8 + fragment_bytes_max; }

    uint64_t bytes_max_;
    uint64_t used_ = 0;
    std::vector<std::unique_ptr<char[]>> all_;
    std::vector<char*> free_;
};

// The octets of one unfinished message that are in chunks, in order.
class ChunkList {
public:
    uint64_t bytes() const { return bytes_; }
    bool append(ChunkPool& pool, std::string_view octets);     // false: the pool is spent; what fitted is kept
    // Gives the first `bytes` to `consume` in pieces, and their chunks back.  `bytes` is all, or whole chunks.
    template <class Consume>
    void take(ChunkPool& pool, uint64_t bytes, Consume&& consume) {
        size_t count = 0;
        for (uint64_t left = bytes; left > 0; ++count) {
            const uint64_t piece = left < chunk_bytes ? left : chunk_bytes;
            consume(std::string_view(chunks_[count], piece));
            pool.give_back(chunks_[count]);
            left -= piece;
        }
        chunks_.erase(chunks_.begin(), chunks_.begin() + static_cast<ptrdiff_t>(count));
        bytes_ -= bytes;
    }
    void clear(ChunkPool& pool) {
        take(pool, bytes_, [](std::string_view) {});
    }

private:
    std::vector<char*> chunks_;
    uint64_t bytes_ = 0;
};

}  // namespace postern::storage
