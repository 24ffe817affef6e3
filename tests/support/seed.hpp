// The seed of a random test: fresh for each run, or the one that a failure printed: POSTERN_SEED=123 build/dev/tests/...
//
//   const uint64_t seed = test::seed();
//   CAPTURE(seed);
#pragma once

#include <cstdint>
#include <cstdlib>
#include <random>
#include <string>

namespace postern::test {

inline uint64_t seed() {
    if (const char* given = std::getenv("POSTERN_SEED")) return std::stoull(given);
    return std::random_device{}();
}

}  // namespace postern::test
