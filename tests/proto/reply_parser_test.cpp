#include "proto/reply_parser.hpp"

#include <catch2/catch.hpp>
#include <vector>

#include "ring/base/random.hpp"
#include "tests/support/seed.hpp"

using postern::Random;
using postern::proto::ReplyParser;

namespace {

using Status = ReplyParser::Status;

// Everything that `pieces` hold, one string a reply: "code|enhanced|text", malformed ones as "malformed|line".
std::vector<std::string> replies(const std::vector<std::string_view>& pieces) {
    ReplyParser parser;
    std::vector<std::string> found;
    for (std::string_view octets : pieces) {
        while (!octets.empty()) {
            size_t consumed = 0;
            const Status status = parser.feed(octets, consumed);
            REQUIRE(consumed > 0);
            octets.remove_prefix(consumed);
            const auto& reply = parser.reply();
            if (status == Status::more) {
                REQUIRE(octets.empty());
            } else if (status == Status::malformed) {
                CHECK(reply.code == 0);
                found.push_back("malformed|" + std::string(reply.text));
            } else {
                found.push_back(std::to_string(reply.code) + "|" + std::string(reply.enhanced) + "|" + std::string(reply.text));
            }
        }
    }
    return found;
}

struct Row {
    std::string_view octets;
    std::vector<std::string> expected;
};

const Row rows[] = {
    {"250 2.1.0 Ok\r\n", {"250|2.1.0|Ok"}},
    {"250\r\n", {"250||"}},
    {"250 \r\n", {"250||"}},
    {"250 2.0.0\r\n", {"250|2.0.0|"}},
    {"250 Ok\n", {"250||Ok"}},
    {"220 mx.example.net ESMTP\r\n250 ok\r\n", {"220||mx.example.net ESMTP", "250||ok"}},
    {"250-mx\r\n250-SIZE 1000\r\n250 PIPELINING\r\n", {"250||mx\nSIZE 1000\nPIPELINING"}},
    {"550-5.1.1 no such\r\n550 5.1.1 user\r\n", {"550|5.1.1|no such\nuser"}},
    {"550-5.1.1 first\r\n550 5.7.1 last\r\n", {"550|5.7.1|first\nlast"}},
    {"250-\r\n250-\r\n250\r\n", {"250||\n\n"}},
    {"354 3.0.0 go\r\n", {"354||3.0.0 go"}},                   // no enhanced codes in 3xx
    {"550 4.1.1 wrong class\r\n", {"550||4.1.1 wrong class"}},
    {"550 5.1.1234 no code\r\n", {"550||5.1.1234 no code"}},
    {"550 5.1 no code\r\n", {"550||5.1 no code"}},
    {"550 5.123.456 long\r\n", {"550|5.123.456|long"}},
    {"550 a\tb\x01\x7f\r\r\n", {"550||a?b???"}},                // control octets, the lone CR too
    {"550 gr\xc3\xbc\xc3\x9f\r\n", {"550||gr\xc3\xbc\xc3\x9f"}},
    {"550 \xff\xc3 \xc0\x80 \xed\xa0\x80 \xc2\x9b\r\n", {"550||?? ?? ??? ??"}},     // not UTF-8, overlong, surrogate, C1
    {"\r\n", {"malformed|"}},
    {"25\r\n", {"malformed|25"}},
    {"250x\r\n", {"malformed|250x"}},
    {"150 early\r\n", {"malformed|150 early"}},
    {"650 late\r\n", {"malformed|650 late"}},
    {"2a0 ok\r\n", {"malformed|2a0 ok"}},
    {"SSH-2.0-x\x1b[1m\r\n", {"malformed|SSH-2.0-x?[1m"}},
    {"250-a\r\n550 b\r\n", {"malformed|550 b"}},                // §4.2.1
    {"garbage\r\n250 ok\r\n", {"malformed|garbage", "250||ok"}},
};

}  // namespace

