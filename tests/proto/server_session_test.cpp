// What the dialogues cannot show: time, draining, budgets, generations, the owner's view.
#include "proto/server_session.hpp"

#include <catch2/catch.hpp>

#include "tests/proto/dialogue.hpp"

using namespace postern::proto;
using namespace postern::proto::test;

namespace {

// A session with a greeted client; say() feeds and returns what was answered.
struct Connection {
    std::map<std::string, ScriptedAnswer> policy;
    ServerSettings settings;
    RecordingOwner owner{policy};
    ServerSession session{settings, owner};
    size_t consumed = 0;

    Connection() { settings.hostname = "mx.local.test"; }
    std::string say(std::string_view octets) {
        std::string out;
        consumed = session.feed(octets, out);
        return out;
    }
    void greet() { say("HELO t.example\r\n"); }
    void begin_mail() {
        greet();
        say("MAIL FROM:<s@remote.test>\r\nRCPT TO:<r@local.test>\r\n");
    }
    void begin_data() {
        begin_mail();
        say("DATA\r\n");
    }
    std::string verdict(uint32_t generation, const Reply& reply) {
        std::string out;
        session.verdict(generation, reply, out);
        return out;
    }
    std::string time_out() {
        std::string out;
        session.time_out(out);
        return out;
    }
    std::string shut_down() {
        std::string out;
        session.shut_down(out);
        return out;
    }
    size_t abandoned() const {
        return static_cast<size_t>(std::count(owner.log.begin(), owner.log.end(), "abandoned"));
    }
    void pending(const std::string& question) { policy[question + " *"] = {Verdict::Kind::pending, 0, "", ""}; }
};

}  // namespace

TEST_CASE("An idle session is small", "[proto][session]") { CHECK(sizeof(ServerSession) < 400); }

TEST_CASE("A pending verdict stops consumption until it is given", "[proto][session]") {
    Connection c;
    c.greet();
    c.pending("mail");
    const std::string_view two = "MAIL FROM:<s@remote.test>\r\nNOOP\r\n";
    CHECK(c.say(two) == "");
    CHECK(c.session.waiting());
    CHECK(c.consumed == two.size() - 6);
    CHECK(c.say("NOOP\r\n") == "");
    CHECK(c.consumed == 0);
    CHECK(c.verdict(c.session.generation(), {}) == "250 2.1.0 Sender OK\r\n");
    CHECK(c.say("NOOP\r\n") == "250 2.0.0 OK\r\n");
}

TEST_CASE("A late verdict of a finished transaction changes nothing", "[proto][session]") {
    Connection c;
    c.begin_data();
    c.pending("end");
    c.say("x\r\n.\r\n");
    const uint32_t first = c.session.generation();
    CHECK(c.verdict(first, {250, "2.0.0", "one"}) == "250 2.0.0 one\r\n");
    CHECK(c.verdict(first, {250, "2.0.0", "again"}) == "");
    c.say("MAIL FROM:<s@remote.test>\r\nRCPT TO:<r@local.test>\r\nDATA\r\nx\r\n.\r\n");
    REQUIRE(c.session.waiting());
    CHECK(c.session.generation() != first);
    CHECK(c.verdict(first, {250, "2.0.0", "stale"}) == "");
    CHECK(c.session.waiting());
    CHECK(c.verdict(c.session.generation(), {451, "4.3.0", "two"}) == "451 4.3.0 two\r\n");
}

TEST_CASE("A verdict that nobody asked for changes nothing", "[proto][session]") {
    Connection c;
    c.begin_mail();
    CHECK(c.verdict(c.session.generation(), {550, "5.0.0", "no"}) == "");
    CHECK(c.session.in_transaction());
}

TEST_CASE("A time-out says 421 4.4.2, closes, and abandons", "[proto][session]") {
    Connection c;
    c.begin_data();
    c.say("half");
    CHECK(c.session.in_data());
    CHECK(c.time_out() == "421 4.4.2 Timeout\r\n");
    CHECK(c.session.closing());
    CHECK(c.abandoned() == 1);
    CHECK(c.say("x\r\n.\r\nNOOP\r\n") == "");
    CHECK(c.owner.messages.empty());
}

TEST_CASE("Draining says 421 4.3.2 at once between commands", "[proto][session]") {
    Connection c;
    c.begin_mail();
    CHECK(c.shut_down() == "421 4.3.2 Shutting down\r\n");
    CHECK(c.session.closing());
    CHECK(c.abandoned() == 1);
}

TEST_CASE("Draining lets data in progress finish and have its reply", "[proto][session]") {
    Connection c;
    c.begin_data();
    c.pending("end");
    CHECK(c.shut_down() == "");
    CHECK(c.say("x\r\n.\r\nNOOP\r\n") == "");
    CHECK(c.verdict(c.session.generation(), {250, "2.0.0", "kept"}) == "250 2.0.0 kept\r\n421 4.3.2 Shutting down\r\n");
    CHECK(c.session.closing());
}

