// Listening: accepting, running out of descriptors, closing without resetting anybody.
#include "tests/ring/fixture.hpp"

#include <sys/resource.h>

using namespace postern;
using namespace postern::ring;
using namespace postern::ring::test;

namespace {

struct ListenerFixture : LoopFixture {
    ListenerFixture() {
        auto listening = listen_on_loopback();
        REQUIRE(listening);
        listener = std::make_unique<Listener>(loop, gate, std::move(*listening));
        listener->start();
    }
    ~ListenerFixture() {
        if (!listener) return;
        listener->close();
        for (int i = 0; i < 1000 && !listener->closed(); ++i) loop.run_turn(milliseconds(10));
    }
    Gate gate;
    std::unique_ptr<Listener> listener;
};

class DescriptorLimit {     // lowered to what is in use, and `spare` more; restored at the end
public:
    explicit DescriptorLimit(rlim_t spare) {
        ::getrlimit(RLIMIT_NOFILE, &before_);
        const int next = ::dup(0);
        ::close(next);
        const rlimit low{static_cast<rlim_t>(next) + spare, before_.rlim_max};
        ::setrlimit(RLIMIT_NOFILE, &low);
    }
    ~DescriptorLimit() { ::setrlimit(RLIMIT_NOFILE, &before_); }

private:
    rlimit before_{};
};

}  // namespace

TEST_CASE("A listener hands over every connection", "[listener]") {
    ListenerFixture f;
    std::vector<Peer> peers;
    for (int i = 0; i < 200; ++i) peers.push_back(Peer::connect(f.listener->port()));
    f.until([&] { return f.gate.accepted.size() == 200; });
    CHECK(f.gate.failures.empty());
}

TEST_CASE("When descriptors run out the listener pauses, does not spin, and recovers", "[listener]") {      // trap 16
    LoopFixture f;
    Gate gate;
    auto listening = listen_on_loopback();
    REQUIRE(listening);
    Listener listener(f.loop, gate, std::move(*listening));
    Peer waiting = Peer::connect(listener.port());
    listener.start();
    // The kernel takes note of the limit when an accept is submitted, so it is low just then (and not while handlers run,
    // which under the sanitizers need descriptors themselves).
    const auto turn_without_descriptors = [&](Duration wait_max) {
        {
            const DescriptorLimit limit(0);
            f.loop.ring().enter({});
        }
        f.loop.run_turn(wait_max);
    };
    const Monotonic end = monotonic_now() + milliseconds(250);
    while (monotonic_now() < end) turn_without_descriptors(end - monotonic_now());
    REQUIRE(gate.failures.size() >= 2);         // one every 100 ms
    CHECK(gate.failures.size() <= 4);
    CHECK(gate.failures[0] == EMFILE);
    CHECK(gate.accepted.empty());
    CHECK(f.loop.ring().counters().enters <= 40);
    CHECK(f.loop.counters().accept_errors == gate.failures.size());
    f.until([&] { return gate.accepted.size() == 1; });
    listener.close();
    f.until([&] { return listener.closed(); });
}

TEST_CASE("Closing serves the connections that were waiting in the backlog", "[listener][close]") {      // trap 51
    ListenerFixture f;
    f.turns(1);
    std::vector<Peer> peers;
    for (int i = 0; i < 50; ++i) peers.push_back(Peer::connect(f.listener->port()));
    f.listener->close();        // none of them was seen yet
    CHECK(f.gate.accepted.empty());
    f.until([&] { return f.listener->closed(); });
    REQUIRE(f.gate.accepted.size() == 50);
    for (const UniqueFd& fd : f.gate.accepted) CHECK(send_now(fd.get(), "421\r\n") == 5);
    for (Peer& peer : peers) {
        peer.read_available();
        CHECK(peer.received == "421\r\n");
        CHECK(peer.error == 0);
    }
}

TEST_CASE("After closing nobody can connect", "[listener][close]") {
    ListenerFixture f;
    const uint16_t port = f.listener->port();
    f.listener->close();
    f.listener->close();
    f.until([&] { return f.listener->closed(); });
    CHECK_FALSE(Peer::connect(port));
    Gate gate;
    auto listening = listen_on_loopback();
    Listener unused(f.loop, gate, std::move(*listening));
    unused.close();
    CHECK(unused.closed());
}

TEST_CASE("A listener may be closed while it hands a connection over", "[listener][close]") {
    ListenerFixture f;
    int taken = 0;
    f.gate.take = [&](UniqueFd) {
        ++taken;
        f.listener->close();
    };
    std::vector<Peer> peers;
    for (int i = 0; i < 3; ++i) peers.push_back(Peer::connect(f.listener->port()));
    f.until([&] { return f.listener->closed(); });
    CHECK(taken == 3);
}

TEST_CASE("Accepting goes on while other sockets are busy", "[listener]") {
    ListenerFixture f;
    auto [busy, busy_peer] = f.connect();
    busy.consume = [](std::string_view octets) { return octets.size(); };
    std::vector<Peer> peers;
    const std::string flood = pattern(200'000);
    for (int i = 0; i < 100; ++i) {
        busy_peer.write(flood);
        peers.push_back(Peer::connect(f.listener->port()));
        REQUIRE(f.loop.run_turn(milliseconds(1)));
    }
    CHECK(f.gate.accepted.size() >= 95);
}
