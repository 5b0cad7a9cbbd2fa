#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""ns-3 in a virtual environment of its own, under the user's cache folder, and programs
built with it. Never a dependency of the product: only `make check-sim` and `make bench-sim`
compare with it."""

import os
import subprocess
import sys
from pathlib import Path

HERE = Path(__file__).resolve().parent
ROOT = HERE.parent.parent
VERSION = "3.44.post0"
MODULES = ["core", "network", "internet", "point-to-point", "applications", "traffic-control",
           "stats", "bridge", "antenna", "propagation", "spectrum", "mobility"]


def cache():
    base = os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache"
    folder = Path(base) / "slowpath" / f"ns3-{VERSION}"
    folder.mkdir(parents=True, exist_ok=True)
    return folder


def installed():
    """The folder of the wheel; made with pip on the first call."""
    venv = cache() / "venv"
    if not (venv / "done").exists():
        subprocess.run([sys.executable, "-m", "venv", venv], check=True)
        pip = [venv / "bin/python", "-m", "pip", "install", "--quiet", f"ns3=={VERSION}"]
        subprocess.run(pip, check=True)
        (venv / "done").touch()
    found = sorted(venv.glob("lib/python*/site-packages/ns3"))
    if not found:
        sys.exit("peer.py: the ns3 wheel has no ns3 folder")
    return found[0]


def built(name):
    """The program tools/ns3/NAME.cc, built again when its source is newer."""
    source = HERE / f"{name}.cc"
    program = cache() / name
    if program.exists() and program.stat().st_mtime >= source.stat().st_mtime:
        return program
    wheel = installed()
    libraries = wheel / "lib64"
    have = {path.name: path for path in libraries.glob("libns3*.so*")}
    wanted = [path for name_, path in have.items()
              if any(f"-{module}." in name_ or f"-{module}-" in name_ for module in MODULES)]
    command = ["g++", "-std=c++23", "-O2", "-w", f"-I{wheel / 'include'}", source, "-o", program,
               *wanted, f"-Wl,-rpath,{libraries}", f"-Wl,-rpath,{libraries.parent}.libs",
               f"-L{libraries}", "-Wl,--allow-shlib-undefined"]
    subprocess.run(command, check=True)
    return program


def ours(example):
    """Our example of that name, optimised."""
    cargo = os.environ.get("CARGO", "cargo")
    subprocess.run([cargo, "build", "--release", "--locked", "--quiet", "-p", "slowpath-netsim",
                    "--example", example], check=True, cwd=ROOT)
    target = Path(os.environ.get("CARGO_TARGET_DIR", ROOT / "target"))
    return target / "release" / "examples" / example


def last_line(command):
    """The last line a program prints."""
    done = subprocess.run([str(part) for part in command], check=True, capture_output=True, text=True)
    return done.stdout.strip().splitlines()[-1]
