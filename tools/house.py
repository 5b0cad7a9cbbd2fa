#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Measures the structure of the workspace and compares it with its limits.

    tools/house.sh            check; print every figure; exit 1 when a limit is exceeded
    tools/house.sh --write    check, and write the figures into ARCHITECTURE.md

Measured: dependencies from a lower crate to a higher one (the order is in
tools/house.toml); import cycles between files of different modules; functions longer than
80 lines; structs with more than 20 fields; functions with more than 6 parameters besides
`self`; dependencies that a crate must not have; lines of each crate. tools/house.toml lists
the exceptions, each with its reason, and at most 10 of a kind.
"""

import json
import re
import subprocess
import sys
import tomllib
from collections import defaultdict
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
MAX_LINES, MAX_FIELDS, MAX_PARAMETERS, MAX_EXCEPTIONS = 80, 20, 6, 10
BEGIN, END = "<!-- house: begin -->", "<!-- house: end -->"

# Comments, strings and character literals: what must not be taken for code.
OPAQUE = re.compile(
    r'//[^\n]*|/\*.*?\*/'
    r'|\b[bc]?r(?P<hashes>#*)".*?"(?P=hashes)'
    r'|\b[bc]?"(?:\\.|[^"\\])*"|"(?:\\.|[^"\\])*"'
    r"|b?'(?:\\(?:x[0-9a-fA-F]{2}|u\{[0-9a-fA-F_]+\}|.)|[^'\\\n])'",
    re.DOTALL)
FUNCTION = re.compile(r"\bfn\s+(\w+)")
STRUCT = re.compile(r"\bstruct\s+(\w+)")
USE = re.compile(r"^[ \t]*(pub(?:\([^)]*\))?[ \t]+)?use\s+([^;]+);", re.MULTILINE)
MODULE = re.compile(r"^[ \t]*(?:pub(?:\([^)]*\))?[ \t]+)?mod\s+(\w+)\s*;", re.MULTILINE)
CLOSING = {"(": ")", "[": "]", "{": "}", "<": ">"}


def code_only(text):
    """The text with everything opaque blanked; offsets and line numbers stay."""
    return OPAQUE.sub(lambda match: re.sub(r"[^\n]", " ", match[0]), text)


def matching(code, start):
    """The offset after the bracket that closes the one at `start`."""
    opening, closing = code[start], CLOSING[code[start]]
    depth = 0
    for match in re.compile(f"[{re.escape(opening)}{re.escape(closing)}]").finditer(code, start):
        if opening == "<" and code[match.start() - 1] in "-=" and match[0] == ">":
            continue  # an arrow
        depth += 1 if match[0] == opening else -1
        if depth == 0:
            return match.end()
    return len(code)


def items(inside):
    """How many items separated by commas stand at the top level of `inside`."""
    depth, count, filled = 0, 0, False
    for at, character in enumerate(inside):
        if character in "([{<":
            depth += 1
        elif character in ")]}" or character == ">" and inside[at - 1] not in "-=":
            depth -= 1
        elif character == "," and depth == 0:
            count, filled = count + filled, False
            continue
        filled = filled or not character.isspace()
    return count + filled


def without_attributes(code):
    """The code without #[...]: an attribute is neither a field nor a parameter."""
    parts, at = [], 0
    for match in re.finditer(r"#!?\[", code):
        if match.start() >= at:
            parts.append(code[at:match.start()])
            at = matching(code, match.end() - 1)
    return "".join(parts) + code[at:]


def functions(code):
    """Each function with a body: name, line, lines, parameters besides self."""
    for match in FUNCTION.finditer(code):
        at = match.end()
        if code[at:at + 1] == "<":
            at = matching(code, at)
        if code[at:at + 1] != "(":
            continue
        end = matching(code, at)
        inside = without_attributes(code[at + 1:end - 1])
        parameters = items(inside)
        if re.match(r"\s*(?:&\s*(?:'\w+\s+)?)?(?:mut\s+)?self\b", inside):
            parameters -= 1
        body = re.compile(r"[;{]").search(code, end)
        # An array type in the result has a semicolon inside brackets.
        while body and body[0] == ";" and code.count("[", end, body.start()) > code.count(
                "]", end, body.start()):
            body = re.compile(r"[;{]").search(code, body.end())
        line = code.count("\n", 0, match.start()) + 1
        lines = 0
        if body and body[0] == "{":
            lines = code.count("\n", match.start(), matching(code, body.start())) + 1
        yield match[1], line, lines, parameters


