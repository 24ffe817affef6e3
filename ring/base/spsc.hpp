// A bounded queue from one producer thread to one consumer thread.  Wait-free; never blocks, never allocates after
// construction.  try_push() returns false when full: the producer keeps the value and must not spin on it.
#pragma once

#include <atomic>
#include <cstddef>
#include <optional>
#include <utility>
#include <vector>

#include "ring/base/check.hpp"

namespace postern {

template <class Value>
class Spsc {
public:
    explicit Spsc(size_t capacity) : slots_(capacity), mask_(capacity - 1) {
        CHECK_INVARIANT(capacity >= 2 && (capacity & mask_) == 0);      // a power of two
    }

    bool try_push(Value&& value) {
        const size_t tail = tail_.load(std::memory_order_relaxed);
        if (tail - cached_head_ == slots_.size()) {
            cached_head_ = head_.load(std::memory_order_acquire);
            if (tail - cached_head_ == slots_.size()) return false;
        }
        slots_[tail & mask_] = std::move(value);
        tail_.store(tail + 1, std::memory_order_release);
        return true;
    }

    std::optional<Value> try_pop() {
        const size_t head = head_.load(std::memory_order_relaxed);
        if (head == cached_tail_) {
            cached_tail_ = tail_.load(std::memory_order_acquire);
            if (head == cached_tail_) return std::nullopt;
        }
        std::optional<Value> value(std::move(slots_[head & mask_]));
        head_.store(head + 1, std::memory_order_release);
        return value;
    }

    // Consumer side; exact there, a hint elsewhere.
    bool empty() const { return head_.load(std::memory_order_relaxed) == tail_.load(std::memory_order_acquire); }

private:
    std::vector<Value> slots_;
    size_t mask_;
    alignas(64) std::atomic<size_t> head_{0};       // written by the consumer
    size_t cached_tail_ = 0;                        // the consumer's last look at tail_
    alignas(64) std::atomic<size_t> tail_{0};       // written by the producer
    size_t cached_head_ = 0;                        // the producer's last look at head_
};

}  // namespace postern
