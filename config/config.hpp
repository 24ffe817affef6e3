// The configuration as plain values.  Every field has its default here; config/reference.toml documents each key, and a
// test holds the two together.
//
// load() never stops at the first mistake: it reports all, each with line, column, key and remedy.
#pragma once

#include <algorithm>
#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "ring/base/result.hpp"
#include "ring/base/units.hpp"

namespace postern::config {

// An address in numeric form, checked: "127.0.0.1:2525", "[::1]:2525", "*:2525".
struct Endpoint {
    std::string text;
    bool operator==(const Endpoint&) const = default;
};

// A network in CIDR form, IPv4-mapped IPv6 made IPv4; a bare address is a whole-length prefix.
struct Network {
    bool ipv6 = false;
    uint8_t prefix_bits = 0;
    uint8_t octets[16] = {};
    std::string text;                           // as written; two spellings of one network are equal
    bool operator==(const Network& other) const {
        return ipv6 == other.ipv6 && prefix_bits == other.prefix_bits && std::equal(octets, octets + 16, other.octets);
    }
    bool contains(bool address_is_ipv6, const uint8_t* address_octets) const;
};
Result<Network> parse_network(std::string_view text);

enum class NewlinePolicy : uint8_t { reject, normalize };

struct Server {
    std::string hostname;                       // default: the host's own name, completed by main
    unsigned shards = 1;                        // 0: one per usable CPU
    Duration drain_delay = seconds(5);
    Duration drain_timeout = seconds(30);
    bool pin_cpus = false;
    bool operator==(const Server&) const = default;
};

struct Listener {
    Endpoint address;
    bool operator==(const Listener&) const = default;
};

struct Limits {
    uint64_t message_bytes = 50_MiB;
    uint32_t recipients = 1000;
    uint32_t connections = 20000;               // of all shards and listeners
    uint32_t command_line_bytes = 4096;
    uint32_t errors = 20;
    uint32_t junk_commands = 100;
    uint64_t header_bytes = 1_MiB;
    uint32_t hops = 100;
    Duration command_timeout = minutes(5);
    Duration data_timeout = minutes(3);         // without any octet, inside data
    uint32_t unsent_reply_bytes = 64 * 1024;    // a client that does not read is closed beyond this
    bool operator==(const Limits&) const = default;
};

struct Policy {
    std::vector<std::string> domains;           // exact, or ".example.org" for sub-domains; lower case
    std::vector<Network> relay_networks;
    NewlinePolicy bare_newline = NewlinePolicy::reject;
    bool allow_open_relay = false;              // without it, relaying for everybody is a mistake
    bool operator==(const Policy&) const = default;
};

enum class CommitSink : uint8_t { automatic, direct, buffered, none };

struct Spool {
    std::string path = "/var/spool/postern";
    uint64_t segment_bytes = 64_MiB;
    unsigned spare_segments = 2;
    uint64_t reserve_bytes = 64_MiB;            // of the file system, left free
    uint64_t staging_bytes = 32_MiB;            // per shard: batches being committed and recently committed
    uint64_t unfinished_bytes = 24_MiB;         // per shard: messages being received
    CommitSink commit = CommitSink::automatic;
    bool operator==(const Spool&) const = default;
};

// Where mail goes: "discard:", "maildir:/path", "smtp://host:port", "lmtp://host:port", "lmtp+unix:/path".
struct Target {
    enum class Kind : uint8_t { discard, maildir, smtp, lmtp, lmtp_unix } kind = Kind::discard;
    std::string host;                           // name or numeric address, for smtp and lmtp
    uint16_t port = 0;                          // default 25 for smtp, 24 for lmtp
    std::string path;                           // of the Maildir or the socket
    bool operator==(const Target&) const = default;
};
struct Route {
    std::string name;                           // for metrics and logs; default "route0", "route1", ...
    std::vector<std::string> domains;           // exact, ".suffix", or "*"
    Target to;
    std::string to_text;
    unsigned connections = 20;                  // at once, over all shards
    unsigned messages_per_connection = 1000;
    bool operator==(const Route&) const = default;
};

struct Delivery {                               // of all routes
    Duration retry_first = minutes(1);
    Duration retry_max = hours(1);
    Duration expire = hours(5 * 24);
    Duration connect_timeout = seconds(30);
    Duration idle_connection = seconds(10);     // kept open for the next message
    unsigned maildir_workers = 4;
    bool operator==(const Delivery&) const = default;
};

struct Admin {
    Endpoint address{"127.0.0.1:9125"};
    bool enabled = true;
    bool operator==(const Admin&) const = default;
};

enum class LogFormat : uint8_t { logfmt, json };
enum class LogLevel : uint8_t { debug, info, warning, error };
struct Log {
    LogFormat format = LogFormat::logfmt;
    LogLevel level = LogLevel::info;
    bool operator==(const Log&) const = default;
};

struct Metrics {
    bool per_message = true;                    // histograms and counters of single messages and commands
    bool operator==(const Metrics&) const = default;
};

enum class SendMode : uint8_t { direct, ring };
struct Ring {
    unsigned receive_buffers = 1024;            // per shard; a power of two
    uint64_t receive_buffer_bytes = 16_KiB;
    SendMode send = SendMode::direct;
    bool operator==(const Ring&) const = default;
};

struct Config {
    Server server;
    std::vector<Listener> listeners;
    Limits limits;
    Policy policy;
    Spool spool;
    std::vector<Route> routes;
    Delivery delivery;
    Admin admin;
    Log log;
    Metrics metrics;
    Ring ring;
    bool operator==(const Config&) const = default;
};

// One mistake or warning.  text(): "postern.toml:12:3: limits.mesage_bytes: unknown key; did you mean message_bytes?"
struct Finding {
    bool fatal = true;
    std::string file;
    uint32_t line = 0, column = 0;              // 0: of no one place
    std::string key;
    std::string message;
    std::string text() const;
};

struct Loaded {
    Config config;
    std::vector<Finding> findings;              // warnings too
    bool usable() const;                        // no fatal finding
};

Loaded load_file(const std::string& path);
Loaded load_text(std::string_view toml, const std::string& name);
// What the configuration means, in sentences for `postern check`: what is accepted from whom, where it goes, which limits
// hold, what memory a shard needs, and the warnings.
std::string explain(const Config& config);
// The commented reference configuration: `postern config`.
std::string_view reference_toml();
// The embedded default of `scripts/run`: SMTP on 127.0.0.1:2525, spool and Maildir under ./var, admin on 127.0.0.1:9125.
std::string_view default_toml();

// "64MiB", "1500B", "1500".  Units: B, KiB, MiB, GiB; a bare integer is octets.
Result<uint64_t> parse_bytes(std::string_view text);
// "250ms", "90s", "5m", "1h", "5d".
Result<Duration> parse_duration(std::string_view text);

// How well `pattern` ("*", ".suffix", exact) matches a lower-case domain: 0 not at all, larger is more specific.
unsigned domain_match(std::string_view pattern, std::string_view domain);

}  // namespace postern::config
