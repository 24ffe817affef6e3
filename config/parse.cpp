#include "config/parse.hpp"

#include <cerrno>
#include <fstream>

#include "config/table_reader.hpp"
#include "config/validate.hpp"
#include "config/values.hpp"

namespace postern::config {
namespace {

// One function for each table: the schema.  Ranges stand here and in reference.toml.

constexpr Duration no_time = milliseconds(0);

Result<Endpoint> read_endpoint(std::string_view text) {
    if (const auto name = parse_endpoint(text); !name) return fail(name.error());
    return Endpoint{std::string(text)};
}

Result<std::string> read_domain(std::string_view text) {
    if (const auto form = check_domain_pattern(text); !form) return fail(form.error());
    return lower_case(text);
}

Result<std::string> read_hostname(std::string_view text) {
    if (text.empty()) return std::string();                 // the host's own name
    if (const auto form = check_host_name(text); !form) return fail(form.error());
    return std::string(text);
}

Result<std::string> read_path(std::string_view text) {
    if (text.empty()) return fail(Error{0, "must not be empty"});
    return std::string(text);
}

void read(TableReader& table, Server& server) {
    table.parsed("hostname", server.hostname, read_hostname);
    table.integer("shards", server.shards, 0, 256);
    table.duration("drain_delay", server.drain_delay, no_time, hours(1));
    table.duration("drain_timeout", server.drain_timeout, seconds(1), hours(1));
    table.flag("pin_cpus", server.pin_cpus);
}

void read(TableReader& table, Listener& listener) {
    table.require("address", "\"127.0.0.1:25\"");
    table.parsed("address", listener.address, read_endpoint);
}

void read(TableReader& table, Limits& limits) {
    table.bytes("message_bytes", limits.message_bytes, 1_KiB, 256_MiB);
    table.integer("recipients", limits.recipients, 1, 50'000);
    table.integer("connections", limits.connections, 1, 1'000'000);
    table.bytes("command_line_bytes", limits.command_line_bytes, 512, 64_KiB);
    table.integer("errors", limits.errors, 1, 10'000);
    table.integer("junk_commands", limits.junk_commands, 1, 100'000);
    table.bytes("header_bytes", limits.header_bytes, 1_KiB, 64_MiB);
    table.integer("hops", limits.hops, 1, 1'000);
    table.duration("command_timeout", limits.command_timeout, milliseconds(100), hours(1));
    table.duration("data_timeout", limits.data_timeout, milliseconds(100), hours(1));
    table.bytes("unsent_reply_bytes", limits.unsent_reply_bytes, 4_KiB, 16_MiB);
}

void read(TableReader& table, Policy& policy) {
    table.list("domains", policy.domains, read_domain);
    table.list("relay_networks", policy.relay_networks, parse_network);
    table.choice<NewlinePolicy>("bare_newline", policy.bare_newline,
                                {{"reject", NewlinePolicy::reject}, {"normalize", NewlinePolicy::normalize}});
    table.flag("allow_open_relay", policy.allow_open_relay);
}

void read(TableReader& table, Spool& spool) {
    table.parsed("path", spool.path, read_path);
    table.bytes("segment_bytes", spool.segment_bytes, 1_MiB, 1_GiB);
    table.integer("spare_segments", spool.spare_segments, 1, 64);
    table.bytes("reserve_bytes", spool.reserve_bytes, 0, 1024_GiB);
    table.bytes("staging_bytes", spool.staging_bytes, 4_MiB, 1_GiB);
    table.bytes("unfinished_bytes", spool.unfinished_bytes, 1_MiB, 4_GiB);
    table.choice<CommitSink>("commit", spool.commit,
                             {{"automatic", CommitSink::automatic},
                              {"direct", CommitSink::direct},
                              {"buffered", CommitSink::buffered},
                              {"none", CommitSink::none}});
}

void read(TableReader& table, Route& route) {
    table.text("name", route.name);
    table.require("domains", "[\"*\"]");
    table.list("domains", route.domains, read_domain);
    table.require("to", "\"smtp://127.0.0.1:2600\"");
    table.parsed("to", route.to, [&](std::string_view text) {
        auto target = parse_target(text);
        if (target) route.to_text = text;
        return target;
    });
    table.integer("connections", route.connections, 1, 10'000);
    table.integer("messages_per_connection", route.messages_per_connection, 1, 1'000'000);
}

void read(TableReader& table, Delivery& delivery) {
    table.duration("retry_first", delivery.retry_first, milliseconds(100), hours(24));
    table.duration("retry_max", delivery.retry_max, milliseconds(100), hours(7 * 24));
    table.duration("expire", delivery.expire, seconds(1), hours(90 * 24));
    table.duration("connect_timeout", delivery.connect_timeout, milliseconds(100), minutes(10));
    table.duration("idle_connection", delivery.idle_connection, no_time, minutes(10));
    table.integer("maildir_workers", delivery.maildir_workers, 1, 64);
}

void read(TableReader& table, Admin& admin) {
    table.parsed("address", admin.address, read_endpoint);
    table.flag("enabled", admin.enabled);
}

void read(TableReader& table, Log& log) {
    table.choice<LogFormat>("format", log.format, {{"logfmt", LogFormat::logfmt}, {"json", LogFormat::json}});
    table.choice<LogLevel>("level", log.level,
                           {{"debug", LogLevel::debug},
                            {"info", LogLevel::info},
                            {"warning", LogLevel::warning},
                            {"error", LogLevel::error}});
}

void read(TableReader& table, Metrics& metrics) { table.flag("per_message", metrics.per_message); }

void read(TableReader& table, Ring& ring) {
    table.integer("receive_buffers", ring.receive_buffers, 16, 32'768);
    table.bytes("receive_buffer_bytes", ring.receive_buffer_bytes, 4_KiB, 256_KiB);
    table.choice<SendMode>("send", ring.send, {{"direct", SendMode::direct}, {"ring", SendMode::ring}});
}

template <class Element>
void read_each(TableReader& root, std::string_view key, std::vector<Element>& into) {
    root.tables(key, [&](TableReader& table) { read(table, into.emplace_back()); });
}

void read(TableReader& root, Config& config) {
    const auto section = [&](std::string_view key, auto& into) {
        root.table(key, [&](TableReader& table) { read(table, into); });
    };
    section("server", config.server);
    read_each(root, "listener", config.listeners);
    section("limits", config.limits);
    section("policy", config.policy);
    section("spool", config.spool);
    read_each(root, "route", config.routes);
    section("delivery", config.delivery);
    section("admin", config.admin);
    section("log", config.log);
    section("metrics", config.metrics);
    section("ring", config.ring);
    for (size_t i = 0; i < config.routes.size(); ++i)
        if (config.routes[i].name.empty()) config.routes[i].name = "route" + std::to_string(i);
}

}  // namespace

void parse(std::string_view toml, Config& config, Report& report) try {
    const toml::parse_result parsed = toml::parse(toml);
    if (!parsed) {
        const auto& at = parsed.error().source().begin;
        return report.not_toml({static_cast<uint32_t>(at.line), static_cast<uint32_t>(at.column)},
                               std::string(parsed.error().description()));
    }
    TableReader root(parsed.table(), "", report);
    read(root, config);
    root.finish();
} catch (const TomlAssertion&) {
    report.not_toml({}, "a key or value is malformed, at a place that the parser does not tell");
}

Loaded load_text(std::string_view toml, const std::string& name) {
    Loaded loaded;
    Report report(name);
    parse(toml, loaded.config, report);
    if (!report.unreadable()) validate(loaded.config, report);
    loaded.findings = report.findings();
    return loaded;
}

Loaded load_file(const std::string& path) {
    errno = 0;
    std::ifstream file(path, std::ios::binary);
    std::string text;
    char chunk[4096];
    while (file.read(chunk, sizeof chunk) || file.gcount() > 0) text.append(chunk, static_cast<size_t>(file.gcount()));
    if (file.eof()) return load_text(text, path);
    Loaded loaded;
    Report report(path);
    report.mistake("", os_error(errno, "cannot be read").text + "; name a readable file with --config");
    loaded.findings = report.findings();
    return loaded;
}

}  // namespace postern::config
