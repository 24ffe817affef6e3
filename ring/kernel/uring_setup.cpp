#include "ring/kernel/uring_setup.hpp"

#include <algorithm>
#include <cerrno>
#include <sys/resource.h>
#include <sys/uio.h>

#include "ring/threads.hpp"

namespace postern::ring {

namespace {

static_assert(((flag_ladder[0] | flag_ladder[1] | flag_ladder[2]) & setup_no_sqarray) == 0, "R9");

int walk_ladder(unsigned entries, unsigned completions, io_uring& ring, io_uring_params& parameters, MakeRing make) {
    int status = -EINVAL;
    for (const unsigned flags : flag_ladder) {
        parameters = {};
        parameters.flags = flags;
        parameters.cq_entries = completions;
        status = make(entries, &ring, &parameters);
        if (status != -EINVAL) break;
    }
    return status;
}

bool within_memlock_limit(size_t bytes) {
    rlimit limit{};
    return ::getrlimit(RLIMIT_MEMLOCK, &limit) < 0 || limit.rlim_cur == RLIM_INFINITY || bytes <= limit.rlim_cur;
}

}  // namespace

int make_ring(const RingConfig& config, io_uring& ring, RingFeatures& features, MakeRing make) {
    unsigned entries = config.submission_entries;
    unsigned completions = config.completion_entries;
    io_uring_params parameters{};
    int status = walk_ladder(entries, completions, ring, parameters, make);
    while (status == -ENOMEM && entries / 2 >= entries_min) {
        entries /= 2;
        completions = std::max(completions / 2, entries);
        status = walk_ladder(entries, completions, ring, parameters, make);
    }
    if (status < 0) return status;
    features.single_issuer = parameters.flags & IORING_SETUP_SINGLE_ISSUER;
    features.defer_taskrun = parameters.flags & IORING_SETUP_DEFER_TASKRUN;
    features.no_iowait = parameters.features & feature_no_iowait;
    features.submission_entries = parameters.sq_entries;
    return 0;
}

RingConfig fitted_to_memlock(RingConfig config) {
    rlimit limit{};
    if (::getrlimit(RLIMIT_MEMLOCK, &limit) < 0) return config;
    const auto queues = [&config] {             // octets of the submission, completion and buffer rings
        return uint64_t{config.submission_entries} * (sizeof(io_uring_sqe) + sizeof(uint32_t)) +
               uint64_t{config.completion_entries} * sizeof(io_uring_cqe) +
               uint64_t{config.receive_buffers} * sizeof(io_uring_buf);
    };
    while (queues() > limit.rlim_cur * 3 / 4 && config.submission_entries / 2 >= entries_min) {
        config.submission_entries /= 2;
        config.completion_entries /= 2;
        config.receive_buffers = std::max(config.receive_buffers / 2, 16u);
    }
    return config;
}

std::string register_region(io_uring& ring, const Mapping& region) {
    const iovec whole{region.data(), region.size()};
    int status = 0;
    // The pages of a killed predecessor are counted against the same user until the kernel has taken its ring down, which
    // it does late.  That is worth waiting for only when the limit would do.
    const int attempts = within_memlock_limit(region.size()) ? register_attempts : 1;
    for (int attempt = 1;; ++attempt) {
        status = io_uring_register_buffers(&ring, &whole, 1);
        if (status != -ENOMEM || attempt == attempts) break;
        pause(register_pause);
    }
    if (status >= 0) return {};
    return os_error(-status, "memory is not registered with io_uring").text + " (" + std::to_string(region.size() >> 20) +
           " MiB a shard are wanted): writes cost a little more; raise the limit on locked memory (systemd "
           "LimitMEMLOCK=infinity, docker --ulimit memlock=-1) or grant CAP_IPC_LOCK";
}

std::string RingFeatures::text() const {
    std::string text;
    const auto add = [&text](bool present, const char* name) {
        if (!present) return;
        if (!text.empty()) text += ' ';
        text += name;
    };
    add(single_issuer, "single_issuer");
    add(defer_taskrun, "defer_taskrun");
    add(registered_ring, "registered_ring");
    add(no_iowait, "no_iowait");
    add(memory_registered, "memory_registered");
    return text + (text.empty() ? "" : " ") + "entries=" + std::to_string(submission_entries);
}

}  // namespace postern::ring
