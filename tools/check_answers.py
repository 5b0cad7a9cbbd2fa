#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Judges the answers of `slowpath why --json` about other people's programs, by what an expert concludes.

    tools/check_answers.py [OPTIONS] SLOWPATH [CASE...]

Runs the cases of answers/cases.json, and those of ../shared/live-cases where that is there: real
servers and clients in two network namespaces. Each case has the conclusion of an expert who knows
the set-up, and for each target of `why` which answers are right; null: all that are no alarm.
A case takes about 12 s. Prints a verdict for each answer, keeps the output of each case in a folder
of its own, and prints as the last line one JSON object:

    answers, right, alarms    how many were judged; right; alarms where nothing is to be done
    skipped                   cases that could not be set up here, which count for nothing else
    both_ends_agree           of the cases that ask both ends of the same connections (two targets
                              or more with the same label): all have the same limiter and process
    turn_error_median_ms      of the cases whose client measures its own times: how far its mean is
                              from `connections[].turns.peer.mean_us`; null without turns
    turn_figures, turn_figures_within
                              means and medians that such clients print (wrk --latency); how many of
                              them turns meet within 1 ms or 2 %
    sets                      the same for each set of cases

CASE: names, or beginnings of names; "shared/" or "ours/" before it chooses the set.
"""

import argparse
import ast
import json
import os
import re
import signal
import statistics
import subprocess
import sys
import tempfile
import time
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
SHARED = ROOT.parent / "shared" / "live-cases"
OURS = ROOT / "answers"
sys.path.insert(0, str(OURS))

import check_verdicts  # noqa: E402
from world import SetupError, World, enter_own_mounts, run  # noqa: E402

# `watch` observes this long before a set-up begins; `why` looks so long.
BEFORE_S, LOOK_S = 1.5, 4
# How long an answer may take beyond that, a command that cleans up, and the shared set-up with its packages.
PATIENCE_S, AFTER_S, SHARED_SETUP_S = 60, 20, 900
RIGHT = "right"
UNITS_MS = {"us": 1e-3, "ms": 1.0, "s": 1e3}


# What is right.

def judge(expected, answer):
    """RIGHT, or what is wrong with the `answer` object of `why --json`."""
    if expected["limiter"] is None:
        return RIGHT if not answer["alarm"] else f"alarm: {answer['limiter']}"
    act = answer.get("act") or {}
    command = (act.get("process") or {}).get("command")
    share = answer.get("share")
    if answer["limiter"] not in expected["limiter"]:
        return f"limiter {answer['limiter']}"
    if act.get("who") not in expected["who"]:
        return f"act {act.get('who')}"
    if expected["process"] and command not in expected["process"]:
        return f"process {command}"
    if expected["share_at_least"] and (share or 0) < expected["share_at_least"]:
        return f"share {share}"
    return RIGHT


def wording(expected):
    """A label in one line."""
    if expected["limiter"] is None:
        return "no alarm"
    parts = ["|".join(expected["limiter"]), "|".join(expected["who"])]
    if expected["process"]:
        parts.append("|".join(expected["process"]))
    if expected["share_at_least"]:
        parts.append(f">= {expected['share_at_least']:.0%}")
    return ", ".join(parts)


def last_object(text):
    """The object with the answer: the last line."""
    found = json.loads(text.strip().splitlines()[-1])
    if "answer" not in found:
        raise KeyError("answer")
    return found


def label_of(expected):
    return json.dumps([expected[key] for key in ("limiter", "who", "process")])


def both_ends_agree(case, answers):
    """Whether the answers about targets with the same label have one limiter and one process; None: no such targets."""
    labels = [label_of(expected) for expected in case["answers"]]
    if len(labels) < 2 or len(set(labels)) > 1 or case["answers"][0]["limiter"] is None:
        return None
    found = set()
    for answer in answers:
        if answer is None:
            return False
        process = (answer.get("act") or {}).get("process") or {}
        found.add((answer["limiter"], process.get("command"), process.get("pid")))
    return len(found) == 1


def printed_mean_ms(pattern, text):
    """The mean of the times that a client printed. The pattern's groups: the time, its unit."""
    times = [float(time) * UNITS_MS[unit] for time, unit in re.findall(pattern, text)]
    return statistics.fmean(times) if times else None


def turns_mean_ms(why):
    """The peer's turns as `why` measured them, over its connections, by their number; None: none."""
    turns = [(connection.get("turns") or {}).get("peer") or {} for connection in why.get("connections") or []]
    means = [(turn["mean_us"] / 1e3, turn.get("answers") or 1) for turn in turns if turn.get("mean_us") is not None]
    if not means:
        return None
    return sum(mean * count for mean, count in means) / sum(count for _, count in means)


