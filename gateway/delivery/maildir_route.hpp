// Delivery into a Maildir: workers write, fsync and rename; the shard reads the envelope and records the results.
//
// Threads: the owning shard, but for Attempt::run().
#pragma once

#include <memory>
#include <vector>

#include "gateway/delivery/route.hpp"

namespace postern::gateway {

class MaildirRoute final : public Route {
public:
    MaildirRoute(DeliveryContext& context, size_t index);
    ~MaildirRoute() override;
    bool busy() const override { return active_ > 0; }

private:
    class Attempt;
    void kick() override;
    void on_due() override;

    std::vector<std::unique_ptr<Attempt>> attempts_;    // idle ones are reused
    size_t active_ = 0;
    bool kicking_ = false;
    bool lane_full_ = false;            // of the workers, until the next wake-up
};

}  // namespace postern::gateway
