// Records that are not durable yet, in order.  A batch takes a prefix; the prefix leaves the queue when the batch is
// durable, and goes with a later batch when it failed.  Threads: the shard.
#pragma once

#include <cstdint>
#include <deque>
#include <string_view>
#include <vector>

#include "storage/frame.hpp"
#include "storage/message_table.hpp"

namespace postern::storage {

class RecordQueue {
public:
    // `subject`: the segment that the record is about.  `completes`: the message that is over once the record is durable.
    void push(const RecordHeader& header, std::string_view detail, uint32_t subject, uint32_t completes = no_message);

    // The message was released early; its record stays, and completes nothing.
    void completed_already(uint32_t message);

    bool empty() const { return items_.empty(); }
    uint64_t bytes() const { return octets_.size(); }       // those taken included
    uint64_t untaken_bytes() const { return octets_.size() - taken_bytes_; }
    uint64_t pushed() const { return dropped_ + items_.size(); }        // ever
    uint64_t durable() const { return dropped_; }                       // of these

    // The octets of as many whole records as fit `bytes_max`; they count as taken until durable() or failed().
    std::string_view take(uint64_t bytes_max);
    bool any_taken() const { return taken_ > 0; }
    size_t taken() const { return taken_; }
    uint32_t front_bytes() const { return items_.empty() ? 0 : items_.front().bytes; }
    template <class Visit>
    void taken_durable(Visit&& durable_now) {               // durable_now(subject, completes)
        for (; taken_ > 0; --taken_, ++dropped_) {
            const Item item = items_.front();
            items_.pop_front();
            durable_now(item.subject, item.completes);
        }
        octets_.erase(octets_.begin(), octets_.begin() + static_cast<ptrdiff_t>(taken_bytes_));
        taken_bytes_ = 0;
    }
    void taken_failed() { taken_ = taken_bytes_ = 0; }

private:
    struct Item {
        uint32_t bytes;
        uint32_t subject;
        uint32_t completes;
    };
    std::deque<Item> items_;
    std::vector<char> octets_;
    size_t taken_ = 0;
    size_t taken_bytes_ = 0;
    uint64_t dropped_ = 0;
};

}  // namespace postern::storage
