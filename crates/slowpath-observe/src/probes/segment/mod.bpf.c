/* SPDX-License-Identifier: GPL-2.0 */
/*
 * RTT samples, from tcp_probe: it fires on entry to tcp_rcv_established, before the
 * segment is processed, so each event accounts for the sample that the segment before it
 * gave, and notes what this segment's sample could mean. It also counts what unsent data
 * has waited for until now, how long data that was received has not been read, and whose turn
 * it is.
 */
#include "../connection.bpf.h"

/*
 * Whether this ACK came after a silence as long as a delay less some queueing. The last segment of a
 * burst is the only one in flight when its ACK comes, and was behind the others in their queues: its sample
 * is long, the ACK before it came just now, and no receiver waited for anything.
 */
static __always_inline bool after_silence(struct tcp_sock *tp, u32 now)
{
	struct shared *s = shared_page();
	u32 ticks = now - tp->rcv_tstamp;

	return s && (u64)ticks * 1000000 >= (u64)s->late_margin_us * s->hz;
}

/* SOCK_NOSPACE, include/linux/net.h: a writer was refused, and there is no room yet */
#define NO_SPACE (1 << 2)
/* TCP_CHRONO_BUSY, include/linux/tcp.h: neither of the two that limit */
#define CHRONO_BUSY 1

/* Whether a writer was refused, and has no room yet. */
static __always_inline bool writer_blocked(struct sock *sk)
{
	struct socket *socket = sk->sk_socket;

	return socket && socket->flags & NO_SPACE;
}

/*
 * A segment came: a writer has waited for room in the send buffer until now, although all that
 * is in it is under way, both windows have room and nothing is being repaired. The kernel's
 * chronograph may stand still meanwhile, while few segments in flight pass for a full congestion
 * window (tcp_is_cwnd_limited in slow start); where it runs, it counts. It has lasted since data was sent last, or since the
 * segment before.
 */
static __noinline void count_full(struct connection *c, struct tcp_sock *tp, u32 now, u32 out)
{
	u32 since;

	if (out >= tp->snd_cwnd || c->ca_state >= CA_RECOVERY)
		return;
	if (BPF_CORE_READ_BITFIELD(tp, chrono_type) != CHRONO_BUSY)
		return;
	if ((s32)(tp->snd_una + tp->snd_wnd - tp->snd_nxt) < (s32)tp->mss_cache)
		return;
	since = tp->lsndtime;
	if ((s32)(c->last_event - since) > 0)
		since = c->last_event;
	since = elapsed(since, now);
	if (since) {
		c->waited = 1;
		c->waits.full_jiffies += since;
	}
}

/*
 * An ACK while only what a timer sent again is in flight (tcp_packets_in_flight): was it
 * delayed? Its RTT sample does not show it: a receiver that had the data already echoes an older
 * timestamp, at once.
 */
static __noinline void count_repair(struct connection *c, struct tcp_sock *tp,
				    const struct tcp_skb_cb_head *cb, u32 now)
{
	struct shared *s = shared_page();
	u64 waited;

	if (!s || !s->hz || cb->seq != cb->end_seq ||
	    tp->packets_out - tp->sacked_out - tp->lost_out + tp->retrans_out != 1)
		return;
	waited = (u64)elapsed(tp->lsndtime, now) * 1000000 / s->hz;
	if (waited > (u64)c->rtt_min_us + s->late_margin_us) {
		c->waits.late_after_loss++;
		c->waited = 1;
	}
}

/* A segment arrived before the call that wrote has ended. */
static __noinline void note_write_before_its_end(struct connection *c, struct sock *sk,
						 struct tcp_sock *tp)
{
	note_write(c, sk, tp, tp->write_seq);
}

SEC("tp_btf/tcp_probe")
int BPF_PROG(segment, struct sock *sk, struct sk_buff *skb)
{
	struct connection *c = bpf_sk_storage_get(&connections, sk, 0, 0);
	u32 srtt, mdev, una, sample, ack, now, written, unsent, out;
	struct tcp_sock *tp;
	bool blocked;

	if (!c)
		return 0;
	tp = tcp_socket(sk);
	if (!tp)
		return 0;
	srtt = tp->srtt_us;
	mdev = tp->mdev_us;
	una = tp->snd_una;
	ack = c->ack;
	sample = pending_sample(c, srtt, mdev, una);
	if (sample) {
		u32 least = c->rtt_min_us;

		c->srtt_us = srtt;
		c->mdev_us = mdev;
		c->rtt_sum_us += sample;
		c->rtt_count++;
		if (sample < least)
			c->rtt_min_us = least = sample;
		if (ack & ACK_LONE) {
			struct shared *s = shared_page();

			c->lone_sum_us += sample;
			c->lone_count++;
			if (s && sample > least + s->late_margin_us) {
				c->late_sum_us += sample;
				c->late_count++;
				if (ack & ACK_HELD) {
					c->held_sum_us += sample;
					c->held_count++;
				}
			}
		}
	}
	c->snd_una = una;
	now = (u32)bpf_jiffies64();
	written = tp->write_seq;
	unsent = unsent_of(sk, tp, written);
	count_wait(c, tp, now, unsent, 0);
	count_unread(c, sk, tp, now);
	out = tp->packets_out;
	blocked = out && !unsent && writer_blocked(sk);
	if (unlikely(blocked))
		count_full(c, tp, now, out);
	note_idle(c, tp, now);
	ack = out > 1 ? ACK_CROWD : 0;
	if (out == 1) {
		struct tcp_skb_cb_head *cb = (void *)&skb->cb;

		if (cb->seq == cb->end_seq && (!(c->ack & ACK_CROWD) || after_silence(tp, now))) {
			ack = ACK_LONE;
			if (unsent || blocked)
				ack |= ACK_HELD;
		}
	}
	if (unlikely(c->ca_state == CA_LOSS))
		count_repair(c, tp, (void *)&skb->cb, now);
	c->ack = ack;
	if (unlikely(written != c->turns.written))
		note_write_before_its_end(c, sk, tp);
	note_segment(c, tp, skb, una);
	changed(c, sk);
	return 0;
}

char LICENSE[] SEC("license") = "GPL";
