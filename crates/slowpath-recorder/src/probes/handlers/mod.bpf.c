/* SPDX-License-Identifier: GPL-2.0 */
/*
 * The recorder: what takes the lock of a chosen connection's sockets, in its order, with every
 * clock that TCP read. Each event stands in the ring in the order in which the lock was held.
 *
 * Where TCP reads its clock: tcp_mstamp_refresh() for callers outside tcp_output.c; inside it is inlined
 * into tcp_connect(), tcp_write_xmit(), tcp_tsq_write() and tcp_send_window_probe(). What it read stays in
 * tcp_clock_cache until it reads again, so that looking at the end of each of them, and
 * before each transmission, sees every value.
 */
#include "packet.bpf.h"
#include "options.bpf.h"
#include "request.bpf.h"

char LICENSE[] SEC("license") = "GPL";

/* Calls. */

SEC("fentry/tcp_connect")
int BPF_PROG(on_connect, struct sock *sk)
{
	struct known *known;

	if (!is_chosen(READ(sk, sock___rec, __sk_common.skc_num),
		       __builtin_bswap16(READ(sk, sock___rec, __sk_common.skc_dport))))
		return 0;
	known = open(sk, 0);
	if (!known)
		return 0;
	tell_options(sk, known, sk);
	if (READ(sk, tcp_sock___rec, fastopen_req))
		tell(sk, known, OTHER_CALL, FAST_OPEN, 0, 0, 0, 0);
	tell(sk, known, CALL, CONNECT, 0, 0, 0, 0);
	return 0;
}

SEC("fexit/inet_csk_accept")
int BPF_PROG(on_accept, struct sock *listener, struct proto_accept_arg *arg, struct sock *sk)
{
	struct known *known = sk ? find(sk) : NULL;

	if (known)
		tell(sk, known, CALL, ACCEPT, 0, 0, 0, 0);
	return 0;
}

