#include <catch2/catch.hpp>
#include <vector>

#include "proto/client_session.hpp"
#include "ring/base/random.hpp"
#include "tests/support/seed.hpp"

using postern::Random;
using postern::proto::DotStuffer;

namespace {

// What a receiver makes of message data: the lines up to the lone dot, one leading dot removed.  `rest` is what follows.
std::string unstuffed(std::string_view data, std::string_view& rest) {
    std::string message;
    for (;;) {
        const size_t end = data.find("\r\n");
        REQUIRE(end != std::string_view::npos);
        std::string_view line = data.substr(0, end + 2);
        data.remove_prefix(end + 2);
        if (line == ".\r\n") break;
        if (line.starts_with('.')) line.remove_prefix(1);
        message.append(line);
    }
    rest = data;
    return message;
}

std::string stuffed(const std::vector<std::string_view>& pieces) {
    std::string out;
    DotStuffer stuffer;
    stuffer.begin();
    for (const std::string_view piece : pieces) stuffer.append(out, piece);
    stuffer.finish(out);
    return out;
}

std::string with_final_crlf(std::string message) {
    if (!message.empty() && !message.ends_with("\r\n")) message += "\r\n";
    return message;
}

}  // namespace

TEST_CASE("Leading dots are doubled and the terminator stands on a line of its own", "[proto][dot_stuffer]") {
    CHECK(stuffed({""}) == ".\r\n");
    CHECK(stuffed({"a\r\n"}) == "a\r\n.\r\n");
    CHECK(stuffed({"a"}) == "a\r\n.\r\n");
    CHECK(stuffed({"."}) == "..\r\n.\r\n");
    CHECK(stuffed({".\r\n"}) == "..\r\n.\r\n");
    CHECK(stuffed({"a.b\r\n.c\r\n..d\r\n.\r\n"}) == "a.b\r\n..c\r\n...d\r\n..\r\n.\r\n");
    CHECK(stuffed({"a\r"}) == "a\r\r\n.\r\n");
    CHECK(stuffed({"a\n.b\r\n"}) == "a\n.b\r\n.\r\n");
}

TEST_CASE("Stuffing does not depend on where the message is split", "[proto][dot_stuffer]") {
    const std::string_view message = ".a\r\n..\r\n.\r\nb.\r\r\n.\r\n\r\n.c\n.d\r.e";
    const std::string whole = stuffed({message});
    for (size_t first = 0; first <= message.size(); ++first) {
        for (size_t second = first; second <= message.size(); ++second) {
            CHECK(stuffed({message.substr(0, first), message.substr(first, second - first), message.substr(second)}) == whole);
        }
    }
}

TEST_CASE("Stuffed output parses back as exactly the one message", "[proto][dot_stuffer]") {
    const uint64_t seed = postern::test::seed();
    CAPTURE(seed);
    Random random(seed);
    static constexpr std::string_view tokens[] = {"\r\n", "\r\n", ".", ".", "\r\n.\r\n", "x", "\r", "\n", "line of text"};
    for (int round = 0; round < 20'000; ++round) {
        std::string message;
        for (uint64_t n = random.below(12); n > 0; --n) message += tokens[random.below(std::size(tokens))];
        std::vector<std::string_view> pieces;
        for (std::string_view rest = message; !rest.empty();) {
            pieces.push_back(rest.substr(0, 1 + random.below(6)));
            rest.remove_prefix(pieces.back().size());
        }
        const std::string out = stuffed(pieces);
        std::string_view rest;
        REQUIRE(unstuffed(out, rest) == with_final_crlf(message));
        REQUIRE(rest.empty());
    }
}

TEST_CASE("Passed octets count for the missing final CRLF as appended ones do", "[proto][dot_stuffer]") {
    const std::string_view message = "a\r\nb.c\r\n";
    for (size_t bytes = 0; bytes <= message.size(); ++bytes) {
        for (size_t at = 0; at <= bytes; ++at) {
            std::string out;
            DotStuffer stuffer;
            stuffer.begin();
            for (const std::string_view piece : {message.substr(0, at), message.substr(at, bytes - at)}) {
                stuffer.passed(piece);
                out.append(piece);
            }
            stuffer.finish(out);
            CHECK(out == stuffed({message.substr(0, bytes)}));
        }
    }
}
