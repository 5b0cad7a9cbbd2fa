#!/bin/sh
# SPDX-License-Identifier: Apache-2.0
# The compiler of the workspace's crates for fuzzing (RUSTC_WORKSPACE_WRAPPER): with coverage
# counters and the flags that cargo-fuzz sets, all of them stable. Crates from elsewhere are
# the ones that the tests use. Build scripts and what only they link stay as they are: the
# counters' functions are libFuzzer's.
set -eu

case " $* " in
*" --crate-name build_script_build "* | *" --crate-name slowpath_layout "*) exec "$@" ;;
*" --crate-name "*) ;;
*) exec "$@" ;; # a question about the compiler
esac
exec "$@" --cfg fuzzing -Copt-level=2 -Cpasses=sancov-module \
    -Cllvm-args=-sanitizer-coverage-level=4 \
    -Cllvm-args=-sanitizer-coverage-inline-8bit-counters \
    -Cllvm-args=-sanitizer-coverage-pc-table \
    -Cllvm-args=-sanitizer-coverage-trace-compares
