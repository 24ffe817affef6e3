#include <catch2/catch.hpp>

#include "config/config.hpp"
#include "config/parse.hpp"

using namespace postern;
using namespace postern::config;

namespace {

// A configuration that is right; each test adds its mistake in front, behind or instead.
const std::string listener = "[[listener]]\naddress = \"127.0.0.1:2525\"\n";
const std::string route = "[[route]]\ndomains = [\"*\"]\nto = \"smtp://127.0.0.1:2600\"\n";
const std::string policy = "[policy]\ndomains = [\"example.org\"]\n";
const std::string right = listener + route + policy;

std::vector<std::string> findings_of(const std::string& toml) {
    std::vector<std::string> texts;
    for (const Finding& finding : load_text(toml, "f").findings) texts.push_back(finding.text());
    return texts;
}
using Texts = std::vector<std::string>;

// The configuration of the issue, word by word.
constexpr const char* issue = R"([server]
hostname = "mx.example.org"
shards = 1                       # 0: one per usable CPU (affinity and cgroup quota)

[[listener]]
address = "127.0.0.1:2525"

[limits]
message_bytes = "50MiB"
recipients = 1000
connections = 20000

[policy]
domains = ["example.org", "local.test"]     # mail for these is taken from anyone
relay_networks = ["127.0.0.0/8", "::1"]     # these clients may send to any domain
bare_newline = "reject"                     # or "normalize"

[spool]
path = "/var/spool/postern"
segment_bytes = "64MiB"

[[route]]
domains = ["local.test"]
to = "maildir:/var/mail/postern"

[[route]]
domains = ["*"]
to = "smtp://127.0.0.1:2600"                # or lmtp://host:port, lmtp+unix:/run/x.sock

[admin]
address = "127.0.0.1:9125"

[log]
format = "logfmt"                           # or "json"
level = "info"
)";

}  // namespace

TEST_CASE("The configuration of the issue loads as it stands", "[config]") {
    const Loaded loaded = load_text(issue, "postern.toml");
    CHECK(findings_of(issue) == Texts{});
    const Config& config = loaded.config;
    CHECK(config.server.hostname == "mx.example.org");
    REQUIRE(config.listeners.size() == 1);
    CHECK(config.listeners[0].address.text == "127.0.0.1:2525");
    CHECK(config.limits == Limits{});
    CHECK(config.policy.domains == Texts{"example.org", "local.test"});
    CHECK(config.policy.relay_networks == std::vector{*parse_network("127.0.0.0/8"), *parse_network("::1/128")});
    REQUIRE(config.routes.size() == 2);
    CHECK(config.routes[0].name == "route0");
    CHECK(config.routes[0].domains == Texts{"local.test"});
    CHECK(config.routes[0].to.path == "/var/mail/postern");
    CHECK(config.routes[1].name == "route1");
    CHECK(config.routes[1].to == Target{Target::Kind::smtp, "127.0.0.1", 2600, ""});
    CHECK(config.routes[1].to_text == "smtp://127.0.0.1:2600");
}

TEST_CASE("The reference configuration names every key and gives its default", "[config]") {
    Report report("reference.toml");
    Config config;
    parse(reference_toml(), config, report);
    // Only keys without a default of their own, repeated in the second route, may be left out.
    CHECK(report.left_to_defaults() == Texts{"route[1].connections", "route[1].messages_per_connection"});

    const Loaded loaded = load_text(reference_toml(), "reference.toml");
    CHECK(loaded.usable());
    REQUIRE(loaded.findings.size() == 1);                   // by default nobody may send
    CHECK(loaded.findings[0].message == "domains and relay_networks are both empty: every recipient will be refused");
    config = loaded.config;
    for (Route& one : config.routes) {
        CHECK(one.connections == Route{}.connections);
        CHECK(one.messages_per_connection == Route{}.messages_per_connection);
    }
    config.listeners.clear();
    config.routes.clear();
    CHECK(config == Config{});
}

