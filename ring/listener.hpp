// A listening socket of one shard: multishot accept, re-armed after every end, with a pause after EMFILE and its kin.
//
// Threads: the owning shard.
#pragma once

#include "ring/loop.hpp"
#include "ring/sockets.hpp"

namespace postern::ring {

class ListenerHandler {
public:
    virtual void on_accepted(UniqueFd connection) = 0;
    // Descriptors or memory ran out (errno): accepting pauses for 100 ms.  Connections wait in the backlog.
    virtual void on_accept_failed(int error) = 0;

protected:
    ~ListenerHandler() = default;
};

class Listener final : private CompletionHandler, private TimerHandler {
public:
    Listener(Loop& loop, ListenerHandler& handler, UniqueFd listening);
    ~Listener();                        // only when closed
    void start();
    // Stops accepting through the ring, takes what the backlog still holds (on_accepted), then closes the socket, so that
    // no queued connection is reset.  closed() turns true when the last completion has come.
    void close();
    bool closed() const { return state_ == State::closed; }
    uint16_t port() const;

private:
    enum class State : uint8_t { idle, open, closing, closed };
    void on_completion(uint8_t kind, const Completion& completion) final;
    void on_timer(Timer& timer) final;
    void arm();
    void cancel();
    void finish();

    Loop& loop_;
    ListenerHandler& handler_;
    UniqueFd fd_;
    uint64_t token_ = 0;
    State state_ = State::idle;
    bool armed_ = false;
    bool cancelling_ = false;
    Timer retry_;
};

}  // namespace postern::ring
