"""Taking mail in: what a client sees, and that what is delivered is what was sent."""

import shutil
import socket
import subprocess

from harness import GatewayTest, lines_of, main, message
from smtp_client import Client, stuffed


class FirstMail(GatewayTest):
    def test_swaks_sends_a_first_mail_and_it_is_in_the_maildir(self):
        if not shutil.which("swaks"):
            self.skipTest("swaks is not installed")
        gateway = self.gateway().start()
        host, port = gateway.address
        swaks = subprocess.run(["swaks", "--server", f"{host}:{port}", "--from", "me@client.test", "--to", "you@local.test",
                                "--header", "Subject: first", "--body", "hello"], capture_output=True, text=True, timeout=60)
        self.assertEqual(swaks.returncode, 0, swaks.stdout + swaks.stderr)
        mail, = gateway.maildir.wait(1)
        self.assertIn(b"Subject: first", mail.content)
        self.assertIn(b"\r\nhello\r\n", mail.content)
        self.assertEqual(mail.field("Return-Path"), "<me@client.test>")
        self.assertEqual(mail.field("Delivered-To"), "you@local.test")
        self.assertRegex(mail.field("Received"), r"(?s)^from .*\[127\.0\.0\.1\].*by mx\.example\.org with ESMTP id \w+.*for <you@local\.test>;")

    def test_the_reply_names_the_queue_id_of_the_received_field(self):
        gateway = self.gateway().start()
        reply = gateway.send(message(), "you@local.test")
        mail, = gateway.maildir.wait(1)
        self.assertIn(mail.field("Received").split(" id ")[1].split()[0].rstrip(";"), reply.lines[0])

    def test_ipv6_clients_are_served_and_named_so(self):
        try:
            socket.create_server(("::1", 0), family=socket.AF_INET6).close()
        except OSError:
            self.skipTest("this machine has no IPv6")
        gateway = self.gateway(listen=("127.0.0.1", "::1")).start()
        with Client(gateway.addresses[1]) as client:
            self.assertEqual(client.mail(message(), "you@local.test").code, 250)
        mail, = gateway.maildir.wait(1)
        self.assertIn("[IPv6:::1]", mail.field("Received"))

    def test_a_null_sender_is_kept(self):
        gateway = self.gateway().start()
        gateway.send(message(), "you@local.test", sender="")
        self.assertEqual(gateway.maildir.wait(1)[0].field("Return-Path"), "<>")


class Content(GatewayTest):
    def setUp(self):
        super().setUp()
        self.gateway1 = self.gateway().start()

    def delivered(self):
        return self.gateway1.maildir.wait(1)[0].content

    def test_twenty_megabytes_by_data_arrive_byte_identical(self):
        content = message(lines_of(20_000_000))
        with self.gateway1.client(timeout=120) as client:
            self.assertEqual(client.mail(content, "you@local.test").code, 250)
        self.assertTrue(self.delivered() == content)

    def test_twenty_megabytes_by_bdat_arrive_byte_identical(self):
        content = message(lines_of(20_000_000))
        with self.gateway1.client(timeout=120) as client:
            client.begin("you@local.test")
            for start in range(0, len(content), 3_000_000):
                self.assertEqual(client.bdat(content[start:start + 3_000_000]).code, 250)
            self.assertEqual(client.bdat(b"", last=True).code, 250)
        self.assertTrue(self.delivered() == content)

    def test_a_message_in_one_bdat_chunk_with_lone_dots_is_not_unstuffed(self):
        content = message(b".\r\n..\r\n.leading\r\n\r\n.\r\n")
        with self.gateway1.client() as client:
            client.begin("you@local.test")
            self.assertEqual(client.bdat(content, last=True).code, 250)
        self.assertEqual(self.delivered(), content)

    def test_a_message_sent_octet_by_octet_arrives_byte_identical(self):
        content = message(b".dot\r\n..two\r\nend\r\n")
        with self.gateway1.client() as client:
            client.begin("you@local.test")
            client.command("DATA", 354)
            for octet in stuffed(content) + b".\r\n":
                client.send(bytes([octet]))
            client.reply(250)
        self.assertEqual(self.delivered(), content)

    def test_an_empty_message_stays_empty(self):
        with self.gateway1.client() as client:
            client.begin("you@local.test")
            client.command("DATA", 354)
            client.command(".", 250)
        self.assertEqual(self.delivered(), b"")

    def test_octets_above_127_pass(self):
        content = message(bytes(range(128, 256)) + b"\r\n")
        self.gateway1.send(content, "you@local.test")
        self.assertEqual(self.delivered(), content)

    def test_a_connection_lost_before_the_end_leaves_nothing(self):
        with self.gateway1.client() as client:
            client.begin("you@local.test")
            client.command("DATA", 354)
            client.send(message(lines_of(400_000)))
        with self.gateway1.client() as client:
            client.begin("you@local.test")
            client.bdat(message(lines_of(400_000)))
        self.gateway1.send(message("the only one\r\n"), "you@local.test")
        self.assertIn(b"the only one", self.delivered())