TEST_CASE("The default of scripts/run takes any mail of this machine into a Maildir", "[config]") {
    const Loaded loaded = load_text(default_toml(), "default.toml");
    CHECK(loaded.findings.empty());
    const Config& config = loaded.config;
    CHECK(config.listeners == std::vector{Listener{{"127.0.0.1:2525"}}});
    CHECK(config.spool.path == "./var/spool");
    CHECK(config.admin == Admin{});
    CHECK(config.policy.domains.empty());
    CHECK(config.policy.relay_networks == std::vector{*parse_network("127.0.0.0/8"), *parse_network("::1")});
    REQUIRE(config.routes.size() == 1);
    CHECK(config.routes[0].domains == Texts{"*"});
    CHECK(config.routes[0].to == Target{Target::Kind::maildir, "", 0, "./var/mail"});
}

TEST_CASE("Each kind of mistake is named with its place", "[config]") {
    struct { std::string toml; std::string finding; } const table[] = {
        // Unknown names.
        {right + "[limits]\nmesage_bytes = 1\n", "f:9:1: limits.mesage_bytes: unknown key; did you mean message_bytes?"},
        {right + "[limits]\n\n  xyzzy = 1\n", "f:10:3: limits.xyzzy: unknown key; known here: message_bytes, recipients, connections, "
                 "command_line_bytes, errors, junk_commands, header_bytes, hops, command_timeout, data_timeout, unsent_reply_bytes"},
        {right + "[limit]\nhops = 1\n", "f:8:2: limit: unknown table; did you mean limits?"},
        {right + "[[routes]]\n", "f:8:3: routes: unknown table; did you mean route?"},
        {right + "[server]\nhostnme = \"a\"\n", "f:9:1: server.hostnme: unknown key; did you mean hostname?"},
        {"[[listener]]\naddress = \"*:25\"\nadress = \"*:26\"\n" + route + policy,
         "f:3:1: listener[0].adress: unknown key; did you mean address?"},
        // Types.
        {right + "[limits]\nhops = \"100\"\n", "f:9:8: limits.hops: must be an integer, not a string"},
        {right + "[limits]\nhops = 1.5\n", "f:9:8: limits.hops: must be an integer, not a fraction"},
        {right + "[limits]\nmessage_bytes = true\n", "f:9:17: limits.message_bytes: must be a size, such as \"64MiB\", not true or false"},
        {right + "[limits]\ndata_timeout = 30\n", "f:9:16: limits.data_timeout: must be a time with its unit, such as \"30s\", not an integer"},
        {right + "[server]\npin_cpus = 1\n", "f:9:12: server.pin_cpus: must be true or false, not an integer"},
        {right + "[spool]\npath = 1\n", "f:9:8: spool.path: must be a string, not an integer"},
        {"log = 1\n" + right, "f:1:7: log: must be a table, [log], not an integer"},
        {"[listener]\naddress = \"*:25\"\n" + route + policy, "f:1:1: listener: must be an array of tables, [[listener]], not a table"},
        {listener + route + "[policy]\ndomains = \"example.org\"\n", "f:7:11: policy.domains: must be an array of strings, not a string"},
        {listener + route + "[policy]\ndomains = [\"a.org\", 7]\n", "f:7:21: policy.domains[1]: must be a string, not an integer"},
        // Ranges, units and choices.
        {right + "[limits]\nrecipients = 0\n", "f:9:14: limits.recipients: must be between 1 and 50000, not 0"},
        {right + "[limits]\nrecipients = -3\n", "f:9:14: limits.recipients: must be between 1 and 50000, not -3"},
        {right + "[server]\nshards = 257\n", "f:9:10: server.shards: must be between 0 and 256, not 257"},
        {right + "[limits]\nmessage_bytes = \"1TiB\"\n",
         "f:9:17: limits.message_bytes: \"1TiB\" has no unit that is known here; use B, KiB, MiB or GiB"},
        {right + "[limits]\nmessage_bytes = \"2GiB\"\n", "f:9:17: limits.message_bytes: must be between 1KiB and 256MiB, not 2GiB"},
        {right + "[limits]\ncommand_line_bytes = 100\n", "f:9:22: limits.command_line_bytes: must be between 512B and 64KiB, not 100B"},
        {right + "[limits]\ndata_timeout = \"3 minutes\"\n",
         "f:9:16: limits.data_timeout: \"3 minutes\" has no unit that is known here; use ms, s, m, h or d"},
        {right + "[limits]\ndata_timeout = \"2h\"\n", "f:9:16: limits.data_timeout: must be between 100ms and 1h, not 2h"},
        {right + "[log]\nlevel = \"loud\"\n", "f:9:9: log.level: must be one of debug, info, warning, error, not \"loud\""},
        {right + "[spool]\nsegment_bytes = \"512KiB\"\n", "f:9:17: spool.segment_bytes: must be between 1MiB and 1GiB, not 512KiB"},
        {right + "[spool]\nsegment_bytes = 8388609\n", "f:9:17: spool.segment_bytes: must be a multiple of 4KiB, not 8388609B"},
        {right + "[spool]\npath = \"\"\n", "f:9:8: spool.path: must not be empty"},
        {right + "[ring]\nreceive_buffers = 1000\n", "f:9:19: ring.receive_buffers: must be a power of two, such as 512, not 1000"},
        {right + "[ring]\nreceive_buffer_bytes = 5000\n", "f:9:24: ring.receive_buffer_bytes: must be a multiple of 4KiB, not 5000B"},
        // Forms.
        {right + "[server]\nhostname = \"my_host\"\n",
         "f:9:12: server.hostname: \"my_host\" has the character \"_\", which no host name has"},
        {right + "[admin]\naddress = \"localhost:9125\"\n", "f:9:11: admin.address: \"localhost\" is not a numeric IPv4 or IPv6 address"},
        {right + "[admin]\naddress = \"[::1]:9125\"\n", "f:9:11: admin.address: the admin port is served on IPv4 only (Debian's CivetWeb "
                 "has no IPv6); use \"127.0.0.1:9125\" or \"0.0.0.0:9125\""},
        {listener + route + "[policy]\ndomains = [\"*.example.org\"]\n",
         "f:7:12: policy.domains[0]: \"*.example.org\" has \"*\" inside; write \".example.org\" for the sub-domains of example.org"},
        // What belongs together.
        {route + policy, "f: listener: there is none; say where to take mail in: [[listener]] with address = \"127.0.0.1:25\""},
        {listener + policy,
         "f: route: there is none; say where mail goes: [[route]] with domains = [\"*\"] and to = \"smtp://127.0.0.1:2600\""},
        {"[[listener]]\n" + route + policy, "f:1:1: listener[0].address: is missing; write for example address = \"127.0.0.1:25\""},
        {listener + "[[route]]\ndomains = [\"*\"]\n" + policy,
         "f:3:1: route[0].to: is missing; write for example to = \"smtp://127.0.0.1:2600\""},
        {listener + "[[route]]\nto = \"smtp://a\"\n" + policy, "f:3:1: route[0].domains: is missing; write for example domains = [\"*\"]"},
        {listener + "[[route]]\ndomains = []\nto = \"smtp://a\"\n" + policy,
         "f:4:11: route[0].domains: is empty; name at least one domain, or \"*\" for all"},
        {right + listener, "f:9:11: listener[1].address: 127.0.0.1:2525 is taken by listener[0] already"},
        {right + "[admin]\naddress = \"127.0.0.1:2525\"\n", "f:2:11: listener[0].address: 127.0.0.1:2525 is the address of [admin] as well"},
        {right + route, "f:9:12: route[1].domains[0]: \"*\" is taken by route[0] already"},
        {right + "[[route]]\ndomains = [\"b.org\", \"B.org\"]\nto = \"smtp://a\"\n",
         "f:9:21: route[1].domains[1]: \"b.org\" is taken by route[1] already"},
        {listener + "[[route]]\nname = \"a b\"\ndomains = [\"*\"]\nto = \"smtp://a\"\n" + policy,
         "f:4:8: route[0].name: \"a b\" must be at most 32 letters, digits, \"-\" and \"_\": it is a label of metrics"},
        {right + "[[route]]\nname = \"route0\"\ndomains = [\"b.org\"]\nto = \"smtp://a\"\n",
         "f:9:8: route[1].name: \"route0\" is the name of route[0] already"},
        {listener + "[[route]]\ndomains = [\"*\"]\nto = \"smtp://127.0.0.1:2525\"\n" + policy,
         "f:5:6: route[0].to: smtp://127.0.0.1:2525 is a listener of this gateway: mail would go round for ever"},
        {listener + "[[route]]\ndomains = [\"*\"]\nto = \"maildir:/home/%u\"\n" + policy,
         "f:5:6: route[0].to: \"maildir:/home/%u\" looks like a pattern, but a Maildir's path is taken as it stands and placeholders "
         "are not supported; name one folder (each copy says in Delivered-To for whom it is)"},
        {listener + "[[route]]\ndomains = [\"b.org\", \".c.org\"]\nto = \"smtp://a\"\n" + policy,
         "f:7:12: policy.domains[0]: mail for \"example.org\" would be taken, but no route takes it; add it to a [[route]]"},
        {listener + route + "[policy]\nrelay_networks = [\"::1\", \"0.0.0.0/0\"]\n",
         "f:7:26: policy.relay_networks[1]: 0.0.0.0/0 lets everybody send to any domain: an open relay, which spammers find within hours; "
         "name your own networks and domains, or set policy.allow_open_relay = true"},
        {listener + route + "[policy]\nrelay_networks = [\"::/0\"]\n",
         "f:7:19: policy.relay_networks[0]: ::/0 lets everybody send to any domain: an open relay, which spammers find within hours; "
         "name your own networks and domains, or set policy.allow_open_relay = true"},
        {listener + route + "[policy]\ndomains = [\"*\"]\n",
         "f:7:12: policy.domains[0]: \"*\" takes mail for any domain from everybody: an open relay, which spammers find within hours; "
         "name your own networks and domains, or set policy.allow_open_relay = true"},
        {right + "[server]\ndrain_delay = \"1m\"\n", "f:9:15: server.drain_delay: 1m is more than server.drain_timeout, which is 30s"},
        {right + "[delivery]\nretry_first = \"2h\"\n", "f:9:15: delivery.retry_first: 2h is more than delivery.retry_max, which is 1h"},
        {right + "[delivery]\nexpire = \"30m\"\n", "f:8:1: delivery.retry_max: 1h is more than delivery.expire, which is 30m"},
    };
    for (const auto& [toml, finding] : table) {
        INFO(toml);
        CHECK(findings_of(toml) == Texts{finding});
        CHECK_FALSE(load_text(toml, "f").usable());
    }
}

