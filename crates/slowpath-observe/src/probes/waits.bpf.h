/* SPDX-License-Identifier: GPL-2.0 */
/*
 * What data waits for, at either end: judged at each segment received and at the end of each
 * call, from what the socket shows then. Included by fill.bpf.h, in its middle.
 */
#ifndef SLOWPATH_WAITS_H
#define SLOWPATH_WAITS_H

/* What unsent data waits for. */
enum wait {
	WAIT_NOTHING, /* the announced window or a repair: others count these */
	WAIT_CWND,
	WAIT_NAGLE,
	WAIT_ZERO,
};

/* TCP_NAGLE_CORK, include/net/tcp.h */
#define NAGLE_CORK 2

/*
 * What `unsent` bytes wait for, after the tests of tcp_write_xmit in another order: the
 * announced window (tcp_snd_wnd_test), a repair, Nagle (tcp_nagle_test with
 * tcp_minshall_check), and what remains: the congestion window, pacing or the device.
 */
static __noinline u32 wait_of(struct tcp_sock *tp, const struct connection *c, u32 unsent)
{
	u32 mss = tp->mss_cache, nxt = tp->snd_nxt, una = tp->snd_una, out = tp->packets_out;
	u32 wnd = tp->snd_wnd, next = unsent < mss ? unsent : mss;
	u8 nonagle;

	if ((s32)(una + wnd - nxt) < (s32)next)
		return out && wnd ? WAIT_NOTHING : WAIT_ZERO;
	if (c->ca_state >= CA_RECOVERY)
		return WAIT_NOTHING;
	if (unsent >= mss)
		return WAIT_CWND;
	nonagle = BPF_CORE_READ_BITFIELD(tp, nonagle);
	if (nonagle & NAGLE_CORK)
		return WAIT_NAGLE;
	if (!nonagle && out && (s32)(tp->snd_sml - una) > 0 && (s32)(tp->snd_sml - nxt) <= 0)
		return WAIT_NAGLE;
	return WAIT_CWND;
}

/*
 * An event: what had waited since the event before is counted. `called` is what the call
 * that just ended has added to what is `unsent`, so that only older data counts. Each segment event shows what
 * held until it, since only segments received and calls change that, but for timers.
 */
static __always_inline void count_wait(struct connection *c, struct tcp_sock *tp, u32 now,
				       u32 unsent, u32 called)
{
	u32 mark = c->wait_mark;

	if (!unsent) {
		if (mark) {
			c->wait_mark = 0;
			if (c->waited)
				c->waits.zero_open = 0;
		}
		return;
	}
	c->wait_mark = now;
	if (mark && (s32)(unsent - called) > 0) {
		u32 wait = wait_of(tp, c, unsent - called);
		u32 spent = elapsed(mark, now);

		if (wait == WAIT_ZERO) {
			if (!c->waits.zero_open) {
				c->waits.zero_open = 1;
				__sync_fetch_and_add(&c->waits.zero_windows, 1);
			}
			__sync_fetch_and_add(&c->waits.zero_jiffies, spent);
			c->waited = 1;
			return;
		}
		if (c->waited)
			c->waits.zero_open = 0;
		if (spent && wait) {
			c->waited = 1;
			/* a call may be counted on another processor */
			if (wait == WAIT_CWND)
				__sync_fetch_and_add(&c->waits.cwnd_jiffies, spent);
			else
				__sync_fetch_and_add(&c->waits.nagle_jiffies, spent);
		}
	}
}

/* Whether most of what the peer may have sent is unread: over three times what it still may. `nxt` is rcv_nxt. */
static __always_inline bool much_unread(struct tcp_sock *tp, u32 nxt, u32 unread)
{
	s32 left;

	if (!unread)
		return 0;
	left = tp->rcv_wup + tp->rcv_wnd - nxt;
	return left <= 0 || unread / 3 > (u32)left;
}

/* An event: the time since which too much was unread is counted. */
static __always_inline void count_unread(struct connection *c, struct sock *sk, struct tcp_sock *tp,
					u32 now)
{
	u32 mark = c->unread_mark, spent, nxt;

	if (!mark && all_read(sk))
		return;
	spent = mark ? elapsed(mark, now) : 0;
	if (spent) {
		c->waited = 1;
		__sync_fetch_and_add(&c->waits.unread_jiffies, spent);
	}
	nxt = tp->rcv_nxt;
	if (much_unread(tp, nxt, nxt - tp->copied_seq))
		c->unread_mark = now;
	else if (mark)
		c->unread_mark = 0;
}