#define CALLED(function, what, a, b, c, arguments...)                  \
	SEC("fentry/" #function)                                    \
	int BPF_PROG(begin_##function, struct sock *sk, ##arguments) \
	{                                                           \
		struct known *known = find(sk);                     \
		if (known)                                          \
			tell(sk, known, CALL, what, a, b, c, 0);    \
		return 0;                                           \
	}

struct msghdr___rec {
	unsigned int msg_flags;
} __attribute__((preserve_access_index));

CALLED(tcp_sendmsg, SEND, size, READ(msg, msghdr___rec, msg_flags),
       first_page(msg, READ(msg, msghdr___rec, msg_flags)), struct msghdr *msg, u64 size)
CALLED(tcp_recvmsg, RECEIVE, size, flags, 0, struct msghdr *msg, u64 size, int flags)
CALLED(tcp_shutdown, SHUTDOWN, how, 0, 0, int how)
CALLED(tcp_close, CLOSE, 0, 0, 0)

#define RETURNED(function, what, arguments...)                    \
	SEC("fexit/" #function)                                   \
	int BPF_PROG(end_##function, struct sock *sk, ##arguments) \
	{                                                         \
		struct known *known = find(sk);                   \
		if (known)                                        \
			tell(sk, known, CALL_END, what, ret, 0, 0, 0); \
		return 0;                                         \
	}

RETURNED(tcp_sendmsg, SEND, struct msghdr *msg, u64 size, int ret)
RETURNED(tcp_recvmsg, RECEIVE, struct msghdr *msg, u64 size, int flags, int *length, int ret)

SEC("fexit/tcp_close")
int BPF_PROG(end_tcp_close, struct sock *sk)
{
	struct known *known = find(sk);

	if (known)
		tell(sk, known, CALL_END, CLOSE, 0, 0, 0, 0);
	return 0;
}

SEC("fexit/inet_stream_connect")
int BPF_PROG(end_connect, struct socket *socket, void *address, int length, int flags, int ret)
{
	struct sock *sk = socket->sk;
	struct known *known = find(sk);

	if (known)
		tell(sk, known, CALL_END, CONNECT, ret, 0, 0, 0);
	return 0;
}

SEC("fexit/lock_sock_nested")
int BPF_PROG(on_lock, struct sock *sk)
{
	struct known *known = find(sk);

	if (known)
		tell_lock(sk, known, 0);
	return 0;
}

/* It has the lock again, and takes it where nobody sees: lock_sock_nested() is inlined there. */
SEC("fexit/sk_wait_data")
int BPF_PROG(after_wait, struct sock *sk)
{
	struct known *known = find(sk);

	if (known)
		tell_lock(sk, known, 1);
	return 0;
}

SEC("fentry/release_sock")
int BPF_PROG(on_release, struct sock *sk)
{
	struct known *known = find(sk);

	if (known)
		tell_state(sk, known, RELEASE, 0, 0);
	return 0;
}

SEC("fentry/__release_sock")
int BPF_PROG(on_drain, struct sock *sk)
{
	struct known *known = find(sk);

	if (known)
		tell_state(sk, known, DRAIN, 0, 0);
	return 0;
}

SEC("fexit/__release_sock")
int BPF_PROG(on_drained, struct sock *sk)
{
	struct known *known = find(sk);

	if (known)
		tell(sk, known, DRAINED, 0, 0, 0, 0, 0);
	return 0;
}

/* TCP_DEFERRED_ALL: bits 2 to 7 of enum tsq_enum. */
#define DEFERRED 0xfc

SEC("fentry/tcp_release_cb")
int BPF_PROG(on_callback, struct sock *sk)
{
	struct known *known = find(sk);
	u32 flags;

	if (!known)
		return 0;
	flags = READ(sk, sock___rec, sk_tsq_flags) & DEFERRED;
	known->callback = !!flags;
	if (flags)
		tell_state(sk, known, CALLBACK, 0, flags);
	return 0;
}

SEC("fexit/tcp_release_cb")
int BPF_PROG(after_callback, struct sock *sk)
{
	struct known *known = find(sk);

	if (known && known->callback) {
		known->callback = 0;
		tell_state(sk, known, CALLBACK_END, 0, 0);
	}
	return 0;
}

/* Packets. */

SEC("tp_btf/tcp_bad_csum")
int BPF_PROG(on_damaged, const struct sk_buff *skb)
{
	found_damaged(skb);
	return 0;
}

/* A reset that answers it is sent when its socket has gone already (tcp_done(), which nobody has any more). */
static __always_inline void handled(const void *sk, struct known *known, const void *skb)
{
	known->receiving = 0;
	if (known->gone)
		forget(sk, known);
	else
		tell_state(sk, known, RUN_END, PACKET, was_damaged(skb));
}

TWICE("fentry/tcp_v4_do_rcv", on_packet, RECEIVING, sk, packet(sk, known, 0, skb),
      struct sock *sk, struct sk_buff *skb)
TWICE("fexit/tcp_v4_do_rcv", after_packet, RECEIVED, sk,
      handled(sk, known, skb),
      struct sock *sk, struct sk_buff *skb)

TWICE("fentry/tcp_v6_do_rcv", on_packet_ipv6, RECEIVING, sk, packet(sk, known, 0, skb),
      struct sock *sk, struct sk_buff *skb)
TWICE("fexit/tcp_v6_do_rcv", after_packet_ipv6, RECEIVED, sk,
      handled(sk, known, skb), struct sock *sk,
      struct sk_buff *skb)

SEC("fentry/tcp_add_backlog")
int BPF_PROG(on_backlog, struct sock *sk, struct sk_buff *skb)
{
	struct known *known = find(sk);

	if (known)
		before_queued(known, skb);
	return 0;
}

SEC("fexit/tcp_add_backlog")
int BPF_PROG(after_backlog, struct sock *sk, struct sk_buff *skb, void *reason, bool dropped)
{
	struct known *known = find(sk);

	if (known && !dropped)
		tell_more(sk, known, QUEUED, READ(sk, sock___rec, sk_backlog.tail) != skb,
			  known->queued_from, known->queued_to, 0, known->queued, 0,
			  known->queued_like);
	return 0;
}

/* How much room there is for a window depends on what waits in the backlog. */
static __always_inline void window(const void *sk, struct known *known)
{
	if (LOAD(sk, sock___rec, sk_backlog.len) != known->backlog)
		tell(sk, known, WINDOW, 0, 0, 0, 0, 0);
}

BOTH("fentry/__tcp_select_window", before_window, sk, window(sk, known), struct sock *sk)

/* Clocks and transmissions. */

TWICE("fexit/tcp_mstamp_refresh", on_clock, CLOCKED, tp, clock(tp, known), struct tcp_sock *tp)
TWICE("fexit/tcp_write_xmit", after_write, WRITTEN, sk, clock(sk, known), struct sock *sk)
TWICE("fentry/tcp_xmit_retransmit_queue", before_again, SENDING_AGAIN, sk, clock(sk, known),
      struct sock *sk)

static __always_inline void sent(const void *sk, struct known *known, const void *skb)
{
	const struct tcp_skb_cb *cb =
		(const void *)((const char *)skb + bpf_core_field_offset(struct sk_buff___rec, cb));

	clock(sk, known);
	known->sent = 1;
	known->slowed = 0;
	tell(sk, known, SENT, 0, LOAD(cb, tcp_skb_cb, seq), LOAD(cb, tcp_skb_cb, end_seq), 0,
	     (LOAD(sk, inet_sock___rec, inet_id.counter) & 0xffff) |
		     (u32)LOAD(cb, tcp_skb_cb, tcp_flags) << 24);
}

TWICE("fentry/__tcp_transmit_skb", on_sent, SENDING, sk, sent(sk, known, skb), struct sock *sk,
      struct sk_buff *skb)

/* NET_XMIT_CN: the queue has dropped something, of this connection or another one. TCP makes nothing of it but tcp_enter_cwr(). */
#define CONGESTED 2

static __always_inline void handed_over(const void *sk, struct known *known, int ret)
{
	tell(sk, known, MEMORY, 0, ret ? ret : known->slowed ? CONGESTED : 0, 0, 0, 0);
}

TWICE("fexit/__tcp_transmit_skb", after_sent, HANDED_OVER, sk, handed_over(sk, known, ret),
      struct sock *sk, struct sk_buff *skb, int clone, unsigned int gfp, u32 rcv_nxt, int ret)

BOTH("fentry/tcp_enter_cwr", on_slowed, sk, known->slowed = 1, struct sock *sk)

/* Its header is complete; __tcp_transmit_skb() has made it. */
static __always_inline void named(const void *sk, struct known *known, const void *skb)
{
	if (known->ipv6)
		tell_more(sk, known, NAMED, 0, 0, 0, 0, 0, 0, alike(skb));
}

TWICE("fentry/inet6_csk_xmit", on_named, NAMING, sk, named(sk, known, skb), struct sock *sk,
      struct sk_buff *skb)

/* What is to be sent again has not left yet: skb_still_in_host_queue(). */

static __always_inline void busy(const void *sk, struct known *known, int ret)
{
	/* A loss probe got that far, even if the window has shrunk (-EAGAIN). */
	known->sent = 1;
	if (ret != -EBUSY)
		return;
	tell(sk, known, BUSY, 0, 0, 0, 0, 0);
}

TWICE("fexit/__tcp_retransmit_skb", after_again, SENT_AGAIN, sk, busy(sk, known, ret),
      struct sock *sk, struct sk_buff *skb, int segments, int ret)

SEC("fentry/tcp_send_loss_probe")
int BPF_PROG(on_probe, struct sock *sk)
{
	struct known *known = find(sk);

	if (known)
		known->sent = 0;
	return 0;
}

SEC("fexit/tcp_send_loss_probe")
int BPF_PROG(after_probe, struct sock *sk)
{
	struct known *known = find(sk);

	if (known && !known->sent)
		tell(sk, known, BUSY, 1, 0, 0, 0, 0);
	return 0;
}

/* Who reads jiffies late in a run, and leaves nothing or not always. */

BOTH("fentry/tcp_send_delayed_ack", before_delayed_ack, sk, known->delayed_ack = bpf_jiffies64(),
     struct sock *sk)
BOTH("fentry/cubictcp_cong_avoid", before_cubic, sk, known->cubic = bpf_jiffies64(),
     struct sock *sk)

/* A tick came after its beginning: it is sent at once the sooner the later it is, so that now will do. */
static __always_inline void delayed_ack(const void *sk, struct known *known)
{
	if (!LOAD(sk, inet_connection_sock___rec, icsk_ack.pending))
		known->delayed_ack = bpf_jiffies64();
}

BOTH("fexit/tcp_send_delayed_ack", after_delayed_ack, sk, delayed_ack(sk, known), struct sock *sk)

/* A tick came between its beginning and what it noted itself. */
static __always_inline void cubic(const void *sk, struct known *known)
{
	const struct bictcp *bic =
		(const void *)((const char *)sk + OFFSET(inet_connection_sock___rec, icsk_ca_priv));
	u32 noted = LOAD(bic, bictcp, last_time);

	if ((s32)(noted - known->cubic) > 0)
		known->cubic = noted;
}

BOTH("fexit/cubictcp_cong_avoid", after_cubic, sk, cubic(sk, known), struct sock *sk)

/* Timers and what was put off. */

#define KEEPALIVE                                                                              \
	(bpf_core_field_exists(struct inet_connection_sock___rec, icsk_keepalive_timer) ?        \
		 OFFSET(inet_connection_sock___rec, icsk_keepalive_timer) :                     \
		 OFFSET(sock___rec, sk_timer))

#define TIMED(function, what_, type, offset)                                                         \
	SEC("fentry/" #function)                                                               \
	int BPF_PROG(begin_##function, type *timer)                                            \
	{                                                                                      \
		void *sk = (char *)timer - (offset);                                             \
		struct known *known = find(sk);                                                \
		if (!known)                                                                    \
			return 0;                                                              \
		known->inside |= TIMERS << what_;                                              \
		tell(sk, known, TIMER, what_, 0, 0, 0, 0);                                     \
		return 0;                                                                      \
	}                                                                                      \
	SEC("fexit/" #function)                                                                \
	int BPF_PROG(end_##function, type *timer)                                              \
	{                                                                                      \
		void *sk = (char *)timer - (offset);                                             \
		struct known *known = find(sk);                                                \
		if (known)                                                                     \
			leave(sk, known, TIMERS << what_, TIMER);                              \
		return 0;                                                                      \
	}

TIMED(tcp_write_timer, 0, struct timer_list, OFFSET(inet_connection_sock___rec, icsk_retransmit_timer))
TIMED(tcp_delack_timer, 1, struct timer_list, OFFSET(inet_connection_sock___rec, icsk_delack_timer))
TIMED(tcp_keepalive_timer, 2, struct timer_list, KEEPALIVE)
TIMED(tcp_pace_kick, 3, struct hrtimer, OFFSET(tcp_sock___rec, pacing_timer))
TIMED(tcp_compressed_ack_kick, 4, struct hrtimer, OFFSET(tcp_sock___rec, compressed_ack_timer))

#define HANDLED(function, what_)                                                               \
	SEC("fexit/" #function)                                                                \
	int BPF_PROG(handled_##function, struct sock *sk)                                      \
	{                                                                                      \
		struct known *known = find(sk);                                                \
		if (known)                                                                     \
			leave_timer(sk, known, what_);                                         \
		return 0;                                                                      \
	}

HANDLED(tcp_write_timer_handler, 0)
HANDLED(tcp_delack_timer_handler, 1)

/* All that the timer of compressed ACKs does. */
BOTH("fexit/tcp_send_ack", after_ack, sk, leave_timer(sk, known, 4), struct sock *sk)

SEC("fentry/tcp_tsq_handler")
int BPF_PROG(on_small_queue, struct sock *sk)
{
	struct known *known = find(sk);

	if (known)
		tell(sk, known, SMALL_QUEUE, 0, 0, 0, 0, 0);
	return 0;
}

SEC("fexit/tcp_tsq_handler")
int BPF_PROG(after_small_queue, struct sock *sk)
{
	struct known *known = find(sk);

	if (known)
		tell_state(sk, known, RUN_END, SMALL_QUEUE, 0);
	return 0;
}

SEC("fexit/tcp_timewait_state_process")
int BPF_PROG(after_time_wait, struct inet_timewait_sock *tw, struct sk_buff *skb,
	     const struct tcphdr *tcp, u32 *isn, int status)
{
	const struct tcp_skb_cb *cb = (const void *)((const char *)skb + OFFSET(sk_buff___rec, cb));
	struct stub it = stub(tw);

	it.id = __builtin_bswap16(READ(network(skb), iphdr, id));
	it.like = is_ipv6(skb) ? alike(skb) : 0;
	it.mark = mark(skb);
	it.from = READ(cb, tcp_skb_cb, seq);
	it.acknowledges = READ(cb, tcp_skb_cb, ack_seq);
	it.begins = READ(tw, sock_common___rec, skc_tw_snd_nxt);
	it.expects = READ(tw, sock_common___rec, skc_tw_rcv_nxt);
	tell_stub(&it, TIME_WAIT, status, 0);
	return 0;
}

/*
 * RFC 9293, 3.5.2: what comes for no socket is answered by a reset, which begins where it
 * acknowledges, or acknowledges it.
 */
static __always_inline void reset(const struct sock *sk, const void *skb)
{
	const struct tcp_skb_cb *cb = (const void *)((const char *)skb + OFFSET(sk_buff___rec, cb));
	u8 flags = READ(cb, tcp_skb_cb, tcp_flags);
	struct known *known = sk ? find(sk) : NULL;
	u32 begins = flags & ACK ? READ(cb, tcp_skb_cb, ack_seq) : 0;
	u32 expects = flags & ACK ? 0 : READ(cb, tcp_skb_cb, end_seq);
	struct stub it;

	if (known && !(flags & RST))
		tell(sk, known, ANSWERED_BY_RESET, 0, begins, expects, 0, 0);
	/* A listener stands for no socket; of time wait is told above. */
	if (sk && READ(sk, sock___rec, __sk_common.skc_state) != LISTEN)
		return;
	it = addressed(skb);
	it.from = READ(cb, tcp_skb_cb, seq);
	it.acknowledges = READ(cb, tcp_skb_cb, ack_seq);
	it.begins = begins;
	it.expects = expects;
	/* Resets are not answered. */
	tell_stub(&it, TIME_WAIT, flags & RST ? UNANSWERED : RESET, 0);
}

/* A reset without ACK that comes for no socket, where somebody listens (RFC 9293, 3.10.7.2). */
SEC("fentry/tcp_rcv_state_process")
int BPF_PROG(on_listener, struct sock *sk, struct sk_buff *skb)
{
	const struct tcp_skb_cb *cb = (const void *)((const char *)skb + OFFSET(sk_buff___rec, cb));

	if (READ(sk, sock___rec, __sk_common.skc_state) == LISTEN &&
	    (READ(cb, tcp_skb_cb, tcp_flags) & (RST | ACK)) == RST)
		reset(sk, skb);
	return 0;
}

SEC("fentry/tcp_v4_send_reset")
int BPF_PROG(on_reset, const struct sock *sk, struct sk_buff *skb)
{
	reset(sk, skb);
	return 0;
}

SEC("fentry/tcp_v6_send_reset")
int BPF_PROG(on_reset_ipv6, const struct sock *sk, struct sk_buff *skb)
{
	reset(sk, skb);
	return 0;
}

SEC("tp_btf/tcp_destroy_sock")
int BPF_PROG(on_gone, struct sock *sk)
{
	struct known *known = find(sk);

	if (known && known->receiving)
		known->gone = 1;
	else if (known)
		forget(sk, known);
	return 0;
}
