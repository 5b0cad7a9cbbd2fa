/* SPDX-License-Identifier: GPL-2.0 */
/*
 * Storage for a connection or a listener that is older than the agent, whoever found it.
 */
#ifndef SLOWPATH_SEED_H
#define SLOWPATH_SEED_H

#include "listener.bpf.h"
#include "owner.bpf.h"

/*
 * What waits already is counted from now on, not from the next event: of a reader that has stopped
 * there may be none for minutes.
 */
static __always_inline void begin_waits(struct connection *c, struct tcp_sock *tp)
{
	u32 now = (u32)bpf_jiffies64();

	if (tp->write_seq != tp->snd_nxt)
		c->wait_mark = now;
	if (much_unread(tp, tp->rcv_nxt, tp->rcv_nxt - tp->copied_seq))
		c->unread_mark = now;
}

static __always_inline void give_storage(struct sock *sk, struct tcp_sock *tp, struct shared *s)
{
	struct connection *c;

	if (!observed(sk, s))
		return;
	switch (sk->__sk_common.skc_state) {
	case TCP_TIME_WAIT:
	case TCP_CLOSE:
	case TCP_NEW_SYN_RECV:
		return;
	case TCP_LISTEN:
		if (!bpf_sk_storage_get(&listeners, sk, 0, 0) && !meet_listener(sk))
			__sync_fetch_and_add(&s->storage_failed, 1);
		remember_listener(sk);
		return;
	}
	if (bpf_sk_storage_get(&connections, sk, 0, 0))
		return;
	c = bpf_sk_storage_get(&connections, sk, 0, BPF_SK_STORAGE_GET_F_CREATE);
	if (!c) {
		__sync_fetch_and_add(&s->storage_failed, 1);
		return;
	}
	c->cookie = bpf_get_socket_cookie(sk);
	c->caller.socket_cgroup = cgroup_of_socket(sk);
	c->srtt_us = tp->srtt_us;
	c->mdev_us = tp->mdev_us;
	c->snd_una = tp->snd_una;
	c->rtt_min_us = tp->rtt_min.s[0].v;
	c->ca_state = BPF_CORE_READ_BITFIELD(&tp->inet_conn, icsk_ca_state);
	c->ca_since_ns = s->now_ns;
	c->waits.last_reord = tp->reord_seen;
	c->waits.last_ce = tp->delivered_ce;
	c->sends.min = c->receives.min = ~0u;
	begin_waits(c, tp);
	seed_turn(&c->turns, tp, s);
	__sync_fetch_and_add(&s->seeded, 1);
	__sync_fetch_and_add(&s->live, 1);
}

#endif
