// What delivery needs of its shard, and what the shards share about a route.
#pragma once

#include <atomic>
#include <cstdint>
#include <vector>

#include "config/config.hpp"
#include "gateway/delivery/retry.hpp"
#include "gateway/log.hpp"
#include "gateway/policy/recipients.hpp"
#include "metrics/shard_metrics.hpp"
#include "ring/loop.hpp"
#include "ring/threads.hpp"
#include "storage/spool.hpp"

namespace postern::gateway {

// Connections (or Maildir jobs) of one route over all shards.
class RouteBudget {
public:
    explicit RouteBudget(uint32_t limit) : limit_(limit) {}
    RouteBudget(RouteBudget&& other) noexcept : limit_(other.limit_) {}      // only while the table is being built
    bool try_take() {
        if (used_.fetch_add(1, std::memory_order_relaxed) < limit_) return true;
        give_back();
        return false;
    }
    void give_back() { used_.fetch_sub(1, std::memory_order_relaxed); }

private:
    uint32_t limit_;
    std::atomic<uint32_t> used_{0};
};

// References to what outlives delivery.
struct DeliveryContext {
    ring::Loop& loop;
    storage::Spool& spool;
    ring::Workers& workers;             // for Maildir and name look-ups
    unsigned worker_number;             // this loop's, there
    const config::Config& config;
    const RecipientPolicy& policy;
    metrics::ShardMetrics& metrics;
    LogLane& log;
    std::vector<RouteBudget>& budgets;  // one a route

    LogLine line(Level level, std::string_view event) const { return LogLine(log, level, event); }
};

}  // namespace postern::gateway
