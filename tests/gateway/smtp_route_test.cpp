// Delivery to a next hop, over real sockets, out of a real spool.
#include <catch2/catch.hpp>

#include "tests/gateway/next_hop.hpp"
#include "tests/gateway/shard_in_a_box.hpp"

using namespace postern;
using namespace postern::gateway;
using namespace postern::gateway::test;
using Outcome = metrics::DeliveryOutcome;
using Texts = std::vector<std::string>;

namespace {

Letter letter(const std::string& text, std::vector<std::string> recipients = {"r@r.test"}) {
    return {"s@s.test", std::move(recipients), "Subject: " + text + "\r\n\r\n" + text + "\r\n"};
}
std::vector<Letter> letters(size_t count) {
    std::vector<Letter> all;
    for (size_t i = 0; i < count; ++i) all.push_back(letter("letter " + std::to_string(i)));
    return all;
}

// A shard with one route, to a next hop on the same loop.
struct OneNextHop {
    explicit OneNextHop(NextHop::Protocol protocol = NextHop::Protocol::smtp, const std::function<void(config::Config&)>& change = {})
        : hop(loop, protocol) {
        config = config_with({smtp_route({"*"}, hop.port())});
        if (protocol == NextHop::Protocol::lmtp) config.routes[0].to.kind = config::Target::Kind::lmtp;
        if (change) change(config);
        box.emplace(loop, spool.path(), config);
    }
    explicit OneNextHop(const std::function<void(config::Config&)>& change) : OneNextHop(NextHop::Protocol::smtp, change) {}

    // Ends, and begins again with the same spool; delivery of what is there begins with deliver_recovered().
    void restart() {
        box.reset();
        box.emplace(loop, spool.path(), config);
    }
    void until_delivered() {
        loop.until([&] { return box->spool_is_empty(); });
    }
    const metrics::RouteMetrics& counters() const { return box->metrics.route(0); }

    BoxLoop loop;
    TempDirectory spool;
    NextHop hop;
    config::Config config;
    std::optional<ShardInABox> box;
};

}  // namespace

TEST_CASE("What is accepted arrives at the next hop as it came, and leaves the spool", "[gateway][delivery]") {
    OneNextHop t;
    const std::string body = "Subject: x\r\n\r\n.dot\r\n..two\r\n.\r\nend\r\n";
    t.box->accept({"s@s.test", {"a@r.test", "b@r.test"}, body});
    t.until_delivered();
    REQUIRE(t.hop.mails.size() == 1);
    CHECK(t.hop.mails[0].sender == "s@s.test");
    CHECK(t.hop.mails[0].recipients == Texts{"a@r.test", "b@r.test"});
    CHECK(t.hop.mails[0].body == body);
    CHECK(t.box->recipients(Outcome::delivered) == 2);
    CHECK(t.counters().messages_out.value() == 1);
    CHECK(t.counters().bytes_out.value() == body.size());
}

