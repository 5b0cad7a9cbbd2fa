# SPDX-License-Identifier: Apache-2.0
"""Tests of tools/check_verdicts.py."""

import contextlib
import io
import json
import sys
import tempfile
import unittest
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parent.parent))

import check_verdicts
from check_verdicts import Finding

CLIENT, SERVER = "10.0.0.1:4000", "10.0.0.2:80"


def required(problem, sender=None, ms=None, ms_range=None):
    return {"any": [problem], "from": sender, "ms": ms, "ms_range": ms_range}


def capture(kind, accept, connections, elsewhere="none"):
    return {"kind": kind, "headline": {"accept": accept}, "connections": connections,
            "elsewhere": elsewhere, "elsewhere_may": []}


def connection(must=(), may=(), must_not=()):
    return {"connection": 1, "must": list(must), "may": list(may), "must_not": list(must_not)}


class CheckVerdicts(unittest.TestCase):
    def setUp(self):
        self.score = check_verdicts.Score()

    def rate(self, name):
        return self.score.result()[name]

    def test_a_headline_counts_for_precision_if_there_is_one_and_for_recall_if_one_is_needed(self):
        needed = capture("problem", ["Timeout"], [])
        self.score.capture(needed, "Timeout", {})
        self.score.capture(needed, "none", {})
        self.score.capture(capture("quiet", ["none"], []), "DelayedAck", {})
        self.assertEqual(self.rate("headline_precision"), 0.5)
        self.assertEqual(self.rate("headline_recall"), 0.5)

    def test_a_required_finding_is_about_its_direction(self):
        label = capture("problem", ["none"], [connection([required("Timeout", CLIENT)])])
        self.assertEqual(self.score.capture(label, "none", {1: [Finding("Timeout", CLIENT, 300.0)]}), [])
        wrong = self.score.capture(label, "none", {1: [Finding("Timeout", SERVER, 300.0)]})
        self.assertEqual(wrong, [f"#1: missing: Timeout of {CLIENT}"])
        self.assertEqual(self.rate("must_recall"), 0.5)

    def test_times_are_within_their_range_or_a_quarter_off(self):
        for ms, bounds, found, right in [(400, None, 500, True), (400, None, 501, False),
                                         (400, (100, 200), 300, False), (None, None, 7, None)]:
            score = check_verdicts.Score()
            label = capture("problem", ["none"], [connection([required("Timeout", CLIENT, ms, bounds)])])
            score.capture(label, "none", {1: [Finding("Timeout", CLIENT, float(found))]})
            rate = score.result()["time_within_range"]
            self.assertEqual(rate, None if right is None else float(right), (ms, bounds, found))

    def test_a_failed_connection_must_be_a_finding(self):
        label = capture("failure", ["Refused"], [connection([required("Refused")])])
        self.score.capture(label, "Refused", {1: [Finding("Refused", None, None)]})
        self.score.capture(label, "none", {})
        self.assertEqual(self.rate("failures_as_findings"), 0.5)

    def test_what_is_false_of_a_quiet_capture(self):
        false = Finding("DelayedAck", CLIENT, 40.0)
        for label, found, alarm in [
            (capture("quiet", ["none"], []), {1: [false]}, True),
            (capture("quiet", ["none"], [], elsewhere="any"), {1: [false]}, False),
            (capture("quiet", ["none"], [connection(may=["DelayedAck"], must_not=["*"])]), {1: [false]}, False),
            (capture("quiet", ["none"], [connection(must_not=["*"])]), {1: [false]}, True),
            (capture("quiet", ["none"], [connection(must_not=["Timeout"])]), {1: [false]}, False),
            (capture("quiet", ["none"], []), {1: [Finding("CongestionWindowLimited", CLIENT, 1.0)]}, False),
            (capture("quiet", ["none"], []), {}, False),
        ]:
            score = check_verdicts.Score()
            score.capture(label, "none", found)
            self.assertEqual(score.result()["quiet_false_alarms"], float(alarm), label)

    def test_findings_have_their_sender_and_their_time(self):
        report = {"client": CLIENT, "server": SERVER, "client_verdict": {"findings": []},
                  "server_verdict": {"findings": [{"problem": "Timeout", "time_us": 1500.0}]},
                  "failures": [{"problem": "Reset", "from": CLIENT}]}
        self.assertEqual(check_verdicts.findings(report),
                         [Finding("Timeout", SERVER, 1.5), Finding("Reset", CLIENT, None)])

    def test_a_capture_that_is_not_there_is_named_and_left_out(self):
        with tempfile.TemporaryDirectory() as folder:
            labels, there = Path(folder, "labels.json"), Path(folder, "there.pcap")
            there.touch()
            labels.write_text(json.dumps({"captures": [{"file": "../absent.pcap"}, {"file": "there.pcap"}]}))
            with contextlib.redirect_stdout(io.StringIO()) as printed:
                found = list(check_verdicts.labelled(labels))
        self.assertEqual(found, [({"file": "there.pcap"}, there)])
        self.assertEqual(printed.getvalue(), "../absent.pcap: absent, left out\n")

    def test_the_table_replaces_the_one_before(self):
        marks = "<!-- check-verdicts: begin -->", "<!-- check-verdicts: end -->"
        score = check_verdicts.Score()
        found = {1: [Finding("Timeout", CLIENT, 1.0)]}
        score.capture(capture("quiet", ["none"], [connection(must_not=["*"])]), "none", found)
        with tempfile.TemporaryDirectory() as folder:
            document = Path(folder, "accuracy.md")
            document.write_text("\n".join(["before", marks[0], "old", marks[1], "after", ""]))
            check_verdicts.write(document, check_verdicts.table(score))
            text = document.read_text()
        self.assertTrue(text.startswith(f"before\n{marks[0]}\n") and text.endswith(f"\n{marks[1]}\nafter\n"), text)
        self.assertIn("| Timeout | 0 | 1 | 0 | 0.000 | - |", text)
        self.assertIn("| `quiet_false_alarms` | 1 | 1 | 1.000 |", text)
        self.assertNotIn("old", text)


if __name__ == "__main__":
    unittest.main()
