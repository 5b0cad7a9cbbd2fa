# SPDX-License-Identifier: Apache-2.0
"""The Debian package: its bytes, its contents, and its life on a machine."""

import json
import os
import re
import shutil
import subprocess
import tempfile
import unittest
from pathlib import Path

from places import Debian, ROOT, TARGET, await_that, built, need, package, run

UNIT = "slowpath-agent.service"
SERVER = "slowpath-server.service"
BINARY = TARGET / "package/release/slowpath"


def unpacked(directory):
    """The package's files in a directory."""
    run("dpkg-deb", "--extract", package(), directory)
    return Path(directory)


class Contents(unittest.TestCase):
    def test_the_same_source_gives_the_same_bytes(self):
        built(BINARY)
        made = []
        for zone, mask in (("Pacific/Apia", 0o077), ("UTC", 0o002)):
            with tempfile.TemporaryDirectory() as directory:
                environment = dict(os.environ, TZ=zone)
                path = run("sh", "-c", f'umask {mask:o} && tools/deb.sh "$@"', "sh",
                           directory, BINARY, cwd=ROOT, env=environment).split()[-1]
                made.append(Path(path).read_bytes())
        self.assertEqual(made[0], made[1])

    def test_lintian_has_nothing_to_say(self):
        if not shutil.which("lintian"):
            self.skipTest("no lintian here")
        said = run("lintian", "--allow-root", "--fail-on", "error,warning", package())
        self.assertEqual(said, "")

    def test_everything_is_in_its_place(self):
        with tempfile.TemporaryDirectory() as directory:
            root = unpacked(directory)
            for name in ("usr/bin/slowpath", "usr/lib/systemd/system/slowpath-agent.service",
                         "usr/lib/systemd/system/slowpath-server.service",
                         "etc/slowpath/agent.toml",
                         "usr/share/slowpath/prometheus/slowpath.rules.yaml",
                         "usr/share/slowpath/grafana/slowpath.json",
                         "usr/share/bash-completion/completions/slowpath",
                         "usr/share/zsh/vendor-completions/_slowpath",
                         "usr/share/fish/vendor_completions.d/slowpath.fish",
                         "usr/share/doc/slowpath/copyright",
                         "usr/share/doc/slowpath/third-party.txt.gz"):
                self.assertTrue((root / name).is_file(), name)
            content = (root / "usr/bin/slowpath").read_bytes()
            for path in (Path.home() / ".cargo", ROOT):
                self.assertNotIn(bytes(path) + b"/", content)

    def test_every_command_has_a_manual_page_without_mistakes(self):
        with tempfile.TemporaryDirectory() as directory:
            root = unpacked(directory)
            pages = sorted((root / "usr/share/man/man1").iterdir())
            names = {p.name for p in pages}
            said = run(root / "usr/bin/slowpath", "--help")
            commands = re.findall(r"^  ([a-z]+) ", said.split("Options:")[0], re.MULTILINE)
            self.assertIn("watch", commands)
            for command in set(commands) - {"help"}:
                self.assertIn(f"slowpath-{command}.1.gz", names)
            for page in pages:
                if shutil.which("mandoc"):
                    run("mandoc", "-Tlint", "-W", "error", page)
                if shutil.which("man"):
                    said = run("man", "--warnings", "-l", page, stderr_only=True)
                    self.assertEqual(said, "", page.name)

    def test_completions_are_scripts_of_their_shells(self):
        with tempfile.TemporaryDirectory() as directory:
            root = unpacked(directory)
            for shell, name in (("bash", "bash-completion/completions/slowpath"),
                                ("zsh", "zsh/vendor-completions/_slowpath"),
                                ("fish", "fish/vendor_completions.d/slowpath.fish")):
                if shutil.which(shell):
                    run(shell, "-n", root / "usr/share" / name)


