#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
# Fetches the kernel that `slowpath lab guest` boots: Debian's stock cloud kernel of the
# series below, image and modules, into the user's cache. If the source package of the series is installed,
# the image of its very version: what one kernel records the other one replays. Nothing is installed, no
# configuration of apt is changed, and root is not needed.
#
#   tools/lab_guest.sh [--try] [--newest]
#
# --try: warn and succeed when it cannot be fetched.
# --newest: look for a newer build of the series even if one is there.
set -euo pipefail

series=6.12
meta=linux-image-cloud-amd64
cache=${XDG_CACHE_HOME:-${HOME-}/.cache}/slowpath/guest

try='' newest=''
for argument in "$@"; do
    case $argument in
    --try) try=1 ;;
    --newest) newest=1 ;;
    *)
        echo "usage: tools/lab_guest.sh [--try] [--newest]" >&2
        exit 2
        ;;
    esac
done

# The source that the laboratory's kernel is built from, or nothing.
wanted=$(dpkg-query -W -f '${Version}' "linux-source-$series" 2>/dev/null || true)
is_there() {
    [[ -z $newest && -e $cache/current/complete ]] || return 1
    [[ -z $wanted || $(readlink "$cache/current") == "$wanted" || -e $cache/none-$wanted ]]
}
if is_there; then
    exit 0
fi

give_up() {
    echo "lab_guest.sh: $1" >&2
    [[ -z $try ]] || exit 0
    exit 1
}
[[ $(uname -m) == x86_64 ]] || give_up "the guest's kernel is for x86-64"
for program in apt-get dpkg-deb depmod flock; do
    PATH=$PATH:/usr/sbin:/sbin command -v "$program" >/dev/null ||
        give_up "$program is missing; slowpath lab guest --kernel IMAGE --modules DIR takes another kernel"
done
[[ -z ${SLOWPATH_NO_INSTALL-} ]] || give_up "no kernel in $cache, and SLOWPATH_NO_INSTALL is set"

mkdir -p "$cache"
exec 9>"$cache/lock"
flock 9
if is_there; then
    exit 0
fi
work=$(mktemp -d "$cache/fetch.XXXXXX")
trap 'rm -rf "$work"' EXIT

# Debian's own stanzas with another suite's name. $1: the suite's name here; $2: the other.
copy_stanzas() {
    local file
    for file in /etc/apt/sources.list /etc/apt/sources.list.d/*.list; do
        [[ -r $file ]] || continue
        sed -En "s/^(deb[[:space:]]+(\[[^]]*\][[:space:]]+)?[^[:space:]]+[[:space:]]+)$1([[:space:]].*)/\1$2\3/p" "$file"
    done >"$work/sources/copied.list"
    for file in /etc/apt/sources.list.d/*.sources; do
        [[ -r $file ]] || continue
        awk -v RS= -v suite="$1" -v other="$2" '
            {
                named = 0
                count = split($0, lines, "\n")
                for (i = 1; i <= count; i++) {
                    if (tolower(lines[i]) ~ /^suites:/ && (lines[i] " ") ~ ("[ \t]" suite "[ \t]")) {
                        lines[i] = "Suites: " other
                        named = 1
                    }
                    if (tolower(lines[i]) ~ /^enabled:[ \t]*no/) { named = 0; break }
                }
                if (named) {
                    for (i = 1; i <= count; i++) print lines[i]
                    print ""
                }
            }' "$file"
    done >"$work/sources/copied.sources"
}

options=(-qq -o Acquire::Retries=1 -o Acquire::http::Timeout=20 -o Acquire::https::Timeout=20)
# The newest version of the series that apt knows of.
find_version() {
    apt-cache "${options[@]}" madison "$meta" 2>/dev/null |
        awk -F ' *[|] *' -v series="$series." 'index($2, series) == 1 { print $2 }' | sort -Vr | head -n 1
}

# The kernel package whose version is that of the source.
find_same() {
    [[ -n $wanted ]] || return 0
    apt-cache "${options[@]}" search --names-only "^linux-image-${series//./\\.}\\..*-cloud-amd64\$" 2>/dev/null |
        while read -r name _; do
            apt-cache "${options[@]}" madison "$name" |
                awk -F ' *[|] *' -v wanted="$wanted" '$2 == wanted { gsub(" ", "", $1); print $1 }'
        done | head -n 1
}

package=$(find_same || true)
if [[ -n $package ]]; then
    version=$wanted
else
    version=$(find_version)
fi
if [[ -z $version ]]; then
    codename=$(sed -n 's/^VERSION_CODENAME=//p' /etc/os-release)
    mkdir -p "$work/sources" "$work/lists/partial" "$work/archives/partial"
    copy_stanzas "$codename" "$codename-backports"
    grep -qs . "$work"/sources/* || give_up "no suite $codename in apt's sources to copy"
    options+=(-o "Dir::Etc::SourceList=/dev/null" -o "Dir::Etc::SourceParts=$work/sources"
        -o "Dir::State::Lists=$work/lists" -o "Dir::Cache=$work" -o "Dir::Cache::archives=$work/archives"
        -o "APT::Sandbox::User=")
    # A stanza that the user added may lack this suite: what counts is what is found.
    apt-get "${options[@]}" update 2>"$work/errors" >&2 || true
    version=$(find_version)
    package=$(find_same || true)
    [[ -z $package ]] || version=$wanted
fi
if [[ -z $version ]]; then
    reason=$(tail -n 1 "$work/errors" 2>/dev/null || true)
    give_up "apt finds no $meta of series $series, here or in backports${reason:+: $reason}"
fi
[[ -z $wanted || $version == "$wanted" ]] || touch "$cache/none-$wanted"
if [[ -e $cache/$version/complete ]]; then
    ln -sfn "$version" "$cache/current"
    exit 0
fi

[[ -n $package ]] || package=$(apt-cache "${options[@]}" show "$meta=$version" |
    sed -En "s/^Depends: .*(linux-image-${series//./\\.}[^ ,]*).*/\1/p" | head -n 1)
[[ -n $package ]] || give_up "$meta $version names no kernel package"
echo "lab_guest.sh: fetching $package $version into $cache" >&2
mkdir -p "$work/download" "$work/tree"
if ! (cd "$work/download" && apt-get "${options[@]}" -o APT::Sandbox::User= download "$package=$version" >&2); then
    give_up "cannot download $package"
fi
dpkg-deb -x "$work"/download/*.deb "$work/tree"
# A merged-/usr package keeps its modules there.
[[ -e $work/tree/lib ]] || ln -s usr/lib "$work/tree/lib"
release=$(basename "$work"/tree/lib/modules/*)
PATH=$PATH:/usr/sbin:/sbin depmod -b "$work/tree" "$release"
[[ -s $work/tree/boot/vmlinuz-$release ]] || give_up "$package holds no kernel for $release"
touch "$work/tree/complete"
rm -rf "${cache:?}/$version"
mv "$work/tree" "$cache/$version"
ln -sfn "$version" "$cache/current"
echo "lab_guest.sh: $release is ready" >&2
