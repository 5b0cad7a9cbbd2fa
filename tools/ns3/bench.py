#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""How fast the simulator is, beside ns-3 in the same run, and beside htsim where HTSIM_BIN names
the folder `sim/datacenter` of a csg-htsim that is built. The large fat-tree runs only in
ours; on a small one all carry the same flows. Medians; the last line is JSON."""

import json
import os
import statistics
import subprocess
import sys
from pathlib import Path

import peer

# k, virtual time in us, runs.
LARGE = (16, 20_000, 3)
SMALL = (4, 20_000, 31)
# Runs of ns-3, of some seconds each; ours and htsim's take a fraction of one.
NS3_RUNS = 3


def htsim(folder, flows):
    """Packet-hops a second of htsim; the median."""
    folder = Path(folder)
    program = peer.cache() / "htsim-fat-tree"
    objects = [folder / name for name in ("fat_tree_topology.o", "fat_tree_switch.o", "firstfit.o", "connection_matrix.o")]
    subprocess.run(["g++", "-std=c++17", "-O2", "-w", f"-I{folder.parent}", f"-I{folder}",
                    peer.ROOT / "tools/htsim/fat-tree.cc", "-o", program, *objects,
                    f"-L{folder.parent}", "-lhtsim"], check=True)
    speeds = []
    for _ in range(SMALL[2]):
        run = json.loads(peer.last_line([program, SMALL[0] ** 3 // 4, SMALL[1], flows]))
        speeds.append(run["packet_hops"] / run["seconds"])
    print(f"htsim, the same flows: {run}")
    return statistics.median(speeds)


def main():
    cdf = sys.argv[1] if len(sys.argv) > 1 else peer.ROOT.parent / "shared/data/flow-sizes/DCTCP_CDF.txt"
    ours = peer.ours("bench-sim")
    there = peer.built("fat-tree")
    large = json.loads(peer.last_line([ours, cdf, *LARGE]))
    print(f"fat-tree k = {LARGE[0]}: {large}")
    flows = peer.cache() / "flows.txt"
    os.environ["BENCH_SIM_FLOWS"] = str(flows)
    small = json.loads(peer.last_line([ours, cdf, *SMALL]))
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
    speed = htsim(folder, flows) if folder else None
    large["htsim_ratio"] = small["packet_hops_per_second"] / speed if speed else None
    large["htsim_packet_hops_per_second"] = speed
    print(json.dumps(large))


if __name__ == "__main__":
    main()
