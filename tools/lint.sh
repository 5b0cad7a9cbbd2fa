#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
# Runs the checks named, or all; goes on after a failure and lists what failed at the end.
set -euo pipefail
cd "$(dirname "$0")/.."

check_fmt() { cargo fmt --all --check; }
check_clippy() { cargo clippy --workspace --all-targets --locked -- -D warnings; }
check_doc() { RUSTDOCFLAGS="-D warnings" cargo doc --workspace --no-deps --locked; }
check_licences() { tools/licences.py; }
check_duplicates() { tools/duplicates.py; }
check_tree() { tools/tree.py; }
check_words() { tools/words.py; }
check_house() { tools/house.sh; }
check_shell() {
    if ! command -v shellcheck >/dev/null; then
        echo "lint.sh: SKIPPED shell: no shellcheck here"
        # In CI, where the output may go unread, a check that did not run has failed.
        [[ -z ${CI-} ]]
        return
    fi
    local scripts
    mapfile -t scripts < <(git ls-files -co --exclude-standard -- '*.sh' .ci/run)
    shellcheck "${scripts[@]}"
}

checks=("$@")
# The quick ones first.
[[ $# -gt 0 ]] || checks=(fmt tree house words duplicates shell licences clippy doc)
failed=()
for check in "${checks[@]}"; do
    declare -F "check_$check" >/dev/null || {
        echo "lint.sh: no check '$check'" >&2
        exit 2
    }
    echo "==> lint: $check"
    # Not in a condition: errexit would not work inside it.
    set +e
    (set -e; "check_$check")
    status=$?
    set -e
    [[ $status -eq 0 ]] || failed+=("$check")
done
if [[ ${#failed[@]} -gt 0 ]]; then
    echo "lint failed: ${failed[*]}"
    exit 1
fi
echo "lint passed: ${checks[*]}"
