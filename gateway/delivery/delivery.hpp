// Delivery of one shard: gives each accepted message to the routes of its recipients, and the recovered ones too.
//
// Threads: the owning shard.
#pragma once

#include <memory>
#include <vector>

#include "gateway/delivery/context.hpp"
#include "gateway/delivery/route.hpp"
#include "gateway/delivery/sorter.hpp"

namespace postern::gateway {

class Delivery {
public:
    explicit Delivery(const DeliveryContext& context);

    // Just committed: the envelope is still at hand, so nothing is read back for the common case.
    void take(storage::MessageIndex message, const proto::Envelope& envelope);
    void recover(const storage::RecoveredMessage& message);
    void stop();                        // begins nothing new; what is under way may finish
    void abort();                       // gives up what is under way; what has no answer yet stays pending
    bool busy() const;
    bool closed() const;                // no connection is open
    void publish();                     // gauges

private:
    void dispatch(const Item& item, const proto::Envelope& envelope);

    DeliveryContext context_;
    std::vector<std::unique_ptr<Route>> routes_;
    Sorter sorter_;
    std::vector<size_t> touched_;       // routes of the message being dispatched
};

}  // namespace postern::gateway
