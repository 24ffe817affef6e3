#include "proto/framer.hpp"

#include <catch2/catch.hpp>

#include <cstdlib>
#include <random>
#include <vector>

#include "proto/octet_masks.hpp"
#include "ring/base/random.hpp"
#include "tests/proto/framer_reference.hpp"

using namespace postern;
using namespace postern::proto;
using namespace postern::proto::test;

namespace {

uint64_t seed_of_this_run() {
    if (const char* given = std::getenv("POSTERN_TEST_SEED")) return std::strtoull(given, nullptr, 10);
    return std::random_device{}();
}

// What decides about the first line: names around their limit, and what may stand between a name and its colon.
std::string random_beginning(Random& random) {
    static constexpr std::string_view between[] = {"", " ", "\t", "\r", "\n", "\r\n", "  ", " \r", "\x7f", "\xe4"};
    switch (random.below(4)) {
        case 0:
            return {};
        case 1:
            return "Subject: t\r\n";
        case 2:
            return std::string(random.below(4), 'n').append(between[random.below(std::size(between))]) + ":";
        default:
            return std::string(74 + random.below(5), 'n').append(between[random.below(std::size(between))]) + ":";
    }
}

// Octets that matter often, filled up with what does not.
std::string random_input(Random& random, size_t bytes) {
    static constexpr std::string_view pieces[] = {
        "\r\n", "\r", "\n", ".",  ".\r\n", "\r\n.", " ",        "\t",      "Received:", "received",
        "r",    "a",  ":",  " :", "X:",    "\xe4",  "\r\n\r\n", "\r\n.\r", "..",        std::string_view("\0", 1)};
    std::string input = random_beginning(random);
    while (input.size() < bytes) {
        if (random.below(3) == 0) input.append(random.below(100), 'x');
        input += pieces[random.below(std::size(pieces))];
    }
    if (random.below(2)) input += "\r\n.\r\nNOOP\r\n";
    return input;
}

void expect_same(const Framed& framed, const Framed& wanted) {
    CHECK(framed.octets == wanted.octets);
    CHECK(framed.consumed == wanted.consumed);
    CHECK(framed.ended == wanted.ended);
    CHECK(same_facts(framed.facts, wanted.facts));
}

Framed whole(std::string_view input, bool data = true, BareNewline policy = BareNewline::reject) {
    return frame(input, data, policy, [&] { return input.size(); });
}

}  // namespace

TEST_CASE("Data ends at CRLF.CRLF, and what follows is not consumed", "[proto][framer]") {
    const Framed framed = whole("Subject: t\r\n\r\nx\r\n.\r\nNOOP\r\n");
    CHECK(framed.ended);
    CHECK(framed.octets == "Subject: t\r\n\r\nx\r\n");
    CHECK(framed.consumed == 20);
}

TEST_CASE("The CRLF of the DATA line is the first of the terminator", "[proto][framer]") {
    const Framed framed = whole(".\r\nNOOP\r\n");
    CHECK(framed.ended);
    CHECK(framed.octets.empty());
    CHECK(framed.consumed == 3);
    CHECK(framed.facts.ends_with_crlf);
}

TEST_CASE("No other sequence ends data", "[proto][framer]") {
    for (const char* end :
         {"\n.\n", "\n.\r\n", "\r\n.\n", "\r.\r", "\n.\r", "\r.\r\n", "\r\n.\r", "\r\n.\r\r\n", "\r\n. \r\n"}) {
        for (const BareNewline policy : {BareNewline::reject, BareNewline::normalize}) {
            const std::string input = "body" + std::string(end) + "more";
            CHECK_FALSE(whole(input, true, policy).ended);
        }
    }
}

TEST_CASE("A chunk is exactly its octets, dots and terminators included", "[proto][framer]") {
    DataFramer framer;
    CollectingSink sink;
    framer.begin_message(BareNewline::reject);
    framer.begin_chunk(6);
    CHECK(framer.feed("\r\n.\r\nxQUIT\r\n", sink) == 6);
    CHECK(framer.ended());
    framer.begin_chunk(0);
    CHECK(framer.ended());
    framer.finish_message(sink);
    CHECK(sink.octets == "\r\n.\r\nx");
    CHECK(framer.facts().dot_line);
    CHECK_FALSE(framer.facts().ends_with_crlf);
}

TEST_CASE("Hops are counted in the header only, at line starts, in any case", "[proto][framer]") {
    const Framed framed = whole(
        "Received: a\r\nrECEIVED:b\r\nX: Received: c\r\n Received: d\r\nReceived-SPF: e\r\n\r\nReceived: f\r\n.\r\n");
    CHECK(framed.facts.received_fields == 2);
    CHECK(framed.facts.header_ended);
}

TEST_CASE("NUL is noted in the header and not in the body", "[proto][framer]") {
    using namespace std::string_literals;
    CHECK(whole("a: \0b\r\n\r\nx\r\n.\r\n"s).facts.nul_in_header);
    CHECK_FALSE(whole("a: b\r\n\r\nx\0\r\n.\r\n"s).facts.nul_in_header);
}

