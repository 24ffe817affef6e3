// ClientSession against a next hop that answers by chance: what the session says about each recipient must agree with what
// the next hop knows.
#include <catch2/catch.hpp>

#include "tests/support/client_driver.hpp"
#include "tests/support/client_peer.hpp"
#include "tests/support/seed.hpp"

using namespace postern;
using postern::test::ClientDriver;
using postern::test::ClientPeer;
using postern::test::TestMessage;

namespace {

std::string random_content(Random& random) {
    static constexpr std::string_view tokens[] = {"\r\n", "\r\n.", "text", ".", "\r\n.\r\n", "caf\xc3\xa9", "RCPT TO:<x>"};
    std::string content;
    for (uint64_t n = random.below(20); n > 0; --n) content += tokens[random.below(std::size(tokens))];
    if (random.below(10) == 0) content += std::string(70'000, 'x');
    if (random.below(2)) content += "\r\n";
    return content;
}

std::vector<TestMessage> random_messages(Random& random) {
    std::vector<TestMessage> messages(1 + random.below(4));
    unsigned recipient = 0;             // every address occurs once: the peer's records are keyed by it
    for (TestMessage& message : messages) {
        message.content = random_content(random);
        message.recipients.resize(random.below(20) == 0 ? 250 : 1 + random.below(5));
        for (std::string& address : message.recipients) address = "r" + std::to_string(recipient++) + "@example.net";
    }
    return messages;
}

std::vector<std::string> random_offer(Random& random) {
    std::vector<std::string> offered = {"peer"};
    for (const char* keyword : {"PIPELINING", "CHUNKING", "8BITMIME", "SIZE", "SMTPUTF8"}) {
        if (random.below(2)) offered.push_back(keyword);
    }
    return offered;
}

// Carries octets both ways in random pieces until neither side has anything to say.  False: the session then still waited
// for something, and was told that its time is up.
bool converse(ClientDriver& driver, ClientPeer& peer, Random& random) {
    for (;;) {
        const bool can_reply = !peer.replies.empty() && !driver.over;
        const bool can_send = !driver.out.empty() && !peer.closed;
        const bool can_supply = driver.body_wanted();
        if (!can_reply && !can_send && !can_supply) {
            const bool waited = !driver.over && !peer.closed;
            driver.lose_connection(waited ? "timed out" : "closed by peer");
            return !waited;
        }
        const uint64_t bytes = 1 + random.below(random.below(2) ? 10 : 3000);
        switch (random.below(3)) {
            case 0:
                if (can_reply) {
                    const std::string piece = peer.replies.substr(0, bytes);
                    peer.replies.erase(0, piece.size());
                    driver.feed(piece);
                }
                break;
            case 1:
                if (can_send) {
                    const std::string piece = driver.out.substr(0, bytes);
                    driver.out.erase(0, piece.size());
                    peer.take(piece);
                }
                break;
            default:
                if (can_supply) driver.supply_body(bytes, random.below(2));
        }
    }
}

void check_against(const ClientPeer& peer, const ClientDriver& driver, const std::vector<TestMessage>& messages,
                   bool everything_said) {
    REQUIRE(peer.violation == "");
    size_t failed = 0;
    for (size_t m = 0; m < driver.records.size(); ++m) {
        REQUIRE(driver.records[m].done);
        const std::string& content = messages[m].content;
        const std::string repaired = content.empty() || content.ends_with("\r\n") ? content : content + "\r\n";
        for (size_t r = 0; r < messages[m].recipients.size(); ++r) {
            const std::string& address = messages[m].recipients[r];
            const auto outcome = driver.records[m].outcomes[r];
            const size_t copies = peer.accepted.count(address);
            REQUIRE(copies <= 1);
            if (outcome == proto::Outcome::delivered) REQUIRE(copies == 1);
            if (copies == 1) {
                const std::string& received = peer.accepted.find(address)->second;
                REQUIRE((received == content || received == repaired));
                if (everything_said) REQUIRE(outcome == proto::Outcome::delivered);
            }
            failed += outcome == proto::Outcome::failed;
        }
    }
    if (peer.permanent_refusals == 0) REQUIRE(failed == 0);
}

void run(uint64_t seed, ClientPeer::Temper temper) {
    CAPTURE(seed);
    Random random(seed);
    proto::ClientSettings settings;
    settings.hostname = "me.test";
    settings.lmtp = random.below(2);
    settings.pipelining = random.below(4) != 0;
    const std::vector<TestMessage> messages = random_messages(random);
    ClientDriver driver(settings, messages);
    ClientPeer peer(random, temper, settings.lmtp, random_offer(random));
    const bool answered = converse(driver, peer, random);
    REQUIRE(driver.over);
    const bool orderly = temper.closing + temper.garbage + temper.silent_close == 0;
    if (orderly) REQUIRE(answered);
    if (orderly && !driver.refused) REQUIRE(driver.records.size() == messages.size());
    check_against(peer, driver, messages, orderly);
}

}  // namespace

TEST_CASE("A kind next hop gets every message, whole and once", "[proto][client_session]") {
    Random seeds(test::seed());
    for (int round = 0; round < 500; ++round) run(seeds.next(), {});
}

TEST_CASE("A next hop that refuses here and there and the session agree on every recipient", "[proto][client_session]") {
    Random seeds(test::seed());
    for (int round = 0; round < 1500; ++round) run(seeds.next(), {.temporary = 100, .permanent = 150});
}

TEST_CASE("A next hop that breaks off or talks nonsense gets nothing recorded that it did not take", "[proto][client_session]") {
    Random seeds(test::seed());
    for (int round = 0; round < 1500; ++round) {
        run(seeds.next(), {.temporary = 50, .permanent = 80, .closing = 30, .garbage = 30, .silent_close = 30});
    }
}
