# SPDX-License-Identifier: Apache-2.0
"""The static command runs where nothing is installed."""

import json
import shutil
import unittest
from pathlib import Path

from places import Bare, STATIC, built, features, run, features_on_host


class Static(unittest.TestCase):
    def setUp(self):
        built(STATIC)

    def test_it_asks_for_no_other_file(self):
        headers = run("readelf", "--wide", "--program-headers", "--dynamic", STATIC)
        self.assertNotIn("INTERP", headers)
        self.assertNotIn("NEEDED", headers)

    def test_no_path_of_this_machine_is_in_it(self):
        content = STATIC.read_bytes()
        root = Path(__file__).resolve().parent.parent.parent
        for path in (Path.home() / ".cargo", root):
            self.assertNotIn(bytes(path) + b"/", content)

    def test_the_licences_of_what_is_linked_in_are_beside_it(self):
        text = (STATIC.parent / "licences/third-party.txt").read_text()
        for part in ("libelf (elfutils): LGPL-3.0-or-later", "GNU LESSER GENERAL PUBLIC LICENSE",
                     "zlib", "libbpf", "musl", "parquet "):
            self.assertIn(part, text)
        self.assertTrue((STATIC.parent / "licences/GPL-2.0-only.txt").exists())

    def test_bpf_loads_in_a_root_with_nothing_else(self):
        on_host = features_on_host()
        with Bare() as bare:
            shutil.copy(STATIC, bare.path / "slowpath")
            output, status = bare.run("/slowpath", "overhead", "--for", "500ms", "--json")
            self.assertEqual(status, 0, output)
            self.assertEqual(features(json.loads(output)["capabilities"]), on_host)
            if outside[0] != "bpf":
                self.skipTest("no BPF tier on this machine")

    def test_names_are_found_without_the_c_librarys_modules(self):
        with Bare("etc") as bare:
            shutil.copy(STATIC, bare.path / "slowpath")
            (bare.path / "etc/hosts").write_text("192.0.2.7 database.test\n")
            output, _ = bare.run("/slowpath", "why", "database.test:5432", "--for", "200ms")
            self.assertNotIn("neither an address nor the name", output)
            output, _ = bare.run("/slowpath", "why", "other.test:5432", "--for", "200ms")
            self.assertIn("neither an address nor the name", output)


if __name__ == "__main__":
    unittest.main()
