#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Finds the same run of code lines in two places.

A line counts after white space, comments and the contents of strings are taken out, and
only if a letter is left in it: closing braces, rows of numbers and tables of test data do
not. `use`, `#include`, attributes and documentation do not count either. Twelve such lines in
a row, the same in two places, are a duplicate. Pairs that are alike on purpose stand in
tools/duplicates.allow with the reason.
"""

import re
import subprocess
import sys
from collections import defaultdict
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
ALLOW = ROOT / "tools/duplicates.allow"
RUN = 12
SUFFIXES = (".rs", ".c", ".h", ".py", ".ts")

STRING = re.compile(r'"(?:[^"\\]|\\.)*"')
NUMBER = re.compile(r"\b\d\w*")
COMMENT = re.compile(r"/\*.*?\*/|//.*$")
NOT_CODE = re.compile(r"^(use |pub use |#|\*|/\*|import |from )")


def normalise(line, python=False):
    """The line as it is compared; empty if it does not count."""
    line = STRING.sub('""', line.strip())
    if NOT_CODE.match(line):
        return ""
    if not python:
        line = COMMENT.sub("", line)
    line = "".join(line.split())
    return line if re.search(r"[a-z]", NUMBER.sub("", line)) else ""


def code_lines(text, python=False):
    """(line number, normalised line) of the lines that count."""
    numbered = ((n, normalise(line, python)) for n, line in enumerate(text.splitlines(), 1))
    return [(n, line) for n, line in numbered if line]


def duplicates(files):
    """The maximal runs that two places share: ((file, from, to), (file, from, to)).

    `files` maps a name to its `code_lines`.
    """
    windows = defaultdict(list)
    for name in sorted(files):
        lines = [line for _, line in files[name]]
        for at in range(len(lines) - RUN + 1):
            windows[hash(tuple(lines[at:at + RUN]))].append((name, at))
    pairs = set()
    for places in windows.values():
        first = places[0]
        pairs.update((first, other) for other in places[1:])
    found = []
    for (a, i), (b, j) in sorted(pairs):
        if ((a, i - 1), (b, j - 1)) in pairs:
            continue  # inside a run that began earlier
        length = RUN
        while ((a, i + length - RUN + 1), (b, j + length - RUN + 1)) in pairs:
            length += 1
        if a == b and j < i + RUN:
            continue  # a repetitive run that overlaps itself
        found.append(((a, files[a][i][0], files[a][i + length - 1][0]),
                      (b, files[b][j][0], files[b][j + length - 1][0])))
    return found


def allowed_pairs():
    """The pairs of files in the allow file: `FILE FILE reason`."""
    pairs = set()
    for line in ALLOW.read_text().splitlines() if ALLOW.exists() else []:
        if not line.strip() or line.startswith("#"):
            continue
        fields = line.split(maxsplit=2)
        if len(fields) < 3:
            sys.exit(f"{ALLOW.name}: no reason given: {line}")
        pairs.add(frozenset(fields[:2]))
    return pairs


def main():
    listed = subprocess.run(
        ["git", "ls-files", "-co", "--exclude-standard"], cwd=ROOT, check=True,
        capture_output=True, text=True).stdout.splitlines()
    files = {}
    for name in set(listed):
        path = ROOT / name
        if name.endswith(SUFFIXES) and path.name != "vmlinux.h" and path.is_file():
            files[name] = code_lines(path.read_text(errors="replace"), name.endswith(".py"))
    allowed = allowed_pairs()
    found = [d for d in duplicates(files) if frozenset((d[0][0], d[1][0])) not in allowed]
    for (a, a_from, a_to), (b, b_from, b_to) in found:
        print(f"duplicates: {a}:{a_from}-{a_to} and {b}:{b_from}-{b_to}")
    print(f"duplicates: {len(files)} files, {len(found)} found")
    return 1 if found else 0


if __name__ == "__main__":
    sys.exit(main())
