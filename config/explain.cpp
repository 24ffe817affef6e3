#include <string>

#include "config/config.hpp"
#include "config/report.hpp"
#include "config/validate.hpp"
#include "config/values.hpp"

namespace postern::config {
namespace {

std::string list_text(const auto& items, auto&& text_of) {
    std::string text;
    size_t index = 0;
    for (const auto& item : items) {
        if (index) text += index + 1 == items.size() ? " and " : ", ";
        text += text_of(item);
        ++index;
    }
    return text;
}

std::string pattern_text(const std::string& pattern) {
    if (pattern == "*") return "every other domain";
    if (pattern.starts_with('.')) return "the sub-domains of " + pattern.substr(1);
    return pattern;
}

std::string target_text(const Route& route) {
    const std::string next_hop = route.to.host + " port " + std::to_string(route.to.port);
    const std::string connections = " over at most " + std::to_string(route.connections) + " connections";
    switch (route.to.kind) {
        case Target::Kind::discard: return "is thrown away";
        case Target::Kind::maildir: return "is written to the Maildir " + route.to.path;
        case Target::Kind::smtp: return "is sent by SMTP to " + next_hop + connections;
        case Target::Kind::lmtp: return "is sent by LMTP to " + next_hop + connections;
        case Target::Kind::lmtp_unix: return "is sent by LMTP to the socket " + route.to.path + connections;
    }
    return "";
}

std::string accepted(const Config& config) {
    const auto same = [](const std::string& text) { return text; };
    std::string text = "Mail comes in on " +
                       list_text(config.listeners, [](const Listener& listener) { return listener.address.text; }) + ", where this host is called " +
                       (config.server.hostname.empty() ? "by its own name" : config.server.hostname) + ".\n";
    if (config.policy.domains.empty())
        text += "Nobody may send without belonging to a relay network.\n";
    else
        text += "From anyone, mail for " + list_text(config.policy.domains, [&](const std::string& d) { return same(pattern_text(d)); }) +
                " is taken.\n";
    if (config.policy.relay_networks.empty())
        text += "No client may send to other domains.\n";
    else
        text += "Clients in " + list_text(config.policy.relay_networks, [](const Network& network) { return network.text; }) + " may send to any domain that has a route.\n";
    text += config.policy.bare_newline == NewlinePolicy::reject ? "A message with a bare CR or LF is refused.\n"
                                                                : "A bare LF in a message is taken as a line end and made CRLF.\n";
    return text;
}

std::string destinations(const Config& config) {
    std::string text;
    for (const Route& route : config.routes)
        text += "Mail for " + list_text(route.domains, pattern_text) + " " + target_text(route) + " (" + route.name + ").\n";
    const Delivery& delivery = config.delivery;
    return text + "What cannot be delivered is tried again after " + duration_text(delivery.retry_first) + ", then at growing intervals up to " +
           duration_text(delivery.retry_max) + ", for " + duration_text(delivery.expire) + " in all.\n";
}

std::string limits(const Config& config) {
    const Limits& limits = config.limits;
    return "A message may have " + bytes_text(limits.message_bytes) + " and " + std::to_string(limits.recipients) +
           " recipients; a header " + bytes_text(limits.header_bytes) + " and " + std::to_string(limits.hops) + " Received fields.\n" +
           "At most " + std::to_string(limits.connections) + " clients are served at once; one is dropped after " +
           duration_text(limits.command_timeout) + " without a command, " + duration_text(limits.data_timeout) +
           " without data, or " + std::to_string(limits.errors) + " errors.\n";
}

std::string memory(const Config& config) {
    const uint64_t buffers = config.ring.receive_buffers * config.ring.receive_buffer_bytes;
    const uint64_t total = buffers + config.spool.staging_bytes + config.spool.unfinished_bytes;
    const unsigned shards = config.server.shards;
    return (shards == 0 ? std::string("One shard runs on each usable CPU") : std::to_string(shards) + (shards == 1 ? " shard runs" : " shards run")) +
           "; each needs up to " + bytes_text(total) + " of memory: " + bytes_text(buffers) + " to receive, " +
           bytes_text(config.spool.staging_bytes) + " for commits, " + bytes_text(config.spool.unfinished_bytes) +
           " for messages being received; and 64 octets for each message in the queue, up to 2KiB for each connection.\n";
}

std::string storage(const Config& config) {
    static constexpr const char* sinks[] = {"durably, in the way that the file system does best", "durably, with direct writes",
                                            "durably, with buffered writes and flushes", "but not durably"};
    return "Messages are kept in " + config.spool.path + ", " + sinks[static_cast<size_t>(config.spool.commit)] + ", in segments of " +
           bytes_text(config.spool.segment_bytes) + "; " + bytes_text(config.spool.reserve_bytes) + " of the file system are left free.\n";
}

}  // namespace

std::string explain(const Config& config) {
    std::string text = accepted(config) + destinations(config) + storage(config) + limits(config) + memory(config);
    text += config.admin.enabled ? "Metrics and health are served on http://" + config.admin.address.text + ".\n"
                                 : "Metrics and health are not served.\n";
    Report report("");
    validate(config, report);
    for (const Finding& finding : report.findings())
        text += (finding.fatal ? "Mistake: " : "Warning: ") + finding.key + ": " + finding.message + "\n";
    return text;
}

}  // namespace postern::config