TEST_CASE("What is allowed but unwise gives a warning and loads", "[config]") {
    struct { std::string toml; std::string finding; } const table[] = {
        {listener + "[[route]]\ndomains = [\"*\"]\nto = \"discard:\"\n" + policy,
         "f:5:6: warning: route[0].to: mail for this route is accepted and thrown away; for measurements only"},
        {listener + route + "[policy]\nallow_open_relay = true\nrelay_networks = [\"0.0.0.0/0\"]\n",
         "f:8:19: warning: policy.relay_networks[0]: 0.0.0.0/0 lets everybody send to any domain: this gateway is an open relay, as "
         "policy.allow_open_relay permits"},
        {listener + route, "f: warning: policy: domains and relay_networks are both empty: every recipient will be refused"},
        {listener + "[[route]]\ndomains = [\"example.org\"]\nto = \"smtp://a\"\n" + policy + "relay_networks = [\"::1\"]\n",
         "f:8:18: warning: policy.relay_networks: these clients may send to any domain, but no route takes \"*\": mail for other domains "
         "will be refused"},
        {right + "[limits]\nmessage_bytes = 2000\n",
         "f:9:17: warning: limits.message_bytes: 2000B is less than the 64KiB that every server has to take (RFC 5321 §4.5.3.1.7)"},
        {right + "[spool]\nsegment_bytes = \"1MiB\"\n",
         "f: warning: limits.message_bytes: a message of 50MiB is spread over more than eight segments, which all wait for its delivery; "
         "make spool.segment_bytes larger"},
        {right + "[spool]\ncommit = \"none\"\n", "f:9:10: warning: spool.commit: \"none\" makes nothing durable: what was answered with "
                 "250 is lost with the power; for measurements only"},
    };
    for (const auto& [toml, finding] : table) {
        INFO(toml);
        CHECK(findings_of(toml) == Texts{finding});
        CHECK(load_text(toml, "f").usable());
    }
}

