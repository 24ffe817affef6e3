// The loop: slots, order in a turn, hooks, timers, mail from other threads, file requests, idleness, workers.
#include "tests/ring/fixture.hpp"

#include <atomic>
#include <thread>

#include "ring/files.hpp"
#include "ring/threads.hpp"

using namespace postern;
using namespace postern::ring;
using namespace postern::ring::test;

namespace {

struct Recorder final : CompletionHandler {
    std::vector<std::pair<uint8_t, Completion>> completions;
    void on_completion(uint8_t kind, const Completion& completion) override { completions.emplace_back(kind, completion); }
};

struct Hook final : TurnHook {
    std::function<void()> run;
    int count = 0;
    void on_end_of_turn() override {
        ++count;
        if (run) run();
    }
};

struct Alarm final : TimerHandler {
    Timer timer{*this};
    int fired = 0;
    void on_timer(Timer&) override { ++fired; }
};

class Request final : public FileOperation {
public:
    explicit Request(Loop& loop) : FileOperation(loop) {}
    std::vector<int32_t> results;
    std::function<void()> next;

private:
    void on_file_done(int32_t result) override {
        results.push_back(result);
        if (next) next();
    }
};

class Task final : public Job {
public:
    std::function<void()> work;
    std::function<void()> after;
    void run() override { if (work) work(); }
    void done() override { if (after) after(); }
};

}  // namespace

TEST_CASE("A completion for a detached slot is dropped, its buffer given back, also when the slot is used again", "[loop]") {
    LoopFixture f;      // traps 13, 14, 15
    auto [ours, peer] = connected_pair();
    Recorder gone, successor;
    const uint64_t token = f.loop.attach(gone);
    f.loop.ring().receive_multishot(ours.get(), Loop::with_kind(token, 3));
    f.turns(1);
    f.loop.detach(token);
    const uint64_t successor_token = f.loop.attach(successor);
    REQUIRE(static_cast<uint32_t>(successor_token) == static_cast<uint32_t>(token));    // the same slot
    REQUIRE(successor_token != token);
    peer.send_all("late octets");
    f.until([&] { return f.loop.counters().stale_completions == 1; });
    CHECK(gone.completions.empty());
    CHECK(successor.completions.empty());
    CHECK(f.all_buffers_free());
    f.loop.detach(successor_token);
    f.loop.ring().cancel(Loop::with_kind(token, 3), 0);
    f.settle();
}

TEST_CASE("A token says its kind, and no token is ever zero", "[loop]") {
    LoopFixture f;
    Recorder recorder;
    uint64_t last = 0;
    for (int i = 0; i < 1000; ++i) {
        const uint64_t token = f.loop.attach(recorder);
        REQUIRE(token != 0);
        REQUIRE(token != last);
        REQUIRE(token >> 56 == 0);
        f.loop.detach(last = token);
    }
    const uint64_t token = f.loop.attach(recorder);
    f.loop.ring().cancel(UINT64_MAX - 1, Loop::with_kind(token, 7));
    f.until([&] { return recorder.completions.size() == 1; });
    CHECK(recorder.completions[0].first == 7);
    f.loop.detach(token);
}

TEST_CASE("Accepts run ahead of the other completions of a turn", "[loop]") {
    LoopFixture f;
    std::vector<uint8_t> order;
    struct Noting final : CompletionHandler {
        std::vector<uint8_t>* order;
        void on_completion(uint8_t kind, const Completion&) override { order->push_back(kind); }
    } noting;
    noting.order = &order;
    const uint64_t token = f.loop.attach(noting);
    for (const uint8_t kind : {uint8_t{1}, uint8_t{2}, Loop::kind_first, uint8_t{3}})
        f.loop.ring().cancel(UINT64_MAX - 1, Loop::with_kind(token, kind));
    f.until([&] { return order.size() == 4; });
    CHECK(order == std::vector<uint8_t>{Loop::kind_first, 1, 2, 3});
    f.loop.detach(token);
}

