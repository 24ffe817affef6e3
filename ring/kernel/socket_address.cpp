#include "ring/kernel/socket_address.hpp"

#include <arpa/inet.h>
#include <cerrno>
#include <charconv>
#include <cstddef>
#include <cstring>
#include <netinet/in.h>
#include <sys/un.h>

namespace postern::ring {

namespace {

constexpr uint8_t mapped_prefix[12] = {0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0xff, 0xff};      // ::ffff:0:0/96

Error not_an_address(std::string_view text, const char* wanted) {
    return Error{EINVAL, "\"" + std::string(text) + "\" is not " + wanted};
}

bool parse_port(std::string_view text, uint16_t& port) {
    const char* end = text.data() + text.size();
    const auto [stop, error] = std::from_chars(text.data(), end, port);
    return error == std::errc{} && stop == end;
}

}  // namespace

socklen_t to_kernel(const SocketAddress& address, sockaddr_storage& into) {
    std::memset(&into, 0, sizeof into);
    switch (address.family) {
        case SocketAddress::Family::ipv4: {
            auto& to = reinterpret_cast<sockaddr_in&>(into);
            to.sin_family = AF_INET;
            to.sin_port = htons(address.port);
            std::memcpy(&to.sin_addr, address.ip.data(), 4);
            return sizeof to;
        }
        case SocketAddress::Family::ipv6: {
            auto& to = reinterpret_cast<sockaddr_in6&>(into);
            to.sin6_family = AF_INET6;
            to.sin6_port = htons(address.port);
            std::memcpy(&to.sin6_addr, address.ip.data(), 16);
            return sizeof to;
        }
        case SocketAddress::Family::unix_path: {
            auto& to = reinterpret_cast<sockaddr_un&>(into);
            if (address.path.size() >= sizeof to.sun_path) return 0;
            to.sun_family = AF_UNIX;
            std::memcpy(to.sun_path, address.path.data(), address.path.size());
            return static_cast<socklen_t>(offsetof(sockaddr_un, sun_path) + address.path.size() + 1);
        }
        case SocketAddress::Family::none: break;
    }
    return 0;
}

SocketAddress from_kernel(const sockaddr_storage& from, socklen_t length) {
    SocketAddress address;
    if (length < sizeof(sa_family_t)) return address;
    if (from.ss_family == AF_INET) {
        const auto& in = reinterpret_cast<const sockaddr_in&>(from);
        address.family = SocketAddress::Family::ipv4;
        address.port = ntohs(in.sin_port);
        std::memcpy(address.ip.data(), &in.sin_addr, 4);
    } else if (from.ss_family == AF_INET6) {
        const auto& in = reinterpret_cast<const sockaddr_in6&>(from);
        const auto* ip = reinterpret_cast<const uint8_t*>(&in.sin6_addr);
        const bool mapped = std::memcmp(ip, mapped_prefix, sizeof mapped_prefix) == 0;
        address.family = mapped ? SocketAddress::Family::ipv4 : SocketAddress::Family::ipv6;
        address.port = ntohs(in.sin6_port);
        if (mapped) std::memcpy(address.ip.data(), ip + sizeof mapped_prefix, 4);
        else std::memcpy(address.ip.data(), ip, 16);
    } else if (from.ss_family == AF_UNIX) {
        const auto& in = reinterpret_cast<const sockaddr_un&>(from);
        address.family = SocketAddress::Family::unix_path;
        if (length > offsetof(sockaddr_un, sun_path))
            address.path.assign(in.sun_path, strnlen(in.sun_path, length - offsetof(sockaddr_un, sun_path)));
    }
    return address;
}

std::string SocketAddress::host_text() const {
    char text[INET6_ADDRSTRLEN] = "";
    switch (family) {
        case Family::ipv4: return inet_ntop(AF_INET, ip.data(), text, sizeof text);
        case Family::ipv6: return inet_ntop(AF_INET6, ip.data(), text, sizeof text);
        case Family::unix_path: return path;
        case Family::none: break;
    }
    return "unknown";
}

std::string SocketAddress::text() const {
    switch (family) {
        case Family::ipv4: return host_text() + ":" + std::to_string(port);
        case Family::ipv6: return "[" + host_text() + "]:" + std::to_string(port);
        default: return host_text();
    }
}

Result<SocketAddress> parse_host_address(std::string_view text) {
    SocketAddress address;
    const std::string terminated(text);
    if (inet_pton(AF_INET, terminated.c_str(), address.ip.data()) == 1) {
        address.family = SocketAddress::Family::ipv4;
    } else if (inet_pton(AF_INET6, terminated.c_str(), address.ip.data()) == 1) {
        address.family = SocketAddress::Family::ipv6;
    } else {
        return fail(not_an_address(text, "an IPv4 or IPv6 address"));
    }
    return address;
}

Result<SocketAddress> parse_socket_address(std::string_view text) {
    const Error error = not_an_address(text, "an address and port such as 192.0.2.7:25, [2001:db8::1]:25 or *:25");
    const size_t colon = text.rfind(':');
    if (colon == std::string_view::npos) return fail(error);
    std::string_view host = text.substr(0, colon);
    uint16_t port = 0;
    if (!parse_port(text.substr(colon + 1), port)) return fail(error);

    const bool bracketed = host.size() >= 2 && host.front() == '[' && host.back() == ']';
    if (bracketed) host = host.substr(1, host.size() - 2);
    auto address = host == "*" && !bracketed ? parse_host_address("::") : parse_host_address(host);
    if (!address) return fail(error);
    const bool needs_brackets = address->family == SocketAddress::Family::ipv6 && host != "*";
    if (needs_brackets != bracketed) return fail(error);
    address->port = port;
    return address;
}

}  // namespace postern::ring
