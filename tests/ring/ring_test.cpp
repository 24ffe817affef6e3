// The raw ring on the real kernel: submission, completions, buffers, wake-ups, and which gate is closed.
#include "tests/ring/fixture.hpp"

#include <csignal>
#include <map>
#include <sys/resource.h>
#include <sys/wait.h>
#include <thread>

#include "ring/files.hpp"
#include "ring/kernel/gate.hpp"
#include "ring/kernel/uring_setup.hpp"

using namespace postern;
using namespace postern::ring;
using namespace postern::ring::test;

namespace {

// Runs `body` in a child process; true when it returned true, false otherwise and when it died.
bool in_child(const std::function<bool()>& body) {
    const pid_t child = ::fork();
    if (child == 0) {
        ::signal(SIGABRT, SIG_DFL);
        ::alarm(30);
        std::_Exit(body() ? 0 : 1);
    }
    int status = 0;
    ::waitpid(child, &status, 0);
    return WIFEXITED(status) && WEXITSTATUS(status) == 0;
}

std::vector<Completion> reap_all(Ring& ring, size_t wanted) {
    std::vector<Completion> all;
    Completion some[7];
    const Monotonic give_up = monotonic_now() + patience;
    while (all.size() < wanted && monotonic_now() < give_up) {
        REQUIRE(ring.enter(monotonic_now() + milliseconds(10)) == 0);
        while (const size_t count = ring.reap(some)) all.insert(all.end(), some, some + count);
    }
    return all;
}

// Ladders and small rings without the kernel: what io_uring_setup was asked for.
std::vector<io_uring_params> asked;
std::vector<unsigned> asked_entries;
int refuse_flags(unsigned entries, io_uring*, io_uring_params* parameters) {
    asked.push_back(*parameters);
    asked_entries.push_back(entries);
    return parameters->flags & IORING_SETUP_DEFER_TASKRUN ? -EINVAL : 0;
}
int refuse_large(unsigned entries, io_uring*, io_uring_params* parameters) {
    asked.push_back(*parameters);
    asked_entries.push_back(entries);
    if (entries > 128) return -ENOMEM;
    parameters->sq_entries = entries;
    return 0;
}
int refuse_all(unsigned entries, io_uring*, io_uring_params* parameters) {
    asked.push_back(*parameters);
    asked_entries.push_back(entries);
    return -ENOMEM;
}

}  // namespace

TEST_CASE("A ring says what it obtained", "[ring]") {
    const auto ring = test::make_ring(small_ring());
    CHECK(ring->features().single_issuer);
    CHECK(ring->features().submission_entries == 64);
    CHECK(ring->features().text().find("single_issuer") != std::string::npos);
    CHECK(ring->free_buffers() == 16);
}

TEST_CASE("Flags are dropped stepwise on EINVAL, and NO_SQARRAY is never among them", "[ring]") {
    asked.clear();
    io_uring unused{};
    RingFeatures features;
    CHECK(ring::make_ring(small_ring(), unused, features, refuse_flags) == 0);
    REQUIRE(asked.size() == 2);
    CHECK(asked[0].flags & IORING_SETUP_DEFER_TASKRUN);
    CHECK_FALSE(asked[1].flags & IORING_SETUP_DEFER_TASKRUN);
    CHECK(features.single_issuer);
    CHECK_FALSE(features.defer_taskrun);
    for (const unsigned flags : flag_ladder) CHECK_FALSE(flags & setup_no_sqarray);
}

TEST_CASE("When memory is short the ring gets smaller, and at some point it is an error", "[ring]") {
    asked_entries.clear();
    io_uring unused{};
    RingFeatures features;
    RingConfig config;
    CHECK(ring::make_ring(config, unused, features, refuse_large) == 0);
    CHECK(asked_entries == std::vector<unsigned>{512, 256, 128});
    CHECK(features.submission_entries == 128);

    asked_entries.clear();
    CHECK(ring::make_ring(config, unused, features, refuse_all) == -ENOMEM);
    CHECK(asked_entries.back() == entries_min);
}

