// The messages of a shard in memory: 64 octets each, whatever their size (P4), and more only for those that are half
// delivered or span segments.  Threads: the shard.
#pragma once

#include <cstdint>
#include <memory>
#include <unordered_map>
#include <vector>

#include "ring/base/check.hpp"
#include "storage/recovery.hpp"

namespace postern::storage {

constexpr uint32_t no_message = UINT32_MAX;

struct MessageRow {
    enum class State : uint8_t {
        free,
        pending,        // recipients wait
        held,           // none waits, some failed; or damaged
        completing,     // over, but the record of it is not durable yet
    };
    uint64_t queue_id = 0;
    int64_t received_ns = 0;
    uint32_t segment = 0;           // index into the pool
    uint32_t offset = 0;            // of the message frame
    uint32_t payload_bytes = 0;
    uint32_t ordinal = 0;
    uint32_t recipient_count = 0;
    uint32_t pending_count = 0;
    uint32_t previous = no_message, next = no_message;      // neighbours in the same segment
    RecipientSlot only;             // of a single recipient
    State state = State::free;
    bool has_slots = false;         // several recipients: see slots()
    bool has_extents = false;       // in other segments: see extent_segments()
    bool any_failed = false;
};
static_assert(sizeof(MessageRow) <= 64);

class MessageTable {
public:
    uint32_t add();
    void release(uint32_t message);
    MessageRow& operator[](uint32_t message) { return pages_[message / page_rows][message % page_rows]; }
    const MessageRow& operator[](uint32_t message) const { return pages_[message / page_rows][message % page_rows]; }
    bool valid(uint32_t message) const {
        return message < row_count_ && (*this)[message].state != MessageRow::State::free;
    }
    uint64_t size() const { return used_; }

    // Of one recipient; made on demand for messages with several.
    RecipientSlot& slot(uint32_t message, uint32_t recipient);
    RecipientSlot peek(uint32_t message, uint32_t recipient) const;
    // The other segments that hold fragments of it.
    std::vector<uint32_t>& extent_segments(uint32_t message) { return extent_segments_[message]; }

    template <class Visit>
    void for_each(Visit&& visit) const {
        for (uint32_t i = 0; i < row_count_; ++i)
            if ((*this)[i].state != MessageRow::State::free) visit(i, (*this)[i]);
    }

private:
    static constexpr uint32_t page_rows = 4096;
    std::vector<std::unique_ptr<MessageRow[]>> pages_;
    uint32_t row_count_ = 0;
    uint32_t free_ = no_message;    // chained through `next`
    uint64_t used_ = 0;
    std::unordered_map<uint32_t, std::vector<RecipientSlot>> slots_;
    std::unordered_map<uint32_t, std::vector<uint32_t>> extent_segments_;
};

}  // namespace postern::storage
