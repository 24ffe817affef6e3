#include "config/values.hpp"

#include <algorithm>
#include <charconv>
#include <limits>
#include <span>

namespace postern::config {
namespace {

auto mistake(std::string text) { return fail(Error{0, std::move(text)}); }

std::string quoted(std::string_view text) { return "\"" + std::string(text) + "\""; }

bool is_digit(char c) { return c >= '0' && c <= '9'; }
bool is_letter(char c) { return (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z'); }

struct Unit {
    std::string_view name;
    uint64_t factor;
};
// Largest first, the unit factor 1 last: the texts take the first that divides.
constexpr Unit byte_units[] = {{"GiB", 1_GiB}, {"MiB", 1_MiB}, {"KiB", 1_KiB}, {"B", 1}};
constexpr Unit time_units[] = {{"d", 86'400'000'000'000}, {"h", 3'600'000'000'000}, {"m", 60'000'000'000},
                               {"s", 1'000'000'000},      {"ms", 1'000'000}};

struct Quantity {
    uint64_t number = 0;
    std::string_view unit;
};
Result<Quantity> split_quantity(std::string_view text, std::string_view example) {
    Quantity quantity;
    const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), quantity.number);
    if (error == std::errc::result_out_of_range) return mistake(quoted(text) + " is too large");
    if (error != std::errc()) return mistake(quoted(text) + " is not a whole number with a unit, such as " + quoted(example));
    quantity.unit = text.substr(static_cast<size_t>(end - text.data()));
    return quantity;
}

Result<uint64_t> times_unit(std::string_view text, const Quantity& quantity, std::span<const Unit> units, uint64_t max,
                            std::string_view unit_list) {
    for (const Unit& unit : units) {
        if (unit.name != quantity.unit) continue;
        if (quantity.number > max / unit.factor) return mistake(quoted(text) + " is too large");
        return quantity.number * unit.factor;
    }
    return mistake(quoted(text) + " has no unit that is known here; use " + std::string(unit_list));
}

std::string with_largest_unit(uint64_t value, std::span<const Unit> units) {
    for (const Unit& unit : units)
        if (value % unit.factor == 0 && (value != 0 || &unit == &units.back()))
            return std::to_string(value / unit.factor) + std::string(unit.name);
    return std::to_string(value);
}

bool parse_ipv4(std::string_view text, uint8_t* octets) {
    for (int i = 0; i < 4; ++i) {
        const size_t end = std::min(text.find('.'), text.size());
        const std::string_view part = text.substr(0, end);
        if (part.empty() || part.size() > 3 || !std::all_of(part.begin(), part.end(), is_digit)) return false;
        if (part.size() > 1 && part[0] == '0') return false;        // 010 is octal to some, ten to others
        unsigned value = 0;
        std::from_chars(part.data(), part.data() + part.size(), value);
        if (value > 255) return false;
        octets[i] = static_cast<uint8_t>(value);
        const bool last = i == 3;
        if ((end == text.size()) != last) return false;
        if (!last) text.remove_prefix(end + 1);
    }
    return true;
}

// RFC 4291 §2.2: groups of up to four hexadecimal digits, one "::", the last 32 bits perhaps in dotted form.
bool parse_ipv6(std::string_view text, uint8_t* octets) {
    size_t count = 0, gap = std::string_view::npos;
    if (text.starts_with("::")) {
        gap = 0;
        text.remove_prefix(2);
    } else if (text.empty() || text[0] == ':') {
        return false;
    }
    while (!text.empty()) {
        const size_t end = std::min(text.find(':'), text.size());
        const std::string_view group = text.substr(0, end);
        if (end == text.size() && group.find('.') != group.npos) {
            if (count > 12 || !parse_ipv4(group, octets + count)) return false;
            count += 4;
            break;
        }
        unsigned value = 0;
        const auto [stop, error] = std::from_chars(group.data(), group.data() + group.size(), value, 16);
        if (error != std::errc() || stop != group.data() + group.size() || group.size() > 4 || count > 14) return false;
        octets[count++] = static_cast<uint8_t>(value >> 8);
        octets[count++] = static_cast<uint8_t>(value);
        text.remove_prefix(end);
        if (text.empty()) break;
        text.remove_prefix(1);
        if (text.empty()) return false;                             // a single colon at the end
        if (text[0] != ':') continue;
        if (gap != std::string_view::npos) return false;
        gap = count;
        text.remove_prefix(1);
    }
    if (gap == std::string_view::npos) return count == 16;
    if (count > 14) return false;
    std::copy_backward(octets + gap, octets + count, octets + 16);
    std::fill(octets + gap, octets + 16 - (count - gap), uint8_t{0});
    return true;
}

constexpr uint8_t mapped_prefix[12] = {0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0xff, 0xff};
bool is_mapped(const uint8_t* octets) { return std::equal(mapped_prefix, mapped_prefix + 12, octets); }

bool same_bits(const uint8_t* a, const uint8_t* b, unsigned bits) {
    if (!std::equal(a, a + bits / 8, b)) return false;
    const unsigned rest = bits % 8;
    return rest == 0 || ((a[bits / 8] ^ b[bits / 8]) >> (8 - rest)) == 0;
}

Result<uint16_t> parse_port(std::string_view text) {
    uint16_t port = 0;
    const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), port);
    if (error != std::errc() || end != text.data() + text.size())
        return mistake(quoted(text) + " is not a port between 0 and 65535");
    return port;
}

Result<void> check_labels(std::string_view name, auto&& may_be_inside) {
    if (name.size() > 253) return mistake("a name of " + std::to_string(name.size()) + " octets is too long; at most 253");
    for (std::string_view rest = name;;) {
        const size_t end = std::min(rest.find('.'), rest.size());
        const std::string_view label = rest.substr(0, end);
        if (label.empty()) return mistake(quoted(name) + " has an empty label");
        if (label.size() > 63) return mistake(quoted(name) + " has a label of more than 63 octets");
        if (label.front() == '-' || label.back() == '-') return mistake(quoted(name) + " has a label that begins or ends with \"-\"");
        for (const char c : label)
            if (!may_be_inside(c)) return mistake(quoted(name) + " has the character " + quoted({&c, 1}) + ", which no host name has");
        if (end == rest.size()) return {};
        rest.remove_prefix(end + 1);
    }
}

bool looks_numeric(std::string_view name) {
    const std::string_view last = name.substr(name.rfind('.') + 1);
    return !last.empty() && std::all_of(last.begin(), last.end(), is_digit);
}

Result<Target> parse_next_hop(Target target, std::string_view text, std::string_view rest) {
    target.port = target.kind == Target::Kind::smtp ? 25 : 24;
    std::string_view host = rest, port;
    if (rest.starts_with('[')) {
        const size_t close = rest.find(']');
        if (close == rest.npos) return mistake(quoted(text) + " has no \"]\" behind its IPv6 address");
        host = rest.substr(1, close - 1);
        port = rest.substr(close + 1);
        if (const auto address = parse_host_address(host); !address || !address->ipv6)
            return mistake(quoted(host) + " is not an IPv6 address");
    } else {
        const size_t colon = std::min(rest.find(':'), rest.size());
        host = rest.substr(0, colon);
        port = rest.substr(colon);
        if (host.empty()) return mistake(quoted(text) + " names no host");
        if (looks_numeric(host)) {
            if (!parse_host_address(host)) return mistake(quoted(host) + " is not an IPv4 address");
        } else if (const auto form = check_host_name(host); !form) {
            return fail(form.error());
        }
    }
    if (!port.empty()) {
        if (port[0] != ':') return mistake(quoted(text) + " has something other than \":port\" behind its host");
        const auto number = parse_port(port.substr(1));
        if (!number) return fail(number.error());
        if (*number == 0) return mistake("port 0 cannot be connected to");
        target.port = *number;
    }
    target.host = lower_case(host);
    return target;
}

}  // namespace

Result<uint64_t> parse_bytes(std::string_view text) {
    auto quantity = split_quantity(text, "64MiB");
    if (!quantity) return fail(quantity.error());
    if (quantity->unit.empty()) quantity->unit = "B";
    return times_unit(text, *quantity, byte_units, std::numeric_limits<int64_t>::max(), "B, KiB, MiB or GiB");
}

Result<Duration> parse_duration(std::string_view text) {
    const auto quantity = split_quantity(text, "30s");
    if (!quantity) return fail(quantity.error());
    const auto ns = times_unit(text, *quantity, time_units, std::numeric_limits<int64_t>::max(), "ms, s, m, h or d");
    if (!ns) return fail(ns.error());
    return Duration{static_cast<int64_t>(*ns)};
}

std::string bytes_text(uint64_t bytes) { return with_largest_unit(bytes, byte_units); }

std::string duration_text(Duration duration) { return with_largest_unit(static_cast<uint64_t>(duration.ns), time_units); }

bool HostAddress::any() const { return std::all_of(octets.begin(), octets.end(), [](uint8_t o) { return o == 0; }); }

bool HostAddress::loopback() const {
    if (!ipv6) return octets[0] == 127;
    return octets[15] == 1 && std::all_of(octets.begin(), octets.end() - 1, [](uint8_t o) { return o == 0; });
}

Result<HostAddress> parse_host_address(std::string_view text) {
    HostAddress address;
    if (parse_ipv4(text, address.octets.data())) return address;
    address = {.ipv6 = true, .octets = {}};
    if (!parse_ipv6(text, address.octets.data())) return mistake(quoted(text) + " is not a numeric IPv4 or IPv6 address");
    if (is_mapped(address.octets.data())) {
        HostAddress ipv4;
        std::copy_n(address.octets.begin() + 12, 4, ipv4.octets.begin());
        return ipv4;
    }
    return address;
}

bool SocketName::covers(const SocketName& other) const {
    if (port != other.port) return false;
    if (host == other.host) return true;
    return host.any() && (other.host.loopback() || other.host.any()) && (host.ipv6 || !other.host.ipv6);
}

Result<SocketName> parse_endpoint(std::string_view text) {
    const size_t colon = text.rfind(':');
    if (colon == text.npos || text.ends_with(']'))
        return mistake(quoted(text) + " has no port; write it as \"127.0.0.1:25\", \"[::1]:25\" or \"*:25\"");
    std::string_view host = text.substr(0, colon);
    const auto port = parse_port(text.substr(colon + 1));
    if (!port) return fail(port.error());
    if (host == "*") return SocketName{{.ipv6 = true, .octets = {}}, *port};
    const bool bracketed = host.size() >= 2 && host.front() == '[' && host.back() == ']';
    if (bracketed) host = host.substr(1, host.size() - 2);
    const auto address = parse_host_address(host);
    if (!address) return fail(address.error());
    if ((host.find(':') != host.npos) != bracketed)
        return mistake(quoted(text) + " is ambiguous; an IPv6 address, and only that, stands in brackets: \"[::1]:25\"");
    return SocketName{*address, *port};
}

Result<Network> parse_network(std::string_view text) {
    const size_t slash = std::min(text.find('/'), text.size());
    const std::string_view host = text.substr(0, slash);
    HostAddress address{.ipv6 = host.find(':') != host.npos, .octets = {}};     // mapped ones are made IPv4 below
    if (!(address.ipv6 ? parse_ipv6(host, address.octets.data()) : parse_ipv4(host, address.octets.data())))
        return mistake(quoted(host) + " is not a numeric IPv4 or IPv6 address");
    const unsigned bits_max = address.ipv6 ? 128 : 32;
    unsigned bits = bits_max;
    if (slash < text.size()) {
        const std::string_view digits = text.substr(slash + 1);
        const auto [end, error] = std::from_chars(digits.data(), digits.data() + digits.size(), bits);
        if (error != std::errc() || end != digits.data() + digits.size() || bits > bits_max)
            return mistake("the prefix of " + quoted(text) + " is not between 0 and " + std::to_string(bits_max));
    }
    Network network;
    network.text = text;
    const bool mapped = address.ipv6 && bits >= 96 && is_mapped(address.octets.data());
    network.ipv6 = address.ipv6 && !mapped;
    network.prefix_bits = static_cast<uint8_t>(mapped ? bits - 96 : bits);
    std::copy(address.octets.begin() + (mapped ? 12 : 0), address.octets.end(), network.octets);

    // A host with a network's prefix is more often a slip than a wish: 10.0.0.7/8 was hardly meant to admit 16 million.
    uint8_t whole[16] = {};
    std::copy_n(network.octets, (network.prefix_bits + 7) / 8, whole);
    if (network.prefix_bits % 8) whole[network.prefix_bits / 8] &= static_cast<uint8_t>(0xff << (8 - network.prefix_bits % 8));
    if (!std::equal(whole, whole + 16, network.octets))
        return mistake(quoted(text) + " has bits beyond its prefix; write the network's own address, or leave the prefix off");
    return network;
}

bool Network::contains(bool address_is_ipv6, const uint8_t* address_octets) const {
    if (address_is_ipv6 && !ipv6 && is_mapped(address_octets)) return same_bits(octets, address_octets + 12, prefix_bits);
    return address_is_ipv6 == ipv6 && same_bits(octets, address_octets, prefix_bits);
}

Result<void> check_host_name(std::string_view text) {
    return check_labels(text, [](char c) { return is_letter(c) || is_digit(c) || c == '-'; });
}

Result<void> check_domain_pattern(std::string_view text) {
    if (text == "*") return {};
    if (text.find('*') != text.npos)
        return mistake(quoted(text) + " has \"*\" inside; write \".example.org\" for the sub-domains of example.org");
    return check_labels(text.substr(text.starts_with('.') ? 1 : 0), [](char c) {
        return is_letter(c) || is_digit(c) || c == '-' || c == '_' || static_cast<unsigned char>(c) >= 0x80;
    });
}

std::string lower_case(std::string_view text) {
    std::string lower(text);
    for (char& c : lower)
        if (c >= 'A' && c <= 'Z') c = static_cast<char>(c - 'A' + 'a');
    return lower;
}

Result<Target> parse_target(std::string_view text) {
    Target target;
    if (text == "discard:") return target;
    if (text.starts_with("maildir:")) {
        target.kind = Target::Kind::maildir;
        target.path = text.substr(8);
        if (target.path.empty()) return mistake("\"maildir:\" names no folder");
        if (target.path.find_first_of("%{") != std::string::npos)
            return mistake(quoted(text) + " looks like a pattern, but a Maildir's path is taken as it stands and placeholders are "
                           "not supported; name one folder (each copy says in Delivered-To for whom it is)");
        return target;
    }
    if (text.starts_with("lmtp+unix:")) {
        target.kind = Target::Kind::lmtp_unix;
        target.path = text.substr(10);
        if (target.path.empty()) return mistake("\"lmtp+unix:\" names no socket");
        if (target.path.size() > 107) return mistake("the path of a socket may have 107 octets, this has " + std::to_string(target.path.size()));
        return target;
    }
    if (text.starts_with("smtp://")) {
        target.kind = Target::Kind::smtp;
        return parse_next_hop(std::move(target), text, text.substr(7));
    }
    if (text.starts_with("lmtp://")) {
        target.kind = Target::Kind::lmtp;
        return parse_next_hop(std::move(target), text, text.substr(7));
    }
    return mistake(quoted(text) + " is not a target; use \"smtp://host:port\", \"lmtp://host:port\", \"lmtp+unix:/path\", "
                   "\"maildir:/path\" or \"discard:\"");
}

unsigned domain_match(std::string_view pattern, std::string_view domain) {
    if (pattern == "*") return 1;
    if (pattern.starts_with('.')) {
        const bool below = domain.size() > pattern.size() && domain.ends_with(pattern);
        return below ? 1 + static_cast<unsigned>(pattern.size()) : 0;
    }
    return pattern == domain && !domain.empty() ? 0xffff : 0;
}

}  // namespace postern::config
