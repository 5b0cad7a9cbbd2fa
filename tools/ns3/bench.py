#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""How fast the simulator is, beside ns-3 in the same run, and beside htsim where HTSIM_BIN names
the folder `sim/datacenter` of a csg-htsim that is built. The large fat-tree runs only in
ours; on a small one all carry the same flows. Medians, and of pairs where a run takes a
fraction of a second; the last line is JSON."""

import json
import os
import statistics
import subprocess
import sys
from pathlib import Path

import peer

# k, virtual time in us, runs.
LARGE = (16, 20_000, 3)
SMALL = (4, 20_000)
SMALL_RUNS = 31
# Runs of ns-3, of some seconds each; ours and htsim's take a fraction of one.
NS3_RUNS = 3
# Pairs of runs of ours and htsim, one after the other: the machine's speed changes from minute to minute.
PAIRS = 31


def small_run(ours, cdf, runs):
    """The small fat-tree in ours; the median of `runs` runs."""
    return json.loads(peer.last_line([ours, cdf, *SMALL, runs]))


def htsim(folder, flows, ours):
    """Medians of pairs: our packet-hops a second to htsim's, and htsim's."""
    folder = Path(folder)
    program = peer.cache() / "htsim-fat-tree"
    objects = [folder / name for name in ("fat_tree_topology.o", "fat_tree_switch.o", "firstfit.o", "connection_matrix.o")]
    subprocess.run(["g++", "-std=c++17", "-O2", "-w", f"-I{folder.parent}", f"-I{folder}",
                    peer.ROOT / "tools/htsim/fat-tree.cc", "-o", program, *objects,
                    f"-L{folder.parent}", "-lhtsim"], check=True)
    ratios, speeds = [], []
    for _ in range(PAIRS):
        run = json.loads(peer.last_line([program, SMALL[0] ** 3 // 4, SMALL[1], flows]))
        speeds.append(run["packet_hops"] / run["seconds"])
        ratios.append(ours()["packet_hops_per_second"] / speeds[-1])
    print(f"htsim, the same flows: {run}; ratios of {PAIRS} pairs {min(ratios):.2f} to {max(ratios):.2f}")
    return statistics.median(ratios), statistics.median(speeds)


def main():
    cdf = sys.argv[1] if len(sys.argv) > 1 else peer.ROOT.parent / "shared/data/flow-sizes/DCTCP_CDF.txt"
    ours = peer.ours("bench-sim")
    there = peer.built("fat-tree")
    large = json.loads(peer.last_line([ours, cdf, *LARGE]))
    print(f"fat-tree k = {LARGE[0]}: {large}")
    flows = peer.cache() / "flows.txt"
    os.environ["BENCH_SIM_FLOWS"] = str(flows)
    small = small_run(ours, cdf, SMALL_RUNS)
    print(f"fat-tree k = {SMALL[0]}: {small}")
    speeds = []
    for _ in range(NS3_RUNS):
        run = json.loads(peer.last_line([there, SMALL[0], SMALL[1], flows]))
        print(f"ns-3, the same flows: {run}")
        speeds.append(run["packet_hops"] / run["seconds"])
    ratio = small["packet_hops_per_second"] / statistics.median(speeds)
    large["peer_ratio_ns3"] = ratio
    large["ns3_packet_hops_per_second"] = statistics.median(speeds)
    folder = os.environ.get("HTSIM_BIN")
    ratio, speed = htsim(folder, flows, lambda: small_run(ours, cdf, 1)) if folder else (None, None)
    large["htsim_ratio"] = ratio
    large["htsim_packet_hops_per_second"] = speed
    print(json.dumps(large))


if __name__ == "__main__":
    main()
