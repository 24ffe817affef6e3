"""The ledger: what got its 250 arrives, whatever is killed when (P1, P2).

Clients send under load and write an id into the ledger only after its 250.  The gateway is killed with SIGKILL again and
again at random moments and started again on the same ports.  At the end every id of the ledger must have arrived,
byte-identical; nothing may have arrived in part; and each duplicate must have its explanation: its copies were delivered
in different lives of the process, so that a kill came between the delivery and our record of it.

    POSTERN_SEED=N repeats the moments and the messages; POSTERN_KILLS=N (default 50).
"""

import hashlib
import os
import random
import re
import threading
import time

from harness import GatewayTest, lines_of, main, message, wait_for
from next_hop import NextHop
from smtp_client import Client, Closed

KILLS = int(os.environ.get("POSTERN_KILLS", 50))
SEED = int(os.environ.get("POSTERN_SEED", random.SystemRandom().randrange(1 << 32)))
CLIENTS = 6
SIZES = (10, 300, 3_000, 3_000, 16_000, 60_000, 300_000, 700_000)


def digest(content):
    return hashlib.sha256(content).hexdigest()


class Sender(threading.Thread):
    """One client: sends until told to stop, connects again whenever it is thrown out."""

    def __init__(self, number, address, domain):
        super().__init__(daemon=True)
        self.number, self.address, self.domain = number, address, domain
        self.random = random.Random(SEED * 100 + number)
        self.sent, self.ledger, self.stopping, self.refusals = {}, set(), False, []
        self.error = None

    def run(self):
        while not self.stopping:
            try:
                with Client(self.address, timeout=60) as client:
                    while not self.stopping:
                        self.send(client)
            except (OSError, Closed):
                time.sleep(0.02)
            except AssertionError as error:     # a reply that was not asked for: kept for the verdict
                self.refusals.append(str(error))
                time.sleep(0.02)

    def send(self, client):
        name = f"{self.number}-{len(self.sent)}"
        content = message(lines_of(self.random.choice(SIZES), seed=self.random.getrandbits(32)), subject=f"ledger {name}")
        self.sent[name] = digest(content)
        recipient = f"ledger@{self.domain}"
        if self.random.random() < 0.5:
            reply = client.mail(content, recipient)
        else:
            client.begin(recipient)
            half = self.random.randrange(len(content))
            client.bdat(content[:half])
            reply = client.bdat(content[half:], last=True)
        if reply.code == 250:
            self.ledger.add(name)
        else:
            self.refusals.append(str(reply))


class Ledger(GatewayTest):
    def test_every_recorded_id_has_arrived_after_many_kills(self):
        print(f"seed {SEED}, {KILLS} kills (POSTERN_SEED={SEED} POSTERN_KILLS={KILLS} repeats this)", flush=True)
        moments = random.Random(SEED)
        hop = NextHop(extensions=("PIPELINING", "8BITMIME", "CHUNKING"))
        self.addCleanup(hop.stop)
        gateway = self.gateway({"local.test": "MAILDIR", "*": f"smtp://{hop.address}"}, spool={"segment_bytes": "4MiB"},
                               delivery={"retry_first": "1s", "retry_max": "1s"}, limits={"errors": 1000},
                               server={"hostname": "life0.example.org"}).start()
        gateway.keep_ports()
        senders = [Sender(number, gateway.address, "local.test" if number % 2 else "example.org") for number in range(CLIENTS)]
        for sender in senders:
            sender.start()
        kills = []
        for _ in range(KILLS):
            time.sleep(moments.uniform(0.02, 0.6))
            gateway.kill()
            kills.append(time.time())
            gateway.tables["server"]["hostname"] = f"life{len(kills)}.example.org"
            gateway.start(timeout=30)
        time.sleep(0.5)
        for sender in senders:
            sender.stopping = True
        for sender in senders:
            sender.join(60)
            self.assertFalse(sender.is_alive(), "a client hangs")
        gateway.wait_pending(0, timeout=180)
        self.assertEqual(gateway.metric("postern_spool_messages_held"), 0)
        self.assertEqual(gateway.stop(), 0)
        self.judge(senders, self.arrivals(hop, gateway, kills))

    def arrivals(self, hop, gateway, kills):
        """Everything that arrived, as (id, digest, life): which life of the process delivered it, the next hop knows by the
        name that it was greeted with, and a Maildir file by its time."""
        found = [(received.content[received.content.index(b"From: sender@client.test"):],
                  int(re.match(r"life(\d+)\.", received.greeting)[1])) for received in hop.messages]
        found += [(mail.content, sum(1 for kill in kills if kill < mail.modified)) for mail in gateway.maildir.mails()]
        return [(content.split(b"Subject: ledger ", 1)[1].split(b"\r\n", 1)[0].decode(), digest(content), life)
                for content, life in found]

    def judge(self, senders, arrivals):
        sent = {name: value for sender in senders for name, value in sender.sent.items()}
        ledger = {name for sender in senders for name in sender.ledger}
        arrived = {}
        for name, value, life in arrivals:
            self.assertEqual(value, sent.get(name), f"{name} arrived, but not as it was sent")
            arrived.setdefault(name, []).append(life)
        lost = sorted(ledger - arrived.keys())
        duplicates = {name: lives for name, lives in arrived.items() if len(lives) > 1}
        refusals = [text for sender in senders for text in sender.refusals]
        print(f"sent {len(sent)}, recorded {len(ledger)}, arrived {len(arrived)}, lost {len(lost)}, without a 250 "
              f"{len(arrived.keys() - ledger)}, duplicates {sum(len(lives) - 1 for lives in duplicates.values())}, "
              f"refused {len(refusals)}", flush=True)
        self.assertEqual(lost, [])
        self.assertGreater(len(ledger), KILLS, "the load was too thin to prove anything")
        for name, lives in duplicates.items():
            self.assertEqual(len(set(lives)), len(lives), f"{name} was delivered twice in one life of the process")
        for text in refusals:
            self.assertRegex(text, r"^(wanted .*got: )?4", "only trouble of the moment may be answered")


if __name__ == "__main__":
    main()