def structs(code):
    """Each struct with named fields: name, line, fields."""
    for match in STRUCT.finditer(code):
        at = match.end()
        if code[at:at + 1] == "<":
            at = matching(code, at)
        opening = re.compile(r"[;({]").search(code, at)
        if opening and opening[0] == "{":
            inside = code[opening.end():matching(code, opening.start()) - 1]
            line = code.count("\n", 0, match.start()) + 1
            yield match[1], line, items(without_attributes(inside))


class Crate:
    """The files of one crate's src folder and what they import from one another."""

    def __init__(self, folder):
        self.source = folder / "src"
        self.codes = {path: code_only(path.read_text()) for path in sorted(
            self.source.rglob("*.rs")) if "bin" not in path.relative_to(self.source).parts[:1]}
        self.by_path = {self.module_path(path): path for path in self.codes}
        self.uses = {path: list(self.imports(path)) for path in self.codes}

    def module_path(self, path):
        parts = list(path.relative_to(self.source).with_suffix("").parts)
        if parts[-1] == "mod" or parts in (["lib"], ["main"]):
            parts.pop()
        return tuple(parts)

    def imports(self, path):
        """Each import within the crate as (path, exported name or None)."""
        module = self.module_path(path)
        code = self.codes[path]
        inline = [(m.end(), matching(code, m.end() - 1)) for m in re.finditer(
            r"\bmod\s+\w+\s*\{", code)]
        tests = [(m.end(), matching(code, m.end() - 1)) for m in re.finditer(
            r"\bmod\s+tests\s*\{", code)]
        children = set(MODULE.findall(code))
        for match in USE.finditer(code):
            if any(begin <= match.start() < end for begin, end in tests):
                continue
            depth = sum(begin <= match.start() < end for begin, end in inline)
            for parts, name in flatten(re.sub(r"\s+", " ", match[2]).strip()):
                full = absolute(parts, module, depth, children)
                if full is not None:
                    yield full, name if match[1] else None

    def resolve(self, parts, depth=0):
        """The file that defines the item at this path; re-exports are followed."""
        if depth > 8:
            return None
        for length in range(len(parts), -1, -1):
            path = self.by_path.get(parts[:length])
            if path is None:
                continue
            if length < len(parts):
                for target, name in self.uses[path]:
                    if name == parts[length] or name == "*" and len(target) < len(parts) + 8:
                        rest = parts[length + 1:] if name != "*" else parts[length:]
                        if name != "*" or self.defines(target, parts[length]):
                            return self.resolve(target + rest, depth + 1)
            return path
        return None

    def defines(self, module, name):
        path = self.by_path.get(module)
        return path is not None and re.search(
            rf"\b(?:fn|struct|enum|trait|type|const|static|union|mod)\s+{re.escape(name)}\b",
            self.codes[path]) is not None

    def edges(self):
        """Which file imports from which, tests and the root left out."""
        graph = defaultdict(set)
        for path in self.codes:
            if is_test(path) or not self.module_path(path):
                continue
            for target, _ in self.uses[path]:
                found = self.resolve(target)
                if found and found != path and self.module_path(found) and not is_test(found):
                    graph[path].add(found)
        return graph

    def cycles(self):
        """Groups of files of different top-level modules that import one another."""
        for group in components(self.edges()):
            if len({self.module_path(path)[0] for path in group}) > 1:
                yield sorted(str(path.relative_to(ROOT)) for path in group)


def is_test(path):
    return path.stem == "tests" or path.stem.endswith("_tests") or "tests" in path.parts


def flatten(tree):
    """The paths of one use tree, each with the name under which it is known."""
    opening = tree.find("{")
    if opening < 0:
        path, _, renamed = tree.partition(" as ")
        parts = tuple(part.strip() for part in path.split("::") if part.strip())
        if parts:
            name = renamed.strip() or parts[-1]
            yield (parts[:-1], "*") if name == "*" else (parts, name)
        return
    before = tuple(part.strip() for part in tree[:opening].split("::") if part.strip())
    inside = tree[opening + 1:matching(tree, opening) - 1]
    depth, begin = 0, 0
    for at, character in enumerate(inside + ","):
        depth += {"{": 1, "}": -1}.get(character, 0)
        if character == "," and depth == 0:
            for parts, name in flatten(inside[begin:at].strip()):
                if parts == ("self",):
                    yield before, before[-1] if before else "self"
                else:
                    yield before + parts, name
            begin = at + 1


