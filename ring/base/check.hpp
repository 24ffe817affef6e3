// CHECK: a broken invariant is our bug.  Always on; prints the place and the condition, then aborts (core dump).
// Never CHECK bytes that came from the network, the disk or the configuration.
#pragma once

#include <cstdio>
#include <cstdlib>

namespace postern {

[[noreturn]] inline void check_failed(const char* condition, const char* file, int line) {
    std::fprintf(stderr, "postern: broken invariant: %s (%s:%d)\n", condition, file, line);
    std::abort();
}

}  // namespace postern

#define CHECK_INVARIANT(condition) \
    ((condition) ? static_cast<void>(0) : ::postern::check_failed(#condition, __FILE__, __LINE__))
