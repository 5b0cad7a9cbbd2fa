#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Runs the tests, shows their output, and counts what happened.

Everything is built once. Then test binaries run side by side, those that measure real time
one by one (MEASURING below); each shows its output when it ends, the others as it comes.

A test that fails is run once more, after all others and by itself: machines are shared. If it passes
then, it is listed with the others that needed more than one attempt, with what it said first.
More than RERUNS failures are no accident: none of them is run again.

What passing tests print is left out (SLOWPATH_TEST_OUTPUT=1: shown). After everything else
come the skipped tests with their reasons, the tests that needed more than one attempt, then
the failed ones with the end of what they printed, and as the very last line
`N passed, N failed, N skipped`. Exit status 0 only if something passed and nothing failed.

A test that cannot run here prints `SKIPPED <test>: <reason>` and returns; it counts as
skipped, never as passed. A build that fails, a test binary that dies and a step that hangs
count as one failed test each.
"""

import json
import os
import re
import selectors
import signal
import subprocess
import sys
import threading
import time
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
# Inputs and seconds of a fuzz target, whichever ends first; `make soak` has no bound of time.
FUZZ_LIMITS = ["200000", "12"]
# A step without a line of output for this long hangs.
SILENCE_LIMIT_S = float(os.environ.get("SLOWPATH_TEST_SILENCE", "900"))

SHOW_ALL = os.environ.get("SLOWPATH_TEST_OUTPUT", "0") != "0"
# Of each failed test, this many lines from its panic on are repeated at the end.
REPEATED_LINES = 12
REPEATED_CHARACTERS = 400

# At most this many failed tests are run once more.
RERUNS = 5

# Test binaries at a time: most of them wait for real time more than they compute.
WORKERS = int(os.environ.get("SLOWPATH_TEST_WORKERS", "3"))
# Crates whose tests measure real time, and would measure their neighbours too: their binaries
# run one by one, after the others. COMPUTING: those of their binaries that only compute, or
# wait for what happens and not for a time.
MEASURING = {
    "slowpath", "slowpath-agent", "slowpath-bench", "slowpath-demo", "slowpath-export",
    "slowpath-http", "slowpath-lab", "slowpath-observe", "slowpath-path", "slowpath-testbed",
    "slowpath-truth",
}
COMPUTING = {
    "slowpath src/lib.rs", "slowpath src/main.rs", "slowpath-lab src/lib.rs",
    "slowpath-lab tests/judge.rs", "slowpath-lab tests/snap_validation.rs",
    "slowpath-lab tests/virtual_time.rs", "slowpath-path src/lib.rs",
} | {f"slowpath tests/{name}.rs" for name in (
    "explain", "fleet", "join", "lab_virtual", "queues", "recording", "recording_hostile",
    "refusals", "replay", "sim", "sim_dibs", "trace", "trace_damage", "trace_log", "trace_pair")}
# The longest of these.
SLOW = ["slowpath tests/fleet.rs", "slowpath-replay tests/replay.rs",
        "slowpath-replay tests/stories.rs"]

SKIPPED = re.compile(r"(?:^|\.\.\. )SKIPPED (.+?)(?::\s+(.+))?$")
RETRIED = re.compile(r"(?:^|\.\.\. )RETRIED (.+)$")
PANICKED = re.compile(r"^thread .* panicked at |^note: panic|panicked at ")
BINARY = re.compile(
    r"^\s+(?:Running (?:unittests )?(?P<path>.+?) \((?:.*/)?(?P<stem>[^/]+)-[0-9a-f]+\)"
    r"|Doc-tests (?P<doc>\S+))$")
STARTED = re.compile(r"^running \d+ tests?$")
RESULT = re.compile(
    r"(?:^|\.\.\. )test result: \w+\. (\d+) passed; (\d+) failed; (\d+) ignored;")
IGNORED = re.compile(r"^test (.+) \.\.\. ignored(?:, (.+))?$")
SECTION = re.compile(r"^---- (.+) (?:stdout|stderr) ----$")
FAILED_NAME = re.compile(r"^    (\S.*)$")
UNITTEST_RAN = re.compile(r"^Ran (\d+) tests? in ")
UNITTEST_END = re.compile(r"^(?:OK|FAILED)(?: \((.+)\))?$")
UNITTEST_SKIP = re.compile(r"^(\S+ \(.+\))(?:.*) \.\.\. skipped '(.*)'$")


running, running_lock = set(), threading.Lock()
printing_lock = threading.Lock()


class Tally:
    """The counts of one step, from the lines that it prints.

    A plain step is a script that counts nothing itself: it is one test.
    """

    def __init__(self, step, plain=False):
        self.step = step
        self.plain = plain
        self.passed = 0
        self.failed = []
        self.skipped = []
        self.retried = []
        self.said = {}
        self.counted = False
        self.cpu_s = 0.0
        self.binary = None
        self.ran = None
        self._unittests = 0
        self._reset_binary()

    def _reset_binary(self):
        self._open = False
        self._heading = None
        self._section = None
        self._names = []
        self._skips = {}
        self._output = {}

    def _name(self, test):
        return f"{self.binary}: {test}" if self.binary else test

    def _binary_died(self):
        """A binary that started its tests and printed no result died."""
        if self._open:
            self.counted = True
            self.failed.append(self._name("the test binary died before it printed a result"))
            self.skipped += self._skips.items()
        self._reset_binary()

    def quiet(self):
        """Whether the line just taken is output of a test that passed."""
        return self._heading == "successes" and self._section is not None

    def line(self, line):
        """Takes one line of output, without its newline."""
        self._keep(line)
        if match := RETRIED.search(line):
            self.retried.append(self._name(match[1]))
        elif match := BINARY.match(line):
            self._binary_died()
            if match["doc"]:
                self.binary = f"{match['doc']} (doc)"
            else:
                # src/lib.rs says nothing; the file's stem is the crate's name.
                unit = match["path"].startswith("src/")
                self.binary = match["stem"] if unit else match["path"]
        elif STARTED.match(line):
            # Doc tests of one crate print several groups, each with a result.
            self._binary_died()
            self._open = True
        elif match := RESULT.search(line):
            self._result(*(int(n) for n in match.groups()))
        elif match := IGNORED.match(line):
            self._skips[self._name(match[1])] = match[2] or "ignored"
        elif line in ("successes:", "failures:"):
            self._heading, self._section = line[:-1], None
        elif self._heading and (match := SECTION.match(line)):
            self._section = match[1]
        elif match := SKIPPED.search(line):
            self._skip(match[1], match[2] or "no reason given")
        elif self._heading == "failures" and (match := FAILED_NAME.match(line)):
            self._names.append(match[1])
        elif match := UNITTEST_SKIP.match(line):
            self.skipped.append((match[1], match[2]))
        elif match := UNITTEST_RAN.match(line):
            self._unittests = int(match[1])
        elif self._unittests and (match := UNITTEST_END.match(line)):
            self._unittest_result(match[1] or "")

    def _keep(self, line):
        """Remembers what a failed test says from its last panic on."""
        if self._heading != "failures" or self._section is None:
            return
        kept = self._output.setdefault(self._section, [])
        if PANICKED.search(line):
            kept.clear()
        if len(kept) < REPEATED_LINES:
            kept.append(line[:REPEATED_CHARACTERS])

    def _skip(self, test, reason):
        if self._heading == "failures":
            return  # it failed all the same
        # One test may name several things it left out: it is still one test.
        key = self._name(self._section or test)
        if self._section and test not in self._section:
            reason = f"{test}: {reason}"
        before = self._skips.get(key)
        self._skips[key] = reason if before in (None, reason) else f"{before}; {reason}"

    def _result(self, passed, failed, ignored):
        self.counted = True
        if failed:
            names = self._names[-failed:]
            names += ["a test"] * (failed - len(names))
            self.said |= {self._name(name): self._output.get(name, []) for name in names}
            self.failed += [self._name(name) for name in names]
        said = len(self._skips) - ignored
        self.passed += passed - max(0, min(said, passed))
        self.skipped += self._skips.items()
        self._reset_binary()

    def failed_by_name(self, name):
        """Whether it was one test of the binary that failed, and not the binary."""
        return name in self.said

    def passes_at_last(self, name):
        """A failed test passed when it ran once more."""
        self.failed.remove(name)
        self.passed += 1
        first = next((line for line in self.said.pop(name)[1:] if line.strip()), "no message")
        self.retried.append(f"{name}: attempt 1 failed: {first.strip()}")

    def _unittest_result(self, details):
        self.counted = True
        numbers = {k: int(v) for k, v in re.findall(r"([a-z ]+)=(\d+)", details)}
        numbers = {k.strip(): v for k, v in numbers.items()}
        failed = numbers.get("failures", 0) + numbers.get("errors", 0)
        self.failed += [f"{self.step}: a test"] * failed
        self.passed += max(0, self._unittests - failed - numbers.get("skipped", 0))
        self._unittests = 0

    def end(self, status, why=None):
        """The step ended with that exit status, or was ended because of `why`."""
        skips = self._skips
        self._binary_died()
        if why or status != 0:
            if not self.failed:
                self.failed.append(f"{self.step}: {why or f'exit status {status}'}")
        elif not self.counted and self.plain:
            self.skipped += skips.items()
            self.passed += 0 if skips else 1
        elif not self.counted:
            self.failed.append(f"{self.step}: no test ran")


def run(step, command, plain=False, folder=ROOT, show=print, heading=()):
    """Runs one step, shows its output, and returns its tally. Lines of `heading` are taken
    as if the step had printed them first."""
    tally = Tally(step, plain)
    environment = dict(os.environ, CARGO_TERM_COLOR="never", CARGO_MANIFEST_DIR=str(folder))
    # The same draws each time; `make soak` draws others.
    environment.setdefault("PROPTEST_RNG_SEED", "1")
    for line in heading:
        tally.line(line)
        show(line)
    try:
        child = subprocess.Popen(
            command, cwd=folder, env=environment, stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE, stderr=subprocess.STDOUT, start_new_session=True)
    except OSError as error:
        show(f"{command[0]}: {error}")
        tally.end(127)
        return tally
    why = None
    with running_lock:
        running.add(child)
    try:
        for line in lines(child):
            tally.line(line)
            if SHOW_ALL or not tally.quiet():
                show(line)
    except TimeoutError:
        why = f"no output for {SILENCE_LIMIT_S:.0f} s"
        end(child)
    except BaseException:
        end(child)
        raise
    finally:
        with running_lock:
            running.discard(child)
    tally.end(reap(child, tally), why)
    return tally


def reap(child, tally):
    """Waits for the child and adds the processor time that it and its own children took."""
    if child.returncode is None:
        _, status, usage = os.wait4(child.pid, 0)
        child.returncode = os.waitstatus_to_exitcode(status)
        tally.cpu_s += usage.ru_utime + usage.ru_stime
    return child.returncode


def run_exclusively(step, command, plain=False, folder=ROOT):
    """Runs one step with nothing beside it and shows its output as it comes."""
    print(f"==> {step}: {' '.join(command)}", flush=True)
    began = time.monotonic()
    tally = run(step, command, plain, folder, show=lambda line: print(line, flush=True))
    print(f"==> {step}: {time.monotonic() - began:.0f} s, {tally.cpu_s:.0f} s of processor time",
          flush=True)
    return tally


def end_all():
    """Ends every step that still runs."""
    with running_lock:
        left = list(running)
    for child in left:
        end(child)


class Binary:
    """A test binary that cargo built."""

    def __init__(self, message):
        self.path = message["executable"]
        self.folder = Path(message["manifest_path"]).parent
        self.crate = self.folder.name
        source = Path(message["target"]["src_path"]).relative_to(self.folder)
        self.name = f"{self.crate} {source}"
        unit = "unittests " if source.parts[0] == "src" else ""
        self.heading = f"     Running {unit}{source} ({self.path})"

    def measures(self):
        return self.crate in MEASURING and self.name not in COMPUTING


def build_tests():
    """Builds every test; returns the binaries, and a tally that holds a failure."""
    command = ["cargo", "test", "--workspace", "--exclude", "slowpath-fuzz", "--locked", "--no-run",
               "--message-format", "json-render-diagnostics"]
    print(f"==> build: {' '.join(command)}", flush=True)
    began = time.monotonic()
    built = subprocess.run(command, cwd=ROOT, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE,
                           text=True, env=dict(os.environ, CARGO_TERM_COLOR="never"))
    tally = Tally("build", plain=True)
    if built.returncode != 0:
        tally.end(built.returncode)
    messages = (json.loads(line) for line in built.stdout.splitlines() if line.startswith("{"))
    binaries = [Binary(message) for message in messages
                if message["reason"] == "compiler-artifact" and message["profile"]["test"]
                and message["executable"]]
    print(f"==> build: {time.monotonic() - began:.0f} s, {len(binaries)} test binaries", flush=True)
    return binaries, tally


def run_binary(binary):
    """Runs one test binary; its output appears when it ends."""
    shown = []
    began = time.monotonic()
    tally = run(binary.name, [binary.path, "--show-output"], folder=binary.folder,
                show=shown.append, heading=[binary.heading])
    tally.ran = binary
    shown.append(f"==> {binary.name}: {time.monotonic() - began:.1f} s, "
                 f"{tally.cpu_s:.1f} s of processor time")
    with printing_lock:
        print("\n".join(shown), flush=True)
    return tally


def rerun_failed(tallies):
    """Runs each failed test of these binaries once more, by itself, unless they are too many."""
    failed = [(tally, name) for tally in tallies for name in tally.failed]
    if len(failed) > RERUNS:
        return
    for tally, name in failed:
        test = name.removeprefix(f"{tally.binary}: ")
        if tally.ran is None or not tally.failed_by_name(name):
            continue
        again = run_exclusively(f"{tally.ran.name} again",
                                [tally.ran.path, "--exact", test, "--show-output"],
                                folder=tally.ran.folder)
        if (again.passed, again.failed, again.skipped) == (1, [], []):
            tally.passes_at_last(name)


def run_binaries(binaries):
    """Runs the binaries, at most WORKERS at a time; then those that measure, one by one."""
    # The slow ones first, so that none of them is the last to start.
    beside = sorted((b for b in binaries if not b.measures()),
                    key=lambda b: (SLOW.index(b.name) if b.name in SLOW else len(SLOW), b.name))
    tallies = []
    with ThreadPoolExecutor(WORKERS) as pool:
        pending = [pool.submit(run_binary, binary) for binary in beside]
        try:
            tallies += [future.result() for future in pending]
        except BaseException:
            pool.shutdown(wait=False, cancel_futures=True)
            end_all()
            raise
    tallies += [run_binary(b) for b in binaries if b.measures()]
    rerun_failed(tallies)
    return tallies


def lines(child):
    """The lines that come out of a step; TimeoutError when none comes for too long. What a
    test leaves behind may hold the pipe open: the step's own end counts."""
    pipe = child.stdout
    selector = selectors.DefaultSelector()
    selector.register(pipe, selectors.EVENT_READ)
    pending = b""
    silent = 0
    while True:
        if not selector.select(1):
            silent += 1
            # Ended, but left to be reaped with what it used.
            if os.waitid(os.P_PID, child.pid, os.WEXITED | os.WNOHANG | os.WNOWAIT):
                break
            if silent >= SILENCE_LIMIT_S:
                raise TimeoutError
            continue
        silent = 0
        chunk = os.read(pipe.fileno(), 65536)
        if not chunk:
            break
        *whole, pending = (pending + chunk).split(b"\n")
        for line in whole:
            yield line.decode(errors="replace").rstrip("\r")
    if pending:
        yield pending.decode(errors="replace")


