#include "gateway/gateway.hpp"

#include <cerrno>
#include <future>
#include <latch>
#include <optional>
#include <vector>

#include "gateway/admin.hpp"
#include "gateway/delivery/maildir.hpp"
#include "gateway/exit_codes.hpp"
#include "gateway/shard.hpp"
#include "gateway/version.hpp"
#include "metrics/exposition.hpp"
#include "ring/clock.hpp"
#include "ring/files.hpp"

namespace postern::gateway {

namespace {

constexpr Duration look_every = milliseconds(50);
constexpr Duration stalled_after = seconds(10);         // a shard without a turn for so long is not live
constexpr int backlog = 4096;
constexpr uint64_t descriptors_kept = 64;               // log, admin, lock, Maildirs being written, libraries
constexpr unsigned descriptors_a_shard = 16;            // ring, listeners, segments being written

enum class Phase : int { starting, serving, draining, stopped };

// A shard, its thread, and the two moments at which main and thread meet.
struct ShardThread {
    std::promise<Result<void, StartFailure>> created;   // by the thread: its shard is there, or why not
    std::promise<bool> go;                              // by main: serve (true) or give up (false)
    std::unique_ptr<Shard> shard;                       // lives and dies on the thread
    std::optional<ring::Thread> thread;
};

std::vector<std::string> verb_names() {
    std::vector<std::string> names;
    for (size_t i = 0; i < proto::verb_count; ++i) names.emplace_back(proto::verb_name(static_cast<proto::Verb>(i)));
    return names;
}

std::vector<std::string> stage_names() {
    std::vector<std::string> names;
    for (size_t i = 0; i < proto::stage_count; ++i) names.emplace_back(proto::stage_name(static_cast<proto::Stage>(i)));
    return names;
}

}  // namespace

struct Gateway::Impl {
    explicit Impl(const config::Config& configuration)
        : config(configuration),
          shard_count(config.server.shards ? config.server.shards : ring::usable_cpus()),
          stopped(shard_count),
          log(config.log.format, config.log.level, standard_error_sink()),
          main_lane(log.lane("main")) {
        for (unsigned i = 0; i < shard_count; ++i) shard_lanes.push_back(&log.lane("shard" + std::to_string(i)));
    }

    LogLine line(Level level, std::string_view event) { return LogLine(main_lane, level, event); }
    int give_up(const StartFailure& failure) {
        line(Level::error, "cannot_start").field("reason", failure.text).field("exit_code", failure.exit_code);
        return failure.exit_code;
    }

    Result<void, StartFailure> prepare();
    void limit_connections();
    Result<void, StartFailure> start_admin();
    Result<void, StartFailure> start_shards();
    Result<void, StartFailure> listen();
    void connect_shards();
    void serve(const std::function<Request(Duration)>& wait);
    void drain(const std::function<Request(Duration)>& wait);
    void stop_shards();
    bool live() const;
    bool ready() const;
    std::string reason() const;

