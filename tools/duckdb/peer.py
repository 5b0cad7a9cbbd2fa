#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""DuckDB in a virtual environment of its own, under the user's cache folder. Never a
dependency of the product: a test reads the log with it.

  tools/duckdb/peer.py --install    installs the wheel from PyPI, if it is not there
  tools/duckdb/peer.py              runs the statements in standard input, a JSON object of names and
                               SQL, in the present folder, and prints their rows as JSON
  tools/duckdb/peer.py --which      prints the interpreter that has it; status 1 if there is none

SLOWPATH_NO_INSTALL=1: installs nothing.
"""

import json
import os
import subprocess
import sys
from pathlib import Path

VERSION = "2.0.0"


def venv():
    base = os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache"
    return Path(base) / "slowpath" / f"duckdb-{VERSION}"


def python():
    """The interpreter that has the wheel, if it is installed."""
    if (venv() / "done").exists():
        return venv() / "bin/python"
    return None


def install():
    if python():
        return
    if os.environ.get("SLOWPATH_NO_INSTALL"):
        sys.exit(f"peer.py: duckdb {VERSION} is missing in {venv()}")
    venv().parent.mkdir(parents=True, exist_ok=True)
    subprocess.run([sys.executable, "-m", "venv", venv()], check=True)
    pip = [venv() / "bin/python", "-m", "pip", "install", "--quiet", "--disable-pip-version-check"]
    subprocess.run([*pip, f"duckdb=={VERSION}"], check=True)
    (venv() / "done").touch()


def answer():
    import duckdb
    connection = duckdb.connect()
    connection.execute("SET TimeZone = 'UTC'")
    statements = json.load(sys.stdin)
    rows = {name: connection.execute(sql).fetchall() for name, sql in statements.items()}
    json.dump(rows, sys.stdout, default=int)


def main():
    if sys.argv[1:] == ["--install"]:
        try:
            install()
        except (OSError, subprocess.CalledProcessError) as error:
            sys.exit(f"peer.py: cannot install duckdb {VERSION}: {error}")
    elif sys.argv[1:] == ["--which"]:
        found = python()
        if not found:
            sys.exit(f"duckdb {VERSION} is not installed: tools/duckdb/peer.py --install")
        print(found)
    elif not sys.argv[1:]:
        answer()
    else:
        sys.exit(__doc__)


if __name__ == "__main__":
    main()
