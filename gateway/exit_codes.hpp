// Exit codes of the program, one for each thing that keeps it from running, so that scripts can tell them apart.
// README.md lists them; a test compares.
#pragma once

namespace postern::gateway {

enum ExitCode : int {
    exit_ok = 0,
    exit_failed = 1,                // anything not named below; `health`: not healthy
    exit_config = 2,                // configuration or command line
    exit_no_io_uring_seccomp = 10,
    exit_no_io_uring_sysctl = 11,
    exit_kernel_too_old = 12,
    exit_memory_locked = 13,
    exit_no_io_uring_other = 14,
    exit_address_in_use = 20,
    exit_address_unavailable = 21,  // permission, no such address
    exit_spool_locked = 30,
    exit_no_space = 31,
    exit_spool_unusable = 32,
    exit_spool_format = 33,
    exit_spool_damaged = 34,        // `spool verify` found damage
};

}  // namespace postern::gateway
