# SPDX-License-Identifier: Apache-2.0
"""Roots to install into and to run in: a Debian one that boots, and an almost empty one."""

import ctypes
import json
import os
import shutil
import signal
import subprocess
import tempfile
import time
import unittest
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent.parent
TARGET = Path(os.environ.get("SLOWPATH_TARGET", ROOT / "target"))
IMAGE = TARGET / "static/image"
STATIC = IMAGE / "slowpath"
# What the package needs, and what the tests look with.
PACKAGES = "systemd,systemd-sysv,libelf1,zlib1g,util-linux,libcap2-bin,iproute2"
PATIENCE_S = 60


def run(*command, stderr_only=False, **options):
    """Runs a command; its output is in the error if it fails."""
    done = subprocess.run(
        command, stdout=subprocess.DEVNULL if stderr_only else subprocess.PIPE,
        stderr=subprocess.PIPE if stderr_only else subprocess.STDOUT, text=True, **options)
    if done.returncode != 0:
        said = done.stderr if stderr_only else done.stdout
        raise AssertionError(f"{' '.join(map(str, command))}: {done.returncode}\n{said}")
    return done.stderr if stderr_only else done.stdout


def need(*programs):
    """Skips the test where a program is missing, or this is not root."""
    if os.geteuid() != 0:
        raise unittest.SkipTest("not root")
    for program in programs:
        if not shutil.which(program):
            raise unittest.SkipTest(f"no {program} here")


def built(path):
    """Skips the test where make has not built it."""
    if not path.exists():
        raise unittest.SkipTest(f"{path.name} is not built: make check-install")
    return path


def package():
    """The Debian package."""
    found = sorted(TARGET.glob("slowpath_*.deb"), key=lambda p: p.stat().st_mtime)
    if not found:
        raise unittest.SkipTest("no package is built: make deb")
    return found[-1]


def await_that(what, holds):
    """Waits until `holds()` gives something true."""
    end = time.monotonic() + PATIENCE_S
    while time.monotonic() < end:
        if result := holds():
            return result
        time.sleep(0.1)
    raise AssertionError(f"not within {PATIENCE_S} s: {what}")


def features(capabilities):
    """The tier and the names of the features in use, as the command reports them in JSON."""
    names = {f["name"] for f in capabilities["features"] if f["active"]}
    return capabilities["tier"], names


def features_on_host():
    """What the static command has on this machine itself."""
    output = run(built(STATIC), "overhead", "--for", "500ms", "--json")
    return features(json.loads(output)["capabilities"])


# linux/sched.h, linux/mount.h, linux/prctl.h, linux/capability.h.
CLONE_NEWNS, CLONE_NEWNET = 0x20000, 0x40000000
MS_RDONLY, MS_REMOUNT, MS_BIND, MS_REC, MS_PRIVATE = 1, 32, 4096, 16384, 1 << 18
PR_CAPBSET_DROP, PR_SET_NO_NEW_PRIVS = 24, 38
CAPABILITIES = {"CHOWN": 0, "DAC_READ_SEARCH": 2, "NET_ADMIN": 12, "SYS_PTRACE": 19,
                "SYS_ADMIN": 21, "PERFMON": 38, "BPF": 39}
LAST_CAPABILITY = 40
LIBC = ctypes.CDLL(None, use_errno=True)


def call(name, *arguments):
    """A function of the C library that gives 0, or an error."""
    if getattr(LIBC, name)(*arguments) != 0:
        raise OSError(ctypes.get_errno(), f"{name}{arguments}")


class Bare:
    """A root with /proc, /sys and what the test puts there, and nothing else."""

    def __init__(self, *directories):
        need()
        self.directory = tempfile.TemporaryDirectory(prefix="slowpath-bare-")
        self.path = Path(self.directory.name)
        for name in ("proc", "sys", *directories):
            (self.path / name).mkdir(parents=True, exist_ok=True)

    def __enter__(self):
        return self

    def __exit__(self, *_):
        self.directory.cleanup()

    def start(self, *words, capabilities=None, own_network=False, writable=None):
        """Starts a command in this root, as root with these capabilities or all. With
        `writable`, everything but that directory is read-only."""
        root = os.fsencode(self.path)

        def enter():
            call("unshare", CLONE_NEWNS | (CLONE_NEWNET if own_network else 0))
            call("mount", None, b"/", None, MS_REC | MS_PRIVATE, None)
            call("mount", root, root, None, MS_BIND, None)
            for tree in (b"/proc", b"/sys"):
                call("mount", tree, root + tree, None, MS_BIND | MS_REC, None)
            if writable:
                kept = os.fsencode(self.path / writable)
                call("mount", kept, kept, None, MS_BIND, None)
                call("mount", None, root, None, MS_REMOUNT | MS_BIND | MS_RDONLY, None)
            os.chroot(root)
            os.chdir("/")
            if capabilities is not None:
                kept = {CAPABILITIES[name] for name in capabilities}
                for number in set(range(LAST_CAPABILITY + 1)) - kept:
                    call("prctl", PR_CAPBSET_DROP, number, 0, 0, 0)
                call("prctl", PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0)

        return subprocess.Popen(
            words, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True,
            env={"PATH": "/usr/bin"}, preexec_fn=enter)

    def run(self, *words, **options):
        """Runs a command to its end; its output and exit status."""
        with self.start(*words, **options) as child:
            output, _ = child.communicate(timeout=PATIENCE_S)
            return output, child.returncode


