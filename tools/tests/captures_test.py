# SPDX-License-Identifier: Apache-2.0
"""Tests that captures/labels.json fits the captures beside it."""

import hashlib
import json
import unittest
from pathlib import Path

FOLDER = Path(__file__).resolve().parent.parent.parent / "captures"
WORDS = {
    "SendBufferLimited", "ReceiverWindowLimited", "ZeroWindow", "FastRetransmit", "Timeout", "TailLossProbe", "DelayedAck",
    "SmallWrites", "Reordering", "SynRetransmit", "SenderAppLimited", "CongestionWindowLimited", "Unanswered", "Refused", "Reset",
}


def word(entry):
    return entry if isinstance(entry, str) else entry["problem"]


class Labels(unittest.TestCase):
    @classmethod
    def setUpClass(cls):
        cls.captures = json.loads((FOLDER / "labels.json").read_text())["captures"]

    def test_each_capture_here_has_one_label_of_these_very_bytes(self):
        ours = [label for label in self.captures if not label["file"].startswith("..")]
        self.assertEqual(sorted(label["file"] for label in ours), sorted(file.name for file in FOLDER.glob("*.pcap*")))
        for label in ours:
            content = (FOLDER / label["file"]).read_bytes()
            found = len(content), hashlib.sha256(content).hexdigest()
            self.assertEqual(found, (label["bytes"], label["sha256"]), label["file"])

    def test_at_least_half_of_the_captures_have_nothing_to_report(self):
        quiet = [label for label in self.captures if label["kind"] == "quiet"]
        self.assertGreaterEqual(2 * len(quiet), len(self.captures))
        for label in quiet:
            self.assertIn("none", label["headline"]["accept"], label["file"])
            self.assertFalse([c for c in label["connections"] if c["must"]], label["file"])

    def test_labels_use_the_words_of_the_verdicts_and_do_not_contradict_themselves(self):
        for label in self.captures:
            self.assertLessEqual(set(label["headline"]["accept"]), WORDS | {"none"}, label["file"])
            for connection in label["connections"]:
                must = {problem for required in connection["must"] for problem in required["any"]}
                not_so = {word(entry) for entry in connection["must_not"]}
                self.assertLessEqual(must | set(map(word, connection["may"])) | not_so, WORDS | {"*"}, label["file"])
                self.assertFalse(not_so & must, label["file"])

    def test_times_are_within_their_ranges_and_frames_within_their_connections(self):
        for label in self.captures:
            for connection in label["connections"]:
                for required in connection["must"]:
                    if required["ms"] is not None and required["ms_range"]:
                        low, high = required["ms_range"]
                        self.assertTrue(low <= required["ms"] <= high, label["file"])
                    self.assertTrue(required["frames"], label["file"])
                    inside = [connection["first_frame"] <= f <= connection["last_frame"] for f in required["frames"]]
                    self.assertTrue(all(inside), label["file"])


if __name__ == "__main__":
    unittest.main()
