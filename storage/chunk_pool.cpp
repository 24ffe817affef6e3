#include "storage/chunk_pool.hpp"

#include <algorithm>
#include <cstring>

namespace postern::storage {

char* ChunkPool::take() {
    if (bytes_used() >= bytes_max_ + margin()) return nullptr;
    if (free_.empty()) {
        all_.push_back(std::make_unique_for_overwrite<char[]>(chunk_bytes));
        free_.reserve(all_.size());
        free_.push_back(all_.back().get());
    }
    char* const chunk = free_.back();
    free_.pop_back();
    ++used_;
    return chunk;
}

void ChunkPool::give_back(char* chunk) {
    free_.push_back(chunk);
    --used_;
}

bool ChunkList::append(ChunkPool& pool, std::string_view octets) {
    while (!octets.empty()) {
        const uint64_t at = bytes_ % chunk_bytes;
        if (at == 0 && chunks_.size() * chunk_bytes == bytes_) {
            char* const chunk = pool.take();
            if (!chunk) return false;
            chunks_.push_back(chunk);
        }
        const size_t piece = std::min<size_t>(octets.size(), chunk_bytes - at);
        std::memcpy(chunks_.back() + at, octets.data(), piece);
        bytes_ += piece;
        octets.remove_prefix(piece);
    }
    return true;
}

}  // namespace postern::storage
