// A loop on the real kernel, streams over real loopback connections, and peers that are plain sockets.
#pragma once

#include <catch2/catch.hpp>

#include <arpa/inet.h>
#include <cerrno>
#include <fcntl.h>
#include <functional>
#include <memory>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <poll.h>
#include <string>
#include <sys/socket.h>
#include <unistd.h>
#include <vector>

#include "ring/clock.hpp"
#include "ring/listener.hpp"
#include "ring/loop.hpp"
#include "ring/stream.hpp"

namespace postern::ring::test {

constexpr Duration patience = seconds(20);      // far beyond what any condition needs; reached only by a failing test

inline RingConfig small_ring(unsigned buffers = 16, uint32_t buffer_bytes = 4096) {
    RingConfig config;
    config.submission_entries = 64;
    config.completion_entries = 256;
    config.receive_buffers = buffers;
    config.receive_buffer_bytes = buffer_bytes;
    return config;
}

inline std::unique_ptr<Ring> make_ring(const RingConfig& config) {
    auto ring = Ring::create(config);
    if (!ring) FAIL(ring.error().error.text);
    return std::move(*ring);
}

inline Result<UniqueFd> listen_on_loopback(int backlog = 1024) {
    return listen_on(*parse_socket_address("127.0.0.1:0"), backlog);
}

// The other end of a connection: a plain non-blocking socket.
class Peer {
public:
    Peer() = default;
    explicit Peer(UniqueFd fd) : fd_(std::move(fd)) { ::fcntl(fd_.get(), F_SETFL, O_NONBLOCK); }
    static Peer connect(uint16_t port) {
        UniqueFd fd(::socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0));
        sockaddr_in address{};
        address.sin_family = AF_INET;
        address.sin_port = htons(port);
        address.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
        if (::connect(fd.get(), reinterpret_cast<sockaddr*>(&address), sizeof address) < 0) return {};
        return Peer(std::move(fd));
    }

    explicit operator bool() const { return static_cast<bool>(fd_); }
    int fd() const { return fd_.get(); }
    // Returns how many octets were taken.
    size_t write(std::string_view octets) { return static_cast<size_t>(std::max(send_now(fd_.get(), octets), 0)); }
    void send_all(std::string_view octets) { REQUIRE(write(octets) == octets.size()); }
    // Takes what is there into `received`; notes the end and errors.
    void read_available() {
        char piece[16384];
        for (;;) {
            const int count = receive_now(fd_.get(), piece, sizeof piece);
            if (count > 0) {
                received.append(piece, static_cast<size_t>(count));
                continue;
            }
            if (count == 0) ended = true;
            else if (count != -EAGAIN) error = -count;
            return;
        }
    }
    void finish_writing() { shutdown_write(fd_.get()); }
    void reset() {
        reset_on_close(fd_.get());
        fd_.reset();
    }
    void close() { fd_.reset(); }

    std::string received;
    bool ended = false;
    int error = 0;

private:
    UniqueFd fd_;
};

// A loopback connection: the side that is ours, and the peer.
inline std::pair<UniqueFd, Peer> connected_pair() {
    auto listening = listen_on_loopback();
    REQUIRE(listening);
    Peer peer = Peer::connect(*bound_port(listening->get()));
    REQUIRE(peer);
    UniqueFd ours(::accept4(listening->get(), nullptr, nullptr, SOCK_CLOEXEC));
    REQUIRE(ours);
    return {std::move(ours), std::move(peer)};
}

// A stream and what its handler was told.  By default everything is consumed and EOF closes.
class Connection final : public StreamHandler {
public:
    Connection(Loop& loop, const StreamLimits& limits = default_limits()) : stream(std::make_unique<Stream>(loop, *this, limits)) {}
    static const StreamLimits& default_limits() {
        static const StreamLimits limits;
        return limits;
    }
    // Closes when it is still open, and waits: streams are never destroyed while the kernel knows them.
    void end(Loop& loop) {
        if (stream && stream->fd() >= 0) stream->abort();
        const Monotonic give_up = monotonic_now() + patience;
        while (stream && stream->fd() >= 0 && monotonic_now() < give_up) loop.run_turn(milliseconds(10));
    }

    size_t on_received(std::string_view octets) override {
        received_calls++;
        if (consume) return consume(octets);
        received.append(octets);
        return octets.size();
    }
    void on_connected() override { connected = true; }
    void on_end_of_input() override {
        ended++;
        if (on_end) on_end();
        else stream->close();
    }
    void on_sent() override {
        sent++;
        if (when_sent) when_sent();
    }
    void on_deadline() override {
        deadlines++;
        if (when_deadline) when_deadline();
    }
    void on_closed(int error) override {
        closed++;
        closed_error = error;
        if (destroy_when_closed) stream.reset();
    }

    std::unique_ptr<Stream> stream;
    std::function<size_t(std::string_view)> consume;
    std::function<void()> on_end, when_sent, when_deadline;
    bool destroy_when_closed = false;
    std::string received;
    int received_calls = 0, ended = 0, sent = 0, deadlines = 0, closed = 0, closed_error = 0;
    bool connected = false;
};

class Gate final : public ListenerHandler {      // takes connections in
public:
    void on_accepted(UniqueFd connection) override {
        if (take) take(std::move(connection));
        else accepted.push_back(std::move(connection));
    }
    void on_accept_failed(int error) override { failures.push_back(error); }
    std::function<void(UniqueFd)> take;
    std::vector<UniqueFd> accepted;
    std::vector<int> failures;
};

struct LoopFixture {
    explicit LoopFixture(const RingConfig& config = small_ring())
        : buffers(config.receive_buffers), loop(make_ring(config)) {}
    ~LoopFixture() {
        for (auto& connection : connections) connection->end(loop);
    }

    // Turns the loop until the condition holds.
    void until(const std::function<bool()>& condition) {
        const Monotonic give_up = monotonic_now() + patience;
        while (!condition()) {
            if (monotonic_now() > give_up) FAIL("the condition did not come true in time");
            REQUIRE(loop.run_turn(milliseconds(5)));
        }
    }
    void turns(int count) {
        while (count-- > 0) REQUIRE(loop.run_turn(milliseconds(1)));
    }
    // As many turns as it takes for nothing more to happen.
    void settle() {
        for (int quiet = 0; quiet < 3;) {
            const uint64_t before = loop.ring().counters().completions;
            REQUIRE(loop.run_turn(milliseconds(10)));
            quiet = loop.ring().counters().completions == before ? quiet + 1 : 0;
        }
    }
    // A started stream with its peer.
    std::pair<Connection&, Peer> connect(const StreamLimits& limits = Connection::default_limits()) {
        auto [ours, peer] = connected_pair();
        Connection& connection = *connections.emplace_back(std::make_unique<Connection>(loop, limits));
        connection.stream->start(std::move(ours));
        return {connection, std::move(peer)};
    }
    bool all_buffers_free() { return loop.ring().free_buffers() == buffers; }

    unsigned buffers;
    Loop loop;
    std::vector<std::unique_ptr<Connection>> connections;
};

// Octets whose order can be checked.
inline std::string pattern(size_t bytes, uint64_t seed = 1) {
    Random random(seed);
    std::string text(bytes, '\0');
    for (char& octet : text) octet = static_cast<char>('!' + random.below(90));
    return text;
}

}  // namespace postern::ring::test
