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

/*
 * An ACK while only what a timer sent again is in flight (tcp_packets_in_flight): was it
 * delayed? Its RTT sample does not show it: a receiver that had the data already echoes an older
 * timestamp, at once.
 */
static __always_inline void count_repair(struct connection *c, struct tcp_sock *tp,
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

SEC("tp_btf/tcp_probe")
int BPF_PROG(segment, struct sock *sk, struct sk_buff *skb)
{
	struct connection *c = bpf_sk_storage_get(&connections, sk, 0, 0);
	u32 srtt, mdev, una, sample, ack, now, written, unsent, nxt, out;
	struct tcp_sock *tp;

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
	unsent = written - tp->snd_nxt;
	count_wait(c, tp, now, unsent, 0);
	nxt = tp->rcv_nxt;
	count_unread(c, tp, now, nxt);
	out = tp->packets_out;
	if (!unsent)
		count_full(c, sk, tp, now, out);
	note_idle(c, tp, now);
	ack = out > 1 ? ACK_CROWD : 0;
	if (out == 1) {
		struct tcp_skb_cb_head *cb = (void *)&skb->cb;

		if (cb->seq == cb->end_seq && (!(c->ack & ACK_CROWD) || after_silence(tp, now))) {
			ack = ACK_LONE;
			if (unsent)
				ack |= ACK_HELD;
			else {
				struct socket *socket = sk->sk_socket;

				if (socket && socket->flags & NO_SPACE)
					ack |= ACK_HELD;
			}
		}
	}
	if (c->ca_state == CA_LOSS)
		count_repair(c, tp, (void *)&skb->cb, now);
	c->ack = ack;
	note_write(c, tp, written);
	note_segment(c, tp, skb, nxt, una);
	changed(c, sk);
	return 0;
}

char LICENSE[] SEC("license") = "GPL";
