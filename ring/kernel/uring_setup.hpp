// Sets an io_uring up: the ladder of flags, smaller rings when memory is short, what was obtained.
#pragma once

#include <array>
#include <liburing.h>
#include <string>

#include "ring/kernel/buffers.hpp"
#include "ring/ring.hpp"

namespace postern::ring {

// Newer than the header of liburing 2.3, by number.
constexpr unsigned setup_no_sqarray = 1u << 16;         // never set: liburing before 2.6 corrupts the ring with it (R9)
constexpr unsigned feature_no_iowait = 1u << 17;        // 6.15
constexpr unsigned enter_no_iowait = 1u << 7;           // 6.15

// From the best to the least that we can work with.  All of 6.1 and later take the first.
constexpr unsigned flags_always = IORING_SETUP_CQSIZE | IORING_SETUP_CLAMP | IORING_SETUP_SUBMIT_ALL;
constexpr std::array<unsigned, 3> flag_ladder = {
    flags_always | IORING_SETUP_SINGLE_ISSUER | IORING_SETUP_DEFER_TASKRUN | IORING_SETUP_COOP_TASKRUN |
        IORING_SETUP_TASKRUN_FLAG,
    flags_always | IORING_SETUP_SINGLE_ISSUER | IORING_SETUP_COOP_TASKRUN | IORING_SETUP_TASKRUN_FLAG,
    flags_always | IORING_SETUP_SINGLE_ISSUER,
};

// The call that makes a ring: io_uring_queue_init_params(), or a test's.
using MakeRing = int (*)(unsigned entries, io_uring* ring, io_uring_params* parameters);

// Walks the ladder on EINVAL; on ENOMEM tries rings of half the size, down to `entries_min`.  0 or -errno; `features`
// says what was obtained.
constexpr unsigned entries_min = 64;
int make_ring(const RingConfig& config, io_uring& ring, RingFeatures& features,
              MakeRing make = io_uring_queue_init_params);

// The same with queues small enough for the process's limit on locked memory, if they can be.
RingConfig fitted_to_memlock(RingConfig config);

// The memory of a ring that was closed, or whose process was killed, is given back by the kernel a little later: what
// fails for want of it is tried so often.
constexpr int register_attempts = 20;
constexpr Duration register_pause = milliseconds(50);

// Registers `region` as fixed buffer 0.  When the limit forbids, returns why and the remedy.
std::string register_region(io_uring& ring, const Mapping& region);

}  // namespace postern::ring
