#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
# Builds the laboratory kernel (lab/kernel) and puts it where `slowpath lab virtual` looks:
# ~/.cache/slowpath/lab. What is there and up to date is not built again.
#
#   tools/lab_kernel.sh [SOURCE [HZ]]
#
# SOURCE: the version of Debian's linux-source package, 6.12 unless given.
# HZ: timer ticks a second: 100, 250 (unless given), 300 or 1000.
set -euo pipefail
cd "$(dirname "$0")/.."

source=${1:-6.12}
hz=${2:-250}
case $hz in
    100 | 250 | 300 | 1000) ;;
    *)
        echo "lab_kernel.sh: HZ is 100, 250, 300 or 1000, not '$hz'" >&2
        exit 2
        ;;
esac

cache=${XDG_CACHE_HOME:-$HOME/.cache}/slowpath/lab
version=$(sed -n 's/^#define LAB_VERSION \([0-9]*\)$/\1/p' lab/kernel/driver/plan.h)
name=linux-$source-hz$hz-v$version
tree=$cache/build-$source-hz$hz
log=$cache/$name.log
archive=/usr/src/linux-source-$source.tar.xz
mkdir -p "$cache"
exec 9>"$cache/lock"
flock 9

if [[ ! -f $archive ]]; then
    echo "lab_kernel.sh: $archive is missing: apt-get install linux-source-$source" >&2
    exit 1
fi

# Everything that decides what comes out; the source package by its version, or by what its archive is.
package=$(dpkg-query -W -f '${Version}' "linux-source-$source" 2>/dev/null || stat -c '%s-%Y' "$archive")
ours() {
    find lab/kernel crates/slowpath-switch/src crates/slowpath-switch/include \
        crates/slowpath-switch/Cargo.toml tools/lab_kernel.sh -type f -print0 | sort -z
}
patches() { find lab/kernel/patches -type f -print0 | sort -z | xargs -0 sha256sum; }
key=$({ ours | xargs -0 sha256sum; echo "$package $hz"; rustc --version; gcc -dumpfullversion; } | sha256sum | cut -c 1-16)
if [[ -x $cache/$name && $(cat "$cache/$name.key" 2>/dev/null) == "$key" ]]; then
    echo "lab_kernel.sh: $cache/$name is up to date"
    exit 0
fi

failed() {
    echo "lab_kernel.sh: $1; the log is $log, its last lines:" >&2
    tail -n 15 "$log" >&2 || true
    exit 1
}
: >"$log"

# The source, patched; again if the package or a patch has changed.
from=$({ patches; echo "$package"; } | sha256sum | cut -c 1-16)
if [[ $(cat "$tree/.slowpath" 2>/dev/null) != "$from" ]]; then
    echo "lab_kernel.sh: unpacking Linux $source ($package)"
    rm -rf "$tree" "$tree.new"
    mkdir -p "$tree.new"
    tar -xf "$archive" -C "$tree.new" --strip-components 1 >>"$log" 2>&1 || failed "cannot unpack $archive"
    for patch in lab/kernel/patches/*.patch; do
        patch -d "$tree.new" -p1 --no-backup-if-mismatch <"$patch" >>"$log" 2>&1 ||
            failed "$patch does not fit this source"
    done
    mv "$tree.new" "$tree"
    echo "$from" >"$tree/.slowpath"
fi

echo "lab_kernel.sh: building the switch model"
cargo rustc -p slowpath-switch --release --locked --features freestanding \
    --crate-type staticlib --target-dir "$cache/target" \
    --config 'profile.release.panic="abort"' --config 'profile.release.lto="fat"' \
    >>"$log" 2>&1 || failed "the switch model cannot be built"
driver=$tree/drivers/net/slowpath
mkdir -p "$driver/include"
# Only what differs: make goes by times.
rsync_like() { cmp -s "$1" "$2" || cp "$1" "$2"; }
for file in lab/kernel/driver/*.[ch] lab/kernel/driver/Makefile lab/kernel/driver/Kconfig; do
    rsync_like "$file" "$driver/${file##*/}"
done
for file in lab/kernel/driver/include/*.h; do
    rsync_like "$file" "$driver/include/${file##*/}"
done
header=crates/slowpath-switch/include/slowpath_switch.h
rsync_like "$header" "$driver/${header##*/}"
# One object with what the driver calls and nothing else.
wanted=()
while read -r function; do
    wanted+=(-u "$function")
done < <(grep -o 'slowpath_fabric_[a-z]*(' "$header" | tr -d '(' | sort -u)
model=$cache/switch_model.o
{
    ld -r --gc-sections --strip-debug "${wanted[@]}" -o "$model" \
        "$cache/target/release/libslowpath_switch.a"
    objcopy --remove-section .llvmbc --remove-section .llvmcmd "$model"
} >>"$log" 2>&1 || failed "the switch model cannot be linked"
rsync_like "$model" "$driver/switch_model.o_shipped"

echo "lab_kernel.sh: building Linux $source for user mode, HZ=$hz (the first time some minutes)"
sed "s/^CONFIG_HZ_250=y$/CONFIG_HZ_$hz=y/" lab/kernel/config >"$tree/lab.config.new"
if ! cmp -s "$tree/lab.config.new" "$tree/lab.config" || [[ ! -f $tree/.config ]]; then
    mv "$tree/lab.config.new" "$tree/lab.config"
    make -C "$tree" ARCH=um KCONFIG_ALLCONFIG=lab.config allnoconfig >>"$log" 2>&1 ||
        failed "the kernel cannot be configured"
fi
while read -r option; do
    grep -qx "$option" "$tree/.config" || failed "Linux $source has no $option, or it lacks what it needs"
done < <(grep -x 'CONFIG_[A-Z0-9_]*=y' "$tree/lab.config")
# The same program from the same source, wherever and whenever.
export KBUILD_BUILD_TIMESTAMP=2000-01-01 KBUILD_BUILD_USER=slowpath KBUILD_BUILD_HOST=slowpath
make -C "$tree" ARCH=um -j"$(nproc)" linux >>"$log" 2>&1 || failed "the kernel cannot be built"
cp "$tree/linux" "$cache/$name.new"
mv "$cache/$name.new" "$cache/$name"
echo "$key" >"$cache/$name.key"
echo "lab_kernel.sh: $cache/$name"
