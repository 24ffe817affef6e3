#include "ring/threads.hpp"

#include <algorithm>
#include <atomic>
#include <chrono>
#include <cmath>
#include <csignal>
#include <cstdio>
#include <mutex>
#include <pthread.h>
#include <sched.h>
#include <thread>
#include <vector>

#include "ring/base/spsc.hpp"
#include "ring/files.hpp"
#include "ring/loop.hpp"

namespace postern::ring {

// ---- Thread ---------------------------------------------------------------------------------------------------------

struct Thread::State {
    std::thread thread;
};

Thread::Thread(std::string name, std::function<void()> body) : state_(std::make_unique<State>()) {
    // Signals are the first thread's: the new one starts with all of them blocked.
    sigset_t all, before;
    sigfillset(&all);
    pthread_sigmask(SIG_SETMASK, &all, &before);
    state_->thread = std::thread([name = name.substr(0, 15), body = std::move(body)] {
        pthread_setname_np(pthread_self(), name.c_str());
        body();
    });
    pthread_sigmask(SIG_SETMASK, &before, nullptr);
}

Thread::Thread(Thread&&) noexcept = default;
Thread& Thread::operator=(Thread&& other) noexcept {
    std::swap(state_, other.state_);
    return *this;
}
Thread::~Thread() {
    if (state_ && state_->thread.joinable()) state_->thread.join();
}

// ---- CPUs -----------------------------------------------------------------------------------------------------------

namespace {

std::vector<unsigned> affinity_mask() {
    std::vector<unsigned> cpus;
    cpu_set_t mask;
    if (sched_getaffinity(0, sizeof mask, &mask) < 0) return cpus;
    for (unsigned cpu = 0; cpu < CPU_SETSIZE; ++cpu)
        if (CPU_ISSET(cpu, &mask)) cpus.push_back(cpu);
    return cpus;
}

// The smallest quota of our cgroup and those above it, in CPUs; 0: none.
double cgroup_quota() {
    constexpr size_t text_max = 64 * 1024;
    const auto memberships = read_file("/proc/self/cgroup", text_max);
    if (!memberships) return 0;
    const size_t at = memberships->rfind("0::/", 0) == 0 ? 0 : memberships->find("\n0::/");
    if (at == std::string::npos) return 0;
    const size_t first = memberships->find('/', at);
    std::string group = memberships->substr(first, memberships->find('\n', first) - first);

    double quota = 0;
    for (;;) {
        if (const auto text = read_file("/sys/fs/cgroup" + group + "/cpu.max", text_max)) {
            double allowed = 0, period = 0;
            // "max 100000" does not match.
            if (std::sscanf(text->c_str(), "%lf %lf", &allowed, &period) == 2 && period > 0)
                quota = quota == 0 ? allowed / period : std::min(quota, allowed / period);
        }
        const size_t slash = group.rfind('/');
        if (slash == std::string::npos) return quota;
        group.resize(slash);
    }
}

}  // namespace

void pause(Duration duration) { std::this_thread::sleep_for(std::chrono::nanoseconds(duration.ns)); }

unsigned usable_cpus() {
    auto count = static_cast<unsigned>(affinity_mask().size());
    if (const double quota = cgroup_quota(); quota > 0) count = std::min(count, static_cast<unsigned>(std::ceil(quota)));
    return std::max(count, 1u);
}

void pin_to_cpu(unsigned index) {
    const auto cpus = affinity_mask();
    if (cpus.empty()) return;
    cpu_set_t mask;
    CPU_ZERO(&mask);
    CPU_SET(cpus[index % cpus.size()], &mask);
    sched_setaffinity(0, sizeof mask, &mask);
}

// ---- Workers --------------------------------------------------------------------------------------------------------

namespace {

constexpr size_t lane_jobs_max = 1024;
constexpr size_t loops_max = 256;

// Between one loop and one worker.  At most lane_jobs_max jobs are anywhere between post() and done(), so that neither the
// queue out nor the lane back can be full when it is used.
struct JobLane {
    explicit JobLane(Loop& loop) : queue(lane_jobs_max), back(loop.add_lane(lane_jobs_max)) {}
    Spsc<Job*> queue;
    Loop::Lane& back;
    size_t outstanding = 0;     // the loop's
};

struct Worker {
    std::vector<std::unique_ptr<JobLane>> lanes;    // by loop number
    std::atomic<int> bell{0};                       // int: what the kernel can wait on directly
    std::atomic<bool> stopping{false};

    void ring_bell() {
        bell.fetch_add(1, std::memory_order_seq_cst);
        bell.notify_one();
    }

    void serve() {
        for (;;) {
            const int heard = bell.load(std::memory_order_seq_cst);
            const bool last = stopping.load(std::memory_order_acquire);
            bool any = false;
            for (const auto& lane : lanes) any |= run_jobs(*lane);
            if (any) continue;
            if (last) return;
            bell.wait(heard, std::memory_order_seq_cst);
        }
    }

    static bool run_jobs(JobLane& lane) {
        bool any = false;
        while (const auto job = lane.queue.try_pop()) {
            (*job)->run();
            // Two pointers: std::function holds them without allocating.
            const bool sent = lane.back.send([job = *job, &lane] {
                --lane.outstanding;
                job->done();
            });
            CHECK_INVARIANT(sent);
            any = true;
        }
        return any;
    }
};

// Spreads keys that are small integers or pointers (the finalizer of splitmix64).
uint64_t spread(uint64_t key) {
    key = (key ^ key >> 30) * 0xbf58476d1ce4e5b9ull;
    key = (key ^ key >> 27) * 0x94d049bb133111ebull;
    return key ^ key >> 31;
}

}  // namespace

struct Workers::State {
    std::string name;
    std::vector<std::unique_ptr<Worker>> workers;
    std::vector<Thread> threads;
    std::mutex attaching;
    unsigned loops = 0;
};

Workers::Workers(std::string name, unsigned threads) : state_(std::make_unique<State>()) {
    CHECK_INVARIANT(threads > 0);
    state_->name = std::move(name);
    for (unsigned i = 0; i < threads; ++i) {
        state_->workers.push_back(std::make_unique<Worker>());
        // Never moved: a loop that is attached may post while another one attaches.
        state_->workers.back()->lanes.reserve(loops_max);
    }
}

Workers::~Workers() { stop(); }

unsigned Workers::attach(Loop& loop) {
    const std::lock_guard lock(state_->attaching);
    CHECK_INVARIANT(state_->threads.empty() && state_->loops < loops_max);
    for (const auto& worker : state_->workers) worker->lanes.push_back(std::make_unique<JobLane>(loop));
    return state_->loops++;
}

void Workers::start() {
    for (size_t i = 0; i < state_->workers.size(); ++i)
        state_->threads.emplace_back(state_->name + "-" + std::to_string(i),
                                     [worker = state_->workers[i].get()] { worker->serve(); });
}

bool Workers::post(unsigned loop_number, Job& job, uint64_t key) {
    Worker& worker = *state_->workers[spread(key) % state_->workers.size()];
    JobLane& lane = *worker.lanes[loop_number];
    if (lane.outstanding == lane_jobs_max) return false;
    Job* pointer = &job;
    CHECK_INVARIANT(lane.queue.try_push(std::move(pointer)));
    ++lane.outstanding;
    worker.ring_bell();
    return true;
}

void Workers::stop() {
    for (const auto& worker : state_->workers) {
        worker->stopping.store(true, std::memory_order_release);
        worker->ring_bell();
    }
    state_->threads.clear();        // joins
}

}  // namespace postern::ring