def turns_median_ms(why):
    """The median of the connections' medians of the peer's turns; None: none."""
    turns = [(connection.get("turns") or {}).get("peer") or {} for connection in why.get("connections") or []]
    medians = [turn["p50_us"] / 1e3 for turn in turns if turn.get("p50_us") is not None]
    return statistics.median(medians) if medians else None


def turn_figures(case, objects, printed):
    """Pairs of a client's own mean and median, and the turns of the target that is the client, as far as both are known."""
    label = case.get("client_times")
    if not label:
        return []
    found = next((found for expected, found in zip(case["answers"], objects) if expected["ask"] == label["ask"]), None)
    if not found:
        return []
    of = {"pattern": turns_mean_ms, "median_pattern": turns_median_ms}
    pairs = [(printed_mean_ms(label[key], printed), measure(found)) for key, measure in of.items() if key in label]
    return [pair for pair in pairs if None not in pair]


def within(client, measured):
    """Whether a turn is what the client measured: within 1 ms or 2 %."""
    return abs(client - measured) <= max(1.0, 0.02 * client)


def turn_error_ms(case, objects, printed):
    """How far the client's own times are from the turns of the target that is the client; None: not both known."""
    label = case.get("client_times")
    if not label:
        return None
    client = printed_mean_ms(label["pattern"], printed)
    measured = next((turns_mean_ms(found) for expected, found in zip(case["answers"], objects)
                     if expected["ask"] == label["ask"] and found), None)
    return None if client is None or measured is None else abs(client - measured)


class Score:
    """Counts over cases; one for all, and one a set."""

    def __init__(self):
        self.verdicts, self.agree, self.errors, self.figures, self.skipped = [], [], [], [], 0

    def case(self, case, outcome):
        """Takes what came of a case: `verdicts`, one a target; `agree`, `turn_error_ms`, or None."""
        self.verdicts += [(expected["limiter"], verdict)
                          for expected, verdict in zip(case["answers"], outcome["verdicts"])]
        if outcome["agree"] is not None:
            self.agree.append(outcome["agree"])
        if outcome["turn_error_ms"] is not None:
            self.errors.append(outcome["turn_error_ms"])
        self.figures += outcome["turn_figures"]

    def result(self):
        verdicts = [verdict for _, verdict in self.verdicts]
        return {"answers": len(verdicts), "right": verdicts.count(RIGHT),
                "alarms": sum(verdict.startswith("alarm") for verdict in verdicts), "skipped": self.skipped,
                "both_ends_agree": sum(self.agree) / len(self.agree) if self.agree else None,
                "turn_error_median_ms": round(statistics.median(self.errors), 3) if self.errors else None,
                "turn_figures": len(self.figures),
                "turn_figures_within": sum(within(*pair) for pair in self.figures)}

    def by_label(self):
        """How many answers were right, by what was right: (label, right, answers)."""
        counts = {}
        for limiter, verdict in self.verdicts:
            right_of = counts.setdefault("no alarm" if limiter is None else " or ".join(sorted(limiter)), [0, 0])
            right_of[0] += verdict == RIGHT
            right_of[1] += 1
        return [(label, *counts[label]) for label in sorted(counts)]


def table(scores, total):
    """The result as a document has it."""
    lines = ["| set | answers | right | rate | false alarms | both ends agree | median error of turns, ms | cases skipped |",
             "|---|---|---|---|---|---|---|---|"]
    for name, score in [*scores.items(), ("both", total)]:
        result = score.result()
        error = result["turn_error_median_ms"]
        lines.append(f"| {name} | {result['answers']} | {result['right']} | "
                     f"{check_verdicts.rate(result['right'], result['answers'])} | {result['alarms']} | "
                     f"{check_verdicts.rate(sum(score.agree), len(score.agree))} | {'-' if error is None else error} | "
                     f"{result['skipped']} |")
    lines += ["", "| right is | answers | right | rate |", "|---|---|---|---|"]
    lines += [f"| {label} | {of} | {right} | {check_verdicts.rate(right, of)} |" for label, right, of in total.by_label()]
    return ["`make check-answers`", "", *lines]


# How it is found out.

class CaseSet:
    """Cases, and what precedes each set-up."""

    def __init__(self, name, folder):
        self.name, self.cases, self.ready = name, json.loads((folder / "cases.json").read_text()), None

    def chosen(self, names):
        def fits(case):
            return any(f"{self.name}/{case['name']}".startswith(name) or case["name"].startswith(name) for name in names)
        return [case for case in self.cases if not names or fits(case)]


