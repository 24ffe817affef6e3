// The vocabulary: slab, intrusive list, the queue between two threads, lent strings.
#include <catch2/catch.hpp>

#include <map>
#include <memory>
#include <thread>
#include <vector>

#include "ring/base/intrusive_list.hpp"
#include "ring/base/random.hpp"
#include "ring/base/slab.hpp"
#include "ring/base/spsc.hpp"
#include "ring/base/string_pool.hpp"
#include "ring/clock.hpp"

using namespace postern;

namespace {

struct Counted {
    explicit Counted(int v, int& alive_count) : value(v), alive(&alive_count) { ++*alive; }
    ~Counted() { --*alive; }
    int value;
    int* alive;
};

struct Item : ListNode<struct Red>, ListNode<struct Blue> {
    explicit Item(int n) : number(n) {}
    int number;
};

template <class List>
std::vector<int> numbers(List& list) {
    std::vector<int> found;
    list.for_each([&](Item& item) { found.push_back(item.number); });
    return found;
}

}  // namespace

TEST_CASE("A handle of an erased element finds nothing, also when its slot is used again", "[slab]") {
    int alive = 0;
    Slab<Counted, 4> slab;
    const auto first = slab.emplace(1, alive);
    slab.erase(first.index);
    CHECK(alive == 0);
    const auto second = slab.emplace(2, alive);
    REQUIRE(second.index == first.index);
    CHECK(slab.get(first) == nullptr);
    REQUIRE(slab.get(second) != nullptr);
    CHECK(slab.get(second)->value == 2);
}

TEST_CASE("Elements of a slab stay where they are while it grows, and die with it", "[slab]") {
    int alive = 0;
    {
        Slab<Counted, 4> slab;
        std::vector<std::pair<uint32_t, Counted*>> placed;
        for (int i = 0; i < 1000; ++i) {
            const auto handle = slab.emplace(i, alive);
            placed.emplace_back(handle.index, slab.get(handle));
        }
        for (int i = 0; i < 1000; ++i) {
            CHECK(&slab[placed[i].first] == placed[i].second);
            CHECK(placed[i].second->value == i);
        }
        CHECK(alive == 1000);
    }
    CHECK(alive == 0);
}

TEST_CASE("A slab agrees with a map under random use", "[slab][random]") {
    const uint64_t seed = ring::random_seed();
    CAPTURE(seed);
    Random random(seed);
    int alive = 0;
    Slab<Counted, 8> slab;
    std::map<int, Slab<Counted, 8>::Handle> model;
    std::vector<Slab<Counted, 8>::Handle> erased;
    for (int step = 0; step < 20'000; ++step) {
        if (random.below(2) == 0 || model.empty()) {
            model[step] = slab.emplace(step, alive);
        } else {
            auto chosen = model.lower_bound(static_cast<int>(random.below(static_cast<uint64_t>(step))));
            if (chosen == model.end()) chosen = model.begin();
            slab.erase(chosen->second.index);
            erased.push_back(chosen->second);
            model.erase(chosen);
        }
        REQUIRE(slab.size() == model.size());
    }
    for (const auto& [value, handle] : model) REQUIRE((slab.get(handle) && slab.get(handle)->value == value));
    for (const auto& handle : erased) REQUIRE(slab.get(handle) == nullptr);
    CHECK(alive == static_cast<int>(model.size()));
}

TEST_CASE("An element leaves its list when it is destroyed", "[list]") {
    IntrusiveList<Item, Red> list;
    Item one(1), three(3);
    {
        Item two(2);
        list.push_back(one);
        list.push_back(two);
        list.push_back(three);
        CHECK(numbers(list) == std::vector{1, 2, 3});
    }
    CHECK(numbers(list) == std::vector{1, 3});
}

TEST_CASE("An element can be in one list of each tag", "[list]") {
    IntrusiveList<Item, Red> red;
    IntrusiveList<Item, Blue> blue;
    Item one(1), two(2);
    red.push_back(one);
    red.push_front(two);
    blue.push_back(one);
    CHECK(numbers(red) == std::vector{2, 1});
    CHECK(red.pop_front() == &two);
    static_cast<ListNode<Red>&>(one).unlink();
    CHECK(red.empty());
    CHECK(numbers(blue) == std::vector{1});
}

TEST_CASE("Splicing moves all elements behind those that are there, and a list that dies lets its elements go", "[list]") {
    Item one(1), two(2), three(3);
    {
        IntrusiveList<Item, Red> first, second;
        first.push_back(one);
        second.push_back(two);
        second.push_back(three);
        first.splice_back(second);
        CHECK(numbers(first) == std::vector{1, 2, 3});
        CHECK(second.empty());
    }
    CHECK_FALSE(static_cast<ListNode<Red>&>(one).linked());
}

TEST_CASE("A full queue refuses and leaves the value with the sender", "[spsc]") {
    Spsc<std::unique_ptr<int>> queue(2);
    CHECK(queue.try_push(std::make_unique<int>(1)));
    CHECK(queue.try_push(std::make_unique<int>(2)));
    auto third = std::make_unique<int>(3);
    CHECK_FALSE(queue.try_push(std::move(third)));
    REQUIRE(third);
    CHECK(**queue.try_pop() == 1);
    CHECK(queue.try_push(std::move(third)));
    CHECK(**queue.try_pop() == 2);
    CHECK(**queue.try_pop() == 3);
    CHECK_FALSE(queue.try_pop());
    CHECK(queue.empty());
}

TEST_CASE("Two threads pass every value once and in order", "[spsc][threads]") {
    constexpr uint64_t count = 200'000;
    Spsc<uint64_t> queue(64);
    std::thread producer([&] {
        for (uint64_t n = 0; n < count; ++n) {
            uint64_t value = n;
            while (!queue.try_push(std::move(value))) std::this_thread::yield();
        }
    });
    uint64_t expected = 0;
    bool in_order = true;
    while (expected < count) {
        const auto value = queue.try_pop();
        if (!value) {
            std::this_thread::yield();
            continue;
        }
        in_order = in_order && *value == expected;
        ++expected;
    }
    producer.join();
    CHECK(in_order);
    CHECK(queue.empty());
}

TEST_CASE("Lent strings come back with their memory, large ones do not", "[string_pool]") {
    StringPool pool;
    std::string small = pool.take();
    CHECK(small.capacity() >= 512);
    small.append(100, 'x');
    const void* memory = small.data();
    pool.put(small);
    CHECK(small.empty());
    CHECK(small.capacity() < 32);
    CHECK(pool.size() == 1);

    std::string again = pool.take();
    CHECK(again.empty());
    CHECK(again.data() == memory);
    CHECK(pool.size() == 0);

    again.append(100'000, 'x');
    pool.put(again);
    CHECK(again.capacity() < 32);
    CHECK(pool.size() == 0);
}
