// Who may send to whom, and which way it goes: the judgement at RCPT, pure given facts.
//
// The right to relay comes from the client's network alone (smtp.md, open-relay corners): never from MAIL, HELO or the
// shape of an address.  Built once, then read-only: any thread.
#pragma once

#include <cstdint>
#include <string_view>
#include <vector>

#include "config/config.hpp"
#include "gateway/policy/domain_table.hpp"
#include "proto/address.hpp"
#include "ring/sockets.hpp"

namespace postern::gateway {

class RecipientPolicy {
public:
    explicit RecipientPolicy(const config::Config& config);

    bool may_relay(const ring::SocketAddress& client) const;

    enum class Judgement : uint8_t { accept, relay_denied, no_route };
    Judgement judge(bool may_relay, const proto::Mailbox& mailbox, std::string_view canonical) const;

    // The route of an accepted recipient as it stands in the envelope; SIZE_MAX when the configuration has none any more.
    size_t route_of(std::string_view canonical) const;

private:
    DomainTable ours_;
    DomainTable routes_;
    std::vector<config::Network> relay_networks_;
    size_t postmaster_route_ = SIZE_MAX;        // of a bare "postmaster": that of our first domain
};

}  // namespace postern::gateway
