#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""The licences of everything that is linked into the slowpath command, with their texts.

    tools/notices.py [--target TRIPLE] [--static]

Standard output gets a list of crates and then each licence text once, with the crates that
carry it. With --static also what the static binary adds: libelf, zlib and musl. Offline, if
the crates were fetched.
"""

import argparse
import hashlib
import json
import re
import subprocess
import sys
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
TEXT = re.compile(r"^(LICEN[CS]E|COPYING|COPYRIGHT|NOTICE|UNLICENSE)", re.IGNORECASE)
LONGEST = 200_000


def metadata(target):
    """cargo's metadata for one platform, by default this one."""
    host = subprocess.run(["rustc", "-vV"], check=True, capture_output=True, text=True).stdout
    target = target or re.search(r"^host: (.+)$", host, re.MULTILINE)[1]
    command = ["cargo", "metadata", "--format-version=1", "--locked", "--filter-platform", target]
    return json.loads(subprocess.run(
        command, cwd=ROOT, check=True, stdout=subprocess.PIPE).stdout)


def linked(meta, root="slowpath"):
    """The packages below `root` by dependencies that end in the program, itself left out."""
    packages = {p["id"]: p for p in meta["packages"]}
    nodes = {n["id"]: n for n in meta["resolve"]["nodes"]}
    members = set(meta["workspace_members"])
    [start] = [i for i in members if packages[i]["name"] == root]
    met, waiting = {start}, [start]
    while waiting:
        for dependency in nodes[waiting.pop()]["deps"]:
            built_in = any(kind["kind"] is None for kind in dependency["dep_kinds"])
            macro = any("proc-macro" in t["kind"] for t in packages[dependency["pkg"]]["targets"])
            if built_in and not macro and dependency["pkg"] not in met:
                met.add(dependency["pkg"])
                waiting.append(dependency["pkg"])
    found = [packages[i] for i in met - members]
    return sorted(found, key=lambda p: (p["name"], p["version"]))


def texts(folder):
    """The licence files of one crate."""
    for path in sorted(folder.iterdir()):
        if path.is_file() and TEXT.match(path.name) and path.stat().st_size <= LONGEST:
            yield path.read_text(errors="replace").strip() + "\n"


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--target")
    parser.add_argument("--static", action="store_true")
    arguments = parser.parse_args()

    carriers = {}

    def carry(who, text):
        digest = hashlib.sha256(" ".join(text.split()).encode()).hexdigest()
        carriers.setdefault(digest, (text, []))[1].append(who)

    print("What the slowpath command is linked from, beside its own source (Apache-2.0; the")
    print("programs that it loads into the kernel: GPL-2.0).\n")
    for package in linked(metadata(arguments.target)):
        who = f"{package['name']} {package['version']}"
        print(f"{who}: {package['license']}")
        folder = Path(package["manifest_path"]).parent
        for text in texts(folder):
            carry(who, text)
        if package["name"] == "libbpf-sys":
            print("  with libbpf: LGPL-2.1 OR BSD-2-Clause, here under BSD-2-Clause")
            for text in texts(folder / "libbpf"):
                carry("libbpf", text)
            carry("libbpf", (folder / "libbpf/LICENSE.BSD-2-Clause").read_text())
            if arguments.static:
                print("  with libelf (elfutils): LGPL-3.0-or-later OR GPL-2.0-or-later, here")
                print("    under LGPL-3.0-or-later; its source comes with this crate, and")
                print("    `make static` links the command anew with a changed one")
                print("  with zlib: Zlib")
                carry("libelf", (folder / "elfutils/COPYING-LGPLV3").read_text())
                carry("libelf", (folder / "elfutils/COPYING").read_text())
                carry("zlib", (folder / "zlib/LICENSE").read_text())
    if arguments.static:
        print("musl: MIT")
        musl = Path("/usr/share/doc/musl-dev/copyright")
        if musl.exists():
            carry("musl", musl.read_text())
    for text, who in carriers.values():
        print("\n" + "=" * 78)
        print(", ".join(sorted(set(who))))
        print("=" * 78 + "\n")
        print(text, end="")
    return 0


if __name__ == "__main__":
    sys.exit(main())
