"""Handing on: routes, next hops that are down, refuse, are slow or go away in the middle."""

import time

from harness import GatewayTest, lines_of, main, message, wait_for
from next_hop import NextHop

QUICK_RETRY = {"retry_first": "1s", "retry_max": "2s"}


def ours_removed(content):
    """The content without the Received field that we put on top."""
    assert content.startswith(b"Received:"), content[:80]
    position = content.index(b"\r\n") + 2
    while content[position:position + 1] in (b" ", b"\t"):
        position = content.index(b"\r\n", position) + 2
    return content[position:]


class DeliverTest(GatewayTest):
    def next_hop(self, **options):
        hop = NextHop(**options)
        self.addCleanup(hop.stop)
        return hop

    def relay(self, hop, name="gateway", **options):
        options.setdefault("delivery", QUICK_RETRY)
        return self.gateway({"*": f"{'lmtp' if hop.lmtp else 'smtp'}://{hop.address}"}, name=name, **options).start()


class Routes(DeliverTest):
    def test_the_most_specific_route_wins(self):
        exact, suffix, rest = self.next_hop(), self.next_hop(), self.next_hop()
        gateway = self.gateway({"*": f"smtp://{rest.address}", ".a.test": f"smtp://{suffix.address}",
                                "x.a.test": f"smtp://{exact.address}", "local.test": "MAILDIR", "null.test": "discard:"}).start()
        gateway.send(message(), "1@x.a.test", "2@y.a.test", "3@a.test", "4@b.test", "5@local.test", "6@X.A.Test", "7@null.test")
        self.assertTrue(exact.wait(lambda hop: hop.messages) and suffix.wait(lambda hop: hop.messages))
        gateway.wait_pending(0)
        self.assertEqual(sorted(exact.messages[0].recipients), ["1@x.a.test", "6@x.a.test"])
        self.assertEqual(suffix.messages[0].recipients, ["2@y.a.test"])
        self.assertEqual(sorted(r for m in rest.messages for r in m.recipients), ["3@a.test", "4@b.test"])
        self.assertEqual(gateway.maildir.wait(1)[0].field("Delivered-To"), "5@local.test")

    def test_discard_accepts_and_drops(self):
        gateway = self.gateway({"*": "discard:"}).start()
        for _ in range(20):
            gateway.send(message(), "you@example.org")
        gateway.wait_pending(0)


class Relay(DeliverTest):
    def test_what_arrives_is_what_was_sent_by_data_and_by_bdat(self):
        content = message(b".\r\n..\r\n.dot\r\n" + lines_of(3_000_000))
        for extensions, by in ((("PIPELINING", "8BITMIME"), "DATA"), (("PIPELINING", "8BITMIME", "CHUNKING"), "BDAT"), ((), "DATA")):
            with self.subTest(extensions=extensions):
                hop = self.next_hop(extensions=extensions)
                gateway = self.relay(hop, name=f"gateway-{'-'.join(extensions)}")
                gateway.send(content, "you@example.org")
                self.assertTrue(hop.wait(lambda h: h.messages))
                self.assertEqual(hop.messages[0].by, by)
                self.assertTrue(ours_removed(hop.messages[0].content) == content)
                self.assertEqual(hop.messages[0].sender, "sender@client.test")
                gateway.wait_pending(0)

    def test_a_next_hop_without_ehlo_is_greeted_with_helo(self):
        hop = self.next_hop(script={"EHLO": lambda _: "502 5.5.1 what?"})
        gateway = self.relay(hop)
        gateway.send(message(), "you@example.org")
        self.assertTrue(hop.wait(lambda h: h.messages))

    def test_several_messages_use_one_connection(self):
        hop = self.next_hop()
        gateway = self.relay(hop)
        with gateway.client() as client:
            for number in range(50):
                self.assertEqual(client.mail(message(f"{number}\r\n"), "you@example.org").code, 250)
        self.assertTrue(hop.wait(lambda h: len(h.messages) == 50))
        self.assertLessEqual(hop.connections, 20)        # the most that a route has by default

    def test_no_more_connections_than_the_route_allows(self):
        hop = self.next_hop(script={".": lambda _: time.sleep(0.05)})
        gateway = self.gateway(route=[{"domains": ["*"], "to": f"smtp://{hop.address}", "connections": 3}]).start()
        with gateway.client() as client:
            for number in range(60):
                client.mail(message(f"{number}\r\n"), "you@example.org")
        self.assertTrue(hop.wait(lambda h: len(h.messages) == 60))
        self.assertEqual(hop.open_most, 3)

    def test_a_next_hop_by_name(self):
        hop = self.next_hop()
        gateway = self.gateway({"*": f"smtp://localhost:{hop.port}"}, delivery=QUICK_RETRY).start()
        gateway.send(message(), "you@example.org")
        self.assertTrue(hop.wait(lambda h: h.messages))


