"""What can be seen from outside: probes, metrics, log."""

import json
import shutil
import subprocess

from harness import GatewayTest, fields_of, main, message, wait_for


class Probes(GatewayTest):
    def test_each_probe_answers(self):
        gateway = self.gateway().start()
        for path in ("/livez", "/readyz", "/startupz"):
            self.assertEqual(gateway.http(path)[0], 200, path)
        self.assertEqual(gateway.http("/nonsense")[0], 404)


class Metrics(GatewayTest):
    def test_promtool_has_no_complaint(self):
        if not shutil.which("promtool"):
            self.skipTest("promtool is not installed (package prometheus)")
        gateway = self.gateway().start()
        gateway.send(message(), "you@local.test")
        gateway.maildir.wait(1)
        checked = subprocess.run(["promtool", "check", "metrics"], input=gateway.http("/metrics")[1], capture_output=True,
                                 text=True)
        self.assertEqual((checked.returncode, checked.stdout + checked.stderr), (0, ""))

    def test_a_message_is_counted_on_its_way(self):
        gateway = self.gateway({"*": "discard:", "local.test": "MAILDIR"}).start()
        names = ("postern_connections_accepted_total", "postern_messages_received_total", "postern_recipients_received_total",
                 "postern_commit_wait_seconds_count", "postern_route_recipients_total")
        before = {name: gateway.metric(name) for name in names}         # they are there with zero
        self.assertEqual(before["postern_messages_received_total"], 0)
        with gateway.client() as client:
            client.mail(message(), "a@local.test", "b@example.org")
            client.mail(message(), "c@local.test")
            client.command("QUIT", 221)
        gateway.maildir.wait(2)
        gateway.wait_pending(0)
        grown = {name: gateway.metric(name) - before[name] for name in names}
        self.assertEqual(grown, dict(zip(names, (1, 2, 3, 2, 3))))
        self.assertEqual(gateway.metric("postern_commands_total", verb="rcpt"), 3)
        self.assertEqual(gateway.metric("postern_route_recipients_total", outcome="delivered"), 3)
        wait_for(lambda: gateway.metric("postern_connections_open") == 0)

    def test_no_label_holds_an_address_or_a_domain(self):
        gateway = self.gateway().start()
        gateway.send(message(), "somebody@local.test", sender="whoever@client.test")
        gateway.maildir.wait(1)
        text = gateway.http("/metrics")[1]
        for word in ("somebody", "whoever", "client.test", "local.test"):
            self.assertNotIn(word, text)

    def test_per_message_figures_can_be_switched_off(self):
        gateway = self.gateway(metrics={"per_message": False}).start()
        gateway.send(message(), "you@local.test")
        gateway.maildir.wait(1)
        self.assertEqual(gateway.metric("postern_messages_received_total"), 0)
        self.assertEqual(gateway.metric("postern_connections_accepted_total"), 1)


class Log(GatewayTest):
    def story(self, gateway, parse):
        """The log lines that name the queue id of one message."""
        queue_id = gateway.send(message(), "you@local.test").lines[0].split()[-1]
        gateway.maildir.wait(1)
        return wait_for(lambda: len(lines := [parse(line) for line in gateway.log().splitlines() if queue_id in line]) >= 2 and lines)

    def test_a_message_leaves_one_line_when_accepted_and_one_when_delivered(self):
        lines = self.story(self.gateway().start(), fields_of)
        self.assertEqual([line["event"] for line in lines], ["accepted", "delivered"])

    def test_the_same_as_json(self):
        lines = self.story(self.gateway(log={"format": "json"}).start(), json.loads)
        self.assertEqual([line["event"] for line in lines], ["accepted", "delivered"])

    def test_what_a_client_says_cannot_forge_a_line(self):
        gateway = self.gateway().start()
        with gateway.client() as client:
            client.command("EHLO x\"\tevent=listening", 250, 501)
            client.command('MAIL FROM:<"a event=forged"@client.test>')
            client.command("RCPT TO:<b event=forged@local.test>")
        gateway.send(message(), "you@local.test")
        gateway.stop()
        self.assertEqual(gateway.events("forged"), [])
        self.assertEqual(len(gateway.events("listening")), 1)


if __name__ == "__main__":
    main()