class OurSet(CaseSet):
    def __init__(self):
        super().__init__("ours", OURS)

    def prelude(self, world):
        return f'R={world.folder} HERE={OURS} SLOWPATH={world.slowpath}\n. "$HERE/prelude.sh"\n'

    def prepare(self, world, case):
        if self.ready is None:
            world.two_hosts()
            self.ready = True
        missing = [command for command in case.get("needs", []) if not which(command)]
        if missing:
            raise SetupError(f"no {' or '.join(missing)} here")
        world.serve(case.get("servers", []))

    def clean(self, world):
        world.forget_connections()


class SharedSet(CaseSet):
    """Other people's cases beside the project, set up by their own script, run as their own runner does."""

    def __init__(self):
        super().__init__("shared", SHARED)
        self.problem = None

    def prelude(self, world):
        """The shell text before each set-up, from the runner's source."""
        for node in ast.walk(ast.parse((SHARED / "run.py").read_text())):
            if isinstance(node, ast.Assign) and getattr(node.targets[0], "id", None) == "PRELUDE":
                folder = f"{world.folder}/shared"
                # Set-ups wait half a second for a Python server: a version manager's python3 takes longer to start.
                given = f"R={folder}; CASES={folder}/cases; SLOWPATH={world.slowpath}; PATH=/usr/bin:/bin:$PATH\n"
                return given + ast.literal_eval(node.value.right)
        raise SetupError(f"{SHARED}/run.py has no PRELUDE")

    def prepare(self, world, _case):
        if self.problem:
            raise SetupError(self.problem)
        if self.ready:
            return
        folder = f"{world.folder}/shared"
        os.mkdir(folder)
        print("shared: setting up packages and servers", flush=True)
        try:
            with open(f"{world.keep}/shared-setup.log", "w") as out:
                subprocess.run(["bash", str(SHARED / "setup.sh")], env={**os.environ, "R": folder}, stdout=out, stderr=out,
                               stdin=subprocess.DEVNULL, timeout=SHARED_SETUP_S, check=False)
            run("ip", "netns", "exec", "rs", "true")
        except (subprocess.TimeoutExpired, SetupError) as error:
            self.problem = f"the shared set-up failed: {error}"
            raise SetupError(self.problem) from error
        self.ready = True
        # The broker listens last.
        time.sleep(10)
        world.keep_running()

    def clean(self, world):
        pass


def which(command):
    return subprocess.run(["bash", "-c", f"command -v {command}"], capture_output=True).returncode == 0


class Run:
    """One case, once."""

    def __init__(self, cases, case, world, folder):
        self.case, self.world, self.folder = case, world, folder
        self.prelude, self.clean = cases.prelude(world), cases.clean
        self.watched = case.get("watch_s", 8)

    def outcome(self):
        """Its verdicts, whether both ends agree, and the turns' error."""
        os.makedirs(self.folder, exist_ok=True)
        Path(f"{self.folder}/setup.sh").write_text(f"{self.prelude}{self.case['setup']}\nwait\n")
        late, watch = self.case.get("slowpath_starts_late"), None
        try:
            with open(f"{self.folder}/setup.out", "w") as log:
                if not late:
                    watch = self._watch(self.watched + BEFORE_S)
                    time.sleep(BEFORE_S)
                subprocess.Popen(["setsid", "bash", f"{self.folder}/setup.sh"], stdin=subprocess.DEVNULL, stdout=log, stderr=log)
                time.sleep(self.case.get("ask_after_s", 2.5))
                watch = watch or self._watch(self.watched - 2)
                objects = self._ask()
                self._wait(watch)
        finally:
            self.world.end_case()
            self.clean(self.world)
            self._after()
        return self._judged(objects)

    def _watch(self, seconds):
        filters = [self.case["filter"]] if self.case.get("filter") else []
        with open(f"{self.folder}/watch.json", "w") as out, open(f"{self.folder}/watch.err", "w") as errors:
            return subprocess.Popen([self.world.slowpath, "watch", "--json", "--for", f"{seconds}s", *filters],
                                    stdin=subprocess.DEVNULL, stdout=out, stderr=errors)

    def _wait(self, process):
        try:
            process.wait(LOOK_S + self.watched + PATIENCE_S)
        except subprocess.TimeoutExpired:
            process.kill()
            process.wait()

    def _ask(self):
        """The objects of all targets, asked at once; None: without an answer."""
        asked = []
        for number, expected in enumerate(self.case["answers"], 1):
            with open(f"{self.folder}/why-{number}.json", "w") as out, open(f"{self.folder}/why-{number}.err", "w") as errors:
                asked.append(subprocess.Popen([self.world.slowpath, "why", "--json", "--for", f"{LOOK_S}s", expected["ask"]],
                                              stdin=subprocess.DEVNULL, stdout=out, stderr=errors))
        objects = []
        for number, process in enumerate(asked, 1):
            self._wait(process)
            try:
                objects.append(last_object(Path(f"{self.folder}/why-{number}.json").read_text()))
            except (ValueError, KeyError, IndexError) as error:
                print(f"    no answer object ({type(error).__name__}): {self.folder}/why-{number}.err")
                objects.append(None)
        return objects

    def _after(self):
        try:
            subprocess.run(["bash", "-c", self.prelude + self.case.get("after", "true")], stdin=subprocess.DEVNULL,
                           capture_output=True, timeout=AFTER_S)
        except subprocess.TimeoutExpired:
            print("    what should clean up was not done in time")

    def _judged(self, objects):
        answers = [found and found["answer"] for found in objects]
        verdicts = []
        for expected, answer in zip(self.case["answers"], answers):
            try:
                verdicts.append(judge(expected, answer) if answer else "no answer object")
            except (KeyError, TypeError, AttributeError) as error:
                verdicts.append(f"an answer object of another form: {error!r}")
            said = f"; expected {wording(expected)}" if verdicts[-1] != RIGHT else ""
            print(f"  why {expected['ask']}: {verdicts[-1]}{said}", flush=True)
            if answer:
                print(f"      {answer.get('text')}")
        printed = Path(f"{self.folder}/setup.out").read_text(errors="replace")
        outcome = {"verdicts": verdicts, "agree": both_ends_agree(self.case, answers),
                   "turn_error_ms": turn_error_ms(self.case, objects, printed),
                   "turn_figures": turn_figures(self.case, objects, printed)}
        for client, measured in outcome["turn_figures"]:
            print(f"  turns: {measured:.3f} ms, the client's own {client:.3f} ms")
        if outcome["turn_error_ms"] is not None:
            print(f"  turns: {outcome['turn_error_ms']:.3f} ms from the client's own times")
        Path(f"{self.folder}/outcome.json").write_text(json.dumps(outcome))
        return outcome


