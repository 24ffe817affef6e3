#include "config/validate.hpp"

#include <algorithm>
#include <bit>
#include <string>

#include "config/values.hpp"

namespace postern::config {
namespace {

constexpr uint64_t block_bytes = 4096;
constexpr unsigned route_name_bytes_max = 32;

std::string indexed(std::string_view key, size_t index) { return std::string(key) + "[" + std::to_string(index) + "]"; }
std::string quoted(std::string_view text) { return "\"" + std::string(text) + "\""; }

void check_whole_blocks(uint64_t bytes, const std::string& key, Report& report) {
    if (bytes % block_bytes) report.mistake(key, "must be a multiple of 4KiB, not " + bytes_text(bytes));
}

void check_listeners(const Config& config, Report& report) {
    if (config.listeners.empty() && !report.mistaken("listener"))
        report.mistake("listener", "there is none; say where to take mail in: [[listener]] with address = \"127.0.0.1:25\"");
    for (size_t i = 0; i < config.listeners.size(); ++i) {
        const auto name = parse_endpoint(config.listeners[i].address.text);
        if (!name || name->port == 0) continue;             // port 0 is another one each time
        const std::string key = indexed("listener", i) + ".address";
        for (size_t j = 0; j < i; ++j)
            if (const auto other = parse_endpoint(config.listeners[j].address.text); other && *other == *name)
                report.mistake(key, config.listeners[i].address.text + " is taken by " + indexed("listener", j) + " already");
        const auto admin = parse_endpoint(config.admin.address.text);
        if (config.admin.enabled && admin && *admin == *name)
            report.mistake(key, config.listeners[i].address.text + " is the address of [admin] as well");
    }
}

void check_admin(const Config& config, Report& report) {
    const auto name = parse_endpoint(config.admin.address.text);
    if (config.admin.enabled && name && name->host.ipv6 && !name->host.any())
        report.mistake("admin.address", "the admin port is served on IPv4 only (Debian's CivetWeb has no IPv6); use \"127.0.0.1:9125\" "
                       "or \"0.0.0.0:9125\"");
}

// A next hop that is one of our own listeners would send every message round and round.
bool leads_back(const Target& target, const Config& config) {
    if (target.kind != Target::Kind::smtp) return false;
    const auto host = parse_host_address(target.host == "localhost" ? "127.0.0.1" : target.host);
    return host && std::any_of(config.listeners.begin(), config.listeners.end(), [&](const Listener& listener) {
        const auto name = parse_endpoint(listener.address.text);
        return name && name->covers({*host, target.port});
    });
}

void check_route_name(const Config& config, size_t index, Report& report) {
    const std::string& name = config.routes[index].name;
    const std::string key = indexed("route", index) + ".name";
    const bool good_form = name.size() <= route_name_bytes_max && std::all_of(name.begin(), name.end(), [](char c) {
        return (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || (c >= '0' && c <= '9') || c == '_' || c == '-';
    });
    if (!good_form) report.mistake(key, quoted(name) + " must be at most 32 letters, digits, \"-\" and \"_\": it is a label of metrics");
    for (size_t j = 0; j < index; ++j)
        if (config.routes[j].name == name) report.mistake(key, quoted(name) + " is the name of " + indexed("route", j) + " already");
}

void check_route_domains(const Config& config, size_t index, Report& report) {
    const std::string key = indexed("route", index) + ".domains";
    const auto& domains = config.routes[index].domains;
    if (domains.empty() && !report.mistaken(indexed("route", index)))
        report.mistake(key, "is empty; name at least one domain, or \"*\" for all");
    if (report.mistaken(key)) return;                       // indices would not be those of the file
    for (size_t i = 0; i < domains.size(); ++i)
        for (size_t j = 0; j <= index; ++j) {
            const auto& others = config.routes[j].domains;
            const auto end = j == index ? others.begin() + static_cast<ptrdiff_t>(i) : others.end();
            if (std::find(others.begin(), end, domains[i]) != end)
                report.mistake(indexed(key, i), quoted(domains[i]) + " is taken by " + indexed("route", j) + " already");
        }
}

void check_routes(const Config& config, Report& report) {
    if (config.routes.empty() && !report.mistaken("route"))
        report.mistake("route", "there is none; say where mail goes: [[route]] with domains = [\"*\"] and to = \"smtp://127.0.0.1:2600\"");
    for (size_t i = 0; i < config.routes.size(); ++i) {
        const Route& route = config.routes[i];
        const std::string to = indexed("route", i) + ".to";
        check_route_name(config, i, report);
        check_route_domains(config, i, report);
        if (leads_back(route.to, config)) report.mistake(to, route.to_text + " is a listener of this gateway: mail would go round for ever");
        if (route.to_text == "discard:") report.warning(to, "mail for this route is accepted and thrown away; for measurements only");
    }
}

bool routed(const Config& config, const std::string& domain) {
    // ".example.org" stands for every name below; one that no pattern names exactly tells whether all are taken.
    const std::string name = domain.starts_with('.') ? "any-name" + domain : domain;
    return std::any_of(config.routes.begin(), config.routes.end(), [&](const Route& route) {
        return std::any_of(route.domains.begin(), route.domains.end(),
                           [&](const std::string& pattern) { return pattern == "*" || domain_match(pattern, name) > 0; });
    });
}

void check_open_relay(const Config& config, Report& report) {
    const auto open = [&](const std::string& key, const std::string& what) {
        if (config.policy.allow_open_relay)
            report.warning(key, what + ": this gateway is an open relay, as policy.allow_open_relay permits");
        else
            report.mistake(key, what + ": an open relay, which spammers find within hours; name your own networks and domains, or set "
                                "policy.allow_open_relay = true");
    };
    const Policy& policy = config.policy;
    for (size_t i = 0; i < policy.relay_networks.size(); ++i)
        if (policy.relay_networks[i].prefix_bits == 0)
            open(indexed("policy.relay_networks", i),
                 std::string(policy.relay_networks[i].ipv6 ? "::/0" : "0.0.0.0/0") + " lets everybody send to any domain");
    for (size_t i = 0; i < policy.domains.size(); ++i)
        if (policy.domains[i] == "*") open(indexed("policy.domains", i), "\"*\" takes mail for any domain from everybody");
}

void check_policy(const Config& config, Report& report) {
    const Policy& policy = config.policy;
    if (!report.mistaken("policy.relay_networks") && !report.mistaken("policy.domains")) {
        check_open_relay(config, report);
        if (policy.domains.empty() && policy.relay_networks.empty())
            report.warning("policy", "domains and relay_networks are both empty: every recipient will be refused");
    }
    if (report.mistaken("route") || config.routes.empty()) return;
    if (!report.mistaken("policy.domains"))
        for (size_t i = 0; i < policy.domains.size(); ++i)
            if (!routed(config, policy.domains[i]))
                report.mistake(indexed("policy.domains", i), "mail for " + quoted(policy.domains[i]) + " would be taken, but no route takes "
                               "it; add it to a [[route]]");
    if (!policy.relay_networks.empty() && !routed(config, "*"))
        report.warning("policy.relay_networks", "these clients may send to any domain, but no route takes \"*\": mail for other domains "
                       "will be refused");
}

void check_times(const Config& config, Report& report) {
    const auto in_order = [&](Duration smaller, const std::string& key, Duration larger, const std::string& larger_key) {
        if (smaller > larger)
            report.mistake(key, duration_text(smaller) + " is more than " + larger_key + ", which is " + duration_text(larger));
    };
    in_order(config.server.drain_delay, "server.drain_delay", config.server.drain_timeout, "server.drain_timeout");
    in_order(config.delivery.retry_first, "delivery.retry_first", config.delivery.retry_max, "delivery.retry_max");
    in_order(config.delivery.retry_max, "delivery.retry_max", config.delivery.expire, "delivery.expire");
}

void check_sizes(const Config& config, Report& report) {
    check_whole_blocks(config.spool.segment_bytes, "spool.segment_bytes", report);
    check_whole_blocks(config.spool.staging_bytes, "spool.staging_bytes", report);
    check_whole_blocks(config.ring.receive_buffer_bytes, "ring.receive_buffer_bytes", report);
    if (!std::has_single_bit(config.ring.receive_buffers))
        report.mistake("ring.receive_buffers", "must be a power of two, such as " + std::to_string(std::bit_floor(config.ring.receive_buffers)) +
                       ", not " + std::to_string(config.ring.receive_buffers));
    if (config.limits.message_bytes < 64_KiB)
        report.warning("limits.message_bytes", bytes_text(config.limits.message_bytes) + " is less than the 64KiB that every server "
                       "has to take (RFC 5321 §4.5.3.1.7)");
    if (config.limits.message_bytes > 8 * config.spool.segment_bytes)
        report.warning("limits.message_bytes", "a message of " + bytes_text(config.limits.message_bytes) + " is spread over more than eight "
                       "segments, which all wait for its delivery; make spool.segment_bytes larger");
    if (config.spool.commit == CommitSink::none)
        report.warning("spool.commit", "\"none\" makes nothing durable: what was answered with 250 is lost with the power; for "
                       "measurements only");
}

}  // namespace

void validate(const Config& config, Report& report) {
    check_listeners(config, report);
    check_admin(config, report);
    check_routes(config, report);
    check_policy(config, report);
    check_times(config, report);
    check_sizes(config, report);
}

}  // namespace postern::config