def debian_archive():
    """A small Debian with systemd, as a tar file in the user's cache."""
    need("mmdebstrap")
    cache = Path(os.environ.get("XDG_CACHE_HOME", Path.home() / ".cache")) / "slowpath"
    suite = run("sh", "-c", ". /etc/os-release && echo $VERSION_CODENAME").strip()
    archive = cache / f"debian-{suite}-{PACKAGES.replace(',', '+')}.tar"
    if not archive.exists():
        sources = [p for p in ("/etc/apt/sources.list.d/debian.sources", "/etc/apt/sources.list")
                   if os.path.exists(p)]
        if not sources:
            raise unittest.SkipTest("apt has no sources here")
        cache.mkdir(parents=True, exist_ok=True)
        part = archive.with_suffix(".part.tar")
        print(f"making {archive}", flush=True)
        run("mmdebstrap", "--variant=minbase", f"--include={PACKAGES}", "--mode=root",
            "--skip=check/qemu", suite, part, sources[0])
        part.rename(archive)
    return archive


class Debian:
    """A throwaway Debian that runs systemd as its first process."""

    def __init__(self):
        need("systemd-nspawn", "nsenter", "tar")
        archive = debian_archive()
        self.directory = tempfile.TemporaryDirectory(prefix="slowpath-debian-")
        self.path = Path(self.directory.name)
        run("tar", "-C", self.path, "-xf", archive)
        self.container = None
        self.leader = None

    def __enter__(self):
        self.boot()
        return self

    def boot(self):
        """Starts it; the test is skipped where that is not permitted."""
        # BPF as a machine of its own would have it.
        self.container = subprocess.Popen(
            ["systemd-nspawn", "--register=no", "--keep-unit", "-D", self.path,
             f"--machine=slowpath-{os.getpid()}", "--capability=all",
             "--system-call-filter=bpf perf_event_open", "--private-network", "--boot",
             "--console=pipe"],
            stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=subprocess.STDOUT)

        def leader():
            if self.container.poll() is not None:
                said = self.container.stdout.read().decode(errors="replace")
                raise unittest.SkipTest(f"systemd-nspawn does not run here: {said.strip()[-300:]}")
            children = Path(f"/proc/{self.container.pid}/task/{self.container.pid}/children")
            return children.read_text().split()

        [self.leader] = await_that("systemd-nspawn has its first process", leader)
        await_that("systemd is up", lambda: self.inside(
            "systemctl", "is-system-running", check=False) in ("running", "degraded"))

    def inside(self, *words, check=True):
        """Runs a command inside; its output."""
        done = subprocess.run(
            ["nsenter", "-t", self.leader, "-m", "-u", "-i", "-n", "-p", "-C", "-r", "-w",
             "env", "-i", "PATH=/usr/sbin:/usr/bin:/sbin:/bin", "HOME=/root",
             "DEBIAN_FRONTEND=noninteractive", *map(str, words)],
            stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True)
        if check and done.returncode != 0:
            raise AssertionError(f"{' '.join(map(str, words))}: {done.returncode}\n{done.stdout}")
        return done.stdout.strip()

    def bring(self, path, name):
        """Copies a file into its root directory."""
        shutil.copy(path, self.path / name)

    def __exit__(self, *_):
        if self.container:
            self.container.send_signal(signal.SIGTERM)
            try:
                self.container.wait(timeout=PATIENCE_S)
            except subprocess.TimeoutExpired:
                self.container.kill()
                self.container.wait()
            self.container.stdout.close()
        self.directory.cleanup()