class Trouble(DeliverTest):
    def test_mail_for_a_next_hop_that_is_down_waits_and_leaves_when_it_is_back(self):
        hop = self.next_hop()
        hop.stop()
        gateway = self.relay(hop)
        contents = [message(f"number {number}\r\n") for number in range(20)]
        for content in contents:
            gateway.send(content, "you@example.org")
        gateway.wait_pending(20)
        wait_for(lambda: gateway.metric("postern_route_connections_failed_total") > 0)
        # The route is down; its messages wait untouched.
        self.assertEqual(gateway.metric("postern_route_recipients_total", outcome="deferred"), 0)
        self.assertEqual(gateway.http("/readyz")[0], 200)       # a next hop that is down is not our unreadiness
        hop.start()
        self.assertTrue(hop.wait(lambda h: len(h.messages) == 20))
        self.assertEqual(sorted(ours_removed(m.content) for m in hop.messages), sorted(contents))
        gateway.wait_pending(0)

    def test_waiting_mail_leaves_after_a_restart_too(self):
        hop = self.next_hop()
        hop.stop()
        gateway = self.relay(hop)
        gateway.send(message(), "you@example.org")
        gateway.kill()
        gateway.start()
        hop.start()
        self.assertTrue(hop.wait(lambda h: h.messages))
        gateway.wait_pending(0)

    def test_only_those_refused_with_4xx_are_tried_again_and_those_with_5xx_are_held(self):
        tries = {}

        def rcpt(address):
            tries[address] = tries.get(address, 0) + 1
            if address.startswith("never"):
                return "550 5.1.1 unknown"
            if address.startswith("later") and tries[address] < 3:
                return "450 4.2.0 later"
        hop = self.next_hop(script={"RCPT": rcpt})
        gateway = self.relay(hop)
        gateway.send(message(), "good@example.org", "never@example.org", "later@example.org")
        self.assertTrue(hop.wait(lambda h: h.of("later@example.org")))
        self.assertEqual(tries, {"good@example.org": 1, "never@example.org": 1, "later@example.org": 3})
        self.assertEqual(len(hop.of("good@example.org")), 1)
        first, second, third = [at for at, address in hop.attempts if address.startswith("later")]
        self.assertGreater(second - first, 0.4)         # 1 s, give or take the jitter
        wait_for(lambda: gateway.metric("postern_spool_messages_held") == 1)
        self.assertEqual(gateway.metric("postern_route_recipients_total", outcome="failed"), 1)
        self.assertEqual(gateway.metric("postern_route_retries_total"), 2)
        gateway.stop()
        gateway.start()
        self.assertEqual(gateway.metric("postern_spool_messages_held"), 1)      # and it stays so
        time.sleep(1.5)
        self.assertEqual(tries["never@example.org"], 1)

    def test_an_answer_to_the_dot_counts_for_all_recipients(self):
        answers = iter(["451 4.3.0 not now", None])
        hop = self.next_hop(script={".": lambda _: next(answers, None)})
        gateway = self.relay(hop)
        gateway.send(message(), "a@example.org", "b@example.org")
        self.assertTrue(hop.wait(lambda h: h.messages))
        self.assertEqual(sorted(hop.messages[0].recipients), ["a@example.org", "b@example.org"])
        gateway.wait_pending(0)

    def test_a_connection_lost_after_the_dot_is_tried_again(self):
        answers = iter([NextHop.DROP, None])
        hop = self.next_hop(script={".": lambda _: next(answers, None)})
        gateway = self.relay(hop)
        gateway.send(message(), "you@example.org")
        self.assertTrue(hop.wait(lambda h: h.messages))
        self.assertEqual(len(hop.attempts), 2)
        gateway.wait_pending(0)

    def test_connections_lost_at_any_stage_are_tried_again(self):
        for stage in ("CONNECT", "EHLO", "MAIL", "RCPT", "DATA"):
            with self.subTest(stage=stage):
                answers = iter([NextHop.DROP, None])
                hop = self.next_hop(script={stage: lambda _, answers=answers: next(answers, None)})
                gateway = self.relay(hop, name=f"gateway-{stage}")
                gateway.send(message(), "you@example.org")
                self.assertTrue(hop.wait(lambda h: h.messages))
                gateway.wait_pending(0)

    def test_a_recipient_whose_time_is_up_is_failed_and_held(self):
        hop = self.next_hop(script={"RCPT": lambda _: "450 4.2.0 never, in truth"})
        gateway = self.relay(hop, delivery={**QUICK_RETRY, "expire": "3s"})
        gateway.send(message(), "you@example.org")
        wait_for(lambda: gateway.metric("postern_spool_messages_held") == 1)
        self.assertEqual(gateway.metric("postern_route_recipients_total", outcome="expired"), 1)


class Lmtp(DeliverTest):
    def test_each_recipient_has_its_own_answer(self):
        tries = {}

        def dot(address):
            tries[address] = tries.get(address, 0) + 1
            if address.startswith("full"):
                return "552 5.2.2 over quota"
            if address.startswith("busy") and tries[address] == 1:
                return "450 4.2.1 busy"
        hop = self.next_hop(lmtp=True, script={".": dot})
        gateway = self.relay(hop)
        gateway.send(message(), "good@example.org", "full@example.org", "busy@example.org")
        self.assertTrue(hop.wait(lambda h: h.of("busy@example.org")))
        self.assertEqual(tries, {"good@example.org": 1, "full@example.org": 1, "busy@example.org": 2})
        wait_for(lambda: gateway.metric("postern_spool_messages_held") == 1)

    def test_over_a_unix_socket(self):
        hop = self.next_hop(lmtp=True, path=f"{self.folder}/lmtp.sock")
        gateway = self.gateway({"*": f"lmtp+unix:{hop.path}"}).start()
        content = message(lines_of(500_000))
        gateway.send(content, "you@example.org")
        self.assertTrue(hop.wait(lambda h: h.messages))
        self.assertTrue(ours_removed(hop.messages[0].content) == content)


if __name__ == "__main__":
    main()