    config::Config config;
    unsigned shard_count;
    std::latch stopped;                                 // counts the shards that serve no more
    std::latch jobs_over{1};                            // no worker runs a job of delivery any more
    Log log;
    LogLane& main_lane;
    std::vector<LogLane*> shard_lanes;
    std::atomic<Phase> phase{Phase::starting};
    std::vector<std::unique_ptr<metrics::ShardMetrics>> metrics;
    std::unique_ptr<metrics::Exposition> exposition;
    std::unique_ptr<ShardShared> shared;
    std::vector<std::unique_ptr<ShardThread>> threads;
    std::vector<ring::Loop::Lane*> lanes;               // from main to each shard
    std::unique_ptr<AdminServer> admin;
};

Gateway::Gateway(const config::Config& config) : impl_(std::make_unique<Impl>(config)) {}
Gateway::~Gateway() = default;

int Gateway::run(const std::function<Request(Duration)>& wait) {
    Impl& impl = *impl_;
    impl.log.start();
    impl.line(Level::info, "starting").field("version", version_text()).field("shards", uint64_t{impl.shard_count});
    auto started = impl.prepare();
    if (started) started = impl.start_admin();
    if (started) started = impl.start_shards();
    if (started) started = impl.listen();
    int exit_code = exit_ok;
    if (started) {
        impl.connect_shards();
        impl.serve(wait);
        impl.drain(wait);
    } else {
        exit_code = impl.give_up(started.error());
    }
    impl.admin.reset();             // it looks at the shards
    impl.stop_shards();
    if (started) impl.line(Level::info, "stopped");
    impl.log.stop();
    return exit_code;
}

Result<void, StartFailure> Gateway::Impl::prepare() {
    for (const config::Route& route : config.routes) {
        if (route.to.kind == config::Target::Kind::discard)
            line(Level::warning, "route_discards").field("route", route.name).field("effect", "mail for this route is thrown away");
        if (route.to.kind != config::Target::Kind::maildir) continue;
        if (auto prepared = MaildirWriter::prepare(route.to.path); !prepared)
            return fail(StartFailure{exit_config, prepared.error().text + " (route " + route.name + "); make the folder writable"});
    }
    if (config.spool.commit == config::CommitSink::none)
        line(Level::warning, "commits_are_not_durable").field("effect", "spool.commit is \"none\": a crash loses accepted mail");
    for (unsigned i = 0; i < shard_count; ++i)
        metrics.push_back(std::make_unique<metrics::ShardMetrics>(config.routes.size(), config.metrics.per_message));
    shared = std::make_unique<ShardShared>(config, shard_count);
    limit_connections();
    auto directory = storage::open_directory(config.spool.path);
    if (!directory) return fail(failure_of(directory.error()));
    shared->directory = std::move(*directory);
    return {};
}

// Clients must never use up the descriptors that delivery and the spool need: mail that was accepted has to leave.
void Gateway::Impl::limit_connections() {
    const uint64_t descriptors = ring::raise_descriptor_limit();
    uint64_t ours = descriptors_kept + uint64_t{descriptors_a_shard} * shard_count;
    for (const config::Route& route : config.routes) ours += route.connections;
    const uint64_t left = descriptors > 2 * ours ? descriptors - ours : descriptors / 2;
    if (descriptors == 0 || left >= config.limits.connections) return;
    shared->connections_max = static_cast<uint32_t>(left);
    line(Level::warning, "connections_limited")
        .field("connections", left)
        .field("configured", config.limits.connections)
        .field("descriptors", descriptors)
        .field("remedy", "raise the limit on open files (systemd LimitNOFILE, ulimit -n), or lower limits.connections");
}

Result<void, StartFailure> Gateway::Impl::start_admin() {
    if (!config.admin.enabled) return {};
    std::vector<const metrics::ShardMetrics*> sources;
    for (const auto& shard : metrics) sources.push_back(shard.get());
    metrics::ExpositionNames names;
    names.verbs = verb_names();
    names.stages = stage_names();
    for (const config::Route& route : config.routes) names.routes.push_back(route.name);
    names.version = version_number();
    names.build = build_type();
    exposition = std::make_unique<metrics::Exposition>(
        std::move(names), std::move(sources), [this] { return ready(); }, [] { return ring::wall_now().seconds(); });
    AdminState state;
    state.metrics = [this] { return exposition->text(); };
    state.live = [this] { return live(); };
    state.ready = [this] { return ready(); };
    state.started = [this] { return phase.load() != Phase::starting; };
    state.reason = [this] { return reason(); };
    auto server = AdminServer::start(config.admin.address.text, std::move(state));
    if (!server)
        return fail(StartFailure{server.error().code == EADDRINUSE ? exit_address_in_use : exit_address_unavailable,
                                 server.error().text + "; set admin.address to a free one"});
    admin = std::move(*server);
    line(Level::info, "admin_listening")
        .field("address", config.admin.address.text.substr(0, config.admin.address.text.rfind(':') + 1) + std::to_string(admin->port()));
    return {};
}

Result<void, StartFailure> Gateway::Impl::start_shards() {
    for (unsigned i = 0; i < shard_count; ++i) {
        threads.push_back(std::make_unique<ShardThread>());
        ShardThread& own = *threads.back();
        LogLane& lane = *shard_lanes[i];
        own.thread.emplace("shard-" + std::to_string(i), [this, &own, i, &lane] {
            auto go = own.go.get_future();
            auto shard = Shard::create(*shared, i, *metrics[i], lane);
            if (!shard) {
                own.created.set_value(fail(shard.error()));
                stopped.count_down();
                return;
            }
            own.shard = std::move(*shard);
            own.created.set_value({});
            if (go.get()) own.shard->serve();
            // Until all have stopped another shard may hand a connection over, and until the workers have, one of
            // them may run a job of ours.
            stopped.count_down();
            jobs_over.wait();
            own.shard.reset();
        });
    }
    std::optional<StartFailure> failure;
    for (auto& own : threads)
        if (auto created = own->created.get_future().get(); !created && !failure) failure = created.error();
    if (failure) return fail(*failure);
    return {};
}

Result<void, StartFailure> Gateway::Impl::listen() {
    for (const config::Listener& listener : config.listeners) {
        auto address = ring::parse_socket_address(listener.address.text);
        if (!address) return fail(StartFailure{exit_config, address.error().text});
        for (unsigned i = 0; i < shard_count; ++i) {
            auto socket = ring::listen_on(*address, backlog);
            if (!socket)
                return fail(StartFailure{socket.error().code == EADDRINUSE ? exit_address_in_use : exit_address_unavailable,
                                         socket.error().text});
            if (address->port == 0) {               // the other shards listen where the first one does
                auto port = ring::bound_port(socket->get());
                if (!port) return fail(StartFailure{exit_address_unavailable, port.error().text});
                address->port = *port;
            }
            threads[i]->shard->add_listener(std::move(*socket));
        }
        line(Level::info, "listening").field("address", address->text());
    }
    return {};
}

void Gateway::Impl::connect_shards() {
    for (auto& from : threads) {
        std::vector<Shard::Peer> peers;
        for (auto& to : threads)
            peers.push_back({to->shard.get(), from == to ? nullptr : &to->shard->loop().add_lane()});
        from->shard->set_peers(std::move(peers));
    }
    for (auto& own : threads) lanes.push_back(&own->shard->loop().add_lane());
    shared->housekeeping.start();
    shared->delivery_workers.start();
}

void Gateway::Impl::serve(const std::function<Request(Duration)>& wait) {
    for (auto& own : threads) own->go.set_value(true);
    phase = Phase::serving;
    line(Level::info, "ready");
    while (wait(hours(1)) != Request::stop) {}
}

void Gateway::Impl::drain(const std::function<Request(Duration)>& wait) {
    phase = Phase::draining;
    line(Level::info, "drain_start").field("delay", config.server.drain_delay);
    // Load balancers see that we are not ready; meanwhile we serve as before.
    const Monotonic begin = ring::monotonic_now() + config.server.drain_delay;
    while (ring::monotonic_now() < begin)
        if (wait(begin - ring::monotonic_now()) == Request::stop) return;
    for (size_t i = 0; i < threads.size(); ++i)
        while (!lanes[i]->send([shard = threads[i]->shard.get()] { shard->begin_drain(); }))
            if (wait(look_every) == Request::stop) return;
    const Monotonic end = ring::monotonic_now() + config.server.drain_timeout;
    auto drained = [this] {
        for (auto& own : threads)
            if (!own->shard->drained()) return false;
        return true;
    };
    while (!drained() && ring::monotonic_now() < end)
        if (wait(look_every) == Request::stop) return;
}

void Gateway::Impl::stop_shards() {
    const bool served = phase.load() != Phase::starting;
    for (auto& own : threads) {
        if (!own->shard) continue;                  // it failed to start, and its thread has ended
        if (served) {
            own->shard->loop().stop();
        } else {
            own->go.set_value(false);
        }
    }
    if (!threads.empty()) stopped.wait();
    if (shared) shared->delivery_workers.stop();
    jobs_over.count_down();
    for (auto& own : threads) own->thread.reset();  // joins
    if (shared) shared->housekeeping.stop();        // the spools needed it to the end
    phase = Phase::stopped;
}

bool Gateway::Impl::live() const {
    if (phase.load() == Phase::starting) return true;       // recovery may take its time
    const Monotonic now = ring::monotonic_now();
    for (const auto& own : threads)
        if (now - own->shard->loop().last_turn() > stalled_after) return false;
    return true;
}

bool Gateway::Impl::ready() const {
    if (phase.load() != Phase::serving) return false;
    for (const auto& own : threads)
        if (!own->shard->accepting()) return false;
    return true;
}

std::string Gateway::Impl::reason() const {
    switch (phase.load()) {
        case Phase::starting: return "starting: the spool is being recovered";
        case Phase::draining: return "draining: a stop was asked for";
        case Phase::stopped: return "stopped";
        case Phase::serving: break;
    }
    return "the spool cannot take mail: no space, or commits fail (see the log)";
}

}  // namespace postern::gateway