def run_set(cases, world, given, scores):
    """Runs the chosen cases of a set, each as often as asked for."""
    for case in cases.chosen(given.cases):
        for number in range(given.repeat):
            print(f"{cases.name}/{case['name']}: {case['expert']}", flush=True)
            suffix = f"-{number + 1}" if given.repeat > 1 else ""
            try:
                cases.prepare(world, case)
                outcome = Run(cases, case, world, f"{world.keep}/{cases.name}/{case['name']}{suffix}").outcome()
            except SetupError as error:
                print(f"  SKIPPED {case['name']}: {error}", flush=True)
                for score in scores:
                    score.skipped += 1
                continue
            for score in scores:
                score.case(case, outcome)


def arguments():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--list", action="store_true", help="list the cases and end")
    parser.add_argument("--repeat", type=int, default=1, metavar="N", help="run each case so often")
    parser.add_argument("--keep", metavar="FOLDER", help="where to keep outputs (a new folder in the temporary directory)")
    parser.add_argument("--write", metavar="FILE", type=Path, help="replace the table between the marks of check-answers")
    parser.add_argument("slowpath", metavar="SLOWPATH")
    parser.add_argument("cases", metavar="CASE", nargs="*")
    return parser.parse_args()


def main():
    given = arguments()
    sets = ([SharedSet()] if (SHARED / "cases.json").exists() else []) + [OurSet()]
    if not any(cases.chosen(given.cases) for cases in sets):
        sys.exit(f"check_answers.py: no case is named so: {' '.join(given.cases)}")
    if given.list:
        for cases in sets:
            for case in cases.chosen(given.cases):
                print(f"{cases.name}/{case['name']}: {case['expert']}")
        return
    if os.geteuid() != 0:
        sys.exit("check_answers.py: root is needed: namespaces, servers of other users, BPF")
    enter_own_mounts()
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(143))
    keep = given.keep or tempfile.mkdtemp(prefix="slowpath-answers-kept-")
    os.makedirs(keep, exist_ok=True)
    scores, total = {}, Score()
    with World(os.path.abspath(given.slowpath), os.path.abspath(keep)) as world:
        for cases in sets:
            if cases.chosen(given.cases):
                scores[cases.name] = Score()
                run_set(cases, world, given, (scores[cases.name], total))
    print(f"kept: {keep}")
    if given.write:
        check_verdicts.write(given.write, table(scores, total), "check-answers")
    result = total.result()
    result["sets"] = {name: score.result() for name, score in scores.items()}
    print(json.dumps(result))


if __name__ == "__main__":
    try:
        main()
    except KeyboardInterrupt:
        sys.exit(130)
