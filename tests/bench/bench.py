"""The driver behind scripts/bench: runs the parts, prints tables with the bars, writes JSON with the facts of the machine."""

import argparse
import contextlib
import json
import os
import platform
import re
import resource
import shutil
import signal
import statistics
import subprocess
import sys
import time
from dataclasses import asdict, dataclass

from peers import Ours, Postfix, Sink, cpu_of, wait_for
from smtp_client import Client
import sweep

SIZES = {"5 KB": 5_000, "50 KB": 50_000, "500 KB": 500_000}


# --- load and what it costs -------------------------------------------------------------------------------------------

@dataclass
class Run:
    """One load on one server."""
    seconds: float
    user_ms: float          # per message
    system_ms: float

    @property
    def cpu_ms(self):
        return self.user_ms + self.system_ms


def smtp_source(address, size, count, sessions=20):
    """Postfix's load generator; returns the seconds it took.  It goes on after refusals (-A): count what arrived."""
    began = time.monotonic()
    done = subprocess.run(["smtp-source", "-A", "-C", "100", "-r", "1", "-s", str(sessions), "-d", "-l", str(size), "-m", str(count),
                           "-t", "to@example.org", f"{address[0]}:{address[1]}"], check=True, stderr=subprocess.PIPE, text=True)
    seconds = time.monotonic() - began
    if complaints := done.stderr.splitlines():
        print(f"  {len(complaints)} complaints, the first: {complaints[0]}")
    return seconds


def load(server, size, count, sessions=20):
    """Sends, waits until all of it has left again, and says what the server has spent on it."""
    done_before, before = server.done(), server.cpu()
    seconds = smtp_source(server.address, size, count, sessions)
    if done_before is not None:
        wait_for(lambda: server.done() - done_before >= count, 120,
                 lambda: f"{server.name} to be done with {count} messages (it is with {server.done() - done_before})", every=0.1)
    user, system = (after - early for after, early in zip(server.cpu(), before))
    return Run(seconds, user * 1000 / count, system * 1000 / count)


def alternating(servers, rounds, size, count, sessions=20):
    """Each server in turn, round after round: name to runs."""
    runs = {server.name: [] for server in servers}
    for _ in range(rounds):
        for server in servers:
            runs[server.name].append(load(server, size, count, sessions))
    return runs


def middle(runs):
    """The median of each figure."""
    return Run(*(statistics.median(getattr(run, field) for run in runs) for field in ("seconds", "user_ms", "system_ms")))


# --- words ------------------------------------------------------------------------------------------------------------

class Report:
    """Tables for people, JSON for machines."""

    def __init__(self, facts):
        self.facts, self.parts, self.bars = facts, {}, []

    def table(self, title, head, rows):
        print(f"\n{title}")
        rows = [head] + [[str(cell) for cell in row] for row in rows]
        widths = [max(len(row[column]) for row in rows) for column in range(len(head))]
        for row in rows:
            print("  " + "  ".join(cell.ljust(width) if column == 0 else cell.rjust(width)
                                   for column, (cell, width) in enumerate(zip(row, widths))), flush=True)

    def bar(self, what, value, most, unit=""):
        """Holds a value against the most that is allowed."""
        self.bars.append({"what": what, "value": value, "most": most, "unit": unit, "reached": value <= most})

    def keep(self, part, figures):
        self.parts[part] = figures

    def finish(self, path):
        self.table("The bars", ["what", "is", "at most", ""],
                   [[bar["what"], f"{bar['value']:.3g}{bar['unit']}", f"{bar['most']:.3g}{bar['unit']}",
                     "reached" if bar["reached"] else "MISSED"] for bar in self.bars])
        with open(path, "w") as file:
            json.dump({"machine": self.facts, "bars": self.bars, **self.parts}, file, indent=1)
        print(f"\nfigures: {path}")


def load_rows(results, count, peaks=None):
    """Rows of a table from name to runs."""
    rows = []
    for name, runs in results.items():
        run = middle(runs)
        rows.append([name, f"{run.seconds:.2f}", f"{count / run.seconds:.0f}", f"{run.cpu_ms:.3f}", f"{run.user_ms:.3f}",
                     f"{run.system_ms:.3f}"] + ([f"{peaks[name] / 1024:.0f}"] if peaks else []))
    return rows


