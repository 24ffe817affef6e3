// Threads and workers: the seam.  A shard's loop never blocks; whatever may block is a Job that a worker runs.
#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <string>

#include "ring/base/units.hpp"

namespace postern::ring {

class Loop;

// A thread that joins when destroyed.  `name` (15 characters) shows in top and gdb.  It starts with all signals blocked:
// they are the first thread's.
class Thread {
public:
    Thread(std::string name, std::function<void()> body);
    Thread(Thread&&) noexcept;
    Thread& operator=(Thread&&) noexcept;
    ~Thread();

private:
    struct State;
    std::unique_ptr<State> state_;
};

// Blocks the calling thread for about so long: for threads that have nothing better to wait for, never a shard's.
void pause(Duration duration);

// CPUs this process may use: affinity mask and cgroup v2 quota (rounded up); at least 1.
unsigned usable_cpus();
void pin_to_cpu(unsigned index);        // of the affinity mask; best effort

// One piece of blocking work.  Owned by whoever posts it, alive until done() has been called.
class Job {
public:
    virtual ~Job() = default;
    virtual void run() = 0;             // on a worker's thread; may block; touches nothing that a shard owns
    virtual void done() = 0;            // on the poster's loop, as a call of its own
};

// A few threads that run jobs for the loops attached to them.  post() is wait-free (one SPSC lane from each loop to
// each worker); a job is run once, and done() is called on the loop that posted it.  Jobs of one loop with the same
// `key` run in the order posted; others in any order.
class Workers {
public:
    // All loops (at most 256) attach before start(), each from the thread that owns it, several at once if they like; what
    // is posted before start() waits for it.
    Workers(std::string name, unsigned threads);
    ~Workers();                         // stop()

    unsigned attach(Loop& loop);        // returns the loop's number here
    void start();
    // False when the lane is full (1,024 jobs): try again later; nothing was posted.
    bool post(unsigned loop_number, Job& job, uint64_t key);
    // Runs what was posted, then joins.  done() of those is called if the loop still turns; so the workers live until
    // after its last turn.
    void stop();

private:
    struct State;
    std::unique_ptr<State> state_;
};

}  // namespace postern::ring
