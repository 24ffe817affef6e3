#include "proto/trace.hpp"

#include <catch2/catch.hpp>

using namespace postern;
using namespace postern::proto;

namespace {

std::string date(int64_t unix_seconds) {
    std::string out;
    append_date(out, Wall{unix_seconds * 1'000'000'000});
    return out;
}

TraceFacts facts() {
    return {.helo = "client.example",
            .client_address = "192.0.2.7",
            .hostname = "mx.local.test",
            .queue_id = "1A",
            .single_recipient = {},
            .received = Wall{1788609600'000'000'000}};
}

std::string field(const TraceFacts& given) {
    std::string out;
    append_received(out, given);
    return out;
}

}  // namespace

TEST_CASE("Dates are RFC 5322, in UTC", "[proto][trace]") {
    CHECK(date(0) == "Thu, 01 Jan 1970 00:00:00 +0000");
    CHECK(date(951782400) == "Tue, 29 Feb 2000 00:00:00 +0000");
    CHECK(date(1788609600) == "Sat, 05 Sep 2026 12:00:00 +0000");
    CHECK(date(4107542399) == "Sun, 28 Feb 2100 23:59:59 +0000");
    CHECK(date(4107542400) == "Mon, 01 Mar 2100 00:00:00 +0000");
    CHECK(date(-1) == "Wed, 31 Dec 1969 23:59:59 +0000");
}

TEST_CASE("The trace field names the client, us, the id and the date", "[proto][trace]") {
    CHECK(field(facts()) ==
          "Received: from client.example ([192.0.2.7])\r\n\tby mx.local.test with ESMTP id 1A;\r\n"
          "\tSat, 05 Sep 2026 12:00:00 +0000\r\n");
}

TEST_CASE("The only recipient is named, and IPv6 is tagged", "[proto][trace]") {
    TraceFacts given = facts();
    given.single_recipient = "r@local.test";
    given.client_address = "2001:db8::1";
    given.client_is_ipv6 = true;
    CHECK(field(given) ==
          "Received: from client.example ([IPv6:2001:db8::1])\r\n\tby mx.local.test with ESMTP id 1A\r\n"
          "\tfor <r@local.test>; Sat, 05 Sep 2026 12:00:00 +0000\r\n");
}

TEST_CASE("The protocol is named as it was spoken", "[proto][trace]") {
    TraceFacts given = facts();
    given.esmtp = false;
    CHECK(field(given).find(" with SMTP id") != std::string::npos);
    given.esmtp = given.smtputf8 = true;
    CHECK(field(given).find(" with UTF8SMTP id") != std::string::npos);
}
