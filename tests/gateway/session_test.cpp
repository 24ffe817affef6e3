// Clients of a real shard on a thread of its own.
#include "gateway/session.hpp"

#include <catch2/catch.hpp>

#include <future>
#include <latch>

#include "gateway/delivery/maildir.hpp"
#include "gateway/shard.hpp"
#include "tests/ring/fixture.hpp"
#include "tests/support/temp_directory.hpp"

using namespace postern;
using namespace postern::gateway;
using ring::test::Peer;

namespace {

config::Config configuration(const std::string& spool) {
    config::Config config;
    config.server.hostname = "mx.test";
    config.policy.domains = {"r.test"};
    config.spool.path = spool;
    config.spool.segment_bytes = 4_MiB;
    config.spool.reserve_bytes = 0;
    config.spool.staging_bytes = 8_MiB;
    config.ring.receive_buffers = 64;
    config.routes.resize(1);
    config.routes[0].name = "discard";
    config.routes[0].domains = {"*"};
    return config;
}

class ServingShard {
public:
    explicit ServingShard(config::Config configuration)
        : config_(std::move(configuration)),
          log_(LogFormat::logfmt, Level::error, [](std::string_view) {}),
          metrics(1, true),
          shared_(config_, 1) {
        auto directory = storage::open_directory(config_.spool.path);
        REQUIRE(directory);
        shared_.directory = std::move(*directory);
        LogLane& lane = log_.lane("shard0");
        auto created = created_.get_future();
        thread_.emplace("shard-0", [this, &lane] { run(lane); });
        REQUIRE(created.get());
        auto listening = ring::test::listen_on_loopback();
        REQUIRE(listening);
        port = *ring::bound_port(listening->get());
        shard_->add_listener(std::move(*listening));
        shard_->set_peers({{shard_, nullptr}});
        shared_.housekeeping.start();
        shared_.delivery_workers.start();
        go_.count_down();
    }
    ~ServingShard() {
        shard_->loop().stop();
        thread_.reset();
    }

private:
    void run(LogLane& lane) {
        auto shard = Shard::create(shared_, 0, metrics, lane);
        if (shard) shard_ = shard->get();
        created_.set_value(shard.has_value());
        if (!shard) return;
        go_.wait();
        shard_->serve();
    }

    config::Config config_;
    Log log_;

public:
    metrics::ShardMetrics metrics;
    uint16_t port = 0;

private:
    ShardShared shared_;
    std::promise<bool> created_;
    std::latch go_{1};
    Shard* shard_ = nullptr;
    std::optional<ring::Thread> thread_;
};

struct Client {
    explicit Client(uint16_t port) : peer(Peer::connect(port)) { REQUIRE(peer); }
    // Waits for something to do on the socket; the condition is looked at in between.
    void until(const std::function<bool()>& condition) {
        const Monotonic give_up = ring::monotonic_now() + ring::test::patience;
        while (!condition()) {
            if (ring::monotonic_now() > give_up) FAIL("the condition did not come true in time; received: " << peer.received);
            pollfd events{peer.fd(), POLLIN, 0};
            ::poll(&events, 1, 20);
            peer.read_available();
        }
    }
    void expect(const std::string& text) {
        until([&] { return peer.received.find(text) != std::string::npos; });
        peer.received.erase(0, peer.received.find(text) + text.size());
    }
    Peer peer;
};

}  // namespace

TEST_CASE("A client that closes its half behind the end of data still gets its reply", "[gateway][session]") {
    const postern::test::TempDirectory spool;
    ServingShard shard(configuration(spool.path()));
    Client client(shard.port);
    client.expect("220 ");
    client.peer.send_all("EHLO c.test\r\nMAIL FROM:<s@s.test>\r\nRCPT TO:<r@r.test>\r\nDATA\r\n");
    client.expect("354 ");
    client.peer.send_all("Subject: x\r\n\r\n.\r\n");
    client.peer.finish_writing();
    client.expect("250 2.0.0 Ok: queued as ");
    client.until([&] { return client.peer.ended; });
    CHECK(client.peer.error == 0);
    client.until([&] { return shard.metrics.results.value() == 1; });       // and it was delivered
}

TEST_CASE("A client that never reads is cut off some time after its deadline", "[gateway][session]") {
    const postern::test::TempDirectory spool;
    config::Config config = configuration(spool.path());
    config.limits.command_timeout = milliseconds(400);
    config.limits.junk_commands = UINT32_MAX;
    config.limits.unsent_reply_bytes = 1u << 30;
    ServingShard shard(config);
    Peer client = Peer::connect(shard.port);
    REQUIRE(client);
    std::string noops;                          // their replies are more than any socket buffer holds
    while (noops.size() < 4'000'000) noops += "NOOP\r\n";
    const Monotonic give_up = ring::monotonic_now() + ring::test::patience;
    for (std::string_view rest = noops; !rest.empty() && ring::monotonic_now() < give_up;) {
        pollfd events{client.fd(), POLLOUT, 0};
        ::poll(&events, 1, 20);
        rest.remove_prefix(client.write(rest));
    }
    pollfd events{client.fd(), 0, 0};           // hang-up and error only: nothing is read
    REQUIRE(::poll(&events, 1, 20'000) == 1);
    CHECK((events.revents & POLLERR) != 0);
}
