// Sizes and times.  Sizes are octets in 64 bits.  Times are nanoseconds in signed 64 bits: Monotonic counts from an
// arbitrary start and is for every wait; Wall counts from 1970 UTC and is for what people and other hosts read.
#pragma once

#include <compare>
#include <cstddef>
#include <cstdint>

namespace postern {

constexpr uint64_t operator""_KiB(unsigned long long n) { return n << 10; }
constexpr uint64_t operator""_MiB(unsigned long long n) { return n << 20; }
constexpr uint64_t operator""_GiB(unsigned long long n) { return n << 30; }

// A span of time.
struct Duration {
    int64_t ns = 0;
    auto operator<=>(const Duration&) const = default;
    constexpr double seconds() const { return static_cast<double>(ns) / 1e9; }
};
constexpr Duration nanoseconds(int64_t n) { return {n}; }
constexpr Duration microseconds(int64_t n) { return {n * 1'000}; }
constexpr Duration milliseconds(int64_t n) { return {n * 1'000'000}; }
constexpr Duration seconds(int64_t n) { return {n * 1'000'000'000}; }
constexpr Duration minutes(int64_t n) { return seconds(n * 60); }
constexpr Duration hours(int64_t n) { return seconds(n * 3600); }
constexpr Duration operator+(Duration a, Duration b) { return {a.ns + b.ns}; }
constexpr Duration operator-(Duration a, Duration b) { return {a.ns - b.ns}; }
constexpr Duration operator*(Duration a, int64_t n) { return {a.ns * n}; }

struct Monotonic {
    int64_t ns = 0;
    auto operator<=>(const Monotonic&) const = default;
};
constexpr Monotonic operator+(Monotonic t, Duration d) { return {t.ns + d.ns}; }
constexpr Monotonic operator-(Monotonic t, Duration d) { return {t.ns - d.ns}; }
constexpr Duration operator-(Monotonic a, Monotonic b) { return {a.ns - b.ns}; }

struct Wall {
    int64_t ns = 0;
    auto operator<=>(const Wall&) const = default;
    constexpr int64_t seconds() const { return ns / 1'000'000'000; }
};
constexpr Wall operator+(Wall t, Duration d) { return {t.ns + d.ns}; }
constexpr Duration operator-(Wall a, Wall b) { return {a.ns - b.ns}; }

constexpr uint64_t round_up(uint64_t n, uint64_t unit) { return (n + unit - 1) / unit * unit; }

}  // namespace postern
