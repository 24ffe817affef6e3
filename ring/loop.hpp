// The event loop of one shard: completions, timers, ends of turns, jobs that came back, mail from other threads.
//
// A turn: enter the ring, reap completions, then run their handlers one after another (a handler never runs inside
// another one's call), then due timers, then mail, then the end-of-turn hooks.  Work per turn is bounded, and accepts go
// first.  Threads: the owner's; post() and stop() from any.
#pragma once

#include <atomic>
#include <cstdint>
#include <functional>
#include <memory>
#include <span>
#include <vector>

#include "ring/base/intrusive_list.hpp"
#include "ring/base/random.hpp"
#include "ring/base/spsc.hpp"
#include "ring/base/string_pool.hpp"
#include "ring/base/units.hpp"
#include "ring/ring.hpp"
#include "ring/timers.hpp"

namespace postern::ring {

// Gets the completions of the requests made with its slot.  `kind` is what the request was given.  Octets received are
// valid during the call: the loop gives the buffer back when it returns (R3).
class CompletionHandler {
public:
    virtual void on_completion(uint8_t kind, const Completion& completion) = 0;

protected:
    ~CompletionHandler() = default;
};

// A file request in flight.  Owner and memory live until on_file_done().  One request at a time each.
class FileOperation : private CompletionHandler {
public:
    explicit FileOperation(class Loop& loop);
    FileOperation(const FileOperation&) = delete;
    bool in_flight() const { return in_flight_; }
    // Offsets, lengths and memory in whole blocks for files opened direct.
    void write(int fd, uint64_t offset, std::span<const char> octets, Durability durability);
    void read(int fd, uint64_t offset, std::span<char> into);
    void sync_data(int fd);

protected:
    ~FileOperation();
    virtual void on_file_done(int32_t result) = 0;  // octets moved, or -errno; may start the next request

private:
    void on_completion(uint8_t kind, const Completion& completion) final;
    void begin();
    Loop& loop_;
    uint64_t token_;
    bool in_flight_ = false;
};

// Something to be done once at the end of the present turn, after all handlers.
class TurnHook : public ListNode<TurnHook> {
public:
    virtual void on_end_of_turn() = 0;

protected:
    ~TurnHook() = default;
};

struct LoopCounters {           // all by the owner; read across threads through metrics
    uint64_t turns = 0;
    uint64_t stale_completions = 0;
    uint64_t receive_starved = 0;       // receives ended by ENOBUFS
    uint64_t direct_sends = 0;
    uint64_t ring_sends = 0;
    uint64_t short_sends = 0;
    uint64_t accept_errors = 0;
};

class Loop {
public:
    // A value that another thread sends to this loop: run there as a call of its own.
    using Mail = std::function<void()>;
    class Lane;

    explicit Loop(std::unique_ptr<Ring> ring);
    ~Loop();

    // The time of this turn: read once, cheap to ask for.
    Monotonic now() const { return now_; }
    Wall wall() const { return wall_; }
    Random& random() { return random_; }
    Ring& ring() { return *ring_; }
    TimerWheel& timers() { return timers_; }
    LoopCounters& counters() { return counters_; }

    void arm(Timer& timer, Duration from_now) { timers_.arm(timer, now_ + from_now); }
    // Once.  Also from within a hook: in the same turn still, unless hooks keep asking again; those left over after some
    // rounds run in the next turn, which does not wait.
    void at_end_of_turn(TurnHook& hook);

    // Slots of `user_data`: kind 8 bits, generation 24, slot 32.  Completions of a detached slot are dropped, their
    // buffers given back.  A handler detaches only when the kernel holds no pointer into its memory.
    uint64_t attach(CompletionHandler& handler);    // returns a token with kind 0
    void detach(uint64_t token);
    static uint64_t with_kind(uint64_t token, uint8_t kind) { return token | uint64_t{kind} << 56; }
    static constexpr uint8_t kind_first = 0xff;     // these completions run ahead of the others of a turn: accepts

    // Receives that ended with ENOBUFS wait here and are called again, in order, when a quarter of the buffers is free.
    class Starved : public ListNode<Starved> {
    public:
        virtual void on_buffers_free() = 0;

    protected:
        ~Starved() = default;
    };
    void wait_for_buffers(Starved& starved);
    void stop_waiting(Starved& starved);            // does nothing when it is not waiting
    size_t starved_count() const { return starved_count_; }

    // A lane for one sending thread to this loop, made before that thread starts to use it.
    Lane& add_lane(size_t capacity = 1024);

    StringPool& strings() { return strings_; }      // memory for what is gathered or kept, shared by all streams

    // Until stop(), or until the ring is broken: error() then says why.  An idle loop turns once a second.
    void run();
    bool run_turn(Duration wait_max);               // one turn; false when the ring is broken (logged once by the owner)
    int error() const { return error_; }            // 0, or the errno that broke the ring
    void stop();                                    // any thread; ends the present or the next run()
    // Monotonic time of the last turn, for liveness: any thread.
    Monotonic last_turn() const { return {last_turn_ns_.load(std::memory_order_relaxed)}; }

private:
    struct Slot {
        CompletionHandler* handler = nullptr;
        uint32_t generation = 0;
        uint32_t next_free = UINT32_MAX;
    };
    bool must_not_sleep() const;
    void dispatch_reaped();
    void dispatch(const Completion& completion);
    void drain_mail();
    void run_hooks();
    void resume_starved();

    std::unique_ptr<Ring> ring_;
    Monotonic now_;
    Wall wall_;
    Random random_;
    TimerWheel timers_;
    LoopCounters counters_;
    std::vector<Slot> slots_;
    uint32_t free_slot_ = UINT32_MAX;
    IntrusiveList<TurnHook, TurnHook> hooks_;
    IntrusiveList<Starved, Starved> starved_;
    size_t starved_count_ = 0;
    unsigned buffer_count_;
    StringPool strings_;
    std::vector<std::unique_ptr<Lane>> lanes_;
    std::vector<Completion> reaped_;
    std::atomic<int64_t> last_turn_ns_{0};
    std::atomic<bool> stopping_{false};
    int error_ = 0;
};

// One sender's way to a loop.  send() is wait-free and wakes the loop when it sleeps.
class Loop::Lane {
public:
    Lane(Loop& loop, size_t capacity) : loop_(loop), queue_(capacity) {}
    // False when full: the sender keeps the mail, does something else, and tries again; it never spins.
    bool send(Mail&& mail);

private:
    friend class Loop;
    Loop& loop_;
    Spsc<Mail> queue_;
};

}  // namespace postern::ring
