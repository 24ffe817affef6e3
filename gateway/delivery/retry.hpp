// When to try again: exponential back-off with jitter.  Pure.
#pragma once

#include <cstdint>

#include "ring/base/random.hpp"
#include "ring/base/units.hpp"

namespace postern::gateway {

struct RetrySchedule {
    Duration first;
    Duration most;
    Duration expire;        // from the receipt of the message

    // The wait after the attempt-th failure (1 is the first): first * 2^(attempt-1), at most `most`, less up to a quarter
    // at random, so that a crowd of messages that failed together does not come back together.
    Duration wait(unsigned attempt, Random& random) const {
        int64_t ns = first.ns;
        for (unsigned i = 1; i < attempt && ns < most.ns; ++i) ns *= 2;
        if (ns > most.ns) ns = most.ns;
        return {ns - static_cast<int64_t>(random.below(static_cast<uint64_t>(ns / 4 + 1)))};
    }
    bool expired(Wall received, Wall now) const { return now - received >= expire; }
};

}  // namespace postern::gateway
