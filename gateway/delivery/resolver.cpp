#include "gateway/delivery/resolver.hpp"

#include <utility>

namespace postern::gateway {

ResolveJob::ResolveJob(std::string name, uint16_t port, ResolveEvents& events)
    : name_(std::move(name)), port_(port), events_(events) {}

void ResolveJob::run() { resolution_ = ring::resolve_host(name_, port_); }

void ResolveJob::done() {
    ring::Resolution resolution = std::move(resolution_);      // the owner may destroy us
    events_.on_resolved(resolution);
}

}  // namespace postern::gateway
