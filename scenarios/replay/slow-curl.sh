#!/bin/sh
# SPDX-License-Identifier: Apache-2.0
# One slow curl, recorded on a stock kernel, for docs/guide/curl-replayed.md: run it inside `slowpath lab guest`.
#
# Two namespaces, 5 ms from each to the other. The server is an agent of slowpath, whose metrics are fetched. Of what it sends, the
# first three packets with data of less than two full segments are dropped on arrival: one of the answer, and what is sent again
# for it, twice. It leaves curl.rec in /out.
set -eu
ip netns add client
ip netns add server
ip link add here netns client type veth peer name there netns server
end() {
    ip -n "$1" link set "$2" up
    ip -n "$1" link set lo up
    ip -n "$1" addr add "$3/24" dev "$2"
    tc -n "$1" qdisc add dev "$2" root netem delay 5ms limit 10000
}
end client here 10.0.0.1
end server there 10.0.0.2
ip netns exec client nft -f - <<'END'
table ip loss {
    chain arriving {
        type filter hook prerouting priority 0
        tcp sport 9464 ip length 100-2900 numgen inc mod 1000 < 3 drop
    }
}
END
ip netns exec server slowpath agent --tier inet-diag --log /tmp/log --metrics 10.0.0.2:9464 >/tmp/agent 2>&1 &
# From its own side nothing is lost.
until ip netns exec server curl --silent --output /tmp/metrics http://10.0.0.2:9464/metrics; do sleep 0.1; done
slowpath record --port 9464 --out /out/curl.rec -- ip netns exec client curl --silent --output /dev/null \
    --write-out 'curl: %{http_code}, %{size_download} bytes in %{time_total} s\n' http://10.0.0.2:9464/metrics
