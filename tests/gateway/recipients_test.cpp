#include "gateway/policy/recipients.hpp"

#include <catch2/catch.hpp>

#include "proto/envelope.hpp"

using namespace postern;
using gateway::RecipientPolicy;
using Judgement = RecipientPolicy::Judgement;

namespace {

config::Config configuration() {
    config::Config config;
    config.server.hostname = "mx.ours.test";
    config.policy.domains = {".sub.test", "unrouted.test", "ours.test"};
    for (const char* network : {"10.0.0.0/8", "::ffff:192.0.2.0/120", "2001:db8::/32"})
        config.policy.relay_networks.push_back(*config::parse_network(network));
    config.routes.resize(2);
    config.routes[0].domains = {"ours.test", ".sub.test"};
    config.routes[1].domains = {"elsewhere.test"};
    return config;
}

struct Recipient {
    explicit Recipient(const std::string& path) : text(path) {
        proto::PathOptions options;
        options.postmaster_allowed = true;
        const auto parsed = proto::parse_path(text, options);
        REQUIRE(parsed.error == proto::AddressError::none);
        mailbox = parsed.mailbox;
        proto::append_canonical(canonical, mailbox);
    }
    std::string text;
    proto::Mailbox mailbox;
    std::string canonical;
};

ring::SocketAddress client_at(const char* address) {
    const auto parsed = ring::parse_host_address(address);
    REQUIRE(parsed);
    return *parsed;
}

}  // namespace

TEST_CASE("The relay matrix: our domains for everybody, others for the relay networks alone", "[gateway][policy]") {
    const RecipientPolicy policy(configuration());
    constexpr Judgement accept = Judgement::accept, denied = Judgement::relay_denied, no_route = Judgement::no_route;
    struct Row {
        const char* path;
        Judgement outsider, insider;
    };
    const Row rows[] = {
        {"<a@ours.test>", accept, accept},
        {"<a@OURS.Test>", accept, accept},
        {"<a@x.sub.test>", accept, accept},
        {"<a@sub.test>", denied, no_route},
        {"<a@x.ours.test>", denied, no_route},
        {"<a@elsewhere.test>", denied, accept},
        {"<a@nowhere.test>", denied, no_route},
        {"<a@unrouted.test>", no_route, no_route},
        {"<Postmaster>", accept, accept},
        {"<postmaster@elsewhere.test>", denied, accept},
        // The local part is never looked into, and a source route is dropped.
        {"<a%elsewhere.test@ours.test>", accept, accept},
        {"<elsewhere.test!a@ours.test>", accept, accept},
        {"<\"a@elsewhere.test\"@ours.test>", accept, accept},
        {"<@elsewhere.test:a@ours.test>", accept, accept},
        {"<a%ours.test@elsewhere.test>", denied, accept},
        {"<ours.test!a@elsewhere.test>", denied, accept},
        {"<\"a@ours.test\"@elsewhere.test>", denied, accept},
        {"<@ours.test:a@elsewhere.test>", denied, accept},
        // An address literal is nobody's domain.
        {"<a@[127.0.0.1]>", denied, no_route},
        {"<a@[IPv6:::1]>", denied, no_route},
    };
    for (const Row& row : rows) {
        INFO(row.path);
        const Recipient recipient(row.path);
        CHECK(policy.judge(false, recipient.mailbox, recipient.canonical) == row.outsider);
        CHECK(policy.judge(true, recipient.mailbox, recipient.canonical) == row.insider);
    }
}

TEST_CASE("A percent or bang address goes the way of its domain, as it is", "[gateway][policy]") {
    const RecipientPolicy policy(configuration());
    for (const char* path : {"<a%elsewhere.test@ours.test>", "<elsewhere.test!a@ours.test>", "<\"a@elsewhere.test\"@ours.test>"}) {
        const Recipient recipient(path);
        CHECK("<" + recipient.canonical + ">" == path);
        CHECK(policy.route_of(recipient.canonical) == 0);
    }
}

TEST_CASE("The right to relay comes from the client's network alone", "[gateway][policy]") {
    const RecipientPolicy policy(configuration());
    for (const char* address : {"10.0.0.1", "10.255.255.255", "192.0.2.7", "2001:db8::1"}) {
        INFO(address);
        CHECK(policy.may_relay(client_at(address)));
    }
    for (const char* address : {"11.0.0.1", "9.255.255.255", "192.0.3.7", "127.0.0.1", "2001:db9::1", "::1", "a00::1"}) {
        INFO(address);
        CHECK_FALSE(policy.may_relay(client_at(address)));
    }
    CHECK_FALSE(policy.may_relay({}));          // it was gone before we could ask where it is
    ring::SocketAddress local;
    local.family = ring::SocketAddress::Family::unix_path;
    local.path = "10.0.0.1";
    CHECK_FALSE(policy.may_relay(local));
}

TEST_CASE("All of IPv4 as a relay network is not all of IPv6", "[gateway][policy]") {
    config::Config config = configuration();
    config.policy.relay_networks = {*config::parse_network("0.0.0.0/0")};
    const RecipientPolicy policy(config);
    CHECK(policy.may_relay(client_at("198.51.100.1")));
    CHECK_FALSE(policy.may_relay(client_at("2001:db8::1")));
}

TEST_CASE("The first route that names a domain best is taken", "[gateway][policy]") {
    config::Config config = configuration();
    config.routes.resize(4);
    config.routes[2].domains = {"*", "a.sub.test"};
    config.routes[3].domains = {"elsewhere.test", ".x.sub.test"};
    const RecipientPolicy policy(config);
    CHECK(policy.route_of("a@a.sub.test") == 2);
    CHECK(policy.route_of("a@b.sub.test") == 0);
    CHECK(policy.route_of("a@b.x.sub.test") == 3);
    CHECK(policy.route_of("a@elsewhere.test") == 1);
    CHECK(policy.route_of("a@[192.0.2.1]") == 2);
}

TEST_CASE("A bare postmaster goes the way of our first routed domain, or else of the host", "[gateway][policy]") {
    config::Config config = configuration();
    const Recipient postmaster("<Postmaster>");
    CHECK(RecipientPolicy(config).route_of(postmaster.canonical) == 0);     // ours.test: patterns and the unrouted are passed over
    config.policy.domains = {".sub.test"};
    CHECK(RecipientPolicy(config).judge(false, postmaster.mailbox, postmaster.canonical) == Judgement::no_route);
    config.server.hostname = "elsewhere.test";
    CHECK(RecipientPolicy(config).route_of(postmaster.canonical) == 1);
}
