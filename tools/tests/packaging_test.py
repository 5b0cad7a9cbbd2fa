# SPDX-License-Identifier: Apache-2.0
"""What of packaging/ can be tried without building anything; make check-install tries the rest."""

import re
import shutil
import subprocess
import sys
import tempfile
import unittest
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent.parent
sys.path.insert(0, str(ROOT / "packaging/tests"))
from image_test import Manifest  # noqa: E402,F401 (its tests are found here)


class Unit(unittest.TestCase):
    def setUp(self):
        if not shutil.which("systemd-analyze"):
            self.skipTest("no systemd-analyze here")
        unit = (ROOT / "packaging/systemd/slowpath-agent.service").read_text()
        self.directory = tempfile.TemporaryDirectory()
        self.addCleanup(self.directory.cleanup)
        self.path = Path(self.directory.name) / "slowpath-agent.service"
        # The command need not be installed here.
        self.path.write_text(unit.replace("ExecStart=/usr/bin/slowpath", "ExecStart=/bin/true"))

    def ask(self, *words):
        return subprocess.run(["systemd-analyze", *words, self.path], text=True,
                              stdout=subprocess.PIPE, stderr=subprocess.STDOUT)

    def test_systemd_understands_every_line(self):
        done = self.ask("verify", "--man=no")
        # What it says of other units of this machine is not about this one.
        said = [line for line in done.stdout.splitlines() if "slowpath" in line]
        self.assertEqual(said, [])

    def test_little_is_exposed(self):
        done = self.ask("security", "--offline=true", "--no-pager")
        found = re.search(r"Overall exposure level .*: (\d+\.\d+)", done.stdout)
        if not found:
            self.skipTest(f"systemd-analyze cannot judge a file here: {done.stdout[-200:]}")
        self.assertLess(float(found[1]), 2.5)


class Alerts(unittest.TestCase):
    """That the queries work in a Prometheus is tried by crates/slowpath/tests/prometheus.rs."""

    RULES = ROOT / "packaging/prometheus/slowpath.rules.yaml"
    TESTS = ROOT / "packaging/prometheus/slowpath.rules.test.yaml"

    def promtool(self, *words):
        if not shutil.which("promtool"):
            self.skipTest("no promtool here (Debian: prometheus)")
        done = subprocess.run(["promtool", *words], text=True,
                              stdout=subprocess.PIPE, stderr=subprocess.STDOUT)
        self.assertEqual(done.returncode, 0, done.stdout)

    def test_promtool_understands_every_rule(self):
        self.promtool("check", "rules", self.RULES)

    def test_nothing_fires_in_a_healthy_hour_and_everything_in_a_sick_one(self):
        self.promtool("test", "rules", self.TESTS)

    def test_every_alert_is_in_the_sick_hour(self):
        rules, tests = self.RULES.read_text(), self.TESTS.read_text()
        alerts = re.findall(r"- alert: (\w+)", rules)
        fired = re.findall(r'alertname="(Slowpath\w+)"', tests)
        self.assertEqual(sorted(alerts), sorted(fired))

    def test_a_test_notices_a_threshold_that_is_never_reached(self):
        with tempfile.TemporaryDirectory() as directory:
            shutil.copy(self.TESTS, directory)
            rules = self.RULES.read_text()
            changed = rules.replace("> 0.02", "> 0.2")
            self.assertNotEqual(rules, changed)
            (Path(directory) / self.RULES.name).write_text(changed)
            with self.assertRaises(AssertionError):
                self.promtool("test", "rules", Path(directory) / self.TESTS.name)


if __name__ == "__main__":
    unittest.main()
