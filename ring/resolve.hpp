// Host names to addresses: the seam.  For workers; a shard never waits for DNS.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "ring/sockets.hpp"

namespace postern::ring {

struct Resolution {
    enum class Status : uint8_t {
        found,
        not_found,          // the name does not exist, has no address, or cannot be a name: asking again will not help soon
        temporary,          // SERVFAIL, no server answered, out of descriptors: ask again later
    };
    Status status = Status::temporary;
    std::vector<SocketAddress> addresses;   // IPv4 and IPv6, best first (RFC 6724); empty unless found
    std::string text;                       // why not, with the name; empty when found
};

// Blocks for at most 10 seconds.  /etc/hosts and the search list of resolv.conf are honoured; an address in text form is
// answered as itself.  Any thread, several at a time.
Resolution resolve_host(const std::string& name, uint16_t port);

}  // namespace postern::ring
