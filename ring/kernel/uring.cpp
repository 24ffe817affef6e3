// Ring on Linux: liburing 2.3 for set-up and entries, the enter call and the queue ends by ourselves (R9).
#include <cerrno>
#include <deque>
#include <sys/eventfd.h>
#include <sys/mman.h>
#include <sys/socket.h>
#include <sys/uio.h>
#include <unistd.h>

#include <atomic>
#include <thread>
#include <vector>

#include "ring/base/check.hpp"
#include "ring/base/unique_fd.hpp"
#include "ring/clock.hpp"
#include "ring/kernel/buffers.hpp"
#include "ring/kernel/gate.hpp"
#include "ring/kernel/socket_address.hpp"
#include "ring/kernel/uring_setup.hpp"
#include "ring/threads.hpp"
#include "ring/ring.hpp"

namespace postern::ring {

namespace {

constexpr uint64_t wake_token = UINT64_MAX;
constexpr uint64_t staging_alignment = 4096;
constexpr unsigned kernel_workers_max = 2;      // of each sort: sync_data() and what else the kernel cannot do inline
constexpr int fixed_buffer = 0;

unsigned load_acquire(const unsigned* value) { return io_uring_smp_load_acquire(value); }

}  // namespace

struct Ring::Impl {
    ~Impl() {
        if (ring_made) io_uring_queue_exit(&ring);
    }

    io_uring_sqe& next_entry(uint64_t token);
    unsigned publish_entries();
    void submit_only();
    void place_deferred();
    void arm_wake_up();
    int enter(unsigned to_submit, bool wait, Monotonic deadline);
    bool registered(const void* memory, size_t bytes) const {
        return features.memory_registered && region.holds(memory, bytes);
    }
    unsigned completions_ready() const { return load_acquire(ring.cq.ktail) - *ring.cq.khead; }

    // The ring is taken down before the memory that it uses: the destructor's body runs first.
    Mapping region;             // [receive buffers | staging]
    std::span<char> staging;
    ReceiveBuffers buffers;
    io_uring ring{};
    bool ring_made = false;
    unsigned enter_flags = 0;
    RingFeatures features;
    RingCounters counters;
    std::thread::id owner = std::this_thread::get_id();

    std::vector<io_uring_sqe> deferred;         // requests that found the queue full and the kernel not taking any
    std::deque<sockaddr_storage> addresses;     // of connects not yet submitted

