#!/bin/sh
# SPDX-License-Identifier: Apache-2.0
# Builds every fuzz target and runs each on RUNS inputs (200000 unless given).
#
#   fuzz/run.sh [RUNS]
#
# SEED=N chooses the random numbers (1 unless set; 0: different ones each time).
# An input that breaks a target stays in fuzz/artifacts/.
set -eu

runs=${1:-200000}
seed=${SEED:-1}
cd "$(dirname "$0")"

RUSTC_WORKSPACE_WRAPPER=$PWD/rustc.sh cargo build --quiet --locked -p slowpath-fuzz --bins
binaries=$(cd .. && cargo metadata --format-version 1 --no-deps --locked |
    sed -n 's/.*"target_directory":"\([^"]*\)".*/\1/p')/debug

scratch=$(mktemp -d)
trap 'rm -rf "$scratch"' EXIT
mkdir -p artifacts
failed=0
for source in targets/*.rs; do
    target=$(basename "$source" .rs)
    binary=$binaries/$target
    corpus=$scratch/$target
    mkdir "$corpus"
    SLOWPATH_SEEDS=$corpus "$binary" 2>"$scratch/log" || { cat "$scratch/log" >&2; exit 1; }
    if "$binary" -runs="$runs" -seed="$seed" -max_len=8192 -timeout=10 -rss_limit_mb=1024 \
        -artifact_prefix="artifacts/$target-" "$corpus" 2>"$scratch/log"; then
        done=$(sed -n 's/^Done \([0-9]*\) runs in \([0-9]*\) second.*/\1 executions in \2 s/p' "$scratch/log")
        coverage=$(sed -n 's/.*cov: \([0-9]*\) .*/\1/p' "$scratch/log" | tail -n 1)
        echo "fuzz $target: $done, $(find "$corpus" -type f | wc -l) inputs kept, $coverage edges"
        [ -n "$done" ] || failed=1
    else
        failed=1
        tail -n 40 "$scratch/log" >&2
        echo "fuzz $target: FAILED; the input is in fuzz/artifacts/" >&2
    fi
done
exit "$failed"