TEST_CASE("A message that does not begin with a header field is parted from our trace field", "[proto][framer]") {
    using namespace std::string_literals;
    const std::string longest(76, 'n');
    const std::string inputs[] = {" x: y\r\n",
                                  "\tx\r\n",
                                  "hello world\r\nx\r\n",
                                  "hello\r\n",
                                  "From alice Mon Jan  1 00:00:00 2024\r\nX: y\r\n",
                                  ": x\r\n",
                                  " : x\r\n",
                                  "name  : x\r\n",
                                  "n\xe4me: x\r\n",
                                  "n\0me: x\r\n"s,
                                  "n\x7fme: x\r\n",
                                  longest + "n: x\r\n",
                                  longest + "\r\n",
                                  longest + "  : x\r\n",
                                  "\nX: y\r\n",
                                  "n\nX: y\r\n",
                                  "n\r: y\r\n",
                                  "\rX: y\r\n"};
    for (const std::string& input : inputs) {
        INFO(input);
        const Framed framed = whole(input + ".\r\n");
        CHECK(framed.facts.parted_from_trace);
        CHECK(framed.octets == "\r\n" + input);
        CHECK(framed.facts.bytes == framed.octets.size());
        CHECK(framed.facts.header_ended);
        CHECK(framed.facts.header_bytes == 2);
    }
    CHECK(whole(". x\r\n.\r\n").octets == "\r\n x\r\n");  // the dot is stuffing, the blank comes first
    CHECK(whole("..\r\n.\r\n").octets == "\r\n.\r\n");
}

TEST_CASE("A message that begins with a header field, or an empty line, passes as it is", "[proto][framer]") {
    const std::string longest(76, 'n');
    const std::string inputs[] = {"Subject: x\r\n",     "s:\r\n",
                                  "name : x\r\n",       "name\t:x\r\n",
                                  "!#.~\"@,;:\r\n",     longest + ": x\r\n",
                                  longest + " : x\r\n", "\r\n",
                                  "\r\nhello\r\n",      ""};
    for (const std::string& input : inputs) {
        INFO(input);
        const Framed framed = whole(input + ".\r\n");
        CHECK_FALSE(framed.facts.parted_from_trace);
        CHECK(framed.octets == input);
    }
    CHECK(whole("..x: y\r\n.\r\n").octets == ".x: y\r\n");
}

TEST_CASE("What the first line is, is judged after newlines were normalized", "[proto][framer]") {
    const auto octets = [](std::string_view input) { return whole(input, true, BareNewline::normalize).octets; };
    CHECK(octets("name\r: x\r\n.\r\n") == "name : x\r\n");
    CHECK(octets(std::string(76, 'n') + "\r: x\r\n.\r\n") == std::string(76, 'n') + " : x\r\n");
    CHECK(octets("name \r: x\r\n.\r\n") == "\r\nname  : x\r\n");
    CHECK(octets("name\n: x\r\n.\r\n") == "\r\nname\r\n: x\r\n");
    CHECK(octets("\nhello\r\n.\r\n") == "\r\nhello\r\n");
    CHECK(octets(".\nhello\r\n.\r\n") == "\r\nhello\r\n");
}

TEST_CASE("A message parted from our trace field has no header", "[proto][framer]") {
    using namespace std::string_literals;
    const Framed framed = whole("hello \0\r\nReceived: a\r\n\r\nReceived: b\r\n.\r\n"s);
    CHECK(framed.facts.received_fields == 0);
    CHECK_FALSE(framed.facts.nul_in_header);
    CHECK(framed.facts.header_bytes == 2);
}

TEST_CASE("A message that ends while its first line may still be a header field is parted", "[proto][framer]") {
    for (const std::string input : {"a", "Subject", "Subject ", "\r"}) {
        const Framed framed = frame(input, false, BareNewline::reject, [] { return 1; });
        CHECK(framed.octets == "\r\n" + input);
        CHECK(framed.facts.parted_from_trace);
        CHECK(framed.facts.bytes == framed.octets.size());
        CHECK_FALSE(framed.facts.ends_with_crlf);
    }
    CHECK(frame("Subject\r", false, BareNewline::normalize, [] { return 1; }).octets == "\r\nSubject ");
    CHECK(frame("", false, BareNewline::reject, [] { return 1; }).octets.empty());
}

TEST_CASE("The first line is withheld until it is known what it is, over any number of chunks", "[proto][framer]") {
    DataFramer framer;
    CollectingSink sink;
    framer.begin_message(BareNewline::reject);
    const std::string withheld = std::string(field_name_bytes_max, 'n') + " ";
    uint64_t bytes = 0;
    for (const char octet : withheld) {
        framer.begin_chunk(1);
        CHECK(framer.feed({&octet, 1}, sink) == 1);
        CHECK(sink.octets.empty());
        CHECK(framer.facts().bytes == ++bytes);
    }
    framer.begin_chunk(1);
    framer.feed(":", sink);
    CHECK(sink.octets == withheld + ":");
    CHECK(framer.facts().bytes == sink.octets.size());
}

