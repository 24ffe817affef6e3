// The timing wheel against a reference model that simply keeps all deadlines.
#include <catch2/catch.hpp>

#include <functional>
#include <memory>
#include <optional>
#include <vector>

#include "ring/base/random.hpp"
#include "ring/clock.hpp"
#include "ring/timers.hpp"

using namespace postern;
using namespace postern::ring;

namespace {

constexpr Duration tick = milliseconds(4);
constexpr Monotonic start{seconds(1000).ns + 1'234'567};
constexpr Monotonic far_away = start + hours(24 * 365);

struct Alarm final : TimerHandler {
    Timer timer{*this};
    int fired = 0;
    std::function<void()> then;
    void on_timer(Timer&) override {
        ++fired;
        if (then) then();
    }
};

}  // namespace


TEST_CASE("A timer fires once, not early, and at most a tick late", "[timers]") {
    const Duration waits[] = {nanoseconds(1), milliseconds(1),  milliseconds(4), milliseconds(255), milliseconds(256),
                              milliseconds(257), seconds(16), seconds(17), minutes(17), minutes(18), hours(19), hours(24 * 40),
                              hours(24 * 60), hours(24 * 200)};
    for (const Duration wait : waits) {
        CAPTURE(wait.ns);
        TimerWheel wheel(start);
        Alarm alarm;
        wheel.arm(alarm.timer, start + wait);
        // As the loop does it: sleep until the wheel wants to be called.
        Monotonic now = start;
        int calls = 0;
        while (alarm.fired == 0 && calls < 1000) {
            const Monotonic next = wheel.next_deadline(far_away);
            REQUIRE(next > now);
            REQUIRE(next != far_away);
            now = next;
            wheel.advance(now);
            ++calls;
        }
        CHECK(alarm.fired == 1);
        CHECK(now >= start + wait);
        CHECK(now <= start + wait + tick);
        CHECK(calls <= 10);
        CHECK_FALSE(alarm.timer.armed());
        CHECK(wheel.next_deadline(far_away) == far_away);
    }
}

TEST_CASE("Cancelled timers wake nobody", "[timers]") {
    TimerWheel wheel(start);
    Alarm alarms[3];
    for (int i = 0; i < 3; ++i) wheel.arm(alarms[i].timer, start + seconds(i * 100 + 1));
    alarms[0].timer.cancel();
    alarms[1].timer.cancel();
    alarms[2].timer.cancel();
    CHECK(wheel.next_deadline(far_away) == far_away);
    wheel.advance(start + hours(1));
    for (const Alarm& alarm : alarms) CHECK(alarm.fired == 0);
}

TEST_CASE("A timer that is destroyed does not fire", "[timers]") {
    TimerWheel wheel(start);
    auto alarm = std::make_unique<Alarm>();
    wheel.arm(alarm->timer, start + seconds(1));
    alarm.reset();
    wheel.advance(start + seconds(2));
    CHECK(wheel.next_deadline(far_away) == far_away);
}

TEST_CASE("A handler may arm itself again, cancel others that are due, and destroy them", "[timers]") {
    TimerWheel wheel(start);
    Alarm first, second;
    auto third = std::make_unique<Alarm>();
    Monotonic now = start;
    first.then = [&] {
        wheel.arm(first.timer, now);        // already past: the next tick, not this call
        second.timer.cancel();
        third.reset();
    };
    wheel.arm(first.timer, start + milliseconds(10));
    wheel.arm(second.timer, start + milliseconds(10));
    wheel.arm(third->timer, start + milliseconds(11));
    now = start + seconds(1);
    wheel.advance(now);
    CHECK(first.fired == 1);
    CHECK(second.fired == 0);
    now = now + tick;
    wheel.advance(now);
    CHECK(first.fired == 2);
}

TEST_CASE("The wheel agrees with a list of deadlines under random use", "[timers][random]") {
    const uint64_t seed = random_seed();
    CAPTURE(seed);
    Random random(seed);
    constexpr size_t count = 200;
    TimerWheel wheel(start);
    std::vector<std::unique_ptr<Alarm>> alarms;
    std::vector<std::optional<Monotonic>> model(count);
    for (size_t i = 0; i < count; ++i) alarms.push_back(std::make_unique<Alarm>());

    const auto random_wait = [&] { return nanoseconds(static_cast<int64_t>(random.next() >> (20 + random.below(36)))); };
    Monotonic now = start;
    for (int step = 0; step < 20'000; ++step) {
        const size_t chosen = random.below(count);
        switch (random.below(4)) {
            case 0:
            case 1: {
                const Monotonic deadline = now + random_wait();
                wheel.arm(alarms[chosen]->timer, deadline);
                model[chosen] = deadline;
                break;
            }
            case 2:
                alarms[chosen]->timer.cancel();
                model[chosen].reset();
                break;
            default: {
                const Monotonic next = wheel.next_deadline(now + hours(1));
                now = random.below(2) ? now + nanoseconds(random_wait().ns / 16) : std::max(next, now);
                wheel.advance(now);
                for (size_t i = 0; i < count; ++i) {
                    Alarm& alarm = *alarms[i];
                    if (alarm.fired) {
                        REQUIRE(model[i].has_value());
                        REQUIRE(*model[i] <= now);          // never early
                        model[i].reset();
                        alarm.fired = 0;
                    } else if (model[i]) {
                        REQUIRE(*model[i] + tick > now);    // at most a tick late
                    }
                    REQUIRE(alarm.timer.armed() == model[i].has_value());
                }
            }
        }
        const Monotonic horizon = now + hours(24 * 400);
        const Monotonic next = wheel.next_deadline(horizon);
        for (const auto& deadline : model)
            if (deadline) REQUIRE(next <= std::max(*deadline, now) + tick);
    }
}
