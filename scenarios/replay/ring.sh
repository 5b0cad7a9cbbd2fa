#!/bin/sh
# SPDX-License-Identifier: Apache-2.0
# The agent records connections of a stock kernel and keeps those that lost packets: the runtime of a test in crates/slowpath/tests/record_guest.rs, inside
# `slowpath lab guest`. Two namespaces with two paths between them, of which one loses packets; transfers over both, and dialogues,
# every second pair over IPv6.
#
#   ring.sh LOSS PAIRS
#
# It needs slowpath and a program `workload` (serve ADDRESS CONNECTIONS, send ADDRESS BYTES CHUNK, ask ADDRESS TIMES REQUEST ANSWER). It leaves what the agent kept in /out/kept, and what it said in /out/agent.
set -eu
loss=$1 pairs=$2
ip netns add client
ip netns add server
for path in 1 2; do
    ip link add "path$path" netns client type veth peer name "path$path" netns server
    for end in client:1 server:2; do
        space=${end%:*}
        ip -n "$space" link set "path$path" up
        ip -n "$space" addr add "10.0.$path.${end#*:}/24" dev "path$path"
        ip -n "$space" -6 addr add "fd00:$path::${end#*:}/64" dev "path$path" nodad
        lost="loss 0%"
        [ "$path" = 1 ] || lost="loss $loss"
        # shellcheck disable=SC2086 # two words
        tc -n "$space" qdisc add dev "path$path" root netem delay 5ms $lost limit 10000
    done
done
for space in client server; do
    # What one connection learns is not to be in the next one's way: its recording does not have it.
    ip netns exec "$space" sh -c "cd /proc/sys/net/ipv4; echo 1 >tcp_no_metrics_save; echo cubic >tcp_congestion_control"
done
# With what the unit gives it (packaging/systemd).
mkdir /out/kept
chown 47312 /out/kept
gives="-all,+bpf,+perfmon,+sys_ptrace"
setpriv --reuid 47312 --regid 47312 --clear-groups --inh-caps "$gives" --ambient-caps "$gives" --bounding-set "$gives" \
    slowpath agent --log none --interval 200ms --record "problem = FastRetransmit or problem = Timeout" --record-ports 5001,5002 --record-to /out/kept 2>/out/agent &
agent=$!
until grep -q "starts as process" /out/agent; do sleep 0.05; done
for path in 1 2; do
    ip netns exec server workload serve "[::]:500$path" $((2 * pairs)) >/tmp/ready$path &
    until grep -q ready /tmp/ready$path; do sleep 0.05; done
done
clients=
i=0
while [ $i -lt "$pairs" ]; do
    for path in 1 2; do
        server=10.0.$path.2:500$path
        [ $((i % 2)) = 0 ] || server="[fd00:$path::2]:500$path"
        ip netns exec client workload send "$server" 300000 65536 >/dev/null &
        clients="$clients $!"
        ip netns exec client workload ask "$server" 5 100 2000 >/dev/null &
        clients="$clients $!"
    done
    i=$((i + 1))
    sleep 0.3
done
# shellcheck disable=SC2086 # several
wait $clients
# Sockets that are closed still talk: those of ports 5001 and 5002 until only listeners (0A) and time wait (06) are left.
for space in client server; do
    while ip netns exec "$space" cat /proc/net/tcp /proc/net/tcp6 | grep -E ':138[9A] ' | grep -qvE ' (0A|06) [0-9A-F]{8}:'; do
        sleep 0.2
    done
done
# The agent looks at them once more.
sleep 3
kill -TERM $agent
wait $agent
