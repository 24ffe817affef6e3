// What delivery needs of a shard, real and in one test: ring, loop, workers, spool and log; messages are committed as a
// session commits them.
//
//     TempDirectory folder;
//     ShardInABox box(folder.path(), {discard_route({"*"})});
//     box.accept({"a@s.test", {"b@r.test"}, "Subject: x\r\n\r\n"});
//     box.until([&] { return box.spool_is_empty(); });
#pragma once

#include <catch2/catch.hpp>

#include <filesystem>
#include <fstream>
#include <functional>
#include <memory>
#include <mutex>
#include <string>
#include <vector>

#include "gateway/delivery/delivery.hpp"
#include "gateway/message_flags.hpp"
#include "ring/clock.hpp"
#include "tests/support/temp_directory.hpp"

namespace postern::gateway::test {

using postern::test::TempDirectory;

inline config::Route route_to(config::Target::Kind kind, std::vector<std::string> domains) {
    config::Route route;
    route.domains = std::move(domains);
    route.to.kind = kind;
    return route;
}
inline config::Route discard_route(std::vector<std::string> domains) {
    return route_to(config::Target::Kind::discard, std::move(domains));
}
inline config::Route maildir_route(std::vector<std::string> domains, const std::string& path) {
    config::Route route = route_to(config::Target::Kind::maildir, std::move(domains));
    route.to.path = path;
    return route;
}
inline config::Route smtp_route(std::vector<std::string> domains, uint16_t port, const std::string& host = "127.0.0.1") {
    config::Route route = route_to(config::Target::Kind::smtp, std::move(domains));
    route.to.host = host;
    route.to.port = port;
    return route;
}
inline config::Route lmtp_route(std::vector<std::string> domains, uint16_t port) {
    config::Route route = smtp_route(std::move(domains), port);
    route.to.kind = config::Target::Kind::lmtp;
    return route;
}

// Quick enough for tests: what fails is tried again within a second.
inline config::Config config_with(std::vector<config::Route> routes) {
    config::Config config;
    config.server.hostname = "mx.test";
    config.spool.segment_bytes = 4_MiB;
    config.spool.reserve_bytes = 0;
    config.delivery.retry_first = milliseconds(50);
    config.delivery.maildir_workers = 2;
    config.routes = std::move(routes);
    for (size_t i = 0; i < config.routes.size(); ++i)
        if (config.routes[i].name.empty()) config.routes[i].name = "route" + std::to_string(i);
    return config;
}

// A ring and its loop, before anything that a configuration describes: a next hop needs them to have a port.
struct BoxLoop {
    BoxLoop() {
        ring::RingConfig ring_config;
        ring_config.submission_entries = 128;
        ring_config.completion_entries = 1024;
        ring_config.receive_buffers = 64;
        ring_config.staging_bytes = 8_MiB;
        auto ring = ring::Ring::create(ring_config);
        if (!ring) FAIL(ring.error().error.text);
        loop = std::make_unique<ring::Loop>(std::move(*ring));
    }
    operator ring::Loop&() { return *loop; }

    // Turns the loop until the condition holds.
    void until(const std::function<bool()>& condition, Duration patience = seconds(20)) {
        const Monotonic give_up = ring::monotonic_now() + patience;
        while (!condition()) {
            if (ring::monotonic_now() > give_up) FAIL("the condition did not come true in time");
            REQUIRE(loop->run_turn(milliseconds(5)));
        }
    }

    std::unique_ptr<ring::Loop> loop;
};

struct Letter {
    std::string sender;
    std::vector<std::string> recipients;
    std::string body;
};

class ShardInABox final : private storage::SpoolProbe {
public:
    ShardInABox(BoxLoop& box_loop, const std::string& path, config::Config configuration)
        : config(std::move(configuration)),
          metrics(config.routes.size(), true),
          loop_(box_loop),
          policy_(config),
          log_(LogFormat::logfmt, Level::debug, [this](std::string_view lines) {
              const std::lock_guard lock(said_mutex_);
              said_ += lines;
          }),
          lane_(log_.lane("shard")),
          housekeeping_("housekeeping", 1),
          workers_("delivery", config.delivery.maildir_workers) {
        log_.start();
        auto directory = storage::open_directory(path);
        if (!directory) FAIL(directory.error().error.text);
        directory_ = std::move(*directory);
        storage::SpoolConfig spool_config;
        spool_config.path = path;
        spool_config.segment_bytes = config.spool.segment_bytes;
        spool_config.spare_segments = 1;
        spool_config.reserve_bytes = config.spool.reserve_bytes;
        spool_config.housekeeping_loop = housekeeping_.attach(loop_);
        const unsigned worker_number = workers_.attach(loop_);
        housekeeping_.start();
        workers_.start();
        for (const config::Route& route : config.routes) budgets.emplace_back(route.connections);
        auto opened = storage::Spool::open(loop_, housekeeping_, directory_, spool_config, *this);
        if (!opened) FAIL(opened.error().error.text);
        spool = std::move(*opened);
        delivery = std::make_unique<Delivery>(
            DeliveryContext{loop_, *spool, workers_, worker_number, config, policy_, metrics, lane_, budgets});
    }
    ~ShardInABox() {
        delivery->stop();
        delivery->abort();
        for (int turns = 0; (delivery->busy() || !delivery->closed() || !spool->flushed()) && turns < 2000; ++turns)
            static_cast<ring::Loop&>(loop_).run_turn(milliseconds(5));
        workers_.stop();            // a look-up may still run
        delivery.reset();
        spool.reset();
        housekeeping_.stop();
        log_.stop();
    }

