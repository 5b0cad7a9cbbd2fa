#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Scores the verdicts of `slowpath trace` on captures with labels.

    tools/check_verdicts.py [--write FILE] SLOWPATH LABELS...

--write FILE replaces the table between the marks of check-verdicts in a document.
LABELS: files named labels.json, each beside its captures; labels were derived from the packets.
Prints what is wrong in each capture, precision and recall for each class, and as the last line
one JSON object:

    captures              how many were analysed
    headline_precision    of the captures with a headline: the label accepts it
    headline_recall       of the captures that need a headline: one that the label accepts is there
    must_recall           of the findings that a label requires: found, about that direction
    failures_as_findings  of those that are failed connections (FAILURES): found
    quiet_false_alarms    of the captures with nothing to report: something false is reported
    time_within_range     of the required findings that were found and have a time: within its range

A finding is false if the label of its connection names it, or "*" without an exception; on a
connection without a label, if the label of the capture says so. CongestionWindowLimited is never
false. Times without a range of their own may be a quarter off, and 5 ms (TOLERANCE).
"""

import argparse
import collections
import json
import subprocess
import sys
from pathlib import Path

FAILURES = ("Unanswered", "Refused", "Reset", "SynRetransmit")
TOLERANCE, LEAST_MS = 0.25, 5.0
NONE = "none"


class Finding(collections.namedtuple("Finding", "problem sender ms")):
    """A problem that slowpath reports, whose data it is about (None: the connection), its time."""

    def __str__(self):
        sender = f" of {self.sender}" if self.sender else ""
        time = f", {self.ms:.1f} ms" if self.ms is not None else ""
        return f"{self.problem}{sender}{time}"


def end_of(text):
    """An end as the labels write it: IPv6 addresses without brackets, as tshark prints them."""
    return text.replace("[", "").replace("]", "") if text else text


def finding_of(output, sender):
    """A finding of the JSON output, whose `time_us` may be absent or null."""
    time = output.get("time_us")
    return Finding(output["problem"], end_of(sender), None if time is None else time / 1e3)


def findings(connection):
    """What is reported of a connection: problems of each direction, then failures."""
    found = [finding_of(output, connection[end]) for end in ("client", "server")
             for output in (connection.get(f"{end}_verdict") or {}).get("findings", [])]
    return found + [finding_of(output, output.get("from")) for output in connection.get("failures") or []]


def analysed(slowpath, capture):
    """The headline's problem, or NONE; and the findings by number of connection."""
    run = subprocess.run([slowpath, "trace", "--json", str(capture)], capture_output=True, text=True)
    if not run.stdout:
        sys.exit(f"{capture.name}: slowpath trace failed: {run.stderr.strip()}")
    lines = [json.loads(line) for line in run.stdout.splitlines()]
    head = next((line.get("headline") for line in lines if line["type"] == "capture"), None)
    found = {line["connection"]: findings(line) for line in lines if line["type"] == "connection"}
    return (head or {}).get("problem", NONE), found


def end(name):
    """An end as labels name it, which may leave out the brackets of an IPv6 address."""
    return name and name.replace("[", "").replace("]", "")


def fits(finding, required):
    return finding.problem in required["any"] and (
        required["from"] is None or end(finding.sender) in (None, end(required["from"])))


def time_range(required):
    """Between which milliseconds a required finding's time is right; None: any."""
    if required["ms_range"]:
        return required["ms_range"]
    if required["ms"] is None:
        return None
    slack = max(required["ms"] * TOLERANCE, LEAST_MS)
    return required["ms"] - slack, required["ms"] + slack


def entry_is(entry, finding):
    """Whether an entry of `may` or `must_not` is about a finding."""
    if isinstance(entry, str):
        return entry == finding.problem
    word = entry.get("problem") or entry.get("word")
    return word == finding.problem and end(entry.get("from")) in (None, end(finding.sender))


def is_false(finding, label, capture):
    """Whether what was found is false. `label`: the connection's; None: it has none."""
    if finding.problem == "CongestionWindowLimited":
        return False
    if label is None:
        allowed = any(entry_is(entry, finding) for entry in capture["elsewhere_may"])
        return capture["elsewhere"] == "none" and not allowed
    if any(fits(finding, required) for required in label["must"]):
        return False
    if any(entry_is(entry, finding) for entry in label["may"]):
        return False
    return "*" in label["must_not"] or any(entry_is(entry, finding) for entry in label["must_not"])


