// Counters, gauges and histograms with one writer each.
//
// The writer (the shard) uses plain relaxed loads and stores: an add, no lock prefix.  Readers on other threads may be a
// moment behind but never see a torn value.
#pragma once

#include <array>
#include <atomic>
#include <bit>
#include <cstdint>

#include "ring/base/units.hpp"

namespace postern::metrics {

class Counter {
public:
    void add(uint64_t n = 1) { value_.store(value_.load(std::memory_order_relaxed) + n, std::memory_order_relaxed); }
    void set(uint64_t n) { value_.store(n, std::memory_order_relaxed); }     // gauges, and counters kept elsewhere
    uint64_t value() const { return value_.load(std::memory_order_relaxed); }

private:
    std::atomic<uint64_t> value_{0};
};

// Log-linear: each power of two is cut in four; values in the unit that the owner names (microseconds, octets, ...).
// Recording is two adds; quantiles and Prometheus buckets are worked out at scrape time only.
class Histogram {
public:
    static constexpr unsigned steps = 4;
    static constexpr unsigned bucket_count = 40 * steps;

    void record(uint64_t value) {
        buckets_[bucket_of(value)].add();
        sum_.add(value);
    }
    static constexpr unsigned bucket_of(uint64_t value) {
        if (value < steps) return static_cast<unsigned>(value);
        const unsigned exponent = static_cast<unsigned>(std::bit_width(value)) - 1;     // >= 2
        const unsigned index = (exponent - 1) * steps + static_cast<unsigned>(value >> (exponent - 2) & (steps - 1));
        return index < bucket_count ? index : bucket_count - 1;
    }
    // The largest value that falls into the bucket.
    static constexpr uint64_t upper_bound(unsigned index) {
        if (index < steps) return index;
        const unsigned exponent = index / steps + 1;
        return ((uint64_t{steps} + index % steps + 1) << (exponent - 2)) - 1;
    }
    uint64_t count_in(unsigned index) const { return buckets_[index].value(); }
    uint64_t sum() const { return sum_.value(); }

private:
    std::array<Counter, bucket_count> buckets_;
    Counter sum_;
};

}  // namespace postern::metrics
