#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Makes the captures of this folder again, on real Linux TCP in network namespaces. Root.

    captures/make.py                  list what there is
    captures/make.py FOLDER NAME...   make some into FOLDER; ALL: all of them (about 6 minutes)

A capture made again has other times, and where chance decides also other packets: the labels in
labels.json are of the files beside it, and a new file needs new labels, from its packets.
"""

import gzip
import json
import multiprocessing
import os
import shutil
import signal
import subprocess
import sys
import tempfile
import time
from pathlib import Path

import network
import recipes

HERE = Path(__file__).resolve().parent
PROGRAMS = [sys.executable, str(HERE / "programs.py")]
SNAP = 112  # bytes: all headers, also of IPv6 in a cooked capture
MOST_BYTES = 60_000  # of one file
PORT = 8080
# One recipe takes no longer than this, whatever happens.
LIMIT = 60.0
FILES = {"page.html": 3_000, "picture.bin": 40_000, "large.bin": 250_000}


def end(process, sign=signal.SIGTERM):
    """Ends a process that this one started."""
    if process.poll() is None:
        process.send_signal(sign)
    try:
        process.wait(5)
    except subprocess.TimeoutExpired:
        process.kill()
        process.wait()


class Running:
    """One recipe: its network, its captures, its processes."""

    def __init__(self, recipe, folder):
        self.recipe, self.folder, self.processes, self.captures = recipe, Path(folder), [], []

    def make(self):
        recipe = self.recipe
        prefix = f"spcap-{os.getpid()}"
        with network.Network(prefix, recipe.six, recipe.router, recipe.sysctls, recipe.mtu) as self.net:
            try:
                self.join()
                self.converse()
            finally:
                for process in reversed(self.processes):
                    end(process)
        return [self.finish(place, file) for place, file in self.captures]

    def join(self):
        recipe = self.recipe
        if recipe.rtt is None:
            self.net.veth(recipe.tbf)
        elif recipe.rtt:
            ways = [network.Direction(recipe.rtt / 2000 / (2 if recipe.router else 1), recipe.rate, recipe.queue, recipe.mark)
                    for _ in range(2)]
            self.net.join(*ways, recipe.judge, recipe.offload)
        for who, *command in recipe.prepare:
            network.run("ip", "netns", "exec", self.net.names[who], *command)

    def start(self, who, command, **how):
        process = subprocess.Popen(["ip", "netns", "exec", self.net.names[who], *command], text=True, **how)
        self.processes.append(process)
        return process

    def capture(self):
        for place in self.recipe.at:
            device = self.recipe.device or ("lo" if self.recipe.rtt == 0 else "right0" if place == "client" else
                                            "left0" if "router" not in self.net.names or place == "router" else "left1")
            file = self.folder / f"raw-{os.getpid()}-{place}.pcap"
            tcpdump = self.start(place, ["tcpdump", "-i", device, "-s", str(SNAP), "-w", str(file), "-U", "-n", "-Z", "root",
                                         "--immediate-mode", self.recipe.where], stderr=subprocess.PIPE)
            while "listening on" not in tcpdump.stderr.readline():
                if tcpdump.poll() is not None:
                    raise RuntimeError(f"{self.recipe.name}: tcpdump ended")
            self.captures.append((place, file))
            yield tcpdump

    def address(self):
        if self.recipe.rtt == 0:
            return "::1" if self.recipe.six else "127.0.0.1"
        return self.net.addresses["server"]

    def converse(self):
        recipe, where = self.recipe, "client" if self.recipe.rtt == 0 else "server"
        if recipe.server == "http":
            site = self.folder / f"site-{os.getpid()}"
            site.mkdir()
            for name, size in FILES.items():
                (site / name).write_bytes(bytes(size))
            server = self.start("server", [sys.executable, "-u", "-m", "http.server", "--protocol", "HTTP/1.1", str(PORT)],
                                cwd=site, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL)
            server.stdout.readline()
        elif recipe.server is not None:
            self.start(where, [*PROGRAMS, "server", self.address(), str(PORT), json.dumps(recipe.server)],
                       stdout=subprocess.PIPE).stdout.readline()
        tcpdumps = [] if recipe.late else list(self.capture())
        time.sleep(0.2)
        begin, clients = time.monotonic(), []
        for later, port, steps in [(0, PORT, recipe.client), *recipe.more]:
            time.sleep(max(0, begin + later - time.monotonic()))
            command = (steps if isinstance(steps[0], str)
                       else [*PROGRAMS, "client", self.address(), str(port), json.dumps(steps)])
            clients.append(self.start("client", command, stdout=subprocess.DEVNULL))
        if recipe.late:
            time.sleep(recipe.late)
            tcpdumps = list(self.capture())
        for client in clients:
            try:
                client.wait(max(0.1, begin + recipe.limit - time.monotonic()))
            except subprocess.TimeoutExpired:
                end(client)
        time.sleep(0.5 + 2 * (recipe.rtt or 0) / 1000)
        for tcpdump in tcpdumps:
            end(tcpdump, signal.SIGINT)

    def finish(self, place, file):
        """Cuts a capture as the recipe says and puts it into the folder, packed."""
        name = self.recipe.name + (f"-{place}" if len(self.recipe.at) > 1 else "")
        if self.recipe.cut:
            short = file.with_suffix(".cut")
            network.run("editcap", "-F", "pcap", "-r", str(file), str(short), f"1-{last_frame(file, self.recipe.cut)}")
            file = short
        packed = self.folder / f"{name}.pcap.gz"
        packed.write_bytes(gzip.compress(file.read_bytes(), 9, mtime=0))
        return packed


def last_frame(file, cut):
    """Up to which frame a cut keeps: the last SYN or half of all."""
    wanted = {"last-syn": "tcp.flags.syn == 1 && tcp.flags.ack == 0", "half": "tcp"}[cut]
    numbers = subprocess.run(["tshark", "-n", "-r", str(file), "-Y", wanted, "-T", "fields", "-e", "frame.number"],
                             check=True, capture_output=True, text=True).stdout.split()
    if cut == "half":
        return len(numbers) // 2
    return int(numbers[-1])


def make(recipe, folder):
    """Makes one recipe in a process of its own, which a limit ends."""
    with tempfile.TemporaryDirectory(prefix="spcap-") as scratch:
        child = multiprocessing.Process(target=lambda: Running(recipe, scratch).make())
        child.start()
        child.join(LIMIT)
        if child.is_alive():
            child.terminate()
            child.join()
        made = sorted(Path(scratch).glob("*.pcap.gz"))
        for file in made:
            shutil.copy(file, folder)
            size = file.stat().st_size
            print(f"{file.name}: {size} bytes{' (too large)' if size > MOST_BYTES else ''}", flush=True)
        if child.exitcode != 0 or not made:
            print(f"{recipe.name}: failed", flush=True)


def main():
    if len(sys.argv) < 3:
        print("\n".join(recipe.name for recipe in recipes.ALL))
        return
    # A limit ends a recipe by an exception, so that its namespaces go.
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(1))
    folder, names = sys.argv[1], sys.argv[2:]
    for recipe in recipes.ALL:
        if recipe.name in names or names == ["ALL"]:
            make(recipe, folder)


if __name__ == "__main__":
    main()