TEST_CASE("A refusal names the gate and the remedy", "[ring]") {
    struct Row {
        int error, disabled, seccomp;
        RingGate gate;
        const char* word;
    };
    const Row rows[] = {
        {EPERM, 2, 0, RingGate::sysctl, "kernel.io_uring_disabled"}, {EPERM, 1, 2, RingGate::sysctl, "kernel.io_uring_disabled"},
        {EPERM, 0, 2, RingGate::seccomp, "seccomp"},                 {EPERM, -1, 0, RingGate::seccomp, "seccomp"},
        {ENOSYS, -1, 2, RingGate::seccomp, "seccomp"},               {ENOSYS, -1, 0, RingGate::kernel_too_old, "6.1"},
        {EINVAL, 0, 0, RingGate::kernel_too_old, "6.1"},             {ENOMEM, 0, 0, RingGate::memory_locked, "LimitMEMLOCK"},
        {EMFILE, 0, 0, RingGate::other, "Too many open files"},
    };
    for (const Row& row : rows) {
        const RingFailure failure = explain_failure(row.error, "io_uring_setup", {row.disabled, row.seccomp});
        CAPTURE(failure.error.text);
        CHECK(failure.gate == row.gate);
        CHECK(failure.error.code == row.error);
        CHECK(failure.error.text.find(row.word) != std::string::npos);
    }
}

TEST_CASE("More requests than the queue holds all complete", "[ring]") {       // traps 3 and 4
    RingConfig config = small_ring();
    config.submission_entries = 8;
    config.completion_entries = 16;         // overflows too (trap 5)
    const auto ring = test::make_ring(config);
    constexpr size_t count = 500;
    for (uint64_t token = 0; token < count; ++token) ring->cancel(UINT64_MAX - 1, token);     // each finds none
    const auto completions = reap_all(*ring, count);
    REQUIRE(completions.size() == count);
    for (uint64_t token = 0; token < count; ++token) {
        REQUIRE(completions[token].token == token);
        REQUIRE(completions[token].result == 0);
    }
    CHECK(ring->counters().submission_queue_full > 0);
    CHECK(ring->counters().completion_overflows > 0);
}

TEST_CASE("Completions are drained although nothing is submitted", "[ring]") {      // traps 2 and 3
    const auto ring = test::make_ring(small_ring(64));
    std::vector<std::pair<UniqueFd, Peer>> pairs;
    for (uint64_t token = 1; token <= 50; ++token) {
        pairs.push_back(connected_pair());
        ring->receive_multishot(pairs.back().first.get(), token);
    }
    REQUIRE(ring->enter({}) == 0);
    for (auto& [fd, peer] : pairs) peer.send_all("x");
    const auto completions = reap_all(*ring, 50);
    REQUIRE(completions.size() == 50);
    CHECK(ring->free_buffers() == 14);
    for (const Completion& completion : completions) {
        REQUIRE(completion.has_buffer);
        CHECK(completion.more);
        CHECK(ring->buffer(completion.buffer, 1) == "x");
        ring->give_back(completion.buffer);
    }
    CHECK(ring->free_buffers() == 64);
}

TEST_CASE("A signal ends the wait and is no error", "[ring]") {      // trap 6
    struct sigaction action {}, before {};
    action.sa_handler = [](int) {};
    ::sigaction(SIGUSR1, &action, &before);
    const auto ring = test::make_ring(small_ring());
    const pthread_t waiting = ::pthread_self();
    std::atomic<bool> over{false};
    std::thread other([&] {
        while (!over) {
            ::pthread_kill(waiting, SIGUSR1);
            std::this_thread::yield();
        }
    });
    const Monotonic began = monotonic_now();
    CHECK(ring->enter(began + patience) == 0);
    over = true;
    other.join();
    CHECK(monotonic_now() - began < patience);
    ::sigaction(SIGUSR1, &before, nullptr);
}

TEST_CASE("The deadline ends the wait, not earlier", "[ring]") {
    const auto ring = test::make_ring(small_ring());
    const Monotonic deadline = monotonic_now() + milliseconds(20);
    while (monotonic_now() < deadline) {
        const uint64_t before = ring->counters().enters;
        REQUIRE(ring->enter(deadline) == 0);
        REQUIRE(ring->counters().enters == before + 1);
    }
    CHECK(ring->counters().enters < 5);
}

TEST_CASE("A ring used from another thread is our bug and stops the process", "[ring]") {      // trap 7
    CHECK_FALSE(in_child([] {
        ::freopen("/dev/null", "w", stderr);
        auto ring = Ring::create(small_ring());
        if (!ring) return true;
        std::thread([&] { (*ring)->enter({}); }).join();
        return true;
    }));
}

