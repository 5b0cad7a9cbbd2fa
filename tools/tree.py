#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Checks the files themselves: licence lines, names, sizes, machine paths, links.

Every source file names its licence in its first lines; programs for the kernel are
GPL-2.0, everything else Apache-2.0. No module is named after nothing. No path of
one machine stands in a file. Relative links in documents lead somewhere, and the
index of decisions names each. A file past 600 lines is a warning.
"""

import re
import subprocess
import sys
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
LONG = 600
SOURCE = (".rs", ".c", ".h", ".py", ".sh", ".ts", ".patch")
NAMELESS = {"util", "utils", "common", "helper", "helpers", "misc", "stuff"}
MACHINE_PATHS = re.compile(r"(?<![\w.-])/(?:work/|root/|home/[a-z])")
SPDX = re.compile(r"SPDX-License-Identifier: (.+?)\s*(?:\*/|-->)?\s*$", re.MULTILINE)
LINK = re.compile(r"\]\(([^)\s]+)\)|<img [^>]*src=\"([^\"]+)\"")
KERNEL = re.compile(r"\.bpf\.[ch]$|^lab/kernel/|^lab/.*\.patch$|/virtual_time/layout/.*\.[ch]$")
GPL = {"GPL-2.0", "GPL-2.0-only", "GPL-2.0-or-later"}


def licence_complaint(name, text):
    """What is wrong with a file's licence line, or None."""
    interpreted = text.startswith("#!")
    if not (name.endswith(SOURCE) or interpreted or Path(name).name == "Makefile"):
        return None
    match = SPDX.search("\n".join(text.splitlines()[:3]))
    if not match:
        return "no SPDX-License-Identifier in the first three lines"
    if KERNEL.search(name):
        # Dual licences are fine where the GPL is one of them.
        choices = set(re.split(r"[ ()]+", match[1]))
        return None if choices & GPL else f"code for the kernel is GPL-2.0, not {match[1]}"
    return None if match[1] == "Apache-2.0" else f"Apache-2.0 expected, not {match[1]}"


def name_complaint(name):
    """What is wrong with a file's name, or None."""
    for part in Path(name).parts:
        if part.split(".")[0].lower() in NAMELESS:
            return f"'{part}' says nothing about what is in it"
    return None


def link_complaints(name, text):
    """The relative links of a document that lead nowhere."""
    text = re.sub(r"```.*?```", "", text, flags=re.DOTALL)
    for match in LINK.finditer(text):
        target = (match[1] or match[2]).split("#")[0]
        if not target or re.match(r"[a-z]+:", target):
            continue
        if not ((ROOT / name).parent / target).exists():
            yield f"link to {target}, which does not exist"


def index_complaints(names):
    """The decisions that the index does not name."""
    index = "docs/decisions/README.md"
    text = (ROOT / index).read_text() if (ROOT / index).exists() else ""
    for name in names:
        match = re.match(r"docs/decisions/(\d{4}-.+\.md)$", name)
        if match and match[1] not in text:
            yield f"{index}: does not name {match[1]}"


def main():
    names = sorted(set(subprocess.run(
        ["git", "ls-files", "-co", "--exclude-standard"], cwd=ROOT, check=True,
        capture_output=True, text=True).stdout.splitlines()))
    complaints, checked = list(index_complaints(names)), 0
    for name in names:
        path = ROOT / name
        if not path.is_file():
            continue
        if complaint := name_complaint(name):
            complaints.append(f"{name}: {complaint}")
        content = path.read_bytes()
        if b"\0" in content[:8192]:
            continue
        checked += 1
        text = content.decode(errors="replace")
        if complaint := licence_complaint(name, text):
            complaints.append(f"{name}: {complaint}")
        for number, line in enumerate(text.splitlines(), 1):
            if MACHINE_PATHS.search(line):
                complaints.append(f"{name}:{number}: a path of one machine")
        if name.endswith(".md"):
            complaints += [f"{name}: {c}" for c in link_complaints(name, text)]
        length = text.count("\n")
        if name.endswith(SOURCE) and length > LONG:
            print(f"tree: warning: {name}: {length} lines, more than {LONG}")
    for complaint in complaints:
        print(f"tree: {complaint}")
    print(f"tree: {checked} files, {len(complaints)} complaints")
    return 1 if complaints else 0


if __name__ == "__main__":
    sys.exit(main())
