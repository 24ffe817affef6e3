// The Prometheus exposition: sums the shards when it is asked, through a custom prometheus-cpp Collectable; nothing else
// touches prometheus-cpp.
//
// Threads: text() from the admin threads, any number at once; the shards only write their own counters.
#pragma once

#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "metrics/shard_metrics.hpp"

namespace postern::metrics {

struct ExpositionNames {
    std::vector<std::string> verbs;         // verb_slots names
    std::vector<std::string> stages;        // stage_slots names
    std::vector<std::string> routes;        // from the configuration; as many as each ShardMetrics has
    std::string version, build, kernel_features;
};

class Exposition {
public:
    Exposition(ExpositionNames names, std::vector<const ShardMetrics*> shards, std::function<bool()> ready,
               std::function<int64_t()> wall_seconds);
    ~Exposition();
    std::string text() const;               // text/plain; version=0.0.4

private:
    struct Impl;
    std::unique_ptr<Impl> impl_;
};

// Every metric's name, type, unit and help, for the test that holds metrics/README.md true.
struct MetricDescription {
    std::string name, type, help;
};
std::vector<MetricDescription> described_metrics();

}  // namespace postern::metrics
