// Messages of which only the index is known: their envelopes are read, a few at a time, and they are given to their
// routes (after recovery), or fail there (when their time is up).
//
// Threads: the owning shard.
#pragma once

#include <deque>
#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "gateway/delivery/route.hpp"

namespace postern::gateway {

class Sorter final : private ring::TimerHandler {
public:
    // `dispatch` gives a message to all routes of its pending recipients.
    using Dispatch = std::function<void(const Item&, const proto::Envelope&)>;
    Sorter(DeliveryContext& context, Dispatch dispatch);
    ~Sorter();
    Sorter(const Sorter&) = delete;

    void sort(const Item& item);
    void expire(const Item& item, Route& route, std::string_view reason);
    void watch(Route& route) { route.sorter_ = this; }
    void stop() { stopping_ = true; }
    bool busy() const { return reading_ > 0; }
    size_t waiting() const { return tasks_.size() + reading_; }

private:
    static constexpr size_t readers_max = 8;
    struct Task {
        Item item;
        Route* expire_on = nullptr;         // null: sort
    };
    class Reading;
    void start_more();
    void finish(const Task& task, const proto::Envelope& envelope);
    void put_off(const Task& task);         // it cannot be read: again in an hour
    void on_timer(ring::Timer& timer) override;

    DeliveryContext& context_;
    Dispatch dispatch_;
    std::deque<Task> tasks_;
    std::vector<Task> put_off_;
    ring::Timer timer_;
    std::vector<std::unique_ptr<Reading>> readings_;
    size_t reading_ = 0;
    bool stopping_ = false;
    bool starting_ = false;
    std::string reason_;                    // of the expiries, the last one given
    std::vector<uint32_t> recipients_;
    AttemptResults results_;
};

}  // namespace postern::gateway
