// From the 160 log-linear buckets of counters.hpp to the few round `le` bounds that Prometheus is shown.
//
// A bucket counts towards a bound when it lies wholly at or below it, so a value may be counted one bound too high when it
// is within 25 % of the bound: quantiles err upwards, never downwards.  Small whole numbers (to 7) are exact.
#pragma once

#include <array>
#include <cstdint>
#include <span>

#include "metrics/counters.hpp"

namespace postern::metrics {

struct Bounds {
    struct Bound {
        uint64_t recorded;          // in the unit of the histogram
        double shown;               // in Prometheus' base unit
    };
    double unit;                    // base units in one recorded unit
    std::span<const Bound> list;
};

// Buckets of one histogram added up over the shards.
class BucketSum {
public:
    void add(const Histogram& histogram) {
        for (unsigned index = 0; index < Histogram::bucket_count; ++index) counts_[index] += histogram.count_in(index);
        sum_ += histogram.sum();
    }
    uint64_t count_up_to(uint64_t bound) const {
        uint64_t count = 0;
        for (unsigned index = 0; index + 1 < Histogram::bucket_count && Histogram::upper_bound(index) <= bound; ++index)
            count += counts_[index];
        return count;
    }
    uint64_t count() const {
        uint64_t count = 0;
        for (const uint64_t in_bucket : counts_) count += in_bucket;
        return count;
    }
    uint64_t sum() const { return sum_; }

private:
    std::array<uint64_t, Histogram::bucket_count> counts_{};
    uint64_t sum_ = 0;
};

inline constexpr Bounds::Bound short_times_us_list[] = {
    {100, 0.0001},   {250, 0.00025},   {500, 0.0005},   {1'000, 0.001},   {2'500, 0.0025},   {5'000, 0.005},   {10'000, 0.01},
    {25'000, 0.025}, {50'000, 0.05},   {100'000, 0.1},  {250'000, 0.25},  {500'000, 0.5},    {1'000'000, 1},   {2'500'000, 2.5},
    {5'000'000, 5},  {10'000'000, 10},
};
inline constexpr Bounds short_times_us{1e-6, short_times_us_list};

inline constexpr Bounds::Bound long_times_ms_list[] = {
    {5, 0.005},      {10, 0.01},       {50, 0.05},          {100, 0.1},           {500, 0.5},           {1'000, 1},
    {5'000, 5},      {10'000, 10},     {30'000, 30},        {60'000, 60},         {300'000, 300},       {1'800'000, 1800},
    {3'600'000, 3600}, {21'600'000, 21600}, {86'400'000, 86400}, {432'000'000, 432000},
};
inline constexpr Bounds long_times_ms{1e-3, long_times_ms_list};

inline constexpr Bounds::Bound sizes_list[] = {
    {1_KiB, 1024},    {4_KiB, 4096},     {16_KiB, 16384},    {64_KiB, 65536},     {256_KiB, 262144},
    {1_MiB, 1048576}, {4_MiB, 4194304},  {16_MiB, 16777216}, {64_MiB, 67108864},  {256_MiB, 268435456},
};
inline constexpr Bounds sizes{1, sizes_list};

inline constexpr Bounds::Bound counts_list[] = {
    {0, 0}, {1, 1}, {2, 2}, {4, 4}, {8, 8}, {16, 16}, {32, 32}, {64, 64}, {128, 128}, {256, 256}, {512, 512}, {1024, 1024},
};
inline constexpr Bounds counts{1, counts_list};

}  // namespace postern::metrics
