// Timers: a hierarchical timing wheel of intrusive nodes.  Pure: it is told the time.
//
// Arming, re-arming and cancelling cost O(1) and allocate nothing.  A timer fires once, never early and at most one tick
// (4 ms) plus the loop's turn late.  A node cancels itself when destroyed.  Threads: one.
#pragma once

#include <array>
#include <cstdint>

#include "ring/base/intrusive_list.hpp"
#include "ring/base/units.hpp"

namespace postern::ring {

class Timer;

class TimerHandler {
public:
    virtual void on_timer(Timer& timer) = 0;

protected:
    ~TimerHandler() = default;
};

class Timer : public ListNode<Timer> {
public:
    explicit Timer(TimerHandler& handler) : handler_(handler) {}
    bool armed() const { return linked(); }
    void cancel() { unlink(); }

private:
    friend class TimerWheel;
    TimerHandler& handler_;
    uint64_t tick_ = 0;
};

class TimerWheel {
public:
    explicit TimerWheel(Monotonic now);

    void arm(Timer& timer, Monotonic deadline);     // re-arms when armed already
    // Fires everything due.  Handlers may arm and cancel any timer, their own included.
    void advance(Monotonic now);
    // When advance() wants to be called next; `horizon` when nothing is armed before that.
    Monotonic next_deadline(Monotonic horizon) const;

private:
    static constexpr unsigned level_count = 5;
    static constexpr unsigned slot_bits = 6;
    static constexpr unsigned slots = 1u << slot_bits;
    static constexpr Duration tick = milliseconds(4);

    struct Place {
        unsigned level = 0;
        unsigned slot = 0;
        uint64_t tick = 0;      // when the slot is due: its timers fire (level 0) or move down (the others)
    };
    void place(Timer& timer);
    bool first_place(Place& found) const;

    uint64_t now_tick_;
    mutable std::array<uint64_t, level_count> occupied_{};  // a bit for each slot that may hold a timer; pruned when read
    std::array<std::array<IntrusiveList<Timer, Timer>, slots>, level_count> wheel_;
};

}  // namespace postern::ring
