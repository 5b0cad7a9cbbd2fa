/* SPDX-License-Identifier: GPL-2.0 */
/*
 * Whose turn it is, and how long each turn took: the peer's from the last write of this end's application
 * to the first data that arrives and acknowledges all of it, this end's from the last data that
 * arrived to the next write. Data that arrives without acknowledging all that was written left the
 * peer before it had the request, and what is written before all data was read does not answer it: such
 * an exchange is not timed but counted as overlapping. Included by connection.bpf.h.
 *
 * Almost no event reads a clock, which would cost as much as all the rest of it. TCP reads one for itself
 * whenever it sends (tcp_mstamp), and RACK keeps when the data that was acknowledged
 * last was sent and how long that took: the sum is when the acknowledgment arrived, and the
 * answer with it. The clock is read where an answer arrives later than the ACK of its request, and at
 * the end of a message of several segments (PSH).
 */
#ifndef SLOWPATH_TURNS_H
#define SLOWPATH_TURNS_H

/* include/net/tcp.h */
struct tcp_skb_cb {
	__u32 seq;
	__u32 end_seq;
	__u8 tcp_flags; /* wider in later kernels */
	__u32 ack_seq;
} __attribute__((preserve_access_index));

#define TCPHDR_FIN 0x01
#define TCPHDR_PSH 0x08

/* Of this many a tick is at most 2 %: what began before the agent did is known by ticks only. */
#define SEED_TICKS 50

static __always_inline bool any_turns(const struct turns *t)
{
	return t->peer.count || t->here.count;
}

static __always_inline void end_turn(struct answers *answers, struct latest_turns *latest, u32 side,
				     u64 us)
{
	u32 number = answers->count, capped = us < ~0u ? us : ~0u;

	answers->sum_us += us;
	answers->count = number + 1;
	latest->lengths[number & (LATEST - 1)][side] = capped;
	if (capped > answers->max_us)
		answers->max_us = capped;
}

/* The answer came with the acknowledgment of its request, which the kernel has processed since. */
static __always_inline void settle_answer(struct turns *t, struct latest_turns *latest,
					  struct tcp_sock *tp, u64 now)
{
	u64 arrived = tp->rack.mstamp + tp->rack.rtt_us;

	t->by_ack = 0;
	if (unlikely(arrived < t->since_us || arrived > now)) {
		/* without SACK, or a retransmission that is ambiguous (tcp_rack_advance) */
		t->by_clock = 1;
		t->whose = TURN_CROSSED;
		return;
	}
	end_turn(&t->peer, latest, SIDE_PEER, arrived - t->since_us);
	t->since_us = arrived;
}

/*
 * The application has written, if write_seq moved: noted by the end of the call, or by a segment that
 * arrives before that. tcp_write_xmit has refreshed tcp_mstamp, even where nothing could be sent.
 * `written` is write_seq.
 */
static __always_inline void note_write(struct connection *c, struct sock *sk, struct tcp_sock *tp,
				       u32 written)
{
	struct turns *t = &c->turns;
	u64 now;

	if (written == t->written)
		return;
	t->written = written;
	now = tp->tcp_mstamp;
	if (t->whose == TURN_HERE) {
		if (t->by_ack)
			settle_answer(t, &c->latest, tp, now);
		/* what has not been read, but for a FIN, is not what it answers */
		if (!all_read(sk) && tp->rcv_nxt - tp->copied_seq > 1)
			t->overlapping++;
		else if (t->whose == TURN_HERE && now >= t->since_us)
			end_turn(&t->here, &c->latest, SIDE_HERE, now - t->since_us);
	}
	t->whose = TURN_PEER;
	t->since_us = now;
}

/* A segment came; the kernel has not processed it. `una` is snd_una. */
static __always_inline void note_segment(struct connection *c, struct tcp_sock *tp,
					 struct sk_buff *skb, u32 una)
{
	const struct tcp_skb_cb *cb = (void *)&skb->cb;
	struct turns *t = &c->turns;
	u32 end = cb->end_seq, flags = cb->tcp_flags;
	u64 now;

	if (end - cb->seq == (flags & TCPHDR_FIN) || (s32)(end - tp->rcv_nxt) <= 0)
		return; /* no data, or none that is new */
	if (t->whose == TURN_PEER) {
		u32 ack = cb->ack_seq;

		if (ack != t->written) {
			t->overlapping++;
			t->whose = TURN_CROSSED;
			return;
		}
		t->whose = TURN_HERE;
		if (ack != una && !t->by_clock) {
			t->by_ack = 1;
			return;
		}
		now = bpf_ktime_get_ns() / 1000;
		end_turn(&t->peer, &c->latest, SIDE_PEER, now - t->since_us);
		t->since_us = now;
		return;
	}
	if (t->whose == TURN_CROSSED)
		return;
	if (t->by_ack) /* the answer goes on: tcp_mstamp is of its part before */
		settle_answer(t, &c->latest, tp, tp->tcp_mstamp);
	t->since_us = t->whose == TURN_HERE && !(flags & TCPHDR_PSH) ? tp->tcp_mstamp :
								       bpf_ktime_get_ns() / 1000;
	t->whose = TURN_HERE;
}

/*
 * Whose turn it is where data went both ways within one tick: this end's, if the segment that acknowledged all
 * it had sent carried data. snd_wl1 is that segment's sequence number (tcp_update_wl); of an ACK without data
 * it is rcv_nxt.
 */
static __always_inline u8 turn_within_tick(struct tcp_sock *tp)
{
	if (tp->snd_una != tp->write_seq || tp->snd_wl1 == tp->rcv_nxt)
		return TURN_PEER;
	return TURN_HERE;
}

/*
 * A connection older than the agent: who sent data last, if that was long enough ago for ticks to
 * measure it.
 */
static __always_inline void seed_turn(struct turns *t, struct tcp_sock *tp, const struct shared *s)
{
	u32 now = (u32)bpf_jiffies64();
	u32 sent = tp->data_segs_out ? now - tp->lsndtime : ~0u;
	u32 came = tp->data_segs_in ? now - tp->inet_conn.icsk_ack.lrcvtime : ~0u;
	u32 ago = sent < came ? sent : came;

	t->written = tp->write_seq;
	if (ago == ~0u || ago < SEED_TICKS || !s->hz)
		return;
	if (sent == came)
		t->whose = turn_within_tick(tp);
	else
		t->whose = sent < came ? TURN_PEER : TURN_HERE;
	t->since_us = bpf_ktime_get_ns() / 1000 - (u64)ago * 1000000 / s->hz;
}

/* Of the record's own copy: an answer whose arrival is known by now is counted. */
static __always_inline void fill_turns(struct record *r, struct tcp_sock *tp)
{
	if (r->turns.by_ack)
		settle_answer(&r->turns, &r->latest, tp, tp->tcp_mstamp);
	/* a call and a segment on two processors may have noted their events in the wrong order */
	if (r->turns.whose == TURN_PEER && !r->unsent &&
	    (s32)(tp->inet_conn.icsk_ack.lrcvtime - tp->lsndtime) > 1)
		r->turns.whose = TURN_CROSSED;
}

#endif
