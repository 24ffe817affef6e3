// What dialogues (client_dialogues_test.cpp) do not show: what is refused without asking, the parameters of MAIL, waits,
// bodies under way, windows.
#include "proto/client_session.hpp"

#include <catch2/catch.hpp>

#include "proto/capabilities.hpp"
#include "tests/support/client_driver.hpp"

using namespace postern;
using postern::proto::BodyType;
using postern::test::ClientDriver;
using postern::test::TestMessage;
using Events = std::vector<std::string>;

namespace {

proto::ClientSettings settings_of(bool lmtp = false) {
    proto::ClientSettings settings;
    settings.hostname = "me.test";
    settings.lmtp = lmtp;
    return settings;
}

// A driver that has been told what the next hop offers, and has sent its first message.
struct Connected {
    explicit Connected(TestMessage message, std::vector<std::string> offered, proto::ClientSettings settings = settings_of())
        : driver(settings, {std::move(message)}) {
        driver.quit_when_done = false;
        driver.feed("220 mx.test\r\n");
        driver.out.clear();
        for (const std::string& keyword : offered) driver.feed("250-" + keyword + "\r\n");
        driver.feed("250 HELP\r\n");
        REQUIRE(driver.events.front() == "ready");
        driver.events.erase(driver.events.begin());
    }
    std::string taken() { return std::exchange(driver.out, {}); }
    Events happened() { return std::exchange(driver.events, {}); }
    void supply_whole_body() {
        while (driver.body_wanted()) driver.supply_body(1000);
    }

    ClientDriver driver;
};

TestMessage message_of(BodyType body, std::string content, bool smtputf8 = false) {
    TestMessage message;
    message.content = std::move(content);
    message.body = body;
    message.smtputf8 = smtputf8;
    return message;
}

size_t count(std::string_view text, std::string_view word) {
    size_t found = 0;
    for (size_t at = text.find(word); at != std::string_view::npos; at = text.find(word, at + word.size())) ++found;
    return found;
}

const std::string ascii = "text\r\n";
const std::string eight_bit = "t\xc3\xa4xt\r\n";

}  // namespace

TEST_CASE("What the next hop cannot take fails without asking", "[proto][client_session]") {
    struct Row {
        TestMessage message;
        std::vector<std::string> offered;
        std::string event;
    };
    const Row rows[] = {
        {message_of(BodyType::seven_bit, ascii), {"mx", "SIZE 5"},
         "0 failed 552 5.3.4 the message is larger than the SIZE that the next hop offers"},
        {message_of(BodyType::seven_bit, "12345"), {"mx", "SIZE 6"},      // with the CRLF that DATA will add
         "0 failed 552 5.3.4 the message is larger than the SIZE that the next hop offers"},
        {message_of(BodyType::seven_bit, ascii, true), {"mx", "8BITMIME"},
         "0 failed 553 5.6.7 the message needs SMTPUTF8, which the next hop does not offer"},
        {message_of(BodyType::eight_bit_mime, eight_bit), {"mx"},
         "0 failed 554 5.6.3 the message needs 8BITMIME, which the next hop does not offer"},
        {message_of(BodyType::binary_mime, ascii), {"mx", "8BITMIME", "BINARYMIME"},
         "0 failed 554 5.6.3 the message needs BINARYMIME and CHUNKING, which the next hop does not offer"},
        {message_of(BodyType::binary_mime, ascii), {"mx", "8BITMIME", "CHUNKING"},
         "0 failed 554 5.6.3 the message needs BINARYMIME and CHUNKING, which the next hop does not offer"},
    };
    for (const Row& row : rows) {
        CAPTURE(row.event);
        Connected connected(row.message, row.offered);
        CHECK(connected.taken() == "");
        CHECK(connected.happened() == Events{row.event, "done", "ready"});
    }
}

