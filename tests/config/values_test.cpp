#include "config/values.hpp"

#include <catch2/catch.hpp>
#include <optional>

using namespace postern;
using namespace postern::config;

namespace {

template <class Value>
std::string mistake_of(const Result<Value>& result) {
    return result ? "" : result.error().text;
}

}  // namespace

TEST_CASE("Sizes are whole numbers with a binary unit, or bare octets", "[config]") {
    struct { const char* text; uint64_t bytes; } const good[] = {
        {"0", 0}, {"1500", 1500}, {"1500B", 1500}, {"10KiB", 10240}, {"64MiB", 64_MiB}, {"1GiB", 1_GiB}, {"8589934591GiB", 8589934591_GiB},
    };
    for (const auto& [text, bytes] : good) {
        INFO(text);
        REQUIRE(parse_bytes(text));
        CHECK(*parse_bytes(text) == bytes);
    }
    struct { const char* text; const char* mistake; } const bad[] = {
        {"", "\"\" is not a whole number with a unit, such as \"64MiB\""},
        {"big", "\"big\" is not a whole number with a unit, such as \"64MiB\""},
        {"-1", "\"-1\" is not a whole number with a unit, such as \"64MiB\""},
        {"10k", "\"10k\" has no unit that is known here; use B, KiB, MiB or GiB"},
        {"10MB", "\"10MB\" has no unit that is known here; use B, KiB, MiB or GiB"},
        {"1.5GiB", "\"1.5GiB\" has no unit that is known here; use B, KiB, MiB or GiB"},
        {"64 MiB", "\"64 MiB\" has no unit that is known here; use B, KiB, MiB or GiB"},
        {"8589934592GiB", "\"8589934592GiB\" is too large"},
        {"99999999999999999999", "\"99999999999999999999\" is too large"},
    };
    for (const auto& [text, mistake] : bad) {
        INFO(text);
        CHECK(mistake_of(parse_bytes(text)) == mistake);
    }
}

TEST_CASE("Times are whole numbers with a unit", "[config]") {
    struct { const char* text; Duration duration; } const good[] = {
        {"250ms", milliseconds(250)}, {"0s", seconds(0)}, {"90s", seconds(90)}, {"5m", minutes(5)}, {"1h", hours(1)}, {"5d", hours(120)},
    };
    for (const auto& [text, duration] : good) {
        INFO(text);
        REQUIRE(parse_duration(text));
        CHECK(*parse_duration(text) == duration);
    }
    struct { const char* text; const char* mistake; } const bad[] = {
        {"", "\"\" is not a whole number with a unit, such as \"30s\""},
        {"30", "\"30\" has no unit that is known here; use ms, s, m, h or d"},
        {"30min", "\"30min\" has no unit that is known here; use ms, s, m, h or d"},
        {"-5s", "\"-5s\" is not a whole number with a unit, such as \"30s\""},
        {"106752d", "\"106752d\" is too large"},
    };
    for (const auto& [text, mistake] : bad) {
        INFO(text);
        CHECK(mistake_of(parse_duration(text)) == mistake);
    }
}

TEST_CASE("Sizes and times are written so that they read back", "[config]") {
    for (const uint64_t bytes : {uint64_t{0}, uint64_t{1}, uint64_t{1023}, 1_KiB, 1536_KiB, 50_MiB, 3_GiB}) {
        INFO(bytes_text(bytes));
        CHECK(parse_bytes(bytes_text(bytes)).value() == bytes);
    }
    for (const Duration duration : {seconds(0), milliseconds(1), milliseconds(1500), seconds(90), minutes(5), hours(1), hours(48)}) {
        INFO(duration_text(duration));
        CHECK(parse_duration(duration_text(duration)).value() == duration);
    }
    CHECK(bytes_text(50_MiB) == "50MiB");
    CHECK(duration_text(hours(120)) == "5d");
}