/* Windows up to this many segments are what a connection begins with (RFC 6928). */
#define INITIAL_WINDOW 10

/*
 * An event: whether data was sent after an idle time. The last data was sent more than a
 * retransmission timeout after the event before this one (as tcp_slow_start_after_idle_check
 * has it), so what is in flight began after nothing was for that long.
 */
static __always_inline void note_idle(struct connection *c, struct tcp_sock *tp, u32 now)
{
	s32 gap = tp->lsndtime - c->last_event;

	if (unlikely(gap > 2) && c->last_event && (u32)gap > tp->inet_conn.icsk_rto) {
		u32 cwnd = tp->snd_cwnd;

		c->waits.burst_start = tp->snd_una;
		c->waits.burst_bytes = cwnd > INITIAL_WINDOW ? cwnd * tp->mss_cache : 0;
	}
	c->last_event = now;
}

/*
 * What the MPTCP connection of a subflow waits for, as bits of record.flags; 0 of any other socket. Its window
 * is its own (mptcp_check_allow_tx): what it holds never reaches the subflow, whose queue is empty meanwhile, and what it
 * has received it has taken from the subflow. A connection that fell back to TCP keeps an old end of the window, behind
 * what it sent since.
 */
static __always_inline u8 multipath_waits(struct tcp_sock *tp)
{
	struct mptcp_subflow_context *subflow;
	struct mptcp_sock *mptcp;
	u64 nxt, unsent, next;
	u8 flags = 0;
	s64 left;

	/* first what `fill` reads the cache line of: is_mptcp lies in one that it needs for nothing else */
	subflow = tp->inet_conn.icsk_ulp_data;
	if (!subflow || !bpf_core_field_exists(tp->is_mptcp) || !tp->is_mptcp ||
	    !bpf_core_type_exists(struct mptcp_subflow_context))
		return 0;
	mptcp = (struct mptcp_sock *)BPF_CORE_READ(subflow, conn);
	if (!mptcp)
		return 0;
	nxt = BPF_CORE_READ(mptcp, snd_nxt);
	unsent = BPF_CORE_READ(mptcp, write_seq) - nxt;
	left = BPF_CORE_READ(mptcp, wnd_end) - nxt;
	next = unsent < tp->mss_cache ? unsent : tp->mss_cache;
	if (left >= 0 && (u64)left < next)
		flags = RECORD_MPTCP_WINDOW;
	if (bpf_core_field_exists(mptcp->bytes_consumed)) { /* Linux 6.10 */
		u64 unread = BPF_CORE_READ(mptcp, bytes_received) - BPF_CORE_READ(mptcp, bytes_consumed);

		left = BPF_CORE_READ(mptcp, rcv_wnd_sent.counter) - BPF_CORE_READ(mptcp, ack_seq);
		if (unread && (left <= 0 || unread / 3 > (u64)left))
			flags |= RECORD_MPTCP_UNREAD;
	}
	return flags;
}

/* Copies the waits, those that go on included; `copied`: the caller has copied those that
 * ended. A wait that goes on is added only where the next event will count it, too. */
static __always_inline void fill_waits(struct record *r, struct tcp_sock *tp,
				       const struct connection *c, u32 now)
{
	u32 zero = 0, unread = 0, syn = 0;

	if (r->state == TCP_ESTABLISHED && r->unsent && c->wait_mark && !r->snd_wnd)
		zero = wait_of(tp, c, r->unsent) == WAIT_ZERO ? 1 + elapsed(c->wait_mark, now) : 0;
	if (c->unread_mark) {
		unread = elapsed(c->unread_mark, now);
		r->flags |= RECORD_BUSY;
	}
	if (r->state == TCP_SYN_SENT) {
		syn = r->total_retrans;
		r->flags |= RECORD_BUSY;
	}
	if (!c->waited) {
		if (!zero && !unread && !syn)
			return;
		__builtin_memset(&r->waits, 0, sizeof(r->waits));
	}
	r->flags |= RECORD_WAITS;
	if (zero) {
		r->waits.zero_jiffies += zero - 1;
		if (!r->waits.zero_open)
			r->waits.zero_windows++;
	}
	r->waits.unread_jiffies += unread;
	if (syn) {
		r->waits.syn_retransmits = syn;
		r->waits.syn_wait_ms = (r->at_ns - r->start_ns) / 1000000;
	}
}

#endif
