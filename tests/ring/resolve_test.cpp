#include "ring/resolve.hpp"

#include <algorithm>
#include <catch2/catch.hpp>

#include "ring/clock.hpp"

using namespace postern;
using ring::Resolution;
using ring::resolve_host;

namespace {

std::vector<std::string> texts(const Resolution& resolution) {
    std::vector<std::string> found;
    for (const auto& address : resolution.addresses) found.push_back(address.text());
    return found;
}

}  // namespace

TEST_CASE("localhost is found in /etc/hosts", "[ring][resolve]") {
    const Resolution resolution = resolve_host("localhost", 2525);
    REQUIRE(resolution.status == Resolution::Status::found);
    const auto found = texts(resolution);
    CHECK(std::count(found.begin(), found.end(), "127.0.0.1:2525") == 1);
    CHECK(resolution.text == "");
}

TEST_CASE("An address in text form is answered as itself", "[ring][resolve]") {
    CHECK(texts(resolve_host("192.0.2.7", 25)) == std::vector<std::string>{"192.0.2.7:25"});
    CHECK(texts(resolve_host("2001:db8::1", 25)) == std::vector<std::string>{"[2001:db8::1]:25"});
}

// Whether a server can be asked depends on the machine: with one it says NXDOMAIN (RFC 6761 §6.4), without one nobody answers.
TEST_CASE("A name that cannot exist is refused, with or without a name server, and in time", "[ring][resolve]") {
    const Monotonic start = ring::monotonic_now();
    const Resolution resolution = resolve_host("no-such-host.invalid", 25);
    CHECK(resolution.status != Resolution::Status::found);
    CHECK(resolution.addresses.empty());
    CHECK_THAT(resolution.text, Catch::StartsWith("cannot resolve no-such-host.invalid: "));
    CHECK(ring::monotonic_now() - start < seconds(12));
}

TEST_CASE("What cannot be a name is not found, without asking", "[ring][resolve]") {
    const Monotonic start = ring::monotonic_now();
    const std::string label(70, 'a');       // labels have at most 63 octets
    CHECK(resolve_host(label + ".example", 25).status == Resolution::Status::not_found);
    CHECK(resolve_host("two..dots", 25).status == Resolution::Status::not_found);
    CHECK(ring::monotonic_now() - start < seconds(1));
}
