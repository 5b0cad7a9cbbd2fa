/* SPDX-License-Identifier: GPL-2.0 */
/* The ring of events, and the sockets that the recorder knows. */
#ifndef SLOWPATH_HANDLERS_RING_H
#define SLOWPATH_HANDLERS_RING_H

#include "event.bpf.h"
#include "../ports.bpf.h"

#define EBUSY 16
#define BPF_ANY 0

struct tracked_socket {
	u64 clock;
	u64 congestion; /* its struct tcp_congestion_ops */
	u32 lost;
	u32 cubic;
	u32 delayed_ack;
	u32 handled; /* by the first of two programs, see TWICE */
	u32 backlog; /* as the last event but QUEUED says */
	/* The packet that is on its way into the backlog. */
	u32 queued_begins, queued_ends;
	u32 queued_alike;
	u16 queued_id;
	u8 queued_bits;
	u8 end;
	u8 ipv6;
	u8 callback;
	u8 sent; /* since the loss probe began */
	u8 no_space; /* before a poll */
	u8 receiving; /* a packet is handled */
	u8 gone; /* by that packet */
	u8 inside; /* enum inside */
	u8 slowed; /* the device made TCP send less */
	u8 bbr;
	u8 pad[3];
	u32 metrics[3]; /* before what earlier connections left is looked at */
	u32 pad2;
};

struct {
	__uint(type, BPF_MAP_TYPE_HASH);
	__uint(max_entries, 4096);
	__type(key, u64);
	__type(value, struct tracked_socket);
} ends SEC(".maps");

struct {
	__uint(type, BPF_MAP_TYPE_RINGBUF);
	__uint(max_entries, 64 << 20);
} events SEC(".maps");

/* All of .bss. */
struct counters {
	u64 lost;
	u64 healed; /* events that only the second of two programs saw, see TWICE */
	u64 unrecorded; /* sockets for which there was no room */
};
struct counters counters = {};

MIRRORED(struct, tracked_socket);
MIRRORED(struct, counters);

static __always_inline struct tracked_socket *find(const void *sk)
{
	u64 key = (u64)sk;

	return bpf_map_lookup_elem(&ends, &key);
}

static __always_inline void lose(struct tracked_socket *known)
{
	known->lost++;
	__sync_fetch_and_add(&counters.lost, 1);
}

static __always_inline void fill(struct event *e, const void *sk, struct tracked_socket *known, u8 kind)
{
	e->head.at = bpf_ktime_get_ns();
	e->head.jiffies = bpf_jiffies64();
	e->head.kind = kind;
	e->head.end = known->end;
	e->head.owned = !!LOAD(sk, sock___rec, sk_lock.owned);
	e->sk = (u64)sk;
	e->clock = known->clock;
	e->task = bpf_get_current_pid_tgid();
	e->lost = known->lost;
	e->memory = LOAD(sk, sock___rec, sk_wmem_alloc.refs.counter);
	e->backlog = LOAD(sk, sock___rec, sk_backlog.len);
	e->received = LOAD(sk, inet_connection_sock___rec, icsk_ack.lrcvtime);
	e->data_sent = LOAD(sk, tcp_sock___rec, lsndtime);
	e->window_changed = LOAD(sk, tcp_sock___rec, snd_cwnd_stamp);
	e->cubic = known->cubic;
	e->delayed_ack = known->delayed_ack;
	e->out_of_window = LOAD(sk, tcp_sock___rec, last_oow_ack_time);
	/* What is queued while a packet is on its way out comes before or after its window was chosen. */
	if (kind != QUEUED)
		known->backlog = e->backlog;
}

/*
 * Puts an event of a socket into the ring: `type` is its struct, `path` the struct event in it, and
 * what follows fills what the kind has of its own, of `e`.
 */
#define PUT(sk, known, type, path, kind, ...)                                        \
	do {                                                                         \
		struct type *e = bpf_ringbuf_reserve(&events, sizeof(*e), 0);        \
		if (!e) {                                                            \
			lose(known);                                                 \
			break;                                                       \
		}                                                                    \
		fill(&e->path, sk, known, kind);                                     \
		__VA_ARGS__;                                                         \
		bpf_ringbuf_submit(e, BPF_RB_NO_WAKEUP);                             \
	} while (0)

/* One that has nothing of its own. */
static __always_inline void put(const void *sk, struct tracked_socket *known, u8 kind)
{
	struct event *e = bpf_ringbuf_reserve(&events, sizeof(*e), 0);

	if (!e) {
		lose(known);
		return;
	}
	fill(e, sk, known, kind);
	bpf_ringbuf_submit(e, BPF_RB_NO_WAKEUP);
}

