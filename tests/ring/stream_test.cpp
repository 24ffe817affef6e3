// Streams over real loopback connections: receiving, sending, deadlines, closing.  Trap numbers are those of design.md §12.
#include "tests/ring/fixture.hpp"

#include <csignal>
#include <sys/resource.h>
#include <unordered_map>

using namespace postern;
using namespace postern::ring;
using namespace postern::ring::test;

namespace {

void set_send_buffer(int fd, int bytes) { ::setsockopt(fd, SOL_SOCKET, SO_SNDBUF, &bytes, sizeof bytes); }
void set_receive_buffer(int fd, int bytes) { ::setsockopt(fd, SOL_SOCKET, SO_RCVBUF, &bytes, sizeof bytes); }

StreamLimits limits_with(SendMode mode) {
    StreamLimits limits;
    limits.send_mode = mode;
    return limits;
}

// Notes of each call how many octets were shown, and whether more were expected behind them.
void note_expectations(Connection& connection, std::vector<std::pair<size_t, bool>>& shown) {
    connection.consume = [&](std::string_view octets) {
        shown.emplace_back(octets.size(), connection.stream->more_expected());
        return octets.size();
    };
}

}  // namespace

// ---- receiving ------------------------------------------------------------------------------------------------------

TEST_CASE("A stream shows what the peer sent, in order, and then its end", "[stream]") {
    LoopFixture f;
    auto [connection, peer] = f.connect();
    const std::string text = pattern(300'000);
    size_t written = 0;
    f.until([&] {
        written += peer.write(std::string_view(text).substr(written));
        if (written == text.size()) peer.finish_writing();
        return connection.ended > 0;
    });
    CHECK((connection.received == text));
    CHECK(connection.ended == 1);
    CHECK(f.all_buffers_free());
    f.until([&] { return connection.closed == 1; });
    CHECK(connection.closed_error == 0);
}

TEST_CASE("What is not consumed is shown again with what follows, after resume", "[stream]") {
    LoopFixture f;
    auto [connection, peer] = f.connect();
    std::vector<std::string> shown;
    size_t take = 3;
    connection.consume = [&](std::string_view octets) {
        shown.emplace_back(octets);
        return std::min(take, octets.size());
    };
    peer.send_all("abcdef");
    f.until([&] { return shown.size() == 1; });
    peer.send_all("ghi");
    f.settle();
    CHECK(shown == std::vector<std::string>{"abcdef"});     // paused
    take = 100;
    connection.stream->resume();
    CHECK(shown.size() == 1);                               // not from within the caller
    f.until([&] { return shown.size() == 2; });
    CHECK(shown[1] == "defghi");
    peer.send_all("jkl");
    f.until([&] { return shown.size() == 3; });
    CHECK(shown[2] == "jkl");
}

TEST_CASE("A handler that resumes while it is shown octets gets the rest in the same turn", "[stream]") {
    LoopFixture f;
    auto [connection, peer] = f.connect();
    connection.consume = [&](std::string_view octets) {
        connection.stream->resume();
        connection.received.append(octets.substr(0, 2));
        return std::min<size_t>(2, octets.size());
    };
    peer.send_all("abcdef");
    f.until([&] { return !connection.received.empty(); });
    CHECK(connection.received == "abcdef");
}

TEST_CASE("A paused stream keeps little, then leaves the rest in the socket, and nothing is lost", "[stream]") {
    LoopFixture f;
    StreamLimits limits;
    limits.unconsumed_bytes_max = 20'000;
    auto [connection, peer] = f.connect(limits);
    set_receive_buffer(connection.stream->fd(), 16 * 1024);
    connection.stream->pause();
    const std::string text = pattern(20'000'000);
    size_t written = 0;
    const auto write_on = [&] { written += peer.write(std::string_view(text).substr(written)); };
    for (int i = 0; i < 50; ++i) {
        write_on();
        f.turns(1);
    }
    f.settle();
    CHECK(connection.received_calls == 0);
    REQUIRE(written < text.size());                         // the window has closed
    CHECK(f.all_buffers_free());
    connection.stream->resume();
    int pauses = 0;
    connection.consume = [&](std::string_view octets) {
        connection.received.append(octets);
        if (++pauses % 10 == 0) {                           // and again, in mid-stream
            connection.stream->pause();
            connection.stream->resume();
        }
        return octets.size();
    };
    f.until([&] {
        write_on();
        if (written == text.size()) peer.finish_writing();
        return connection.ended > 0;
    });
    CHECK((connection.received == text));
}

TEST_CASE("The end of input waits until everything was consumed", "[stream]") {
    LoopFixture f;
    auto [connection, peer] = f.connect();
    connection.consume = [](std::string_view) { return size_t{0}; };
    peer.send_all("QUIT\r\n");
    peer.finish_writing();
    f.until([&] { return connection.received_calls == 1; });
    f.settle();
    CHECK(connection.ended == 0);
    connection.consume = nullptr;
    connection.stream->resume();
    f.until([&] { return connection.ended == 1; });
    CHECK(connection.received == "QUIT\r\n");
}

TEST_CASE("A half-closed client still gets its replies", "[stream]") {      // trap 17
    LoopFixture f;
    auto [connection, peer] = f.connect();
    const std::string reply = pattern(200'000);
    connection.on_end = [&] {
        connection.stream->send(reply);
        connection.stream->close();
    };
    peer.send_all("QUIT\r\n");
    peer.finish_writing();
    f.until([&] {
        peer.read_available();
        return peer.ended;
    });
    CHECK((peer.received == reply));
    f.until([&] { return connection.closed == 1; });
    CHECK(connection.closed_error == 0);
}

TEST_CASE("No more is expected when a receive filled its buffer and emptied the socket", "[stream]") {     // trap 23
    LoopFixture f(small_ring(16, 1024));
    auto [connection, peer] = f.connect();
    std::vector<std::pair<size_t, bool>> shown;
    note_expectations(connection, shown);
    peer.send_all(pattern(1024));
    f.until([&] { return shown.size() == 1; });
    CHECK(shown[0] == std::pair<size_t, bool>(1024, false));
}

TEST_CASE("More is expected while the socket holds more than was shown", "[stream]") {
    LoopFixture f(small_ring(16, 1024));
    auto [connection, peer] = f.connect();
    std::vector<std::pair<size_t, bool>> shown;
    note_expectations(connection, shown);
    peer.send_all(pattern(1500));
    f.until([&] { return shown.size() == 2; });
    CHECK(shown[0] == std::pair<size_t, bool>(1024, true));
    CHECK(shown[1] == std::pair<size_t, bool>(476, false));
    CHECK_FALSE(connection.stream->more_expected());
}

TEST_CASE("Twice as many senders as buffers all finish, without a busy loop", "[stream][buffers]") {      // trap 11
    constexpr unsigned buffers = 16;
    constexpr size_t bytes = 100'000;
    LoopFixture f(small_ring(buffers, 1024));
    std::vector<std::pair<Connection*, Peer>> senders;
    const std::string text = pattern(bytes);
    for (unsigned i = 0; i < 2 * buffers; ++i) {
        auto [connection, peer] = f.connect();
        senders.emplace_back(&connection, std::move(peer));
    }
    f.settle();
    // The ring sleeps while they send, so that all of them find their buffers gone.
    std::vector<size_t> written(senders.size());
    const auto write_on = [&] {
        for (size_t i = 0; i < senders.size(); ++i) {
            written[i] += senders[i].second.write(std::string_view(text).substr(written[i]));
            if (written[i] == bytes) senders[i].second.finish_writing();
        }
    };
    write_on();
    const uint64_t enters_before = f.loop.ring().counters().enters;
    f.until([&] {
        write_on();
        for (const auto& [connection, peer] : senders)
            if (connection->ended == 0) return false;
        return true;
    });
    for (const auto& [connection, peer] : senders) CHECK((connection->received == text));
    CHECK(f.loop.counters().receive_starved > 0);
    CHECK(f.loop.starved_count() == 0);
    f.settle();
    CHECK(f.all_buffers_free());
    // At 1 KiB a buffer there are at least 3,200 receives; each starved end must not cost turns of its own.
    CHECK(f.loop.ring().counters().enters - enters_before < 2 * senders.size() * bytes / 1024);
}

TEST_CASE("Streams that wait for buffers wait asleep", "[stream][buffers]") {      // trap 11
    LoopFixture f(small_ring(4, 1024));
    // Take all buffers out, as completions that nobody has dealt with yet would.
    Ring& ring = f.loop.ring();
    auto [ours, filler] = connected_pair();
    ring.receive_multishot(ours.get(), 1);
    std::vector<uint16_t> held;
    filler.send_all(pattern(4096));
    const Monotonic give_up = monotonic_now() + patience;
    while (held.size() < 4 && monotonic_now() < give_up) {
        REQUIRE(ring.enter(monotonic_now() + milliseconds(5)) == 0);
        Completion completion;
        while (ring.reap({&completion, 1}))
            if (completion.has_buffer) held.push_back(completion.buffer);
    }
    REQUIRE(ring.free_buffers() == 0);
    auto [connection, peer] = f.connect();
    peer.send_all("hello");
    f.until([&] { return f.loop.starved_count() == 1; });
    const uint64_t enters_before = ring.counters().enters;
    const Monotonic end = monotonic_now() + milliseconds(100);
    while (monotonic_now() < end) f.loop.run_turn(end - monotonic_now());
    CHECK(ring.counters().enters - enters_before <= 3);
    CHECK(connection.received.empty());
    for (const uint16_t id : held) ring.give_back(id);
    f.until([&] { return connection.received == "hello"; });
    CHECK(f.loop.starved_count() == 0);
    ring.cancel(1, 0);
    f.settle();
}

TEST_CASE("One fast socket does not starve the others", "[stream][buffers]") {      // trap 12
    LoopFixture f(small_ring(16, 4096));
    auto [fast, fast_peer] = f.connect();
    auto [slow, slow_peer] = f.connect();
    const std::string flood = pattern(1'000'000);
    size_t echoes = 0;
    uint64_t worst = 0, asked_at = f.loop.counters().turns;
    slow.consume = [&](std::string_view octets) {
        echoes += octets.size();
        worst = std::max(worst, f.loop.counters().turns - asked_at);
        return octets.size();
    };
    fast.consume = [](std::string_view octets) { return octets.size(); };
    size_t asked = 0;
    for (int round = 0; round < 300; ++round) {
        fast_peer.write(flood);
        if (asked == echoes) {
            slow_peer.send_all("x");
            ++asked;
            asked_at = f.loop.counters().turns;
        }
        REQUIRE(f.loop.run_turn(milliseconds(1)));
    }
    CHECK(echoes > 20);
    CHECK(worst < 20);
}

TEST_CASE("Thousands of half lines hold no provided buffer, and an idle stream little memory", "[stream][buffers]") {      // trap 18
    static_assert(sizeof(Stream) < 400);
    rlimit limit{};
    ::getrlimit(RLIMIT_NOFILE, &limit);
    const size_t count = std::min<size_t>(10'000, (limit.rlim_cur - 100) / 2);
    LoopFixture f(small_ring(64, 1024));
    std::vector<Peer> peers;
    size_t half_lines = 0;
    auto listening = listen_on_loopback();
    REQUIRE(listening);
    for (size_t i = 0; i < count; ++i) {
        Peer peer = Peer::connect(*bound_port(listening->get()));
        REQUIRE(peer);
        UniqueFd ours(::accept4(listening->get(), nullptr, nullptr, SOCK_CLOEXEC));
        REQUIRE(ours);
        Connection& connection = *f.connections.emplace_back(std::make_unique<Connection>(f.loop));
        connection.consume = [&](std::string_view octets) {
            half_lines += octets.size() == 4;
            return size_t{0};       // keeps it with the stream: the worst case
        };
        connection.stream->start(std::move(ours));
        peer.send_all("EHLO");
        peers.push_back(std::move(peer));
        if (i % 16 == 0) REQUIRE(f.loop.run_turn({}));
    }
    f.until([&] { return half_lines == count; });
    CHECK(f.all_buffers_free());
    for (auto& connection : f.connections) connection->stream->abort();
    f.until([&] { return std::all_of(f.connections.begin(), f.connections.end(), [](const auto& c) { return c->closed == 1; }); });
    CHECK(f.all_buffers_free());
}

TEST_CASE("Buffers are all there again after any end of a connection", "[stream][buffers][random]") {      // traps 10, 13, 14, 15
    const uint64_t seed = random_seed();
    CAPTURE(seed);
    Random random(seed);
    LoopFixture f(small_ring(8, 512));
    std::vector<std::pair<Connection*, Peer>> live;
    int opened = 0, closed = 0;
    while (closed < 1500) {
        if (live.size() < 12 && opened < 1500) {
            auto [connection, peer] = f.connect();
            connection.destroy_when_closed = true;
            live.emplace_back(&connection, std::move(peer));
            ++opened;
        }
        const size_t chosen = random.below(live.size());
        auto& [connection, peer] = live[chosen];
        switch (random.below(8)) {
            case 0: if (connection->stream) connection->stream->abort(); break;
            case 1: if (connection->stream) connection->stream->close(); break;
            case 2: if (peer) peer.reset(); break;
            case 3: if (peer) peer.close(); break;
            case 4: if (connection->stream) connection->stream->pause(); break;
            case 5: if (connection->stream) connection->stream->resume(); break;
            default: if (peer) peer.write(pattern(random.below(6000))); break;
        }
        if (connection->closed) {
            REQUIRE(connection->closed == 1);
            REQUIRE_FALSE(connection->stream);
            ++closed;
            live.erase(live.begin() + static_cast<std::ptrdiff_t>(chosen));
        } else if (opened == 1500 && connection->stream && random.below(4) == 0) {
            connection->stream->abort();
        }
        REQUIRE(f.loop.run_turn({}));
        REQUIRE(f.loop.ring().free_buffers() <= 8);
    }
    f.settle();
    CHECK(f.all_buffers_free());
    CHECK(f.loop.counters().stale_completions == 0);        // streams wait for their last completion
}

// ---- sending --------------------------------------------------------------------------------------------------------

TEST_CASE("The replies of one turn leave in one send, directly when nothing is in flight", "[stream]") {
    LoopFixture f;
    auto [connection, peer] = f.connect();
    connection.consume = [&](std::string_view octets) {
        for (int i = 0; i < 4; ++i) connection.stream->send("250 2.1.0 Ok\r\n");
        return octets.size();
    };
    peer.send_all("MAIL\r\nRCPT\r\nRCPT\r\nDATA\r\n");
    f.until([&] { return connection.sent == 1; });
    peer.read_available();
    CHECK(peer.received == "250 2.1.0 Ok\r\n250 2.1.0 Ok\r\n250 2.1.0 Ok\r\n250 2.1.0 Ok\r\n");
    CHECK(f.loop.counters().direct_sends == 1);
    CHECK(f.loop.counters().ring_sends == 0);
    CHECK(connection.stream->unsent_bytes() == 0);
}

TEST_CASE("In ring mode nothing is sent directly", "[stream]") {
    const StreamLimits limits = limits_with(SendMode::ring);
    LoopFixture f;
    auto [connection, peer] = f.connect(limits);
    const std::string text = pattern(50'000);
    connection.stream->send("220 hello\r\n");
    connection.stream->send(text);
    f.until([&] { return connection.sent == 1; });
    f.until([&] {
        peer.read_available();
        return peer.received.size() >= text.size() + 11;
    });
    CHECK((peer.received == "220 hello\r\n" + text));
    CHECK(f.loop.counters().direct_sends == 0);
    CHECK(f.loop.counters().short_sends == 0);
    CHECK(f.loop.counters().ring_sends == 1);
}

TEST_CASE("A large piece goes out at once, behind what was gathered before it", "[stream]") {
    LoopFixture f;
    auto [connection, peer] = f.connect();
    const std::string large = pattern(10'000);
    connection.stream->send("small ");
    CHECK(f.loop.counters().direct_sends == 0);
    connection.stream->send(large);
    CHECK(f.loop.counters().direct_sends == 1);
    connection.stream->send(" small again");
    f.until([&] { return connection.sent == 1; });
    CHECK(f.loop.counters().direct_sends == 2);
    peer.read_available();
    CHECK((peer.received == "small " + large + " small again"));
}

TEST_CASE("Octets stay in order whatever goes directly and whatever through the ring", "[stream][random]") {      // traps 19, 20
    const auto mode = GENERATE(SendMode::direct, SendMode::ring);
    const uint64_t seed = random_seed();
    CAPTURE(seed, mode == SendMode::direct);
    Random random(seed);
    StreamLimits limits = limits_with(mode);
    limits.unsent_bytes_max = 0;
    LoopFixture f;
    auto [connection, peer] = f.connect(limits);
    set_send_buffer(connection.stream->fd(), 4608);
    const std::string text = pattern(1'000'000, seed);
    size_t sent = 0;
    const auto send_some = [&] {
        const size_t bytes = std::min<size_t>(random.below(2) ? random.below(100) : random.below(20'000), text.size() - sent);
        connection.stream->send(std::string_view(text).substr(sent, bytes));
        sent += bytes;
    };
    connection.when_sent = send_some;       // also from within a handler
    const Monotonic give_up = monotonic_now() + patience;
    while (peer.received.size() < text.size() && monotonic_now() < give_up) {
        if (connection.stream->unsent_bytes() < 100'000)
            for (uint64_t i = random.below(4); i > 0; --i) send_some();
        for (uint64_t i = random.below(3); i > 0; --i) REQUIRE(f.loop.run_turn(random.below(2) ? milliseconds(1) : Duration{}));
        if (random.below(2)) peer.read_available();
        REQUIRE(peer.received.size() <= sent);
    }
    CHECK((peer.received == text));
    CHECK(f.loop.counters().ring_sends > 0);
    CHECK((f.loop.counters().direct_sends > 0) == (mode == SendMode::direct));
    CHECK(connection.closed == 0);
}

TEST_CASE("A peer that resets in the middle of a send ends the stream, without a signal", "[stream]") {      // trap 21
    REQUIRE(::signal(SIGPIPE, SIG_DFL) != SIG_ERR);      // one would end this program
    const auto mode = GENERATE(SendMode::direct, SendMode::ring);
    StreamLimits limits = limits_with(mode);
    limits.unsent_bytes_max = 0;
    LoopFixture f;
    auto [connection, peer] = f.connect(limits);
    connection.stream->send(pattern(20'000'000));
    f.turns(3);
    CHECK(connection.stream->unsent_bytes() > 0);
    peer.reset();
    while (connection.closed == 0 && connection.sent == 0) {
        connection.stream->send("more");
        REQUIRE(f.loop.run_turn(milliseconds(1)));
    }
    CHECK(connection.closed == 1);
    CHECK((connection.closed_error == ECONNRESET || connection.closed_error == EPIPE));
}

TEST_CASE("A client that never reads is closed at the cap", "[stream]") {      // trap 22
    LoopFixture f;
    StreamLimits limits;
    limits.unsent_bytes_max = 50'000;
    auto [connection, peer] = f.connect(limits);
    set_send_buffer(connection.stream->fd(), 4608);
    size_t most = 0;
    for (int i = 0; i < 1'000'000 && connection.closed == 0; ++i) {
        connection.stream->send(pattern(500));
        most = std::max(most, connection.stream->unsent_bytes());
        if (i % 10 == 0) f.turns(1);
    }
    REQUIRE(connection.closed == 1);
    CHECK(connection.closed_error == ENOBUFS);
    CHECK(most <= 50'000 + 500);
    f.until([&] {
        peer.read_available();
        return peer.error == ECONNRESET || peer.ended;
    });
}

// ---- deadlines ------------------------------------------------------------------------------------------------------

TEST_CASE("A deadline comes once, and not before the time it was last moved to", "[stream][deadline]") {
    LoopFixture f;
    auto [connection, peer] = f.connect();
    f.turns(1);
    connection.stream->set_deadline(milliseconds(10));
    connection.stream->set_deadline(milliseconds(50));      // later
    const Monotonic began = f.loop.now();
    f.until([&] { return connection.deadlines == 1; });
    CHECK(f.loop.now() - began >= milliseconds(50));
    f.until([&] { return f.loop.now() - began > milliseconds(80); });
    CHECK(connection.deadlines == 1);
}

TEST_CASE("A deadline can be moved nearer and be cleared", "[stream][deadline]") {
    LoopFixture f;
    auto [connection, peer] = f.connect();
    f.turns(1);
    connection.stream->set_deadline(minutes(5));
    connection.stream->set_deadline(milliseconds(10));
    f.until([&] { return connection.deadlines == 1; });
    connection.stream->set_deadline(milliseconds(5));
    connection.stream->clear_deadline();
    const Monotonic began = f.loop.now();
    f.until([&] { return f.loop.now() - began > milliseconds(30); });
    CHECK(connection.deadlines == 1);
}

// ---- closing --------------------------------------------------------------------------------------------------------

TEST_CASE("Closing delivers the last reply although the client goes on sending", "[stream][close]") {
    LoopFixture f;
    auto [connection, peer] = f.connect();
    connection.consume = [&](std::string_view octets) {
        connection.stream->send("421 4.3.2 closing\r\n");
        connection.stream->close();
        connection.stream->send("never seen");
        return octets.size();
    };
    peer.send_all("NOOP\r\n");
    f.until([&] {
        peer.write(pattern(10'000));        // unread input at close() would turn it into a reset
        peer.read_available();
        return peer.ended;
    });
    CHECK(peer.received == "421 4.3.2 closing\r\n");
    CHECK(peer.error == 0);
    CHECK(connection.received_calls == 1);
    CHECK(connection.closed == 0);          // it lingers for the peer's end
    CHECK(connection.stream->closing());
    peer.close();
    f.until([&] { return connection.closed == 1; });
    CHECK(f.all_buffers_free());
}

TEST_CASE("Closing flushes what is queued, however slow the client", "[stream][close]") {
    const auto mode = GENERATE(SendMode::direct, SendMode::ring);
    StreamLimits limits = limits_with(mode);
    limits.unsent_bytes_max = 0;
    LoopFixture f;
    auto [connection, peer] = f.connect(limits);
    set_send_buffer(connection.stream->fd(), 4608);
    const std::string text = pattern(500'000);
    connection.stream->send(text);
    connection.stream->close();
    f.until([&] {
        peer.read_available();
        return peer.ended;
    });
    CHECK((peer.received == text));
    peer.close();
    f.until([&] { return connection.closed == 1; });
    CHECK(connection.closed_error == 0);
}

TEST_CASE("A closed stream does not wait longer than its linger for the peer's end", "[stream][close]") {
    LoopFixture f;
    StreamLimits limits;
    limits.linger = milliseconds(30);
    auto [connection, peer] = f.connect(limits);
    f.turns(1);
    const Monotonic began = f.loop.now();
    connection.stream->close();
    CHECK(connection.closed == 0);
    f.until([&] { return connection.closed == 1; });
    CHECK(f.loop.now() - began >= milliseconds(30));
    CHECK(connection.closed_error == 0);
    peer.read_available();
    CHECK(peer.ended);
}

TEST_CASE("A closing stream reads and drops only so much of a client that floods and never reads", "[stream][close]") {
    LoopFixture f;
    StreamLimits limits;
    limits.unsent_bytes_max = 0;
    limits.linger_bytes_max = 100'000;
    auto [connection, peer] = f.connect(limits);
    set_send_buffer(connection.stream->fd(), 4608);
    f.turns(1);
    connection.when_deadline = [&] { connection.stream->abort(); };
    connection.stream->send(pattern(5'000'000));
    connection.stream->close();
    connection.stream->set_deadline(milliseconds(300));
    const std::string flood = pattern(64 * 1024);
    size_t taken = 0;
    f.until([&] {
        taken += peer.write(flood);
        return connection.closed == 1;
    });
    CHECK(taken < 16'000'000);              // what the two socket buffers hold, and what was dropped
    CHECK(f.all_buffers_free());
}

TEST_CASE("The deadline guards the last output of a closing stream", "[stream][close][deadline]") {
    LoopFixture f;
    StreamLimits limits;
    limits.unsent_bytes_max = 0;
    auto [connection, peer] = f.connect(limits);
    f.turns(1);
    connection.when_deadline = [&] { connection.stream->abort(); };
    connection.stream->send(pattern(20'000'000));
    connection.stream->close();
    connection.stream->set_deadline(milliseconds(20));
    f.until([&] { return connection.closed == 1; });
    CHECK(connection.deadlines == 1);
    CHECK(connection.closed_error == ECONNABORTED);
}

TEST_CASE("Aborting resets the connection and may be asked for inside any handler", "[stream][close]") {
    LoopFixture f;
    auto [connection, peer] = f.connect();
    connection.destroy_when_closed = true;
    connection.consume = [&](std::string_view octets) {
        connection.stream->abort();
        CHECK(connection.closed == 0);      // a call of its own
        return octets.size();
    };
    peer.send_all("x");
    f.until([&] { return connection.closed == 1; });
    CHECK(connection.closed_error == ECONNABORTED);
    f.until([&] {
        peer.read_available();
        return peer.ended || peer.error != 0;
    });
    CHECK(peer.error == ECONNRESET);
}

TEST_CASE("Streams may be opened and destroyed while others are told of octets", "[stream]") {
    LoopFixture f;
    auto [first, first_peer] = f.connect();
    auto [second, second_peer] = f.connect();
    first.consume = [&](std::string_view octets) {
        second.destroy_when_closed = true;
        if (second.stream) second.stream->abort();
        auto [third, third_peer] = f.connect();
        third.stream->send("hello");
        return octets.size();
    };
    first_peer.send_all("x");
    second_peer.send_all("y");
    f.until([&] { return second.closed == 1 && f.connections.size() == 3; });
    f.until([&] { return f.connections[2]->closed == 1; });     // its peer is gone
}

// ---- connecting -----------------------------------------------------------------------------------------------------

TEST_CASE("A stream connects, sends what it was given meanwhile, and receives", "[stream][connect]") {
    LoopFixture f;
    auto listening = listen_on_loopback();
    REQUIRE(listening);
    Connection& connection = *f.connections.emplace_back(std::make_unique<Connection>(f.loop));
    connection.stream->connect(local_address(listening->get()));
    connection.stream->send("EHLO me\r\n");
    f.until([&] { return connection.connected; });
    Peer peer(UniqueFd(accept_now(listening->get())));
    REQUIRE(peer);
    peer.send_all("220 hello\r\n");
    f.until([&] {
        peer.read_available();
        return connection.received == "220 hello\r\n" && peer.received == "EHLO me\r\n";
    });
}

TEST_CASE("A refused connection is reported with its error", "[stream][connect]") {
    LoopFixture f;
    SocketAddress address;
    {
        auto listening = listen_on_loopback();
        address = local_address(listening->get());
    }
    Connection& connection = *f.connections.emplace_back(std::make_unique<Connection>(f.loop));
    connection.stream->connect(address);
    f.until([&] { return connection.closed == 1; });
    CHECK_FALSE(connection.connected);
    CHECK(connection.closed_error == ECONNREFUSED);
}

TEST_CASE("A unix socket connects like any other, and a path that is not there is an error", "[stream][connect]") {
    LoopFixture f;
    SocketAddress address;
    address.family = SocketAddress::Family::unix_path;
    address.path = "stream_test_" + std::to_string(::getpid()) + ".sock";
    {
        Connection& nobody = *f.connections.emplace_back(std::make_unique<Connection>(f.loop));
        nobody.stream->connect(address);
        f.until([&] { return nobody.closed == 1; });
        CHECK(nobody.closed_error == ENOENT);
    }
    auto listening = listen_on(address, 8);
    REQUIRE(listening);
    Connection& connection = *f.connections.emplace_back(std::make_unique<Connection>(f.loop));
    connection.stream->connect(address);
    f.until([&] { return connection.connected; });
    ::unlink(address.path.c_str());
}

TEST_CASE("A connect that nobody answers can be given up", "[stream][connect]") {
    LoopFixture f;
    // A listener whose backlog is full leaves further connects waiting.
    auto listening = listen_on_loopback(0);
    REQUIRE(listening);
    std::vector<Connection*> all;
    for (int i = 0; i < 6; ++i) {
        Connection& connection = *f.connections.emplace_back(std::make_unique<Connection>(f.loop));
        connection.when_deadline = [&connection] { connection.stream->abort(); };
        connection.stream->connect(local_address(listening->get()));
        connection.stream->set_deadline(milliseconds(50));
        all.push_back(&connection);
    }
    f.until([&] { return std::all_of(all.begin(), all.end(), [](auto* c) { return c->closed == 1; }); });
    CHECK(std::any_of(all.begin(), all.end(), [](auto* c) { return !c->connected; }));
    for (const Connection* connection : all) CHECK(connection->closed_error == ECONNABORTED);
}