    UniqueFd wake_fd;
    uint64_t wake_count = 0;                    // what the read of wake_fd writes to
    bool wake_armed = false;
    alignas(64) std::atomic<bool> sleeping{false};
};

Ring::Ring(std::unique_ptr<Impl> impl) : impl_(std::move(impl)) {}
Ring::~Ring() = default;

// The ring's own queues count against the limit on locked memory since Linux 6.14.  Where that is too small for them as
// configured, smaller ones are tried that fit it.
Result<std::unique_ptr<Ring>, RingFailure> Ring::create(const RingConfig& config) {
    auto made = create_as_configured(config);
    if (made || made.error().gate != RingGate::memory_locked) return made;
    const RingConfig smaller = fitted_to_memlock(config);
    if (smaller.completion_entries == config.completion_entries) return made;
    for (int attempt = 0; attempt < register_attempts; ++attempt) {     // the first try's memory is given back late
        made = create_as_configured(smaller);
        if (made || made.error().gate != RingGate::memory_locked) break;
        pause(register_pause);
    }
    return made;
}

Result<std::unique_ptr<Ring>, RingFailure> Ring::create_as_configured(const RingConfig& config) {
    const auto fail_at = [](int status, const std::string& step) {
        return fail(explain_failure(-status, step, read_gate_facts()));
    };
    CHECK_INVARIANT(config.receive_buffers > 0 && config.receive_buffers <= 32'768 &&
                    (config.receive_buffers & (config.receive_buffers - 1)) == 0);
    auto impl = std::make_unique<Impl>();
    if (const int status = make_ring(config, impl->ring, impl->features); status < 0)
        return fail_at(status, "io_uring_setup");
    impl->ring_made = true;
    if (!(impl->ring.features & IORING_FEAT_EXT_ARG) || !(impl->ring.features & IORING_FEAT_NODROP))
        return fail_at(-EINVAL, "io_uring_setup (features)");

    const uint64_t receive_bytes =
        round_up(uint64_t{config.receive_buffers} * config.receive_buffer_bytes, staging_alignment);
    impl->region = Mapping::create(receive_bytes + round_up(config.staging_bytes, staging_alignment));
    if (!impl->region) return fail_at(-errno, "mmap of the receive buffers");
    impl->staging = {impl->region.data() + receive_bytes, config.staging_bytes};
    const int attached =
        impl->buffers.attach(impl->ring, impl->region.data(), config.receive_buffers, config.receive_buffer_bytes);
    if (attached < 0) return fail_at(attached, "registration of the receive buffers");
    if (config.register_memory) impl->features.degraded = register_region(impl->ring, impl->region);
    else impl->features.degraded = "memory is not registered with io_uring: switched off by configuration";
    impl->features.memory_registered = impl->features.degraded.empty();

    io_uring_ring_dontfork(&impl->ring);
    impl->features.registered_ring = impl->features.single_issuer && io_uring_register_ring_fd(&impl->ring) == 1;
    impl->enter_flags = IORING_ENTER_GETEVENTS | IORING_ENTER_EXT_ARG |
                        (impl->features.registered_ring ? IORING_ENTER_REGISTERED_RING : 0) |
                        (impl->features.no_iowait ? enter_no_iowait : 0);
    unsigned workers[2] = {kernel_workers_max, kernel_workers_max};
    io_uring_register_iowq_max_workers(&impl->ring, workers);

    // Blocking mode, so that the ring waits for the count instead of answering EAGAIN.
    impl->wake_fd = UniqueFd(::eventfd(0, EFD_CLOEXEC));
    if (!impl->wake_fd) return fail_at(-errno, "eventfd");
    return std::unique_ptr<Ring>(new Ring(std::move(impl)));
}

const RingFeatures& Ring::features() const { return impl_->features; }
const RingCounters& Ring::counters() const { return impl_->counters; }

// ---- requests -------------------------------------------------------------------------------------------------------

// The next entry to fill in, always: a full queue is submitted, and when the kernel takes nothing the entry waits in
// `deferred`, behind which all later ones queue up, so that the order stays.
io_uring_sqe& Ring::Impl::next_entry(uint64_t token) {
    io_uring_sqe* entry = deferred.empty() ? io_uring_get_sqe(&ring) : nullptr;
    if (!entry && deferred.empty()) {
        ++counters.submission_queue_full;
        submit_only();
        entry = io_uring_get_sqe(&ring);
    }
    if (!entry) entry = &deferred.emplace_back();
    entry->user_data = token;       // the prep functions of liburing leave it alone
    return *entry;
}

// Makes what was prepared visible to the kernel; returns how many entries it has not taken yet.
unsigned Ring::Impl::publish_entries() {
    io_uring_smp_store_release(ring.sq.ktail, ring.sq.sqe_tail);
    return ring.sq.sqe_tail - load_acquire(ring.sq.khead);
}

void Ring::Impl::submit_only() {
    const unsigned to_submit = publish_entries();
    ++counters.enters;
    // A failure shows as entries that are still there: the caller defers, and the next enter() reports what lasts.
    io_uring_enter2(static_cast<unsigned>(ring.enter_ring_fd), to_submit, 0, enter_flags & IORING_ENTER_REGISTERED_RING,
                    nullptr, 0);
}

void Ring::Impl::place_deferred() {
    size_t placed = 0;
    for (; placed < deferred.size(); ++placed) {
        io_uring_sqe* entry = io_uring_get_sqe(&ring);
        if (!entry) break;
        *entry = deferred[placed];
    }
    deferred.erase(deferred.begin(), deferred.begin() + static_cast<std::ptrdiff_t>(placed));
}

void Ring::accept_multishot(int fd, uint64_t token) {
    // No address: the next accept would write over it before we look.
    io_uring_prep_multishot_accept(&impl_->next_entry(token), fd, nullptr, nullptr, SOCK_CLOEXEC);
}

void Ring::receive_multishot(int fd, uint64_t token) {
    io_uring_sqe& entry = impl_->next_entry(token);
    io_uring_prep_recv_multishot(&entry, fd, nullptr, 0, 0);
    entry.flags |= IOSQE_BUFFER_SELECT;
    entry.buf_group = ReceiveBuffers::group;
}

void Ring::send(int fd, std::string_view octets, uint64_t token) {
    io_uring_prep_send(&impl_->next_entry(token), fd, octets.data(), octets.size(), MSG_WAITALL | MSG_NOSIGNAL);
}

void Ring::connect(int fd, const SocketAddress& address, uint64_t token) {
    sockaddr_storage& kernel_address = impl_->addresses.emplace_back();
    const socklen_t length = to_kernel(address, kernel_address);    // 0 for nonsense: the kernel answers EINVAL
    io_uring_prep_connect(&impl_->next_entry(token), fd, reinterpret_cast<const sockaddr*>(&kernel_address), length);
}

void Ring::write(int fd, uint64_t offset, std::span<const char> octets, Durability durability, uint64_t token) {
    const auto bytes = static_cast<unsigned>(octets.size());
    const bool fixed = impl_->registered(octets.data(), octets.size());
    io_uring_sqe& entry = impl_->next_entry(token);
    if (fixed) io_uring_prep_write_fixed(&entry, fd, octets.data(), bytes, offset, fixed_buffer);
    else io_uring_prep_write(&entry, fd, octets.data(), bytes, offset);
    if (durability == Durability::data) entry.rw_flags = RWF_DSYNC;
}

void Ring::read(int fd, uint64_t offset, std::span<char> into, uint64_t token) {
    const auto bytes = static_cast<unsigned>(into.size());
    const bool fixed = impl_->registered(into.data(), into.size());
    io_uring_sqe& entry = impl_->next_entry(token);
    if (fixed) io_uring_prep_read_fixed(&entry, fd, into.data(), bytes, offset, fixed_buffer);
    else io_uring_prep_read(&entry, fd, into.data(), bytes, offset);
}

void Ring::sync_data(int fd, uint64_t token) {
    io_uring_prep_fsync(&impl_->next_entry(token), fd, IORING_FSYNC_DATASYNC);
}

void Ring::cancel(uint64_t target, uint64_t token) {
    io_uring_prep_cancel64(&impl_->next_entry(token), target, IORING_ASYNC_CANCEL_ALL);
}

// ---- buffers --------------------------------------------------------------------------------------------------------

std::string_view Ring::buffer(uint16_t id, size_t bytes) const { return {impl_->buffers.buffer(id), bytes}; }
void Ring::give_back(uint16_t id) { impl_->buffers.give_back(id); }
void Ring::publish_buffers() { impl_->buffers.publish(); }
unsigned Ring::free_buffers() const { return impl_->buffers.free(); }
std::span<char> Ring::staging() { return impl_->staging; }

// ---- entering and reaping -------------------------------------------------------------------------------------------

int Ring::enter(Monotonic deadline) {
    Impl& impl = *impl_;
    CHECK_INVARIANT(std::this_thread::get_id() == impl.owner);
    impl.buffers.publish();
    if (!impl.wake_armed) impl.arm_wake_up();
    for (;;) {
        impl.place_deferred();
        const unsigned to_submit = impl.publish_entries();
        const bool wait = impl.deferred.empty() && impl.completions_ready() == 0;
        const int status = impl.enter(to_submit, wait, deadline);
        const bool all_taken = impl.publish_entries() == 0;
        if (all_taken && impl.deferred.empty()) impl.addresses.clear();
        // Go on only while the kernel takes entries; otherwise completions must be reaped first.
        if (status < 0 || impl.deferred.empty() || !all_taken) return status;
    }
}

int Ring::Impl::enter(unsigned to_submit, bool wait, Monotonic deadline) {
    __kernel_timespec timeout{};
    io_uring_getevents_arg argument{};
    if (wait) {
        // Relative: absolute ones came with 6.12.
        const Duration remaining = deadline - monotonic_now();
        if (remaining.ns > 0) {
            timeout.tv_sec = remaining.ns / 1'000'000'000;
            timeout.tv_nsec = remaining.ns % 1'000'000'000;
            argument.ts = reinterpret_cast<uintptr_t>(&timeout);
        } else {
            wait = false;
        }
    }
    ++counters.enters;
    if (load_acquire(ring.sq.kflags) & IORING_SQ_CQ_OVERFLOW) ++counters.completion_overflows;
    // Always with GETEVENTS: without it deferred task work does not run, and there would be no progress when there is
    // nothing to submit (trap 2).
    const int status = io_uring_enter2(static_cast<unsigned>(ring.enter_ring_fd), to_submit, wait ? 1 : 0, enter_flags,
                                       reinterpret_cast<sigset_t*>(&argument), sizeof argument);
    switch (status) {
        case -EINTR:        // a signal
        case -ETIME:        // the deadline
        case -EAGAIN:       // short of memory or
        case -EBUSY:        // completions back up: reap, then the next enter submits again
            return 0;
        default: return status < 0 ? status : 0;
    }
}

size_t Ring::reap(std::span<Completion> into) {
    Impl& impl = *impl_;
    io_uring_cq& queue = impl.ring.cq;
    unsigned head = *queue.khead;
    const unsigned tail = load_acquire(queue.ktail);
    size_t count = 0;
    for (; head != tail && count < into.size(); ++head) {
        const io_uring_cqe& entry = queue.cqes[head & queue.ring_mask];
        if (entry.user_data == wake_token) {
            impl.wake_armed = false;
            continue;
        }
        Completion& completion = into[count++];
        completion.token = entry.user_data;
        completion.result = entry.res;
        completion.more = entry.flags & IORING_CQE_F_MORE;
        completion.has_buffer = entry.flags & IORING_CQE_F_BUFFER;
        completion.more_waiting = entry.flags & IORING_CQE_F_SOCK_NONEMPTY;
        completion.buffer = static_cast<uint16_t>(entry.flags >> IORING_CQE_BUFFER_SHIFT);
        if (completion.has_buffer) impl.buffers.taken();
    }
    io_uring_smp_store_release(queue.khead, head);
    impl.counters.completions += count;
    return count;
}

bool Ring::events_pending() const {
    return !impl_->deferred.empty() ||
           (load_acquire(impl_->ring.sq.kflags) & (IORING_SQ_TASKRUN | IORING_SQ_CQ_OVERFLOW)) != 0;
}

// ---- wake-ups -------------------------------------------------------------------------------------------------------

void Ring::Impl::arm_wake_up() {
    io_uring_prep_read(&next_entry(wake_token), wake_fd.get(), &wake_count, sizeof wake_count, 0);
    wake_armed = true;
}

// Both sides exchange, so that one of them sees the other: either the sender finds `sleeping` and writes, or the owner's
// exchange comes later in the order of that one variable, and its next look at the queue finds the mail (trap 50).
void Ring::about_to_sleep() { impl_->sleeping.exchange(true, std::memory_order_seq_cst); }
void Ring::awake() { impl_->sleeping.store(false, std::memory_order_relaxed); }

void Ring::wake() {
    if (!impl_->sleeping.exchange(false, std::memory_order_seq_cst)) return;
    const uint64_t one = 1;
    while (::write(impl_->wake_fd.get(), &one, sizeof one) < 0 && errno == EINTR) {
    }
}

}  // namespace postern::ring
