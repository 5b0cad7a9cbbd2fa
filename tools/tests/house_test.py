# SPDX-License-Identifier: Apache-2.0
import sys
import tempfile
import unittest
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parent.parent))
import house  # noqa: E402


class Items(unittest.TestCase):
    def test_comments_and_strings_are_not_code(self):
        code = house.code_only('a // }\nb "}\\"" c /* {\n */ \'{\' r#"}"# \'static')
        self.assertEqual(code.split(), ["a", "b", "c", "'static"])
        self.assertEqual(code.count("\n"), 2)

    def test_parameters_leave_self_and_attributes_out(self):
        rows = list(house.functions(house.code_only(
            "fn a(&mut self, x: HashMap<A, B>, #[cfg(y)] f: fn(u8, u8) -> Vec<(A, B)>) {}\n"
            "trait T { fn b(self: Box<Self>, c: [u8; 4]) -> [u8; 2]; }\n"
            "fn g<F: Fn(u8) -> u8>(f: F,) -> [u8; 2] {\n\n}\n")))
        self.assertEqual([(name, line, lines, parameters) for name, line, lines, parameters in rows],
                         [("a", 1, 1, 2), ("b", 2, 0, 1), ("g", 3, 3, 1)])

    def test_fields(self):
        rows = list(house.structs(house.code_only(
            "struct A<T> where T: X { #[serde(a, b)] a: B<C, D>, b: (u8, u8) }\n"
            "struct B(u8, u8);\nstruct C;\n")))
        self.assertEqual(rows, [("A", 1, 2)])


class Imports(unittest.TestCase):
    def crate(self, files):
        folder = Path(self.enterContext(tempfile.TemporaryDirectory()))
        for name, text in files.items():
            path = folder / "src" / name
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_text(text)
        house.ROOT = folder
        return house.Crate(folder)

    def setUp(self):
        root = house.ROOT
        self.addCleanup(lambda: setattr(house, "ROOT", root))

    def test_a_cycle_through_an_exported_name_is_found(self):
        crate = self.crate({
            "lib.rs": "mod a;\nmod b;\npub use a::Thing;\n",
            "a.rs": "use crate::b::Other;\npub struct Thing;\n",
            "b/mod.rs": "mod c;\npub use c::Other;\n",
            "b/c.rs": "use crate::{Thing};\npub struct Other;\n",
        })
        self.assertEqual(list(crate.cycles()), [["src/a.rs", "src/b/c.rs"]])

    def test_a_cycle_within_one_module_is_none(self):
        crate = self.crate({
            "lib.rs": "mod a;\n",
            "a/mod.rs": "mod b;\nuse b::X;\npub struct Y;\n",
            "a/b.rs": "use super::Y;\npub struct X;\n",
        })
        self.assertEqual(list(crate.cycles()), [])

    def test_tests_and_imports_of_other_crates_do_not_count(self):
        crate = self.crate({
            "lib.rs": "mod a;\nmod b;\n",
            "a.rs": "use std::b::C;\nmod tests { use crate::b::D; }\n",
            "b.rs": "use crate::a::E;\npub struct D;\n",
            "a/tests.rs": "use crate::b::D;\n",
        })
        self.assertEqual(
            {path.name: [target.name for target in targets] for path, targets in crate.edges().items()},
            {"b.rs": ["a.rs"]})


if __name__ == "__main__":
    unittest.main()
