# shellcheck shell=bash
# SPDX-License-Identifier: Apache-2.0
# What set-ups and servers.sh use. R: the folder of this run; HERE: the folder of this file.
C="ip netns exec sp-client" S="ip netns exec sp-server"
# By this name, whatever interpreter runs the check: labels name the process python3.
PY=/usr/bin/python3
B="$PY $HERE/behaviours.py"
PG=$(find /usr/lib/postgresql -maxdepth 2 -name bin 2>/dev/null | sort -V | tail -n 1)
SSH_OPTIONS="-i $R/run/client_key -o StrictHostKeyChecking=no -o UserKnownHostsFile=/dev/null -o LogLevel=ERROR"
export C S PY B PG SSH_OPTIONS

# An emulated path between both hosts; options of path.py.
path() {
    rm -f "$R/run/path.out"
    $PY "$HERE/path.py" sp-client sp-server "$@" >"$R/run/path.out" 2>&1 &
    waits grep -qs '^up' "$R/run/path.out"
}

# Until a command succeeds, or 15 s.
waits() {
    local attempt
    for attempt in {1..300}; do
        "$@" && return
        sleep 0.05
    done
    echo "$attempt attempts: $*" >&2
    return 1
}

# Until something listens on each of these ports of the server.
listening() {
    local port
    for port in "$@"; do waits listens "$port" || return; done
}
listens() { $S ss -Hltn "sport = :$1" | grep -q .; }

# quota PERCENT COMMAND: a command that gets so much of one CPU.
quota() {
    local group=/sys/fs/cgroup/cpu/slowpath-answers
    if [[ -d /sys/fs/cgroup/cpu ]]; then
        mkdir -p "$group"
        echo 100000 >"$group/cpu.cfs_period_us"
        echo "$1"000 >"$group/cpu.cfs_quota_us"
    else
        group=/sys/fs/cgroup/slowpath-answers
        mkdir -p "$group"
        echo "$1"000 100000 >"$group/cpu.max"
    fi
    (echo "$BASHPID" >"$group/cgroup.procs" && exec "${@:2}")
}
no_quota() { rmdir /sys/fs/cgroup/{,cpu/}slowpath-answers 2>/dev/null || true; }

# limit HOST SYSCTL VALUE, and as it was before.
limit() {
    ip netns exec "$1" sysctl -n "$2" >"$R/run/$1-$2"
    ip netns exec "$1" sysctl -qw "$2=$3"
}
unlimit() { ip netns exec "$1" sysctl -qw "$2=$(cat "$R/run/$1-$2")"; }
