"""Several shards: long connections are spread, and all of them see one gateway."""

import threading
import time

from harness import GatewayTest, cpu_seconds, main, message, wait_for


class Shards(GatewayTest):
    def test_sixteen_long_connections_are_spread_within_one_and_a_half(self):
        gateway = self.gateway({"*": "discard:"}, server={"shards": 2}).start()
        clients = [gateway.client() for _ in range(16)]
        for client in clients:
            client.command("NOOP", 250)

        def connections(shard):
            return gateway.metric("postern_shard_connections_open", shard=str(shard))
        wait_for(lambda: connections(0) + connections(1) == 16)
        loads = sorted(connections(shard) for shard in (0, 1))
        self.assertGreater(loads[0], 0)
        self.assertLessEqual(loads[1] / loads[0], 1.5, f"{loads}")
        for client in clients:              # those that were handed over work as the others do
            self.assertEqual(client.mail(message(), "you@example.org").code, 250)

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
        wait_for(lambda: gateway.pending() == 0)

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
