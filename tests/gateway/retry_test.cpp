#include "gateway/delivery/retry.hpp"

#include <catch2/catch.hpp>

#include <algorithm>

#include "tests/support/seed.hpp"

using namespace postern;
using gateway::RetrySchedule;

namespace {
constexpr RetrySchedule schedule{minutes(1), hours(1), hours(120)};
}

TEST_CASE("The wait doubles from the first to the longest, less at most a quarter, whatever the seed", "[gateway][retry]") {
    const uint64_t seed = test::seed();
    CAPTURE(seed);
    Random random(seed);
    Duration full = minutes(1);
    for (unsigned attempt = 1; attempt <= 70; ++attempt) {
        CAPTURE(attempt);
        Duration least = full, most{};
        for (int i = 0; i < 200; ++i) {
            const Duration wait = schedule.wait(attempt, random);
            least = std::min(least, wait);
            most = std::max(most, wait);
        }
        CHECK(most <= full);
        CHECK(least.ns >= full.ns - full.ns / 4);
        CHECK(most.ns - least.ns > full.ns / 8);        // it is spread: 200 draws in half of the range would be a wonder
        full = std::min(full * 2, hours(1));
    }
}

TEST_CASE("No number of attempts makes the wait overflow", "[gateway][retry]") {
    Random random(1);
    CHECK(schedule.wait(UINT16_MAX, random) <= hours(1));
    CHECK(schedule.wait(UINT16_MAX, random) >= minutes(45));
    const RetrySchedule longest{hours(1), hours(24 * 365), {}};
    CHECK(longest.wait(UINT16_MAX, random) <= hours(24 * 365));
    CHECK(longest.wait(UINT16_MAX, random) >= hours(24 * 273));
}

TEST_CASE("A first wait beyond the longest is cut to it", "[gateway][retry]") {
    Random random(1);
    const RetrySchedule cut{hours(2), hours(1), {}};
    CHECK(cut.wait(1, random) <= hours(1));
}

TEST_CASE("A message expires when its time is up, to the nanosecond", "[gateway][retry]") {
    const Wall received{1'000'000'000};
    CHECK_FALSE(schedule.expired(received, received));
    CHECK_FALSE(schedule.expired(received, received + hours(120) + nanoseconds(-1)));
    CHECK(schedule.expired(received, received + hours(120)));
    CHECK_FALSE(schedule.expired(received, {0}));       // the clock was set back
}
