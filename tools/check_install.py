#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""The tests of what is installed: packaging/tests, with a closing line as make test has it.

    tools/check_install.py TARGET_DIRECTORY
"""

import os
import subprocess
import sys
from pathlib import Path

import run_tests


# PyPI's, with the JSON schemas of every Kubernetes version.
VALIDATOR = "kubernetes-validate==1.37.0"


def validator():
    """Puts the manifest's validator on the PATH, from the user's cache; the test of it is
    skipped where it cannot be had."""
    cache = Path(os.environ.get("XDG_CACHE_HOME", Path.home() / ".cache")) / "slowpath"
    there = cache / VALIDATOR.replace("==", "-")
    if not (there / "complete").exists():
        try:
            subprocess.run([sys.executable, "-m", "venv", "--clear", there], check=True)
            subprocess.run([there / "bin/pip", "install", "--quiet", "--disable-pip-version-check",
                            VALIDATOR], check=True)
            (there / "complete").touch()
        except (OSError, subprocess.CalledProcessError) as error:
            print(f"check_install: going on without {VALIDATOR}: {error}")
    os.environ["PATH"] += f":{there / 'bin'}"


def main():
    os.environ["SLOWPATH_TARGET"] = os.path.abspath(sys.argv[1])
    validator()
    tally = run_tests.run("check-install", [
        sys.executable, "-m", "unittest", "discover", "-v", "-s", "packaging/tests",
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
