// Socket calls that are made directly, not through the ring: set-up, and the send that finds an empty queue.  The seam.
//
// Nothing here blocks.  Functions that return int give 0 or more on success and -errno on failure, as the ring does.
#pragma once

#include <array>
#include <cstdint>
#include <string>
#include <string_view>

#include "ring/base/result.hpp"
#include "ring/base/unique_fd.hpp"

namespace postern::ring {

// A network address as a plain value.  IPv4-mapped IPv6 addresses become IPv4 when read from a socket.
struct SocketAddress {
    enum class Family : uint8_t { none, ipv4, ipv6, unix_path };
    Family family = Family::none;
    std::array<uint8_t, 16> ip{};       // network order; IPv4 uses the first four
    uint16_t port = 0;                  // host order
    std::string path;                   // of a unix socket; empty for the others

    bool operator==(const SocketAddress&) const = default;
    std::string host_text() const;      // "192.0.2.7", "2001:db8::1", "/run/x.sock"
    std::string text() const;           // "192.0.2.7:25", "[2001:db8::1]:25", "/run/x.sock"
};

// Numeric forms only: "127.0.0.1:2525", "[::1]:2525", "*:2525" (all of IPv6 and IPv4).  Names fail.
Result<SocketAddress> parse_socket_address(std::string_view text);
// An IPv4 or IPv6 address without a port.
Result<SocketAddress> parse_host_address(std::string_view text);

// A listening TCP socket: SO_REUSEADDR, SO_REUSEPORT, TCP_NODELAY (inherited), IPV6_V6ONLY off for "::".
// EADDRINUSE is retried for about a second, since a killed predecessor's socket may linger.
Result<UniqueFd> listen_on(const SocketAddress& address, int backlog);
Result<uint16_t> bound_port(int fd);            // what port 0 became
Result<UniqueFd> connecting_socket(SocketAddress::Family family);

SocketAddress peer_address(int fd);             // family none when it is gone
SocketAddress local_address(int fd);
int send_now(int fd, std::string_view octets);  // MSG_DONTWAIT | MSG_NOSIGNAL
int receive_now(int fd, char* into, size_t bytes);
void quick_ack(int fd);                         // TCP_QUICKACK, once; ignored where there is no TCP
void shutdown_write(int fd);
void shutdown_both(int fd);                     // ends every receive and send in flight on it
void reset_on_close(int fd);                    // SO_LINGER 0: the close that follows sends RST
int accept_now(int fd);                         // one connection, or -EAGAIN: draining a listener before it closes

}  // namespace postern::ring
