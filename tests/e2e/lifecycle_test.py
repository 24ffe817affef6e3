"""Starting, stopping, and what is said when it cannot run.  Exit codes: gateway/exit_codes.hpp."""

import glob
import os
import signal
import socket
import time

from harness import GatewayTest, lines_of, main, message, wait_for
from next_hop import NextHop
from smtp_client import Client

EXIT_CONFIG, EXIT_ADDRESS_IN_USE, EXIT_SPOOL_LOCKED, EXIT_SPOOL_DAMAGED = 2, 20, 30, 34
DOWN = "smtp://127.0.0.1:1"         # nobody listens on tcpmux


class Stopping(GatewayTest):
    def test_sigterm_lets_data_in_progress_finish_and_says_421_to_the_others(self):
        gateway = self.gateway({"*": DOWN}, server={"drain_delay": "200ms"}).start()
        content = message(lines_of(300_000))
        idle, early, in_data, in_bdat = (gateway.client() for _ in range(4))
        early.begin("you@local.test")
        in_data.begin("you@local.test")
        in_data.command("DATA", 354)
        in_data.send(content[:100_000])
        in_bdat.begin("you@local.test")
        in_bdat.send(b"BDAT %d LAST\r\n" % len(content) + content[:100_000])
        gateway.send(message(), "you@local.test")       # what was sent before is surely read by now
        gateway.signal(signal.SIGTERM)
        idle.reply(421)
        self.assertTrue(idle.ended())
        early.reply(421)
        for client, rest in ((in_data, content[100_000:] + b".\r\n"), (in_bdat, content[100_000:])):
            client.send(rest)
            client.reply(250)
            client.reply(421)
            self.assertTrue(client.ended())
        self.assertEqual(gateway.wait(), 0)
        gateway.start()
        gateway.wait_pending(3)

    def test_it_is_not_ready_at_once_but_takes_mail_until_the_listeners_close(self):
        gateway = self.gateway(server={"drain_delay": "1s"}).start()
        gateway.signal(signal.SIGTERM)
        wait_for(lambda: gateway.http("/readyz")[0] == 503, 0.8, every=0.01)
        self.assertEqual(gateway.http("/livez")[0], 200)
        with gateway.client(greet=False) as client:
            client.reply(220, 421)                      # answered, not reset
        self.assertEqual(gateway.wait(), 0)
        with self.assertRaises(ConnectionRefusedError):
            Client(gateway.address, greet=False)

    def test_a_session_that_never_finishes_does_not_hold_it_beyond_the_drain_timeout(self):
        gateway = self.gateway(server={"drain_timeout": "1s"}).start()
        client = gateway.client()
        client.begin("you@local.test")
        client.command("DATA", 354)
        began = time.monotonic()
        self.assertEqual(gateway.stop(), 0)
        self.assertLess(time.monotonic() - began, 5)

    def test_a_second_sigterm_stops_at_once_and_loses_nothing(self):
        gateway = self.gateway({"*": DOWN}, server={"drain_delay": "30s", "drain_timeout": "60s"}).start()
        client = gateway.client()
        self.assertEqual(client.mail(message(), "you@local.test").code, 250)
        client.begin("you@local.test")
        client.command("DATA", 354)
        gateway.signal(signal.SIGTERM)
        wait_for(lambda: gateway.http("/readyz")[0] == 503)
        gateway.signal(signal.SIGTERM)
        gateway.wait(3)
        gateway.start()
        gateway.wait_pending(1)

    def test_sigint_stops_as_sigterm_does(self):
        gateway = self.gateway().start()
        gateway.signal(signal.SIGINT)
        self.assertEqual(gateway.wait(), 0)

    def test_a_next_hop_that_hangs_does_not_hold_it(self):
        hop = NextHop(script={"RCPT": lambda _: time.sleep(60)})
        self.addCleanup(hop.stop)
        gateway = self.gateway({"*": f"smtp://{hop.address}"}, server={"drain_timeout": "2s"}).start()
        gateway.send(message(), "you@example.org")
        self.assertTrue(hop.wait(lambda h: h.attempts))
        self.assertEqual(gateway.stop(10), 0)
        gateway.start()
        gateway.wait_pending(1)


class Restarting(GatewayTest):
    def test_killed_and_started_again_on_the_same_ports_at_once(self):
        gateway = self.gateway({"*": DOWN}).start()
        gateway.keep_ports()
        client = gateway.client()
        for life in range(5):
            gateway.send(message(f"life {life}\r\n"), "you@example.org")
            gateway.kill()
            gateway.start()
            gateway.wait_pending(life + 1)
        client.close()

    def test_queue_ids_are_never_used_again(self):
        gateway = self.gateway({"*": "discard:"}).start()
        seen = []
        for _ in range(3):
            seen += [gateway.send(message(), "you@example.org").lines[0].split()[-1] for _ in range(20)]
            gateway.kill()
            gateway.start()
        self.assertEqual(len(set(seen)), len(seen))

    def test_mail_survives_a_changed_number_of_shards(self):
        gateway = self.gateway({"*": DOWN}, server={"shards": 3}).start()
        for number in range(30):
            gateway.send(message(f"{number}\r\n"), "you@example.org")
        for shards in (1, 2, 4, 1):
            gateway.stop()
            gateway.tables["server"]["shards"] = shards
            gateway.start()
            gateway.wait_pending(30)
        gateway.stop()
        gateway.tables["route"][0]["to"] = f"maildir:{gateway.maildir.path}"
        gateway.start()
        bodies = sorted(mail.content for mail in gateway.maildir.wait(30))
        self.assertEqual(bodies, sorted(message(f"{number}\r\n") for number in range(30)))