def absolute(parts, module, inline, children):
    """A use path as one from the crate's root; None where it leads out of the crate."""
    parts = list(parts)
    if not parts:
        return None
    if parts[0] == "crate":
        return tuple(parts[1:])
    if parts[0] in ("self", "super"):
        base = list(module) + ["(inline)"] * inline
        while parts and parts[0] in ("self", "super"):
            if parts.pop(0) == "super" and base:
                base.pop()
        return tuple(part for part in base if part != "(inline)") + tuple(parts)
    if parts[0] in children:
        return module + tuple(parts)
    return None


def components(graph):
    """Strongly connected components of more than one node (Tarjan), in a fixed order."""
    index, low, stack, found = {}, {}, [], []
    for root in sorted(graph):
        if root in index:
            continue
        work = [(root, iter(sorted(graph[root])))]
        index[root] = low[root] = len(index)
        stack.append(root)
        while work:
            node, targets = work[-1]
            for target in targets:
                if target not in index:
                    index[target] = low[target] = len(index)
                    stack.append(target)
                    work.append((target, iter(sorted(graph.get(target, ())))))
                    break
                if target in stack:
                    low[node] = min(low[node], index[target])
            else:
                work.pop()
                if work:
                    low[work[-1][0]] = min(low[work[-1][0]], low[node])
                if low[node] == index[node]:
                    at = stack.index(node)
                    if len(stack) - at > 1:
                        found.append(stack[at:])
                    del stack[at:]
    return found


def dependencies():
    """Each workspace crate with the workspace crates that it links, tests left out."""
    metadata = json.loads(subprocess.run(
        ["cargo", "metadata", "--format-version", "1", "--no-deps", "--locked"], cwd=ROOT,
        check=True, capture_output=True, text=True).stdout)
    names = {package["name"] for package in metadata["packages"]}
    return {package["name"]: sorted({
        dependency["name"] for dependency in package["dependencies"]
        if dependency["name"] in names and dependency["kind"] != "dev"})
        for package in metadata["packages"]}


def reachable(graph, start):
    reached, todo = set(), [start]
    while todo:
        for target in graph[todo.pop()]:
            if target not in reached:
                reached.add(target)
                todo.append(target)
    return reached


class Check:
    """Figures with their limits, and what exceeds them."""

    def __init__(self, settings):
        self.settings = settings
        self.figures, self.complaints = [], []

    def figure(self, name, found, limit):
        self.figures.append((name, found, limit))

    def excepted(self, kind, name, rows):
        """Rows (key, description) are over a limit; some are excepted with a reason."""
        reasons = self.settings.get(kind, {})
        self.complaints += [f"{description}: over the limit and not in tools/house.toml"
                            for key, description in rows if key not in reasons]
        keys = {key for key, _ in rows}
        for key in sorted(set(reasons) - keys):
            self.complaints.append(f"tools/house.toml: {kind}: {key} is within the limit now: remove it")
        if len(reasons) > MAX_EXCEPTIONS:
            self.complaints.append(f"tools/house.toml: {kind}: {len(reasons)} exceptions, {MAX_EXCEPTIONS} at most")
        self.figure(name, len(rows), f"0, and {MAX_EXCEPTIONS} with a reason")


def check_crates(check):
    graph = dependencies()
    order = {name: at for at, name in enumerate(
        name for layer in check.settings["layers"] for name in layer)}
    for name in sorted(graph):
        if name not in order:
            check.complaints.append(f"{name}: in no layer of tools/house.toml")
    upward = [(name, target) for name in graph for target in graph[name]
              if order.get(target, -1) >= order.get(name, len(order))]
    check.complaints += [f"{name} depends on {target}, which is above it" for name, target in upward]
    check.figure("dependencies upward", len(upward), "0")
    for name, banned in sorted(check.settings["never"].items()):
        reached = reachable(graph, name) if name in graph else set()
        for target in sorted(reached.intersection(banned)):
            check.complaints.append(f"{name} links {target}")
        check.figure(f"`{name}` links " + ", ".join(f"`{target}`" for target in banned),
                     "yes" if reached.intersection(banned) else "no", "no")