LOAD_HEAD = ["", "seconds", "messages/s", "CPU ms/message", "user", "system"]


# --- the parts --------------------------------------------------------------------------------------------------------

def smtp(bench):
    """Taking mail in: ours and Postfix make it durable, then discard it; smtp-sink stores nothing."""
    cpu_bars, sink_bars = {"5 KB": 1 / 20, "50 KB": 1 / 20, "500 KB": 1 / 15}, {"5 KB": 1.1, "50 KB": 0.5, "500 KB": 0.25}
    for label in bench.sizes:
        with bench.servers(Ours, Postfix, Sink) as servers:
            results = alternating(servers, bench.rounds, SIZES[label], bench.messages)
            peaks = {server.name: server.peak() for server in servers}
        bench.report.table(f"{bench.messages} messages of {label}, 20 sessions, median of {bench.rounds}",
                           LOAD_HEAD + ["peak MiB"], load_rows(results, bench.messages, peaks))
        bench.report.keep(f"smtp {label}", {"runs": as_json(results), "peak_kib": peaks})
        ours, sink = middle(results["postern"]), middle(results["smtp-sink"])
        if "postfix" in results:
            postfix = middle(results["postfix"])
            bench.report.bar(f"{label}: wall, against Postfix", ours.seconds / postfix.seconds, 1 / 10)
            bench.report.bar(f"{label}: CPU per message, against Postfix", ours.cpu_ms / postfix.cpu_ms, cpu_bars[label])
        bench.report.bar(f"{label}: wall, against smtp-sink", ours.seconds / sink.seconds, sink_bars[label])
        bench.report.bar(f"{label}: peak RSS", peaks["postern"] / 1024, 96, " MiB")


def variants(bench, part, settings, sizes, sessions=20, count=None):
    """Ours against itself under several settings (name to tables of the configuration)."""
    count = count or bench.messages
    for size in sizes:
        with contextlib.ExitStack() as stack:
            servers = []
            for name, tables in settings.items():
                server = bench.start(stack, lambda folder, tables=tables: Ours(folder, **tables), name)
                server.name = name
                servers.append(server)
            results = alternating(servers, max(bench.rounds, 5), size, count, sessions)
        bench.report.table(f"{part}: {count} messages of {size} octets, {sessions} sessions", LOAD_HEAD, load_rows(results, count))
        bench.report.keep(f"{part} {size} octets {sessions} sessions", as_json(results))
        yield {name: middle(runs) for name, runs in results.items()}


def metrics(bench):
    """What the figures of single messages cost: CPU with them against without."""
    settings = {"on": {"metrics": {"per_message": True}}, "off": {"metrics": {"per_message": False}}}
    for runs in variants(bench, "metrics", settings, [5_000], count=4 * bench.messages):     # long, for the clock ticks
        bench.report.bar("CPU per message, metrics on against off", runs["on"].cpu_ms / runs["off"].cpu_ms, 1.03)


def send(bench):
    """Replies by send(2) at once against sends batched in the ring."""
    for sessions in (20, 100):
        for _ in variants(bench, "send", {mode: {"ring": {"send": mode}} for mode in ("direct", "ring")}, [1_000, 5_000], sessions):
            pass


def sink(bench):
    """The two ways to commit: direct I/O with DSYNC, and buffered with fdatasync."""
    for _ in variants(bench, "sink", {mode: {"spool": {"commit": mode}} for mode in ("direct", "buffered")}, [5_000, 50_000]):
        pass