TEST_CASE("A thousand messages that cannot be sent do not nest a thousand calls", "[proto][client_session]") {
    ClientDriver driver(settings_of(), std::vector<TestMessage>(100'000, message_of(BodyType::seven_bit, ascii, true)));
    driver.feed("220 mx\r\n250 mx\r\n");
    CHECK(driver.records.size() == 100'000);
    CHECK(driver.out == "EHLO me.test\r\nQUIT\r\n");
}

TEST_CASE("MAIL says what the next hop offers and the message needs", "[proto][client_session]") {
    struct Row {
        TestMessage message;
        std::vector<std::string> offered;
        std::string_view parameters;
    };
    const Row rows[] = {
        {message_of(BodyType::seven_bit, ascii), {"mx"}, ""},
        {message_of(BodyType::seven_bit, ascii), {"mx", "SIZE"}, " SIZE=6"},
        {message_of(BodyType::seven_bit, ascii), {"mx", "size 6", "8bitmime"}, " SIZE=6"},
        {message_of(BodyType::seven_bit, "12345"), {"mx", "SIZE 0"}, " SIZE=7"},
        {message_of(BodyType::seven_bit, "12345"), {"mx", "SIZE 0", "CHUNKING"}, " SIZE=5"},
        {message_of(BodyType::seven_bit, ascii), {"mx", "SIZE many"}, " SIZE=6"},
        {message_of(BodyType::seven_bit, eight_bit), {"mx"}, ""},                            // it came undeclared, so it goes
        {message_of(BodyType::seven_bit, eight_bit), {"mx", "8BITMIME"}, " BODY=8BITMIME"},
        {message_of(BodyType::eight_bit_mime, ascii), {"mx"}, ""},                           // declared but not needed
        {message_of(BodyType::eight_bit_mime, ascii), {"mx", "8BITMIME"}, " BODY=8BITMIME"},
        {message_of(BodyType::binary_mime, ascii), {"mx", "CHUNKING", "BINARYMIME"}, " BODY=BINARYMIME"},
        {message_of(BodyType::eight_bit_mime, ascii, true), {"mx", "SIZE", "8BITMIME", "SMTPUTF8"},
         " SIZE=6 BODY=8BITMIME SMTPUTF8"},
        {message_of(BodyType::seven_bit, ascii), {"SIZE 1 SMTPUTF8"}, ""},                   // the first line is a greeting
    };
    for (const Row& row : rows) {
        CAPTURE(row.parameters);
        Connected connected(row.message, row.offered);
        CHECK(connected.taken() == "MAIL FROM:<s@example.org>" + std::string(row.parameters) + "\r\n");
    }
}

TEST_CASE("Pipelining and chunking stay unused when they are switched off", "[proto][client_session]") {
    proto::ClientSettings settings = settings_of();
    settings.pipelining = false;
    settings.chunking = false;
    Connected connected(TestMessage{}, {"mx", "PIPELINING", "CHUNKING"}, settings);
    CHECK(connected.taken() == "MAIL FROM:<s@example.org>\r\n");
    connected.driver.feed("250 ok\r\n");
    CHECK(connected.taken() == "RCPT TO:<a@example.net>\r\n");
    connected.driver.feed("250 ok\r\n");
    CHECK(connected.taken() == "DATA\r\n");
}

TEST_CASE("Never more than a hundred commands are unanswered", "[proto][client_session]") {
    TestMessage message;
    message.recipients.assign(350, "r@example.net");
    Connected connected(message, {"mx", "PIPELINING"});
    size_t commands = count(connected.driver.out, "\r\n");
    CHECK(commands == 100);
    size_t answered = 0;
    while (connected.driver.out.find("DATA\r\n") == std::string::npos) {
        connected.driver.feed("250 ok\r\n");
        ++answered;
        commands = count(connected.driver.out, "\r\n");
        REQUIRE(commands - answered <= 100);
        REQUIRE(answered < 352);
    }
    CHECK(commands == 352);
    CHECK(answered == 252);
}

TEST_CASE("BDAT with a big body waits for the recipients first", "[proto][client_session]") {
    for (const size_t bytes : {size_t{64 << 10}, size_t{64 << 10} + 1}) {
        CAPTURE(bytes);
        Connected connected(message_of(BodyType::seven_bit, std::string(bytes, 'x')), {"mx", "PIPELINING", "CHUNKING"});
        const bool early = bytes <= size_t{64 << 10};
        CHECK(connected.driver.body_wanted() == early);
        CHECK((connected.driver.out.find("BDAT") != std::string::npos) == early);
        connected.driver.feed("250 ok\r\n");
        CHECK(connected.driver.body_wanted() == early);
        connected.driver.feed("250 ok\r\n");
        CHECK(connected.driver.body_wanted());
        CHECK(connected.taken().find("BDAT " + std::to_string(bytes) + " LAST\r\n") != std::string::npos);
    }
}

TEST_CASE("A big body is not sent when all recipients are refused", "[proto][client_session]") {
    Connected connected(message_of(BodyType::seven_bit, std::string(100'000, 'x')), {"mx", "PIPELINING", "CHUNKING"});
    CHECK(connected.taken() == "MAIL FROM:<s@example.org>\r\nRCPT TO:<a@example.net>\r\n");
    connected.driver.feed("250 ok\r\n550 5.1.1 no\r\n");
    CHECK(connected.taken() == "");
    CHECK(connected.happened() == Events{"0 failed 550 5.1.1 no", "done", "ready"});
}

TEST_CASE("Announced octets follow even if BDAT is refused before its last one", "[proto][client_session]") {
    Connected connected(TestMessage{}, {"mx", "PIPELINING", "CHUNKING"});
    connected.driver.supply_body(3);
    connected.driver.feed("250 ok\r\n250 ok\r\n552 5.3.4 too big\r\n");
    CHECK(connected.happened() == Events{"body wanted", "0 failed 552 5.3.4 too big"});
    CHECK(connected.driver.session.busy());
    connected.supply_whole_body();
    CHECK(connected.happened() == Events{"done", "ready"});
    CHECK(connected.taken().ends_with(" LAST\r\n" + TestMessage{}.content));
}

TEST_CASE("A 2xx before the last octet of BDAT is no delivery", "[proto][client_session]") {
    Connected connected(TestMessage{}, {"mx", "PIPELINING", "CHUNKING"});
    connected.driver.feed("250 ok\r\n250 ok\r\n250 2.0.0 queued\r\n");
    CHECK(connected.driver.records[0].outcomes[0] == proto::Outcome::deferred);
    CHECK(connected.driver.over);
}

TEST_CASE("A 2xx after the last octet of BDAT delivers, also before body_end()", "[proto][client_session]") {
    Connected connected(TestMessage{}, {"mx", "PIPELINING", "CHUNKING"});
    connected.driver.supply_body(1000);
    connected.driver.feed("250 ok\r\n250 ok\r\n250 2.0.0 queued\r\n");
    CHECK(connected.happened() == Events{"body wanted", "0 delivered 250 2.0.0 queued"});
    connected.supply_whole_body();
    CHECK(connected.happened() == Events{"done", "ready"});
}

TEST_CASE("A refusal in the middle of the data decides, and ends the session", "[proto][client_session]") {
    struct Row {
        std::string_view reply;
        proto::Outcome outcome;
    };
    const Row rows[] = {{"552 5.3.4 too big\r\n", proto::Outcome::failed},
                        {"452 4.3.1 no space\r\n", proto::Outcome::deferred},
                        {"421 4.3.2 down\r\n", proto::Outcome::deferred},
                        {"250 2.0.0 queued\r\n", proto::Outcome::deferred}};
    for (const Row& row : rows) {
        CAPTURE(row.reply);
        Connected connected(TestMessage{}, {"mx", "PIPELINING"});
        connected.driver.feed("250 ok\r\n250 ok\r\n354 go\r\n");
        connected.driver.supply_body(3);
        connected.driver.feed(row.reply);
        CHECK(connected.driver.records[0].outcomes[0] == row.outcome);
        CHECK(connected.driver.over);
        CHECK_FALSE(connected.driver.refused);
        connected.taken();
        connected.driver.session.body("late", connected.driver.out);
        connected.driver.session.body_end(connected.driver.out);
        CHECK(connected.taken() == "");
    }
}

TEST_CASE("A body without a leading dot may be sent by its owner, uncopied", "[proto][client_session]") {
    TestMessage message;
    message.content = "no final newline";
    Connected connected(message, {"mx", "PIPELINING"});
    connected.driver.feed("250 ok\r\n250 ok\r\n354 go\r\n");
    connected.taken();
    CHECK(connected.driver.session.body_unchanged());
    connected.driver.session.body_passed(message.content);
    connected.driver.session.body_end(connected.driver.out);
    CHECK(connected.taken() == "\r\n.\r\n");

    message.content = ".dot";
    Connected stuffing(message, {"mx", "PIPELINING"});
    CHECK_FALSE(stuffing.driver.session.body_unchanged());
}

TEST_CASE("Every wait has the length that RFC 5321 asks for", "[proto][client_session]") {
    ClientDriver driver(settings_of(), {TestMessage{}});
    const auto wait = [&] { return driver.session.timeout(); };
    CHECK(wait() == minutes(5));            // greeting
    driver.feed("220 mx\r\n");
    CHECK(wait() == minutes(5));            // EHLO
    driver.feed("250 mx\r\n");
    CHECK(wait() == minutes(5));            // MAIL
    driver.feed("250 ok\r\n");
    CHECK(wait() == minutes(5));            // RCPT
    driver.feed("250 ok\r\n");
    CHECK(wait() == minutes(2));            // DATA
    driver.feed("354 go\r\n");
    CHECK(wait() == minutes(3));            // a block of the body
    while (driver.body_wanted()) driver.supply_body(1000);
    CHECK(wait() == minutes(10));           // end of data
    driver.feed("250 ok\r\n");
    CHECK(wait() == seconds(5));            // QUIT
    driver.feed("221 bye\r\n");
    CHECK(wait() == Duration{});

    Connected idle(message_of(BodyType::seven_bit, ascii, true), {"mx"});
    CHECK(idle.driver.session.timeout() == Duration{});
}

TEST_CASE("After QUIT the session ends with the reply or with the connection", "[proto][client_session]") {
    for (const bool answered : {true, false}) {
        ClientDriver driver(settings_of(), {});
        driver.feed("220 mx\r\n250 mx\r\n");
        CHECK(driver.out == "EHLO me.test\r\nQUIT\r\n");
        CHECK_FALSE(driver.session.ready());
        if (answered) {
            driver.feed("221 bye\r\n");
        } else {
            driver.lose_connection("closed by peer");
        }
        CHECK(driver.over);
        CHECK_FALSE(driver.refused);
    }
}