def check_files(check):
    cycles = [cycle for folder in sorted((ROOT / "crates").iterdir())
              if (folder / "src").is_dir() for cycle in Crate(folder).cycles()]
    name = "import cycles between files of different modules"
    check.complaints += [
        "files of different modules import one another: " + ", ".join(cycle) for cycle in cycles]
    check.figure(name, len(cycles), "0")
    long, wide, many = [], [], []
    names = subprocess.run(["git", "ls-files", "-co", "--exclude-standard", "*.rs"], cwd=ROOT,
                           check=True, capture_output=True, text=True).stdout.splitlines()
    for name in sorted(set(names)):
        if not (ROOT / name).is_file():
            continue
        code = code_only((ROOT / name).read_text())
        for function, line, lines, parameters in functions(code):
            key = f"{name}:{function}"
            if lines > MAX_LINES:
                long.append((key, f"{name}:{line}: {function} has {lines} lines"))
            if parameters > MAX_PARAMETERS:
                many.append((key, f"{name}:{line}: {function} has {parameters} parameters"))
        wide += [(f"{name}:{struct}", f"{name}:{line}: {struct} has {fields} fields")
                 for struct, line, fields in structs(code) if fields > MAX_FIELDS]
    check.excepted("long-functions", f"functions over {MAX_LINES} lines", long)
    check.excepted("wide-structs", f"structs over {MAX_FIELDS} fields", wide)
    check.excepted("many-parameters", f"functions over {MAX_PARAMETERS} parameters", many)


def count_lines():
    """Lines of Rust and C of each crate: source, and tests with examples."""
    rows = []
    for folder in sorted((ROOT / "crates").iterdir()):
        lines = {"src": 0, "tests": 0}
        for path in folder.rglob("*"):
            if path.suffix in (".rs", ".c", ".h") and path.is_file():
                part = path.relative_to(folder).parts[0]
                lines["src" if part in ("src", "build.rs") else "tests"] += path.read_text().count("\n")
        if lines["src"]:
            rows.append((folder.name, lines["src"], lines["tests"]))
    return rows


def report(check, rows):
    text = ["| figure | found | limit |", "|---|---|---|"]
    text += [f"| {name} | {found} | {limit} |" for name, found, limit in check.figures]
    text += ["", "| crate | lines of source | of tests and examples |", "|---|---|---|"]
    text += [f"| `{name}` | {source:,} | {tests:,} |" for name, source, tests in rows]
    text.append(f"| all | {sum(r[1] for r in rows):,} | {sum(r[2] for r in rows):,} |")
    return "\n".join(text)


def written_figures(text):
    """The limits' table in ARCHITECTURE.md; the lines of crates may lag behind."""
    if BEGIN not in text or END not in text:
        return None
    return text.split(BEGIN)[1].split(END)[0].strip()


def main():
    settings = tomllib.loads((ROOT / "tools/house.toml").read_text())
    check = Check(settings)
    check_crates(check)
    check_files(check)
    for name, limit in sorted(settings["max-lines"].items()):
        lines = dict((row[0], row[1]) for row in count_lines()).get(name, 0)
        check.figure(f"lines of source in `{name}`", f"{lines:,}", f"{limit:,}")
        if lines > limit:
            check.complaints.append(f"{name}: {lines:,} lines of source, {limit:,} at most")
    text = report(check, count_lines())
    print(text)
    path = ROOT / "ARCHITECTURE.md"
    page = path.read_text()
    written = written_figures(page)
    if written is None:
        check.complaints.append(f"ARCHITECTURE.md: {BEGIN} and {END} are missing")
    elif "--write" in sys.argv[1:]:
        before, after = page.split(BEGIN)[0], page.split(END)[1]
        path.write_text(f"{before}{BEGIN}\n{text}\n{END}{after}")
    elif limits(written) != limits(text):
        check.complaints.append("ARCHITECTURE.md: the figures are old: run tools/house.sh --write")
    for complaint in check.complaints:
        print(complaint)
    return 1 if check.complaints else 0


def limits(text):
    """The rows that must be up to date: all but those that count lines."""
    return [row for row in text.split("\n\n")[0].splitlines() if "lines of source" not in row]


if __name__ == "__main__":
    sys.exit(main())