static __always_inline void put_call(const void *sk, struct tracked_socket *known, u32 call)
{
	PUT(sk, known, call, event, CALL, e->call = call);
}

/* "bbr" */
#define BBR 0x00726262
#define PHASED (1U << 31)

/*
 * Which phase of its cycle BBR is in, of which it draws the first by lot: struct bbr of tcp_bbr.c, a module, as it is since Linux 4.20.
 * Its mode, lt_use_bw and cycle_idx; 0: another congestion control.
 */
static __always_inline u32 phase(const void *sk, struct tracked_socket *known)
{
	const void *ops = LOAD(sk, inet_connection_sock___rec, icsk_ca_ops);
	u32 name = 0, modes, gains;

	if ((u64)ops != known->congestion) {
		known->congestion = (u64)ops;
		bpf_probe_read_kernel(&name, sizeof(name),
				      (const char *)ops + OFFSET(tcp_congestion_ops___rec, name));
		known->bbr = name == BBR;
	}
	if (!known->bbr)
		return 0;
	modes = LOAD(sk, inet_connection_sock___rec, icsk_ca_priv[7]);
	gains = LOAD(sk, inet_connection_sock___rec, icsk_ca_priv[9]) >> 32;
	return PHASED | (modes & 7) | modes >> 31 << 3 | (gains >> 23 & 7) << 4;
}

static __always_inline void fill_state(struct snapshot *e, const void *sk, struct tracked_socket *known)
{
	e->phase = phase(sk, known);
	look(sk, &e->probed);
}

/* With the socket's state, and nothing else. */
static __always_inline void put_state(const void *sk, struct tracked_socket *known, u8 kind)
{
	PUT(sk, known, snapshot, event, kind, fill_state(e, sk, known));
}

static __always_inline void put_run_end(const void *sk, struct tracked_socket *known, u32 run, u32 damaged)
{
	PUT(sk, known, run_end, snapshot.event, RUN_END, fill_state(&e->snapshot, sk, known),
	    e->run = run, e->damaged = damaged);
}

/* What has begun: its end is recorded while it has the lock, where a program can know that, for another CPU may take it then. */
enum inside {
	FIRST_PACKET = 1 << 0, /* a child's first packet */
	TIMERS = 1 << 1, /* and as many behind it as there are */
};

static __always_inline void leave(const void *sk, struct tracked_socket *known, u8 inside, u32 run)
{
	if (!(known->inside & inside))
		return;
	known->inside &= ~inside;
	put_run_end(sk, known, run, 0);
}

/* Unless it waits for the lock, and another one does the same. */
static __always_inline void leave_timer(const void *sk, struct tracked_socket *known, u8 timer)
{
	if (!known->receiving && !LOAD(sk, sock___rec, sk_lock.owned))
		leave(sk, known, TIMERS << timer, OF_TIMER);
}

static __always_inline void forget(const void *sk, struct tracked_socket *known)
{
	u64 key = (u64)sk;

	put(sk, known, GONE);
	bpf_map_delete_elem(&ends, &key);
}

/* TCP has read its clock since the last event? */
static __always_inline void clock(const void *sk, struct tracked_socket *known)
{
	u64 now = LOAD(sk, tcp_sock___rec, tcp_clock_cache);

	if (now == known->clock)
		return;
	known->clock = now;
	put(sk, known, CLOCK);
}

/* IPv4's, as ::ffff:0:0/96. */
static __always_inline void map_address(u8 *to, u32 address)
{
	u32 *words = (u32 *)to;

	words[0] = 0;
	words[1] = 0;
	words[2] = __builtin_bswap32(0xffff);
	words[3] = address;
}

static __always_inline void copy_address(u8 *to, struct in6_addr address)
{
	__builtin_memcpy(to, &address, 16);
}

static __always_inline void find_addresses(struct addresses *to, const void *sk)
{
	if (is_ipv4(sk)) {
		map_address(to->own, READ(sk, sock_common___rec, skc_rcv_saddr));
		map_address(to->peer, READ(sk, sock_common___rec, skc_daddr));
	} else if (bpf_core_field_exists(struct sock_common___rec, skc_v6_daddr)) {
		copy_address(to->own, READ(sk, sock_common___rec, skc_v6_rcv_saddr));
		copy_address(to->peer, READ(sk, sock_common___rec, skc_v6_daddr));
	} else {
		__builtin_memset(to, 0, sizeof(*to));
	}
}

