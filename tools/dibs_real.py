#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""DIBS with Linux's own TCP beside the simulator's: the figures of "On real Linux TCP" in docs/journal/dibs.md.

    tools/dibs_real.py list               the variants
    tools/dibs_real.py run [VARIANT...]   run what is missing of them (--again: all of it)
    tools/dibs_real.py tables             print the tables

The same scenario files, scenarios/lab/dibs-*.toml, go to `slowpath lab virtual` and to `slowpath sim`,
with drops and with detours, each with the same seeds. What the simulator's summary does not report
of Linux is read from the captures of all hosts by `slowpath trace`. All of it goes to
scenarios/lab/dibs-results.jsonl, a line for the runs that differ in nothing but the seed; the same run
gives the same figures on any machine.

`make build` and `make lab-kernel` first (and `make lab-kernel LAB_HZ=1000` for the variants with a tick
of 1 ms), or name the command: --slowpath PATH.
"""

import argparse
import collections
import csv
import json
import pathlib
import statistics
import subprocess
import sys
import tempfile

ROOT = pathlib.Path(__file__).resolve().parent.parent
FOLDER = ROOT / "scenarios" / "lab"
RESULTS = FOLDER / "dibs-results.jsonl"
SCENARIOS = {"testbed": "dibs-testbed.toml", "fat-tree": "dibs-fat-tree-4.toml"}
LINUX, SIMULATOR = "linux", "simulator"
SEEDS = range(1, 6)
# Every header of a segment, options included, fits.
SNAP = "96"

NO_FAST = {"tcp.loss-detection": "duplicate-acks", "tcp.duplicate-ack-threshold": "300",
           "tcp.tail-loss-probe": "false"}
THREE = {"tcp.loss-detection": "duplicate-acks"}
TEN_MS = {"tcp.rto-min": "10 ms", "tcp.rto-initial": "10 ms"}
# What it is, settings, ticks a second. (Linux never takes 300 duplicate ACKs for a loss: no window here has so many.)
VARIANTS = {
    "rack": ("RACK and tail loss probes, as Linux is", {}, 250),
    "timestamps": ("the same with TCP timestamps", {"tcp.header": "52 B"}, 250),
    "timestamps-rto-200": ("RACK, timestamps, 200 ms: Linux's defaults",
                           {"tcp.header": "52 B", "tcp.rto-min": "200 ms", "tcp.rto-initial": "200 ms"}, 250),
    "no-probe": ("the same without tail loss probes", {"tcp.tail-loss-probe": "false"}, 250),
    "three": ("three duplicate ACKs (`tcp_recovery=0`)", THREE, 250),
    "ten": ("ten duplicate ACKs", {**THREE, "tcp.duplicate-ack-threshold": "10"}, 250),
    "no-fast": ("fast retransmission off (300 duplicate ACKs, no probes)", NO_FAST, 250),
    "no-sack": ("three duplicate ACKs, no SACK", {**THREE, "tcp.sack": "false"}, 250),
    "handshake": ("RACK, with handshakes",
                  {"tcp.handshake": "true", "tcp.rto-initial": "1 s"}, 250),
    "rto-200": ("RACK, Linux's least timeout of 200 ms",
                {"tcp.rto-min": "200 ms", "tcp.rto-initial": "200 ms"}, 250),
    "tick-1ms": ("RACK, 10 ms, ticks of 1 ms", TEN_MS, 1000),
    "tick-1ms-no-fast": ("fast retransmission off, 10 ms, ticks of 1 ms", {**TEN_MS, **NO_FAST}, 1000),
    "buffer-100": ("RACK, buffers of 100 packets", {"switch.buffer": "100 packets"}, 250),
    "kept": ("RACK, queries on connections that stay",
             {"workload[0].keep-connections": "true"}, 250),
    "window": ("RACK, background windows of 90 kB", {"workload[1].tcp.receive-window": "90 kB"}, 250),
    "window-no-fast": ("fast retransmission off, background windows of 90 kB",
                       {**NO_FAST, "workload[1].tcp.receive-window": "90 kB"}, 250),
    "rate-500": ("RACK, 500 queries a second", {"workload[0].rate": "500 /s"}, 250),
}
ONLY_FAT_TREE = tuple(name for name in VARIANTS if name.startswith(("buffer", "kept", "window", "rate")))

# Of what a sender's capture says of its own data, and of what a receiver's says of what came.
OF_SENDERS = {"fast": "fast_retransmissions", "probes": "tail_loss_probes"}
OF_RECEIVERS = {"arrived": "data_packets", "late": "before_seen", "twice": "seen_before_packets"}

# Those whose packets are reported one by one.
REPORTED = ("rack", "timestamps", "three", "no-fast", "window", "kept")

Run = collections.namedtuple("Run", "substrate scenario variant detour seed")


def wanted(names):
    return [Run(substrate, scenario, variant, detour, seed)
            for variant in names
            for scenario in SCENARIOS if scenario == "fat-tree" or variant not in ONLY_FAT_TREE
            for seed in SEEDS
            for detour in (False, True)
            for substrate in (LINUX, SIMULATOR)]


POINT = ("substrate", "scenario", "variant", "detour")


def known():
    """What is there, a dictionary a run. A line of the file is a point: each key has a list, a value a seed."""
    have = {}
    for text in RESULTS.read_text().splitlines() if RESULTS.exists() else []:
        columns = json.loads(text)
        point = {key: columns.pop(key) for key in POINT}
        for values in zip(*columns.values()):
            line = {**point, **dict(zip(columns, values))}
            have[Run(*(line[field] for field in Run._fields))] = line
    return have


def store(have):
    points = collections.defaultdict(list)
    for run in sorted(have):
        points[run[:len(POINT)]].append(have[run])
    text = ""
    for point, lines in points.items():
        columns = {key: [line[key] for line in lines] for key in sorted(lines[0]) if key not in POINT}
        text += json.dumps({**dict(zip(POINT, point)), **columns}, separators=(",", ":")) + "\n"
    RESULTS.write_text(text)


def said(arguments):
    done = subprocess.run(arguments, capture_output=True, text=True, check=False)
    if done.returncode != 0:
        raise SystemExit(f"{' '.join(map(str, arguments))}\n{done.stderr}")
    return done.stdout


def milliseconds(times):
    return None if times is None else [round(times[key] / 1000, 3) for key in ("p50_us", "p99_us", "max_us")]


def execute(command, run):
    _, settings, ticks = VARIANTS[run.variant]
    arguments = [str(FOLDER / SCENARIOS[run.scenario]), "--json", "--quiet", "--seed", str(run.seed)]
    for key, value in {**settings, "switch.detour": str(run.detour).lower()}.items():
        arguments += ["--set", f"{key}={value}"]
    if run.substrate == SIMULATOR:
        return line_of(run, json.loads(said([command, "sim", *arguments])))
    with tempfile.TemporaryDirectory() as folder:
        out = pathlib.Path(folder) / "out"
        arguments += ["--hz", str(ticks), "--snap", SNAP, "--out", str(out)]
        line = line_of(run, json.loads(said([command, "lab", "virtual", *arguments])))
        line.update(captured(command, out))
        line.update(dropped(out))
        return line


def line_of(run, summary):
    packets = summary["packets"]
    line = {**run._asdict(),
            **{key: packets[key] for key in ("sent", "dropped", "detours", "detoured", "retransmissions", "timeouts")}}
    if not packets["conserved"]:
        raise SystemExit(f"{run}: packets were lost count of")
    first = summary["workloads"][0]
    line["detoured_queries"] = first["packets_detoured"]
    line["open"] = sum(work["flows"] - work["flows_done"] for work in summary["workloads"])
    # All flows of the test bed are one query.
    line["qct"] = milliseconds(first["qct"] or first["fct"])
    if len(summary["workloads"]) > 1:
        background = summary["workloads"][1]
        line["background"] = milliseconds(background["fct"])
    return line


def captured(command, out):
    """Adds up what the captures of all hosts say. Hosts are 10.0.0.1, 10.0.0.2, in the order of names."""
    sums = collections.Counter()
    for number, capture in enumerate(sorted(out.glob("*.pcap")), 1):
        own = f"10.0.0.{number}"
        for text in said([command, "trace", "--json", "--top", "1000000", str(capture)]).splitlines():
            connection = json.loads(text)
            if connection["type"] == "capture":
                continue
            ends = [connection[end].rsplit(":", 1)[0] for end in ("client", "server")]
            if own not in ends:
                raise SystemExit(f"{capture.name}: neither of {ends} is {own}")
            # The client sends all data.
            data, acks = connection["from_client"], connection["from_server"]
            sender = ends[0] == own
            for name, key in (OF_SENDERS if sender else OF_RECEIVERS).items():
                sums[name] += data[key]
            sums["again" if sender else "dsacks"] += data["retransmitted_packets"] if sender else acks["dsacks"]
    sums = dict(sums)
    # tcp_info: what Linux knows of reordering.
    reordered, most = set(), 0
    with open(out / "tcp-info.csv", encoding="utf-8") as file:
        for row in csv.DictReader(file):
            most = max(most, int(row["reordering"]))
            if int(row["reord_seen"]):
                reordered.add(row["connection"])
    return {**sums, "reordered_connections": len(reordered), "most_reordering": most}


def dropped(out):
    causes = collections.Counter()
    with open(out / "events.csv", encoding="utf-8") as file:
        for row in csv.DictReader(file):
            if row["event"] == "dropped":
                causes["dropped_acks" if row["reply"] == "1" else "dropped_data"] += 1
                causes["dropped_ttl"] += row["cause"] == "TtlExpired"
    return {name: causes[name] for name in ("dropped_data", "dropped_acks", "dropped_ttl")}


def run_all(names, command, again):
    have = known()
    runs = [run for run in wanted(names) if again or run not in have]
    for number, run in enumerate(runs, 1):
        have[run] = execute(command, run)
        store(have)
        print(f"{number} of {len(runs)}: {' '.join(map(str, run))}", flush=True)


# ---- tables ----
def table(head, rows):
    lines = ["| " + " | ".join(head) + " |", "|" + "---|" * len(head)]
    return "\n".join(lines + ["| " + " | ".join(map(str, row)) + " |" for row in rows])


def of(have, substrate, scenario, variant, detour):
    """The lines of all seeds; empty if one is missing."""
    runs = [have.get(Run(substrate, scenario, variant, detour, seed)) for seed in SEEDS]
    return [] if None in runs else runs


def mean(lines, pick, digits=1):
    return f"{statistics.mean(map(pick, lines)):.{digits}f}" if lines else "-"


def total(lines, key):
    return sum(line.get(key, 0) for line in lines)


def share(part, whole):
    return f"{100 * part / whole:.1f} %" if whole else "-"


def pair(have, substrate, scenario, variant, pick, digits=1):
    return [mean(of(have, substrate, scenario, variant, detour), pick, digits) for detour in (False, True)]


def variants(have, scenario):
    return [name for name in VARIANTS if of(have, LINUX, scenario, name, True)]


def completion(have, scenario):
    picks = [("qct", 2)] if scenario == "testbed" else [("qct", 0), ("qct", 1), ("background", 1)]
    labels = {("qct", 2): "QCT", ("qct", 0): "median QCT", ("qct", 1): "99th QCT",
              ("background", 1): "99th FCT of background"}
    head = [f"{scenario}; ms"]
    for where in ("Linux", "simulator"):
        for pick in picks:
            head += [f"{where}: {labels[pick]}", "with DIBS"]
    rows = []
    for name in variants(have, scenario):
        row = [VARIANTS[name][0]]
        for substrate in (LINUX, SIMULATOR):
            for key, index in picks:
                row += pair(have, substrate, scenario, name, lambda line, k=key, i=index: line[k][i])
        rows.append(row)
    return table(head, rows)


def causes(have, scenario):
    head = [f"{scenario}; Linux, {len(SEEDS)} seeds", "", "data dropped", "ACKs dropped",
            "packets detoured", "of these of queries", "data late", "sent again", "by ACKs", "by probes", "timeouts", "arrived twice", "DSACKs",
            "connections that saw reordering"]
    rows = []
    for name in filter(REPORTED.__contains__, variants(have, scenario)):
        for detour in (False, True):
            lines = of(have, LINUX, scenario, name, detour)
            sums = {key: total(lines, key) for key in lines[0] if isinstance(lines[0][key], int)}
            rows.append([VARIANTS[name][0] if not detour else "", "DIBS" if detour else "drops",
                         sums["dropped_data"], sums["dropped_acks"], share(sums["detoured"], sums["sent"]),
                         share(sums["detoured_queries"], sums["detoured"]),
                         share(sums["late"], sums["arrived"]), sums["again"], sums["fast"], sums["probes"],
                         sums["timeouts"], sums["twice"], sums["dsacks"], sums["reordered_connections"]])
    return table(head, rows)


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("what", choices=["list", "run", "tables"])
    parser.add_argument("variants", nargs="*", metavar="VARIANT")
    parser.add_argument("--slowpath", default=str(ROOT / "target" / "release" / "slowpath"))
    parser.add_argument("--again", action="store_true")
    arguments = parser.parse_args()
    unknown = [name for name in arguments.variants if name not in VARIANTS]
    if unknown:
        sys.exit(f"no such variant: {' '.join(unknown)}")
    if arguments.what == "list":
        for name, (label, settings, ticks) in VARIANTS.items():
            print(f"{name:20} {label}; {settings} {ticks}")
    elif arguments.what == "run":
        run_all(arguments.variants or VARIANTS, arguments.slowpath, arguments.again)
    else:
        have = known()
        for scenario in SCENARIOS:
            print(completion(have, scenario), causes(have, scenario), sep="\n\n", end="\n\n")


if __name__ == "__main__":
    main()
