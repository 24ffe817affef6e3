"""Scarce things: disk, descriptors, locked memory."""

import os
import pwd
import resource
import shutil
import subprocess
import time
import unittest

from harness import PROGRAM, GatewayTest, lines_of, main, message, wait_for
from next_hop import NextHop
from smtp_client import Client, Closed


class FullDisk(GatewayTest):
    @unittest.skipUnless(os.getuid() == 0, "mounting a small file system needs root")
    def setUp(self):
        super().setUp()
        self.small = os.path.join(self.folder, "small")
        os.mkdir(self.small)
        mounted = subprocess.run(["mount", "-t", "tmpfs", "-o", "size=40m", "tmpfs", self.small], capture_output=True, text=True)
        if mounted.returncode != 0:
            self.skipTest(f"cannot mount here: {mounted.stderr.strip()}")
        self.addCleanup(self.unmount)

    def unmount(self):
        for gateway in self.gateways:
            gateway.kill()
        subprocess.run(["umount", self.small], check=True)

    def small_gateway(self, target):
        return self.gateway({"*": target}, delivery={"retry_first": "1s", "retry_max": "1s"},
                            spool={"path": os.path.join(self.small, "spool"), "segment_bytes": "4MiB", "spare_segments": 1,
                                   "reserve_bytes": "4MiB"})

    def fill(self, gateway, content, most=100):
        """Sends until it is refused; returns how many were accepted."""
        for accepted in range(most):
            with gateway.client() as client:
                for command in ("MAIL FROM:<a@client.test>", "RCPT TO:<you@example.org>", "DATA"):
                    reply = client.command(command)
                    if reply.code not in (250, 354):
                        break
                else:
                    client.send(content + b".\r\n")
                    reply = client.reply()
            if reply.code != 250:
                self.assertEqual((reply.code, reply.lines[0][:5]), (452, "4.3.1"))
                return accepted
        self.fail(f"{most} messages of {len(content)} octets fit a disk of 40 MiB")

    def test_452_when_the_disk_is_full_and_mail_again_when_messages_have_left(self):
        hop = NextHop()
        hop.stop()
        self.addCleanup(hop.stop)
        gateway = self.small_gateway(f"smtp://{hop.address}").start()
        content = message(b"x" * 70 + b"\r\n" + (b"y" * 70 + b"\r\n") * 12_000)
        accepted = self.fill(gateway, content)
        self.assertGreater(accepted, 10)
        self.assertGreater(gateway.metric("postern_refusals_total", reason="space"), 0)
        gateway.kill()
        gateway.start(probe="/livez")       # a full disk keeps it from being ready, not from starting
        gateway.wait_pending(accepted)
        hop.start()
        self.assertTrue(hop.wait(lambda h: len(h.messages) >= accepted, 60))
        self.assertTrue(all(m.content.endswith(content) for m in hop.messages))
        self.wait_accepted(gateway, content)

    def test_mail_again_when_somebody_else_gives_space_back(self):
        other = os.path.join(self.small, "other")
        with open(other, "wb") as file:
            file.write(b"\0" * 20_000_000)
        gateway = self.small_gateway("smtp://127.0.0.1:1").start()
        content = message(b"x" * 70 + b"\r\n" + (b"y" * 70 + b"\r\n") * 12_000)
        self.fill(gateway, content)
        os.unlink(other)
        self.wait_accepted(gateway, content)

    def wait_accepted(self, gateway, content):
        """Tries as a client does, until a message is taken; ready again by then."""
        def accepted():
            try:
                return bool(gateway.send(content, "you@example.org"))
            except AssertionError as refusal:
                self.assertIn("452 4.3.1", str(refusal))
        wait_for(accepted, 20, "mail to be taken again", every=0.2)
        wait_for(lambda: gateway.answers("/readyz"))


class Descriptors(GatewayTest):
    def test_256_descriptors_and_400_clients(self):
        gateway = self.gateway(rlimits={resource.RLIMIT_NOFILE: 256}).start()
        crowd = [Client(gateway.address, greet=False) for _ in range(400)]
        served = []
        for client in crowd[:200]:
            client.reply(220, 421)
        served = [client for client in crowd[:200] if not client.buffer]
        before, began = gateway.cpu_seconds(), time.monotonic()
        served[0].command("EHLO c.test", 250)
        self.assertEqual(served[0].mail(message(), "you@local.test").code, 250)
        gateway.maildir.wait(1)             # the Maildir needs descriptors too
        while time.monotonic() - began < 1.5:
            served[0].command("NOOP", 250)
            time.sleep(0.1)
        self.assertLess(gateway.cpu_seconds() - before, 0.5, "no busy loop while descriptors are short")
        for client in crowd:
            client.close()

        def accepts():
            try:
                gateway.send(message(), "you@local.test")
                return True
            except (AssertionError, Closed):
                return False
        wait_for(accepts, 20, "mail after the crowd has left", every=0.2)


class LockedMemory(GatewayTest):
    @unittest.skipUnless(os.getuid() == 0, "running as another user needs root")
    def test_64_kib_of_locked_memory_as_an_ordinary_user(self):
        program = os.path.join(self.folder, "postern")
        gateway = self.gateway(program=program, user="nobody", rlimits={resource.RLIMIT_MEMLOCK: 65536})
        shutil.copy(PROGRAM, program)         # the build folder may be closed to others
        os.chmod(program, 0o755)
        gateway.start()
        content = message(lines_of(2_000_000))
        gateway.send(content, "you@local.test")
        mail, = gateway.maildir.wait(1)
        self.assertTrue(mail.content == content)
        self.assertEqual(os.stat(gateway.maildir.files()[0]).st_uid, pwd.getpwnam("nobody").pw_uid)
        self.assertEqual(gateway.metric("postern_ring_memory_registered"), 0)


class Memory(GatewayTest):
    def test_memory_does_not_grow_with_the_size_of_messages(self):
        # A small staging area: it fills in the course of the first message, and is not what is looked for.
        gateway = self.gateway({"*": "discard:"}, spool={"staging_bytes": "8MiB"}).start()
        content = message(lines_of(1_000_000)) * 40
        with gateway.client(timeout=120) as client:
            self.assertEqual(client.mail(content, "you@example.org").code, 250)
            peak = gateway.status("VmHWM")
            for _ in range(3):
                self.assertEqual(client.mail(content, "you@example.org").code, 250)
        self.assertLess(gateway.status("VmHWM"), peak + 8 * 1024)
        self.assertLess(gateway.status("VmHWM"), 128 * 1024)


if __name__ == "__main__":
    main()
