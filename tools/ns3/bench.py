#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""How fast the simulator is, beside ns-3 in the same run. The large fat-tree runs only in
ours; on a small one both carry the same flows. Medians; the last line is JSON."""

import json
import os
import statistics
import sys

import peer

# k, virtual time in us, runs. ns-3 takes about a minute for its three.
LARGE = (16, 20_000, 3)
SMALL = (4, 20_000, 3)


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
    for _ in range(SMALL[2]):
        run = json.loads(peer.last_line([there, SMALL[0], SMALL[1], flows]))
        print(f"ns-3, the same flows: {run}")
        speeds.append(run["packet_hops"] / run["seconds"])
    ratio = small["packet_hops_per_second"] / statistics.median(speeds)
    large["peer_ratio_ns3"] = ratio
    large["ns3_packet_hops_per_second"] = statistics.median(speeds)
    print(json.dumps(large))


if __name__ == "__main__":
    main()