TEST_CASE("Networks are numeric, and admit what lies inside them", "[config]") {
    const auto contains = [](const char* network, const char* address) -> std::optional<bool> {
        const auto parsed = parse_network(network);
        const auto host = config::parse_host_address(address);
        if (!parsed || !host) return std::nullopt;
        return parsed->contains(host->ipv6, host->octets.data());
    };
    struct { const char* network; const char* address; bool inside; } const table[] = {
        {"127.0.0.0/8", "127.255.0.1", true},
        {"127.0.0.0/8", "128.0.0.1", false},
        {"192.0.2.128/25", "192.0.2.127", false},
        {"192.0.2.128/25", "192.0.2.255", true},
        {"192.0.2.7", "192.0.2.7", true},
        {"192.0.2.7", "192.0.2.6", false},
        {"0.0.0.0/0", "8.8.8.8", true},
        {"0.0.0.0/0", "::1", false},
        {"::1", "::1", true},
        {"::1", "127.0.0.1", false},
        {"2001:db8::/33", "2001:db8:7fff::1", true},
        {"2001:db8::/33", "2001:db8:8000::1", false},
        {"::/0", "2001:db8::1", true},
        {"::/0", "192.0.2.7", false},
        {"::ffff:10.0.0.0/104", "10.1.2.3", true},
        {"10.0.0.0/8", "::ffff:10.1.2.3", true},
    };
    for (const auto& [network, address, inside] : table) {
        INFO(network << " " << address);
        CHECK(contains(network, address) == std::optional(inside));
    }
    CHECK(parse_network("::ffff:0:0/96").value() == parse_network("0.0.0.0/0").value());

    const uint8_t mapped[16] = {0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0xff, 0xff, 10, 1, 2, 3};
    CHECK(parse_network("10.0.0.0/8")->contains(true, mapped));

    struct { const char* text; const char* mistake; } const bad[] = {
        {"", "\"\" is not a numeric IPv4 or IPv6 address"},
        {"localhost", "\"localhost\" is not a numeric IPv4 or IPv6 address"},
        {"10.0.0/8", "\"10.0.0\" is not a numeric IPv4 or IPv6 address"},
        {"10.0.0.0/33", "the prefix of \"10.0.0.0/33\" is not between 0 and 32"},
        {"10.0.0.0/", "the prefix of \"10.0.0.0/\" is not between 0 and 32"},
        {"::/129", "the prefix of \"::/129\" is not between 0 and 128"},
        {"10.0.0.7/8", "\"10.0.0.7/8\" has bits beyond its prefix; write the network's own address, or leave the prefix off"},
    };
    for (const auto& [text, mistake] : bad) {
        INFO(text);
        CHECK(mistake_of(parse_network(text)) == mistake);
    }
}

TEST_CASE("Numeric addresses are told from everything else", "[config]") {
    for (const char* good : {"0.0.0.0", "255.255.255.255", "::", "::1", "1::", "1:2:3:4:5:6:7:8", "1::8", "fe80::1:2", "::ffff:1.2.3.4",
                             "64:ff9b::1.2.3.4", "1:2:3:4:5:6:1.2.3.4", "2001:DB8::A"}) {
        INFO(good);
        CHECK(config::parse_host_address(good));
    }
    for (const char* bad : {"", ".", "1.2.3", "1.2.3.4.5", "1.2.3.256", "01.2.3.4", "1.2.3.", "1..2.3", ":", ":::", "1:::2", "1::2::3",
                            "1:2:3:4:5:6:7", "1:2:3:4:5:6:7:8:9", "1:2:3:4:5:6:7:8::", "12345::", "g::", "1:", ":1", "::1:", "1.2.3.4::",
                            "1:2:3:4:5:6:7:1.2.3.4", "fe80::1%eth0", " ::1"}) {
        INFO(bad);
        CHECK_FALSE(config::parse_host_address(bad));
    }
    const auto address = config::parse_host_address("2001:db8::a:0");
    REQUIRE(address);
    CHECK(address->octets == std::array<uint8_t, 16>{0x20, 0x01, 0x0d, 0xb8, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0x0a, 0, 0});
    CHECK(config::parse_host_address("::ffff:127.0.0.1").value() == config::parse_host_address("127.0.0.1").value());
}

TEST_CASE("An endpoint is a numeric address with a port", "[config]") {
    for (const char* good : {"127.0.0.1:2525", "[::1]:25", "*:25", "0.0.0.0:0"}) {
        INFO(good);
        CHECK(parse_endpoint(good));
    }
    struct { const char* text; const char* mistake; } const bad[] = {
        {"127.0.0.1", "\"127.0.0.1\" has no port; write it as \"127.0.0.1:25\", \"[::1]:25\" or \"*:25\""},
        {"[::1]", "\"[::1]\" has no port; write it as \"127.0.0.1:25\", \"[::1]:25\" or \"*:25\""},
        {"localhost:25", "\"localhost\" is not a numeric IPv4 or IPv6 address"},
        {"127.0.0.1:65536", "\"65536\" is not a port between 0 and 65535"},
        {"127.0.0.1:", "\"\" is not a port between 0 and 65535"},
        {"::1:25", "\"::1:25\" is ambiguous; an IPv6 address, and only that, stands in brackets: \"[::1]:25\""},
    };
    for (const auto& [text, mistake] : bad) {
        INFO(text);
        CHECK(mistake_of(parse_endpoint(text)) == mistake);
    }
}

TEST_CASE("The most exact pattern matches a domain best", "[config]") {
    CHECK(domain_match("*", "example.org") > 0);
    CHECK(domain_match(".org", "example.org") > domain_match("*", "example.org"));
    CHECK(domain_match(".example.org", "a.example.org") > domain_match(".org", "a.example.org"));
    CHECK(domain_match("a.example.org", "a.example.org") > domain_match(".example.org", "a.example.org"));
    CHECK(domain_match("example.org", "a.example.org") == 0);
    CHECK(domain_match("example.org", "badexample.org") == 0);
    CHECK(domain_match(".example.org", "example.org") == 0);
    CHECK(domain_match(".example.org", ".example.org") == 0);
    CHECK(domain_match(".example.org", "badexample.org") == 0);
    CHECK(domain_match("", "") == 0);
}

