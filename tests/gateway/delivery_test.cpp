// Delivery of one shard: dispatch to routes, discard and Maildir, recovery through the sorter, damage.
#include "gateway/delivery/delivery.hpp"

#include <catch2/catch.hpp>

#include "gateway/delivery/maildir.hpp"
#include "tests/gateway/next_hop.hpp"
#include "tests/gateway/shard_in_a_box.hpp"

using namespace postern;
using namespace postern::gateway;
using namespace postern::gateway::test;
using postern::test::content_of;
using postern::test::names_in;
using Outcome = metrics::DeliveryOutcome;
using Texts = std::vector<std::string>;

namespace {

struct Maildir {
    Maildir() { REQUIRE(MaildirWriter::prepare(root)); }
    Texts copies() const {                      // what is in new/, sorted
        Texts copies;
        for (const std::string& name : names_in(root + "/new")) copies.push_back(content_of(root + "/new/" + name));
        std::sort(copies.begin(), copies.end());
        return copies;
    }
    TempDirectory folder;
    std::string root = folder / "box";
};

std::string copy_for(const std::string& recipient, const std::string& body) {
    return "Return-Path: <s@s.test>\r\nDelivered-To: " + recipient + "\r\n" + body;
}

const std::string body = "Subject: x\r\n\r\n.text\r\n";

}  // namespace

TEST_CASE("Discarded mail completes at once", "[gateway][delivery]") {
    BoxLoop loop;
    const TempDirectory spool;
    ShardInABox box(loop, spool.path(), config_with({discard_route({"*"})}));
    box.accept({"s@s.test", {"a@r.test", "b@r.test"}, body});
    CHECK_FALSE(box.delivery->busy());
    box.until([&] { return box.spool_is_empty(); });
    CHECK(box.recipients(Outcome::delivered) == 2);
    CHECK(box.metrics.route(0).messages_out.value() == 1);
}