/* Whose it is, of what has no socket: a request, or time wait. */
static __always_inline struct stub stub(const void *sk)
{
	struct stub it = {
		.own_port = READ(sk, sock_common___rec, skc_num),
		.peer_port = READ(sk, sock_common___rec, skc_dport),
	};

	find_addresses(&it.addresses, sk);
	return it;
}

/* The same as PUT of what has no socket: `it` says whose it is. */
#define PUT_STUB(it, type, kind_, ...)                                               \
	do {                                                                         \
		struct type *e;                                                      \
		if (!is_chosen((it)->own_port, __builtin_bswap16((it)->peer_port)))  \
			break;                                                       \
		e = bpf_ringbuf_reserve(&events, sizeof(*e), 0);                     \
		if (!e) {                                                            \
			__sync_fetch_and_add(&counters.lost, 1);                     \
			break;                                                       \
		}                                                                    \
		e->stub = *(it);                                                     \
		e->stub.head.at = bpf_ktime_get_ns();                                \
		e->stub.head.jiffies = bpf_jiffies64();                              \
		e->stub.head.kind = kind_;                                           \
		e->stub.head.end = 1;                                                \
		__VA_ARGS__;                                                         \
		bpf_ringbuf_submit(e, BPF_RB_NO_WAKEUP);                             \
	} while (0)

static __always_inline struct tracked_socket *open(const void *sk, u8 end)
{
	struct tracked_socket fresh = { .end = end, .clock = READ(sk, tcp_sock___rec, tcp_clock_cache) };
	u64 key = (u64)sk;
	struct tracked_socket *known;

	fresh.ipv6 = !is_ipv4(sk);
	bpf_map_update_elem(&ends, &key, &fresh, BPF_ANY);
	known = find(sk);
	if (!known) {
		__sync_fetch_and_add(&counters.unrecorded, 1);
		return NULL;
	}
	PUT(sk, known, opened, event, OPEN, find_addresses(&e->addresses, sk),
	    e->own_port = READ(sk, sock___rec, __sk_common.skc_num),
	    e->peer_port = READ(sk, sock___rec, __sk_common.skc_dport));
	PUT(sk, known, settings, event, SETTINGS, find_settings(sk, &e->found));
	return known;
}

/*
 * What runs both in tasks and in softirqs needs two programs: the kernel leaves a program out
 * that is under way on the same CPU (bpf_prog_enter: prog->active), which is so when a softirq comes while it runs
 * in a task. The first one handles it and says so to the second; if it was left out the second one does it. Of
 * programs of one function the one attached last runs first: what ends in _again is attached before the others.
 */
enum twice {
	RECEIVING = 1 << 0,
	RECEIVED = 1 << 1,
	CLOCKED = 1 << 2,
	WRITTEN = 1 << 3,
	SENDING_AGAIN = 1 << 4,
	SENDING = 1 << 5,
	HANDING_OVER = 1 << 6,
	SENT_AGAIN = 1 << 7,
	NAMING = 1 << 8,
};

static __always_inline struct tracked_socket *find_first(const void *sk, enum twice what)
{
	struct tracked_socket *known = find(sk);

	if (known)
		known->handled |= what;
	return known;
}

static __always_inline struct tracked_socket *find_again(const void *sk, enum twice what)
{
	struct tracked_socket *known = find(sk);

	if (!known)
		return NULL;
	if (known->handled & what) {
		known->handled &= ~what;
		return NULL;
	}
	__sync_fetch_and_add(&counters.healed, 1);
	return known;
}

#define TWICE(section, name, what, sk, action, parameters...)        \
	SEC(section)                                                 \
	int BPF_PROG(name, ##parameters)                             \
	{                                                            \
		struct tracked_socket *known = find_first(sk, what);          \
		if (known)                                           \
			action;                                      \
		return 0;                                            \
	}                                                            \
	SEC(section)                                                 \
	int BPF_PROG(name##_again, ##parameters)                     \
	{                                                            \
		struct tracked_socket *known = find_again(sk, what);          \
		if (known)                                           \
			action;                                      \
		return 0;                                            \
	}

/* The same for what does no harm twice: where one of them is left out the other one is not. */
#define BOTH(section, name, sk, action, parameters...)               \
	SEC(section)                                                 \
	int BPF_PROG(name, ##parameters)                             \
	{                                                            \
		struct tracked_socket *known = find(sk);                      \
		if (known)                                           \
			action;                                      \
		return 0;                                            \
	}                                                            \
	SEC(section)                                                 \
	int BPF_PROG(name##_again, ##parameters)                     \
	{                                                            \
		struct tracked_socket *known = find(sk);                      \
		if (known)                                           \
			action;                                      \
		return 0;                                            \
	}

#endif
