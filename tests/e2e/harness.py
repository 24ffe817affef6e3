"""Starts the real program in a folder of its own and looks at it from outside: SMTP, HTTP, files, /proc.

The program is the file that the environment names in POSTERN, else build/release/postern.  Every wait has a deadline; every port is chosen by the
kernel.  scripts/bench uses Gateway too.
"""

import contextlib
import json
import os
import re
import resource
import shutil
import signal
import subprocess
import sys
import tempfile
import time
import unittest
import urllib.error
import urllib.request

from smtp_client import Client

TOP = os.path.abspath(os.path.join(os.path.dirname(__file__), "..", ".."))
PROGRAM = os.environ.get("POSTERN") or os.path.join(TOP, "build", "release", "postern")


def wait_for(condition, timeout=30, what=None, every=0.02):
    """The first true value of condition(); an AssertionError after `timeout` seconds."""
    deadline = time.monotonic() + timeout
    while True:
        value = condition()
        if value:
            return value
        if time.monotonic() > deadline:
            raise AssertionError(f"not within {timeout} s: {what() if callable(what) else what or condition}")
        time.sleep(every)


def message(body="hello\r\n", subject="test"):
    """A small message; `body` in CRLF lines, text or octets."""
    body = body.encode() if isinstance(body, str) else body
    return f"From: sender@client.test\r\nSubject: {subject}\r\n\r\n".encode() + body


def lines_of(octets, seed=0):
    """About so many octets of CRLF lines, some with a dot in front, no two alike."""
    import random
    source = random.Random(seed)
    lines, total = [], 0
    while total < octets:
        line = b"%s%d %x" % (b"." if source.random() < 0.05 else b"", len(lines), source.getrandbits(source.choice((8, 200, 280))))
        lines.append(line)
        total += len(line) + 2
    return b"\r\n".join(lines) + b"\r\n"


def toml(tables):
    """Tables of plain values as TOML; a list of dictionaries is an array of tables."""
    def table(name, values):
        return "\n".join([name] + [f"{key} = {json.dumps(value)}" for key, value in values.items()]) + "\n"
    parts = []
    for name, content in tables.items():
        entries = content if isinstance(content, list) else [content]
        header = f"[[{name}]]" if isinstance(content, list) else f"[{name}]"
        parts += [table(header, entry) for entry in entries]
    return "\n".join(parts)


