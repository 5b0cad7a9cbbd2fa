# SPDX-License-Identifier: Apache-2.0
import sys
import unittest
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parent.parent))
from run_tests import Tally  # noqa: E402


def tally(text, status=0, plain=False, why=None):
    result = Tally("step", plain)
    for line in text.splitlines():
        result.line(line)
    result.end(status, why)
    return result


class Libtest(unittest.TestCase):
    def test_a_skipped_test_is_not_a_passed_one(self):
        result = tally("""\
     Running unittests src/lib.rs (target/debug/deps/x-1)

running 3 tests
test a ... ok
test b ... ok
test c ... ignored, takes hours

successes:

---- a stdout ----
SKIPPED a: no root

---- b stdout ----
hello

successes:
    a
    b

test result: ok. 2 passed; 0 failed; 1 ignored; 0 measured; 0 filtered out; finished in 0.00s

""")
        self.assertEqual(result.passed, 1)
        self.assertEqual(result.failed, [])
        self.assertEqual(
            dict(result.skipped), {"x: a": "no root", "x: c": "takes hours"})

    def test_a_failed_test_that_passes_at_last_is_passed_and_listed(self):
        result = tally('''\
     Running tests/net.rs (target/debug/deps/net-1)
running 2 tests
test a ... ok
test m::b ... FAILED

failures:

---- m::b stdout ----
thread 'm::b' (7) panicked at tests/net.rs:3:5:
too late

failures:
    m::b

test result: FAILED. 1 passed; 1 failed; 0 ignored; 0 measured; 0 filtered out; finished in 0.00s
''', status=101)
        self.assertEqual(result.failed, ["tests/net.rs: m::b"])
        self.assertTrue(result.failed_by_name("tests/net.rs: m::b"))
        result.passes_at_last("tests/net.rs: m::b")
        self.assertEqual((result.passed, result.failed), (2, []))
        self.assertEqual(result.retried, ["tests/net.rs: m::b: attempt 1 failed: too late"])

    def test_a_binary_that_died_is_no_test_to_run_again(self):
        result = tally("     Running tests/net.rs (x-1)\nrunning 1 test\n", status=101)
        self.assertFalse(result.failed_by_name(result.failed[0]))

    def test_output_that_libtest_does_not_capture_counts_too(self):
        result = tally("""\
     Running tests/net.rs (target/debug/deps/net-1)
running 2 tests
test m::a ... SKIPPED m::a: no BPF
ok
test b ... ok
test result: ok. 2 passed; 0 failed; 0 ignored; 0 measured; 0 filtered out; finished in 0.00s
""")
        self.assertEqual((result.passed, dict(result.skipped)), (1, {"tests/net.rs: m::a": "no BPF"}))

    def test_one_test_that_leaves_out_several_things_is_one_skipped_test(self):
        result = tally("""\
running 2 tests
test many ... ok
test b ... ok
successes:
---- many stdout ----
SKIPPED cubic: not in this kernel
SKIPPED dctcp: not in this kernel
successes:
    b
    many
test result: ok. 2 passed; 0 failed; 0 ignored; 0 measured; 0 filtered out; finished in 0.00s
""")
        self.assertEqual(result.passed, 1)
        self.assertEqual(
            dict(result.skipped),
            {"many": "cubic: not in this kernel; dctcp: not in this kernel"})

    def test_a_failed_test_keeps_its_name_and_is_not_skipped(self):
        result = tally("""\
     Running tests/net.rs (target/debug/deps/net-1)
running 2 tests
test a ... ok
test b ... FAILED
successes:
successes:
    a
failures:
---- b stdout ----
SKIPPED part: no tool
    indented
failures:
    b
test result: FAILED. 1 passed; 1 failed; 0 ignored; 0 measured; 0 filtered out; finished in 0.00s
""", status=101)
        self.assertEqual(
            (result.passed, result.failed, result.skipped), (1, ["tests/net.rs: b"], []))

    def test_a_failed_test_is_quoted_from_its_last_panic_on(self):
        result = tally("""\
     Running tests/net.rs (target/debug/deps/net-1)
running 2 tests
test a ... FAILED
test b ... ok

successes:

---- b stdout ----
RETRIED b: attempt 1 failed: late

failures:

---- a stdout ----
a long table
thread 'a' (7) panicked at tests/net.rs:1:1:
first
RETRIED a: attempt 1 failed: first
thread 'a' (7) panicked at tests/net.rs:2:1:
assertion failed

failures:
    a

test result: FAILED. 1 passed; 1 failed; 0 ignored; 0 measured; 0 filtered out; finished in 0.00s
""", status=101)
        self.assertEqual((result.passed, result.failed), (1, ["tests/net.rs: a"]))
        said = result.said["tests/net.rs: a"]
        self.assertEqual(
            said[:2], ["thread 'a' (7) panicked at tests/net.rs:2:1:", "assertion failed"])
        self.assertEqual(
            result.retried,
            ["tests/net.rs: b: attempt 1 failed: late", "tests/net.rs: a: attempt 1 failed: first"])

    def test_what_a_passed_test_prints_is_quiet(self):
        watched = Tally("step")
        quiet = []
        for line in ("running 2 tests", "successes:", "---- b stdout ----", "hello", "failures:",
                     "---- a stdout ----", "assertion failed"):
            watched.line(line)
            quiet.append(watched.quiet())
        self.assertEqual(quiet, [False, False, True, True, False, False, False])

    def test_a_binary_that_dies_fails_once(self):
        result = tally("""\
     Running tests/one.rs (target/debug/deps/one-1)
running 2 tests
test a ... ok
error: test failed, to rerun pass `-p x --test one`
     Running tests/two.rs (target/debug/deps/two-1)
running 1 test
test b ... ok
test result: ok. 1 passed; 0 failed; 0 ignored; 0 measured; 0 filtered out; finished in 0.00s
""", status=101)
        self.assertEqual(result.passed, 1)
        self.assertEqual(len(result.failed), 1)
        self.assertIn("tests/one.rs", result.failed[0])

    def test_a_build_that_fails_fails(self):
        result = tally("error: could not compile `x`", status=101)
        self.assertEqual((result.passed, result.failed), (0, ["step: exit status 101"]))

    def test_no_test_at_all_fails(self):
        self.assertEqual(tally("    Finished").failed, ["step: no test ran"])


