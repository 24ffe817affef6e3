#include "proto/address.hpp"

#include <catch2/catch.hpp>

using namespace postern::proto;

namespace {

const PathOptions sender{.smtputf8 = true, .null_allowed = true};
const PathOptions recipient{.smtputf8 = true, .postmaster_allowed = true};

AddressError error_of(std::string_view path, const PathOptions& options = recipient) {
    return parse_path(path, options).error;
}

std::string canonical(std::string_view path) {
    const PathResult result = parse_path(path, recipient);
    REQUIRE(result.error == AddressError::none);
    std::string out;
    append_canonical(out, result.mailbox);
    return out;
}

}  // namespace

TEST_CASE("A path is a mailbox in brackets, and what follows is left alone", "[proto][address]") {
    const PathResult result = parse_path("<user@Example.ORG> SIZE=1", sender);
    CHECK(result.error == AddressError::none);
    CHECK(result.mailbox.local_part == "user");
    CHECK(result.mailbox.domain == "Example.ORG");
    CHECK(result.consumed == 18);
}

TEST_CASE("Well-formed paths", "[proto][address]") {
    for (const char* path :
         {"<a@b>", "<a.b+c=d@x-y.example>", "<\"odd user\"@local.test>", "<\"a@b\"@local.test>",
          "<\"a\\\"b>\"@local.test>", "<\"\"@local.test>", "<u@[192.0.2.1]>", "<u@[IPv6:2001:db8::1]>",
          "<u@[IPv6:::ffff:192.0.2.1]>", "<u@[IPv6:::]>", "<u@[IPv6:1:2:3:4:5:6:7:8]>", "<@a.test,@b.test:u@c.test>",
          "<postMASTER>", "<u_@_x.test>", "<\xc3\xbc@d\xc3\xbc.test>"}) {
        INFO(path);
        CHECK(error_of(path) == AddressError::none);
    }
}

TEST_CASE("Malformed paths", "[proto][address]") {
    for (const char* path : {"",
                             "<",
                             ">",
                             "a@b",
                             "<a@b",
                             "<a>",
                             "<@b>",
                             "<a@>",
                             "<a@@b>",
                             "<a@b@c>",
                             "<a b@c>",
                             "<a@b c>",
                             "<.a@b>",
                             "<a.@b>",
                             "<a..b@c>",
                             "<a@b.>",
                             "<a@.b>",
                             "<a@b..c>",
                             "<a@-b>",
                             "<a@b->",
                             "<\"a@b>",
                             "<\"a\"b@c>",
                             "<a\"b\"@c>",
                             "<\"a\">",
                             "<a@[1.2.3]>",
                             "<a@[1.2.3.4.5]>",
                             "<a@[1.2.3.256]>",
                             "<a@[IPv6:]>",
                             "<a@[IPv6:1:2]>",
                             "<a@[IPv6:1::2::3]>",
                             "<a@[IPv6::1]>",
                             "<a@[IPv6:1:2:3:4:5:6:7:8:9]>",
                             "<a@[IPv6:1:]>",
                             "<a@[x:y]>",
                             "<a@[]>",
                             "<a@[1.2.3.4>",
                             "<a,b@c>",
                             "<a@b,c@d>",
                             "<@a:>",
                             "<@a,b@c>",
                             "<@:u@c>",
                             "<a<b@c>",
                             "<(x)a@b>"}) {
        INFO(path);
        CHECK(error_of(path) == AddressError::syntax);
    }
}

TEST_CASE("The null path is a sender only, the bare Postmaster a recipient only", "[proto][address]") {
    CHECK(error_of("<>", sender) == AddressError::none);
    CHECK(parse_path("<>", sender).mailbox.null_path);
    CHECK(error_of("<>", recipient) == AddressError::syntax);
    CHECK(error_of("<postmaster>", sender) == AddressError::syntax);
}

TEST_CASE("Lengths are held to RFC 5321", "[proto][address]") {
    const auto path = [](size_t local, size_t label) {
        return "<" + std::string(local, 'l') + "@" + std::string(label, 'a') + "." + std::string(label, 'b') + "." +
               std::string(label, 'c') + ">";
    };
    CHECK(error_of(path(64, 62)) == AddressError::none);        // 64 + 1 + 188
    CHECK(error_of(path(65, 10)) == AddressError::too_long);
    CHECK(error_of(path(10, 64)) == AddressError::syntax);      // a label of 64
    CHECK(error_of("<a@" + std::string(300, 'x') + ">") == AddressError::too_long);
    CHECK(error_of(path(64, 63)) == AddressError::too_long);    // 258 with the brackets
}

TEST_CASE("Control octets and broken UTF-8 are told apart from bad syntax", "[proto][address]") {
    using namespace std::string_literals;
    CHECK(error_of("<a\0b@c>"s) == AddressError::control);
    CHECK(error_of("<a\x7f@c>") == AddressError::control);
    CHECK(error_of("<\"a\tb\"@c>") == AddressError::control);
    for (const char* bad :
         {"<\xc3@c>", "<\xc0\xaf@c>", "<\xed\xa0\x80@c>", "<\xf4\x90\x80\x80@c>", "<\xe2\x82@c>", "<\x80@c>"})
        CHECK(error_of(bad) == AddressError::bad_utf8);
}

TEST_CASE("UTF-8 needs to be asked for", "[proto][address]") {
    const PathResult result = parse_path("<\xc3\xbc@c.test>", {.postmaster_allowed = true});
    CHECK(result.error == AddressError::not_ascii);
    CHECK(result.utf8);
}

TEST_CASE("Without brackets only where allowed", "[proto][address]") {
    CHECK(parse_path("a@b SIZE=1", {.brackets_needed = false}).consumed == 3);
    CHECK(error_of("a@b") == AddressError::syntax);
}

TEST_CASE("The canonical form quotes only what must be and lowers the domain", "[proto][address]") {
    CHECK(canonical("<\"r\"@Local.TEST>") == "r@local.test");
    CHECK(canonical("<\"\\r\\x\"@b>") == "rx@b");
    CHECK(canonical("<\"a b\"@c>") == "\"a b\"@c");
    CHECK(canonical("<\"a\\\"b\\\\\"@c>") == "\"a\\\"b\\\\\"@c");
    CHECK(canonical("<\"\"@c>") == "\"\"@c");
    CHECK(canonical("<PostMaster>") == "postmaster");
    CHECK(canonical("<U@[ipv6:2001:DB8::1]>") == "U@[IPv6:2001:db8::1]");
    CHECK(canonical("<@a,@b:c@D>") == "c@d");
}