TEST_CASE("A message of many fragments arrives as it came, by DATA and by BDAT", "[gateway][delivery]") {
    const bool chunking = GENERATE(false, true);
    OneNextHop t;
    if (chunking) t.hop.offer("CHUNKING");
    std::string body = "Subject: large\r\n\r\n";
    for (int line = 0; body.size() < 900'000; ++line) body += (line % 7 ? "line " : ".dot ") + std::to_string(line) + "\r\n";
    t.box->accept({"s@s.test", {"r@r.test"}, body});
    t.until_delivered();
    CHECK(t.hop.bodies() == Texts{body});
}

TEST_CASE("A 4xx defers the recipient: it is tried again, alone", "[gateway][delivery]") {
    OneNextHop t;
    t.hop.once("RCPT", "450 4.2.1 later");
    t.box->accept(letter("x", {"a@r.test", "b@r.test"}));
    t.until_delivered();
    REQUIRE(t.hop.mails.size() == 2);
    CHECK(t.hop.mails[0].recipients == Texts{"b@r.test"});
    CHECK(t.hop.mails[1].recipients == Texts{"a@r.test"});
    CHECK(t.box->recipients(Outcome::deferred) == 1);
    CHECK(t.box->recipients(Outcome::delivered) == 2);
    CHECK(t.counters().attempts.value() == 2);
    CHECK(t.counters().retries.value() == 1);
    t.loop.until([&] { return t.box->said({"event=delivered", "to=a@r.test", "attempt=2"}) == 1; });
    CHECK(t.box->said({"event=deferred", "to=a@r.test", "code=450", "attempt=1"}) == 1);
}

TEST_CASE("A 5xx holds the message, and it is not tried again", "[gateway][delivery]") {
    OneNextHop t;
    t.hop.once("RCPT", "550 5.1.1 no such user");
    const auto message = t.box->accept(letter("x", {"a@r.test", "b@r.test"}));
    t.loop.until([&] { return t.box->held() == 1; });
    CHECK(t.box->spool->state_of(message, 0) == storage::RecipientState::failed);
    CHECK(t.box->spool->state_of(message, 1) == storage::RecipientState::delivered);
    CHECK(t.box->recipients(Outcome::failed) == 1);
    t.restart();                                // a held message stays held
    t.box->deliver_recovered();
    t.box->accept(letter("next"));
    t.loop.until([&] { return t.hop.mails.size() == 2; });
    CHECK(t.hop.mails[1].body == letter("next").body);
    CHECK(t.box->held() == 1);
}

TEST_CASE("A recipient whose time is up fails with its next 4xx", "[gateway][delivery]") {
    OneNextHop t([](config::Config& config) { config.delivery.expire = Duration{}; });
    t.hop.once(".", "451 4.3.0 later");
    t.box->accept(letter("x"));
    t.loop.until([&] { return t.box->held() == 1; });
    CHECK(t.box->recipients(Outcome::expired) == 1);
    CHECK(t.box->recipients(Outcome::deferred) == 0);
}

TEST_CASE("By LMTP each recipient has its own answer to the end of data", "[gateway][delivery]") {
    OneNextHop t(NextHop::Protocol::lmtp);
    t.hop.once(".", "250 2.0.0 mine");
    t.hop.once(".", "452 4.2.2 full");
    t.hop.once(".", "550 5.2.1 disabled");
    const auto message = t.box->accept(letter("x", {"a@r.test", "b@r.test", "c@r.test"}));
    t.loop.until([&] { return t.box->held() == 1; });       // b was delivered by the second attempt
    CHECK(t.box->spool->state_of(message, 0) == storage::RecipientState::delivered);
    CHECK(t.box->spool->state_of(message, 1) == storage::RecipientState::delivered);
    CHECK(t.box->spool->state_of(message, 2) == storage::RecipientState::failed);
    REQUIRE(t.hop.mails.size() == 2);
    CHECK(t.hop.mails[1].recipients == Texts{"b@r.test"});
}

TEST_CASE("A connection lost after the end of data is a failed attempt", "[gateway][delivery]") {
    OneNextHop t;
    t.hop.once_hang_up_after(".", "");
    t.box->accept(letter("x"));
    t.until_delivered();
    CHECK(t.box->recipients(Outcome::deferred) == 1);
    CHECK(t.box->recipients(Outcome::delivered) == 1);
    CHECK(t.hop.accepted == 2);
}

TEST_CASE("While the next hop is down its mail waits untouched behind one probe, and leaves when it is back", "[gateway][delivery]") {
    OneNextHop t;
    t.hop.close();
    t.loop.until([&] { return t.hop.closed(); });
    t.box->accept_all(letters(30));
    t.loop.until([&] { return t.box->said({"event=next_hop_down"}) == 1; });
    const uint64_t first_round = t.counters().connections_failed.value();
    CHECK(first_round <= t.config.routes[0].connections);
    t.loop.until([&] { return t.counters().connections_failed.value() > first_round; });
    CHECK(t.counters().connections_failed.value() == first_round + 1);
    CHECK(t.counters().attempts.value() == 0);
    t.hop.open();
    t.until_delivered();
    CHECK(t.hop.mails.size() == 30);
    CHECK(t.counters().attempts.value() == 30);
    CHECK(t.box->recipients(Outcome::deferred) == 0);
    CHECK(t.counters().connections_failed.value() <= first_round + 2);      // the second probe may have been too early
    t.loop.until([&] { return t.box->said({"event=next_hop_up"}) == 1; });
}

TEST_CASE("A next hop that refuses service in its greeting is down, and no recipient is the worse for it", "[gateway][delivery]") {
    const char* greeting = GENERATE("421 4.3.2 not now", "554 5.3.2 never");
    OneNextHop t;
    t.hop.once(std::string("greeting"), greeting);
    t.box->accept(letter("x"));
    t.loop.until([&] { return t.box->said({"event=next_hop_down", std::string_view(greeting).substr(10)}) == 1; });
    CHECK(t.counters().attempts.value() == 0);
    t.until_delivered();
    CHECK(t.box->recipients(Outcome::deferred) == 0);
    CHECK(t.hop.accepted == 2);
}

TEST_CASE("A next hop by name is tried at each of its addresses", "[gateway][delivery]") {
    BoxLoop loop;
    const TempDirectory spool;
    NextHop hop(loop);                          // at 127.0.0.1 only; "localhost" may be ::1 as well
    ShardInABox box(loop, spool.path(), config_with({smtp_route({"*"}, hop.port(), "localhost")}));
    box.accept_all(letters(3));
    loop.until([&] { return box.spool_is_empty(); });
    CHECK(hop.mails.size() == 3);
    CHECK(box.said({"event=next_hop_down"}) == 0);
}

TEST_CASE("A name without an address is a next hop that is down", "[gateway][delivery]") {
    BoxLoop loop;
    const TempDirectory spool;
    ShardInABox box(loop, spool.path(), config_with({smtp_route({"*"}, 25, "no-such-host.invalid")}));
    const auto message = box.accept(letter("x"));
    loop.until([&] { return box.said({"event=next_hop_down"}) == 1; });
    CHECK(box.spool->state_of(message, 0) == storage::RecipientState::pending);
    CHECK(box.metrics.route(0).attempts.value() == 0);
}

TEST_CASE("A connection is used again, for as many messages as the route says", "[gateway][delivery]") {
    OneNextHop t([](config::Config& config) {
        config.routes[0].connections = 1;
        config.routes[0].messages_per_connection = 2;
    });
    t.box->accept_all(letters(5));
    t.until_delivered();
    CHECK(t.hop.mails.size() == 5);
    CHECK(t.hop.accepted == 3);
    CHECK(std::count(t.hop.commands.begin(), t.hop.commands.end(), "QUIT") == 2);
}

TEST_CASE("No more connections than the route allows, and its budget is whole again afterwards", "[gateway][delivery]") {
    OneNextHop t([](config::Config& config) {
        config.routes[0].connections = 3;
        config.delivery.idle_connection = milliseconds(20);
    });
    t.hop.hold(".");
    t.box->accept_all(letters(10));
    t.loop.until([&] { return t.hop.held() == 3; });
    CHECK(t.hop.open_connections() == 3);
    CHECK_FALSE(t.box->budgets[0].try_take());
    t.hop.release();
    t.until_delivered();
    CHECK(t.hop.mails.size() == 10);
    CHECK(t.hop.accepted == 3);
    t.loop.until([&] { return t.box->delivery->closed(); });
    for (int i = 0; i < 3; ++i) CHECK(t.box->budgets[0].try_take());
    CHECK_FALSE(t.box->budgets[0].try_take());
}

TEST_CASE("A next hop that takes fewer connections than the route allows is not down", "[gateway][delivery]") {
    OneNextHop t([](config::Config& config) { config.delivery.expire = Duration{}; });
    for (const char* greeting : {"220 one", "220 two", "421 4.7.0 too many", "421 4.7.0 too many"}) t.hop.once("greeting", greeting);
    t.hop.hold(".");
    t.box->accept_all(letters(4));
    t.loop.until([&] { return t.hop.held() == 2 && t.counters().connections_failed.value() == 2; });
    t.hop.release();
    t.until_delivered();
    CHECK(t.hop.mails.size() == 4);
    CHECK(t.hop.accepted == 4);
    CHECK(t.box->said({"event=next_hop_down"}) == 0);
    CHECK(t.box->recipients(Outcome::expired) == 0);
}

TEST_CASE("A connection that the next hop closed while it was idle is no attempt", "[gateway][delivery]") {
    const char* last_words = GENERATE("", "421 4.4.2 idle for too long\r\n");
    OneNextHop t;
    t.box->accept(letter("first"));
    t.until_delivered();
    const auto second = t.box->store(letter("second"));
    t.hop.hang_up(last_words);
    t.box->delivery->take(second.index, second.envelope);       // goes out on the connection that is just being closed
    t.until_delivered();
    CHECK(t.hop.accepted == 2);
    CHECK(t.box->recipients(Outcome::deferred) == 0);
    t.loop.until([&] { return t.box->said({"event=delivered", "attempt=1"}) == 2; });
}

TEST_CASE("A connection closed while its message is still being read is no attempt", "[gateway][delivery]") {
    OneNextHop t;
    t.box->store(letter("x"));
    t.restart();                                // so that it is read from disk
    t.hop.once_hang_up_after("EHLO", "250 next.hop.test");
    t.box->deliver_recovered();
    t.until_delivered();
    CHECK(t.hop.bodies() == Texts{letter("x").body});
    CHECK(t.box->recipients(Outcome::deferred) == 0);
    CHECK(t.hop.accepted == 2);
}

TEST_CASE("After stop() what is under way finishes and nothing begins", "[gateway][delivery]") {
    OneNextHop t([](config::Config& config) { config.routes[0].connections = 1; });
    t.hop.hold(".");
    t.box->accept_all(letters(2));
    t.loop.until([&] { return t.hop.held() == 1; });
    t.box->delivery->stop();
    CHECK(t.box->delivery->busy());
    t.hop.release();
    t.loop.until([&] { return !t.box->delivery->busy() && t.box->delivery->closed(); });
    CHECK(t.hop.mails.size() == 1);
    CHECK(t.hop.commands.back() == "QUIT");
    t.restart();
    t.box->deliver_recovered();
    t.until_delivered();
    CHECK(t.hop.bodies() == Texts{letter("letter 0").body, letter("letter 1").body});
}

TEST_CASE("stop() sends QUIT on idle connections", "[gateway][delivery]") {
    OneNextHop t;
    t.box->accept(letter("x"));
    t.until_delivered();
    CHECK_FALSE(t.box->delivery->closed());
    t.box->delivery->stop();
    t.loop.until([&] { return t.box->delivery->closed(); });
    CHECK(t.hop.commands.back() == "QUIT");
}

TEST_CASE("abort() leaves what has no answer pending, as if it had not been tried", "[gateway][delivery]") {
    OneNextHop t;
    t.hop.hold(".");
    const auto message = t.box->accept(letter("x"));
    t.loop.until([&] { return t.hop.held() == 1; });
    t.box->delivery->stop();
    t.box->delivery->abort();
    t.loop.until([&] { return !t.box->delivery->busy() && t.box->delivery->closed(); });
    CHECK(t.box->spool->state_of(message, 0) == storage::RecipientState::pending);
    t.hop.release();
    t.restart();
    t.box->deliver_recovered();
    t.until_delivered();
    t.loop.until([&] { return t.box->said({"event=delivered", "attempt=1"}) == 1; });
}

TEST_CASE("abort() keeps the answers that were given", "[gateway][delivery]") {
    OneNextHop t;
    t.hop.once("RCPT", "550 5.1.1 no such user");
    t.hop.hold(".");
    const auto message = t.box->accept(letter("x", {"a@r.test", "b@r.test"}));
    t.loop.until([&] { return t.hop.held() == 1; });
    t.box->delivery->stop();
    t.box->delivery->abort();
    CHECK(t.box->spool->state_of(message, 0) == storage::RecipientState::failed);
    CHECK(t.box->spool->state_of(message, 1) == storage::RecipientState::pending);
}

TEST_CASE("A message damaged in its body is said loudly, and does not keep others", "[gateway][delivery][damage]") {
    OneNextHop t([](config::Config& config) { config.delivery.retry_first = hours(1); });
    std::string body = "Subject: large\r\n\r\n";
    while (body.size() < 700'000) body += "line of the large message\r\n";
    const size_t middle = 300'000;
    body.replace(middle, 6, "MARKER");
    t.box->store({"s@s.test", {"damaged@r.test"}, body});
    t.box->store(letter("good"));
    t.restart();
    damage(t.spool.path(), "MARKER");
    t.box->deliver_recovered();
    t.loop.until([&] { return t.hop.mails.size() == 1; });
    CHECK(t.hop.mails[0].body == letter("good").body);
    t.loop.until([&] { return t.box->recipients(Outcome::deferred) == 1; });
    t.loop.until([&] { return t.box->said({"level=error", "event=unreadable"}) == 1; });
    CHECK(t.box->damage == 1);
    CHECK(t.hop.mails.size() == 1);             // no part of it was taken for a message
}
