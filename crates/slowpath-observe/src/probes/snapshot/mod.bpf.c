/* SPDX-License-Identifier: GPL-2.0 */
/*
 * The snapshot: walks the socket storage, so the sockets of every network namespace in
 * one pass and no empty hash bucket, and copies each connection that changed since it was
 * last copied into the mapped area. No socket lock is taken.
 */
#include "../connection.bpf.h"

struct {
	__uint(type, BPF_MAP_TYPE_ARRAY);
	__uint(map_flags, BPF_F_MMAPABLE);
	__uint(max_entries, 1); /* set before load */
	__type(key, u32);
	__type(value, struct record);
} area SEC(".maps");

SEC("iter/bpf_sk_storage_map")
int snapshot(struct bpf_iter__bpf_sk_storage_map *ctx)
{
	struct connection *c = ctx->value;
	struct sock *sk = ctx->sk;
	struct shared *s;
	struct tcp_sock *tp;
	struct record *r;
	u32 segments, calls, index;
	u8 state;

	s = shared_page();
	if (!s)
		return 0;
	if (ctx->meta->seq_num == 0 || !sk) /* called once more, without a socket, at the end */
		s->jiffies = bpf_jiffies64();
	if (!sk || !c)
		return 0;
	if (c->epoch == s->epoch) {
		s->repeats++;
		return 0;
	}
	tp = bpf_skc_to_tcp_sock(sk);
	if (!tp)
		return 0;

	state = sk->__sk_common.skc_state;
	segments = tp->segs_in + tp->segs_out;
	calls = (u32)(c->sends.count + c->receives.count);
	if (segments == c->copied_segments && calls == c->copied_calls && state == c->copied_state &&
	    !BPF_CORE_READ_BITFIELD(tp, chrono_type) && !c->unread_mark && !s->emit_all) {
		c->epoch = s->epoch;
		s->visited++;
		return 0;
	}
	if (s->thinned && !s->emit_all && awaited(c->marked, s->list_epoch + 1)) {
		c->epoch = s->epoch; /* a later poll's */
		s->visited++;
		return 0;
	}
	index = s->area_used;
	r = bpf_map_lookup_elem(&area, &index);
	if (!r) {
		s->left_over++; /* the caller walks again */
		return 0;
	}
	s->area_used = index + 1;
	s->visited++;
	c->epoch = s->epoch;
	c->copied_segments = segments;
	c->copied_calls = calls;
	c->copied_state = state;
	copy_calls(r, c);
	fill(r, sk, tp, c, s->now_ns, s->late_margin_us);
	r->connection = (u64)c;
	if (r->flags & (RECORD_MPTCP_WINDOW | RECORD_MPTCP_UNREAD))
		c->copied_state = 0; /* no state: it goes on without an event, so that the next walk copies it again */
	if (s->thinned == THINNED_WALKS && r->flags & RECORD_BUSY) {
		/* it changes without an event */
		struct rates *rates = rate_table();

		if (rates)
			c->marked = s->epoch + draw_gap(rates, rate_of(rates, c->cookie));
	}
	return 0;
}

char LICENSE[] SEC("license") = "GPL";
