#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Finds words of the glossary's "say not" column in tracked files.

    tools/words.py [PATH ...]           list each; status 1 if there is any
    tools/words.py --count [PATH ...]   count them by crate or folder; status 0

A word counts in any case, in prose and inside identifiers (`told_by` and `ToldBy` both
hold `told`). Types and modules also must not have the names of the second table; there
the whole name counts. docs/glossary.md holds all tables, the exceptions too.
"""

import argparse
import collections
import fnmatch
import re
import subprocess
import sys
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
GLOSSARY = "docs/glossary.md"
# Other people's texts, data, and what must name the words in order to test the check.
SKIPPED = ("LICENSE", "LICENSES/*", "*.lock", GLOSSARY, "tools/words.py",
           "tools/tests/words_test.py", "*/released/*", "*.svg", "*.long.txt")
IDENTIFIER = re.compile(r"[A-Za-z0-9_]+")
PART = re.compile(r"[A-Z]+(?![a-z])|[A-Z]?[a-z]+")
# An indented `type` is an associated one, whose name its trait chooses.
TYPE = re.compile(r"^\s*(?:pub(?:\([^)]*\))? )?(?:struct|enum|trait|union) ([A-Z]\w*)"
                  r"|^(?:pub(?:\([^)]*\))? )?type ([A-Z]\w*)")
MODULE = re.compile(r"^\s*(?:pub(?:\([^)]*\))? )?mod ([a-z]\w*)")
BACKTICKS = re.compile(r"`([^`]+)`")


def table(text, name):
    """The rows of a marked table, without its head, each a list of cells."""
    body = text.split(f"<!-- {name}: begin -->")[1].split(f"<!-- {name}: end -->")[0]
    rows = [line.strip().strip("|").split("|") for line in body.splitlines() if line.startswith("|")]
    return [[cell.strip() for cell in row] for row in rows[2:]]


class Glossary:
    """The banned words, the names that types and modules do not have, the exceptions."""

    def __init__(self, text):
        self.words = {word: row[1] for row in table(text, "say-not")
                      for word in BACKTICKS.findall(row[0])}
        self.names = {name.lower(): row[1] for row in table(text, "names-not")
                      for name in BACKTICKS.findall(row[0])}
        self.stays = [(name, row[1].strip("`") or "*") for row in table(text, "exceptions")
                      for name in BACKTICKS.findall(row[0])]
        self.any_word = re.compile("|".join(map(re.escape, self.words)), re.IGNORECASE)

    def exceptions(self, path):
        """Identifiers, and a pattern of quoted or spaced phrases, that stay in this file."""
        here = [name for name, where in self.stays if fnmatch.fnmatch(path, where)]
        phrases = [name for name in here if not IDENTIFIER.fullmatch(name)]
        pattern = re.compile("|".join(map(re.escape, phrases))) if phrases else None
        return {name.lower() for name in here if IDENTIFIER.fullmatch(name)}, pattern

    def words_in(self, line, exceptions=(frozenset(), None)):
        """The banned words of a line, in order."""
        if not self.any_word.search(line):
            return []
        identifiers, phrases = exceptions
        if phrases:
            line = phrases.sub("", line)
        return [part.lower() for token in IDENTIFIER.findall(line)
                if token.lower() not in identifiers
                for part in PART.findall(token) if part.lower() in self.words]

    def names_in(self, line):
        """The types and modules of a line of Rust whose name is banned."""
        match = TYPE.match(line) or MODULE.match(line)
        if not match:
            return []
        name = match[1] or match[2]
        instead = self.names.get(name.lower().replace("_", ""), "")
        banned = instead and (name[0].isupper() or not instead.startswith("types only"))
        return [name] if banned else []

    def findings(self, path, text):
        """(line, what is wrong, what to say) for each banned word and name of a file."""
        exceptions = self.exceptions(path)
        for word in self.words_in(path, exceptions):
            yield 0, word, self.words[word]
        for number, line in enumerate(text.splitlines(), 1):
            for word in self.words_in(line, exceptions):
                yield number, word, self.words[word]
            if path.endswith(".rs"):
                for name in self.names_in(line):
                    yield number, f"name {name}", self.names[name.lower().replace("_", "")]


def group(path):
    """The crate or folder that a file is counted under."""
    parts = path.split("/")
    return "/".join(parts[:2]) if len(parts) > 2 else parts[0]


def tracked(paths):
    listed = subprocess.run(["git", "ls-files", "-co", "--exclude-standard", "--", *paths],
                            cwd=ROOT, check=True, capture_output=True, text=True).stdout
    for name in sorted(set(listed.splitlines())):
        if any(fnmatch.fnmatch(name, pattern) for pattern in SKIPPED):
            continue
        path = ROOT / name
        if path.is_file() and b"\0" not in (content := path.read_bytes())[:8192]:
            yield name, content.decode(errors="replace")


def print_counts(found):
    for name, words in sorted(found.items(), key=lambda item: -item[1].total()):
        often = ", ".join(f"{word} {count}" for word, count in words.most_common(8))
        print(f"{words.total():6}  {name}: {often}")
    print(f"{sum(words.total() for words in found.values()):6}  in all")


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--count", action="store_true")
    parser.add_argument("paths", nargs="*", metavar="PATH")
    given = parser.parse_args()
    glossary = Glossary((ROOT / GLOSSARY).read_text())
    found = collections.defaultdict(collections.Counter)
    for path, text in tracked(given.paths):
        for number, word, instead in glossary.findings(path, text):
            found[group(path)][word] += 1
            if not given.count:
                print(f"{path}:{number}: {word}: say {instead}")
    if given.count:
        print_counts(found)
        return 0
    total = sum(words.total() for words in found.values())
    print(f"words: {total} found, 0 allowed")
    return 1 if total else 0


if __name__ == "__main__":
    sys.exit(main())
