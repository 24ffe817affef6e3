// The small languages inside the configuration's strings: sizes, times, addresses, host names, domain patterns, targets.
//
// All pure, all numeric: nothing is looked up.  An Error's text completes "limits.message_bytes: ...".
#pragma once

#include <array>
#include <cstdint>
#include <string>
#include <string_view>

#include "config/config.hpp"

namespace postern::config {

// "64MiB", "5m": the largest unit that divides the value.  parse_bytes() and parse_duration() read them back.
std::string bytes_text(uint64_t bytes);
std::string duration_text(Duration duration);

// An IPv4 or IPv6 address; IPv4 uses the first four octets.
struct HostAddress {
    bool ipv6 = false;
    std::array<uint8_t, 16> octets{};
    bool operator==(const HostAddress&) const = default;
    bool any() const;                           // 0.0.0.0 or ::
    bool loopback() const;                      // 127.0.0.0/8 or ::1
};
Result<HostAddress> parse_host_address(std::string_view text);

// What an Endpoint's text says.  "*" stands for "::", which takes IPv4 too.
struct SocketName {
    HostAddress host;
    uint16_t port = 0;
    bool operator==(const SocketName&) const = default;
    // Whether a client that connects to `other` can arrive here.
    bool covers(const SocketName& other) const;
};
Result<SocketName> parse_endpoint(std::string_view text);

// RFC 1123 §2.1: letters, digits and inner hyphens, labels of 1 to 63 octets, 253 in all.
Result<void> check_host_name(std::string_view text);
// A pattern of policy.domains or route.domains, in lower case: "example.org", ".example.org", "*".  Octets beyond ASCII are
// let pass: RFC 6531 domains are compared as they come.
Result<void> check_domain_pattern(std::string_view text);
std::string lower_case(std::string_view text);

Result<Target> parse_target(std::string_view text);

}  // namespace postern::config
