"""What is measured: ours, a private Postfix, smtp-sink.  Each is started under a folder of its own, tells its address, what
CPU time all its processes have used so far (ended ones included), its peak memory, and when it has done its work.
"""

import os
import re
import shutil
import signal
import socket
import subprocess
import sys
import time
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parent.parent / "e2e"))
from harness import Gateway, wait_for       # noqa: E402

TICKS = os.sysconf("SC_CLK_TCK")


def free_port():
    """A port that was free a moment ago, for programs that cannot be asked which one they took."""
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return probe.getsockname()[1]


def cpu_of(pid, children=False):
    """(user, system) seconds of a process; with `children`, of the ended ones that it has waited for too."""
    with open(f"/proc/{pid}/stat") as file:
        fields = [int(field) / TICKS for field in file.read().rsplit(")", 1)[1].split()[11:15]]
    return (fields[0] + fields[2], fields[1] + fields[3]) if children else (fields[0], fields[1])


def peak_kib(pid):
    with open(f"/proc/{pid}/status") as file:
        return int(re.search(r"^VmHWM:\s+(\d+)", file.read(), re.MULTILINE)[1])


class Ours:
    """Postern: everything as by default, but for what is given."""
    name = "postern"

    def __init__(self, folder, route="discard:", **tables):
        shutil.rmtree(folder, ignore_errors=True)
        tables = {"spool": {"segment_bytes": "64MiB"} | tables.pop("spool", {}), **tables}
        self.gateway = Gateway(folder, {"*": route}, **tables).start()
        self.address = self.gateway.address
        self.pid = self.gateway.process.pid

    def cpu(self):
        return cpu_of(self.pid)

    def peak(self):
        return peak_kib(self.pid)

    def done(self):
        """Messages that have left, for whatever route."""
        return int(self.gateway.metric("postern_route_recipients_total", outcome="delivered"))

    def stop(self):
        self.gateway.kill()
        shutil.rmtree(self.gateway.folder, ignore_errors=True)


class Postfix:
    """A private Postfix as Debian sets it up: it syncs each message to its queue, then hands it to `transport`.

    Nothing outside the folder is touched, but that Postfix drops rights to its own users.
    """
    name = "postfix"

    def __init__(self, folder, transport="discard"):
        shutil.rmtree(folder, ignore_errors=True)
        self.folder, self.etc, self.log = folder, f"{folder}/etc", f"{folder}/maillog"
        for part in (self.etc, f"{folder}/spool", f"{folder}/data"):
            os.makedirs(part)
            os.chmod(part, 0o755)
        os.chmod(folder, 0o755)
        shutil.chown(f"{folder}/data", "postfix")
        port = free_port()
        self.address = ("127.0.0.1", port)
        with open(f"{self.etc}/main.cf", "w") as file:
            file.write(MAIN_CF.format(folder=folder, transport=transport))
        with open("/usr/share/postfix/master.cf.dist") as file:
            services = re.sub(r"^smtp +inet .*", f"{port} inet n - n - 200 smtpd", file.read(), flags=re.MULTILINE)
        # out of the chroot: the fifth column
        services = re.sub(r"^(\S+ +(?:unix|unix-dgram) +\S+ +\S+ +)y ", r"\1n ", services, flags=re.MULTILINE)
        with open(f"{self.etc}/master.cf", "w") as file:
            file.write(services)
        subprocess.run(["postfix", "-c", self.etc, "start"], check=True, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
        wait_for(self._answers, 20, lambda: f"Postfix on port {port}; see {self.log}")
        with open(f"{folder}/spool/pid/master.pid") as file:
            self.pid = int(file.read())
        self.log_position = self.removed = 0

    def _answers(self):
        with socket.socket() as probe:
            return probe.connect_ex(self.address) == 0

    def _children(self):
        with open(f"/proc/{self.pid}/task/{self.pid}/children") as file:
            return [int(pid) for pid in file.read().split()]

    def cpu(self):
        total = [cpu_of(self.pid, children=True)]
        for child in self._children():
            try:
                total.append(cpu_of(child))
            except FileNotFoundError:       # ended just now: the next reading has it in its parent's sum
                pass
        return tuple(map(sum, zip(*total)))

    def peak(self):
        """The sum over the living processes; what they share counts for each."""
        return sum(peak_kib(pid) for pid in [self.pid, *self._children()])

    def done(self):
        with open(self.log) as file:
            file.seek(self.log_position)
            self.removed += file.read().count(": removed\n")
            self.log_position = file.tell()
        return self.removed

    def stop(self):
        subprocess.run(["postfix", "-c", self.etc, "stop"], stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
        shutil.rmtree(self.folder, ignore_errors=True)


MAIN_CF = """\
compatibility_level = 3.6
queue_directory = {folder}/spool
data_directory = {folder}/data
command_directory = /usr/sbin
daemon_directory = /usr/lib/postfix/sbin
myhostname = mx.example.org
mydestination =
mynetworks = 127.0.0.0/8
inet_interfaces = 127.0.0.1
inet_protocols = ipv4
relay_domains = example.org
relay_transport = {transport}
default_transport = {transport}
smtpd_relay_restrictions = permit_mynetworks, reject_unauth_destination
message_size_limit = 52428800
smtpd_client_connection_count_limit = 0
default_process_limit = 200
in_flow_delay = 0
alias_maps =
local_recipient_maps =
smtpd_peername_lookup = no
maillog_file = {folder}/maillog
maillog_file_prefixes = {folder}
"""


class Sink:
    """smtp-sink: answers and forgets.  With `until`, it ends after so many messages."""
    name = "smtp-sink"

    def __init__(self, until=None, port=None):
        self.port = port or free_port()
        self.address = ("127.0.0.1", self.port)
        command = ["smtp-sink", "-m", "1000"]
        if os.getuid() == 0:
            command += ["-u", "nobody"]
        if until:
            command += ["-M", str(until)]
        self.process = subprocess.Popen([*command, f"127.0.0.1:{self.port}", "1000"],
                                        stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
        self.pid = self.process.pid
        wait_for(self._listens, 10, "smtp-sink")

    def _listens(self):
        # Not by connecting: with `until` a session of ours could be in the way.
        with open("/proc/net/tcp") as file:
            return f" 0100007F:{self.port:04X} 00000000:0000 0A " in file.read()

    def cpu(self):
        return cpu_of(self.pid)

    def peak(self):
        return peak_kib(self.pid)

    def done(self):
        return None                         # it keeps no account that could be asked for

    def stop(self):
        self.process.send_signal(signal.SIGKILL)
        self.process.wait()
