"""Several shards: long connections are spread, and all of them see one gateway."""

import os
import re
import threading
import time
from collections import Counter

from harness import GatewayTest, cpu_seconds, main, message, wait_for


class Shards(GatewayTest):
    def test_sixteen_long_connections_are_spread_within_one_and_a_half(self):
        gateway = self.gateway({"*": "discard:"}, server={"shards": 2}).start()
        clients = [gateway.client() for _ in range(16)]
        for client in clients:
            client.command("NOOP", 250)

        loads = Counter(self.thread_of(gateway, client) for client in clients)
        self.assertEqual(len(loads), 2, f"threads that serve: {loads}")
        self.assertLessEqual(max(loads.values()) / min(loads.values()), 1.5, f"{loads}")
        for client in clients:              # those that were handed over work as the others do
            self.assertEqual(client.mail(message(), "you@example.org").code, 250)

    def thread_of(self, gateway, client):
        """The shard's thread that serves this client: the one that each of its commands wakes up."""
        def wake_ups():
            found = {}
            for task in os.listdir(f"/proc/{gateway.process.pid}/task"):
                with open(f"/proc/{gateway.process.pid}/task/{task}/status") as status:
                    text = status.read()
                if text.startswith("Name:\tshard"):
                    found[task] = int(re.search(r"^voluntary_ctxt_switches:\s+(\d+)", text, re.MULTILINE)[1])
            return found
        before = wake_ups()
        for _ in range(30):
            client.command("NOOP", 250)
        after = wake_ups()
        return max(before, key=lambda task: after[task] - before[task])

    def test_both_shards_work_under_load(self):
        gateway = self.gateway({"*": "discard:"}, server={"shards": 2}).start()
        content = message("x" * 70 + "\r\n") + (b"y" * 70 + b"\r\n") * 50

        def send():
            with gateway.client() as client:
                for _ in range(100):
                    assert client.mail(content, "you@example.org").code == 250
        threads = [threading.Thread(target=send) for _ in range(16)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        self.assertEqual(gateway.metric("postern_messages_received_total"), 1600)
        gateway.wait_pending(0)

    def test_idle_shards_cost_nothing(self):
        gateway = self.gateway({"*": "discard:"}, server={"shards": 2}).start()
        clients = [gateway.client() for _ in range(50)]
        before = cpu_seconds(gateway.process.pid)
        time.sleep(3)
        self.assertLess(cpu_seconds(gateway.process.pid) - before, 0.1)
        for client in clients:
            client.close()


if __name__ == "__main__":
    main()
