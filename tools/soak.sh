#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
# The long tests: ten million inputs for each fuzz target, every test that is ignored by
# default because it takes long (the log's long crash test among them), the tests on real TCP
# ten times over without a second attempt (SLOWPATH_SOAK_ROUNDS), failures counted, and the
# hostile trials of check-fleet (with an hour of counts by DuckDB) and check-hardening, whose
# JSON is the last line.
#
#   tools/soak.sh SLOWPATH
set -euo pipefail
slowpath=$1
cd "$(dirname "$0")/.."

fuzz/run.sh "${SLOWPATH_SOAK_RUNS:-10000000}"

# Such a test may be silent for hours.
export SLOWPATH_TEST_SILENCE=86400
tools/test.sh --release --workspace --exclude slowpath-fuzz -- --ignored

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
