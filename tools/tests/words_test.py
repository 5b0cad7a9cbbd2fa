# SPDX-License-Identifier: Apache-2.0
import sys
import unittest
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
sys.path.insert(0, str(ROOT))
import words  # noqa: E402

TEXT = """
<!-- say-not: begin -->
| say not | say |
|---|---|
| `told`, `untold` | recorded |
| `apart` | separate |
<!-- say-not: end -->
<!-- names-not: begin -->
| name | instead |
|---|---|
| `What` | the kind |
| `Place` | position |
| `Path` | types only: another |
<!-- names-not: end -->
<!-- exceptions: begin -->
| stays | where | reason |
|---|---|---|
| `told_by`, `"apart"` | | JSON |
| `they told` | `crates/a/*` | a phrase |
<!-- exceptions: end -->
"""


class Words(unittest.TestCase):
    def setUp(self):
        self.glossary = words.Glossary(TEXT)

    def found(self, line, path="crates/b/src/x.rs"):
        return [word for _, word, _ in self.glossary.findings(path, line)]

    def test_whole_words_in_prose_and_identifiers(self):
        for line, expected in [
            ("it was Told, and set APART.", ["told", "apart"]),
            ("let told_run = ToldRun::new();", ["told", "told"]),
            ("lab_told(LAB_TOLD_RUN)", ["told", "told"]),
            ("seenTold2", ["told"]),
            ("apartment, untoldness, stolden", []),
            ("untold", ["untold"]),
        ]:
            self.assertEqual(self.found(line), expected, line)

    def test_exceptions(self):
        for line, path, expected in [
            ('json!({ "told_by": v.told })', "x.rs", ["told"]),
            ("told_by_them", "x.rs", ["told"]),
            ('object["apart"]', "x.rs", []),
            ("apart", "x.rs", ["apart"]),
            ("they told", "crates/a/src/x.rs", []),
            ("they told", "crates/b/src/x.rs", ["told"]),
        ]:
            self.assertEqual(self.found(line, path), expected, line)

    def test_names_of_types_and_modules_count_whole(self):
        for line, expected in [
            ("pub struct What {", ["name What"]),
            ("    pub(crate) enum Place<'a> {", ["name Place"]),
            ("struct DropPlace;", []),
            ("pub(super) mod place;", ["name place"]),
            ("type What = u32;", ["name What"]),
            ("struct Path;", ["name Path"]),
            ("mod path;", []),
            ("    type What = u32;", []),
            ("// struct What", []),
            ("let place = What::new();", []),
        ]:
            self.assertEqual(self.found(line), expected, line)
        self.assertEqual(self.found("struct What", "x.c"), [])

    def test_names_of_files_count(self):
        self.assertEqual(self.found("", "crates/b/src/told.rs"), ["told"])

    def test_groups(self):
        self.assertEqual(words.group("crates/slowpath/src/x.rs"), "crates/slowpath")
        self.assertEqual(words.group("docs/a.md"), "docs")
        self.assertEqual(words.group("README.md"), "README.md")

    def test_the_glossary_can_be_read(self):
        glossary = words.Glossary((ROOT.parent / words.GLOSSARY).read_text())
        self.assertIn("seen", glossary.words)
        self.assertIn("what", glossary.names)
        self.assertEqual(glossary.words_in("tcpi_reord_seen", glossary.exceptions("a.rs")), [])


if __name__ == "__main__":
    unittest.main()
