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
    // 0; or the errno that ended the connection (also a failed connect); ECONNABORTED after abort().  A call of its own.
    virtual void on_closed(int error) = 0;

protected:
    ~StreamHandler() = default;
};

enum class SendMode : uint8_t { direct, ring };     // ring: never a direct send; for measurements

struct StreamLimits {
    uint32_t unsent_bytes_max = 256 * 1024;     // a peer that does not read is closed (ENOBUFS) beyond this; 0: no limit
    uint32_t unconsumed_bytes_max = 128 * 1024; // kept for a paused handler; the receive is stopped beyond this
    Duration linger = seconds(1);               // how long close() waits for the peer's FIN,
    uint32_t linger_bytes_max = 256 * 1024;     // and how much it reads and drops meanwhile
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
    // The socket is empty and the last octets end inside data: acknowledge at once, so that a client
    // with Nagle's algorithm on sends the rest (design.md: the 40 ms stall).  The handler decides; this is cheap.
    void quick_ack();
    // True inside on_received() when the socket held more octets behind those that are shown.  (That a receive filled its
    // buffer says nothing: a length that ends exactly with the buffer would stall.)  False for octets that were kept.
    bool more_expected() const { return more_expected_; }

    // One deadline a stream: on_deadline() unless it is moved or cleared before.  Moving it is cheap (no timer is touched).
    void set_deadline(Duration from_now);
    void clear_deadline();

    // Orderly.  Nothing more is shown.  The deadline stays: a peer that does not take the last output is the handler's to
    // abort in on_deadline().
    void close();
    void abort();                               // at once, with RST; what is unsent is dropped
    bool closing() const { return state_ >= State::flushing; }

private:
    // open -> flushing (close) -> lingering (our FIN is sent, waiting for the peer's) -> ending (nothing more is asked of
    // the kernel; its last completions are awaited) -> closed.  fail() and abort() go to ending from anywhere.
    enum class State : uint8_t { idle, connecting, open, flushing, lingering, ending, closed };
    enum Kind : uint8_t { kind_receive, kind_send, kind_connect, kind_count };
    static constexpr uint8_t kind_cancel = kind_count;      // plus the kind of what is cancelled

    void on_completion(uint8_t kind, const Completion& completion) final;
    void on_end_of_turn() final;
    void on_timer(Timer& timer) final;
    void on_buffers_free() final { arm_receive_if_wanted(); }

    void on_receive(const Completion& completion);
    void on_send(int32_t result);
    void on_connect(int32_t result);
    void on_cancelled(Kind kind, int32_t result);

    void arm_receive_if_wanted();
    bool receive_wanted() const;
    void show(std::string_view octets, bool more_waiting);
    void show_kept();
    void show_end_of_input_if_due();
    void keep(std::string_view octets);

    void flush();
    void send_remainder(size_t sent);
    void send_through_ring();
    void report_sent_when_empty();

    bool in_flight(unsigned kind) const { return (in_flight_ >> kind & 1) != 0; }
    void now_in_flight(unsigned kind) { in_flight_ = static_cast<uint8_t>(in_flight_ | 1u << kind); }
    void cancel(Kind kind);
    void continue_closing();
    void fail(int error);
    void end();
    bool quiet() const { return in_flight_ == 0; }
    void update_timer();

    Loop& loop_;
    StreamHandler& handler_;
    const StreamLimits& limits_;                // shared by all streams of a listener or route; outlives them
    UniqueFd fd_;
    State state_ = State::idle;
    uint8_t in_flight_ = 0;                     // a bit for each kind that owes us a completion
    bool received_since_armed_ = false;
    bool paused_ = false;
    bool resume_due_ = false;
    bool end_of_input_ = false;
    bool end_shown_ = false;
    bool more_expected_ = false;
    bool sent_due_ = false;                     // on_sent() is owed
    bool has_deadline_ = false;
    int error_ = 0;
    uint64_t token_ = 0;
    std::string gathering_;                     // to be sent at the end of the turn
    std::string sending_;                       // in flight through the ring
    size_t sent_of_sending_ = 0;
    uint64_t dropped_bytes_ = 0;                // since close()
    std::string unconsumed_;                    // the three borrow their memory from Loop::strings() while not empty
    Monotonic deadline_;
    Monotonic linger_until_;
    Monotonic timer_due_;                       // when timer_ fires, while it is armed: maybe earlier than it must
    Timer timer_;
};

}  // namespace postern::ring
