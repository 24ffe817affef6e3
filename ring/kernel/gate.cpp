#include "ring/kernel/gate.hpp"

#include <cerrno>
#include <cstdlib>

#include "ring/files.hpp"

namespace postern::ring {

namespace {

constexpr const char* seccomp_remedy =
    "a seccomp filter forbids io_uring (the default profile of Docker 25 and containerd 2 does): run with a profile that "
    "allows io_uring_setup, io_uring_enter and io_uring_register (docker run --security-opt seccomp=FILE, Kubernetes "
    "securityContext.seccompProfile, systemd SystemCallFilter=@aio)";
constexpr const char* sysctl_remedy =
    "the sysctl kernel.io_uring_disabled forbids io_uring: set it to 0 (sysctl -w kernel.io_uring_disabled=0), or to 1 "
    "and put our group into kernel.io_uring_group";
constexpr const char* kernel_remedy = "this kernel is too old: Linux 6.1 or later is needed";
constexpr const char* memlock_remedy =
    "too little memory may be locked: raise the limit (systemd LimitMEMLOCK=infinity, docker --ulimit memlock=-1, "
    "ulimit -l unlimited), or grant CAP_IPC_LOCK";

RingFailure failure(RingGate gate, int error, const std::string& step, const char* remedy) {
    Error text = os_error(error, step + " failed");
    text.text += std::string("; ") + remedy;
    return {gate, std::move(text)};
}

}  // namespace

GateFacts read_gate_facts() {
    GateFacts facts;
    if (const auto text = read_file("/proc/sys/kernel/io_uring_disabled", 64))
        facts.io_uring_disabled = std::atoi(text->c_str());
    if (const auto text = read_file("/proc/self/status", 64 * 1024)) {
        constexpr std::string_view label = "\nSeccomp:";
        if (const size_t at = text->find(label); at != std::string::npos)
            facts.seccomp_mode = std::atoi(text->c_str() + at + label.size());
    }
    return facts;
}

RingFailure explain_failure(int error, const std::string& step, const GateFacts& facts) {
    switch (error) {
        case EPERM:
            // Both gates answer EPERM.  The sysctl is told by its value; without it only a filter is left.
            if (facts.io_uring_disabled > 0) return failure(RingGate::sysctl, error, step, sysctl_remedy);
            return failure(RingGate::seccomp, error, step, seccomp_remedy);
        case ENOSYS:
            if (facts.seccomp_mode > 0) return failure(RingGate::seccomp, error, step, seccomp_remedy);
            return failure(RingGate::kernel_too_old, error, step, kernel_remedy);
        case EINVAL: return failure(RingGate::kernel_too_old, error, step, kernel_remedy);
        case ENOMEM: return failure(RingGate::memory_locked, error, step, memlock_remedy);
        default: return {RingGate::other, os_error(error, step + " failed")};
    }
}

}  // namespace postern::ring