class ManyRecipients(GatewayTest):
    def test_a_message_for_a_thousand_is_stored_once_and_delivered_a_thousand_times(self):
        gateway = self.gateway({"*": "smtp://127.0.0.1:1", "local.test": "MAILDIR"}).start()
        content = message(lines_of(200_000))
        recipients = [f"user{number}@local.test" for number in range(1000)]
        with gateway.client(timeout=60) as client:
            client.send("MAIL FROM:<sender@client.test>\r\n" + "".join(f"RCPT TO:<{r}>\r\n" for r in recipients))
            for _ in range(1001):
                client.reply(250)
            client.command("RCPT TO:<one.more@local.test>", 452)
            client.command("DATA", 354)
            client.send(stuffed(content) + b".\r\n")
            client.reply(250)
        mails = gateway.maildir.wait(1000, timeout=120)
        self.assertEqual(sorted(mail.field("Delivered-To") for mail in mails), sorted(recipients))
        self.assertTrue(all(mail.content == content for mail in mails))
        self.assertNotIn("for <", mails[0].field("Received"))           # would tell one of the others
        self.assertEqual(gateway.metric("postern_messages_received_total"), 1)

    def test_the_same_recipient_twice_gets_one_copy(self):
        gateway = self.gateway().start()
        gateway.send(message(), "you@local.test", "you@LOCAL.test")
        gateway.send(message("second\r\n"), "other@local.test")
        self.assertEqual(len(gateway.maildir.wait(2)), 2)


class Pipelining(GatewayTest):
    def test_groups_of_two_hundred_commands_get_two_hundred_replies_in_order(self):
        gateway = self.gateway().start()
        group = ("RSET\r\nMAIL FROM:<a@client.test>\r\n" +
                 "".join(f"RCPT TO:<{number}@{'local' if number % 2 else 'bad..name'}.test>\r\n" for number in range(10)) +
                 "RCPT TO:<x@local.test>\r\n" * 188)
        with gateway.client() as client:
            for _ in range(3):
                client.send(group)
                codes = [client.reply().code for _ in range(200)]
                self.assertEqual(codes[:12], [250, 250] + [501, 250] * 5)
                self.assertEqual(set(codes[12:]), {250})

    def test_a_hundred_messages_in_one_write(self):
        gateway = self.gateway().start()
        one = b"MAIL FROM:<a@client.test>\r\nRCPT TO:<you@local.test>\r\nBDAT 7 LAST\r\nhello\r\n"
        with gateway.client() as client:
            client.send(one * 100 + b"QUIT\r\n")
            for _ in range(100):
                for _ in range(3):
                    client.reply(250)
            client.reply(221)
            self.assertTrue(client.ended())
        gateway.maildir.wait(100)

    def test_ehlo_and_quit_in_one_segment(self):
        gateway = self.gateway().start()
        with gateway.client(greet=False) as client:
            client.reply(220)
            client.send("EHLO monitor.test\r\nQUIT\r\n")
            client.reply(250)
            client.reply(221)
            self.assertTrue(client.ended())

    def test_a_whole_session_in_one_write(self):
        gateway = self.gateway().start()
        with gateway.client(greet=False) as client:
            client.send(b"EHLO c.test\r\nMAIL FROM:<a@client.test>\r\nRCPT TO:<you@local.test>\r\nDATA\r\n" + message() +
                        b".\r\nMAIL FROM:<a@client.test>\r\nRCPT TO:<you@local.test>\r\nDATA\r\n" + message() + b".\r\nQUIT\r\n")
            self.assertEqual([client.reply().code for _ in range(9)], [220, 250, 250, 250, 354, 250, 250, 250, 354])
            client.reply(250)
            client.reply(221)
            self.assertTrue(client.ended())
        self.assertEqual([mail.content for mail in gateway.maildir.wait(2)], [message()] * 2)


