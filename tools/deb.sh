#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
# Makes the Debian package of the slowpath command and its agent. Prints where it is.
#
#   tools/deb.sh TARGET_DIRECTORY [BINARY]
#
# Without BINARY the command is built in TARGET_DIRECTORY/package, with no path of this machine
# in it. The same source gives the same bytes: times are those of the last commit, or
# SOURCE_DATE_EPOCH. MAINTAINER names who answers for the package, SLOWPATH_VERSION another version.
set -euo pipefail
cd "$(dirname "$0")/.."

target_directory=${1:?usage: tools/deb.sh TARGET_DIRECTORY [BINARY]}
binary=${2-}
export SOURCE_DATE_EPOCH=${SOURCE_DATE_EPOCH:-$(git log -1 --format=%ct)}
: "${MAINTAINER:=slowpath <slowpath@users.noreply.github.com>}"
version=$(sed -n '/^\[workspace.package\]/,/^\[/s/^version = "\(.*\)"$/\1/p' Cargo.toml)
homepage=$(sed -n '/^\[workspace.package\]/,/^\[/s/^repository = "\(.*\)"$/\1/p' Cargo.toml)
version=${SLOWPATH_VERSION:-$version}
architecture=$(dpkg --print-architecture)

if [[ -z $binary ]]; then
    (
        # shellcheck source=tools/remap.sh
        source tools/remap.sh
        cargo build --release --locked -p slowpath --target-dir "$target_directory/package" >&2
    )
    binary=$target_directory/package/release/slowpath
fi

umask 022
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
stage=$work/stage
mkdir -p "$stage/DEBIAN" "$work/debian"
strip --strip-unneeded --remove-section=.comment -o "$work/slowpath" "$binary"
SLOWPATH_RUN=$binary tools/install.sh "$work/slowpath" "$stage" /usr

doc=$stage/usr/share/doc/slowpath
date=$(LC_ALL=C date -u -R -d "@$SOURCE_DATE_EPOCH")
cat >"$doc/changelog.Debian" <<EOF
slowpath ($version) unstable; urgency=medium

  * Packaged from the source of this version (see changelog.gz).

 -- $MAINTAINER  $date
EOF
install -m 0644 CHANGELOG.md "$doc/changelog"
tools/notices.py >"$doc/third-party.txt"
# Policy 12.3 and 12.7: what is longer than 4 kB is compressed.
find "$doc" -type f \( -name 'changelog*' -o -size +4k \) -exec gzip -9n {} +
install -m 0644 packaging/debian/copyright "$doc/copyright"

# dpkg-shlibdeps wants to be where a source package is.
printf 'Source: slowpath\n\nPackage: slowpath\nArchitecture: any\n' >"$work/debian/control"
depends=$(cd "$work" && dpkg-shlibdeps -O "stage/usr/bin/slowpath" 2>/dev/null | sed 's/^shlibs:Depends=//')

install -m 0755 packaging/debian/{postinst,prerm,postrm} "$stage/DEBIAN/"
echo /etc/slowpath/agent.toml >"$stage/DEBIAN/conffiles"
(cd "$stage" && find . -type f ! -path './DEBIAN/*' ! -path './etc/*' -printf '%P\n' |
    LC_ALL=C sort | xargs md5sum) >"$stage/DEBIAN/md5sums"
# Policy 5.6.20: in KiB, every file rounded up, a directory counting one.
size=$(find "$stage" ! -path "$stage/DEBIAN*" -printf '%y %s\n' |
    awk '{ n += $1 == "f" ? int(($2 + 1023) / 1024) : 1 } END { print n }')
sed -e "s|@VERSION@|$version|" -e "s|@ARCHITECTURE@|$architecture|" -e "s|@MAINTAINER@|$MAINTAINER|" \
    -e "s|@SIZE@|$size|" -e "s|@DEPENDS@|$depends|" -e "s|@HOMEPAGE@|$homepage|" \
    packaging/debian/control.in >"$stage/DEBIAN/control"

package=$target_directory/slowpath_${version}_$architecture.deb
dpkg-deb --root-owner-group --threads-max=1 -Zxz --build "$stage" "$package" >&2
echo "$package"
