# SPDX-License-Identifier: Apache-2.0
import sys
import unittest
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parent.parent))
import duplicates  # noqa: E402
import licences  # noqa: E402
import tree  # noqa: E402


class Licences(unittest.TestCase):
    def test_expressions(self):
        for expression, expected in [
            ("MIT", True),
            ("GPL-3.0-only", False),
            ("MIT OR GPL-3.0-only", True),
            ("MIT AND GPL-3.0-only", False),
            ("MIT/Apache-2.0", True),
            ("LGPL-2.1-only OR BSD-2-Clause", True),
            # AND binds tighter: only GPL, or MIT.
            ("GPL-3.0-only AND ISC OR MIT", True),
            ("(MIT OR ISC) AND GPL-3.0-only", False),
            ("(MIT OR Apache-2.0) AND Unicode-3.0", True),
            ("Apache-2.0 WITH LLVM-exception OR GPL-2.0-only", True),
            ("MIT WITH LLVM-exception", False),
        ]:
            self.assertEqual(licences.satisfied(expression), expected, expression)

    def test_nonsense_is_an_error(self):
        for expression in ["", "MIT OR", "(MIT", "MIT Apache-2.0", "OR MIT", "MIT)"]:
            with self.assertRaises(licences.ParseError, msg=expression):
                licences.satisfied(expression)

    def test_compatible_series(self):
        for version, expected in [
            ("1.2.3", "1"), ("0.4.9", "0.4"), ("0.0.7", "0.0.7"),
            ("2.0.0-rc.1", "2"), ("1.5.0+libbpf-1.5", "1"),
        ]:
            self.assertEqual(licences.series(version), expected)

    def test_complaints(self):
        def package(name, version="1.0.0", licence="MIT", dependencies=()):
            return {"id": f"{name} {version}", "name": name, "version": version,
                    "license": licence, "dependencies": list(dependencies)}

        ours = package("ours", dependencies=[
            {"name": "free", "req": "*"},
            {"name": "sibling", "req": "*", "path": "sibling"},
            {"name": "anyhow", "req": "^1"},
        ])
        complaints = licences.check({
            "workspace_members": [ours["id"]],
            "packages": [
                ours, package("anyhow"), package("openssl-sys"), package("secret", licence=None),
                package("syn", "1.0.9"), package("syn", "2.0.1"),
                package("small", "1.0.0"), package("small", "2.0.0"),
            ],
        })
        self.assertEqual(sorted(c.split(":")[0] for c in complaints), [
            "openssl-sys 1.0.0", "ours", "ours", "secret 1.0.0", "syn"])


class Duplicates(unittest.TestCase):
    def found(self, **texts):
        return duplicates.duplicates(
            {name: duplicates.code_lines(text) for name, text in texts.items()})

    def block(self, count, word="step"):
        return "\n".join(f"    {word}_{n}(x); // {n}\n" for n in range(count))

    def test_a_long_run_is_found_once_with_its_whole_length(self):
        a = "fn a() {\n" + self.block(15) + "}\n"
        b = "fn b() {\n\n" + self.block(15).replace("    ", "\t") + "}\n"
        (((_, a_from, _), (_, b_from, _)),) = self.found(a=a, b=b)
        self.assertEqual((a_from, b_from), (2, 3))

    def test_a_short_run_is_not(self):
        self.assertEqual(self.found(a=self.block(11), b=self.block(11)), [])

    def test_within_one_file(self):
        text = self.block(12) + "\nother();\n" + self.block(12)
        self.assertEqual(len(self.found(a=text)), 1)

    def test_tables_and_imports_are_not_code(self):
        table = "\n".join(f'    ({n}, 0x{n:X}, "text {n}"),' for n in range(40))
        uses = "\n".join(f"use a::b{n};" for n in range(40))
        self.assertEqual(self.found(a=table, b=table), [])
        self.assertEqual(self.found(a=uses, b=uses), [])


class Tree(unittest.TestCase):
    def test_licence_lines(self):
        apache = "// SPDX-License-Identifier: Apache-2.0\n"
        gpl = "/* SPDX-License-Identifier: GPL-2.0-only */\n"
        for name, text, fine in [
            ("a.rs", apache, True),
            ("a.rs", "//! Words\n", False),
            ("a.rs", gpl, False),
            ("p/mod.bpf.c", gpl, True),
            ("p/mod.bpf.c", "// SPDX-License-Identifier: GPL-2.0 OR BSD-3-Clause\n", True),
            ("p/mod.bpf.c", apache, False),
            ("script", "#!/bin/sh\n", False),
            ("script", "#!/bin/sh\n# SPDX-License-Identifier: Apache-2.0\n", True),
            ("README.md", "# words\n", True),
        ]:
            complaint = tree.licence_complaint(name, text)
            self.assertEqual(complaint is None, fine, (name, text, complaint))

    def test_names_that_say_nothing(self):
        for name, fine in [
            ("crates/x/src/util.rs", False), ("src/common/mod.rs", False),
            ("src/commons_gate.rs", True), ("src/helpers.test.ts", False),
        ]:
            self.assertEqual(tree.name_complaint(name) is None, fine, name)

    def test_machine_paths(self):
        for text, hit in [
            ("cd /ro" "ot/x", True), ("/wo" "rk/main", True), ("network/", False),
            ("target/root/x", False), ("/proc/1/root", False),
        ]:
            self.assertEqual(bool(tree.MACHINE_PATHS.search(text)), hit, text)


if __name__ == "__main__":
    unittest.main()
