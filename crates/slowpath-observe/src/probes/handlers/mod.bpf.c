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
#include "state.bpf.h"

char LICENSE[] SEC("license") = "GPL";

#define EBUSY 16
#define BPF_ANY 0

enum kind {
	OPEN = 1,
	CALL,
	CALL_END,
	LOCK,
	RELEASE, /* and all below up to the next comment: with fields */
	DRAIN,
	RUN_END,
	CALLBACK,
	CALLBACK_END,
	PACKET, /* from here on without */
	TIMER,
	SMALL_QUEUE,
	CLOCK,
	SENT,
	MEMORY,
	QUEUED,
	DRAINED,
	GONE,
	BUSY,
};

struct event {
	u64 at;
	u64 sk;
	u64 clock;
	u32 jiffies;
	u32 task;
	u8 kind;
	u8 what;
	u8 owned;
	u8 end;
	u32 a, b, c, d;
	u32 memory;
	u32 backlog;
	u32 received; /* when data came last, in jiffies */
};

struct event_with_fields {
	struct event event;
	u32 fields[PROBED];
};

struct known {
	u64 clock;
	u8 end;
	u8 callback;
	u8 sent; /* since the loss probe began */
};

struct {
	__uint(type, BPF_MAP_TYPE_HASH);
	__uint(max_entries, 4096);
	__type(key, u64);
	__type(value, struct known);
} ends SEC(".maps");

struct {
	__uint(type, BPF_MAP_TYPE_RINGBUF);
	__uint(max_entries, 64 << 20);
} events SEC(".maps");

/* Connections to this port. */
const volatile u16 port = 5001;
u64 lost = 0;

static __always_inline struct known *find(const void *sk)
{
	u64 key = (u64)sk;

	return bpf_map_lookup_elem(&ends, &key);
}

static __always_inline void fill(struct event *e, const void *sk, struct known *known, u8 kind,
				 u8 what, u32 a, u32 b, u32 c, u32 d)
{
	e->at = bpf_ktime_get_ns();
	e->sk = (u64)sk;
	e->clock = known->clock;
	e->jiffies = bpf_jiffies64();
	e->task = bpf_get_current_pid_tgid();
	e->kind = kind;
	e->what = what;
	e->owned = !!READ(sk, sock___rec, sk_lock.owned);
	e->end = known->end;
	e->a = a;
	e->b = b;
	e->c = c;
	e->d = d;
	e->memory = READ(sk, sock___rec, sk_wmem_alloc.refs.counter);
	e->backlog = READ(sk, sock___rec, sk_backlog.len);
	e->received = READ(sk, inet_connection_sock___rec, icsk_ack.lrcvtime);
}

static __always_inline void tell(const void *sk, struct known *known, u8 kind, u8 what, u32 a,
				 u32 b, u32 c, u32 d)
{
	struct event *e = bpf_ringbuf_reserve(&events, sizeof(*e), 0);

	if (!e) {
		__sync_fetch_and_add(&lost, 1);
		return;
	}
	fill(e, sk, known, kind, what, a, b, c, d);
	bpf_ringbuf_submit(e, BPF_RB_NO_WAKEUP);
}

static __always_inline void tell_state(const void *sk, struct known *known, u8 kind, u8 what,
				       u32 a)
{
	struct event_with_fields *e = bpf_ringbuf_reserve(&events, sizeof(*e), 0);

	if (!e) {
		__sync_fetch_and_add(&lost, 1);
		return;
	}
	fill(&e->event, sk, known, kind, what, a, 0, 0, 0);
	look(sk, e->fields);
	bpf_ringbuf_submit(e, BPF_RB_NO_WAKEUP);
}

/* TCP has read its clock since the last event? */
static __always_inline void clock(const void *sk, struct known *known)
{
	u64 now = READ(sk, tcp_sock___rec, tcp_clock_cache);

	if (now == known->clock)
		return;
	known->clock = now;
	tell(sk, known, CLOCK, 0, 0, 0, 0, 0);
}

static __always_inline struct known *open(const void *sk, u8 end)
{
	struct known fresh = { .end = end, .clock = READ(sk, tcp_sock___rec, tcp_clock_cache) };
	u64 key = (u64)sk;
	struct known *known;

	bpf_map_update_elem(&ends, &key, &fresh, BPF_ANY);
	known = find(sk);
	if (!known) {
		__sync_fetch_and_add(&lost, 1);
		return NULL;
	}
	tell(sk, known, OPEN, end, READ(sk, sock___rec, __sk_common.skc_rcv_saddr),
	     READ(sk, sock___rec, __sk_common.skc_daddr),
	     READ(sk, sock___rec, __sk_common.skc_num),
	     READ(sk, sock___rec, __sk_common.skc_dport));
	return known;
}

