// The ring: one shard's io_uring as raw completions.  The seam between everything above and the kernel.
//
// kernel/uring.cpp implements it on Linux; the simulation implements the same symbols on virtual time; the linker
// chooses.  Only ring/ uses it: the rest of the program sees Loop, Stream, Listener and the file operations of Loop.
//
// Threads: created, used and destroyed on one thread; wake() alone may be called from any.
#pragma once

#include <cstdint>
#include <memory>
#include <span>
#include <string>
#include <string_view>

#include "ring/base/result.hpp"
#include "ring/base/units.hpp"
#include "ring/sockets.hpp"

namespace postern::ring {

struct RingConfig {
    unsigned submission_entries = 512;
    unsigned completion_entries = 4096;             // at least twice receive_buffers, so that a burst fits
    unsigned receive_buffers = 1024;                // a power of two, at most 32,768
    uint32_t receive_buffer_bytes = 16 * 1024;
    uint64_t staging_bytes = 0;                     // memory for the spool, registered beside the receive buffers
    bool register_memory = true;
};

// What was obtained, for the log, `postern --version` and the metrics.
struct RingFeatures {
    bool single_issuer = false;
    bool defer_taskrun = false;
    bool registered_ring = false;
    bool no_iowait = false;
    bool memory_registered = false;
    unsigned submission_entries = 0;
    std::string degraded;                           // empty, or why memory is not registered and the remedy
    std::string text() const;                       // "single_issuer defer_taskrun ..."
};

// Which gate is closed; each has an exit code of its own (gateway/exit_codes.hpp).
enum class RingGate { seccomp, sysctl, kernel_too_old, memory_locked, other };
struct RingFailure {
    RingGate gate = RingGate::other;
    Error error;                                    // cause and remedy in words
};

struct RingCounters {
    uint64_t enters = 0;
    uint64_t completions = 0;
    uint64_t completion_overflows = 0;
    uint64_t submission_queue_full = 0;
};

// A completion as the kernel gives it.  `more`: the multishot request goes on.  The token UINT64_MAX is the ring's own.
struct Completion {
    uint64_t token = 0;
    int32_t result = 0;                             // 0 or more, or -errno
    bool more = false;
    bool has_buffer = false;
    bool more_waiting = false;                      // of a receive: the socket holds more octets
    uint16_t buffer = 0;
};

enum class Durability { none, data };               // data: the octets are on stable storage at completion (RWF_DSYNC)

class Ring {
public:
    static Result<std::unique_ptr<Ring>, RingFailure> create(const RingConfig& config);
    ~Ring();

    const RingFeatures& features() const;
    const RingCounters& counters() const;

    // Requests.  Memory given must stay valid until the completion.  A full submission queue is flushed on the way.
    void accept_multishot(int fd, uint64_t token);
    void receive_multishot(int fd, uint64_t token);                                     // into provided buffers
    void send(int fd, std::string_view octets, uint64_t token);                         // MSG_WAITALL | MSG_NOSIGNAL
    void connect(int fd, const SocketAddress& address, uint64_t token);                 // the address is copied
    void write(int fd, uint64_t offset, std::span<const char> octets, Durability durability, uint64_t token);
    void read(int fd, uint64_t offset, std::span<char> into, uint64_t token);
    void sync_data(int fd, uint64_t token);
    // Every request with the token `target`.  Completes with their number (0: none was found) or -errno.
    void cancel(uint64_t target, uint64_t token);

    // Provided buffers.  Every completion with has_buffer owes one give_back(), whatever its result.
    std::string_view buffer(uint16_t id, size_t bytes) const;
    void give_back(uint16_t id);                    // published, with release order, by publish_buffers() or enter()
    void publish_buffers();
    unsigned free_buffers() const;                  // not reaped, or given back; free + held = total, always

    std::span<char> staging();                      // staging_bytes, 4 KiB aligned, zeroed at start

    // Submits, gets events, and waits until a completion is there or the deadline has passed.  A deadline in the past
    // does not wait.  EINTR, ETIME, EAGAIN and EBUSY are dealt with.  Returns 0, or -errno when the ring is broken.
    int enter(Monotonic deadline);
    // Takes completions off the queue; fewer than asked for means that no more are there without another enter().
    size_t reap(std::span<Completion> into);
    bool events_pending() const;                    // task work or overflow waits in the kernel

    // Wake-ups.  The owner announces that it is about to sleep, looks at its queues once more, enters, and is awake
    // again: no wake-up is lost (sequentially consistent on both sides).  A wake-up ends enter(); it is not a completion.
    void about_to_sleep();
    void awake();
    void wake();                                    // any thread; a system call only when the owner sleeps

private:
    struct Impl;
    static Result<std::unique_ptr<Ring>, RingFailure> create_as_configured(const RingConfig& config);
    explicit Ring(std::unique_ptr<Impl> impl);
    std::unique_ptr<Impl> impl_;
};

}  // namespace postern::ring