def idle(bench):
    """Ten thousand connections that say EHLO and then nothing."""
    count = bench.idle_connections
    raise_descriptors(count + 1000)
    with contextlib.ExitStack() as stack:
        ours = bench.start(stack, lambda folder: Ours(folder, limits={"connections": count + 100}))
        warm = [Client(ours.address) for _ in range(50)]
        for client in warm:
            client.close()
        time.sleep(0.5)
        before = ours.gateway.status("VmRSS")
        clients = []
        for number in range(count):         # a source address for each thousand: ports do not run short
            client = Client(ours.address, source=f"127.0.1.{number // 1000 + 1}")
            stack.callback(client.close)
            clients.append(client)
        time.sleep(1)
        octets = (ours.gateway.status("VmRSS") - before) * 1024 / count
        cpu_before, began = sum(ours.cpu()), time.monotonic()
        time.sleep(10)
        percent = 100 * (sum(ours.cpu()) - cpu_before) / (time.monotonic() - began)
        for client in clients[:: count // 50]:          # they live
            client.command("NOOP", 250)
    bench.report.table(f"{count} idle connections", ["octets of RSS each", "CPU %"], [[f"{octets:.0f}", f"{percent:.2f}"]])
    bench.report.keep("idle", {"connections": count, "octets_each": octets, "cpu_percent": percent})
    bench.report.bar("idle connection: RSS", octets / 1024, 2, " KiB")
    bench.report.bar("idle connections: CPU", percent, 1, " %")


def sweep_lengths(bench):
    """Every message length that could fall badly, by four client styles."""
    with contextlib.ExitStack() as stack:
        ours = bench.start(stack, Ours)
        medians = sweep.run(ours.address, bench.sweep_repeats)
    rows = []
    for style, of_length in medians.items():
        overall = statistics.median(of_length.values())
        worst = sorted(of_length.items(), key=lambda item: -item[1])
        rows.append([style, f"{overall:.2f}", f"{worst[0][1]:.2f}", f"{worst[0][1] / overall:.2f}",
                     " ".join(f"{length}:{ms:.2f}" for length, ms in worst[:5])])
        bench.report.bar(f"sweep, {style}: worst length", worst[0][1], 5, " ms")
        bench.report.bar(f"sweep, {style}: worst length, against the median", worst[0][1] / overall, 3)
    bench.report.table(f"{len(of_length)} message lengths, median of {bench.sweep_repeats} each, from the last write to the reply",
                       ["style", "median ms", "worst ms", "worst/median", "worst lengths:ms"], rows)
    bench.report.keep("sweep", medians)


def relay(bench):
    """In and out again: until smtp-sink has got all of it."""
    servers = {"postern": lambda folder, port: Ours(folder, f"smtp://127.0.0.1:{port}")}
    if bench.postfix:
        servers["postfix"] = lambda folder, port: Postfix(folder, f"smtp:[127.0.0.1]:{port}")
    results = {name: [] for name in servers}
    for _ in range(bench.rounds):
        for name, make in servers.items():
            with contextlib.ExitStack() as stack:
                end = Sink(until=bench.messages)
                stack.callback(end.stop)
                server = bench.start(stack, lambda folder: make(folder, end.port), name)
                before, began = server.cpu(), time.monotonic()
                smtp_source(server.address, SIZES["5 KB"], bench.messages)
                end.process.wait(300)
                seconds = time.monotonic() - began
                user, system = (after - early for after, early in zip(server.cpu(), before))
                results[name].append(Run(seconds, user * 1000 / bench.messages, system * 1000 / bench.messages))
    bench.report.table(f"relay of {bench.messages} messages of 5 KB to smtp-sink, end to end", LOAD_HEAD,
                       load_rows(results, bench.messages))
    bench.report.keep("relay", as_json(results))
    if bench.postfix:
        bench.report.bar("relay: wall, against Postfix", middle(results["postern"]).seconds / middle(results["postfix"]).seconds, 1 / 8)


def start(bench):
    """Start with a full spool after a kill, the page cache dropped where we may."""
    count = bench.spooled
    with contextlib.ExitStack() as stack:
        # Nobody listens on tcpmux; one attempt, and the next far away.
        ours = bench.start(stack, lambda folder: Ours(folder, "smtp://127.0.0.1:1", delivery={"retry_first": "1h"}))
        smtp_source(ours.address, SIZES["5 KB"], count, sessions=100)
        ours.gateway.wait_pending(count)
        times = []
        for _ in range(bench.rounds):
            ours.gateway.kill()
            cold = drop_caches()
            began = time.monotonic()
            ours.gateway.start(timeout=120)
            times.append(time.monotonic() - began)
            ours.gateway.wait_pending(count)
        peak = ours.gateway.status("VmHWM")
    seconds = statistics.median(times)
    bench.report.table(f"start with {count} spooled messages of 5 KB{'' if cold else ' (page cache warm: not root)'}",
                       ["seconds to ready", "peak MiB"], [[f"{seconds:.2f}", f"{peak / 1024:.0f}"]])
    bench.report.keep("start", {"messages": count, "seconds": times, "cold": cold, "peak_kib": peak})
    bench.report.bar("start with a full spool", seconds, 3, " s")


PARTS = {"smtp": smtp, "metrics": metrics, "idle": idle, "sweep": sweep_lengths, "relay": relay, "start": start, "send": send,
         "sink": sink}


# --- around them ------------------------------------------------------------------------------------------------------

class Bench:
    """The options, and how servers are started under the bench folder and surely ended."""

    def __init__(self, options, report):
        self.__dict__.update(vars(options))
        self.report = report
        self.postfix = os.getuid() == 0 and shutil.which("postfix") is not None
        if not self.postfix:
            print("Postfix is left out: it needs to be installed, and root to be started")

    def start(self, stack, make, name="postern"):
        server = make(os.path.join(self.folder, name))
        stack.callback(server.stop)
        return server

    @contextlib.contextmanager
    def servers(self, *kinds):
        with contextlib.ExitStack() as stack:
            yield [self.start(stack, (lambda _: Sink()) if kind is Sink else kind, kind.name)
                   for kind in kinds if kind is not Postfix or self.postfix]


def as_json(results):
    return {name: [asdict(run) for run in runs] for name, runs in results.items()}


def raise_descriptors(count):
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    if soft < count:
        resource.setrlimit(resource.RLIMIT_NOFILE, (count, max(hard, count)))      # beyond `hard`: root only


def drop_caches():
    os.sync()
    try:
        with open("/proc/sys/vm/drop_caches", "w") as file:
            file.write("3")
        return True
    except OSError:
        return False


def machine_facts(folder):
    def words(*command):
        return subprocess.run(command, capture_output=True, text=True).stdout.strip()
    with open("/proc/cpuinfo") as file:
        model = re.search(r"^model name\s*:\s*(.*)", file.read(), re.MULTILINE)
    with open("/proc/meminfo") as file:
        memory = int(re.search(r"MemTotal:\s+(\d+)", file.read())[1])
    source = words("findmnt", "-n", "-o", "SOURCE,FSTYPE", "--target", folder)
    return {"cpu": model[1] if model else platform.machine(), "cpus": len(os.sched_getaffinity(0)), "memory_mib": memory // 1024,
            "kernel": platform.release(), "disk": source, "postfix": words("postconf", "-d", "-h", "mail_version"),
            "commit": words("git", "rev-parse", "--short", "HEAD"), "when": time.strftime("%Y-%m-%d %H:%M UTC", time.gmtime())}


def arguments():
    parser = argparse.ArgumentParser(prog="scripts/bench", description="Measures Postern beside Postfix and smtp-sink.")
    parser.add_argument("--only", type=lambda text: text.split(","), default=list(PARTS), help=f"parts: {','.join(PARTS)}")
    parser.add_argument("--rounds", type=int, default=3, help="of each measurement; the median counts")
    parser.add_argument("--messages", type=int, default=5000, help="of one load")
    parser.add_argument("--sizes", type=lambda text: text.split(","), default=list(SIZES), help=f"of {', '.join(SIZES)}")
    parser.add_argument("--folder", default="build/bench", help="on the disk to be measured")
    parser.add_argument("--idle-connections", type=int, default=10_000)
    parser.add_argument("--sweep-repeats", type=int, default=5)
    parser.add_argument("--spooled", type=int, default=200_000, help="messages of the start part")
    parser.add_argument("--json", help="where the figures go (FOLDER/results.json)")
    options = parser.parse_args()
    for kind, names, known in (("part", options.only, PARTS), ("size", options.sizes, SIZES)):
        for name in names:
            if name not in known:
                parser.error(f"no {kind} {name!r}; there are: {', '.join(known)}")
    options.folder = os.path.abspath(options.folder)
    return options


def main():
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(1))       # so that what was started is ended
    options = arguments()
    os.makedirs(options.folder, exist_ok=True)
    report = Report(machine_facts(options.folder))
    print("  ".join(f"{name}: {value}" for name, value in report.facts.items()))
    bench = Bench(options, report)
    for part in options.only:
        PARTS[part](bench)
    report.finish(options.json or os.path.join(options.folder, "results.json"))


if __name__ == "__main__":
    main()
