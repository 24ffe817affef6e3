// One core's share of the gateway: its loop, listeners, sessions, spool and delivery.
//
// Threads: created, run and destroyed on its own thread, but for what is marked.  The Gateway owns the thread.
#pragma once

#include <atomic>
#include <memory>
#include <string>
#include <vector>

#include "config/config.hpp"
#include "gateway/delivery/delivery.hpp"
#include "gateway/session.hpp"
#include "ring/base/slab.hpp"
#include "ring/listener.hpp"

namespace postern::gateway {

// What the shards share; owned by the Gateway, outlives them.
struct ShardShared {
    explicit ShardShared(const config::Config& configuration, unsigned shard_count);

    const config::Config& config;
    RecipientPolicy policy;
    proto::ServerSettings server;
    ring::StreamLimits client_streams;
    storage::SpoolDirectory directory;
    ring::Workers housekeeping;
    ring::Workers delivery_workers;
    std::vector<RouteBudget> budgets;
    uint32_t connections_max;           // limits.connections, or what the descriptors allow
    // Open connections of each shard, so that a new one can go where fewest are.
    struct alignas(64) Load {
        std::atomic<uint32_t> connections{0};
    };
    std::vector<Load> loads;
};

// Why a shard could not start, with the program's exit code.
struct StartFailure {
    int exit_code = 1;
    std::string text;
};

StartFailure failure_of(const storage::SpoolFailure& failure);

class Shard final : private ring::ListenerHandler, private storage::SpoolProbe, private ring::TimerHandler {
public:
    // Ring, loop, spool with recovery (blocking).  Nothing is served yet.
    static Result<std::unique_ptr<Shard>, StartFailure> create(ShardShared& shared, unsigned index,
                                                               metrics::ShardMetrics& metrics, LogLane& log);
    ~Shard();

    // Before serve(): the ways to the other shards (unused at our own place), and the listening sockets.
    struct Peer {
        Shard* shard = nullptr;
        ring::Loop::Lane* lane = nullptr;
    };
    void set_peers(std::vector<Peer> peers) { peers_ = std::move(peers); }
    void add_listener(UniqueFd listening);
    // Serves until the loop is stopped, then closes everything down within two seconds.
    void serve();

    // Mail from the Gateway, run on the loop:
    void begin_drain();                 // no new connections, 421 between commands
    void take_over(UniqueFd connection);

    // Any thread: nothing is open, under way or unwritten, as of the last look (every 50 ms while draining).
    bool drained() const { return drained_.load(std::memory_order_acquire); }
    bool accepting() const { return accepting_.load(std::memory_order_acquire); }   // the spool can take mail

    // For sessions.
    ring::Loop& loop() { return *loop_; }
    storage::Spool& spool() { return *spool_; }
    Delivery& delivery() { return *delivery_; }
    const RecipientPolicy& policy() const { return shared_.policy; }
    const config::Config& config() const { return shared_.config; }
    const proto::ServerSettings& server_settings() const { return shared_.server; }
    const ring::StreamLimits& stream_limits() const { return shared_.client_streams; }
    metrics::ShardMetrics& metrics() { return metrics_; }
    LogLane& log() { return log_; }
    void session_over(uint32_t slot);
    // Reused for every call, so that replies cost no allocation; each is used up before its next use.
    std::string& reply_scratch() {
        reply_scratch_.clear();
        return reply_scratch_;
    }
    std::string& trace_scratch() { return trace_scratch_; }
    std::string& envelope_scratch() { return envelope_scratch_; }

private:
    Shard(ShardShared& shared, unsigned index, metrics::ShardMetrics& metrics, LogLane& log);

    void on_accepted(UniqueFd connection) override;
    void on_accept_failed(int error) override;
    void on_timer(ring::Timer& timer) override;

    void message_committed(uint64_t, Duration waited) override { metrics_.message_committed(waited); }
    void batch_committed(uint32_t messages, uint64_t bytes, Duration sync) override {
        metrics_.batch_committed(messages, bytes, sync);
    }
    void batch_failed(int error) override;
    void results_recorded(uint32_t count) override { metrics_.results_recorded(count); }
    void fragment_spilled(uint64_t bytes) override { metrics_.fragment_spilled(bytes); }
    void segment_recycled() override { metrics_.segment_recycled(); }
    void damage_found(uint64_t frames) override { metrics_.damage_found(frames); }
    void read_from_memory(uint64_t bytes) override { metrics_.read_from_memory(bytes); }
    void read_from_disk(uint64_t bytes) override { metrics_.read_from_disk(bytes); }

    void open_session(UniqueFd connection);
    void refuse(UniqueFd connection, std::string_view reply);
    uint32_t all_connections() const;
    unsigned least_loaded() const;
    void publish();
    void close_down();
    LogLine line(Level level, std::string_view event) { return LogLine(log_, level, event); }

    ShardShared& shared_;
    unsigned index_;
    metrics::ShardMetrics& metrics_;
    LogLane& log_;
    std::unique_ptr<ring::Loop> loop_;
    unsigned worker_number_ = 0;
    std::unique_ptr<storage::Spool> spool_;
    std::unique_ptr<Delivery> delivery_;
    std::vector<std::unique_ptr<ring::Listener>> listeners_;
    std::vector<Peer> peers_;
    Slab<Session> sessions_;
    ring::Timer timer_;
    Monotonic accept_failure_logged_;
    bool draining_ = false;
    std::atomic<bool> drained_{false};
    std::atomic<bool> accepting_{false};
    std::string reply_scratch_, trace_scratch_, envelope_scratch_;
};

}  // namespace postern::gateway
