// The shard's staging memory as one circular arena: batches are formed in it, written from it, and stay readable there
// until newer ones take their place.  Pure; threads: the shard.
//
// A view that find() gives out stays intact to the end of the turn: in one turn at most two batches begin behind the one
// being formed, and nothing within that reach is given out.
#pragma once

#include <cstdint>
#include <deque>
#include <span>
#include <string_view>

#include "storage/format.hpp"

namespace postern::storage {

class Staging {
public:
    explicit Staging(std::span<char> memory);

    // Room for one batch: an eighth of the memory, 1 to 4 MiB.  What lay there is forgotten.
    std::span<char> begin_batch();
    uint64_t batch_bytes_max() const { return batch_bytes_max_; }
    // The batch begun last takes only so many octets.
    void end_batch(uint64_t bytes);

    // A committed batch, written at `offset` of the segment that was opened as the `life`th; lives increase.
    void remember(std::span<const char> batch, uint64_t life, uint32_t offset);
    // Octets of a remembered batch; empty when they are not (safely) there any more.
    std::string_view find(uint64_t life, uint32_t offset, uint32_t bytes) const;

private:
    struct Entry {
        uint64_t life;
        uint32_t offset;
        uint32_t bytes;
        uint64_t place;         // in an endless arena; modulo the memory's size it is the address
    };
    bool safe(const Entry& entry) const { return entry.place + memory_.size() >= head_ + reach_; }

    std::span<char> memory_;
    uint64_t batch_bytes_max_;
    uint64_t reach_;            // the batch being formed, two more, and a skipped end
    uint64_t head_ = 0;         // place of the batch being formed, or of the next one
    uint64_t last_begun_ = 0;
    std::deque<Entry> entries_; // in the order committed: ascending (life, offset)
};

}  // namespace postern::storage