class CannotRun(GatewayTest):
    def ends(self, gateway, code):
        """It must end with this code and exactly one error of cause and remedy; returns the log."""
        gateway.launch()
        self.assertEqual(gateway.wait(60), code, gateway.log())
        return gateway.log()

    def test_two_processes_on_one_spool(self):
        first = self.gateway(name="first").start()
        second = self.gateway(name="second", spool={"path": first.path("spool")})
        self.assertIn(first.path("spool"), self.ends(second, EXIT_SPOOL_LOCKED))
        first.send(message(), "you@local.test")
        first.maildir.wait(1)

    def test_port_taken(self):
        with socket.create_server(("127.0.0.1", 0)) as taken:
            address = f"127.0.0.1:{taken.getsockname()[1]}"
            self.assertIn(address, self.ends(self.gateway(listener=[{"address": address}]), EXIT_ADDRESS_IN_USE))

    def test_an_unknown_key_is_named_with_its_line_and_the_nearest_key(self):
        gateway = self.gateway(limits={"mesage_bytes": "1MiB"})
        log = self.ends(gateway, EXIT_CONFIG)
        with open(gateway.path("postern.toml")) as file:
            line = next(number for number, text in enumerate(file, 1) if "mesage_bytes" in text)
        self.assertRegex(log, rf"postern\.toml:{line}:\d+: .*mesage_bytes.*message_bytes")
        code, words = gateway.run("check", "--config", gateway.path("postern.toml"))
        self.assertEqual(code, EXIT_CONFIG)
        self.assertIn("message_bytes", words)

    def test_no_such_file(self):
        code, words = self.gateway().run("check", "--config", "/nowhere/postern.toml")
        self.assertEqual(code, EXIT_CONFIG)
        self.assertIn("/nowhere/postern.toml", words)

    def test_no_such_command_line(self):
        self.assertEqual(self.gateway().run("run", "--nonsense")[0], EXIT_CONFIG)


class Commands(GatewayTest):
    def test_check_explains_a_good_configuration(self):
        gateway = self.gateway().launch()
        code, words = gateway.run("check", "--config", gateway.path("postern.toml"))
        self.assertEqual(code, 0, words)
        self.assertIn(gateway.maildir.path, words)

    def test_the_reference_configuration_passes_its_own_check(self):
        gateway = self.gateway()
        code, reference = gateway.run("config")
        self.assertEqual(code, 0)
        with open(gateway.path("reference.toml"), "w") as file:
            file.write(reference)
        code, words = gateway.run("check", "--config", gateway.path("reference.toml"))
        self.assertEqual(code, 0, words)

    def test_version_names_the_kernel_features(self):
        code, words = self.gateway().run("--version")
        self.assertEqual(code, 0)
        self.assertRegex(words, r"\d+\.\d+\.\d+")

    def test_health_asks_the_admin_port(self):
        gateway = self.gateway().start()
        gateway.keep_ports()
        gateway.stop()
        gateway.start()
        config = ("--config", gateway.path("postern.toml"))
        self.assertEqual(gateway.run("health", *config)[0], 0)
        gateway.stop()
        self.assertEqual(gateway.run("health", *config)[0], 1)

    def test_spool_verify_counts_messages_and_finds_damage(self):
        gateway = self.gateway({"*": DOWN}).start()
        marker = b"a line that can be found on the disk"
        for number in range(5):
            gateway.send(message(b"%s %d\r\n" % (marker, number)), "you@example.org")
        gateway.stop()
        code, words = gateway.run("spool", "verify", gateway.path("spool"))
        self.assertEqual(code, 0, words)
        self.assertRegex(words, r"\b5\b")
        self.damage(gateway, marker + b" 2")
        code, words = gateway.run("spool", "verify", gateway.path("spool"))
        self.assertEqual(code, EXIT_SPOOL_DAMAGED, words)

    def test_one_damaged_message_does_not_stop_the_others(self):
        gateway = self.gateway({"*": DOWN}).start()
        marker = b"a line that can be found on the disk"
        for number in range(5):
            gateway.send(message(b"%s %d\r\n" % (marker, number)), "you@local.test")
        gateway.stop()
        self.damage(gateway, marker + b" 2")
        gateway.tables["route"][0]["to"] = f"maildir:{gateway.maildir.path}"
        gateway.start()
        bodies = sorted(mail.content for mail in gateway.maildir.wait(4))
        self.assertEqual(bodies, [message(b"%s %d\r\n" % (marker, number)) for number in (0, 1, 3, 4)])

    def damage(self, gateway, octets):
        """Flips one bit of the only place in the spool that holds these octets."""
        for path in glob.glob(gateway.path("spool", "**"), recursive=True):
            if os.path.isfile(path):
                with open(path, "r+b") as file:
                    position = file.read().find(octets)
                    if position >= 0:
                        file.seek(position)
                        file.write(bytes([octets[0] ^ 1]))
                        return
        self.fail(f"{octets} is nowhere in the spool")


class DefaultConfiguration(GatewayTest):
    def test_run_without_a_configuration_takes_mail_for_any_domain_into_a_maildir_under_var(self):
        with socket.socket() as probe:
            for port in (2525, 9125):
                if probe.connect_ex(("127.0.0.1", port)) == 0:
                    self.skipTest(f"port {port} is in use on this machine")
        gateway = self.gateway().start(arguments=[])
        self.assertEqual(gateway.address, ("127.0.0.1", 2525))
        gateway.send(message(), "you@any.test")
        news = wait_for(lambda: glob.glob(gateway.path("var", "**", "new", "*"), recursive=True))
        self.assertEqual(len(news), 1)
        self.assertTrue(os.path.isdir(gateway.path("var")))


if __name__ == "__main__":
    main()