TEST_CASE("A Maildir gets one copy for each recipient, whole", "[gateway][delivery]") {
    BoxLoop loop;
    const TempDirectory spool;
    const Maildir maildir;
    ShardInABox box(loop, spool.path(), config_with({maildir_route({"*"}, maildir.root)}));
    const std::string large = "Subject: y\r\n\r\n" + std::string(600'000, 'y') + "\r\n";
    box.accept({"s@s.test", {"a@r.test", "b@r.test"}, body});
    box.accept({"s@s.test", {"c@r.test"}, large});
    box.until([&] { return box.spool_is_empty(); });
    CHECK(maildir.copies() == Texts{copy_for("a@r.test", body), copy_for("b@r.test", body), copy_for("c@r.test", large)});
    CHECK(box.recipients(Outcome::delivered) == 3);
    CHECK(box.metrics.route(0).bytes_out.value() == 2 * body.size() + large.size());
}

TEST_CASE("A Maildir that cannot be written defers, and gets its mail when it can", "[gateway][delivery]") {
    BoxLoop loop;
    const TempDirectory spool;
    const Maildir maildir;
    std::filesystem::remove_all(maildir.root);
    ShardInABox box(loop, spool.path(), config_with({maildir_route({"*"}, maildir.root)}));
    box.accept({"s@s.test", {"a@r.test"}, body});
    box.until([&] { return box.said({"event=deferred", "to=a@r.test", maildir.root}) > 0; });
    REQUIRE(MaildirWriter::prepare(maildir.root));
    box.until([&] { return box.spool_is_empty(); });
    CHECK(maildir.copies() == Texts{copy_for("a@r.test", body)});
    CHECK(box.metrics.route(0).retries.value() > 0);
    CHECK(box.metrics.route(0).messages_out.value() == 1);
}

TEST_CASE("A Maildir route of one job at a time gets through its queue, and its budget is whole afterwards", "[gateway][delivery]") {
    BoxLoop loop;
    const TempDirectory spool;
    const Maildir maildir;
    config::Config config = config_with({maildir_route({"*"}, maildir.root)});
    config.routes[0].connections = 1;
    ShardInABox box(loop, spool.path(), config);
    box.accept_all(std::vector<Letter>(5, {"s@s.test", {"a@r.test"}, body}));
    box.until([&] { return box.spool_is_empty(); });
    CHECK(maildir.copies().size() == 5);
    CHECK(box.budgets[0].try_take());
    CHECK_FALSE(box.budgets[0].try_take());
}

TEST_CASE("Each recipient of a message goes its own way", "[gateway][delivery]") {
    BoxLoop loop;
    const TempDirectory spool;
    const Maildir maildir;
    NextHop hop(loop);
    ShardInABox box(loop, spool.path(),
                    config_with({discard_route({"gone.test"}), maildir_route({"box.test"}, maildir.root), smtp_route({"*"}, hop.port())}));
    box.accept({"s@s.test", {"a@hop.test", "b@gone.test", "c@box.test", "d@other.test", "e@gone.test"}, body});
    box.until([&] { return box.spool_is_empty(); });
    REQUIRE(hop.mails.size() == 1);
    CHECK(hop.mails[0].recipients == Texts{"a@hop.test", "d@other.test"});
    CHECK(maildir.copies() == Texts{copy_for("c@box.test", body)});
    CHECK(box.recipients(Outcome::delivered, 0) == 2);
    CHECK(box.recipients(Outcome::delivered, 1) == 1);
    CHECK(box.recipients(Outcome::delivered, 2) == 2);
}

TEST_CASE("A message that the first of its routes settles at once is still there for the next", "[gateway][delivery]") {
    BoxLoop loop;
    const TempDirectory spool;
    ShardInABox box(loop, spool.path(), config_with({discard_route({"a.test"}), discard_route({"b.test"})}));
    box.accept({"s@s.test", {"x@a.test", "x@b.test", "y@a.test"}, body});
    box.until([&] { return box.spool_is_empty(); });
    CHECK(box.recipients(Outcome::delivered, 0) == 2);
    CHECK(box.recipients(Outcome::delivered, 1) == 1);
}

TEST_CASE("Recovered mail goes its way, and only to those who have not got it", "[gateway][delivery]") {
    BoxLoop loop;
    const TempDirectory spool;
    NextHop hop(loop);
    auto with = [&](std::vector<config::Route> routes) { return config_with(std::move(routes)); };
    {
        ShardInABox box(loop, spool.path(), with({discard_route({"gone.test"}), smtp_route({"*"}, hop.port())}));
        hop.hold(".");
        for (int i = 0; i < 20; ++i)
            box.accept({"s@s.test", {"a@gone.test", "b@hop.test"}, "Subject: " + std::to_string(i) + "\r\n\r\n"});
        box.until([&] { return box.recipients(Outcome::delivered, 0) == 20 && hop.held() > 0; });
        hop.hang_up();
    }
    hop.release();
    hop.mails.clear();
    ShardInABox box(loop, spool.path(), with({discard_route({"gone.test"}), smtp_route({"*"}, hop.port())}));
    CHECK(box.spool->status().messages == 20);
    box.deliver_recovered();
    box.until([&] { return box.spool_is_empty(); });
    CHECK(box.recipients(Outcome::delivered, 0) == 0);
    CHECK(box.recipients(Outcome::delivered, 1) == 20);
    REQUIRE(hop.mails.size() == 20);
    for (const NextHop::Mail& mail : hop.mails) CHECK(mail.recipients == Texts{"b@hop.test"});
}

TEST_CASE("A recovered message keeps the wait that its last failure earned", "[gateway][delivery]") {
    BoxLoop loop;
    const TempDirectory spool;
    NextHop hop(loop);
    config::Config config = config_with({smtp_route({"*"}, hop.port())});
    config.delivery.retry_first = hours(1);
    {
        ShardInABox box(loop, spool.path(), config);
        hop.once("RCPT", "450 4.2.1 later");
        box.accept({"s@s.test", {"late@r.test"}, body});
        box.until([&] { return box.recipients(Outcome::deferred) == 1; });
    }
    ShardInABox box(loop, spool.path(), config);
    box.deliver_recovered();
    box.accept({"s@s.test", {"now@r.test"}, body});
    box.until([&] { return box.recipients(Outcome::delivered) == 1 && box.spool_keeps(1); });
    box.delivery->publish();
    CHECK(box.metrics.route(0).deferred.value() == 1);
    REQUIRE(hop.mails.size() == 1);
    CHECK(hop.mails[0].recipients == Texts{"now@r.test"});
}

TEST_CASE("Mail whose route is gone is said loudly and stays until there is one again", "[gateway][delivery]") {
    BoxLoop loop;
    const TempDirectory spool;
    {
        ShardInABox box(loop, spool.path(), config_with({discard_route({"a.test"})}));
        box.accept({"s@s.test", {"x@a.test", "x@b.test"}, body});
        box.until([&] { return box.said({"level=error", "event=no_route"}) == 1; });
        CHECK(box.recipients(Outcome::delivered) == 1);
        box.until([&] { return box.spool_keeps(1); });
    }
    ShardInABox box(loop, spool.path(), config_with({discard_route({"b.test"})}));
    box.deliver_recovered();
    box.until([&] { return box.spool_is_empty(); });
    CHECK(box.recipients(Outcome::delivered) == 1);
}

TEST_CASE("A recovered message that cannot be read is said loudly, counted, kept, and does not keep others", "[gateway][delivery][damage]") {
    BoxLoop loop;
    const TempDirectory spool;
    const config::Config config = config_with({discard_route({"*"})});
    {
        ShardInABox box(loop, spool.path(), config);
        for (int i = 0; i < 10; ++i) box.store({"s@s.test", {"r@r.test"}, "Subject: " + std::string(i == 3 ? "MARKER" : "good") + "\r\n\r\n"});
    }
    ShardInABox box(loop, spool.path(), config);
    damage(spool.path(), "MARKER");             // found neither by recovery nor in memory
    box.deliver_recovered();
    box.until([&] { return box.recipients(Outcome::delivered) == 9 && box.spool_keeps(1); });
    box.until([&] { return box.said({"level=error", "event=unreadable"}) == 1; });
    CHECK(box.damage == 1);
    CHECK_FALSE(box.delivery->busy());
}

TEST_CASE("A Maildir route is not kept by a message that cannot be read", "[gateway][delivery][damage]") {
    const bool large = GENERATE(false, true);   // read by the shard; by the worker
    BoxLoop loop;
    const TempDirectory spool;
    const Maildir maildir;
    config::Config config = config_with({maildir_route({"*"}, maildir.root)});
    config.routes[0].connections = 1;
    config.delivery.retry_first = hours(1);
    storage::MessageIndex damaged = 0;
    std::vector<storage::RecoveredMessage> recovered;
    {
        ShardInABox box(loop, spool.path(), config);
        box.store({"s@s.test", {"a@r.test"}, "Subject: MARKER\r\n\r\n" + std::string(large ? 600'000 : 10, 'y') + "\r\n"});
        box.store({"s@s.test", {"b@r.test"}, body});
    }
    ShardInABox box(loop, spool.path(), config);
    box.spool->for_each_recovered([&](const storage::RecoveredMessage& message) { recovered.push_back(message); });
    REQUIRE(recovered.size() == 2);
    damage(spool.path(), "MARKER");
    // As if the sorter had read both envelopes before the damage.
    for (const auto& [message, recipient] : {std::pair{recovered[0], "a@r.test"}, std::pair{recovered[1], "b@r.test"}}) {
        proto::Envelope envelope;
        envelope.set_sender("s@s.test");
        envelope.add_recipient(recipient);
        box.delivery->take(message.index, envelope);
    }
    damaged = recovered[0].index;
    box.until([&] { return box.recipients(Outcome::delivered) == 1; });
    box.until([&] { return box.said({"level=error", "event=unreadable", "route=route0"}) == 1; });
    CHECK(box.damage + box.metrics.damaged_frames.value() == 1);
    CHECK(maildir.copies() == Texts{copy_for("b@r.test", body)});
    CHECK(box.spool->state_of(damaged, 0) == storage::RecipientState::pending);
}
