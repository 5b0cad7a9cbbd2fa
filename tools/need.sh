#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
# Installs the Debian packages of the groups named, where they are missing.
#
#   tools/need.sh [--try] GROUP...
#
# Groups are the lines of tools/packages.txt, and "rust": a cargo that is new enough.
# --try: warn and go on when something cannot be installed.
# SLOWPATH_NO_INSTALL=1: name what is missing, install nothing.
set -euo pipefail
cd "$(dirname "$0")/.."

try=
if [[ ${1-} == --try ]]; then
    try=1
    shift
fi
if [[ $# -eq 0 ]]; then
    echo "usage: tools/need.sh [--try] GROUP...   (groups: rust, and those in tools/packages.txt)" >&2
    exit 2
fi

give_up() {
    if [[ -n $try ]]; then
        echo "need.sh: $1; going on without: what needs it will be skipped or fail" >&2
        exit 0
    fi
    echo "need.sh: $1" >&2
    exit 1
}

need_rust() {
    local wanted have way="install it with rustup (https://rustup.rs), or: rustup update stable"
    wanted=$(sed -n 's/^rust-version = "\([0-9.]*\)"$/\1/p' Cargo.toml)
    command -v cargo >/dev/null || give_up "Rust $wanted or newer is wanted and cargo is not on the PATH; $way"
    have=$(cargo --version | cut -d ' ' -f 2)
    # sort -V puts the older version first.
    if [[ $(printf '%s\n' "$wanted" "$have" | sort -V | head -n 1) != "$wanted" ]]; then
        give_up "Rust $wanted or newer is wanted, cargo here is $have; $way"
    fi
}

packages=()
for group in "$@"; do
    if [[ $group == rust ]]; then
        need_rust
        continue
    fi
    line=$(grep -E "^$group:" tools/packages.txt) || {
        echo "need.sh: no group '$group' in tools/packages.txt" >&2
        exit 2
    }
    read -ra members <<<"${line#*:}"
    packages+=("${members[@]}")
done
[[ ${#packages[@]} -gt 0 ]] || exit 0

if ! command -v dpkg-query >/dev/null || ! command -v apt-get >/dev/null; then
    echo "need.sh: no apt here; what these Debian packages hold is wanted: ${packages[*]}" >&2
    exit 0
fi

find_missing() {
    local package
    missing=()
    for package in "${packages[@]}"; do
        [[ $'\n'$installed == *$'\n'"$package"$'\n'* ]] || missing+=("$package")
    done
}
list_installed() {
    # dpkg-query fails when one of the packages is unknown, and still lists the others.
    installed=$(dpkg-query -W -f '${db:Status-Status} ${Package}\n' "${packages[@]}" 2>/dev/null |
        sed -n 's/^installed //p' || true)$'\n'
    find_missing
}

list_installed
[[ ${#missing[@]} -gt 0 ]] || exit 0
[[ -z ${SLOWPATH_NO_INSTALL-} ]] || give_up "missing Debian packages: ${missing[*]}"

as_root=()
if [[ $EUID -ne 0 ]]; then
    command -v sudo >/dev/null ||
        give_up "not root and no sudo; as root: apt-get install ${missing[*]}"
    as_root=(sudo)
fi

apt() {
    # tshark's package asks who may capture: take the default answer.
    "${as_root[@]}" env DEBIAN_FRONTEND=noninteractive \
        apt-get -qq -o DPkg::Lock::Timeout=300 -o Dpkg::Use-Pty=0 "$@" >/dev/null
}

echo "need.sh: installing ${missing[*]}" >&2
apt update || echo "need.sh: apt-get update failed; trying with the lists at hand" >&2
if ! apt install --yes --no-install-recommends "${missing[@]}"; then
    # One package that this distribution does not have must not cost the others.
    for package in "${missing[@]}"; do
        apt install --yes --no-install-recommends "$package" || true
    done
fi
list_installed
[[ ${#missing[@]} -eq 0 ]] || give_up "could not install: ${missing[*]}"
