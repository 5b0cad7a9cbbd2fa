#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""The tests of what is installed: packaging/tests, with a closing line as make test has it.

    tools/check_install.py TARGET_DIRECTORY
"""

import os
import subprocess
import sys

import run_tests


def interpreter():
    """A Python with PyYAML, if there is one: Debian's, where another stands before it."""
    for python in (sys.executable, "/usr/bin/python3"):
        if os.path.exists(python) and subprocess.run(
                [python, "-c", "import yaml"], stderr=subprocess.DEVNULL).returncode == 0:
            return python
    return sys.executable


def main():
    os.environ["SLOWPATH_TARGET"] = os.path.abspath(sys.argv[1])
    tally = run_tests.run("check-install", [
        interpreter(), "-m", "unittest", "discover", "-v", "-s", "packaging/tests",
        "-p", "*_test.py"])
    print()
    for test, reason in sorted(tally.skipped):
        print(f"SKIPPED {test}: {reason}")
    for test in tally.failed:
        print(f"FAILED {test}")
    print(f"{tally.passed} passed, {len(tally.failed)} failed, {len(tally.skipped)} skipped")
    return 0 if tally.passed and not tally.failed else 1


if __name__ == "__main__":
    sys.exit(main())
