"""A small SMTP client that sends exactly what it is told to: for what smtplib is too polite to do."""

import socket


class Closed(Exception):
    """The server ended the connection where a reply was due."""


class Reply:
    """One complete reply: code, its lines without the code."""

    def __init__(self, code, lines):
        self.code, self.lines = code, lines

    def __repr__(self):
        return " / ".join(f"{self.code} {line}" for line in self.lines)


class Client:
    """One connection.  Reads the greeting and says EHLO unless told not to."""

    def __init__(self, address, greet=True, timeout=20, source=None):
        family = socket.AF_INET6 if ":" in address[0] else socket.AF_INET
        self.socket = socket.socket(family, socket.SOCK_STREAM)
        self.socket.settimeout(timeout)
        self.buffer = b""
        try:
            if source:
                self.socket.bind((source, 0))
            self.socket.connect(address)
            self.socket.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
            if greet:
                self.banner = self.reply(220)
                self.ehlo = self.command("EHLO client.test", 250)
        except BaseException:
            self.close()
            raise

    def __enter__(self):
        return self

    def __exit__(self, *_):
        self.close()

    def close(self):
        self.socket.close()

    def send(self, octets):
        self.socket.sendall(octets.encode() if isinstance(octets, str) else octets)

    def line(self):
        while b"\n" not in self.buffer:
            try:
                more = self.socket.recv(65536)
            except ConnectionResetError as reset:
                raise Closed(f"reset, after {self.buffer!r}") from reset
            if not more:
                raise Closed(f"end of stream, after {self.buffer!r}")
            self.buffer += more
        line, self.buffer = self.buffer.split(b"\n", 1)
        assert line.endswith(b"\r"), f"a reply line ends in CRLF: {line!r}"
        return line[:-1].decode("utf-8")

    def reply(self, *wanted):
        lines = []
        while True:
            line = self.line()
            lines.append(line[4:])
            if line[3:4] != "-":
                break
        reply = Reply(int(line[:3]), lines)
        assert not wanted or reply.code in wanted, f"wanted {wanted}, got: {reply}"
        return reply

    def command(self, text, *wanted):
        self.send(text + "\r\n")
        return self.reply(*wanted)

    def begin(self, *recipients, sender="sender@client.test", parameters=""):
        self.command(f"MAIL FROM:<{sender}>{parameters}", 250)
        for recipient in recipients:
            self.command(f"RCPT TO:<{recipient}>", 250)

    def mail(self, message, *recipients, sender="sender@client.test"):
        """A whole transaction by DATA; the reply to the dot, whatever it is."""
        self.begin(*recipients, sender=sender)
        self.command("DATA", 354)
        self.send(stuffed(message) + b".\r\n")
        return self.reply()

    def bdat(self, chunk, last=False):
        self.send(b"BDAT %d%s\r\n" % (len(chunk), b" LAST" if last else b"") + chunk)
        return self.reply()

    def ended(self):
        """True when the server has nothing more to say and closes, in order."""
        try:
            return not self.buffer and self.socket.recv(1) == b""
        except ConnectionResetError:
            return False


def stuffed(message):
    """The message as DATA carries it, without the final dot line.  It must end in CRLF."""
    assert message.endswith(b"\r\n")
    return (b"." if message.startswith(b".") else b"") + message.replace(b"\r\n.", b"\r\n..")