TEST_CASE("A reply is read as code, enhanced code and printable text", "[proto][reply_parser]") {
    for (const Row& row : rows) {
        CAPTURE(std::string(row.octets));
        CHECK(replies({row.octets}) == row.expected);
    }
}

TEST_CASE("Replies are the same however their octets are split", "[proto][reply_parser]") {
    for (const Row& row : rows) {
        CAPTURE(std::string(row.octets));
        for (size_t at = 1; at < row.octets.size(); ++at) {
            CHECK(replies({row.octets.substr(0, at), row.octets.substr(at)}) == row.expected);
        }
        std::vector<std::string_view> single;
        for (size_t at = 0; at < row.octets.size(); ++at) single.push_back(row.octets.substr(at, 1));
        CHECK(replies(single) == row.expected);
    }
}

TEST_CASE("A long line is cut at the same octet however it is split", "[proto][reply_parser]") {
    for (const size_t bytes : {ReplyParser::line_bytes_max - 1, ReplyParser::line_bytes_max, ReplyParser::line_bytes_max + 1,
                               ReplyParser::line_bytes_max + 2, size_t{100'000}}) {
        CAPTURE(bytes);
        const std::string line = "550 " + std::string(bytes - 4, 'x') + "\r\n";
        const auto whole = replies({line});
        const std::string expected = "550||" + std::string(std::min(bytes, ReplyParser::line_bytes_max) - 4, 'x');
        CHECK(whole == std::vector{expected});
        const std::string_view view = line;
        for (const size_t at : {size_t{1}, bytes / 2, bytes - 1, bytes, bytes + 1}) {
            CHECK(replies({view.substr(0, at), view.substr(at)}) == whole);
        }
    }
}

TEST_CASE("A text is cut at 16 KiB, and never inside a character", "[proto][reply_parser]") {
    std::string octets;
    for (int line = 0; line < 20; ++line) {
        octets += line < 19 ? "250-x" : "250 x";
        for (int i = 0; i < 500; ++i) octets += "\xc3\xbc";
        octets += "\r\n";
    }
    ReplyParser parser;
    size_t consumed = 0;
    REQUIRE(parser.feed(octets, consumed) == Status::reply);
    CHECK(consumed == octets.size());
    const std::string_view text = parser.reply().text;
    CHECK(text.size() <= ReplyParser::text_bytes_max);
    CHECK(text.size() >= ReplyParser::text_bytes_max - 1);
    CHECK(text.find('?') == std::string_view::npos);
    CHECK(text.ends_with("\xc3\xbc"));
}

TEST_CASE("A reply of a thousand lines is taken, one line more is not", "[proto][reply_parser]") {
    std::string octets;
    for (uint32_t line = 1; line < ReplyParser::lines_max; ++line) octets += "250-x\r\n";
    ReplyParser parser;
    size_t consumed = 0;
    CHECK(parser.feed(octets + "250 x\r\n", consumed) == Status::reply);
    CHECK(parser.feed(octets + "250-x\r\n250 x\r\n", consumed) == Status::malformed);
}

TEST_CASE("Random octets give the same replies in one piece and in many", "[proto][reply_parser]") {
    const uint64_t seed = postern::test::seed();
    CAPTURE(seed);
    Random random(seed);
    static constexpr std::string_view alphabet = "2455-- ..0123\r\n\n\xc3\xbcx";
    for (int round = 0; round < 3000; ++round) {
        std::string octets;
        for (uint64_t n = random.below(80); n > 0; --n) {
            if (random.below(3) == 0) octets += random.below(2) ? "250-" : "550 5.1.1 ";
            octets += alphabet[random.below(alphabet.size())];
        }
        octets += "\r\n";
        std::vector<std::string_view> pieces;
        for (std::string_view rest = octets; !rest.empty();) {
            pieces.push_back(rest.substr(0, 1 + random.below(9)));
            rest.remove_prefix(pieces.back().size());
        }
        REQUIRE(replies({octets}) == replies(pieces));
    }
}
