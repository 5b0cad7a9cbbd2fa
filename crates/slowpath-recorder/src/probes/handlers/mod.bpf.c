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
	struct tracked_socket *known;

	if (!is_chosen(READ(sk, sock___rec, __sk_common.skc_num),
		       __builtin_bswap16(READ(sk, sock___rec, __sk_common.skc_dport))))
		return 0;
	known = open(sk, 0);
	if (!known)
		return 0;
	put_options(sk, known, sk);
	if (READ(sk, tcp_sock___rec, fastopen_req))
		put_other(sk, FAST_OPEN);
	put_call(sk, known, CONNECT);
	return 0;
}

SEC("fexit/inet_csk_accept")
int BPF_PROG(on_accept, struct sock *listener, struct proto_accept_arg *arg, struct sock *sk)
{
	struct tracked_socket *known = sk ? find(sk) : NULL;

	if (known)
		put_call(sk, known, ACCEPT);
	return 0;
}

#define CALLED(function, action, arguments...)                       \
	SEC("fentry/" #function)                                    \
	int BPF_PROG(begin_##function, struct sock *sk, ##arguments) \
	{                                                           \
		struct tracked_socket *known = find(sk);                     \
		if (known)                                          \
			action;                                     \
		return 0;                                           \
	}

struct msghdr___rec {
	unsigned int msg_flags;
} __attribute__((preserve_access_index));

static __always_inline void put_transfer(const void *sk, struct tracked_socket *known, u32 call, u32 bytes,
					 u32 flags, u32 first)
{
	PUT(sk, known, transfer, event, TRANSFER, e->call = call, e->bytes = bytes,
	    e->flags = flags, e->first_page = first);
}

static __always_inline void put_shutdown(const void *sk, struct tracked_socket *known, u32 how)
{
	PUT(sk, known, shutdown_call, event, SHUTDOWN_CALL, e->how = how);
}

CALLED(tcp_sendmsg,
       put_transfer(sk, known, SEND, size, READ(msg, msghdr___rec, msg_flags),
		    first_page(msg, READ(msg, msghdr___rec, msg_flags))),
       struct msghdr *msg, u64 size)
CALLED(tcp_recvmsg, put_transfer(sk, known, RECEIVE, size, flags, 0), struct msghdr *msg, u64 size,
       int flags)
CALLED(tcp_shutdown, put_shutdown(sk, known, how), int how)
CALLED(tcp_close, put_call(sk, known, CLOSE))

static __always_inline void put_call_end(const void *sk, struct tracked_socket *known, u32 call, s32 result)
{
	PUT(sk, known, call_end, event, CALL_END, e->call = call, e->result = result);
}

#define RETURNED(function, what, arguments...)                    \
	SEC("fexit/" #function)                                   \
	int BPF_PROG(end_##function, struct sock *sk, ##arguments) \
	{                                                         \
		struct tracked_socket *known = find(sk);                   \
		if (known)                                        \
			put_call_end(sk, known, what, ret);       \
		return 0;                                         \
	}

RETURNED(tcp_sendmsg, SEND, struct msghdr *msg, u64 size, int ret)
RETURNED(tcp_recvmsg, RECEIVE, struct msghdr *msg, u64 size, int flags, int *length, int ret)

SEC("fexit/tcp_close")
int BPF_PROG(end_tcp_close, struct sock *sk)
{
	struct tracked_socket *known = find(sk);

	if (known)
		put_call_end(sk, known, CLOSE, 0);
	return 0;
}

SEC("fexit/inet_stream_connect")
int BPF_PROG(end_connect, struct socket *socket, void *address, int length, int flags, int ret)
{
	struct sock *sk = socket->sk;
	struct tracked_socket *known = find(sk);

	if (known)
		put_call_end(sk, known, CONNECT, ret);
	return 0;
}

SEC("fexit/lock_sock_nested")
int BPF_PROG(on_lock, struct sock *sk)
{
	struct tracked_socket *known = find(sk);

	if (known)
		put_lock(sk, known);
	return 0;
}

/* It has the lock again, and takes it where no program can attach: lock_sock_nested() is inlined there. */
SEC("fexit/sk_wait_data")
int BPF_PROG(after_wait, struct sock *sk)
{
	struct tracked_socket *known = find(sk);

	if (known)
		put_lock(sk, known);
	return 0;
}

SEC("fentry/release_sock")
int BPF_PROG(on_release, struct sock *sk)
{
	struct tracked_socket *known = find(sk);

	if (known)
		put_state(sk, known, RELEASE);
	return 0;
}

SEC("fentry/__release_sock")
int BPF_PROG(on_drain, struct sock *sk)
{
	struct tracked_socket *known = find(sk);

	if (known)
		put_state(sk, known, DRAIN);
	return 0;
}

SEC("fexit/__release_sock")
int BPF_PROG(on_drained, struct sock *sk)
{
	struct tracked_socket *known = find(sk);

	if (known)
		put(sk, known, DRAINED);
	return 0;
}

/* TCP_DEFERRED_ALL: bits 2 to 7 of enum tsq_enum. */
#define DEFERRED 0xfc

SEC("fentry/tcp_release_cb")
int BPF_PROG(on_callback, struct sock *sk)
{
	struct tracked_socket *known = find(sk);
	u32 flags;

	if (!known)
		return 0;
	flags = READ(sk, sock___rec, sk_tsq_flags) & DEFERRED;
	known->callback = !!flags;
	if (flags)
		PUT(sk, known, callback, snapshot.event, CALLBACK,
		    fill_state(&e->snapshot, sk, known), e->flags = flags);
	return 0;
}

SEC("fexit/tcp_release_cb")
int BPF_PROG(after_callback, struct sock *sk)
{
	struct tracked_socket *known = find(sk);

	if (known && known->callback) {
		known->callback = 0;
		put_state(sk, known, CALLBACK_END);
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

/* A reset that answers it is sent when its socket has gone already (tcp_done(), after which no process has it). */
static __always_inline void handled(const void *sk, struct tracked_socket *known, const void *skb)
{
	known->receiving = 0;
	if (known->gone)
		forget(sk, known);
	else
		put_run_end(sk, known, OF_PACKET, was_damaged(skb));
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
	struct tracked_socket *known = find(sk);

	if (known)
		before_queued(known, skb);
	return 0;
}

SEC("fexit/tcp_add_backlog")
int BPF_PROG(after_backlog, struct sock *sk, struct sk_buff *skb, void *reason, bool dropped)
{
	struct tracked_socket *known = find(sk);

	if (known && !dropped)
		PUT(sk, known, queued, event, QUEUED, e->begins = known->queued_begins,
		    e->ends = known->queued_ends, e->alike = known->queued_alike,
		    e->id = known->queued_id,
		    e->bits = known->queued_bits |
			      (READ(sk, sock___rec, sk_backlog.tail) != skb ? MERGED : 0));
	return 0;
}

/* How much room there is for a window depends on what waits in the backlog. */
static __always_inline void window(const void *sk, struct tracked_socket *known)
{
	if (LOAD(sk, sock___rec, sk_backlog.len) != known->backlog)
		put(sk, known, WINDOW);
}

BOTH("fentry/__tcp_select_window", before_window, sk, window(sk, known), struct sock *sk)

/* Clocks and transmissions. */

TWICE("fexit/tcp_mstamp_refresh", on_clock, CLOCKED, tp, clock(tp, known), struct tcp_sock *tp)
TWICE("fexit/tcp_write_xmit", after_write, WRITTEN, sk, clock(sk, known), struct sock *sk)
TWICE("fentry/tcp_xmit_retransmit_queue", before_again, SENDING_AGAIN, sk, clock(sk, known),
      struct sock *sk)

static __always_inline void sent(const void *sk, struct tracked_socket *known, const void *skb)
{
	const struct tcp_skb_cb *cb =
		(const void *)((const char *)skb + bpf_core_field_offset(struct sk_buff___rec, cb));

	clock(sk, known);
	known->sent = 1;
	known->slowed = 0;
	PUT(sk, known, sent, event, SENT, e->begins = LOAD(cb, tcp_skb_cb, seq),
	    e->ends = LOAD(cb, tcp_skb_cb, end_seq),
	    e->id = LOAD(sk, inet_sock___rec, inet_id.counter) & 0xffff);
}

TWICE("fentry/__tcp_transmit_skb", on_sent, SENDING, sk, sent(sk, known, skb), struct sock *sk,
      struct sk_buff *skb)

/* NET_XMIT_CN: the queue has dropped something, of this connection or another one. TCP makes nothing of it but tcp_enter_cwr(). */
#define CONGESTED 2

static __always_inline void handed_over(const void *sk, struct tracked_socket *known, int ret)
{
	PUT(sk, known, handed_over, event, HANDED_OVER,
	    e->result = ret ? ret : known->slowed ? CONGESTED : 0);
}

TWICE("fexit/__tcp_transmit_skb", after_sent, HANDING_OVER, sk, handed_over(sk, known, ret),
      struct sock *sk, struct sk_buff *skb, int clone, unsigned int gfp, u32 rcv_nxt, int ret)

BOTH("fentry/tcp_enter_cwr", on_slowed, sk, known->slowed = 1, struct sock *sk)

/* Its header is complete; __tcp_transmit_skb() has made it. */
static __always_inline void named(const void *sk, struct tracked_socket *known, const void *skb)
{
	if (known->ipv6)
		PUT(sk, known, named, event, NAMED, e->alike = alike(skb));
}

TWICE("fentry/inet6_csk_xmit", on_named, NAMING, sk, named(sk, known, skb), struct sock *sk,
      struct sk_buff *skb)

/* What is to be sent again has not left yet: skb_still_in_host_queue(). */

static __always_inline void busy(const void *sk, struct tracked_socket *known, int ret)
{
	/* A loss probe got that far, even if the window has shrunk (-EAGAIN). */
	known->sent = 1;
	if (ret != -EBUSY)
		return;
	put(sk, known, BUSY);
}

TWICE("fexit/__tcp_retransmit_skb", after_again, SENT_AGAIN, sk, busy(sk, known, ret),
      struct sock *sk, struct sk_buff *skb, int segments, int ret)

SEC("fentry/tcp_send_loss_probe")
int BPF_PROG(on_probe, struct sock *sk)
{
	struct tracked_socket *known = find(sk);

	if (known)
		known->sent = 0;
	return 0;
}

SEC("fexit/tcp_send_loss_probe")
int BPF_PROG(after_probe, struct sock *sk)
{
	struct tracked_socket *known = find(sk);

	if (known && !known->sent)
		put(sk, known, BUSY);
	return 0;
}

/* Who reads jiffies late in a run, and leaves nothing or not always. */

BOTH("fentry/tcp_send_delayed_ack", before_delayed_ack, sk, known->delayed_ack = bpf_jiffies64(),
     struct sock *sk)
BOTH("fentry/cubictcp_cong_avoid", before_cubic, sk, known->cubic = bpf_jiffies64(),
     struct sock *sk)

/* A tick came after its beginning: it is sent at once the sooner the later it is, so that now will do. */
static __always_inline void delayed_ack(const void *sk, struct tracked_socket *known)
{
	if (!LOAD(sk, inet_connection_sock___rec, icsk_ack.pending))
		known->delayed_ack = bpf_jiffies64();
}

BOTH("fexit/tcp_send_delayed_ack", after_delayed_ack, sk, delayed_ack(sk, known), struct sock *sk)

/* A tick came between its beginning and what it noted itself. */
static __always_inline void cubic(const void *sk, struct tracked_socket *known)
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
		struct tracked_socket *known = find(sk);                                                \
		if (!known)                                                                    \
			return 0;                                                              \
		known->inside |= TIMERS << what_;                                              \
		PUT(sk, known, timer, event, TIMER, e->timer = what_);                         \
		return 0;                                                                      \
	}                                                                                      \
	SEC("fexit/" #function)                                                                \
	int BPF_PROG(end_##function, type *timer)                                              \
	{                                                                                      \
		void *sk = (char *)timer - (offset);                                             \
		struct tracked_socket *known = find(sk);                                                \
		if (known)                                                                     \
			leave(sk, known, TIMERS << what_, OF_TIMER);                              \
		return 0;                                                                      \
	}

TIMED(tcp_write_timer, WRITE_TIMER, struct timer_list, OFFSET(inet_connection_sock___rec, icsk_retransmit_timer))
TIMED(tcp_delack_timer, DELAYED_ACK_TIMER, struct timer_list, OFFSET(inet_connection_sock___rec, icsk_delack_timer))
TIMED(tcp_keepalive_timer, KEEPALIVE_TIMER, struct timer_list, KEEPALIVE)
TIMED(tcp_pace_kick, PACING_TIMER, struct hrtimer, OFFSET(tcp_sock___rec, pacing_timer))
TIMED(tcp_compressed_ack_kick, COMPRESSED_ACK_TIMER, struct hrtimer, OFFSET(tcp_sock___rec, compressed_ack_timer))

#define HANDLED(function, what_)                                                               \
	SEC("fexit/" #function)                                                                \
	int BPF_PROG(handled_##function, struct sock *sk)                                      \
	{                                                                                      \
		struct tracked_socket *known = find(sk);                                                \
		if (known)                                                                     \
			leave_timer(sk, known, what_);                                         \
		return 0;                                                                      \
	}

HANDLED(tcp_write_timer_handler, WRITE_TIMER)
HANDLED(tcp_delack_timer_handler, DELAYED_ACK_TIMER)

/* All that the timer of compressed ACKs does. */
BOTH("fexit/tcp_send_ack", after_ack, sk, leave_timer(sk, known, COMPRESSED_ACK_TIMER), struct sock *sk)

SEC("fentry/tcp_tsq_handler")
int BPF_PROG(on_small_queue, struct sock *sk)
{
	struct tracked_socket *known = find(sk);

	if (known)
		put(sk, known, SMALL_QUEUE);
	return 0;
}

SEC("fexit/tcp_tsq_handler")
int BPF_PROG(after_small_queue, struct sock *sk)
{
	struct tracked_socket *known = find(sk);

	if (known)
		put_run_end(sk, known, OF_SMALL_QUEUE, 0);
	return 0;
}

/* A packet that comes for no socket: what is answered begins and acknowledges there. */
static __always_inline void put_late(const struct stub *it, u8 late, const void *skb, u32 begins,
				     u32 acknowledges)
{
	const struct tcp_skb_cb *cb = (const void *)((const char *)skb + OFFSET(sk_buff___rec, cb));

	PUT_STUB(it, late_packet, LATE_PACKET, e->begins = READ(cb, tcp_skb_cb, seq),
		 e->acknowledges = READ(cb, tcp_skb_cb, ack_seq), e->answer_begins = begins,
		 e->answer_acknowledges = acknowledges, e->alike = stub_alike(skb),
		 e->id = stub_id(skb), e->ecn = mark(skb), e->late = late);
}

SEC("fexit/tcp_timewait_state_process")
int BPF_PROG(after_time_wait, struct inet_timewait_sock *tw, struct sk_buff *skb,
	     const struct tcphdr *tcp, u32 *isn, int status)
{
	struct stub it = stub(tw);

	put_late(&it, status, skb, READ(tw, sock_common___rec, skc_tw_snd_nxt),
		 READ(tw, sock_common___rec, skc_tw_rcv_nxt));
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
	struct tracked_socket *known = sk ? find(sk) : NULL;
	u32 begins = flags & ACK ? READ(cb, tcp_skb_cb, ack_seq) : 0;
	u32 acknowledges = flags & ACK ? 0 : READ(cb, tcp_skb_cb, end_seq);
	struct stub it;

	if (known && !(flags & RST))
		PUT(sk, known, answered_by_reset, event, ANSWERED_BY_RESET, e->begins = begins,
		    e->acknowledges = acknowledges);
	/* A listener stands for no socket; time wait has its event above. */
	if (sk && READ(sk, sock___rec, __sk_common.skc_state) != LISTEN)
		return;
	it = addressed(skb);
	/* Resets are not answered. */
	put_late(&it, flags & RST ? NO_SOCKET_UNANSWERED : NO_SOCKET_RESET, skb, begins,
		 acknowledges);
}

/* A reset without ACK that comes for no socket, to a port with a listener (RFC 9293, 3.10.7.2). */
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
	struct tracked_socket *known = find(sk);

	if (known && known->receiving)
		known->gone = 1;
	else if (known)
		forget(sk, known);
	return 0;
}