class Score:
    """Counts over all captures: pairs of (right, total)."""

    def __init__(self):
        self.counts = {name: [0, 0] for name in (
            "headline_precision", "headline_recall", "must_recall", "failures_as_findings",
            "quiet_false_alarms", "time_within_range")}
        # By problem: true, false and missed findings.
        self.classes = collections.defaultdict(lambda: [0, 0, 0])
        self.captures = 0

    def add(self, name, right):
        self.counts[name][0] += bool(right)
        self.counts[name][1] += 1

    def capture(self, label, headline, found):
        """Takes what was found in a capture; gives what is wrong with it."""
        self.captures += 1
        wrong = self._headline(label, headline)
        labels = {connection["connection"]: connection for connection in label["connections"]}
        for number, connection in labels.items():
            wrong += self._required(label, connection, found.get(number, []))
        false = [(number, finding) for number, all_of_it in found.items() for finding in all_of_it
                 if is_false(finding, labels.get(number), label)]
        for number, finding in false:
            self.classes[finding.problem][1] += 1
            wrong.append(f"#{number}: false: {finding}")
        if label["kind"] == "quiet":
            self.add("quiet_false_alarms", false or headline not in label["headline"]["accept"])
        return wrong

    def _headline(self, label, headline):
        accept = label["headline"]["accept"]
        right = headline in accept
        if headline != NONE:
            self.add("headline_precision", right)
        if NONE not in accept:
            self.add("headline_recall", right)
        return [] if right else [f"headline {headline}, and not {' or '.join(accept)}"]

    def _required(self, label, connection, found):
        wrong, number = [], connection["connection"]
        for required in connection["must"]:
            matching = [finding for finding in found if fits(finding, required)]
            self.add("must_recall", matching)
            if set(required["any"]) & set(FAILURES):
                self.add("failures_as_findings", matching)
            name = " or ".join(required["any"])
            if not matching:
                self.classes[required["any"][0]][2] += 1
                wrong.append(f"#{number}: missing: {name} of {required['from'] or 'the connection'}")
                continue
            self.classes[matching[0].problem][0] += 1
            bounds = time_range(required)
            if bounds is None or all(finding.ms is None for finding in matching):
                continue
            # What `any` names may be reported in parts.
            total = sum(finding.ms or 0 for finding in matching)
            times = [total] + [finding.ms for finding in matching if finding.ms is not None]
            right = any(bounds[0] <= ms <= bounds[1] for ms in times)
            self.add("time_within_range", right)
            if not right:
                wrong.append(f"#{number}: {name}: {total:.1f} ms, and not {bounds[0]:.1f} to {bounds[1]:.1f}")
        return wrong

    def result(self):
        rates = {name: (right / of if of else None) for name, (right, of) in self.counts.items()}
        return {"captures": self.captures, **rates}


def labelled(labels):
    """The captures of a labels.json with their paths; those that are not there are named and left out."""
    for label in json.loads(labels.read_text())["captures"]:
        capture = labels.parent / label["file"]
        if capture.exists():
            yield label, capture
        else:
            print(f"{label['file']}: absent, left out")


def rate(right, of):
    return f"{right / of:.3f}" if of else "-"


def table(score):
    """The score as a document has it: by class, then the figures over all captures."""
    lines = ["| problem | true | false | missed | precision | recall |", "|---|---|---|---|---|---|"]
    for problem, (true, false, missed) in sorted(score.classes.items()):
        lines.append(f"| {problem} | {true} | {false} | {missed} | {rate(true, true + false)} | "
                     f"{rate(true, true + missed)} |")
    lines += ["", "| figure | right | of | rate |", "|---|---|---|---|"]
    lines += [f"| `{name}` | {right} | {of} | {rate(right, of)} |" for name, (right, of) in score.counts.items()]
    return [f"`make check-verdicts`, {score.captures} captures.", "", *lines]


def write(document, lines, mark="check-verdicts"):
    """Replaces what a document has between its marks."""
    begin, end = f"<!-- {mark}: begin -->", f"<!-- {mark}: end -->"
    text = document.read_text()
    if begin not in text or end not in text:
        sys.exit(f"{document}: no place for the table: it needs the lines {begin} and {end}")
    before, rest = text.split(begin, 1)
    document.write_text("\n".join([before + begin, *lines, end]) + rest.split(end, 1)[1])


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--write", metavar="FILE", type=Path)
    parser.add_argument("slowpath", metavar="SLOWPATH")
    parser.add_argument("labels", metavar="LABELS", type=Path, nargs="+")
    arguments = parser.parse_args()
    score = Score()
    for labels in arguments.labels:
        for label, capture in labelled(labels):
            headline, found = analysed(arguments.slowpath, capture)
            wrong = score.capture(label, headline, found)
            print(f"{label['file']} ({label['kind']}): {'as labelled' if not wrong else ''}")
            for line in wrong:
                print(f"    {line}")
    print("\nproblem                    true  false  missed  precision  recall")
    for problem, (true, false, missed) in sorted(score.classes.items()):
        print(f"{problem:25} {true:5} {false:6} {missed:7}  {rate(true, true + false):>9}  {rate(true, true + missed):>6}")
    if arguments.write:
        write(arguments.write, table(score))
    print(json.dumps(score.result()))


if __name__ == "__main__":
    main()
