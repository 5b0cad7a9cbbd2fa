# SPDX-License-Identifier: Apache-2.0
"""What the cases run in: mounts of this process's own, two hosts, servers; gone when it ends.

Names of network namespaces stand under /run/netns. A run has a /run/netns of its own, so that runs
do not disturb each other, nor the machine's namespaces, and the namespaces end with the last
process in them. Whatever a set-up leaves behind becomes a child of this process (a subreaper, see
prctl(2)): that is how all that a run started is known, and only that is ended.
"""

import ctypes
import os
import shutil
import signal
import subprocess
import sys
import tempfile
import time
from pathlib import Path

HERE = Path(__file__).resolve().parent
PR_SET_CHILD_SUBREAPER = 36
OWN_MOUNTS = "SLOWPATH_ANSWERS_MOUNTS"
SERVER_START_S, END_S = 120, 5
HOSTS = ("sp-client", "sp-server")
PEERS = ("192.0.2.0/24", "198.51.100.0/24", "203.0.113.0/24", "2001:db8::/32")
SYSCTLS = ("net.ipv4.tcp_no_metrics_save=1", "net.ipv4.tcp_ecn=2", "net.ipv4.ip_forward=0")


class SetupError(Exception):
    """What a case needs could not be had; says what."""


def enter_own_mounts():
    """Starts this program again with a /run/netns of its own."""
    if os.environ.get(OWN_MOUNTS) != str(os.getpid()):
        os.environ[OWN_MOUNTS] = str(os.getpid())
        os.execvp("unshare", ["unshare", "--mount", "--propagation", "private", sys.executable, *sys.argv])
    del os.environ[OWN_MOUNTS]
    os.makedirs("/run/netns", exist_ok=True)
    run("mount", "-t", "tmpfs", "none", "/run/netns")
    ctypes.CDLL(None).prctl(PR_SET_CHILD_SUBREAPER, 1, 0, 0, 0)


def run(*command):
    done = subprocess.run(command, capture_output=True, text=True)
    if done.returncode:
        raise SetupError(f"{' '.join(command)}: {done.stderr.strip()}")


def children(pid):
    found = []
    for task in Path(f"/proc/{pid}/task").glob("*/children"):
        try:
            found += map(int, task.read_text().split())
        except OSError:
            pass  # the thread has just ended
    return found


def descendants(pid, left_out=frozenset()):
    """All processes below one, without some of them and theirs."""
    found = []
    for child in children(pid):
        if child not in left_out:
            found += [child, *descendants(child, left_out)]
    return found


def gone(pid):
    """Whether a process has ended; takes the status of a child."""
    try:
        os.waitpid(pid, os.WNOHANG)
    except ChildProcessError:
        pass
    return not os.path.exists(f"/proc/{pid}")


def end(pids):
    """Ends processes, and waits for that, not for ever."""
    for pid in pids:
        try:
            os.kill(pid, signal.SIGKILL)
        except ProcessLookupError:
            pass
    until = time.monotonic() + END_S
    while [pid for pid in pids if not gone(pid)] and time.monotonic() < until:
        time.sleep(0.02)


class World:
    """Namespaces, servers and files of a run. Files of the run are gone after it, `keep` stays."""

    def __init__(self, slowpath, keep):
        self.slowpath, self.keep = slowpath, keep
        self.folder = tempfile.mkdtemp(prefix="slowpath-answers-")
        # Servers change to users of their own.
        os.chmod(self.folder, 0o755)
        os.mkdir(f"{self.folder}/run")
        self.environment = {**os.environ, "R": self.folder, "HERE": str(HERE), "SLOWPATH": slowpath}
        self.servers, self.failed, self.permanent = set(), {}, set()

    def __enter__(self):
        return self

    def __exit__(self, *_):
        for number in (signal.SIGINT, signal.SIGTERM):
            signal.signal(number, signal.SIG_IGN)
        self.permanent = set()
        self.end_case()
        shutil.rmtree(self.folder, ignore_errors=True)

    def keep_running(self):
        """What runs now stays until the end: servers."""
        self.permanent = set(descendants(os.getpid()))

    def end_case(self):
        """Ends everything that a set-up started; a server's new children are the server's."""
        until = time.monotonic() + END_S
        while (left := descendants(os.getpid(), self.permanent)) and time.monotonic() < until:
            end(left)

    def forget_connections(self):
        """Ends what the servers still hold of a case: its path is gone, nothing else would end it soon."""
        for name in HOSTS:
            for peers in PEERS:
                subprocess.run(["ip", "netns", "exec", name, "ss", "-K", "dst", peers], capture_output=True)

    def two_hosts(self):
        """Client and server, joined by a pair of virtual Ethernet devices."""
        for name in HOSTS:
            run("ip", "netns", "add", name)
            run("ip", "-n", name, "link", "set", "lo", "up")
            for setting in SYSCTLS:
                run("ip", "netns", "exec", name, "sysctl", "-qw", setting)
        run("ip", "link", "add", "c0", "netns", HOSTS[0], "type", "veth", "peer", "name", "s0", "netns", HOSTS[1])
        for number, (name, device) in enumerate(zip(HOSTS, ("c0", "s0")), 1):
            source = f"192.0.2.{number}"
            run("ip", "-n", name, "address", "add", f"{source}/24", "dev", device)
            run("ip", "-n", name, "address", "add", f"2001:db8:1::{number}/64", "dev", device, "nodad")
            run("ip", "-n", name, "link", "set", device, "up")
            run("ip", "-n", name, "route", "change", "192.0.2.0/24", "dev", device, "proto", "kernel", "scope", "link",
                "src", source, "congctl", "cubic")
            run("ip", "-n", name, "-6", "route", "add", f"2001:db8:1::{3 - number}/128", "dev", device, "congctl", "cubic")
            # Service addresses: translated at the client, unanswered from the server.
            run("ip", "-n", name, "route", "add", "203.0.113.0/24", "via", f"192.0.2.{3 - number}",
                "congctl", "cubic")

    def serve(self, names):
        """Starts the servers that do not run yet."""
        for name in names:
            if name in self.failed:
                raise SetupError(self.failed[name])
            if name in self.servers:
                continue
            try:
                self._start(name)
            except SetupError as error:
                self.failed[name] = str(error)
                raise
            self.servers.add(name)
            self.keep_running()

    def _start(self, name):
        log = f"{self.folder}/run/start-{name}.log"
        with open(log, "w") as out:
            command = ["bash", str(HERE / "servers.sh"), name]
            try:
                status = subprocess.run(command, env=self.environment, stdin=subprocess.DEVNULL, stdout=out,
                                        stderr=out, timeout=SERVER_START_S).returncode
            except subprocess.TimeoutExpired:
                status = f"nothing within {SERVER_START_S} s"
        if status:
            self.end_case()
            said = Path(log).read_text().strip().splitlines()[-1:] or [""]
            raise SetupError(f"{name} did not start ({status}): {said[0]}")