class Gateway:
    """One gateway and its folder: config, spool, Maildir ("mail") and log.

    `routes` maps domain patterns to targets; "MAILDIR" stands for the folder's own Maildir.  Other keywords are tables of
    the configuration and are laid over the ones here.  `user`, `rlimits` (of setrlimit) apply to the process alone.
    """

    def __init__(self, folder, routes=None, listen=("127.0.0.1",), program=None, user=None, rlimits=None, **tables):
        self.folder, self.program, self.user = os.path.abspath(folder), program or os.path.abspath(PROGRAM), user
        self.rlimits, self.process, self.lives = rlimits or {}, None, 0
        self.clients = []           # closed at the end of a test
        os.makedirs(self.folder, exist_ok=True)
        self.maildir = Maildir(self.path("mail"))
        routes = {"*": "MAILDIR"} if routes is None else routes
        self.tables = {
            "server": {"hostname": "mx.example.org", "shards": 1, "drain_delay": "100ms", "drain_timeout": "15s"},
            "listener": [{"address": f"[{host}]:0" if ":" in host else f"{host}:0"} for host in listen],
            "policy": {"domains": ["example.org", "local.test"], "relay_networks": ["127.0.0.0/8", "::1"]},
            "spool": {"path": self.path("spool"), "segment_bytes": "8MiB"},
            "route": [{"domains": [pattern], "to": target.replace("MAILDIR", f"maildir:{self.maildir.path}")}
                      for pattern, target in routes.items()],
            "admin": {"address": "127.0.0.1:0"},
        }
        for name, values in tables.items():
            if isinstance(values, list):
                self.tables[name] = values
            else:
                self.tables.setdefault(name, {}).update(values)

    def path(self, *parts):
        return os.path.join(self.folder, *parts)

    # --- life -------------------------------------------------------------------------------------------------------

    def launch(self, arguments=None):
        """Starts the process and returns at once.  `arguments` of `run`: by default our configuration."""
        with open(self.path("postern.toml"), "w") as file:
            file.write(toml(self.tables))
        if self.user:
            subprocess.run(["chown", "-R", self.user, self.folder], check=True)
        arguments = ["--config", self.path("postern.toml")] if arguments is None else arguments
        self.lives += 1
        self.log_path, self.admin = self.path(f"log.{self.lives}"), None

        def limit():
            for name, value in self.rlimits.items():
                resource.setrlimit(name, (value, value))
        # The log is a file: a pipe that nobody reads would be one more thing to go wrong.
        with open(self.log_path, "wb") as log, open(self.path("stdout"), "ab") as out:
            self.process = subprocess.Popen([self.program, "run", *arguments], cwd=self.folder,
                                            stdin=subprocess.DEVNULL, stdout=out, stderr=log, preexec_fn=limit,
                                            user=self.user, extra_groups=[] if self.user else None)
        return self

    def start(self, timeout=20, arguments=None, probe="/readyz"):
        """Starts the process and waits until the probe says yes and all listeners are there."""
        self.launch(arguments)
        wait_for(lambda: self.answers(probe) and len(self.events("listening")) >= len(self.tables["listener"]), timeout,
                 lambda: f"{probe} of {self.folder}; its log:\n{self.log_tail()}")
        listening = self.events("listening")
        self.addresses = [_address(event["address"]) for event in listening]
        self.address = self.addresses[0]
        return self

    def answers(self, probe):
        """Whether a probe says 200; an error when the program has ended."""
        self.check_alive()
        return self.http(probe)[0] == 200

    def check_alive(self):
        if self.process.poll() is not None:
            raise AssertionError(f"the program ended with {self.process.returncode}:\n{self.log_tail()}")

    def keep_ports(self):
        """The next start listens where this one does."""
        for entry, event in zip(self.tables["listener"], self.events("listening")):
            entry["address"] = event["address"]
        self.tables["admin"]["address"] = self.admin

    def signal(self, number):
        self.process.send_signal(number)

    def wait(self, timeout=30):
        return self.process.wait(timeout)

    def stop(self, timeout=30):
        """SIGTERM, and its exit code."""
        if self.process.poll() is None:
            self.signal(signal.SIGTERM)
        return self.wait(timeout)

    def kill(self):
        if self.process and self.process.poll() is None:
            self.signal(signal.SIGKILL)
            self.wait()

    def run(self, *arguments, timeout=60):
        """Another command of the program: (exit code, stdout and stderr)."""
        done = subprocess.run([self.program, *arguments], cwd=self.folder, stdout=subprocess.PIPE, stderr=subprocess.STDOUT,
                              timeout=timeout)
        return done.returncode, done.stdout.decode()

    # --- what it says -----------------------------------------------------------------------------------------------

    def log(self):
        with open(self.log_path, errors="replace") as file:
            return file.read()

    def log_tail(self):
        return "\n".join(self.log().splitlines()[-15:])

    def events(self, name):
        """Log lines of one event, as dictionaries."""
        return [fields for line in self.log().splitlines() if (fields := fields_of(line)).get("event") == name]

    def http(self, path):
        """(status, text) from the admin port; (0, "") when it does not answer (yet)."""
        if not self.admin:
            listening = self.events("admin_listening")
            if not listening:
                return 0, ""
            self.admin = listening[0]["address"]
        try:
            with urllib.request.urlopen(f"http://{self.admin}{path}", timeout=10) as answer:
                return answer.status, answer.read().decode()
        except urllib.error.HTTPError as error:
            return error.code, error.read().decode()
        except OSError:
            return 0, ""

    def metric(self, name, **labels):
        """The sum of a metric's samples that have these labels; 0 when there is none such, an error when no sample at all."""
        self.check_alive()
        status, text = self.http("/metrics")
        assert status == 200, f"/metrics: {status}"
        samples = [(parse_labels(m[1]), float(m[2]))
                   for m in re.finditer(rf"^{re.escape(name)}(\{{.*\}})? (\S+)$", text, re.MULTILINE)]
        assert samples, f"no metric {name}"
        return sum(value for had, value in samples if labels.items() <= had.items())

    # --- what it costs ----------------------------------------------------------------------------------------------

    def status(self, field):
        """A field of /proc/PID/status in KiB: VmRSS, VmHWM."""
        with open(f"/proc/{self.process.pid}/status") as file:
            return int(re.search(rf"^{field}:\s+(\d+)", file.read(), re.MULTILINE)[1])

    def cpu_seconds(self):
        return cpu_seconds(self.process.pid)

    # --- mail -------------------------------------------------------------------------------------------------------

    def client(self, **options):
        client = Client(self.address, **options)
        self.clients.append(client)
        return client

    def send(self, content, *recipients, **options):
        """One message over a connection of its own; fails unless it is accepted."""
        with self.client() as client:
            reply = client.mail(content, *recipients, **options)
            assert reply.code == 250, reply
            client.command("QUIT", 221)
        return reply

    def pending(self):
        """Messages in the spool that wait for delivery."""
        return self.metric("postern_spool_messages")

    def wait_pending(self, count, timeout=30):
        """The figure is published a few times a second: only what was published after this call tells."""
        turns = self.metric("postern_loop_turns_total")
        wait_for(lambda: self.metric("postern_loop_turns_total") != turns, timeout)
        wait_for(lambda: self.pending() == count, timeout, lambda: f"{self.pending()} messages pending instead of {count}")