TEST_CASE("A target says how and where mail goes", "[config]") {
    const auto target = [](const char* text) {
        const auto parsed = parse_target(text);
        REQUIRE(parsed);
        return *parsed;
    };
    CHECK(target("discard:") == Target{});
    CHECK(target("maildir:/var/mail") == Target{Target::Kind::maildir, "", 0, "/var/mail"});
    CHECK(target("maildir:./var/mail") == Target{Target::Kind::maildir, "", 0, "./var/mail"});
    CHECK(target("lmtp+unix:/run/x.sock") == Target{Target::Kind::lmtp_unix, "", 0, "/run/x.sock"});
    CHECK(target("smtp://127.0.0.1:2600") == Target{Target::Kind::smtp, "127.0.0.1", 2600, ""});
    CHECK(target("smtp://MX.example.org") == Target{Target::Kind::smtp, "mx.example.org", 25, ""});
    CHECK(target("lmtp://[::1]") == Target{Target::Kind::lmtp, "::1", 24, ""});
    CHECK(target("lmtp://[::1]:2400") == Target{Target::Kind::lmtp, "::1", 2400, ""});

    struct { const char* text; const char* mistake; } const bad[] = {
        {"", "\"\" is not a target; use \"smtp://host:port\", \"lmtp://host:port\", \"lmtp+unix:/path\", \"maildir:/path\" or \"discard:\""},
        {"maildir:", "\"maildir:\" names no folder"},
        {"maildir:/home/{user}", "\"maildir:/home/{user}\" looks like a pattern, but a Maildir's path is taken as it stands and "
                                 "placeholders are not supported; name one folder (each copy says in Delivered-To for whom it is)"},
        {"maildir:/home/%u", "\"maildir:/home/%u\" looks like a pattern, but a Maildir's path is taken as it stands and "
                             "placeholders are not supported; name one folder (each copy says in Delivered-To for whom it is)"},
        {"lmtp+unix:", "\"lmtp+unix:\" names no socket"},
        {"smtp://", "\"smtp://\" names no host"},
        {"smtp://:25", "\"smtp://:25\" names no host"},
        {"smtp://a_b", "\"a_b\" has the character \"_\", which no host name has"},
        {"smtp://300.1.1.1:25", "\"300.1.1.1\" is not an IPv4 address"},
        {"smtp://[::1:25", "\"smtp://[::1:25\" has no \"]\" behind its IPv6 address"},
        {"smtp://[127.0.0.1]:25", "\"127.0.0.1\" is not an IPv6 address"},
        {"smtp://[::1]25", "\"smtp://[::1]25\" has something other than \":port\" behind its host"},
        {"smtp://a:0", "port 0 cannot be connected to"},
        {"smtp://a:x", "\"x\" is not a port between 0 and 65535"},
    };
    for (const auto& [text, mistake] : bad) {
        INFO(text);
        CHECK(mistake_of(parse_target(text)) == mistake);
    }
}

TEST_CASE("Host names keep the form of RFC 1123", "[config]") {
    CHECK(check_host_name("mx1.Example.org"));
    CHECK(mistake_of(check_host_name("a..b")) == "\"a..b\" has an empty label");
    CHECK(mistake_of(check_host_name("example.org.")) == "\"example.org.\" has an empty label");
    CHECK(mistake_of(check_host_name("-a.b")) == "\"-a.b\" has a label that begins or ends with \"-\"");
    CHECK(mistake_of(check_host_name("a b")) == "\"a b\" has the character \" \", which no host name has");
    CHECK_FALSE(check_host_name(std::string(64, 'a')));
    CHECK(check_host_name(std::string(63, 'a')));
    CHECK_FALSE(check_host_name(std::string(63, 'a') + "." + std::string(63, 'b') + "." + std::string(63, 'c') + "." + std::string(62, 'd')));
}

TEST_CASE("A listener covers an address when a client of it would arrive there", "[config]") {
    const auto covers = [](const char* listener, const char* other) { return parse_endpoint(listener)->covers(*parse_endpoint(other)); };
    CHECK(covers("127.0.0.1:25", "127.0.0.1:25"));
    CHECK_FALSE(covers("127.0.0.1:25", "127.0.0.1:26"));
    CHECK(covers("*:25", "127.0.0.1:25"));
    CHECK(covers("*:25", "[::1]:25"));
    CHECK(covers("0.0.0.0:25", "127.0.0.1:25"));
    CHECK_FALSE(covers("0.0.0.0:25", "[::1]:25"));
    CHECK_FALSE(covers("*:25", "192.0.2.7:25"));        // perhaps ours, perhaps not: not ours to tell
}
