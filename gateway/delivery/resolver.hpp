// ResolveJob: asks for the addresses of a next hop on a worker's thread, and hands them over on the loop that posted it.
#pragma once

#include <cstdint>
#include <string>

#include "ring/resolve.hpp"
#include "ring/threads.hpp"

namespace postern::gateway {

class ResolveEvents {
public:
    virtual void on_resolved(ring::Resolution& resolution) = 0;     // may be moved from

protected:
    ~ResolveEvents() = default;
};

// One question.  Lives until on_resolved(), in which its owner may destroy it.
class ResolveJob final : public ring::Job {
public:
    ResolveJob(std::string name, uint16_t port, ResolveEvents& events);

    void run() override;
    void done() override;

private:
    const std::string name_;
    const uint16_t port_;
    ResolveEvents& events_;
    ring::Resolution resolution_;
};

}  // namespace postern::gateway
