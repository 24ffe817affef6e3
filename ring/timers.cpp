#include "ring/timers.hpp"

#include <algorithm>
#include <bit>

namespace postern::ring {

namespace {

uint64_t tick_at_or_before(Monotonic t, Duration tick) {
    return static_cast<uint64_t>(std::max<int64_t>(t.ns, 0) / tick.ns);
}
uint64_t tick_at_or_after(Monotonic t, Duration tick) {
    const int64_t ns = std::max<int64_t>(t.ns, 0);
    return static_cast<uint64_t>(ns / tick.ns + (ns % tick.ns != 0));
}

}  // namespace

TimerWheel::TimerWheel(Monotonic now) : now_tick_(tick_at_or_before(now, tick)) {}

void TimerWheel::arm(Timer& timer, Monotonic deadline) {
    timer.unlink();
    timer.tick_ = std::max(tick_at_or_after(deadline, tick), now_tick_ + 1);
    place(timer);
}

// The level is that of the highest bit in which now and the timer's tick differ, so that all slots of a lower level are
// due before any of a higher one.
void TimerWheel::place(Timer& timer) {
    // Beyond the wheel's reach (48 days): as far as it goes, and placed again from there.
    constexpr uint64_t reach = uint64_t{slots - 1} << (slot_bits * (level_count - 1));
    const uint64_t due = std::min(timer.tick_, now_tick_ + reach);
    const unsigned highest_bit = static_cast<unsigned>(std::bit_width((due ^ now_tick_) | 1)) - 1;
    const unsigned level = std::min(highest_bit / slot_bits, level_count - 1);
    const unsigned slot = (due >> (slot_bits * level)) & (slots - 1);
    wheel_[level][slot].push_back(timer);
    occupied_[level] |= uint64_t{1} << slot;
}

bool TimerWheel::first_place(Place& found) const {
    for (unsigned level = 0; level < level_count; ++level) {
        const unsigned shift = slot_bits * level;
        const auto now_slot = static_cast<unsigned>((now_tick_ >> shift) & (slots - 1));
        while (occupied_[level] != 0) {
            const uint64_t from_now_on = std::rotr(occupied_[level], static_cast<int>(now_slot));
            const auto distance = static_cast<unsigned>(std::countr_zero(from_now_on));
            const unsigned slot = (now_slot + distance) & (slots - 1);
            if (wheel_[level][slot].empty()) {      // all its timers were cancelled
                occupied_[level] &= ~(uint64_t{1} << slot);
                continue;
            }
            found = {level, slot, ((now_tick_ >> shift) + distance) << shift};
            return true;
        }
    }
    return false;
}

void TimerWheel::advance(Monotonic now) {
    const uint64_t target = std::max(tick_at_or_before(now, tick), now_tick_);
    IntrusiveList<Timer, Timer> due;
    for (Place place_found; first_place(place_found) && place_found.tick <= target;) {
        auto& list = wheel_[place_found.level][place_found.slot];
        occupied_[place_found.level] &= ~(uint64_t{1} << place_found.slot);
        now_tick_ = std::max(now_tick_, place_found.tick);
        IntrusiveList<Timer, Timer> taken;
        taken.splice_back(list);
        while (Timer* timer = taken.pop_front()) {
            if (timer->tick_ <= now_tick_) due.push_back(*timer);
            else place(*timer);
        }
    }
    now_tick_ = target;
    // Only now: what a handler arms is due in a later tick, and what it cancels leaves `due` by itself.
    while (Timer* timer = due.pop_front()) timer->handler_.on_timer(*timer);
}

Monotonic TimerWheel::next_deadline(Monotonic horizon) const {
    Place place_found;
    if (!first_place(place_found)) return horizon;
    return std::min(horizon, Monotonic{static_cast<int64_t>(place_found.tick) * tick.ns});
}

}  // namespace postern::ring
