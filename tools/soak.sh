#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
# The long tests: ten million inputs for each fuzz target, then every test that is ignored
# by default because it takes hours (the log's long crash test among them).
set -euo pipefail
cd "$(dirname "$0")/.."

runs=${SLOWPATH_SOAK_RUNS:-10000000}
if [[ -x fuzz/run.sh ]]; then
    fuzz/run.sh "$runs"
else
    echo "SKIPPED fuzz: no fuzz/run.sh in this tree"
fi
# Such a test may be silent for hours.
export SLOWPATH_TEST_SILENCE=86400
exec tools/test.sh --release -p slowpath-store -- --ignored
