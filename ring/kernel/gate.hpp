// Which gate keeps us from io_uring, and what the operator can do about it.
#pragma once

#include "ring/ring.hpp"

namespace postern::ring {

// What the system says of itself at the moment of the failure.
struct GateFacts {
    int io_uring_disabled = -1;     // /proc/sys/kernel/io_uring_disabled; -1: there is no such file
    int seccomp_mode = 0;           // "Seccomp:" of /proc/self/status; 0: no filter
};
GateFacts read_gate_facts();

// Pure.  `error` is the positive errno of `step`, such as "io_uring_setup".
RingFailure explain_failure(int error, const std::string& step, const GateFacts& facts);

}  // namespace postern::ring
