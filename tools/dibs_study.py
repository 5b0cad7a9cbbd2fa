#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Reruns the DIBS study: every figure of docs/journal/dibs.md.

    tools/dibs_study.py list              the experiments
    tools/dibs_study.py run [NAME...]     run what is missing of them (--again: all of it)
    tools/dibs_study.py tables            write the tables into docs/journal/dibs.md

Each run is `slowpath sim SCENARIO --set ...`; what it said goes to scenarios/dibs/results.jsonl,
one line a run, with the settings that differ from the scenario file. Two runs with the same
line are the same, whatever the machine. `make build` first, or name the command: --slowpath PATH.
"""

import argparse
import concurrent.futures
import json
import pathlib
import subprocess
import sys

ROOT = pathlib.Path(__file__).resolve().parent.parent
FOLDER = ROOT / "scenarios" / "dibs"
RESULTS = FOLDER / "results.jsonl"
DOCUMENT = ROOT / "docs" / "journal" / "dibs.md"
FAT_TREE, TESTBED, FAIRNESS = "fat-tree.toml", "testbed.toml", "fairness.toml"
DETOUR = "switch.detour"
SHORTER = {"duration": "3 s"}


def both(scenario, settings, seed=1):
    """The same with drops and with detours."""
    return [(scenario, {**settings, DETOUR: kind}, seed) for kind in ("false", "true")]


def sweep(key, values, base=SHORTER):
    return [run for value in values for run in both(FAT_TREE, {**base, key: value})]


def breaking(rates):
    """Ever more queries a second; shorter where there are more."""
    runs = []
    for rate in rates:
        length = max(300, min(3000, 4_000_000 // rate))
        runs += both(FAT_TREE, {"duration": f"{length} ms", "workload[0].rate": f"{rate} /s"})
    return runs


EXTREME = {**SHORTER, "workload[0].degree": "100"}
SHARED = {**SHORTER, "switch.buffer": "800 packets", "switch.shared-buffer": "800 packets"}
UNCONTROLLED = {"duration": "500 ms", "tcp.algorithm": "fixed"}
WINDOWS = ("64", "256", "1024")
TTLS = ("12", "24", "36", "48", "255")
LEFT_OUT = [
    {"topology.links.delay": "10 us"},
    {"tcp.delayed-ack": "off"},
    {"tcp.handshake": "true"},
    {"tcp.rto-min": "200 ms"},
    {"tcp.loss-detection": "duplicate-acks"},
    {"tcp.loss-detection": "rack"},
    {"tcp.loss-detection": "rack", "tcp.dsack-undo": "true"},
    {"tcp.frto": "true", "tcp.dsack-undo": "true"},
    {"workload[0].jitter": "1 ms"},
    {"switch.marking": "65 packets"},
]

EXPERIMENTS = {
    "testbed": [run for seed in range(1, 21) for run in both(TESTBED, {}, seed)],
    "default": [run for seed in range(1, 11) for run in both(FAT_TREE, {}, seed)],
    "rate": sweep("workload[0].rate", [f"{n} /s" for n in (300, 500, 1000, 1500, 2000)]),
    "degree": sweep("workload[0].degree", ["40", "60", "80", "100"]),
    "response": sweep("workload[0].response", [f"{n} kB" for n in (20, 30, 40, 50)]),
    "background": sweep("workload[1].gap", [f"{n} ms" for n in (120, 80, 40, 20)]),
    "buffer": sweep("switch.buffer", [f"{n} packets" for n in (25, 50, 100, 200, 400)]),
    "shared": sweep("workload[0].degree", ["40", "100"], SHARED),
    "ttl": sweep("host.ttl", TTLS),
    "ttl-extreme": sweep("host.ttl", TTLS, EXTREME),
    "uncontrolled": sweep("tcp.initial-window", WINDOWS, UNCONTROLLED),
    "fairness": [run for n in ("1", "4", "16") for run in both(FAIRNESS, {"workload[0].flows": n})],
    "left-out": [run for settings in LEFT_OUT for run in both(FAT_TREE, {**SHORTER, **settings})]
    + [(FAT_TREE, {**SHORTER, "switch.detour": "{ arrival-port = false }"}, 1),
       (FAT_TREE, {**SHORTER, "switch.detour": "{ mark = false }"}, 1)],
    "break": breaking([1000, 2000, 4000, 6000, 8000, 10000, 12000]),
}


def name_of(run):
    return json.dumps(run, sort_keys=True)


def known():
    if not RESULTS.exists():
        return {}
    lines = [json.loads(line) for line in RESULTS.read_text().splitlines()]
    return {name_of((l["scenario"], l["settings"], l["seed"])): l for l in lines}


def times(of):
    return None if of is None else {key: round(of[key], 1) for key in ("p50_us", "p99_us", "max_us")}


def simulate(command, run):
    scenario, settings, seed = run
    arguments = [command, "sim", str(FOLDER / scenario), "--json", "--seed", str(seed)]
    for key, value in sorted(settings.items()):
        arguments += ["--set", f"{key}={value}"]
    done = subprocess.run(arguments, capture_output=True, text=True, check=False)
    if done.returncode != 0:
        raise SystemExit(f"{' '.join(arguments)}\n{done.stderr}")
    said = json.loads(done.stdout)
    packets = said["packets"]
    line = {
        "scenario": scenario, "settings": settings, "seed": seed,
        "simulated_us": round(said["simulated_us"], 1),
        "hottest_link_load": round(said["hottest_link"]["load_share"], 4),
        **{key: packets[key] for key in ("sent", "dropped", "dropped_ttl_expired", "detours",
                                         "detoured", "hops", "retransmissions", "timeouts")},
        "workloads": [],
    }
    for workload in said["workloads"]:
        small = [size for size in workload["sizes"] if size["up_to_bytes"] == 10_000]
        line["workloads"].append({
            "name": workload["name"],
            **{key: workload[key] for key in ("flows", "flows_done", "queries", "queries_done",
                                              "packets_sent", "packets_dropped", "packets_detoured",
                                              "fairness_index")},
            "goodput_mbit": round(workload["goodput_bits_per_second"] / 1e6, 1),
            "fct": times(workload["fct"]),
            "fct_small": times(small[0]["fct"]) if small else None,
            "qct": times(workload["qct"]),
        })
    return line


def run(names, command, jobs, again):
    have = {} if again else known()
    wanted = [run for name in names for run in EXPERIMENTS[name] if name_of(run) not in have]
    with concurrent.futures.ThreadPoolExecutor(jobs) as pool:
        running = [pool.submit(simulate, command, run) for run in wanted]
        for number, done in enumerate(concurrent.futures.as_completed(running), 1):
            line = done.result()
            have[name_of((line["scenario"], line["settings"], line["seed"]))] = line
            print(f"{number} of {len(wanted)}: {line['scenario']} {line['settings']}", flush=True)
    if again:
        have = {**known(), **have}
    RESULTS.write_text("".join(json.dumps(have[key], sort_keys=True) + "\n" for key in sorted(have)))


# ---- tables ----
def ms(us):
    return "-" if us is None else f"{us / 1000:.1f}"


def share(part, whole):
    return "-" if not whole else f"{100 * part / whole:.1f} %"


def of(have, scenario, settings, seed=1):
    found = have.get(name_of((scenario, settings, seed)))
    if found is None:
        raise SystemExit(f"not run yet: {scenario} {settings}, seed {seed}")
    return found


def queries(line):
    return line["workloads"][0]


def qct(line, which="p99_us"):
    done = queries(line)
    return done["qct"][which] if done["qct"] else None


def unfinished(line):
    done = queries(line)
    left = done["queries"] - done["queries_done"]
    return "" if not left else f" ({100 * left / done['queries']:.0f} % not done)"


def background(line, which="fct"):
    times = line["workloads"][1][which]
    return times["p99_us"] if times else None


def table(head, rows):
    lines = ["| " + " | ".join(head) + " |", "|" + "---|" * len(head)]
    return "\n".join(lines + ["| " + " | ".join(map(str, row)) + " |" for row in rows])


COMPARED = ["99th QCT, DCTCP", "with DIBS", "99th FCT of background", "with DIBS",
            "of those up to 10 kB", "with DIBS", "detoured", "of these of queries"]


def compared(have, settings, label, seed=1):
    a = of(have, FAT_TREE, {**settings, DETOUR: "false"}, seed)
    b = of(have, FAT_TREE, {**settings, DETOUR: "true"}, seed)
    return [label, ms(qct(a)) + unfinished(a), ms(qct(b)) + unfinished(b),
            ms(background(a)), ms(background(b)),
            ms(background(a, "fct_small")), ms(background(b, "fct_small")),
            share(b["detoured"], b["sent"]), share(queries(b)["packets_detoured"], b["detoured"])]


def swept(key, title, base=SHORTER):
    def build(have, name):
        values = list(dict.fromkeys(run[1][key] for run in EXPERIMENTS[name]))
        rows = [compared(have, {**base, key: value}, value) for value in values]
        return table([title] + COMPARED, rows)
    return build


def testbed(have, _):
    rows = []
    for kind, label in (("false", "DCTCP"), ("true", "DCTCP with DIBS")):
        runs = [of(have, TESTBED, {DETOUR: kind}, seed) for seed in range(1, 21)]
        last = sorted(run["workloads"][0]["fct"]["max_us"] for run in runs)
        rows.append([label, ms(last[0]), ms((last[9] + last[10]) / 2), ms(last[-1]),
                     sum(run["dropped"] for run in runs), sum(run["timeouts"] for run in runs),
                     sum(run["detoured"] for run in runs)])
    return table(["20 seeds; ms", "least QCT", "median", "most", "drops", "timeouts", "detoured"], rows)


def default(have, _):
    return table(["seed; ms"] + COMPARED, [compared(have, {}, seed, seed) for seed in range(1, 11)])


def ttl(base):
    def build(have, _):
        rows = []
        for value in TTLS:
            a = of(have, FAT_TREE, {**base, "host.ttl": value, DETOUR: "false"})
            b = of(have, FAT_TREE, {**base, "host.ttl": value, DETOUR: "true"})
            rows.append([value, ms(qct(a)), ms(qct(b)), b["dropped"], b["dropped_ttl_expired"], b["detours"]])
        return table(["TTL; ms", "99th QCT, DCTCP", "with DIBS", "dropped", "of these TTL", "detours"], rows)
    return build


def uncontrolled(have, _):
    rows = []
    for _, settings, seed in EXPERIMENTS["uncontrolled"]:
        line = of(have, FAT_TREE, settings, seed)
        flows = line["workloads"][1]
        label = "DIBS" if settings[DETOUR] == "true" else "drops"
        rows.append([settings["tcp.initial-window"], label, ms(qct(line, "p50_us")), ms(qct(line)) + unfinished(line),
                     f"{flows['goodput_mbit'] / 1000:.2f} Gbit/s", share(line["dropped"], line["sent"]),
                     share(line["detoured"], line["sent"]), f"{line['hops'] / line['sent']:.1f}"])
    return table(["fixed window; ms", "", "median QCT", "99th", "background goodput", "dropped",
                  "detoured", "hops a packet"], rows)


def fairness(have, _):
    rows = []
    for flows in ("1", "4", "16"):
        row = [flows]
        for kind in ("false", "true"):
            line = of(have, FAIRNESS, {"workload[0].flows": flows, DETOUR: kind})
            workload = line["workloads"][0]
            row += [f"{workload['fairness_index']:.3f}", f"{workload['goodput_mbit'] / 1000:.1f} Gbit/s"]
        rows.append(row)
    return table(["flows a pair", "Jain's index, DCTCP", "goodput", "with DIBS", "goodput"], rows)


def left_out(have, _):
    rows = [compared(have, {**SHORTER, "workload[0].rate": "300 /s"}, "as chosen")]
    for settings in LEFT_OUT:
        label = ", ".join(f"`{key} = {value}`" for key, value in settings.items())
        rows.append(compared(have, {**SHORTER, **settings}, label))
    for scenario, settings, seed in EXPERIMENTS["left-out"][2 * len(LEFT_OUT):]:
        b = of(have, scenario, settings, seed)
        rows.append([f"`detour = {settings[DETOUR]}`", "", ms(qct(b)), "", ms(background(b)), "",
                     ms(background(b, "fct_small")), share(b["detoured"], b["sent"]),
                     share(queries(b)["packets_detoured"], b["detoured"])])
    return table(["what the slides leave out; ms"] + COMPARED, rows)


def breaks(have, name):
    rows = []
    for scenario, settings, seed in EXPERIMENTS[name]:
        if settings[DETOUR] == "false":
            a = of(have, scenario, settings, seed)
            b = of(have, scenario, {**settings, DETOUR: "true"}, seed)
            rate = settings["workload[0].rate"].split()[0]
            load = int(rate) * 40 * 20_000 * 8 / 128e9
            rows.append([rate, f"{100 * load:.0f} %", ms(qct(a, "p50_us")), ms(qct(b, "p50_us")),
                         ms(qct(a)) + unfinished(a), ms(qct(b)) + unfinished(b),
                         share(b["detoured"], b["sent"]), b["dropped"]])
    return table(["queries a second; ms", "of the hosts' links", "median QCT, DCTCP", "with DIBS",
                  "99th, DCTCP", "with DIBS", "detoured", "dropped with DIBS"], rows)


TABLES = {
    "testbed": testbed, "default": default,
    "rate": swept("workload[0].rate", "queries; ms"),
    "degree": swept("workload[0].degree", "degree; ms"),
    "response": swept("workload[0].response", "response; ms"),
    "background": swept("workload[1].gap", "one background flow a host every; ms"),
    "buffer": swept("switch.buffer", "buffer of a port; ms"),
    "shared": swept("workload[0].degree", "degree; ms", SHARED),
    "ttl": ttl(SHORTER), "ttl-extreme": ttl(EXTREME), "uncontrolled": uncontrolled, "fairness": fairness, "left-out": left_out, "break": breaks,
}


def tables():
    have = known()
    text = DOCUMENT.read_text()
    for name, build in TABLES.items():
        begin, end = f"<!-- begin {name} -->\n", f"<!-- end {name} -->"
        if begin in text:
            before, rest = text.split(begin)
            text = before + begin + build(have, name) + "\n" + end + rest.split(end, 1)[1]
    DOCUMENT.write_text(text)


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("what", choices=["list", "run", "tables"])
    parser.add_argument("names", nargs="*", metavar="NAME")
    parser.add_argument("--slowpath", default=str(ROOT / "target" / "release" / "slowpath"))
    parser.add_argument("--jobs", type=int, default=2)
    parser.add_argument("--again", action="store_true")
    given = parser.parse_intermixed_args()
    unknown = [name for name in given.names if name not in EXPERIMENTS]
    if unknown:
        parser.error(f"no experiment {', '.join(unknown)}")
    if given.what == "list":
        for name, runs in EXPERIMENTS.items():
            print(f"{name}: {len(runs)} runs")
    elif given.what == "run":
        run(given.names or list(EXPERIMENTS), given.slowpath, given.jobs, given.again)
    else:
        tables()
    return 0


if __name__ == "__main__":
    sys.exit(main())
