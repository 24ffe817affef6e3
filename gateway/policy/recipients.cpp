#include "gateway/policy/recipients.hpp"

#include <algorithm>

#include "proto/envelope.hpp"

namespace postern::gateway {

RecipientPolicy::RecipientPolicy(const config::Config& config) : relay_networks_(config.policy.relay_networks) {
    for (const std::string& domain : config.policy.domains) ours_.add(domain, 0);
    for (size_t i = 0; i < config.routes.size(); ++i)
        for (const std::string& pattern : config.routes[i].domains) routes_.add(pattern, static_cast<uint32_t>(i));
    for (const std::string& domain : config.policy.domains) {
        if (domain == "*" || domain.starts_with('.')) continue;
        if (auto route = routes_.find(domain)) {
            postmaster_route_ = *route;
            break;
        }
    }
    if (postmaster_route_ == SIZE_MAX)
        if (auto route = routes_.find(config.server.hostname)) postmaster_route_ = *route;
}

bool RecipientPolicy::may_relay(const ring::SocketAddress& client) const {
    using Family = ring::SocketAddress::Family;
    if (client.family != Family::ipv4 && client.family != Family::ipv6) return false;
    return std::any_of(relay_networks_.begin(), relay_networks_.end(), [&](const config::Network& network) {
        return network.contains(client.family == Family::ipv6, client.ip.data());
    });
}

RecipientPolicy::Judgement RecipientPolicy::judge(bool may_relay, const proto::Mailbox& mailbox,
                                                  std::string_view canonical) const {
    if (!mailbox.postmaster && !may_relay && !ours_.find(proto::domain_of(canonical))) return Judgement::relay_denied;
    return route_of(canonical) == SIZE_MAX ? Judgement::no_route : Judgement::accept;
}

size_t RecipientPolicy::route_of(std::string_view canonical) const {
    const std::string_view domain = proto::domain_of(canonical);
    if (domain.empty()) return postmaster_route_;
    if (auto route = routes_.find(domain)) return *route;
    return SIZE_MAX;
}

}  // namespace postern::gateway
