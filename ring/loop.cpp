#include "ring/loop.hpp"

#include <algorithm>

#include "ring/clock.hpp"

namespace postern::ring {

namespace {

constexpr size_t completions_per_turn_max = 256;
constexpr size_t mail_per_lane_and_turn_max = 64;
constexpr unsigned hook_rounds_max = 8;
constexpr uint32_t generation_max = (1u << 24) - 1;
constexpr Duration idle_turn = seconds(1);      // so that last_turn() tells a stuck loop from an idle one

}  // namespace

Loop::Loop(std::unique_ptr<Ring> ring)
    : ring_(std::move(ring)),
      now_(monotonic_now()),
      wall_(wall_now()),
      random_(random_seed()),
      timers_(now_),
      buffer_count_(ring_->free_buffers()),
      reaped_(completions_per_turn_max) {
    last_turn_ns_.store(now_.ns, std::memory_order_relaxed);
}

Loop::~Loop() = default;

void Loop::at_end_of_turn(TurnHook& hook) {
    if (!hook.linked()) hooks_.push_back(hook);
}

// ---- slots ----------------------------------------------------------------------------------------------------------

uint64_t Loop::attach(CompletionHandler& handler) {
    if (free_slot_ == UINT32_MAX) {
        free_slot_ = static_cast<uint32_t>(slots_.size());
        slots_.push_back({nullptr, 1, UINT32_MAX});
    }
    const uint32_t index = free_slot_;
    Slot& slot = slots_[index];
    free_slot_ = slot.next_free;
    slot.handler = &handler;
    return uint64_t{slot.generation} << 32 | index;
}

void Loop::detach(uint64_t token) {
    const auto index = static_cast<uint32_t>(token);
    CHECK_INVARIANT(index < slots_.size());
    Slot& slot = slots_[index];
    CHECK_INVARIANT(slot.handler && slot.generation == (token >> 32 & generation_max));
    slot.handler = nullptr;
    slot.generation = slot.generation == generation_max ? 1 : slot.generation + 1;      // never 0: no token is 0
    slot.next_free = free_slot_;
    free_slot_ = index;
}

void Loop::dispatch(const Completion& completion) {
    const auto index = static_cast<uint32_t>(completion.token);
    const auto generation = static_cast<uint32_t>(completion.token >> 32 & generation_max);
    CompletionHandler* handler =
        index < slots_.size() && slots_[index].generation == generation ? slots_[index].handler : nullptr;
    if (handler) handler->on_completion(static_cast<uint8_t>(completion.token >> 56), completion);
    else ++counters_.stale_completions;
    // In this one place, whatever the result and whoever it was for: no path can lose a buffer (trap 13).
    if (completion.has_buffer) ring_->give_back(completion.buffer);
}

// ---- receives without buffers ---------------------------------------------------------------------------------------

void Loop::wait_for_buffers(Starved& starved) {
    if (starved.linked()) return;
    starved_.push_back(starved);
    ++starved_count_;
}

void Loop::stop_waiting(Starved& starved) {
    if (!starved.linked()) return;
    starved.unlink();
    --starved_count_;
}

// A receive that is armed again with data waiting and no buffer free ends at once, so trying too early would spin.  As
// many are resumed as there are buffers; the others keep their place in front of those that come back (trap 11).
void Loop::resume_starved() {
    const unsigned free = ring_->free_buffers();
    if (starved_count_ == 0 || free < std::max(buffer_count_ / 4, 1u)) return;
    for (unsigned resumed = 0; resumed < free; ++resumed) {
        Starved* starved = starved_.pop_front();
        if (!starved) return;
        --starved_count_;
        starved->on_buffers_free();
    }
}

// ---- mail -----------------------------------------------------------------------------------------------------------

Loop::Lane& Loop::add_lane(size_t capacity) {
    lanes_.push_back(std::make_unique<Lane>(*this, capacity));
    return *lanes_.back();
}

bool Loop::Lane::send(Mail&& mail) {
    if (!queue_.try_push(std::move(mail))) return false;
    loop_.ring_->wake();
    return true;
}

void Loop::drain_mail() {
    for (size_t lane = 0; lane < lanes_.size(); ++lane) {       // by index: mail may add a lane
        for (size_t count = 0; count < mail_per_lane_and_turn_max; ++count) {
            const auto mail = lanes_[lane]->queue_.try_pop();
            if (!mail) break;
            (*mail)();
        }
    }
}

// ---- turns ----------------------------------------------------------------------------------------------------------

bool Loop::must_not_sleep() const {
    return !hooks_.empty() || stopping_.load(std::memory_order_acquire) ||
           std::any_of(lanes_.begin(), lanes_.end(), [](const auto& lane) { return !lane->queue_.empty(); });
}

bool Loop::run_turn(Duration wait_max) {
    const Monotonic no_wait{0};
    Monotonic deadline = no_wait;
    if (wait_max > Duration{} && !ring_->events_pending()) {
        ring_->about_to_sleep();
        if (!must_not_sleep()) deadline = timers_.next_deadline(monotonic_now() + wait_max);
    }
    error_ = -ring_->enter(deadline);
    ring_->awake();
    if (error_ != 0) return false;

    now_ = monotonic_now();
    wall_ = wall_now();
    last_turn_ns_.store(now_.ns, std::memory_order_relaxed);
    ++counters_.turns;
    dispatch_reaped();
    timers_.advance(now_);
    drain_mail();
    run_hooks();
    resume_starved();
    return true;
}

// At most completions_per_turn_max: what is left makes the next enter() return at once, with the buffers of these given
// back and their replies sent (trap 12).
void Loop::dispatch_reaped() {
    const std::span<const Completion> reaped(reaped_.data(), ring_->reap(reaped_));
    const auto comes_first = [](const Completion& completion) { return completion.token >> 56 == kind_first; };
    bool any_first = false;
    for (const Completion& completion : reaped) any_first |= comes_first(completion);
    if (any_first)
        for (const Completion& completion : reaped)
            if (comes_first(completion)) dispatch(completion);
    for (const Completion& completion : reaped)
        if (!comes_first(completion)) dispatch(completion);
}

void Loop::run_hooks() {
    for (unsigned round = 0; round < hook_rounds_max && !hooks_.empty(); ++round) {
        IntrusiveList<TurnHook, TurnHook> due;      // a hook that is destroyed leaves it by itself
        due.splice_back(hooks_);
        while (TurnHook* hook = due.pop_front()) hook->on_end_of_turn();
    }
}

void Loop::run() {
    while (!stopping_.load(std::memory_order_acquire) && run_turn(idle_turn)) {
    }
    stopping_.store(false, std::memory_order_relaxed);
}

void Loop::stop() {
    stopping_.store(true, std::memory_order_release);
    ring_->wake();
}

// ---- file requests --------------------------------------------------------------------------------------------------

FileOperation::FileOperation(Loop& loop) : loop_(loop), token_(loop.attach(*this)) {}

FileOperation::~FileOperation() {
    CHECK_INVARIANT(!in_flight_);
    loop_.detach(token_);
}

void FileOperation::write(int fd, uint64_t offset, std::span<const char> octets, Durability durability) {
    begin();
    loop_.ring().write(fd, offset, octets, durability, token_);
}

void FileOperation::read(int fd, uint64_t offset, std::span<char> into) {
    begin();
    loop_.ring().read(fd, offset, into, token_);
}

void FileOperation::sync_data(int fd) {
    begin();
    loop_.ring().sync_data(fd, token_);
}

void FileOperation::begin() {
    CHECK_INVARIANT(!in_flight_);
    in_flight_ = true;
}

void FileOperation::on_completion(uint8_t, const Completion& completion) {
    in_flight_ = false;
    on_file_done(completion.result);
}

}  // namespace postern::ring