def _address(text):
    host, port = text.rsplit(":", 1)
    return host.strip("[]"), int(port)


def fields_of(line):
    """The fields of a log line of either format; of anything else, whatever looks like one."""
    if line.startswith("{"):
        return json.loads(line)
    return {key: value.strip('"') for key, value in re.findall(r'(\w+)=("(?:[^"\\]|\\.)*"|\S*)', line)}


def parse_labels(text):
    return dict(re.findall(r'(\w+)="([^"]*)"', text or ""))


def cpu_seconds(pid, children=False):
    """User and system time of a process; with `children`, of its ended ones too."""
    with open(f"/proc/{pid}/stat") as file:
        fields = file.read().rsplit(")", 1)[1].split()
    return sum(map(int, fields[11:15 if children else 13])) / os.sysconf("SC_CLK_TCK")


class Maildir:
    """Reads what was delivered under new/."""

    def __init__(self, path):
        self.path = path

    def files(self):
        with contextlib.suppress(FileNotFoundError):
            return [os.path.join(self.path, "new", name) for name in os.listdir(os.path.join(self.path, "new"))]
        return []

    def mails(self):
        return [Delivered(file) for file in self.files()]

    def wait(self, count, timeout=30):
        """All mails, once there are `count`; more than that is an error too."""
        wait_for(lambda: len(self.files()) >= count, timeout, f"{count} mails in {self.path}")
        mails = self.mails()
        assert len(mails) == count, f"{len(mails)} mails instead of {count}"
        return mails


class Delivered:
    """One Maildir file: what we put on top, and the content as it was sent (line ends made CRLF again)."""

    TRACE = re.compile(rb"(?:(?:Return-Path|Delivered-To|Received):[^\n]*\n(?:[ \t][^\n]*\n)*)")

    def __init__(self, path):
        with open(path, "rb") as file:
            octets = file.read()
        self.modified = os.stat(path).st_mtime
        self.trace, position = [], 0
        while (field := self.TRACE.match(octets, position)) and not self._has("Received"):
            self.trace.append(field[0].decode())
            position = field.end()
        rest = octets[position:]
        self.content = rest if b"\r\n" in rest else rest.replace(b"\n", b"\r\n")

    def _has(self, name):
        return any(field.startswith(name + ":") for field in self.trace)

    def field(self, name):
        return next((f.partition(":")[2].strip() for f in self.trace if f.startswith(name + ":")), None)


class GatewayTest(unittest.TestCase):
    """Gives each test a folder, and on failure shows the ends of the logs."""

    def setUp(self):
        self.folder = tempfile.mkdtemp(prefix="postern-e2e-")
        os.chmod(self.folder, 0o755)
        self.gateways = []
        self.addCleanup(self._clean_up)

    def gateway(self, routes=None, name="gateway", **options):
        gateway = Gateway(os.path.join(self.folder, name), routes, **options)
        self.gateways.append(gateway)
        return gateway

    def _clean_up(self):
        failed = any(error for _, error in getattr(self._outcome, "errors", [])) or \
            any(test is self for test, _ in self._outcome.result.failures + self._outcome.result.errors)
        for gateway in self.gateways:
            if failed and gateway.process:
                print(f"--- end of {gateway.log_path}\n{gateway.log_tail()}\n---", file=sys.stderr)
            gateway.kill()
            for client in gateway.clients:
                client.close()
        shutil.rmtree(self.folder, ignore_errors=True)


def main():
    unittest.main(verbosity=2)
