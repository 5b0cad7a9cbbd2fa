/* SPDX-License-Identifier: GPL-2.0 */
/*
 * Entries to recovery and loss and the time spent there, from tcp_cong_state_set, which
 * fires before the new state is stored; what of it, and of the milder states, was
 * reordering, marks, or a burst after idle time.
 */
#include "../connection.bpf.h"

/* Duplicate ACKs that indicate a loss: TCP_FASTRETRANS_THRESH, include/net/tcp.h */
#define DUPLICATES 3

/* An episode ended: whose was its time? */
static __always_inline void leave(struct connection *c, struct tcp_sock *tp, u8 old, u8 new,
				  u64 spent)
{
	u32 reord = tp->reord_seen, ce = tp->delivered_ce;

	if (old == CA_CWR) {
		/* local congestion (tcp_enter_cwr) leads here, too, without a mark */
		if (ce != c->waits.last_ce) {
			c->waits.cwr_ns += spent;
			c->waited = 1;
		}
	} else if (old == CA_DISORDER || old == CA_RECOVERY) {
		/*
		 * Undone, and something was acknowledged meanwhile. Entered from CWR, recovery
		 * keeps CWR's high_seq (tcp_enter_recovery) and may end, undone, with the
		 * next duplicate ACK: its timestamp is older than the retransmission's, as
		 * the hole is still there (tcp_packet_delayed). Nothing was late then.
		 */
		bool undone = old == CA_RECOVERY && !tp->undo_marker &&
			      tp->snd_una != c->waits.last_una;

		if (reord != c->waits.last_reord || undone) {
			c->waits.reordering_ns += spent;
			c->waits.spurious += reord == c->waits.last_reord;
			c->waited = 1;
		}
	}
	c->waits.last_reord = reord;
	c->waits.last_ce = ce;
	if (c->waits.burst_open && old >= CA_RECOVERY) {
		c->waits.burst_ns += spent;
		c->waits.burst_open = new >= CA_RECOVERY;
	}
}

/* A red-black tree of 2^32 segments is no deeper (Documentation/core-api/rbtree.rst). */
#define DEEPEST 64

/*
 * How long the earliest segment outstanding has been under way since it was sent last, which is what the timer
 * measures (RFC 6298 section 5; tcp_rto_delta_us); 0 if there is none.
 */
static __always_inline u64 earliest_outstanding_ns(struct sock *sk, u64 now)
{
	struct rb_node *left, *node = BPF_CORE_READ(sk, tcp_rtx_queue.rb_node);
	struct sk_buff *earliest;
	u64 sent;

	if (!node)
		return 0;
	for (int depth = 0; depth < DEEPEST; depth++) {
		left = BPF_CORE_READ(node, rb_left);
		if (!left)
			break;
		node = left;
	}
	earliest = (void *)node - bpf_core_field_offset(struct sk_buff, rbnode);
	sent = BPF_CORE_READ(earliest, skb_mstamp_ns);
	return sent && now > sent ? now - sent : 0;
}

/* A loss: whether it is in the first window sent after an idle time. */
static __always_inline bool enter_in_burst(struct connection *c, struct tcp_sock *tp, u32 now)
{
	note_idle(c, tp, now);
	if (c->waits.burst_open || tp->packets_out <= INITIAL_WINDOW ||
	    tp->snd_una - c->waits.burst_start >= c->waits.burst_bytes)
		return c->waits.burst_open;
	c->waits.burst_bytes = 0;
	c->waits.burst_losses++;
	c->waits.burst_open = 1;
	c->waited = 1;
	return 1;
}

SEC("tp_btf/tcp_cong_state_set")
int BPF_PROG(recovery, struct sock *sk, u8 ca_state)
{
	struct connection *c = bpf_sk_storage_get(&connections, sk, 0, 0);
	struct tcp_sock *tp;
	u32 jiffies;
	u8 old;
	u64 now;

	if (!c)
		return 0;
	old = c->ca_state;
	if (old == ca_state)
		return 0;
	tp = bpf_skc_to_tcp_sock(sk);
	if (!tp)
		return 0;
	c->ca_state = ca_state;
	now = bpf_ktime_get_ns();
	if (old != CA_OPEN)
		leave(c, tp, old, ca_state, now - c->ca_since_ns);
	if (old == CA_RECOVERY)
		c->recovery_ns += now - c->ca_since_ns;
	else if (old == CA_LOSS)
		c->loss_ns += now - c->ca_since_ns;
	c->ca_since_ns = now;
	if (ca_state < CA_RECOVERY)
		return 0;
	jiffies = (u32)bpf_jiffies64();
	if (ca_state == CA_RECOVERY) {
		c->fast_recoveries++;
		c->waits.last_una = tp->snd_una;
		enter_in_burst(c, tp, jiffies);
	} else {
		struct shared *s = shared_page();

		c->loss_entries++;
		/* RFC 5681 3.2: three segments after the lost one indicate it */
		if (tp->packets_out <= DUPLICATES && tp->write_seq == tp->snd_nxt &&
		    sk->__sk_common.skc_state != TCP_SYN_SENT) {
			c->waits.few_losses++;
			c->waited = 1;
		}
		if (s && s->hz) {
			u32 sent = elapsed(tp->lsndtime, jiffies);
			u32 heard = elapsed(tp->rcv_tstamp, jiffies);
			u32 earliest = earliest_outstanding_ns(sk, now) * s->hz / 1000000000;
			u32 busy = elapsed(tp->chrono_start, jiffies), silent;

			/*
			 * Later data that was sent meanwhile does not shorten the wait, nor does a probe of the only segment
			 * (RFC 8985 section 7.3), which is sent again with it: something has been outstanding since the
			 * chronograph began to run.
			 */
			if (earliest > sent)
				sent = earliest;
			if (busy > sent && BPF_CORE_READ_BITFIELD(tp, chrono_type))
				sent = busy;
			silent = sent < heard ? sent : heard;

			c->rto_wait_us += (u64)silent * 1000000 / s->hz;
			if (enter_in_burst(c, tp, jiffies))
				c->waits.burst_ns += (u64)silent * 1000000000 / s->hz;
		}
	}
	return 0;
}

char LICENSE[] SEC("license") = "GPL";
