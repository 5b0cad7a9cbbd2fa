#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
# Runs every test this machine can run. With arguments: only `cargo test ARGUMENTS`.
#
# Where it builds: CARGO_TARGET_DIR if set; else this clone's target/ if tests were built
# there before; else a cache shared by the user's clones, so that a second clone tests
# quickly; else, while another run holds that cache, this clone's target/ again.
# SLOWPATH_TEST_CACHE=0: never the cache.
set -euo pipefail
cd "$(dirname "$0")/.."

tools/need.sh rust build
tools/need.sh --try test lint lab-kernel lab-guest

cache=${XDG_CACHE_HOME:-${HOME-}/.cache}/slowpath
cache_limit_mib=12288

may_use_cache() {
    [[ -z ${CARGO_TARGET_DIR-} && ${SLOWPATH_TEST_CACHE-1} != 0 && ! -d target/debug ]] || return 1
    # Cargo's lock guards a build, not the tests that run from it:
    # hold our own until the last child is gone.
    { mkdir -p "$cache/target" && exec 9>"$cache/lock"; } 2>/dev/null || return 1
    flock --nonblock 9
}
prepare_cache() {
    echo "test.sh: building in the cache $cache/target"
    # Nothing else ever removes what old clones and old compilers left.
    if [[ $(du -sm "$cache/target" | cut -f 1) -gt $cache_limit_mib ]]; then
        rm -rf "$cache/target"
    fi
    export CARGO_TARGET_DIR=$cache/target
    if [[ $(cat "$cache/clone" 2>/dev/null) != "$PWD" ]]; then
        # Cargo distinguishes workspace crates by modification time and not by clone: another
        # clone's newer build would pass for this one's.
        rm -f "$cache/clone"
        local crates=(-p slowpath-fuzz) crate profile
        for crate in crates/*/; do crates+=(-p "$(basename "$crate")"); done
        for profile in dev release; do
            cargo clean --quiet --locked --profile "$profile" "${crates[@]}" || {
                unset CARGO_TARGET_DIR
                return 0
            }
        done
        echo "$PWD" >"$cache/clone"
    fi
}
if may_use_cache; then
    prepare_cache
fi
# Nothing is built upon a build in CI: the compiler's notes for the next one cost time and space.
[[ -z ${CI-} ]] || export CARGO_INCREMENTAL=0
# Tests that need one of these kernels, DuckDB or scapy, are skipped without it, and say so.
if [[ $# -eq 0 ]]; then
    tools/lab_kernel.sh || echo "test.sh: going on without the laboratory kernel" >&2
    tools/lab_guest.sh --try
    tools/duckdb/peer.py --install || echo "test.sh: going on without DuckDB" >&2
    tools/scapy/peer.py --install || echo "test.sh: going on without scapy" >&2
fi
exec python3 tools/run_tests.py "$@"