TEST_CASE("A hook runs once at the end of the turn, and what it asks for still in the same turn", "[loop]") {
    LoopFixture f;
    Hook first, second;
    first.run = [&] { f.loop.at_end_of_turn(second); };
    f.loop.at_end_of_turn(first);
    f.loop.at_end_of_turn(first);
    CHECK(first.count == 0);
    REQUIRE(f.loop.run_turn({}));
    CHECK(first.count == 1);
    CHECK(second.count == 1);
    f.turns(2);
    CHECK(first.count == 1);
}

TEST_CASE("A hook that asks again and again does not hold the turn up, nor does the loop sleep on it", "[loop]") {
    LoopFixture f;
    Hook hook;
    hook.run = [&] { f.loop.at_end_of_turn(hook); };
    f.loop.at_end_of_turn(hook);
    const Monotonic began = monotonic_now();
    for (int i = 0; i < 10; ++i) REQUIRE(f.loop.run_turn(patience));
    CHECK(monotonic_now() - began < patience);
    CHECK(hook.count >= 10);
    CHECK(hook.count <= 1000);
    hook.run = nullptr;
    f.turns(1);
}

TEST_CASE("A timer ends the sleep of the loop", "[loop][timers]") {
    LoopFixture f;
    Alarm alarm;
    const Monotonic began = monotonic_now();
    f.turns(1);
    f.loop.arm(alarm.timer, milliseconds(20));
    while (alarm.fired == 0) REQUIRE(f.loop.run_turn(patience));
    CHECK(monotonic_now() - began >= milliseconds(20));
    CHECK(monotonic_now() - began < patience);
}

TEST_CASE("An idle loop does not wake up", "[loop]") {      // trap 9
    LoopFixture f;
    std::vector<std::pair<Connection*, Peer>> idle;
    for (int i = 0; i < 20; ++i) {
        auto [connection, peer] = f.connect();
        connection.stream->set_deadline(minutes(5));
        idle.emplace_back(&connection, std::move(peer));
    }
    f.settle();
    const uint64_t turns_before = f.loop.counters().turns;
    const uint64_t enters_before = f.loop.ring().counters().enters;
    const Monotonic end = monotonic_now() + milliseconds(300);
    while (monotonic_now() < end) f.loop.run_turn(end - monotonic_now());
    CHECK(f.loop.counters().turns - turns_before <= 4);
    CHECK(f.loop.ring().counters().enters - enters_before <= 4);
}

TEST_CASE("No mail is lost however the sender and the sleeping loop race", "[loop][threads]") {      // traps 49, 50
    LoopFixture f;
    constexpr int count = 20'000;
    auto& lane = f.loop.add_lane(8);
    int received = 0;
    bool in_order = true;
    std::thread sender([&] {
        Random random(random_seed());
        for (int i = 0; i < count; ++i) {
            while (!lane.send([&, i] {
                in_order = in_order && received == i;
                ++received;
            })) std::this_thread::yield();
            if (random.below(4) == 0)       // let the loop fall asleep now and then
                for (uint64_t spin = random.below(2000); spin > 0; --spin) std::atomic_signal_fence(std::memory_order_seq_cst);
        }
    });
    // A lost wake-up shows as a turn that sleeps to its end.
    const Monotonic began = monotonic_now();
    while (received < count && monotonic_now() - began < patience) REQUIRE(f.loop.run_turn(patience));
    sender.join();
    CHECK(received == count);
    CHECK(in_order);
    CHECK(monotonic_now() - began < patience);
}

TEST_CASE("stop() from another thread ends run(), also when it comes first", "[loop][threads]") {
    LoopFixture f;
    f.loop.stop();
    f.loop.run();
    const uint64_t turns = f.loop.counters().turns;
    std::thread other([&] { f.loop.stop(); });
    f.loop.run();
    other.join();
    CHECK(f.loop.counters().turns - turns < 5);
    CHECK(f.loop.error() == 0);
}