def end(child):
    """Ends the step's own process group."""
    for number in (signal.SIGTERM, signal.SIGKILL):
        try:
            os.killpg(child.pid, number)
        except ProcessLookupError:
            return
        try:
            child.wait(timeout=10)
        except subprocess.TimeoutExpired:
            continue


def run_everything():
    """Builds, then runs all tests, scripts and fuzz targets."""
    binaries, build = build_tests()
    tallies = [build]
    if not build.failed:
        tallies += run_binaries(binaries)
        tallies.append(run_exclusively("doc tests", [
            "cargo", "test", "--workspace", "--exclude", "slowpath-fuzz", "--locked", "--doc",
            "--no-fail-fast", "--", "--show-output"]))
    tallies.append(run_exclusively("scripts", [
        sys.executable, "-m", "unittest", "discover", "-v", "-s", "tools/tests", "-p", "*_test.py"]))
    tallies.append(run_exclusively("lint", ["tools/lint.sh"], plain=True))
    tallies.append(run_exclusively("fuzz", ["fuzz/run.sh", *FUZZ_LIMITS], plain=True))
    return tallies


def run_chosen(arguments):
    """Runs cargo's tests with the caller's arguments."""
    harness = ["--", "--show-output"]
    if "--" in arguments:
        at = arguments.index("--")
        arguments, harness = arguments[:at], harness + arguments[at + 1:]
    return [run_exclusively("cargo test", [
        "cargo", "test", "--locked", "--no-fail-fast", *arguments, *harness])]


def main():
    tallies = run_chosen(sys.argv[1:]) if sys.argv[1:] else run_everything()
    passed = sum(t.passed for t in tallies)
    failed = [name for t in tallies for name in t.failed]
    skipped = [skip for t in tallies for skip in t.skipped]
    print()
    for test, reason in sorted(skipped):
        print(f"SKIPPED {test}: {reason}")
    for test in (test for t in tallies for test in t.retried):
        print(f"RETRIED {test}")
    said = {test: lines for t in tallies for test, lines in t.said.items()}
    for test in failed:
        print(f"FAILED {test}")
        for line in said.get(test, []):
            print(f"    {line}")
    if not passed and not failed:
        print("nothing passed")
    print(f"{passed} passed, {len(failed)} failed, {len(skipped)} skipped", flush=True)
    return 0 if passed and not failed else 1


if __name__ == "__main__":
    try:
        sys.exit(main())
    except KeyboardInterrupt:
        sys.exit(130)
    except BrokenPipeError:
        sys.exit(141)
