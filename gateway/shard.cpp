#include "gateway/shard.hpp"

#include "gateway/exit_codes.hpp"

namespace postern::gateway {

namespace {

constexpr Duration publish_every = milliseconds(250);
constexpr Duration drain_look_every = milliseconds(50);
constexpr Duration close_down_most = seconds(2);
constexpr Duration same_warning_every = seconds(10);
constexpr std::string_view too_many_connections = "421 4.7.0 Too many connections, try again later\r\n";
constexpr std::string_view shutting_down = "421 4.3.2 Service shutting down, try again later\r\n";

StartFailure failure_of(const ring::RingFailure& failure) {
    switch (failure.gate) {
        case ring::RingGate::seccomp: return {exit_no_io_uring_seccomp, failure.error.text};
        case ring::RingGate::sysctl: return {exit_no_io_uring_sysctl, failure.error.text};
        case ring::RingGate::kernel_too_old: return {exit_kernel_too_old, failure.error.text};
        case ring::RingGate::memory_locked: return {exit_memory_locked, failure.error.text};
        case ring::RingGate::other: break;
    }
    return {exit_no_io_uring_other, failure.error.text};
}

storage::SinkChoice sink_of(config::CommitSink commit) {
    switch (commit) {
        case config::CommitSink::direct: return storage::SinkChoice::direct;
        case config::CommitSink::buffered: return storage::SinkChoice::buffered;
        case config::CommitSink::none: return storage::SinkChoice::none;
        case config::CommitSink::automatic: break;
    }
    return storage::SinkChoice::automatic;
}

proto::ServerSettings server_settings_of(const config::Config& config) {
    proto::ServerSettings settings;
    settings.hostname = config.server.hostname;
    settings.message_bytes_max = config.limits.message_bytes;
    settings.recipients_max = config.limits.recipients;
    settings.command_line_bytes_max = config.limits.command_line_bytes;
    settings.errors_max = config.limits.errors;
    settings.junk_commands_max = config.limits.junk_commands;
    settings.header_bytes_max = static_cast<uint32_t>(config.limits.header_bytes);
    settings.hops_max = config.limits.hops;
    settings.bare_newline = config.policy.bare_newline == config::NewlinePolicy::reject ? proto::BareNewline::reject
                                                                                       : proto::BareNewline::normalize;
    return settings;
}

}  // namespace

StartFailure failure_of(const storage::SpoolFailure& failure) {
    switch (failure.gate) {
        case storage::SpoolGate::locked: return {exit_spool_locked, failure.error.text};
        case storage::SpoolGate::no_space: return {exit_no_space, failure.error.text};
        case storage::SpoolGate::other_format: return {exit_spool_format, failure.error.text};
        case storage::SpoolGate::not_writable:
        case storage::SpoolGate::other: break;
    }
    return {exit_spool_unusable, failure.error.text};
}

ShardShared::ShardShared(const config::Config& configuration, unsigned shard_count)
    : config(configuration),
      policy(configuration),
      server(server_settings_of(configuration)),
      housekeeping("housekeeping", 1),
      delivery_workers("delivery", configuration.delivery.maildir_workers),
      connections_max(configuration.limits.connections),
      loads(shard_count) {
    client_streams.unsent_bytes_max = configuration.limits.unsent_reply_bytes;
    client_streams.send_mode =
        configuration.ring.send == config::SendMode::direct ? ring::SendMode::direct : ring::SendMode::ring;
    for (const config::Route& route : configuration.routes) budgets.emplace_back(route.connections);
}

Shard::Shard(ShardShared& shared, unsigned index, metrics::ShardMetrics& metrics, LogLane& log)
    : shared_(shared), index_(index), metrics_(metrics), log_(log), timer_(*this) {}

Shard::~Shard() = default;

Result<std::unique_ptr<Shard>, StartFailure> Shard::create(ShardShared& shared, unsigned index,
                                                           metrics::ShardMetrics& metrics, LogLane& log) {
    std::unique_ptr<Shard> shard(new Shard(shared, index, metrics, log));
    const config::Config& config = shared.config;
    if (config.server.pin_cpus) ring::pin_to_cpu(index);

    ring::RingConfig ring_config;
    ring_config.receive_buffers = config.ring.receive_buffers;
    ring_config.receive_buffer_bytes = static_cast<uint32_t>(config.ring.receive_buffer_bytes);
    ring_config.completion_entries = std::max(4096u, 4 * config.ring.receive_buffers);
    ring_config.staging_bytes = config.spool.staging_bytes;
    auto ring = ring::Ring::create(ring_config);
    if (!ring) return fail(failure_of(ring.error()));
    shard->loop_ = std::make_unique<ring::Loop>(std::move(*ring));
    const ring::RingFeatures& features = shard->loop_->ring().features();
    shard->line(Level::info, "ring").field("shard", uint64_t{index}).field("features", features.text());
    if (!features.degraded.empty())
        shard->line(Level::warning, "memory_not_registered").field("shard", uint64_t{index}).field("reason", features.degraded);
    shard->worker_number_ = shared.delivery_workers.attach(*shard->loop_);

    storage::SpoolConfig spool_config;
    spool_config.path = config.spool.path;
    spool_config.shard = index;
    spool_config.shard_count = static_cast<unsigned>(shared.loads.size());
    spool_config.segment_bytes = config.spool.segment_bytes;
    spool_config.spare_segments = config.spool.spare_segments;
    spool_config.reserve_bytes = config.spool.reserve_bytes;
    spool_config.chunk_bytes_max = config.spool.unfinished_bytes;
    spool_config.housekeeping_loop = shared.housekeeping.attach(*shard->loop_);
    spool_config.sink = sink_of(config.spool.commit);
    auto spool = storage::Spool::open(*shard->loop_, shared.housekeeping, shared.directory, spool_config, *shard);
    if (!spool) return fail(failure_of(spool.error()));
    shard->spool_ = std::move(*spool);
    shard->line(Level::info, "spool_recovered").field("shard", uint64_t{index}).field("report", shard->spool_->recovery().text());

    shard->delivery_ = std::make_unique<Delivery>(
        DeliveryContext{*shard->loop_, *shard->spool_, shared.delivery_workers, shard->worker_number_, config, shared.policy,
                        metrics, log, shared.budgets});
    shard->publish();
    return shard;
}

void Shard::add_listener(UniqueFd listening) {
    ring::ListenerHandler& handler = *this;
    listeners_.push_back(std::make_unique<ring::Listener>(*loop_, handler, std::move(listening)));
}

void Shard::serve() {
    for (auto& listener : listeners_) listener->start();
    spool_->for_each_recovered([this](const storage::RecoveredMessage& message) { delivery_->recover(message); });
    loop_->arm(timer_, publish_every);
    loop_->run();
    if (loop_->error())
        line(Level::error, "ring_broken").field("shard", uint64_t{index_}).field("error", os_error(loop_->error(), "io_uring").text);
    close_down();
}

void Shard::close_down() {
    draining_ = true;
    delivery_->stop();
    for (auto& listener : listeners_) listener->close();
    sessions_.for_each([](uint32_t, Session& session) { session.abort(); });
    delivery_->abort();
    const Monotonic end = loop_->now() + close_down_most;
    auto quiet = [this] {
        for (auto& listener : listeners_)
            if (!listener->closed()) return false;
        return sessions_.size() == 0 && !delivery_->busy() && delivery_->closed() && spool_->flushed();
    };
    while (!quiet() && loop_->now() < end)
        if (!loop_->run_turn(milliseconds(10))) break;
}

// --- Connections

void Shard::on_accepted(UniqueFd connection) {
    metrics_.connection_accepted();
    if (draining_) {
        refuse(std::move(connection), shutting_down);
        metrics_.refused(metrics::Refusal::shutting_down);
        return;
    }
    if (all_connections() >= shared_.connections_max) {
        refuse(std::move(connection), too_many_connections);
        metrics_.refused(metrics::Refusal::connections);
        return;
    }
    // The kernel spreads by a hash of the addresses: lumpy with few, long connections.  Only a clear difference is worth
    // the hand-over.
    const unsigned least = least_loaded();
    const uint32_t mine = shared_.loads[index_].connections.load(std::memory_order_relaxed);
    const uint32_t fewest = shared_.loads[least].connections.load(std::memory_order_relaxed);
    if (least != index_ && mine >= fewest + std::max(1u, mine / 8)) {
        shared_.loads[least].connections.fetch_add(1, std::memory_order_relaxed);
        const int fd = connection.get();
        const Peer& peer = peers_[least];
        if (peer.lane->send([shard = peer.shard, fd] { shard->take_over(UniqueFd(fd)); })) {
            connection.release();
            metrics_.connection_handed_over();
            return;
        }
        shared_.loads[least].connections.fetch_sub(1, std::memory_order_relaxed);      // its lane is full: ours, then
    }
    shared_.loads[index_].connections.fetch_add(1, std::memory_order_relaxed);
    open_session(std::move(connection));
}

void Shard::take_over(UniqueFd connection) {
    if (draining_) {
        shared_.loads[index_].connections.fetch_sub(1, std::memory_order_relaxed);
        refuse(std::move(connection), shutting_down);
        return;
    }
    open_session(std::move(connection));
}

void Shard::open_session(UniqueFd connection) {
    const uint32_t slot = sessions_.next_index();
    sessions_.emplace(*this, slot, std::move(connection));
    sessions_[slot].start();
}

void Shard::session_over(uint32_t slot) {
    sessions_.erase(slot);
    shared_.loads[index_].connections.fetch_sub(1, std::memory_order_relaxed);
}

void Shard::refuse(UniqueFd connection, std::string_view reply) {
    ring::send_now(connection.get(), reply);
    ring::shutdown_write(connection.get());
}

void Shard::on_accept_failed(int error) {
    if (loop_->now() - accept_failure_logged_ < same_warning_every) return;
    accept_failure_logged_ = loop_->now();
    line(Level::warning, "accept_failed")
        .field("error", os_error(error, "accept").text)
        .field("remedy", "raise LimitNOFILE (ulimit -n), or lower limits.connections; waiting clients are not lost");
}

uint32_t Shard::all_connections() const {
    uint32_t sum = 0;
    for (const ShardShared::Load& load : shared_.loads) sum += load.connections.load(std::memory_order_relaxed);
    return sum;
}

unsigned Shard::least_loaded() const {
    unsigned least = index_;
    for (unsigned i = 0; i < shared_.loads.size(); ++i)
        if (shared_.loads[i].connections.load(std::memory_order_relaxed) <
            shared_.loads[least].connections.load(std::memory_order_relaxed))
            least = i;
    return least;
}

void Shard::begin_drain() {
    draining_ = true;
    for (auto& listener : listeners_) listener->close();
    sessions_.for_each([](uint32_t, Session& session) { session.shut_down(); });
    delivery_->stop();
    loop_->arm(timer_, drain_look_every);
}

// --- What is seen from outside

void Shard::on_timer(ring::Timer&) {
    publish();
    if (draining_) drained_.store(sessions_.size() == 0 && !delivery_->busy() && spool_->flushed(), std::memory_order_release);
    loop_->arm(timer_, draining_ ? drain_look_every : publish_every);
}

void Shard::batch_failed(int error) {
    metrics_.batch_failed();
    line(Level::error, "commit_failed")
        .field("error", os_error(error, "writing to the spool").text)
        .field("effect", "451 to the messages of this batch; the segment is not written any more");
}

void Shard::publish() {
    const storage::SpoolStatus spool = spool_->status();
    accepting_.store(spool.healthy && spool_->has_room(0), std::memory_order_release);
    metrics::ShardStatus& status = metrics_.status;
    uint64_t in_data = 0;
    sessions_.for_each([&](uint32_t, Session& session) { in_data += session.in_data(); });
    status.connections_open.set(sessions_.size());
    status.sessions_in_data.set(in_data);
    const ring::RingCounters& ring = loop_->ring().counters();
    status.ring_enters.set(ring.enters);
    status.ring_completions.set(ring.completions);
    status.ring_overflows.set(ring.completion_overflows);
    status.ring_submission_full.set(ring.submission_queue_full);
    status.free_buffers.set(loop_->ring().free_buffers());
    status.memory_registered.set(loop_->ring().features().memory_registered);
    const ring::LoopCounters& loop = loop_->counters();
    status.loop_turns.set(loop.turns);
    status.receive_starved.set(loop.receive_starved);
    status.receive_starved_now.set(loop_->starved_count());
    status.stale_completions.set(loop.stale_completions);
    status.accept_errors.set(loop.accept_errors);
    status.direct_sends.set(loop.direct_sends);
    status.ring_sends.set(loop.ring_sends);
    status.short_sends.set(loop.short_sends);
    status.spool_healthy.set(spool.healthy);
    status.spool_messages.set(spool.messages);
    status.spool_messages_held.set(spool.messages_held);
    status.spool_bytes_allocated.set(spool.bytes_allocated);
    status.spool_bytes_available.set(spool.bytes_available);
    status.spool_segments_ready.set(spool.segments_ready);
    status.spool_segments_active.set(spool.segments_active);
    status.spool_segments_sealed.set(spool.segments_sealed);
    status.spool_segments_failed.set(spool.segments_failed);
    status.spool_unfinished_bytes.set(spool.chunk_bytes);
    status.spool_oldest_received_seconds.set(static_cast<uint64_t>(std::max<int64_t>(0, spool.oldest_received.seconds())));
    status.spool_sink.set(static_cast<uint64_t>(spool.sink));
    status.log_lines_dropped.set(log_.dropped());
    delivery_->publish();
}

}  // namespace postern::gateway