class Refusals(GatewayTest):
    def test_a_client_that_may_not_relay_is_told_so_and_local_mail_is_taken_from_anyone(self):
        gateway = self.gateway(policy={"relay_networks": []}).start()
        with gateway.client() as client:
            client.command("MAIL FROM:<a@client.test>", 250)
            self.assertIn("5.7.1", client.command("RCPT TO:<you@elsewhere.test>", 550, 554).lines[0])
            client.command("RCPT TO:<you%elsewhere.test@local.test>", 250)      # no percent hack: a local part like others
            client.command("RCPT TO:<you@local.test>", 250)
            client.command("RCPT TO:<Postmaster>", 250)

    def test_too_large_is_refused_at_mail_and_at_the_end_of_data(self):
        gateway = self.gateway(limits={"message_bytes": "64KiB"}).start()
        with gateway.client() as client:
            self.assertIn("SIZE 65536", client.ehlo.lines)
            self.assertIn("5.3.4", client.command("MAIL FROM:<a@client.test> SIZE=65537", 552).lines[0])
            client.begin("you@local.test", parameters=" SIZE=65536")
            client.command("RSET", 250)
            self.assertEqual(client.mail(message(lines_of(70_000)), "you@local.test").code, 552)
            client.begin("you@local.test")
            client.bdat(b"x" * 60_000)
            self.assertEqual(client.bdat(b"x" * 60_000, last=True).code, 552)
            self.assertEqual(client.mail(message(), "you@local.test").code, 250)    # and we are still in step
        self.assertEqual(len(gateway.maildir.wait(1)), 1)

    def test_bare_line_feeds_are_refused_and_end_nothing(self):
        gateway = self.gateway().start()
        for smuggled in (b"\n.\r\n", b"\n.\n", b"\r\n.\n", b"\r.\r", b"\r\n.\r"):
            with self.subTest(end=smuggled), gateway.client() as client:
                client.begin("you@local.test")
                client.command("DATA", 354)
                client.send(message() + b"x" + smuggled + b"MAIL FROM:<evil@client.test>\r\n.\r\n")
                client.reply(550)
                client.command("NOOP", 250)
        gateway.send(message("good\r\n"), "you@local.test")
        self.assertIn(b"good", gateway.maildir.wait(1)[0].content)

    def test_bare_line_feeds_are_made_whole_when_the_policy_says_so(self):
        gateway = self.gateway(policy={"bare_newline": "normalize"}).start()
        with gateway.client() as client:
            client.begin("you@local.test")
            client.command("DATA", 354)
            client.send(b"Subject: x\r\n\r\none\ntwo\n.\nthree\r\n.\r\n")
            client.reply(250)
        self.assertEqual(gateway.maildir.wait(1)[0].content, b"Subject: x\r\n\r\none\r\ntwo\r\n.\r\nthree\r\n")

    def test_a_web_browser_is_sent_away_at_its_first_line(self):
        gateway = self.gateway().start()
        for request in (b"GET / HTTP/1.1\r\nHost: x\r\n\r\n", b"POST / HTTP/1.1\r\n\r\n", b"CONNECT x:25 HTTP/1.1\r\n\r\n"):
            with self.subTest(request), gateway.client(greet=False) as client:
                client.reply(220)
                client.send(request)
                client.reply(221, 421)
                self.assertTrue(client.ended())

    def test_one_connection_more_than_allowed_gets_421_and_the_others_go_on(self):
        gateway = self.gateway(limits={"connections": 10}).start()
        clients = [gateway.client() for _ in range(10)]
        with gateway.client(greet=False) as extra:
            extra.reply(421)
            self.assertTrue(extra.ended())
        for client in clients:
            client.command("QUIT", 221)
            client.close()
        gateway.send(message(), "you@local.test")

    def test_too_many_errors_end_the_session(self):
        gateway = self.gateway(limits={"errors": 5}).start()
        with gateway.client() as client:
            codes = [client.command("NONSENSE").code for _ in range(5)]
            while codes[-1] != 421 and len(codes) < 8:
                codes.append(client.command("NONSENSE").code)
            self.assertEqual(set(codes[:-1]), {500})
            self.assertEqual(codes[-1], 421)
            self.assertTrue(client.ended())

    def test_a_silent_client_is_timed_out(self):
        gateway = self.gateway(limits={"command_timeout": "500ms", "data_timeout": "500ms"}).start()
        with gateway.client() as client:
            client.reply(421)
            self.assertTrue(client.ended())
        with gateway.client() as client:
            client.begin("you@local.test")
            client.command("DATA", 354)
            client.send(b"Subject: ")
            client.reply(421)
            self.assertTrue(client.ended())


if __name__ == "__main__":
    main()
