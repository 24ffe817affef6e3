// Clocks and randomness: the seam.  A shard reads them through its Loop (once a turn); other threads call these.
#pragma once

#include <cstdint>

#include "ring/base/units.hpp"

namespace postern::ring {

Monotonic monotonic_now();
Wall wall_now();
uint64_t random_seed();     // unpredictable in production, from the seed in the simulation

}  // namespace postern::ring