TEST_CASE("File requests follow one another and report what the kernel says", "[loop][files]") {
    LoopFixture f;
    const std::string path = "loop_test_" + std::to_string(::getpid());
    auto file = open_file(path, OpenMode::create_new);
    REQUIRE(file);
    {
        Request request(f.loop);
        std::string text = pattern(5000);
        std::string back(5000, '\0');
        int step = 0;
        request.next = [&] {
            if (++step == 1) request.sync_data(file->get());
            else if (step == 2) request.read(file->get(), 0, back);
            else if (step == 3) request.write(-1, 0, text, Durability::none);
        };
        request.write(file->get(), 0, text, Durability::data);
        CHECK(request.in_flight());
        f.until([&] { return request.results.size() == 4; });
        CHECK(request.results == std::vector<int32_t>{5000, 0, 5000, -EBADF});
        CHECK(back == text);
        CHECK_FALSE(request.in_flight());
    }
    remove_file(path);
}

TEST_CASE("Jobs run off the loop, those with one key in order, and come back to the loop that posted them", "[loop][threads]") {
    LoopFixture f;
    Workers workers("test", 3);
    const unsigned number = workers.attach(f.loop);
    workers.start();
    constexpr int count = 600;
    constexpr int keys = 5;
    const auto loop_thread = std::this_thread::get_id();
    std::vector<std::unique_ptr<Task>> tasks;
    std::array<std::vector<int>, keys> ran;         // each written by the one worker that has the key
    std::atomic<int> ran_on_loop{0};
    int done = 0;
    bool done_on_loop = true;
    for (int i = 0; i < count; ++i) {
        Task& task = *tasks.emplace_back(std::make_unique<Task>());
        task.work = [&, i] {
            ran[static_cast<size_t>(i % keys)].push_back(i);
            if (std::this_thread::get_id() == loop_thread) ++ran_on_loop;
        };
        task.after = [&] {
            ++done;
            done_on_loop = done_on_loop && std::this_thread::get_id() == loop_thread;
        };
        while (!workers.post(number, task, static_cast<uint64_t>(i % keys))) f.turns(1);
    }
    f.until([&] { return done == count; });
    workers.stop();
    CHECK(ran_on_loop == 0);
    CHECK(done_on_loop);
    for (int key = 0; key < keys; ++key) {
        const auto& sequence = ran[static_cast<size_t>(key)];
        REQUIRE(sequence.size() == count / keys);
        for (size_t i = 0; i < sequence.size(); ++i) REQUIRE(sequence[i] == static_cast<int>(i) * keys + key);
    }
}

TEST_CASE("A lane of jobs that is full refuses, and posting goes on once jobs are done", "[loop][threads]") {      // trap 49
    LoopFixture f;
    Workers workers("test", 1);
    const unsigned number = workers.attach(f.loop);
    std::atomic<bool> go{false};
    Task blocker;
    blocker.work = [&] { while (!go) std::this_thread::yield(); };
    std::vector<std::unique_ptr<Task>> tasks;
    int done = 0;
    blocker.after = [&] { ++done; };
    workers.start();
    REQUIRE(workers.post(number, blocker, 1));
    for (;;) {
        auto task = std::make_unique<Task>();
        task->after = [&] { ++done; };
        if (!workers.post(number, *task, 1)) break;
        tasks.push_back(std::move(task));
        REQUIRE(tasks.size() <= 1024);
    }
    CHECK(tasks.size() == 1023);
    go = true;
    f.until([&] { return done == 1024; });
    Task last;
    last.after = [&] { ++done; };
    CHECK(workers.post(number, last, 1));
    f.until([&] { return done == 1025; });
    workers.stop();
}

TEST_CASE("What was posted before stop() is run", "[loop][threads]") {
    LoopFixture f;
    Workers workers("test", 2);
    const unsigned number = workers.attach(f.loop);
    workers.start();
    std::atomic<int> ran{0};
    std::vector<std::unique_ptr<Task>> tasks;
    for (uint64_t i = 0; i < 200; ++i) {
        tasks.push_back(std::make_unique<Task>());
        tasks.back()->work = [&] { ++ran; };
        REQUIRE(workers.post(number, *tasks.back(), i));
    }
    workers.stop();
    CHECK(ran == 200);
    f.turns(5);
}
