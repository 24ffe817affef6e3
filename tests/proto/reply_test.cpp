#include "proto/reply.hpp"

#include <catch2/catch.hpp>

using namespace postern::proto;

namespace {
std::string written(const Reply& reply) {
    std::string out;
    write_reply(out, reply);
    return out;
}
}  // namespace

TEST_CASE("A reply is its code, enhanced code and text", "[proto][reply]") {
    CHECK(written({250, "2.1.0", "Sender OK"}) == "250 2.1.0 Sender OK\r\n");
    CHECK(written({354, {}, "Go on"}) == "354 Go on\r\n");
    CHECK(written({250, "2.0.0", {}}) == "250 2.0.0\r\n");
    CHECK(written({250, {}, {}}) == "250\r\n");
}

TEST_CASE("Each line of a long reply has the code and the enhanced code", "[proto][reply]") {
    CHECK(written({550, "5.7.1", "No.\nReally\nno"}) == "550-5.7.1 No.\r\n550-5.7.1 Really\r\n550 5.7.1 no\r\n");
    CHECK(written({250, {}, "mx\nSIZE 1"}) == "250-mx\r\n250 SIZE 1\r\n");
}

TEST_CASE("A reply line has 512 octets at most", "[proto][reply]") {
    const std::string line = written({250, "2.0.0", std::string(2000, 'x')});
    CHECK(line.size() == 512);
    CHECK(line.substr(510) == "\r\n");
}

TEST_CASE("A cut never falls inside a UTF-8 sequence", "[proto][reply]") {
    std::string text(499, 'x');
    text += "\xc3\xbc\xc3\xbc";
    const std::string line = written({250, "2.0.0", text});
    CHECK(line.size() == 511);
    CHECK(line.substr(line.size() - 3) == "x\r\n");
}

TEST_CASE("Control octets cannot break out of a reply", "[proto][reply]") {
    using namespace std::string_literals;
    CHECK(written({550, "5.1.1", "a\rb\tc\0d\x7f"s}) == "550 5.1.1 a?b?c?d?\r\n");
}
