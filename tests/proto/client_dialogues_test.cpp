// Dialogues with a next hop, as one reads them in a log.  S: the next hop's lines, fed as one piece where they follow each
// other; C: what the session wrote when it had them; E: the events they caused; X: the connection is lost, with the reason.
#include <catch2/catch.hpp>
#include <sstream>

#include "tests/support/client_driver.hpp"

using namespace postern;
using postern::proto::BodyType;
using postern::test::ClientDriver;
using postern::test::TestMessage;

namespace {

struct Dialogue {
    std::string_view name;
    std::vector<TestMessage> messages;
    std::string_view script;
    bool lmtp = false;
};

// The message of most dialogues, to the given recipients.
TestMessage to(std::vector<std::string> recipients, std::string content = "x\r\n") {
    TestMessage message;
    message.recipients = std::move(recipients);
    message.content = std::move(content);
    return message;
}

void append_lines(std::string& transcript, std::string_view prefix, std::string_view lines) {
    while (!lines.empty()) {
        const size_t end = std::min(lines.find("\r\n"), lines.size());
        transcript.append(prefix).append(lines.substr(0, end)).append("\n");
        lines.remove_prefix(std::min(end + 2, lines.size()));
    }
}

// Plays the S and X lines of the script and returns the transcript of what really happened.  `cut`: every run of S lines is
// fed in two pieces, the first of so many octets; 0: octet by octet.
std::string play(const Dialogue& dialogue, size_t cut) {
    proto::ClientSettings settings;
    settings.hostname = "me.test";
    settings.lmtp = dialogue.lmtp;
    ClientDriver driver(settings, dialogue.messages);
    driver.quit_when_done = false;

    std::string transcript;
    std::string pending;
    const auto flush = [&] {
        append_lines(transcript, "S: ", pending);
        if (cut == 0) {
            for (const char& octet : pending) driver.feed({&octet, 1});
        } else {
            driver.feed(std::string_view(pending).substr(0, cut));
            if (cut < pending.size()) driver.feed(std::string_view(pending).substr(cut));
        }
        pending.clear();
        while (driver.body_wanted()) driver.supply_body(7);
    };
    const auto note = [&] {
        append_lines(transcript, "C: ", std::exchange(driver.out, {}));
        for (const std::string& event : std::exchange(driver.events, {})) transcript += "E: " + event + "\n";
    };

    std::istringstream script{std::string(dialogue.script)};
    for (std::string line; std::getline(script, line);) {
        const std::string rest = line.size() > 3 ? line.substr(3) : "";
        if (line.starts_with("S: ")) {
            pending += rest + "\r\n";
            continue;
        }
        if (!pending.empty()) {
            flush();
            note();
        }
        if (line.starts_with("X: ")) {
            transcript += line + "\n";
            driver.lose_connection(rest);
            note();
        }
    }
    return transcript;
}

const Dialogue dialogues[] = {
    {"everything in one write where PIPELINING is offered", {to({"a@b.test", "c@d.test"})}, R"(S: 220 mx.test ESMTP
C: EHLO me.test
S: 250-mx.test
S: 250-PIPELINING
S: 250 SIZE
C: MAIL FROM:<s@example.org> SIZE=3
C: RCPT TO:<a@b.test>
C: RCPT TO:<c@d.test>
C: DATA
E: ready
S: 250 2.1.0 ok
S: 250 2.1.5 ok
S: 250 2.1.5 ok
S: 354 go
C: x
C: .
E: body wanted
S: 250 2.0.0 queued as 1
E: 0 delivered 250 2.0.0 queued as 1
E: 1 delivered 250 2.0.0 queued as 1
E: done
E: ready
)"},
    {"one command at a time without PIPELINING", {to({"a@b.test", "c@d.test"}, ".x")}, R"(S: 220-mx.test
S: 220 ESMTP
C: EHLO me.test
S: 250 mx.test
C: MAIL FROM:<s@example.org>
E: ready
S: 250
C: RCPT TO:<a@b.test>
S: 250 ok
C: RCPT TO:<c@d.test>
S: 550 5.1.1 unknown
C: DATA
E: 1 failed 550 5.1.1 unknown
S: 354
C: ..x
C: .
E: body wanted
S: 250-2.0.0 queued
S: 250 2.0.0 as 1
E: 0 delivered 250 2.0.0 queued
as 1
E: done
E: ready
)"},
    {"HELO where EHLO is not known", {to({"a@b.test"})}, R"(S: 220 old.test
C: EHLO me.test
S: 502 what
C: HELO me.test
S: 250 old.test
C: MAIL FROM:<s@example.org>
E: ready
)"},
    {"no HELO after a temporary refusal of EHLO", {to({"a@b.test"})}, R"(S: 220 mx.test
C: EHLO me.test
S: 451 4.3.0 later
E: over, refused 451 4.3.0 later
)"},
    {"no HELO after 421", {to({"a@b.test"})}, R"(S: 220 mx.test
C: EHLO me.test
S: 421 4.3.2 down
E: over, refused 421 4.3.2 down
)"},
    {"no HELO in LMTP", {to({"a@b.test"})}, R"(S: 220 mx.test
C: LHLO me.test
S: 500 what
E: over, refused 500 what
)", true},
    {"HELO refused too", {to({"a@b.test"})}, R"(S: 220 mx.test
C: EHLO me.test
S: 550 no
C: HELO me.test
S: 550 no
E: over, refused 550 no
)"},
    {"a greeting that refuses", {to({"a@b.test"})}, R"(S: 554 5.7.1 not you
E: over, refused 554 5.7.1 not you
)"},
    {"a greeting that is none", {to({"a@b.test"})}, R"(S: 354 go
E: over, refused unexpected reply to the connection: 354 go
)"},
    {"the connection is lost before EHLO is answered", {to({"a@b.test"})}, R"(S: 220 mx.test
C: EHLO me.test
X: timed out
E: over, refused timed out
)"},
    {"552 at RCPT means too many recipients, 452 too, an unknown code counts by its digit",
     {to({"a@b.test", "b@b.test", "c@b.test", "d@b.test"})}, R"(S: 220 mx.test
C: EHLO me.test
S: 250-mx.test
S: 250 PIPELINING
C: MAIL FROM:<s@example.org>
C: RCPT TO:<a@b.test>
C: RCPT TO:<b@b.test>
C: RCPT TO:<c@b.test>
C: RCPT TO:<d@b.test>
C: DATA
E: ready
S: 250 ok
S: 552 5.5.3 too many
S: 452 4.5.3 too many
S: 599 no
S: 299 fine
S: 354 go
C: x
C: .
E: 0 deferred 552 5.5.3 too many
E: 1 deferred 452 4.5.3 too many
E: 2 failed 599 no
E: body wanted
S: 550 5.7.1 spam
E: 3 failed 550 5.7.1 spam
E: done
E: ready
)"},
    {"all recipients refused, DATA goes ahead all the same: an empty message, its reply ignored",
     {to({"a@b.test"}), to({"c@b.test"})}, R"(S: 220 mx.test
C: EHLO me.test
S: 250-mx.test
S: 250 PIPELINING
C: MAIL FROM:<s@example.org>
C: RCPT TO:<a@b.test>
C: DATA
E: ready
S: 250 ok
S: 550 5.1.1 unknown
S: 354 go
C: .
E: 0 failed 550 5.1.1 unknown
S: 250 2.0.0 queued
C: MAIL FROM:<s@example.org>
C: RCPT TO:<c@b.test>
C: DATA
E: done
E: ready
)"},
    {"all recipients refused, DATA refused: RSET before the next message",
     {to({"a@b.test"}), to({"c@b.test"})}, R"(S: 220 mx.test
C: EHLO me.test
S: 250-mx.test
S: 250 PIPELINING
C: MAIL FROM:<s@example.org>
C: RCPT TO:<a@b.test>
C: DATA
E: ready
S: 250 ok
S: 450 4.2.1 later
S: 554 5.5.1 no valid recipients
C: RSET
C: MAIL FROM:<s@example.org>
C: RCPT TO:<c@b.test>
C: DATA
E: 0 deferred 450 4.2.1 later
E: done
E: ready
S: 250 ok
S: 250 ok
S: 250 ok
S: 354 go
C: x
C: .
E: body wanted
)"},
    {"all recipients refused without PIPELINING: no DATA, RSET alone first",
     {to({"a@b.test"}), to({"c@b.test"})}, R"(S: 220 mx.test
C: EHLO me.test
S: 250 mx.test
C: MAIL FROM:<s@example.org>
E: ready
S: 250 ok
C: RCPT TO:<a@b.test>
S: 550 no
C: RSET
E: 0 failed 550 no
E: done
E: ready
S: 250 ok
C: MAIL FROM:<s@example.org>
)"},
    {"RSET refused: out of step", {to({"a@b.test"}), to({"c@b.test"})}, R"(S: 220 mx.test
C: EHLO me.test
S: 250 mx.test
C: MAIL FROM:<s@example.org>
E: ready
S: 250 ok
C: RCPT TO:<a@b.test>
S: 550 no
C: RSET
E: 0 failed 550 no
E: done
E: ready
S: 502 what
E: 0 deferred unexpected reply to RSET: 502 what
E: done
E: over unexpected reply to RSET: 502 what
)"},
    {"MAIL refused in a pipeline: one verdict for all, the rest is ignored", {to({"a@b.test", "c@b.test"})}, R"(S: 220 mx.test
C: EHLO me.test
S: 250-mx.test
S: 250 PIPELINING
C: MAIL FROM:<s@example.org>
C: RCPT TO:<a@b.test>
C: RCPT TO:<c@b.test>
C: DATA
E: ready
S: 550 5.7.1 not from you
E: 0 failed 550 5.7.1 not from you
E: 1 failed 550 5.7.1 not from you
S: 503 5.5.1 MAIL first
S: 503 5.5.1 MAIL first
S: 503 5.5.1 MAIL first
E: done
E: ready
)"},
    {"MAIL refused without PIPELINING", {to({"a@b.test"}), to({"c@b.test"})}, R"(S: 220 mx.test
C: EHLO me.test
S: 250 mx.test
C: MAIL FROM:<s@example.org>
E: ready
S: 451 4.3.0 later
C: MAIL FROM:<s@example.org>
E: 0 deferred 451 4.3.0 later
E: done
E: ready
)"},
    {"DATA refused", {to({"a@b.test", "c@b.test"})}, R"(S: 220 mx.test
C: EHLO me.test
S: 250-mx.test
S: 250 PIPELINING
C: MAIL FROM:<s@example.org>
C: RCPT TO:<a@b.test>
C: RCPT TO:<c@b.test>
C: DATA
E: ready
S: 250 ok
S: 250 ok
S: 550 no
S: 452 4.3.1 no space
E: 1 failed 550 no
E: 0 deferred 452 4.3.1 no space
E: done
E: ready
)"},
    {"BDAT with the body right behind, octets unchanged", {to({"a@b.test"}, ".a\r\n.\r\nb\r\n")}, R"(S: 220 mx.test
C: EHLO me.test
S: 250-mx.test
S: 250-chunking
S: 250 Pipelining
C: MAIL FROM:<s@example.org>
C: RCPT TO:<a@b.test>
C: BDAT 10 LAST
C: .a
C: .
C: b
E: ready
E: body wanted
S: 250 ok
S: 250 ok
S: 250 2.0.0 queued
E: 0 delivered 250 2.0.0 queued
E: done
E: ready
)"},
    {"BDAT of an empty message", {to({"a@b.test"}, "")}, R"(S: 220 mx.test
C: EHLO me.test
S: 250-mx.test
S: 250-CHUNKING
S: 250 PIPELINING
C: MAIL FROM:<s@example.org>
C: RCPT TO:<a@b.test>
C: BDAT 0 LAST
E: ready
E: body wanted
S: 250 ok
S: 250 ok
S: 250 2.0.0 queued
E: 0 delivered 250 2.0.0 queued
E: done
E: ready
)"},
    {"BDAT without PIPELINING waits for each reply", {to({"a@b.test"})}, R"(S: 220 mx.test
C: EHLO me.test
S: 250-mx.test
S: 250 CHUNKING
C: MAIL FROM:<s@example.org>
E: ready
S: 250 ok
C: RCPT TO:<a@b.test>
S: 250 ok
C: BDAT 3 LAST
C: x
E: body wanted
S: 451 4.3.0 later
E: 0 deferred 451 4.3.0 later
E: done
E: ready
)"},
    {"all recipients refused, BDAT's reply is consumed, RSET follows", {to({"a@b.test"}), to({"c@b.test"})},
     R"(S: 220 mx.test
C: EHLO me.test
S: 250-mx.test
S: 250-CHUNKING
S: 250 PIPELINING
C: MAIL FROM:<s@example.org>
C: RCPT TO:<a@b.test>
C: BDAT 3 LAST
C: x
E: ready
E: body wanted
S: 250 ok
S: 550 5.1.1 unknown
E: 0 failed 550 5.1.1 unknown
S: 503 5.5.1 no recipients
C: RSET
C: MAIL FROM:<s@example.org>
C: RCPT TO:<c@b.test>
C: BDAT 3 LAST
C: x
E: done
E: ready
E: body wanted
)"},
    {"LMTP: a verdict for each accepted recipient after the dot", {to({"a@b.test", "b@b.test", "c@b.test"})},
     R"(S: 220 lmtp.test
C: LHLO me.test
S: 250-lmtp.test
S: 250 PIPELINING
C: MAIL FROM:<s@example.org>
C: RCPT TO:<a@b.test>
C: RCPT TO:<b@b.test>
C: RCPT TO:<c@b.test>
C: DATA
E: ready
S: 250 ok
S: 250 ok
S: 550 5.1.1 unknown
S: 250 ok
S: 354 go
C: x
C: .
E: 1 failed 550 5.1.1 unknown
E: body wanted
S: 452-4.2.2 mailbox
S: 452 4.2.2 full
E: 0 deferred 452 4.2.2 mailbox
full
S: 250 2.0.0 delivered
E: 2 delivered 250 2.0.0 delivered
E: done
E: ready
)", true},
    {"LMTP: a verdict for each accepted recipient after BDAT LAST", {to({"a@b.test", "b@b.test"})},
     R"(S: 220 lmtp.test
C: LHLO me.test
S: 250-lmtp.test
S: 250-CHUNKING
S: 250 PIPELINING
C: MAIL FROM:<s@example.org>
C: RCPT TO:<a@b.test>
C: RCPT TO:<b@b.test>
C: BDAT 3 LAST
C: x
E: ready
E: body wanted
S: 250 ok
S: 250 ok
S: 250 ok
S: 250 2.0.0 delivered
S: 550 5.2.1 disabled
E: 0 delivered 250 2.0.0 delivered
E: 1 failed 550 5.2.1 disabled
E: done
E: ready
)", true},
    {"LMTP: no recipient accepted, one 503", {to({"a@b.test"})}, R"(S: 220 lmtp.test
C: LHLO me.test
S: 250-lmtp.test
S: 250 PIPELINING
C: MAIL FROM:<s@example.org>
C: RCPT TO:<a@b.test>
C: DATA
E: ready
S: 250 ok
S: 550 5.1.1 unknown
S: 503 5.5.1 no recipients
E: 0 failed 550 5.1.1 unknown
E: done
E: ready
)", true},
    {"LMTP: no recipient accepted but 354: nobody would answer the dot", {to({"a@b.test"})}, R"(S: 220 lmtp.test
C: LHLO me.test
S: 250-lmtp.test
S: 250 PIPELINING
C: MAIL FROM:<s@example.org>
C: RCPT TO:<a@b.test>
C: DATA
E: ready
S: 250 ok
S: 550 5.1.1 unknown
S: 354 go
E: 0 failed 550 5.1.1 unknown
E: done
E: over unexpected reply to DATA without a recipient: 354 go
)", true},
    {"LMTP: lost between the verdicts", {to({"a@b.test", "b@b.test"})}, R"(S: 220 lmtp.test
C: LHLO me.test
S: 250-lmtp.test
S: 250 PIPELINING
C: MAIL FROM:<s@example.org>
C: RCPT TO:<a@b.test>
C: RCPT TO:<b@b.test>
C: DATA
E: ready
S: 250 ok
S: 250 ok
S: 250 ok
S: 354 go
C: x
C: .
E: body wanted
S: 250 2.0.0 delivered
E: 0 delivered 250 2.0.0 delivered
X: reset by peer
E: 1 deferred reset by peer
E: done
E: over reset by peer
)", true},
    {"421 in place of a RCPT reply defers all that are undecided", {to({"a@b.test", "b@b.test", "c@b.test"})},
     R"(S: 220 mx.test
C: EHLO me.test
S: 250-mx.test
S: 250 PIPELINING
C: MAIL FROM:<s@example.org>
C: RCPT TO:<a@b.test>
C: RCPT TO:<b@b.test>
C: RCPT TO:<c@b.test>
C: DATA
E: ready
S: 250 ok
S: 550 5.1.1 unknown
S: 421 4.7.0 enough
S: 250 never read
E: 0 failed 550 5.1.1 unknown
E: 1 deferred 421 4.7.0 enough
E: 2 deferred 421 4.7.0 enough
E: done
E: over 421 4.7.0 enough
)"},
    {"421 after the dot", {to({"a@b.test"})}, R"(S: 220 mx.test
C: EHLO me.test
S: 250-mx.test
S: 250 PIPELINING
C: MAIL FROM:<s@example.org>
C: RCPT TO:<a@b.test>
C: DATA
E: ready
S: 250 ok
S: 250 ok
S: 354 go
C: x
C: .
E: body wanted
S: 421 4.3.2 down
E: 0 deferred 421 4.3.2 down
E: done
E: over 421 4.3.2 down
)"},
    {"lost after the dot: delivered or not, it is sent again (RFC 1047)", {to({"a@b.test"})}, R"(S: 220 mx.test
C: EHLO me.test
S: 250-mx.test
S: 250 PIPELINING
C: MAIL FROM:<s@example.org>
C: RCPT TO:<a@b.test>
C: DATA
E: ready
S: 250 ok
S: 250 ok
S: 354 go
C: x
C: .
E: body wanted
X: closed by peer
E: 0 deferred closed by peer
E: done
E: over closed by peer
)"},
    {"250 in answer to DATA", {to({"a@b.test"})}, R"(S: 220 mx.test
C: EHLO me.test
S: 250-mx.test
S: 250 PIPELINING
C: MAIL FROM:<s@example.org>
C: RCPT TO:<a@b.test>
C: DATA
E: ready
S: 250 ok
S: 250 ok
S: 250 ok
E: 0 deferred unexpected reply to DATA: 250 ok
E: done
E: over unexpected reply to DATA: 250 ok
)"},
    {"354 in answer to RCPT", {to({"a@b.test"})}, R"(S: 220 mx.test
C: EHLO me.test
S: 250 mx.test
C: MAIL FROM:<s@example.org>
E: ready
S: 250 ok
C: RCPT TO:<a@b.test>
S: 354 go
E: 0 deferred unexpected reply to RCPT: 354 go
E: done
E: over unexpected reply to RCPT: 354 go
)"},
    {"what is no reply at all", {to({"a@b.test"})}, R"(S: 220 mx.test
C: EHLO me.test
S: 250 mx.test
C: MAIL FROM:<s@example.org>
E: ready
S: <html>
E: 0 deferred unexpected reply to MAIL: <html>
E: done
E: over unexpected reply to MAIL: <html>
)"},
    {"a reply nobody asked for", {to({"a@b.test"})}, R"(S: 220 mx.test
C: EHLO me.test
S: 250-mx.test
S: 250 PIPELINING
C: MAIL FROM:<s@example.org>
C: RCPT TO:<a@b.test>
C: DATA
E: ready
S: 250 ok
S: 250 ok
S: 354 go
C: x
C: .
E: body wanted
S: 250 queued
S: 250 queued again
E: 0 delivered 250 queued
E: done
E: ready
E: over unexpected reply to nothing: 250 queued again
)"},
    {"421 while idle", {}, R"(S: 220 mx.test
C: EHLO me.test
S: 250 mx.test
E: ready
S: 421 4.4.2 idle too long
E: over 421 4.4.2 idle too long
)"},
    {"an address that would break out of its command is never written",
     {to({"a@b.test>\r\nRCPT TO:<evil@b.test", "c@b.test"})}, R"(S: 220 mx.test
C: EHLO me.test
S: 250-mx.test
S: 250 PIPELINING
C: MAIL FROM:<s@example.org>
C: RCPT TO:<c@b.test>
C: DATA
E: ready
E: 0 failed 553 5.1.3 control character in the recipient's address
S: 250 ok
S: 550 5.1.1 unknown
S: 503 5.5.1 no recipients
E: 1 failed 550 5.1.1 unknown
E: done
E: ready
)"},
};

}  // namespace

TEST_CASE("Dialogues with a next hop run as written", "[proto][client_session]") {
    for (const Dialogue& dialogue : dialogues) {
        DYNAMIC_SECTION(dialogue.name) { CHECK(play(dialogue, 1000) == std::string(dialogue.script)); }
    }
}

TEST_CASE("A dialogue is the same wherever the replies are split", "[proto][client_session]") {
    for (const Dialogue& dialogue : dialogues) {
        CAPTURE(std::string(dialogue.name));
        const std::string whole(dialogue.script);
        for (size_t cut = 0; cut < 100; ++cut) {
            CAPTURE(cut);
            REQUIRE(play(dialogue, cut) == whole);
        }
    }
}
