#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
# Builds the slowpath command as one file that needs no other: static, position independent,
# musl. Prints where it is.
#
#   tools/static.sh TARGET_DIRECTORY
set -euo pipefail
cd "$(dirname "$0")/.."

target_directory=${1:?usage: tools/static.sh TARGET_DIRECTORY}
machine=$(uname -m)
triple=$machine-unknown-linux-musl

sysroot=$(rustc --print sysroot)
if [[ ! -d $sysroot/lib/rustlib/$triple ]]; then
    command -v rustup >/dev/null || {
        echo "static.sh: no Rust standard library for $triple in $sysroot;" \
            "install Rust with rustup (https://rustup.rs), or your distribution's package for that target" >&2
        exit 1
    }
    rustup target add "$triple" >&2
fi
libraries=$(tools/static_libraries.sh "$target_directory")

suffix=${triple//-/_}
export "CC_$suffix=${MUSL_CC:-musl-gcc}"
# shellcheck source=tools/remap.sh
source tools/remap.sh
export "CFLAGS_$suffix=$CFLAGS -I$libraries/include -idirafter $libraries/kernel"
export "LIBBPF_SYS_LIBRARY_PATH_$suffix=$libraries"
cargo build --release --locked -p slowpath --features static \
    --target "$triple" --target-dir "$target_directory" >&2

# What goes into the image: the command without its debugging information, an example
# configuration, and the licences of all that is linked in.
image=$target_directory/image
rm -rf "$image"
mkdir -p "$image/licences"
strip --strip-unneeded -o "$image/slowpath" "$target_directory/$triple/release/slowpath"
install -m 0644 packaging/agent.toml "$image/agent.toml"
install -m 0644 LICENSE LICENSES/* "$image/licences/"
tools/notices.py --static --target "$triple" >"$image/licences/third-party.txt"
echo "$image/slowpath"
