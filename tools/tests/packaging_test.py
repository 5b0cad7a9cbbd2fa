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


if __name__ == "__main__":
    unittest.main()