class Life(unittest.TestCase):
    def test_installed_upgraded_removed_purged(self):
        need("systemd-nspawn", "mmdebstrap", "dpkg-deb")
        built(BINARY)
        with tempfile.TemporaryDirectory() as directory, Debian() as debian:
            # The next version, in which nothing else is different.
            environment = dict(os.environ, SLOWPATH_VERSION="99.0.0")
            done = subprocess.run(["tools/deb.sh", directory, BINARY], cwd=ROOT, env=environment,
                                  check=True, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL)
            debian.bring(package(), "first.deb")
            debian.bring(done.stdout.decode().split()[-1], "second.deb")
            self.installed(debian)
            self.confined(debian)
            self.serves(debian)
            self.upgraded(debian)
            self.removed(debian)

    def installed(self, debian):
        debian.inside("dpkg", "-i", "/first.deb")
        state = debian.inside("systemctl", "is-active", UNIT, check=False)
        self.assertEqual(state, "active", debian.inside("journalctl", "-u", UNIT))
        self.assertEqual(debian.inside("systemctl", "is-enabled", UNIT), "enabled")
        said = debian.inside("journalctl", "-u", UNIT, "--no-pager")
        counted = re.search(r"(\w+) tier, (\d+) of (\d+) features", said)
        self.assertIsNotNone(counted, said)
        self.assertEqual(counted[1], "bpf", said)
        # The filter of system calls and the capabilities cost no feature but the one that
        # CAP_NET_ADMIN is for.
        self.assertEqual(re.findall(r"without (\w+): ", said), ["conntrack"], said)
        self.assertEqual(int(counted[2]) + 1, int(counted[3]), said)

    def confined(self, debian):
        pid = debian.inside("systemctl", "show", UNIT, "-P", "MainPID")
        status = dict(line.split(":\t", 1) for line in
                      debian.inside("cat", f"/proc/{pid}/status").splitlines() if ":\t" in line)
        self.assertNotEqual(status["Uid"].split()[0], "0")
        self.assertEqual((status["NoNewPrivs"], status["Seccomp"]), ("1", "2"))
        wanted = re.search(r"^CapabilityBoundingSet=(.+)$",
                           (ROOT / "packaging/systemd" / UNIT).read_text(), re.MULTILINE)[1]
        for kind in ("CapBnd", "CapEff", "CapPrm", "CapAmb"):
            names = debian.inside("capsh", f"--decode={status[kind]}").split("=")[1].split(",")
            self.assertEqual(sorted(names), sorted(wanted.lower().split()), kind)
        debian.inside("systemd-analyze", "verify", "--man=no", UNIT)
        exposure = debian.inside("systemd-analyze", "security", UNIT, "--no-pager").splitlines()[-1]
        print(exposure, flush=True)
        self.assertLess(float(re.search(r": (\d+\.\d+)", exposure)[1]), 3.0, exposure)

    def serves(self, debian):
        # Without a CA it is not started, and that is no failure.
        debian.inside("systemctl", "start", SERVER)
        self.assertEqual(debian.inside("systemctl", "is-active", SERVER, check=False), "inactive")
        debian.inside("slowpath", "server", "init", "--name", "server.example.org")
        debian.inside("systemctl", "enable", "--now", SERVER)
        state = debian.inside("systemctl", "is-active", SERVER, check=False)
        self.assertEqual(state, "active", debian.inside("journalctl", "-u", SERVER))
        # Root asks the server of another user; what root made belongs to that user.
        token = await_that("the server takes commands", lambda: debian.inside(
            "slowpath", "server", "invite", "web-1", check=False))
        self.assertRegex(token, r"^sp1\.web-1\.")
        status = json.loads(debian.inside("slowpath", "server", "status", "--json"))
        self.assertIsNotNone(status["running"])
        pid = debian.inside("systemctl", "show", SERVER, "-P", "MainPID")
        said = debian.inside("cat", f"/proc/{pid}/status")
        self.assertRegex(said, r"CapBnd:\t0+\n")
        self.assertNotRegex(said, r"Uid:\t0\t")
        debian.inside("systemd-analyze", "verify", "--man=no", SERVER)
        exposure = debian.inside("systemd-analyze", "security", SERVER, "--no-pager").splitlines()[-1]
        self.assertLess(float(re.search(r": (\d+\.\d+)", exposure)[1]), 3.0, exposure)
        # What root does while it is stopped does not keep it from starting.
        debian.inside("systemctl", "stop", SERVER)
        debian.inside("slowpath", "server", "invite", "web-2")
        debian.inside("systemctl", "start", SERVER)
        self.assertEqual(debian.inside("systemctl", "is-active", SERVER), "active")

    def upgraded(self, debian):
        first = debian.inside("systemctl", "show", UNIT, "-P", "MainPID")
        debian.inside("sh", "-c", "echo 'interval = \"700ms\"' >> /etc/slowpath/agent.toml")
        debian.inside("systemctl", "reload", UNIT)
        await_that("the agent re-read its configuration", lambda: "reloaded" in debian.inside(
            "journalctl", "-u", UNIT, "--no-pager"))
        debian.inside("dpkg", "-i", "--force-confold", "/second.deb")
        self.assertEqual(debian.inside("systemctl", "is-active", UNIT), "active")
        self.assertNotEqual(debian.inside("systemctl", "show", UNIT, "-P", "MainPID"), first)
        self.assertIn("700ms", debian.inside("cat", "/etc/slowpath/agent.toml"))
        # Its log is closed, and the new agent goes on in the same place.
        self.assertRegex(debian.inside("find", "/var/lib/private/slowpath"), r"coverage-.*\.parquet")
        said = debian.inside("slowpath", "report", "--since", "1h")
        self.assertIn("coverage: looked for", said)
        self.assertNotIn("unreadable", said)
        # Disabled by the administrator, it stays disabled.
        debian.inside("systemctl", "disable", "--now", UNIT)
        debian.inside("dpkg", "-i", "--force-confold", "/second.deb")
        self.assertEqual(debian.inside("systemctl", "is-enabled", UNIT, check=False), "disabled")
        debian.inside("systemctl", "enable", "--now", UNIT)

    def removed(self, debian):
        debian.inside("dpkg", "--remove", "slowpath")
        self.assertNotEqual(debian.inside("systemctl", "is-active", UNIT, check=False), "active")
        kept = debian.inside("find", "/var/lib/private/slowpath", "/etc/slowpath", "-type", "f")
        self.assertIn(".parquet", kept)
        self.assertIn("/etc/slowpath/agent.toml", kept)
        debian.inside("dpkg", "--purge", "slowpath")
        left = debian.inside("find", "/etc", "/usr", "/var/lib", "/lib/systemd", "-name",
                             "*slowpath*", "-not", "-path", "/var/lib/dpkg/*")
        self.assertEqual(left, "")


if __name__ == "__main__":
    unittest.main()
