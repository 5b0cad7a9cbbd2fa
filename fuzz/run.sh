#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
# Builds every fuzz target and runs each on RUNS inputs (200000 unless given) or for SECONDS
# (no limit unless given), whichever ends first; one a processor at a time.
#
#   fuzz/run.sh [RUNS] [SECONDS]
#
# SEED=N chooses the random numbers (1 unless set; 0: different ones each time).
# An input that breaks a target stays in fuzz/artifacts/.
set -euo pipefail

runs=${1:-200000}
seconds=${2:-0}
seed=${SEED:-1}
cd "$(dirname "$0")"

RUSTC_WORKSPACE_WRAPPER=$PWD/rustc.sh cargo build --quiet --locked -p slowpath-fuzz --bins
binaries=$(cd .. && cargo metadata --format-version 1 --no-deps --locked |
    sed -n 's/.*"target_directory":"\([^"]*\)".*/\1/p')/debug

scratch=$(mktemp -d)
trap 'rm -rf "$scratch"' EXIT
mkdir -p artifacts

run_target() {
    local target=$1 binary=$binaries/$1 corpus=$scratch/$1 log=$scratch/$1.log executions coverage
    mkdir "$corpus"
    SLOWPATH_SEEDS=$corpus "$binary" 2>"$log" || {
        cat "$log" >&2
        return 1
    }
    if ! "$binary" -runs="$runs" -max_total_time="$seconds" -seed="$seed" -max_len=8192 -timeout=10 -rss_limit_mb=1024 \
        -artifact_prefix="artifacts/$target-" "$corpus" 2>"$log"; then
        tail -n 40 "$log" >&2
        echo "fuzz $target: FAILED; the input is in fuzz/artifacts/" >&2
        return 1
    fi
    executions=$(sed -n 's/^Done \([0-9]*\) runs in \([0-9]*\) second.*/\1 executions in \2 s/p' "$log")
    coverage=$(sed -n 's/.*cov: \([0-9]*\) .*/\1/p' "$log" | tail -n 1)
    echo "fuzz $target: $executions, $(find "$corpus" -type f | wc -l) inputs kept, $coverage edges"
    [[ -n $executions ]]
}

failed=0 running=0
# The longest first.
for target in capture switch $(basename -s .rs targets/*.rs | grep -vx -e capture -e switch); do
    if [[ $running -ge $(nproc) ]]; then
        wait -n || failed=1
        running=$((running - 1))
    fi
    run_target "$target" &
    running=$((running + 1))
done
while [[ $running -gt 0 ]]; do
    wait -n || failed=1
    running=$((running - 1))
done
exit "$failed"
