#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""The same dumbbells in ns-3 and here: throughput within 3 %, mean queue within 30 %, and
the same order of NewReno, CUBIC, DCTCP, and CUBIC with RED, CoDel and PIE in both. Exits with 1 if one of them fails."""

import json
import sys

import peer

KINDS = ("newreno", "cubic", "dctcp", "cubic/red", "cubic/codel", "cubic/pie")
# Name: flows, Mbit/s of the bottleneck and of the rest, delay of each of the three links
# in us, buffer and marking threshold in packets, seconds, seconds of warm-up.
DUMBBELLS = {
    "measured queue": (2, 100, 1000, 75, 425, 20, 20, 5),
    "eight flows": (8, 1000, 10000, 250, 170, 20, 6, 1),
    "one BDP": (1, 100, 1000, 2000, 100, 40, 40, 10),
    "four flows, long": (4, 200, 1000, 5000, 250, 60, 40, 10),
}
THROUGHPUT = 0.03
QUEUE = 0.30
# Two throughputs or queues are in an order only if they differ by more than this.
TIE = {"throughput_mbit": 0.01, "queue_mean": 0.10}


def contradictions(field, theirs, ours):
    """Pairs that one simulator puts clearly one way and the other clearly the other way."""
    def order(runs, a, b):
        x, y = runs[a][field], runs[b][field]
        return 0 if abs(x - y) <= TIE[field] * max(x, y) else (1 if x > y else -1)
    return [f"{a}/{b}" for a in KINDS for b in KINDS
            if a < b and order(theirs, a, b) * order(ours, a, b) < 0]


def main():
    there, here = peer.built("dumbbell"), peer.ours("dumbbell")
    failures = 0
    print(f"{'dumbbell':18} {'':13} {'Mbit/s: ns-3':>13} {'ours':>8} {'':>7}   "
          f"{'mean queue: ns-3':>16} {'ours':>7} {'':>7}")
    for name, numbers in DUMBBELLS.items():
        theirs, ours = {}, {}
        for kind in KINDS:
            arguments = [kind, *numbers]
            theirs[kind] = json.loads(peer.last_line([there, *arguments]))
            ours[kind] = json.loads(peer.last_line([here, *arguments]))
            a, b = theirs[kind], ours[kind]
            rate = b["throughput_mbit"] / a["throughput_mbit"] - 1
            queue = b["queue_mean"] / a["queue_mean"] - 1
            bad = abs(rate) > THROUGHPUT or abs(queue) > QUEUE
            failures += bad
            print(f"{name:18} {kind:13} {a['throughput_mbit']:13.2f} {b['throughput_mbit']:8.2f} {rate:+7.1%}   "
                  f"{a['queue_mean']:16.1f} {b['queue_mean']:7.1f} {queue:+7.1%}{'  FAILED' if bad else ''}")
        for field in TIE:
            wrong = contradictions(field, theirs, ours)
            failures += len(wrong)
            if wrong:
                print(f"{name:18} {field}: not the same order: {', '.join(wrong)}  FAILED")
    print(f"check-sim: {'passed' if failures == 0 else f'{failures} failed'}")
    return 1 if failures else 0


if __name__ == "__main__":
    sys.exit(main())
