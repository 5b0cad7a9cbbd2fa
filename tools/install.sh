#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
# Lays the command and everything that belongs to it below a root.
#
#   tools/install.sh BINARY ROOT PREFIX
#
# ROOT may be empty: this machine. PREFIX is /usr or /usr/local. The configuration goes to
# ROOT/etc/slowpath and replaces none that is there. To show its manual and completions, BINARY
# is run (or SLOWPATH_RUN, where BINARY cannot run here).
set -euo pipefail
cd "$(dirname "$0")/.."

binary=${1:?usage: tools/install.sh BINARY ROOT PREFIX}
root=${2-}
prefix=${3:?usage: tools/install.sh BINARY ROOT PREFIX}
run=${SLOWPATH_RUN:-$binary}
share=$root$prefix/share
# Debian's own packages put zsh's functions elsewhere than what is installed by hand.
zsh=site-functions
[[ $prefix != /usr ]] || zsh=vendor-completions

made=$(mktemp -d)
trap 'rm -rf "$made"' EXIT
put() { install -D -m "$1" "$2" "$3"; }

put 0755 "$binary" "$root$prefix/bin/slowpath"

"$run" man --pages "$made/man"
for page in "$made"/man/*.1; do
    gzip -9n "$page"
    put 0644 "$page.gz" "$share/man/man1/$(basename "$page").gz"
done

for shell in bash zsh fish; do
    "$run" completions "$shell" >"$made/$shell"
done
put 0644 "$made/bash" "$share/bash-completion/completions/slowpath"
put 0644 "$made/zsh" "$share/zsh/$zsh/_slowpath"
put 0644 "$made/fish" "$share/fish/vendor_completions.d/slowpath.fish"

for unit in slowpath-agent slowpath-server; do
    sed "s,^ExecStart=/usr/bin/,ExecStart=$prefix/bin/," "packaging/systemd/$unit.service" >"$made/unit"
    put 0644 "$made/unit" "$root$prefix/lib/systemd/system/$unit.service"
done
[[ -e $root/etc/slowpath/agent.toml ]] ||
    put 0644 packaging/agent.toml "$root/etc/slowpath/agent.toml"

put 0644 packaging/prometheus/slowpath.rules.yaml "$share/slowpath/prometheus/slowpath.rules.yaml"
put 0644 packaging/grafana/slowpath.json "$share/slowpath/grafana/slowpath.json"

for file in scenarios/{sim,lab,replay}/*.{toml,txt,csv}; do
    [[ ! -e $file ]] || put 0644 "$file" "$share/slowpath/$file"
done

for document in README.md docs/guide/{install,two-hosts,upgrade}.md docs/reference/{alerts,cli,log-format,metrics,server,verdicts}.md; do
    put 0644 "$document" "$share/doc/slowpath/$(basename "$document")"
done
