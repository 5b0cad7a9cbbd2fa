#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""How long a sweep of 8 x 20 runs takes with two jobs, beside one job; pairs in turns, the last line is JSON.

    bench_sweep.py SLOWPATH [PAIRS]
"""

import json
import statistics
import subprocess
import sys
import time
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
SCENARIO = ROOT / "scenarios/sim/leaf-spine.toml"
SWEEP = ["--seeds", "20", "--vary", "workload.load=0.1..0.8/8", "--set", "duration=10 ms"]


def seconds(slowpath: str, jobs: int) -> float:
    begun = time.monotonic()
    command = [slowpath, "sim", str(SCENARIO), *SWEEP, "--jobs", str(jobs), "--quiet"]
    subprocess.run(command, check=True)
    return time.monotonic() - begun


def main() -> None:
    slowpath = sys.argv[1]
    pairs = int(sys.argv[2]) if len(sys.argv) > 2 else 5
    one, two = [], []
    for number in range(pairs):
        order = [(1, one), (2, two)] if number % 2 == 0 else [(2, two), (1, one)]
        for jobs, times in order:
            times.append(seconds(slowpath, jobs))
        print(f"pair {number}: {one[-1]:.2f} s with one job, {two[-1]:.2f} s with two")
    ratios = [b / a for a, b in zip(one, two)]
    result = {
        "runs": 160,
        "pairs": pairs,
        "one_job_seconds": round(statistics.median(one), 2),
        "two_jobs_seconds": round(statistics.median(two), 2),
        "sweep_ratio": round(statistics.median(ratios), 3),
    }
    print(json.dumps(result))


if __name__ == "__main__":
    main()
