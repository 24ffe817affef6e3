#include "ring/clock.hpp"

#include <sys/random.h>
#include <time.h>

#include "ring/base/check.hpp"

namespace postern::ring {

namespace {

int64_t read_clock(clockid_t clock) {
    timespec now{};
    clock_gettime(clock, &now);
    return int64_t{now.tv_sec} * 1'000'000'000 + now.tv_nsec;
}

}  // namespace

Monotonic monotonic_now() { return {read_clock(CLOCK_MONOTONIC)}; }
Wall wall_now() { return {read_clock(CLOCK_REALTIME)}; }

uint64_t random_seed() {
    uint64_t seed = 0;
    CHECK_INVARIANT(getrandom(&seed, sizeof seed, 0) == sizeof seed);       // cannot fail for so few octets
    return seed;
}

}  // namespace postern::ring
