"""The message-length sweep: no length and no client style may be slow.

What it hunts is the stall of some 40 ms between a client that holds back its second small write (Nagle) and a server that
holds back its ACK, which falls on some lengths and not on others.
"""

import socket
import statistics
import time

from smtp_client import Client


def lengths():
    near_kib = {kib * 1024 + offset for kib in range(1, 71) for offset in range(-3, 4)}
    return sorted(set(range(1, 301)) | near_kib)


def text(length):
    """So many octets of text lines, without the last line's CRLF."""
    line = b"x" * 74 + b"\r\n"
    octets = (line * (length // len(line) + 1))[:length]
    return octets[:-1] + b"x" if octets.endswith(b"\r") else octets


def one_write(data):
    return [data + b"\r\n.\r\n"]


def terminator_apart(data):
    return [data + b"\r\n", b".\r\n"]


def last_eight_singly(data):
    whole = data + b"\r\n.\r\n"
    return [part for part in (whole[:-8],) if part] + [whole[at:at + 1] for at in range(max(0, len(whole) - 8), len(whole))]


# style: how the writes are cut, and whether Nagle's algorithm is on
STYLES = {
    "one write": (one_write, False),
    "terminator apart, Nagle": (terminator_apart, True),
    "last 8 singly": (last_eight_singly, False),
    "last 8 singly, Nagle": (last_eight_singly, True),
}


def timed(client, writes):
    """Milliseconds from the last write to the reply."""
    client.send(b"MAIL FROM:<sweep@client.test>\r\nRCPT TO:<to@example.org>\r\nDATA\r\n")
    client.reply(250), client.reply(250), client.reply(354)
    for octets in writes[:-1]:
        client.send(octets)
    began = time.perf_counter()
    client.send(writes[-1])
    client.reply(250)
    return (time.perf_counter() - began) * 1000


def run(address, repeats):
    """style -> length -> median milliseconds.  Round after round, so that a bad moment of the machine hits all alike."""
    medians = {}
    for style, (cut, nagle) in STYLES.items():
        with Client(address) as client:
            client.socket.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 0 if nagle else 1)
            timings = {length: [] for length in lengths()}
            for _ in range(repeats):
                for length, found in timings.items():
                    found.append(timed(client, cut(text(length))))
            medians[style] = {length: statistics.median(found) for length, found in timings.items()}
    return medians
