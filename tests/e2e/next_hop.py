"""A next hop that does as it is told: keeps what it gets, refuses whom it is asked to, is slow, goes away."""

import contextlib
import os
import socket
import threading
import time
from dataclasses import dataclass, field


@dataclass
class Received:
    sender: str
    recipients: list          # those it accepted
    content: bytes            # as it was before dot-stuffing
    by: str                   # "DATA" or "BDAT"
    parameters: str           # of MAIL
    greeting: str             # the name that the client gave
    at: float = field(default_factory=time.monotonic)


class NextHop:
    """Listens on 127.0.0.1 (or on a Unix socket) until stop(); start() again takes the same address.

    `script` overrides what is answered: a dictionary from command ("MAIL", "RCPT", "DATA", ".", "EHLO", "LHLO", "CONNECT")
    to a function(argument) that returns the reply line, None for the usual reply, or DROP to end the connection there.
    With LMTP, "." is asked once for each accepted recipient, otherwise once with the list of recipients.
    """

    DROP = object()

    def __init__(self, lmtp=False, path=None, extensions=("PIPELINING", "8BITMIME", "SMTPUTF8", "SIZE 0"), script=None):
        self.lmtp, self.path, self.extensions, self.script = lmtp, path, list(extensions), script or {}
        self.messages, self.attempts = [], []       # attempts: every RCPT argument, also refused ones
        self.connections = self.open_now = self.open_most = 0
        self.port = 0
        self.changed = threading.Condition()
        self.start()

    def start(self):
        if self.path:
            if os.path.exists(self.path):
                os.unlink(self.path)
            self.listener = socket.socket(socket.AF_UNIX)
            self.listener.bind(self.path)
        else:
            self.listener = socket.socket()
            self.listener.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
            self.listener.bind(("127.0.0.1", self.port))
            self.port = self.listener.getsockname()[1]
        self.listener.listen(128)
        self.sockets = set()
        threading.Thread(target=self._accept, args=(self.listener,), daemon=True).start()
        return self

    def stop(self):
        """Goes away: refuses new connections and ends those there are.  Twice is once."""
        with contextlib.suppress(OSError):
            self.listener.shutdown(socket.SHUT_RDWR)
        self.listener.close()
        for connection in list(self.sockets):
            with contextlib.suppress(OSError):
                connection.shutdown(socket.SHUT_RDWR)

    @property
    def address(self):
        return self.path or f"127.0.0.1:{self.port}"

    def wait(self, condition, timeout=30):
        """Waits until condition(self) holds."""
        with self.changed:
            return self.changed.wait_for(lambda: condition(self), timeout)

    def of(self, recipient):
        return [m for m in self.messages if recipient in m.recipients]

    def _accept(self, listener):
        while True:
            try:
                connection, _ = listener.accept()
            except OSError:
                return
            self.sockets.add(connection)
            threading.Thread(target=self._serve, args=(connection,), daemon=True).start()

    def _serve(self, connection):
        with self.changed:
            self.connections += 1
            self.open_now += 1
            self.open_most = max(self.open_most, self.open_now)
            self.changed.notify_all()
        try:
            _Dialogue(self, connection).run()
        except (OSError, EOFError):
            pass
        finally:
            self.sockets.discard(connection)
            connection.close()
            with self.changed:
                self.open_now -= 1
                self.changed.notify_all()


class _Dialogue:
    def __init__(self, hop, connection):
        self.hop, self.connection, self.file, self.greeting = hop, connection, connection.makefile("rb"), ""
        self.reset()

    def reset(self):
        self.sender, self.parameters, self.recipients, self.chunks = None, "", [], []

    def run(self):
        self.answer("CONNECT", "", "220 next-hop.test ESMTP")
        while True:
            line = self.file.readline()
            if not line:
                return
            verb, _, argument = line.rstrip(b"\r\n").decode("utf-8").partition(" ")
            verb = verb.upper()
            if verb == "QUIT":
                self.say("221 2.0.0 bye")
                return
            getattr(self, "on_" + verb.lower(), self.unknown)(argument)

    def say(self, text):
        self.connection.sendall(text.encode() + b"\r\n")

    def answer(self, command, argument, usual):
        """Says what the script wants, or the usual; returns the reply."""
        scripted = self.hop.script.get(command)
        reply = (scripted(argument) if scripted else None) or usual
        if reply is NextHop.DROP:
            raise EOFError
        self.say(reply)
        return reply

    def unknown(self, _):
        self.say("502 5.5.1 not here")

    def on_ehlo(self, argument):
        self.greeting = argument
        lines = ["next-hop.test"] + self.hop.extensions
        usual = "\r\n".join(f"250-{line}" for line in lines[:-1]) + f"\r\n250 {lines[-1]}"
        self.answer("LHLO" if self.hop.lmtp else "EHLO", argument, usual.lstrip("\r\n"))

    on_lhlo = on_ehlo

    def on_helo(self, argument):
        self.greeting = argument
        self.answer("HELO", argument, "250 next-hop.test")

    def on_mail(self, argument):
        self.reset()
        if self.answer("MAIL", argument, "250 2.1.0 ok").startswith("2"):
            address, _, self.parameters = argument.partition(":")[2].strip().partition(" ")
            self.sender = address.strip("<>")

    def on_rcpt(self, argument):
        address = argument.partition(":")[2].split()[0].strip("<>")
        with self.hop.changed:
            self.hop.attempts.append((time.monotonic(), address))
            self.hop.changed.notify_all()
        if self.answer("RCPT", address, "250 2.1.5 ok").startswith("2"):
            self.recipients.append(address)

    def on_rset(self, _):
        self.reset()
        self.say("250 2.0.0 ok")

    def on_noop(self, _):
        self.say("250 2.0.0 ok")

    def on_data(self, _):
        if not self.recipients:
            self.say("503 5.5.1 no recipients")
            return
        if not self.answer("DATA", self.recipients, "354 go on").startswith("3"):
            return
        lines = []
        while True:
            line = self.file.readline()
            if not line.endswith(b"\n"):
                raise EOFError
            if line == b".\r\n":
                break
            lines.append(line[1:] if line.startswith(b".") else line)
        self.end(b"".join(lines), "DATA")

    def on_bdat(self, argument):
        size, _, last = argument.partition(" ")
        chunk = self.file.read(int(size))
        if len(chunk) < int(size):
            raise EOFError
        self.chunks.append(chunk)
        if last.upper() == "LAST":
            self.end(b"".join(self.chunks), "BDAT")
        else:
            self.say("250 2.0.0 chunk")

    def end(self, content, by):
        usual = "250 2.0.0 stored"
        if self.hop.lmtp:
            accepted = [r for r in self.recipients if self.answer(".", r, usual).startswith("2")]
        else:
            accepted = self.recipients if self.answer(".", self.recipients, usual).startswith("2") else []
        if accepted:
            with self.hop.changed:
                self.hop.messages.append(Received(self.sender, accepted, content, by, self.parameters, self.greeting))
                self.hop.changed.notify_all()
        self.reset()