TEST_CASE("A message whose first line is known within one buffer is given out without a copy", "[proto][framer]") {
    struct Slices final : DataSink {
        void on_data(std::string_view slice) override { slices.push_back(slice); }
        std::vector<std::string_view> slices;
    };
    const std::string inputs[] = {"Subject: t\r\n\r\nx\r\n", "hello world\r\nx\r\n", "\r\nx\r\n",
                                  std::string(100, 'n') + "\r\n"};
    for (const std::string& input : inputs) {
        INFO(input);
        for (const BareNewline policy : {BareNewline::reject, BareNewline::normalize}) {
            DataFramer framer;
            Slices sink;
            framer.begin_data(policy);
            framer.feed(input, sink);
            CHECK(sink.slices.size() == (framer.facts().parted_from_trace ? 2 : 1));
            CHECK(sink.slices.back().data() == input.data());
            CHECK(sink.slices.back().size() == input.size());
        }
    }
}

TEST_CASE("A lone CR that becomes a leading blank ends the header before the NUL behind it", "[proto][framer]") {
    using namespace std::string_literals;
    const Framed framed = whole("\r\0x\r\n.\r\n"s, true, BareNewline::normalize);
    CHECK(framed.octets == "\r\n \0x\r\n"s);
    CHECK(framed.facts.parted_from_trace);
    CHECK_FALSE(framed.facts.nul_in_header);  // found by seed 2487181993
}

TEST_CASE("A message with stuffed dots needs stuffing again only where the dot remains", "[proto][framer]") {
    CHECK_FALSE(whole("\r\n.x\r\n.\r\n").facts.dot_line);
    CHECK(whole("\r\n..x\r\n.\r\n").facts.dot_line);
    CHECK(whole(".\n.x", true, BareNewline::normalize).facts.dot_line);
}

TEST_CASE("However the input is split, the octets and the facts are those of the reference", "[proto][framer]") {
    const uint64_t seed = seed_of_this_run();
    INFO("POSTERN_TEST_SEED=" << seed);
    Random random(seed);
    for (int round = 0; round < 3000; ++round) {
        const std::string octets = random_input(random, random.below(round % 10 ? 40 : 600));
        INFO("round " << round << ": " << octets);
        for (const bool data : {true, false}) {
            // Data that has not ended may end in octets that wait for the next one; the reference does not know
            // waiting.
            const std::string input = data ? octets + "\r\n.\r\n" : octets;
            for (const BareNewline policy : {BareNewline::reject, BareNewline::normalize}) {
                const Framed wanted = reference_frame(input, data, policy);
                expect_same(frame(input, data, policy, [&] { return input.size(); }), wanted);
                expect_same(frame(input, data, policy, [] { return 1; }), wanted);
                const uint64_t largest = 1 + random.below(100);
                expect_same(frame(input, data, policy, [&] { return 1 + random.below(largest); }), wanted);
            }
        }
    }
}

TEST_CASE("Every cut in two of a message gives the same", "[proto][framer]") {
    const std::string rest = "\r\n\r\n..b\r\n" + std::string(70, 'x') + "\r\n.c\r\rd\n\r\n.\r\nNOOP";
    for (const char* first :
         {"Received: a", "Received : a", "hello world", "From a b", "..name\r: x", ". x", "\rx", "\n"}) {
        const std::string input = first + rest;
        INFO(first);
        for (const bool data : {true, false}) {
            for (const BareNewline policy : {BareNewline::reject, BareNewline::normalize}) {
                const Framed wanted = reference_frame(input, data, policy);
                for (size_t cut = 1; cut < input.size(); ++cut) {
                    size_t next = cut;
                    expect_same(frame(input, data, policy, [&] { return std::exchange(next, input.size()); }), wanted);
                }
            }
        }
    }
}

TEST_CASE("The vector masks and the portable ones are the same", "[proto][framer]") {
    const uint64_t seed = seed_of_this_run();
    INFO("POSTERN_TEST_SEED=" << seed);
    Random random(seed);
    static constexpr char octets[] = {'\r', '\n', '.', '\0', 'a', '\x7f', '\x80', '\xff'};
    for (int round = 0; round < 2000; ++round) {
        char block[mask_block_bytes];
        for (char& octet : block)
            octet = round % 2 ? octets[random.below(sizeof octets)] : static_cast<char>(random.next());
        const OctetMasks vector = Masks::of<true>(block);
        const OctetMasks portable = PortableMasks::of<true>(block);
        REQUIRE(vector.cr == portable.cr);
        REQUIRE(vector.lf == portable.lf);
        REQUIRE(vector.dot == portable.dot);
        REQUIRE(vector.nul == portable.nul);
        REQUIRE(vector.high == portable.high);
    }
}
