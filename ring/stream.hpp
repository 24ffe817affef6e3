// One connected socket: multishot receive, direct or queued send, deadline, orderly close.
//
// Receive: octets are shown where the kernel put them; what the handler does not consume is kept (copied) and shown again
// with what follows after resume().  No provided buffer is held between turns.
// Send: replies of one turn leave in one write at its end, directly when nothing is queued or in flight on the socket
// (design: write at once when the queue is empty), otherwise through the ring, one send in flight.
// Close: flush, shut down writing, read and drop what still comes for a moment, then close.  on_closed() is the last call;
// no request is in flight then, and the stream may be destroyed in it.
//
// Threads: the owning shard.  Neither copied nor moved.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>

#include "ring/loop.hpp"
#include "ring/sockets.hpp"

namespace postern::ring {

class StreamHandler {
public:
    // Returns how many octets it consumed; fewer than all stops the receive until resume().
    virtual size_t on_received(std::string_view octets) = 0;
    virtual void on_connected() {}              // after connect()
    virtual void on_end_of_input() = 0;         // the peer's FIN, after everything it sent was consumed
    virtual void on_sent() {}                   // all that was queued has been taken by the kernel
    virtual void on_deadline() = 0;
    virtual void on_closed(int error) = 0;      // 0, or the errno that ended the connection (also a failed connect)

protected:
    ~StreamHandler() = default;
};

enum class SendMode : uint8_t { direct, ring };     // ring: never a direct send; for measurements

struct StreamLimits {
    uint32_t unsent_bytes_max = 256 * 1024;     // a peer that does not read is closed (ENOBUFS) beyond this; 0: no limit
    uint32_t unconsumed_bytes_max = 128 * 1024; // kept for a paused handler; the receive is stopped beyond this
    Duration linger = seconds(1);               // how long close() waits for the peer's FIN
    SendMode send_mode = SendMode::direct;
};

class Stream final : private CompletionHandler, private TurnHook, private TimerHandler, private Loop::Starved {
public:
    Stream(Loop& loop, StreamHandler& handler, const StreamLimits& limits);
    ~Stream();                                  // only when closed or never started
    Stream(const Stream&) = delete;

    void start(UniqueFd connected);             // receives from now on
    void connect(const SocketAddress& address); // then on_connected() or on_closed(errno); receives once connected
    int fd() const { return fd_.get(); }

    // Copied, or taken by the kernel at once.  Small pieces are gathered until the end of the turn; one of 4 KiB or more
    // goes out directly, behind what is gathered.  Ignored once closing.
    void send(std::string_view octets);
    size_t unsent_bytes() const;

    void pause();                               // show nothing more until resume()
    void resume();                              // shows what was kept, at the end of the turn at the earliest
    // The receive did not fill its buffer and the last octets end inside data: acknowledge at once, so that a client
    // with Nagle's algorithm on sends the rest (design.md: the 40 ms stall).  The handler decides; this is cheap.
    void quick_ack();
    // True inside on_received() when the octets shown ended with a receive that filled its buffer: more is on its way.
    bool more_expected() const { return more_expected_; }

    // One deadline a stream: on_deadline() unless it is moved or cleared before.  Moving it is cheap (no timer is touched).
    void set_deadline(Duration from_now);
    void clear_deadline();

    void close();                               // orderly
    void abort();                               // at once, with RST
    bool closing() const { return state_ >= State::closing; }

private:
    enum class State : uint8_t { idle, connecting, open, closing, lingering, draining, closed };
    void on_completion(uint8_t kind, const Completion& completion) final;
    void on_end_of_turn() final;
    void on_timer(Timer& timer) final;
    void on_buffers_free() final;
    // stream.cpp has the rest of the private functions' contracts.
    void arm_receive();
    void show(std::string_view octets);
    void flush();
    void fail(int error);
    void finish_when_quiet();

    Loop& loop_;
    StreamHandler& handler_;
    const StreamLimits& limits_;                // shared by all streams of a listener or route; outlives them
    UniqueFd fd_;
    uint64_t token_ = 0;
    State state_ = State::idle;
    bool receive_armed_ = false;
    bool send_in_flight_ = false;
    bool cancelling_ = false;
    bool paused_ = false;
    bool end_of_input_ = false;
    bool end_shown_ = false;
    bool more_expected_ = false;
    bool has_deadline_ = false;
    int error_ = 0;
    std::string gathering_;                     // to be sent at the end of the turn
    std::string sending_;                       // in flight through the ring
    uint32_t sent_of_sending_ = 0;
    std::string unconsumed_;
    Monotonic deadline_;
    Timer timer_;
};

}  // namespace postern::ring
