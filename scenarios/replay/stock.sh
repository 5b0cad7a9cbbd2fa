#!/bin/sh
# SPDX-License-Identifier: Apache-2.0
# Connections of a stock kernel, recorded by BPF only and captured at both ends: the runtime of crates/slowpath/tests/record_guest.rs, inside
# `slowpath lab guest`. Two namespaces, delay and loss between them; each 0.2 s a transfer and a dialogue are begun, the later the larger.
#
#   stock.sh DELAY LOSS CONGESTION PAIRS [HOW [FAMILY [SYSCTLS [OFFLOADS]]]]
#
# DELAY may have a jitter ("25ms 6ms"): packets overtake each other; LOSS may be followed by whatever else netem can do ("1% duplicate 2%", "0% rate 8mbit limit 30"). HOW is an option of slowpath record, as --light. FAMILY is ipv4, ipv6, mapped (the server has
# one socket for both families, and the dialogues' clients have sockets of IPv6 that speak IPv4), both (the same server, transfers over IPv6, such dialogues),
# or loopback (of IPv4, without any network).
# SYSCTLS are some of net.ipv4, both ends' (tcp_sack=0 tcp_wmem=4096,16384,30000). OFFLOADS is what ethtool -K sets of both ends' devices: with "tso off gro on" the
# sender's cuts packets, and the receiver's makes one of several. With "below" before it not of the VLANs: packets are cut behind the queue.
#
# It needs slowpath, tcpdump and a program `workload` (serve ADDRESS CONNECTIONS, send ADDRESS BYTES CHUNK, ask ADDRESS TIMES REQUEST ANSWER). It leaves run.rec,
# its events, client.pcap, server.pcap and summary.json in /out.
set -eu
delay=$1 loss=$2 congestion=$3 pairs=$4 how=${5:---port=5001} family=${6:-ipv4} sysctls=${7:-} offloads=${8:-}
from=client here=here.2 there=there.2
case $family in
    loopback) listen=127.0.0.1 send=127.0.0.1 ask=127.0.0.1 from=server here=lo there=lo ;;
    ipv4) listen=10.0.0.2 send=10.0.0.2 ask=10.0.0.2 ;;
    mapped) listen='[::]' send=10.0.0.2 ask='[::ffff:10.0.0.2]' ;;
    both) listen='[::]' send='[fd00:5::2]' ask='[::ffff:10.0.0.2]' ;;
    ipv6) listen='[fd00:5::2]' send='[fd00:5::2]' ask='[fd00:5::2]' ;;
    *) echo "stock.sh: no family $family" >&2; exit 2 ;;
esac
export listen send ask from
ip netns add client
ip netns add server
ip link add here netns client address 02:00:00:00:00:01 type veth peer name there netns server address 02:00:00:00:00:02
offload() {
    # shellcheck disable=SC2086
    [ -z "$offloads" ] || ip netns exec "$1" ethtool -K "$2" ${offloads#below }
}
end() {
    # The capture is on a VLAN above the queue: it sees packets as they are sent, also those that netem drops.
    ip -n "$1" link set lo up
    offload "$1" "$2"
    ip -n "$1" link set "$2" up
    ip -n "$1" link add link "$2" name "$2.2" type vlan id 2
    [ "$offloads" != "${offloads#below }" ] || offload "$1" "$2.2"
    ip -n "$1" addr add "$3/24" dev "$2.2"
    ip -n "$1" -6 addr add "$4/64" dev "$2.2" nodad
    ip -n "$1" link set "$2.2" up
    # A burst of losses would take every question for the other's address.
    for address in $5; do
        ip -n "$1" neigh replace "$address" lladdr "$6" dev "$2.2"
    done
    # shellcheck disable=SC2086
    tc -n "$1" qdisc add dev "$2" root netem limit 10000 delay $delay loss $loss
    # What one connection learns is not to be in the next one's way: its recording does not have it.
    for it in tcp_no_metrics_save=1 tcp_congestion_control="$congestion" $sysctls; do
        ip netns exec "$1" sh -c "echo $(echo "${it#*=}" | tr , ' ') >/proc/sys/net/ipv4/${it%%=*}"
    done
}
end client here 10.0.0.1 fd00:5::1 '10.0.0.2 fd00:5::2' 02:00:00:00:00:02
end server there 10.0.0.2 fd00:5::2 '10.0.0.1 fd00:5::1' 02:00:00:00:00:01
ip netns exec $from tcpdump -i $here -n -s 120 -U -Z root --time-stamp-precision=nano -w /out/client.pcap tcp 2>/tmp/client &
ip netns exec server tcpdump -i $there -n -s 120 -U -Z root --time-stamp-precision=nano -w /out/server.pcap tcp 2>/tmp/server &
for name in client server; do
    until grep -q listening /tmp/$name; do sleep 0.05; done
done
cat >/tmp/connections <<'END'
set -eu
ip netns exec server workload serve $listen:5001 $((2 * $1)) >/tmp/ready &
until grep -q ready /tmp/ready; do sleep 0.05; done
i=0
while [ $i -lt "$1" ]; do
    ip netns exec $from workload send $send:5001 $((20000 + i * 60000)) 65536 >/dev/null &
    ip netns exec $from workload ask $ask:5001 $((i + 5)) $((100 + i * 300)) $((100000 / (i + 1))) >/dev/null &
    i=$((i + 1))
    sleep 0.2
done
wait
END
slowpath record "$how" --out /out/run.rec --events /out/events --port 5001 --json -- sh /tmp/connections "$pairs" >/out/summary.json
# Let the captures have their last packets.
sleep 0.5