class Others(unittest.TestCase):
    def test_a_script_is_one_test(self):
        self.assertEqual(tally("done", plain=True).passed, 1)
        self.assertEqual(tally("boom", status=1, plain=True).failed, ["step: exit status 1"])
        skipped = tally("SKIPPED fuzz: no compiler for it", plain=True)
        self.assertEqual(
            (skipped.passed, dict(skipped.skipped)), (0, {"fuzz": "no compiler for it"}))

    def test_a_hang_fails_even_where_tests_passed(self):
        result = tally("""\
running 1 test
test a ... ok
test result: ok. 1 passed; 0 failed; 0 ignored; 0 measured; 0 filtered out; finished in 0.00s
""", status=-15, why="no output for 900 s")
        self.assertEqual((result.passed, result.failed), (1, ["step: no output for 900 s"]))

    def test_python_tests_count_one_by_one(self):
        result = tally("""\
test_a (x.Y.test_a) ... ok
test_b (x.Y.test_b) ... skipped 'no git'
test_c (x.Y.test_c) ... FAIL
----------------------------------------------------------------------
Ran 3 tests in 0.001s

FAILED (failures=1, skipped=1)
""", status=1)
        self.assertEqual((result.passed, len(result.failed)), (1, 1))
        self.assertEqual(dict(result.skipped), {"test_b (x.Y.test_b)": "no git"})


if __name__ == "__main__":
    unittest.main()
