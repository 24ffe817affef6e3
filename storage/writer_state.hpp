// One message being received, as the spool sees it.  Pooled; threads: the shard.
#pragma once

#include <algorithm>
#include <array>
#include <string>
#include <string_view>
#include <vector>

#include "ring/base/intrusive_list.hpp"
#include "storage/chunk_pool.hpp"
#include "storage/segments.hpp"
#include "storage/spool.hpp"

namespace postern::storage {

struct WaitingTag {};       // for room in a batch
struct OpenTag {};          // all that hold chunks, the longest idle first

struct WriterState : ListNode<WaitingTag>, ListNode<OpenTag> {
    // A fragment of it.  The place is known once the batch that holds the fragment is on its way.
    struct Part {
        uint32_t segment = no_segment;
        Extent extent;
    };
    enum class Stage : uint8_t {
        open,           // octets are coming
        waiting,        // committed by its owner, waits for room in a batch
        placed,         // its message frame is in the batch being formed, or in flight
    };

    QueueId id;
    Stage stage = Stage::open;
    bool spill_all = false;                     // the pool is low: everything in chunks is to go to the log
    bool failed = false;
    SpoolError error = SpoolError::failed;
    uint64_t bytes = 0;
    std::array<std::string_view, 32> slices;    // by reference, behind what is in chunks
    uint32_t slice_count = 0;
    uint32_t slice_bytes = 0;
    ChunkList chunks;
    std::vector<Part> parts;
    std::vector<uint32_t> pinned;               // segments of the parts, each once
    std::string_view envelope;                  // the caller's during commit(), then kept_envelope
    std::string kept_envelope;
    MessageAttributes attributes;
    CommitWaiter* waiter = nullptr;
    MessageWriter* owner = nullptr;
    Monotonic committed_at;

    ListNode<WaitingTag>& waiting_node() { return *this; }
    ListNode<OpenTag>& open_node() { return *this; }
    void fail(SpoolError why) {
        if (!failed) error = why;
        failed = true;
    }
};

}  // namespace postern::storage
