#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""An emulated path between two network namespaces: TAP devices p0 and the emulator of captures/network.py.

    path.py CLIENT SERVER [OPTIONS]      prints `up`, then carries packets until it is ended

The client has 198.51.100.1 and 2001:db8:2::1, the server .2 and ::2. Both directions are alike.
Losses befall TCP segments with data, cuts all of TCP. CUBIC by route: the sysctl of a namespace
cannot be set everywhere.
"""

import argparse
import random
import sys
import time
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parent.parent / "captures"))
import network  # noqa: E402
from network import run  # noqa: E402

DEVICE = "p0"


def arguments():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("names", nargs=2, metavar="NAMESPACE")
    parser.add_argument("--delay", type=float, default=0, metavar="MS", help="one way")
    parser.add_argument("--rate", type=float, metavar="MBIT", help="Mbit/s; without: as fast as it goes")
    parser.add_argument("--queue", type=int, metavar="BYTES", help="what waits for the rate; without: any length")
    parser.add_argument("--mark", type=int, metavar="BYTES", help="CE behind so much waiting")
    parser.add_argument("--loss", type=float, default=0, metavar="SHARE")
    parser.add_argument("--larger", type=int, metavar="BYTES", help="segments with more data vanish")
    parser.add_argument("--overtake", type=float, nargs=2, default=(0, 0), metavar=("SHARE", "MS"), help="so many come so much later")
    parser.add_argument("--cut", type=float, nargs=2, default=(0, 0), metavar=("FROM", "TO"), help="seconds since `up`")
    parser.add_argument("--outage", type=float, nargs=2, default=(1, 0), metavar=("EVERY", "FOR"), help="seconds")
    return parser.parse_args()


class Fate:
    """What befalls a segment; the same seed each time."""

    def __init__(self, given):
        self.given, self.random, self.began = given, random.Random(1), time.monotonic()

    def __call__(self, packet):
        given, now = self.given, time.monotonic() - self.began
        every, length = given.outage
        if given.cut[0] <= now < given.cut[1] or now % every < length:
            return "drop"
        if not packet.length:
            return None
        if given.larger is not None and packet.length > given.larger:
            return "drop"
        if self.random.random() < given.loss:
            return "drop"
        share, late = given.overtake
        return late / 1e3 if self.random.random() < share else None


def address(names):
    for number, name in enumerate(names, 1):
        station, other = f"02:00:5e:00:54:{number:02x}", 3 - number
        run("ip", "-n", name, "link", "set", DEVICE, "address", station)
        run("ip", "-n", name, "address", "add", f"198.51.100.{number}/24", "dev", DEVICE)
        run("ip", "-n", name, "address", "add", f"2001:db8:2::{number}/64", "dev", DEVICE, "nodad")
        run("ip", "-n", name, "link", "set", DEVICE, "up")
        for neighbour in (f"198.51.100.{other}", f"2001:db8:2::{other}"):
            run("ip", "-n", name, "neighbour", "replace", neighbour, "lladdr", f"02:00:5e:00:54:{other:02x}",
                "dev", DEVICE, "nud", "permanent")
        run("ip", "-n", name, "route", "change", "198.51.100.0/24", "dev", DEVICE, "proto", "kernel", "scope", "link",
            "src", f"198.51.100.{number}", "congctl", "cubic")
        run("ip", "-n", name, "-6", "route", "add", f"2001:db8:2::{other}/128", "dev", DEVICE, "congctl", "cubic")


def main():
    given = arguments()
    taps = [network.open_tap(name, DEVICE, False) for name in given.names]
    address(given.names)
    rate = given.rate and given.rate * 1e6
    ways = [network.Direction(given.delay / 1e3, rate, given.queue, given.mark) for _ in taps]
    path = network.Path(taps, *ways, Fate(given))
    path.start()
    print("up", flush=True)
    path.join()


if __name__ == "__main__":
    main()