TEST_CASE("Draining lets a message in chunks finish", "[proto][session]") {
    Connection c;
    c.begin_mail();
    c.say("BDAT 3\r\nabc");
    CHECK(c.shut_down() == "");
    CHECK(c.say("BDAT 0 LAST\r\n") == "250 2.0.0 Message accepted\r\n421 4.3.2 Shutting down\r\n");
}

TEST_CASE("The end of input abandons an open transaction once", "[proto][session]") {
    Connection c;
    c.begin_data();
    c.say("x");
    c.session.end_of_input();
    CHECK(c.session.closing());
    CHECK(c.abandoned() == 1);
}

TEST_CASE("A half-closed client still gets the reply to its message", "[proto][session]") {
    Connection c;
    c.begin_data();
    c.pending("end");
    c.say("x\r\n.\r\n");
    c.session.end_of_input();
    CHECK_FALSE(c.session.closing());
    CHECK(c.verdict(c.session.generation(), {250, "2.0.0", "kept"}) == "250 2.0.0 kept\r\n");
    CHECK(c.session.closing());
    CHECK(c.abandoned() == 0);
}

TEST_CASE("A message that is certain to be refused is abandoned before its end", "[proto][session]") {
    Connection c;
    c.settings.message_bytes_max = 10;
    c.begin_data();
    CHECK(c.say("0123456789012") == "");
    CHECK(c.abandoned() == 1);
    CHECK(c.say("\r\n.\r\n") == "552 5.3.4 Message too big\r\n");
    CHECK(c.abandoned() == 1);
}

TEST_CASE("A call runs 200 commands at most", "[proto][session]") {
    Connection c;
    c.settings.junk_commands_max = 10000;
    c.greet();
    std::string many;
    for (int i = 0; i < 500; ++i) many += "NOOP\r\n";
    c.say(many);
    CHECK(c.consumed == 200 * 6);
    c.say(std::string_view(many).substr(c.consumed));
    CHECK(c.consumed == 200 * 6);
}

TEST_CASE("Service is refused with 421 and a close, or 554 and QUIT only", "[proto][session]") {
    Connection busy;
    std::string out;
    busy.session.refuse_service({421, "4.3.2", "Too many connections"}, out);
    CHECK(out == "421 Too many connections\r\n");
    CHECK(busy.session.closing());

    Connection banned;
    out.clear();
    banned.session.refuse_service({554, "5.7.1", "Not you"}, out);
    CHECK(out == "554 Not you\r\n");
    CHECK_FALSE(banned.session.closing());
    CHECK(banned.say("EHLO t.example\r\n") == "503 5.5.1 No service here, only QUIT\r\n");
    CHECK(banned.say("QUIT\r\n") == "221 2.0.0 Bye\r\n");
    CHECK(banned.session.closing());
}

TEST_CASE("A refusal without a code is local trouble", "[proto][session]") {
    Connection c;
    c.policy["mail *"] = {Verdict::Kind::refuse, 0, "", ""};
    c.greet();
    CHECK(c.say("MAIL FROM:<s@remote.test>\r\n").substr(0, 9) == "451 4.3.0");
}

TEST_CASE("What is refused is reported sanitised", "[proto][session]") {
    Connection c;
    c.greet();
    c.say("MAIL FROM:<\xc3\xbc@remote.test>\r\n");
    CHECK(c.owner.log.back() == "refused 553 FROM:<??@remote.test>");
}

TEST_CASE("The greeting name is kept sanitised and bounded", "[proto][session]") {
    Connection c;
    c.say("EHLO evil(\xc3\xbc)" + std::string(400, 'x') + "\r\n");
    CHECK(c.session.helo().substr(0, 8) == "evil????");
    CHECK(c.session.helo().size() == 255);
    CHECK(c.session.esmtp());
}

TEST_CASE("An accepted message forgives earlier errors", "[proto][session]") {
    Connection c;
    c.settings.errors_max = 3;
    c.greet();
    for (int round = 0; round < 5; ++round) {
        CHECK(c.say("XYZZY\r\nXYZZY\r\n").substr(0, 3) == "500");
        CHECK(c.say("MAIL FROM:<s@remote.test>\r\nRCPT TO:<r@local.test>\r\nDATA\r\nx\r\n.\r\n").find("250 2.0.0") !=
              std::string::npos);
    }
    CHECK_FALSE(c.session.closing());
}

TEST_CASE("An owner's 421 ends the session", "[proto][session]") {
    Connection c;
    c.policy["rcpt *"] = {Verdict::Kind::refuse, 421, "4.3.2", "Not now"};
    c.greet();
    CHECK(c.say("MAIL FROM:<s@remote.test>\r\nRCPT TO:<r@local.test>\r\nNOOP\r\n") ==
          "250 2.1.0 Sender OK\r\n421 4.3.2 Not now\r\n");
    CHECK(c.session.closing());
    CHECK(c.abandoned() == 1);
}

TEST_CASE("Verbs and stages have names", "[proto][session]") {
    CHECK(verb_name(Verb::helo) == "helo");
    CHECK(verb_name(Verb::starttls) == "starttls");
    CHECK(verb_name(Verb::unknown) == "unknown");
    CHECK(stage_name(Stage::connect) == "connect");
    CHECK(stage_name(Stage::other) == "other");
}
