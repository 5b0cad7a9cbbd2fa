#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
# Compiles libelf and zlib with musl, for the static binary (make static).
#
#   tools/static_libraries.sh DIRECTORY
#
# Prints where they are: a folder of DIRECTORY, another one whenever anything is different, so that
# cargo links anew.
#
# The sources are those that the crate libbpf-sys carries, so that Cargo.lock pins them. Its
# own feature for this (vendored-libelf) runs all of elfutils' configure, which wants argp, fts
# and obstack: musl has none, and libelf uses none (docs/decisions/0019-packaging.md).
# The folder gets libelf.a, libz.a, include/ and kernel/ (links to Linux's user headers, which
# musl-gcc hides).
set -euo pipefail
cd "$(dirname "$0")/.."

directory=${1:?usage: tools/static_libraries.sh DIRECTORY}
cc=${MUSL_CC:-musl-gcc}
machine=$(uname -m)
source=$(cargo metadata --format-version=1 --locked |
    python3 -c '
import json, pathlib, sys
packages = json.load(sys.stdin)["packages"]
[found] = [p["manifest_path"] for p in packages if p["name"] == "libbpf-sys"]
print(pathlib.Path(found).parent)')
version=$(sed -n 's/^AC_INIT(\[elfutils\],\[\([0-9.]*\)\].*/\1/p' "$source/elfutils/configure.ac")

like=$({ echo "$source $machine"; "$cc" --version; cat tools/static_libraries.sh; } |
    sha256sum | cut -c 1-12)
out=$directory/libraries-$like
if [[ -e $out/complete ]]; then
    echo "$out"
    exit 0
fi
rm -rf "$directory"/libraries-*
mkdir -p "$out/include" "$out/kernel" "$out/elf" "$out/z"
ln -s /usr/include/linux /usr/include/asm-generic "$out/kernel/"
ln -s "/usr/include/$machine-linux-gnu/asm" "$out/kernel/asm"

# What configure would find with musl, as far as libelf asks.
cat >"$out/elf/config.h" <<EOF
#define PACKAGE "elfutils"
#define PACKAGE_NAME "elfutils"
#define PACKAGE_VERSION "$version"
#define HAVE_VISIBILITY 1
#define HAVE_GCC_STRUCT 1
#define HAVE_FALLTHROUGH 1
#define HAVE_STDATOMIC_H 1
#define HAVE_DECL_MEMRCHR 1
#define HAVE_DECL_RAWMEMCHR 0
#define HAVE_DECL_POWEROF2 1
#define HAVE_DECL_MEMPCPY 1
#define HAVE_DECL_REALLOCARRAY 1
#define HAVE_PROCESS_VM_READV 1
#define HAVE_MREMAP 1
#define HAVE_ERR_H 1
#define CHECK_UNDEFINED 0
#include <eu-config.h>
EOF

# libelf's own list of its files.
elf=$(sed -n '/^libelf_a_SOURCES/,/[^\\]$/p' "$source/elfutils/libelf/Makefile.am" |
    sed -e 's/libelf_a_SOURCES =//' -e 's/[\]$//')
flags=(-O2 -fPIC -ffunction-sections -fdata-sections "-ffile-prefix-map=$source=libbpf-sys")
compile() {
    local from=$1 to=$2
    shift 2
    xargs -P "$(nproc)" -I{} "$cc" "${flags[@]}" "$@" -c "$source/$from/{}.c" -o "$out/$to/{}.o"
}
# shellcheck disable=SC2086 # a list of words
printf '%s\n' $elf | sed 's/\.c$//' |
    compile elfutils/libelf elf -std=gnu99 -D_GNU_SOURCE -DHAVE_CONFIG_H -I "$out/elf" \
        -I "$source/elfutils/libelf" -I "$source/elfutils/lib" -I "$source/zlib" \
        -idirafter "$out/kernel"
(cd "$source/zlib" && printf '%s\n' *.c) | sed 's/\.c$//' |
    compile zlib z -DHAVE_HIDDEN -DHAVE_UNISTD_H -DHAVE_STDARG_H -D_LARGEFILE64_SOURCE=1

ar crsD "$out/libelf.a" "$out"/elf/*.o
ar crsD "$out/libz.a" "$out"/z/*.o
cp "$source"/elfutils/libelf/{libelf,gelf,nlist,elf}.h "$source"/zlib/{zlib,zconf}.h "$out/include/"
rm -r "$out/elf" "$out/z"
touch "$out/complete"
echo "$out"
