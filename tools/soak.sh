#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
# The long tests: ten million inputs for each fuzz target, every test that is ignored by
# default because it takes long (the log's long crash test among them), the property tests with
# twenty seeds (SLOWPATH_SOAK_SEEDS), the tests on real TCP ten times over without a second
# attempt (SLOWPATH_SOAK_ROUNDS), failures counted, and the hostile trials of check-fleet (with
# an hour of counts by DuckDB) and check-hardening, whose JSON is the last line.
#
#   tools/soak.sh SLOWPATH
set -euo pipefail
slowpath=$1
cd "$(dirname "$0")/.."

fuzz/run.sh "${SLOWPATH_SOAK_RUNS:-10000000}"

# Such a test may be silent for hours.
export SLOWPATH_TEST_SILENCE=86400
tools/test.sh --release --workspace --exclude slowpath-fuzz -- --ignored

# `make test` draws the same inputs each time.
crates=()
while read -r crate; do
    crates+=(-p "$crate")
done < <(grep -rl 'proptest!' crates --include='*.rs' | cut -d/ -f2 | sort -u)
for ((round = 1; round <= ${SLOWPATH_SOAK_SEEDS:-20}; round++)); do
    export PROPTEST_RNG_SEED=$((RANDOM * 32768 + RANDOM))
    echo "soak: property tests, round $round, PROPTEST_RNG_SEED=$PROPTEST_RNG_SEED"
    tools/test.sh --release "${crates[@]}"
done
unset PROPTEST_RNG_SEED

rounds=${SLOWPATH_SOAK_ROUNDS:-10}
export SLOWPATH_ATTEMPTS=1
disturbed=0
for ((round = 1; round <= rounds; round++)); do
    echo "soak: real TCP, round $round of $rounds, $disturbed disturbed so far"
    tools/test.sh -p slowpath-testbed -p slowpath-demo || disturbed=$((disturbed + 1))
done
echo "soak: $disturbed of $rounds rounds on real TCP failed at the first attempt"
# Every third one is no longer the machine.
[[ $((disturbed * 3)) -le $rounds ]]

tools/duckdb/peer.py --install || echo "soak: going on without DuckDB" >&2
cargo run --release --locked -p slowpath-trials --bin check-fleet -- "$slowpath" soak
cargo run --release --locked -p slowpath-trials --bin check-hardening -- "$slowpath" soak