TEST_CASE("All mistakes of a file are reported, in its order", "[config]") {
    CHECK(findings_of("[server]\nshard = 2\n[limits]\nhops = 0\n[[listener]]\naddress = \"x\"\n[[route]]\nto = \"ftp://a\"\ndomains = 3\n" + policy) ==
          Texts{"f:2:1: server.shard: unknown key; did you mean shards?", "f:4:8: limits.hops: must be between 1 and 1000, not 0",
                "f:6:11: listener[0].address: \"x\" has no port; write it as \"127.0.0.1:25\", \"[::1]:25\" or \"*:25\"",
                "f:8:6: route[0].to: \"ftp://a\" is not a target; use \"smtp://host:port\", \"lmtp://host:port\", \"lmtp+unix:/path\", "
                "\"maildir:/path\" or \"discard:\"",
                "f:9:11: route[0].domains: must be an array of strings, not an integer"});
}

TEST_CASE("Text that is not TOML is one mistake at its place", "[config]") {
    const Loaded loaded = load_text("[server]\nhostname = \n", "f");
    REQUIRE(loaded.findings.size() == 1);
    CHECK(loaded.findings[0].line == 2);
    CHECK(loaded.findings[0].text().starts_with("f:2:"));
    CHECK(loaded.findings[0].message.starts_with("not TOML: "));
    CHECK_FALSE(loaded.usable());
}

