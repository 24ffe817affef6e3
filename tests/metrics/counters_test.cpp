#include "metrics/counters.hpp"

#include <catch2/catch.hpp>
#include <memory>
#include <thread>

#include "metrics/buckets.hpp"
#include "ring/base/random.hpp"

using namespace postern;
using namespace postern::metrics;

TEST_CASE("Buckets and their bounds are inverse and ascend", "[metrics]") {
    uint64_t lower = 0;
    for (unsigned index = 0; index + 1 < Histogram::bucket_count; ++index) {
        const uint64_t upper = Histogram::upper_bound(index);
        INFO("bucket " << index << ": " << lower << " to " << upper);
        REQUIRE(upper >= lower);
        CHECK(Histogram::bucket_of(lower) == index);
        CHECK(Histogram::bucket_of(upper) == index);
        CHECK(Histogram::bucket_of(upper + 1) == index + 1);
        lower = upper + 1;
    }
}

TEST_CASE("A bucket is never wider than a quarter of its values", "[metrics]") {
    for (unsigned index = 1; index + 1 < Histogram::bucket_count; ++index) {
        const uint64_t lower = Histogram::upper_bound(index - 1) + 1, upper = Histogram::upper_bound(index);
        INFO("bucket " << index << ": " << lower << " to " << upper);
        CHECK((upper - lower) * 4 <= lower);
    }
}

TEST_CASE("Values beyond the last bound fall into the last bucket", "[metrics]") {
    CHECK(Histogram::bucket_of(UINT64_MAX) == Histogram::bucket_count - 1);
    CHECK(Histogram::bucket_of(Histogram::upper_bound(Histogram::bucket_count - 1)) == Histogram::bucket_count - 1);
}

TEST_CASE("Random values lie within their buckets", "[metrics]") {
    const uint64_t seed = Catch::rngSeed();
    INFO("seed " << seed << " (--rng-seed)");
    Random random(seed + 1);
    for (int i = 0; i < 100'000; ++i) {
        const uint64_t value = random.next() >> (24 + random.below(40));        // every magnitude below 2^40
        const unsigned index = Histogram::bucket_of(value);
        REQUIRE(value <= Histogram::upper_bound(index));
        REQUIRE((index == 0 || value > Histogram::upper_bound(index - 1)));
    }
}

TEST_CASE("Summed buckets keep the counts of their histograms", "[metrics]") {
    auto one = std::make_unique<Histogram>(), two = std::make_unique<Histogram>();
    for (const uint64_t value : {0, 1, 4, 5, 100}) one->record(value);
    for (const uint64_t value : {4, 1'000'000}) two->record(value);
    two->record(UINT64_MAX >> 8);
    BucketSum sum;
    sum.add(*one);
    sum.add(*two);
    CHECK(sum.count() == 8);
    CHECK(sum.count_up_to(0) == 1);
    CHECK(sum.count_up_to(1) == 2);
    CHECK(sum.count_up_to(4) == 4);
    CHECK(sum.count_up_to(128) == 6);
    CHECK(sum.count_up_to(2'000'000) == 7);
    CHECK(sum.count_up_to(UINT64_MAX) == 7);                // what is beyond every bound is in +Inf alone
    CHECK(sum.sum() == 1'000'114 + (UINT64_MAX >> 8));
}

TEST_CASE("A reader on another thread sees counts that only grow", "[metrics]") {
    constexpr uint64_t rounds = 200'000;
    Counter counter;
    auto histogram = std::make_unique<Histogram>();
    std::thread writer([&] {
        for (uint64_t i = 0; i < rounds; ++i) {
            histogram->record(i & 0xfff);
            counter.add();
        }
    });
    uint64_t counted = 0, recorded = 0;
    bool grew = true;
    while (counted < rounds) {
        const uint64_t count_now = counter.value();
        BucketSum sum;
        sum.add(*histogram);
        grew = grew && count_now >= counted && sum.count() >= recorded;
        counted = count_now;
        recorded = sum.count();
    }
    writer.join();
    CHECK(grew);
    BucketSum sum;
    sum.add(*histogram);
    CHECK(sum.count() == rounds);
}