    // Commits, in the order given; delivery does not know of them yet.
    struct Stored {
        storage::MessageIndex index = 0;
        proto::Envelope envelope;
    };
    Stored store(const Letter& letter) {
        Commit commit(*spool);
        Stored stored;
        stored.envelope.set_sender(letter.sender);
        for (const std::string& recipient : letter.recipients) stored.envelope.add_recipient(recipient);
        REQUIRE(commit.writer.begin(spool->next_id()));
        for (size_t at = 0; at < letter.body.size(); at += 16_KiB) {
            REQUIRE(commit.writer.append(std::string_view(letter.body).substr(at, 16_KiB)));
            commit.writer.settle();
        }
        std::string encoded;
        stored.envelope.encode(encoded);
        storage::MessageAttributes attributes;
        attributes.received = static_cast<ring::Loop&>(loop_).wall();
        attributes.recipient_count = static_cast<uint32_t>(letter.recipients.size());
        attributes.flags = flag_dot_line | flag_ends_with_crlf;
        commit.writer.commit(encoded, attributes, commit);
        until([&] { return commit.outcome.has_value(); });
        REQUIRE(*commit.outcome);
        stored.index = **commit.outcome;
        return stored;
    }
    // As Session::on_committed() does; all in one turn, so that delivery finds them all at once.
    void accept_all(const std::vector<Letter>& letters) {
        std::vector<Stored> all;
        for (const Letter& letter : letters) all.push_back(store(letter));
        for (const Stored& stored : all) delivery->take(stored.index, stored.envelope);
    }
    storage::MessageIndex accept(const Letter& letter) {
        const Stored stored = store(letter);
        delivery->take(stored.index, stored.envelope);
        return stored.index;
    }
    void deliver_recovered() {
        spool->for_each_recovered([this](const storage::RecoveredMessage& message) { delivery->recover(message); });
    }

    void until(const std::function<bool()>& condition) { loop_.until(condition); }
    bool spool_keeps(uint64_t messages) const { return spool->flushed() && spool->status().messages == messages; }
    bool spool_is_empty() const { return spool_keeps(0); }
    uint64_t held() const { return spool->status().messages_held; }
    uint64_t recipients(metrics::DeliveryOutcome outcome, size_t route = 0) const {
        return metrics.route(route).recipients[static_cast<size_t>(outcome)].value();
    }
    // How often the log has a line with all of these in it, so far.
    size_t said(std::initializer_list<std::string_view> parts) const {
        const std::lock_guard lock(said_mutex_);
        size_t count = 0;
        for (size_t at = 0; at < said_.size();) {
            const size_t end = said_.find('\n', at);
            const std::string_view line = std::string_view(said_).substr(at, end - at);
            bool all = true;
            for (const std::string_view part : parts) all &= line.find(part) != std::string_view::npos;
            count += all;
            at = end + 1;
        }
        return count;
    }

    config::Config config;
    metrics::ShardMetrics metrics;
    std::vector<RouteBudget> budgets;
    std::unique_ptr<storage::Spool> spool;
    std::unique_ptr<Delivery> delivery;
    uint64_t damage = 0;                        // frames

private:
    struct Commit final : storage::CommitWaiter {
        explicit Commit(storage::Spool& of) : writer(of) {}
        void on_committed(Result<storage::MessageIndex, storage::SpoolError> result) override { outcome = result; }
        storage::MessageWriter writer;
        std::optional<Result<storage::MessageIndex, storage::SpoolError>> outcome;
    };

    void message_committed(uint64_t, Duration) override {}
    void batch_committed(uint32_t, uint64_t, Duration) override {}
    void batch_failed(int error) override { FAIL("a commit failed: " << error); }
    void results_recorded(uint32_t) override {}
    void fragment_spilled(uint64_t) override {}
    void segment_recycled() override {}
    void damage_found(uint64_t frames) override { damage += frames; }
    void read_from_memory(uint64_t) override {}
    void read_from_disk(uint64_t) override {}

    BoxLoop& loop_;
    RecipientPolicy policy_;
    mutable std::mutex said_mutex_;             // the log has a thread of its own
    std::string said_;
    Log log_;
    LogLane& lane_;
    storage::SpoolDirectory directory_;
    ring::Workers housekeeping_;
    ring::Workers workers_;
};

// Flips one octet of what a spool folder has stored, wherever `marker` stands in it.
inline void damage(const std::string& folder, const std::string& marker) {
    size_t found = 0;
    for (const auto& entry : std::filesystem::recursive_directory_iterator(folder)) {
        if (entry.path().extension() != ".seg") continue;
        const std::string octets = postern::test::content_of(entry.path());
        for (size_t at = octets.find(marker); at != std::string::npos; at = octets.find(marker, at + 1), ++found) {
            std::fstream file(entry.path(), std::ios::in | std::ios::out | std::ios::binary);
            file.seekp(static_cast<std::streamoff>(at));
            file.put(static_cast<char>(octets[at] ^ 1));
        }
    }
    REQUIRE(found > 0);
}

}  // namespace postern::gateway::test
