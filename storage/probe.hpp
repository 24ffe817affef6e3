// What the spool tells about itself: events for counters, and a status for gauges.
#pragma once

#include <cstdint>

#include "ring/base/units.hpp"

namespace postern::storage {

// Events, on the shard's thread; implementations only count.
class SpoolProbe {
public:
    virtual void message_committed(uint64_t bytes, Duration waited) = 0;    // waited: from commit() to durable
    virtual void batch_committed(uint32_t messages, uint64_t bytes, Duration sync) = 0;
    virtual void batch_failed(int error) = 0;
    virtual void results_recorded(uint32_t count) = 0;
    virtual void fragment_spilled(uint64_t bytes) = 0;
    virtual void segment_recycled() = 0;
    virtual void damage_found(uint64_t frames) = 0;
    virtual void read_from_memory(uint64_t bytes) = 0;
    virtual void read_from_disk(uint64_t bytes) = 0;

protected:
    ~SpoolProbe() = default;
};

enum class SinkKind : uint8_t { direct, buffered, none };       // how commits become durable; none: for measurements only

struct SpoolStatus {
    SinkKind sink = SinkKind::direct;
    bool healthy = true;                // false after several failed commits in a row
    uint32_t segments_ready = 0;
    uint32_t segments_active = 0;
    uint32_t segments_sealed = 0;
    uint32_t segments_failed = 0;
    uint64_t bytes_allocated = 0;       // of all segment files
    uint64_t bytes_available = 0;       // for messages: rest of the active segment, spares, and what can still be created
    uint64_t messages = 0;              // with recipients pending or failed
    uint64_t messages_held = 0;         // with failed recipients and none pending
    uint64_t chunk_bytes = 0;           // memory of unfinished messages
    Wall oldest_received;               // of the messages with pending recipients in the oldest segment; 0 when none
};

}  // namespace postern::storage
