/* SPDX-License-Identifier: GPL-2.0 */
/*
 * The seed: gives storage to the connections and listeners that are older than the agent. Walks the
 * TCP sockets of the network namespace of whoever opens the iterator (Linux 5.9).
 */
#include "../listener.bpf.h"

SEC("iter/tcp")
int seed(struct bpf_iter__tcp *ctx)
{
	struct sock_common *skc = ctx->sk_common;
	struct shared *s = shared_page();
	struct connection *c;
	struct tcp_sock *tp;
	struct sock *sk;

	if (!skc || !s)
		return 0;
	tp = bpf_skc_to_tcp_sock(skc);
	if (!tp)
		return 0;
	sk = (struct sock *)tp;
	switch (skc->skc_state) {
	case TCP_TIME_WAIT:
	case TCP_CLOSE:
	case TCP_NEW_SYN_RECV:
		return 0;
	case TCP_LISTEN:
		if (!bpf_sk_storage_get(&listeners, sk, 0, 0) && !meet_listener(sk))
			__sync_fetch_and_add(&s->storage_failed, 1);
		return 0;
	}
	if (bpf_sk_storage_get(&connections, sk, 0, 0))
		return 0;
	c = bpf_sk_storage_get(&connections, sk, 0, BPF_SK_STORAGE_GET_F_CREATE);
	if (!c) {
		__sync_fetch_and_add(&s->storage_failed, 1);
		return 0;
	}
	c->cookie = bpf_get_socket_cookie(sk);
	c->srtt_us = tp->srtt_us;
	c->mdev_us = tp->mdev_us;
	c->snd_una = tp->snd_una;
	c->rtt_min_us = tp->rtt_min.s[0].v;
	c->ca_state = BPF_CORE_READ_BITFIELD(&tp->inet_conn, icsk_ca_state);
	c->ca_since_ns = s->now_ns;
	c->waits.seen_reord = tp->reord_seen;
	c->waits.seen_ce = tp->delivered_ce;
	c->sends.min = c->receives.min = ~0u;
	__sync_fetch_and_add(&s->seeded, 1);
	__sync_fetch_and_add(&s->live, 1);
	return 0;
}

char LICENSE[] SEC("license") = "GPL";