TEST_CASE("Without memory registration the ring works and says what is missing", "[ring]") {      // trap 52
    RingConfig config = small_ring();
    config.register_memory = false;
    config.staging_bytes = 8192;
    const auto ring = test::make_ring(config);
    CHECK_FALSE(ring->features().memory_registered);
    CHECK_FALSE(ring->features().degraded.empty());
    CHECK(ring->staging().size() == 8192);
}

TEST_CASE("A low limit on locked memory degrades, names the remedy, and does not wait in vain", "[ring]") {      // trap 52
    const bool done = in_child([] {
        const rlimit low{64 * 1024, 64 * 1024};
        ::setrlimit(RLIMIT_MEMLOCK, &low);
        if (::geteuid() == 0 && ::setuid(65534) < 0) return false;      // root may lock as much as it likes
        RingConfig config = small_ring(64, 16 * 1024);
        config.submission_entries = 64;
        config.completion_entries = 128;
        const Monotonic began = monotonic_now();
        const auto ring = Ring::create(config);
        if (!ring) return ring.error().gate == RingGate::memory_locked;     // 6.14 and later count the ring itself
        const RingFeatures& features = (*ring)->features();
        return !features.memory_registered && features.degraded.find("LimitMEMLOCK") != std::string::npos &&
               monotonic_now() - began < seconds(1);
    });
    CHECK(done);
}

TEST_CASE("Durable direct writes from staging read back, registered or not", "[ring][files]") {
    const bool registered = GENERATE(true, false);
    CAPTURE(registered);
    RingConfig config = small_ring();
    config.register_memory = registered;
    config.staging_bytes = 64_KiB;
    const auto ring = test::make_ring(config);
    if (registered && !ring->features().memory_registered) WARN("not tested registered: " << ring->features().degraded);

    const std::string path = "ring_test_" + std::to_string(::getpid()) + ".segment";
    {
        auto created = open_file(path, OpenMode::create_new);
        REQUIRE(created);
        REQUIRE(write_at(created->get(), 0, std::string(64_KiB, '\0')) == 0);
        REQUIRE(sync_file(created->get()) == 0);
    }
    auto file = open_file(path, OpenMode::read_write_direct);
    if (!file) {        // tmpfs before 6.6
        remove_file(path);
        WARN("no O_DIRECT here: " << file.error().text);
        return;
    }
    const std::span<char> staging = ring->staging();
    CHECK(reinterpret_cast<uintptr_t>(staging.data()) % 4096 == 0);
    CHECK(std::string_view(staging.data(), staging.size()) == std::string(64_KiB, '\0'));
    const std::string text = pattern(8192);
    std::copy(text.begin(), text.end(), staging.begin());
    ring->write(file->get(), 4096, staging.first(8192), Durability::data, 1);
    auto completions = reap_all(*ring, 1);
    REQUIRE(completions.size() == 1);
    CHECK(completions[0].result == 8192);

    ring->read(file->get(), 4096, staging.subspan(16_KiB, 8192), 2);
    completions = reap_all(*ring, 1);
    REQUIRE(completions.size() == 1);
    CHECK(completions[0].result == 8192);
    CHECK(std::string_view(staging.data() + 16_KiB, 8192) == text);

    ring->sync_data(file->get(), 3);
    completions = reap_all(*ring, 1);
    REQUIRE(completions.size() == 1);
    CHECK(completions[0].result == 0);
    CHECK(remove_file(path) == 0);
}

TEST_CASE("A wake-up ends the wait and is not a completion, again and again", "[ring]") {
    const auto ring = test::make_ring(small_ring());
    for (int round = 0; round < 100; ++round) {
        ring->about_to_sleep();
        std::thread other([&] { ring->wake(); });
        const Monotonic began = monotonic_now();
        REQUIRE(ring->enter(began + patience) == 0);
        REQUIRE(monotonic_now() - began < patience);
        ring->awake();
        other.join();
        Completion completion;
        REQUIRE(ring->reap({&completion, 1}) == 0);
    }
}

TEST_CASE("Waking an owner that is awake costs no system call and disturbs nothing", "[ring]") {
    const auto ring = test::make_ring(small_ring());
    REQUIRE(ring->enter({}) == 0);      // arms the read of the eventfd
    for (int i = 0; i < 1000; ++i) ring->wake();
    REQUIRE(ring->enter(monotonic_now() + milliseconds(5)) == 0);
    Completion completion;
    CHECK(ring->reap({&completion, 1}) == 0);
}