/* Calls. */

enum call {
	CONNECT = 1,
	ACCEPT = 2,
	SEND = 4,
	RECEIVE = 5,
	SHUTDOWN = 7,
	CLOSE = 8,
};

SEC("fentry/tcp_connect")
int BPF_PROG(on_connect, struct sock *sk)
{
	struct known *known;

	if (READ(sk, sock___rec, __sk_common.skc_dport) != __builtin_bswap16(port))
		return 0;
	known = open(sk, 0);
	if (known)
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

#define CALLED(function, what, a, b, arguments...)                  \
	SEC("fentry/" #function)                                    \
	int BPF_PROG(begin_##function, struct sock *sk, ##arguments) \
	{                                                           \
		struct known *known = find(sk);                     \
		if (known)                                          \
			tell(sk, known, CALL, what, a, b, 0, 0);    \
		return 0;                                           \
	}

struct msghdr___rec {
	unsigned int msg_flags;
} __attribute__((preserve_access_index));

CALLED(tcp_sendmsg, SEND, size, READ(msg, msghdr___rec, msg_flags), struct msghdr *msg, u64 size)
CALLED(tcp_recvmsg, RECEIVE, size, flags, struct msghdr *msg, u64 size, int flags)
CALLED(tcp_shutdown, SHUTDOWN, how, 0, int how)
CALLED(tcp_close, CLOSE, 0, 0)

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
		tell(sk, known, LOCK, 0, 0, 0, 0, 0);
	return 0;
}

/* It has the lock again, and takes it where nobody sees: lock_sock_nested() is inlined there. */
SEC("fexit/sk_wait_data")
int BPF_PROG(after_wait, struct sock *sk)
{
	struct known *known = find(sk);

	if (known)
		tell(sk, known, LOCK, 1, 0, 0, 0, 0);
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

static __always_inline void packet(const void *sk, struct known *known, u8 kind, u8 what,
				   const void *skb)
{
	const struct tcp_skb_cb *cb =
		(const void *)((const char *)skb + bpf_core_field_offset(struct sk_buff___rec, cb));
	const struct iphdr *ip = (const void *)(READ(skb, sk_buff___rec, head) +
						READ(skb, sk_buff___rec, network_header));

	tell(sk, known, kind, what, READ(cb, tcp_skb_cb, seq), READ(cb, tcp_skb_cb, end_seq),
	     READ(skb, sk_buff___rec, truesize),
	     __builtin_bswap16(READ(ip, iphdr, id)) |
		     (READ(cb, tcp_skb_cb, ip_dsfield) & 3) << 16 |
		     (u32)READ(cb, tcp_skb_cb, tcp_flags) << 24);
}

SEC("fentry/tcp_v4_do_rcv")
int BPF_PROG(on_packet, struct sock *sk, struct sk_buff *skb)
{
	struct known *known = find(sk);

	if (known)
		packet(sk, known, PACKET, 0, skb);
	return 0;
}

SEC("fexit/tcp_v4_do_rcv")
int BPF_PROG(after_packet, struct sock *sk, struct sk_buff *skb)
{
	struct known *known = find(sk);

	if (known)
		tell_state(sk, known, RUN_END, PACKET, 0);
	return 0;
}

SEC("fentry/tcp_add_backlog")
int BPF_PROG(on_backlog, struct sock *sk, struct sk_buff *skb)
{
	struct known *known = find(sk);
	const struct iphdr *ip;

	if (!known)
		return 0;
	ip = (const void *)(READ(skb, sk_buff___rec, head) +
			    READ(skb, sk_buff___rec, network_header));
	tell(sk, known, QUEUED, 0, 0, 0, READ(skb, sk_buff___rec, truesize),
	     __builtin_bswap16(READ(ip, iphdr, id)));
	return 0;
}

/* The last packet of the handshake makes the child, which begins with the round trip of the SYN-ACK. */
SEC("fentry/tcp_synack_rtt_meas")
int BPF_PROG(on_child, struct sock *sk, struct request_sock *req)
{
	if (READ(sk, sock___rec, __sk_common.skc_num) == port)
		open(sk, 1);
	return 0;
}

SEC("fexit/tcp_synack_rtt_meas")
int BPF_PROG(on_child_rtt, struct sock *sk, struct request_sock *req)
{
	struct known *known = find(sk);
	u64 sent;

	if (!known)
		return 0;
	sent = READ(req, tcp_request_sock, snt_synack);
	/* The first sample is the smoothed round trip, times eight. */
	tell(sk, known, CLOCK, 1, sent, sent >> 32, READ(sk, tcp_sock___rec, srtt_us) >> 3, 0);
	return 0;
}

SEC("fentry/tcp_child_process")
int BPF_PROG(on_first, struct sock *parent, struct sock *sk, struct sk_buff *skb)
{
	struct known *known = find(sk);

	if (known)
		packet(sk, known, PACKET, 1, skb);
	return 0;
}

SEC("fexit/tcp_child_process")
int BPF_PROG(after_first, struct sock *parent, struct sock *sk, struct sk_buff *skb)
{
	struct known *known = find(sk);

	if (known)
		tell_state(sk, known, RUN_END, PACKET, 0);
	return 0;
}

/* Clocks and transmissions. */

SEC("fexit/tcp_mstamp_refresh")
int BPF_PROG(on_clock, struct tcp_sock *tp)
{
	struct known *known = find(tp);

	if (known)
		clock(tp, known);
	return 0;
}

SEC("fexit/tcp_write_xmit")
int BPF_PROG(after_write, struct sock *sk)
{
	struct known *known = find(sk);

	if (known)
		clock(sk, known);
	return 0;
}

SEC("fentry/tcp_xmit_retransmit_queue")
int BPF_PROG(before_again, struct sock *sk)
{
	struct known *known = find(sk);

	if (known)
		clock(sk, known);
	return 0;
}

SEC("fentry/__tcp_transmit_skb")
int BPF_PROG(on_sent, struct sock *sk, struct sk_buff *skb)
{
	struct known *known = find(sk);
	const struct tcp_skb_cb *cb;

	if (!known)
		return 0;
	clock(sk, known);
	known->sent = 1;
	cb = (const void *)((const char *)skb + bpf_core_field_offset(struct sk_buff___rec, cb));
	tell(sk, known, SENT, 0, READ(cb, tcp_skb_cb, seq), READ(cb, tcp_skb_cb, end_seq), 0,
	     (READ(sk, inet_sock___rec, inet_id.counter) & 0xffff) |
		     (u32)READ(cb, tcp_skb_cb, tcp_flags) << 24);
	return 0;
}

SEC("fexit/__tcp_transmit_skb")
int BPF_PROG(after_sent, struct sock *sk, struct sk_buff *skb)
{
	struct known *known = find(sk);

	if (known)
		tell(sk, known, MEMORY, 0, 0, 0, 0, 0);
	return 0;
}

/* What is to be sent again has not left yet: skb_still_in_host_queue(). */

SEC("fexit/__tcp_retransmit_skb")
int BPF_PROG(after_again, struct sock *sk, struct sk_buff *skb, int segments, int ret)
{
	struct known *known = find(sk);

	if (known && ret == -EBUSY) {
		known->sent = 1;
		tell(sk, known, BUSY, 0, 0, 0, 0, 0);
	}
	return 0;
}

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

/* Timers and what was put off. */

#define OFFSET(structure, member) bpf_core_field_offset(struct structure, member)
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
		if (known)                                                                     \
			tell(sk, known, TIMER, what_, 0, 0, 0, 0);                             \
		return 0;                                                                      \
	}                                                                                      \
	SEC("fexit/" #function)                                                                \
	int BPF_PROG(end_##function, type *timer)                                              \
	{                                                                                      \
		void *sk = (char *)timer - (offset);                                             \
		struct known *known = find(sk);                                                \
		if (known)                                                                     \
			tell_state(sk, known, RUN_END, TIMER, 0);                              \
		return 0;                                                                      \
	}

TIMED(tcp_write_timer, 0, struct timer_list, OFFSET(inet_connection_sock___rec, icsk_retransmit_timer))
TIMED(tcp_delack_timer, 1, struct timer_list, OFFSET(inet_connection_sock___rec, icsk_delack_timer))
TIMED(tcp_keepalive_timer, 2, struct timer_list, KEEPALIVE)
TIMED(tcp_pace_kick, 3, struct hrtimer, OFFSET(tcp_sock___rec, pacing_timer))
TIMED(tcp_compressed_ack_kick, 4, struct hrtimer, OFFSET(tcp_sock___rec, compressed_ack_timer))

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

SEC("tp_btf/tcp_destroy_sock")
int BPF_PROG(on_gone, struct sock *sk)
{
	u64 key = (u64)sk;
	struct known *known = find(sk);

	if (known)
		tell(sk, known, GONE, 0, 0, 0, 0, 0);
	bpf_map_delete_elem(&ends, &key);
	return 0;
}
