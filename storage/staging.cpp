#include "storage/staging.hpp"

#include <algorithm>
#include <tuple>

#include "ring/base/check.hpp"

namespace postern::storage {

Staging::Staging(std::span<char> memory)
    : memory_(memory.first(memory.size() / block_bytes * block_bytes)),
      batch_bytes_max_(std::clamp<uint64_t>(memory_.size() / 8 / block_bytes * block_bytes, frame_bytes_max, 4_MiB)),
      reach_(4 * batch_bytes_max_) {
    CHECK_INVARIANT(memory_.size() >= reach_);
}

std::span<char> Staging::begin_batch() {
    const uint64_t at = head_ % memory_.size();
    if (at + batch_bytes_max_ > memory_.size()) head_ += memory_.size() - at;    // a batch does not wrap
    last_begun_ = head_;
    while (!entries_.empty() && !safe(entries_.front())) entries_.pop_front();
    return memory_.subspan(head_ % memory_.size(), batch_bytes_max_);
}

void Staging::end_batch(uint64_t bytes) {
    CHECK_INVARIANT(bytes <= batch_bytes_max_ && bytes % block_bytes == 0);
    head_ = last_begun_ + bytes;
}

void Staging::remember(std::span<const char> batch, uint64_t life, uint32_t offset) {
    const auto address = static_cast<uint64_t>(batch.data() - memory_.data());
    // The newest place with that address: batches are remembered soon after they were begun.
    uint64_t place = head_ / memory_.size() * memory_.size() + address;
    if (place > head_) place -= memory_.size();
    entries_.push_back({life, offset, static_cast<uint32_t>(batch.size()), place});
}

std::string_view Staging::find(uint64_t life, uint32_t offset, uint32_t bytes) const {
    const auto after = std::upper_bound(
        entries_.begin(), entries_.end(), std::tuple(life, offset),
        [](const auto& key, const Entry& entry) { return key < std::tuple(entry.life, entry.offset); });
    if (after == entries_.begin()) return {};
    const Entry& entry = *std::prev(after);
    if (entry.life != life || offset + bytes > entry.offset + entry.bytes || !safe(entry)) return {};
    return {memory_.data() + entry.place % memory_.size() + (offset - entry.offset), bytes};
}

}  // namespace postern::storage
