#!/bin/sh
# SPDX-License-Identifier: Apache-2.0
# What programs do with sockets besides sending and receiving, recorded by BPF on a stock kernel: a part of crates/slowpath/tests/record_guest.rs, inside
# `slowpath lab guest`. Two namespaces, delay and loss between them; each kind of connection TIMES times, one after the other, all kinds at once.
#
#   programs.sh DELAY LOSS TIMES
#
# It needs slowpath and a program `workload` (programs-serve ADDRESS CONNECTIONS [options|late], programs KIND ADDRESS TIMES). It leaves run.rec, its events and
# summary.json in /out.
set -eu
ip netns add client
ip netns add server
ip link add here netns client type veth peer name there netns server
end() {
    ip -n "$1" link set "$2" up
    ip -n "$1" addr add "$3/24" dev "$2"
    tc -n "$1" qdisc add dev "$2" root netem delay "$delay" loss "$loss" limit 10000
    # What earlier connections left in tcp_metrics is recorded (tcp_no_metrics_save stays 0).
    ip netns exec "$1" sh -c "echo cubic >/proc/sys/net/ipv4/tcp_congestion_control"
}
delay=$1 loss=$2
end client here 10.0.0.1
end server there 10.0.0.2
cat >/tmp/connections <<'END'
set -eu
# "both" has two connections each time, "late" nine in all.
ip netns exec server workload programs-serve 10.0.0.2:5001 $((10 * $1)) >/tmp/ready &
ip netns exec server workload programs-serve 10.0.0.2:5002 $1 options >/tmp/ready-options &
ip netns exec server workload programs-serve 10.0.0.2:5003 9 late >/tmp/ready-late &
for it in /tmp/ready /tmp/ready-options /tmp/ready-late; do
    until grep -q ready $it; do sleep 0.05; done
done
for kind in options waiting file reset limits halves both fast refused; do
    ip netns exec client workload programs $kind 10.0.0.2:5001 "$1" >/dev/null &
done
ip netns exec client workload programs before 10.0.0.2:5002 "$1" >/dev/null &
ip netns exec client workload programs late 10.0.0.2:5003 "$1" >/dev/null &
wait
END
slowpath record --port 5001 --port 5002 --port 5003 --out /out/run.rec --events /out/events --json -- sh /tmp/connections "$3" >/out/summary.json
