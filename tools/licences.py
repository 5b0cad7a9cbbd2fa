#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Checks the licences and the choice of every crate that is linked or built with. Offline.

Reads `cargo metadata` for this machine's platform: each crate's SPDX expression must be
satisfiable with the licences allowed here, no crate may be banned, no version requirement
may be a wildcard, and crates that are costly to build come in one version only.
"""

import json
import re
import subprocess
import sys
from collections import defaultdict
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent

# Permissive licences whose only condition is that their text travels along.
ALLOWED = {
    "0BSD", "Apache-2.0", "BSD-2-Clause", "BSD-3-Clause", "BSL-1.0", "CC0-1.0", "ISC", "MIT",
    "MIT-0", "NCSA", "Unicode-3.0", "Unicode-DFS-2016", "Unlicense", "Zlib",
}
ALLOWED_WITH = {("Apache-2.0", "LLVM-exception")}

# name: why not.
BANNED = {
    "openssl-sys": "a C library of its own age on every machine; rustls does the same",
    "native-tls": "brings openssl-sys; use rustls",
    "arrow": "a third of the build; slowpath-table reads and writes Parquet by columns",
    "arrow-array": "a third of the build; slowpath-table reads and writes Parquet by columns",
    "cmake": "a build tool a newcomer lacks; choose a crate or feature that needs only a C compiler",
    "datafusion": "its optimised build takes 15 minutes on two cores",
    "polars": "its optimised build takes minutes; the log's views need only rows",
    "chrono-tz": "a time-zone database in the binary; records are in UTC",
    "failure": "unmaintained; errors are enums with thiserror",
    "anyhow": "errors here are enums that name operation and object; use thiserror",
    "lazy_static": "std::sync::LazyLock does it",
    "once_cell": "std::sync::OnceLock does it",
}
# What is banned for us to ask for may still come as a dependency of another crate.
BANNED_ONLY_DIRECTLY = {"anyhow", "lazy_static", "once_cell", "chrono-tz"}

# Costly to build, or two versions of their types are incompatible.
ONE_VERSION = re.compile(
    r"^(parquet|clap(_.*)?|ratatui(-.*)?|crossterm|tokio|hyper|libbpf-(rs|sys|cargo)"
    r"|zstd(-s.*)?|syn|serde(_.*)?|regex(-.*)?|rustls|nix|proptest)$")

# name: (series that may stand side by side, why).
SEVERAL_VERSIONS = {
    "nix": ({"0.29", "0.31"}, "libbpf-sys's build is at 0.31; trippy-core 0.13, the last release, not yet"),
    "syn": ({"2", "3"}, "serde and clap moved to 3; strum and derive_more, below ratatui and crossterm, not yet"),
}


class ParseError(ValueError):
    """The text is not an SPDX expression."""


def satisfied(expression):
    """Whether an SPDX expression can be met with the allowed licences.

    Grammar: SPDX 2.3 annex D; AND binds tighter than OR, WITH tighter than both. The old
    `MIT/Apache-2.0` of crates means OR.
    """
    tokens = re.findall(r"[()]|[A-Za-z0-9.+:-]+", expression.replace("/", " OR "))
    at = 0

    def peek():
        return tokens[at] if at < len(tokens) else None

    def take():
        nonlocal at
        token = peek()
        if token is None:
            raise ParseError(f"unfinished: {expression!r}")
        at += 1
        return token

    def either():
        result = both()
        while peek() == "OR":
            take()
            result = both() or result
        return result

    def both():
        result = one()
        while peek() == "AND":
            take()
            result = one() and result
        return result

    def one():
        token = take()
        if token == "(":
            result = either()
            if take() != ")":
                raise ParseError(f"no closing parenthesis: {expression!r}")
            return result
        if token in (")", "OR", "AND", "WITH"):
            raise ParseError(f"unexpected {token!r}: {expression!r}")
        if peek() == "WITH":
            take()
            return (token, take()) in ALLOWED_WITH
        return token in ALLOWED

    result = either()
    if peek() is not None:
        raise ParseError(f"unexpected {peek()!r}: {expression!r}")
    return result


def series(version):
    """The part of a version within which Cargo thinks versions compatible."""
    major, minor, patch = (version.split("-")[0].split("+")[0].split(".") + ["0", "0"])[:3]
    if major != "0":
        return major
    return f"0.{minor}" if minor != "0" else f"0.0.{patch}"


def check(metadata):
    """The complaints about one workspace's metadata."""
    complaints = []
    members = set(metadata["workspace_members"])
    versions = defaultdict(set)
    for package in metadata["packages"]:
        name, who = package["name"], f"{package['name']} {package['version']}"
        licence = package["license"]
        if not licence:
            complaints.append(f"{who}: no licence expression")
        else:
            try:
                if not satisfied(licence):
                    complaints.append(f"{who}: licence not allowed: {licence}")
            except ParseError as error:
                complaints.append(f"{who}: licence: {error}")
        if name in BANNED and name not in BANNED_ONLY_DIRECTLY and package["id"] not in members:
            complaints.append(f"{who}: banned: {BANNED[name]}")
        versions[name].add(package["version"])
        if package["id"] not in members:
            continue
        for dependency in package["dependencies"]:
            if dependency["req"] == "*" and not dependency.get("path"):
                complaints.append(f"{name}: wildcard version of {dependency['name']}")
            if dependency["name"] in BANNED_ONLY_DIRECTLY:
                complaints.append(
                    f"{name}: {dependency['name']} is banned: {BANNED[dependency['name']]}")
    for name, found in sorted(versions.items()):
        several = {series(v) for v in found}
        if ONE_VERSION.match(name) and len(several) > 1 and several != SEVERAL_VERSIONS.get(name, [None])[0]:
            complaints.append(f"{name}: more than one version: {', '.join(sorted(found))}")
    return complaints


def metadata_of(manifest):
    """cargo's metadata of a workspace, for this machine's platform, offline if it can be."""
    host = subprocess.run(["rustc", "-vV"], check=True, capture_output=True, text=True).stdout
    platform = re.search(r"^host: (.+)$", host, re.MULTILINE)[1]
    command = ["cargo", "metadata", "--format-version=1", "--offline", "--locked",
               "--filter-platform", platform, "--manifest-path", str(manifest)]
    done = subprocess.run(command, capture_output=True, text=True)
    if done.returncode != 0:
        # Nothing of this lock file was built here yet: fetch once.
        command.remove("--offline")
        done = subprocess.run(command, capture_output=True, text=True)
    if done.returncode != 0:
        sys.exit(f"licences: {' '.join(command)} failed:\n{done.stderr}")
    return json.loads(done.stdout)


def main():
    metadata = metadata_of(ROOT / "Cargo.toml")
    complaints, crates = check(metadata), metadata["packages"]
    for complaint in complaints:
        print(f"licences: {complaint}")
    print(f"licences: {len(crates)} crates, {len(complaints)} complaints")
    return 1 if complaints else 0


if __name__ == "__main__":
    sys.exit(main())