TEST_CASE("What the parser asserts instead of diagnosing is a mistake too", "[config]") {
    for (const char* toml : {"[=]\n", "[\x1broute]\n"}) {
        INFO(toml);
        CHECK(findings_of(toml) == Texts{"f: not TOML: a key or value is malformed, at a place that the parser does not tell"});
    }
}

TEST_CASE("A file that cannot be read is a mistake", "[config]") {
    const auto only = [](const std::string& path) {
        const Loaded loaded = load_file(path);
        REQUIRE(loaded.findings.size() == 1);
        CHECK_FALSE(loaded.usable());
        return loaded.findings[0].text();
    };
    CHECK(only("/nowhere/postern.toml") ==
          "/nowhere/postern.toml: cannot be read: No such file or directory; name a readable file with --config");
    CHECK(only("/") == "/: cannot be read: Is a directory; name a readable file with --config");
}

TEST_CASE("Domains and next hops are compared in lower case", "[config]") {
    const Config config = load_text(listener + "[[route]]\ndomains = [\"Example.ORG\"]\nto = \"smtp://MX\"\n[policy]\ndomains = [\"EXAMPLE.org\"]\n", "f").config;
    CHECK(config.policy.domains == Texts{"example.org"});
    CHECK(config.routes.at(0).domains == Texts{"example.org"});
    CHECK(config.routes.at(0).to.host == "mx");
}

TEST_CASE("The explanation says who may send what where, and what it costs", "[config]") {
    const std::string text = explain(load_text(issue, "f").config);
    for (const char* sentence :
         {"Mail comes in on 127.0.0.1:2525, where this host is called mx.example.org.\n",
          "From anyone, mail for example.org and local.test is taken.\n",
          "Clients in 127.0.0.0/8 and ::1 may send to any domain that has a route.\n",
          "A message with a bare CR or LF is refused.\n",
          "Mail for local.test is written to the Maildir /var/mail/postern (route0).\n",
          "Mail for every other domain is sent by SMTP to 127.0.0.1 port 2600 over at most 20 connections (route1).\n",
          "What cannot be delivered is tried again after 1m, then at growing intervals up to 1h, for 5d in all.\n",
          "A message may have 50MiB and 1000 recipients; a header 1MiB and 100 Received fields.\n",
          "1 shard runs; each needs up to 72MiB of memory: 16MiB to receive, 32MiB for commits, 24MiB for messages being received",
          "Metrics and health are served on http://127.0.0.1:9125.\n"}) {
        INFO(text);
        CHECK(text.find(sentence) != text.npos);
    }
    CHECK(text.find("Warning") == text.npos);
    const std::string discarding = explain(load_text(listener + "[[route]]\ndomains = [\"*\"]\nto = \"discard:\"\n" + policy, "f").config);
    CHECK(discarding.find("Warning: route[0].to: mail for this route is accepted and thrown away; for measurements only\n") != discarding.npos);
}
