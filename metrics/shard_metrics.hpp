// What one shard counts.  Methods are named as events; the shard calls them, the exposition sums all shards at scrape time
// (exposition.hpp).  Nothing here looks anything up, allocates or locks.  metrics/README.md lists every metric.
//
// Labels are closed sets: indices given here, names in the exposition.  No domain and no address is ever a label.
#pragma once

#include <array>
#include <cstdint>
#include <vector>

#include "metrics/counters.hpp"
#include "ring/base/units.hpp"

namespace postern::metrics {

constexpr size_t verb_slots = 17;           // as proto::Verb
constexpr size_t stage_slots = 7;           // as proto::Stage
constexpr size_t class_slots = 4;           // 2xx 3xx 4xx 5xx

enum class Refusal : uint8_t {              // why a client, a recipient or a message was refused
    connections, recipients, relay, policy, size, space, local_error, syntax, sequence, too_many_errors, timeout,
    bare_newline, loop, shutting_down, unsent, other, count
};
enum class DeliveryOutcome : uint8_t { delivered, deferred, failed, expired, count };

// Gauges and counters that are kept elsewhere (loop, ring, spool) and copied here once a turn at most.
struct ShardStatus {
    Counter connections_open, sessions_in_data, loop_turns;
    Counter ring_enters, ring_completions, ring_overflows, ring_submission_full;
    Counter receive_starved, receive_starved_now, free_buffers, stale_completions, accept_errors;
    Counter direct_sends, ring_sends, short_sends, memory_registered;
    Counter spool_healthy, spool_messages, spool_messages_held, spool_bytes_allocated, spool_bytes_available;
    Counter spool_segments_ready, spool_segments_active, spool_segments_sealed, spool_segments_failed;
    Counter spool_unfinished_bytes, spool_oldest_received_seconds;      // 0: empty
    Counter spool_sink;                                                 // 0 direct, 1 buffered, 2 none
    Counter log_lines_dropped;
};

struct RouteMetrics {
    std::array<Counter, static_cast<size_t>(DeliveryOutcome::count)> recipients;
    Counter messages_out, bytes_out, attempts, connections_opened, connections_failed;
    Counter retries;                                    // messages taken up again after they had been deferred
    Counter queued, deferred, connections_open;         // gauges
    Histogram queue_time_ms;                            // from received to delivered
};

class ShardMetrics {
public:
    // per_message false: the events marked [m] cost one predictable branch and count nothing.
    ShardMetrics(size_t routes, bool per_message) : routes_(routes), per_message_(per_message) {}

    void connection_accepted() { connections_accepted.add(); }
    void connection_handed_over() { connections_handed_over.add(); }
    void connection_closed(Duration lasted) { connection_ms.record(us(lasted) / 1000); }
    void command(size_t verb) { if (per_message_) commands[verb].add(); }                                       // [m]
    void reply(size_t stage, unsigned code) {                                                                   // [m]
        if (per_message_ && code >= 200 && code < 600) replies[stage][code / 100 - 2].add();
    }
    void refused(Refusal why) { refusals[static_cast<size_t>(why)].add(); }
    void message_received(uint64_t bytes, uint32_t recipients) {                                                // [m]
        if (!per_message_) return;
        messages_in.add();
        bytes_in.add(bytes);
        recipients_in.add(recipients);
        message_bytes.record(bytes);
    }
    void message_committed(Duration waited) { if (per_message_) commit_wait_us.record(us(waited)); }            // [m]
    void batch_committed(uint32_t messages, uint64_t bytes, Duration sync) {
        batch_messages.record(messages);
        batch_bytes.record(bytes);
        sync_us.record(us(sync));
    }
    void batch_failed() { commits_failed.add(); }
    void results_recorded(uint32_t count) { results.add(count); }
    void fragment_spilled(uint64_t bytes) { fragments.add(); fragment_bytes.add(bytes); }
    void segment_recycled() { segments_recycled.add(); }
    void damage_found(uint64_t frames) { damaged_frames.add(frames); }
    void read_from_memory(uint64_t bytes) { read_memory_bytes.add(bytes); }
    void read_from_disk(uint64_t bytes) { read_disk_bytes.add(bytes); }
    RouteMetrics& route(size_t index) { return routes_[index]; }
    const RouteMetrics& route(size_t index) const { return routes_[index]; }
    size_t route_count() const { return routes_.size(); }
    bool per_message() const { return per_message_; }

    ShardStatus status;
    Counter connections_accepted, connections_handed_over, messages_in, bytes_in, recipients_in;
    Counter commits_failed, results, fragments, fragment_bytes, segments_recycled, damaged_frames;
    Counter read_memory_bytes, read_disk_bytes;
    std::array<Counter, verb_slots> commands;
    std::array<std::array<Counter, class_slots>, stage_slots> replies;
    std::array<Counter, static_cast<size_t>(Refusal::count)> refusals;
    Histogram connection_ms, message_bytes, commit_wait_us, batch_messages, batch_bytes, sync_us;

private:
    static uint64_t us(Duration d) { return d.ns > 0 ? static_cast<uint64_t>(d.ns / 1000) : 0; }
    std::vector<RouteMetrics> routes_;
    bool per_message_;
};

}  // namespace postern::metrics
