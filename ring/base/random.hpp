// A small fast generator (xorshift64*) for jitter, spreading and tests.  Not for secrets.  Seed it from the seam.
#pragma once

#include <cstdint>

namespace postern {

class Random {
public:
    explicit Random(uint64_t seed) : state_(seed ? seed : 0x9e3779b97f4a7c15ull) {}
    uint64_t next() {
        state_ ^= state_ >> 12;
        state_ ^= state_ << 25;
        state_ ^= state_ >> 27;
        return state_ * 0x2545f4914f6cdd1dull;
    }
    uint64_t below(uint64_t bound) { return bound ? next() % bound : 0; }

private:
    uint64_t state_;
};

}  // namespace postern
