/* SPDX-License-Identifier: GPL-2.0 */
/* The recorder's events, and the sockets that it knows. */
#ifndef SLOWPATH_HANDLERS_RING_H
#define SLOWPATH_HANDLERS_RING_H

#include "state.bpf.h"

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
	REQUEST, /* of a connection that is to be accepted, which has no socket yet */
	SETTINGS,
	TIME_WAIT, /* a packet came for what is left of a socket: what says enum tcp_tw_status; or for none: RESET */
	WINDOW,    /* is looked for, and more waits in the backlog than the event before says */
	ANSWERED_BY_RESET,
	NAMED, /* what was SENT last, over IPv6: by its likeness() */
	OPTIONS,    /* that were set before: struct options */
	NO_ROOM,    /* a poll said so; with fields */
	OTHER_CALL, /* enum other_call */
	METRICS, /* what earlier connections left changed the timeout, reordering, ssthresh or the largest window to these */
};

/* Of CALL and CALL_END. */
enum call {
	CONNECT = 1,
	ACCEPT = 2,
	SEND = 4,
	RECEIVE = 5,
	SHUTDOWN = 7,
	CLOSE = 8,
	OPTION = 9,
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
	/* What jiffies were for those who noted them. */
	u32 received;  /* when data came last */
	u32 data_sent; /* when it was sent last */
	u32 window_changed;
	u32 cubic; /* noted by ourselves: when its window was looked at last */
	u32 delayed_ack;
	u32 out_of_window; /* when one was answered last */
	u32 like; /* of a packet over IPv6: its alike(); of LOCK: fragment() */
	u32 lost; /* events of this socket before this one */
	u32 more; /* of a packet: the sequence number that it acknowledges; of a SYN-ACK its likeness(); of time wait what it expects; with fields: phase() */
};

struct event_with_fields {
	struct event event;
	u32 fields[PROBED];
};

/* Those of IPv4 as ::ffff:0:0/96. */
struct addresses {
	struct in6_addr own, peer;
};

/* OPEN, REQUEST and TIME_WAIT. */
struct event_with_addresses {
	struct event event;
	struct addresses addresses;
};

/* What the replaying kernel has to be told. */
struct settings {
	struct event event;
	struct found found;
};

struct known {
	u64 clock;
	u64 congestion; /* its struct tcp_congestion_ops */
	u32 lost;
	u32 cubic;
	u32 delayed_ack;
	u32 handled; /* by the first of two programs, see TWICE */
	u32 backlog; /* as told last by others than QUEUED */
	u32 queued_like;
	u32 queued;  /* identity() of the packet that is on its way into the backlog */
	u32 queued_from, queued_to; /* its sequence numbers */
	u8 end;
	u8 ipv6;
	u8 callback;
	u8 sent; /* since the loss probe began */
	u8 no_space; /* before a poll */
	u8 receiving; /* a packet is handled */
	u8 gone; /* by that packet */
	u8 inside; /* enum inside */
	u8 slowed; /* the device told TCP to send less */
	u8 bbr;
	u32 metrics[3]; /* before what earlier connections left is looked at */
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

#define PORTS 16

/* Connections to and from these ports; none: all. The loader writes it as 16-bit words. */
const volatile struct {
	u16 count;
	u16 ports[PORTS];
} chosen = {};
/* The first in .bss, in this order: the loader reads them so. */
struct {
	u64 lost;
	u64 healed; /* events that only the second of two programs saw, see TWICE */
	u64 unseen; /* sockets for which there was no room */
} counters = {};

static __always_inline int is_chosen(u16 own, u16 other)
{
	int i;

	if (!chosen.count)
		return 1;
	for (i = 0; i < PORTS; i++)
		if (i < chosen.count && (chosen.ports[i] == own || chosen.ports[i] == other))
			return 1;
	return 0;
}

static __always_inline struct known *find(const void *sk)
{
	u64 key = (u64)sk;

	return bpf_map_lookup_elem(&ends, &key);
}

static __always_inline void lose(struct known *known)
{
	known->lost++;
	__sync_fetch_and_add(&counters.lost, 1);
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
	e->owned = !!LOAD(sk, sock___rec, sk_lock.owned);
	e->end = known->end;
	e->a = a;
	e->b = b;
	e->c = c;
	e->d = d;
	e->memory = LOAD(sk, sock___rec, sk_wmem_alloc.refs.counter);
	e->backlog = LOAD(sk, sock___rec, sk_backlog.len);
	e->received = LOAD(sk, inet_connection_sock___rec, icsk_ack.lrcvtime);
	e->data_sent = LOAD(sk, tcp_sock___rec, lsndtime);
	e->window_changed = LOAD(sk, tcp_sock___rec, snd_cwnd_stamp);
	e->cubic = known->cubic;
	e->delayed_ack = known->delayed_ack;
	e->out_of_window = LOAD(sk, tcp_sock___rec, last_oow_ack_time);
	e->like = 0;
	e->lost = known->lost;
	e->more = 0;
	/* What is queued while a packet is on its way out comes before or after its window was chosen. */
	if (kind != QUEUED)
		known->backlog = e->backlog;
}

/* Of a packet. */
static __always_inline void tell_more(const void *sk, struct known *known, u8 kind, u8 what, u32 a,
				      u32 b, u32 c, u32 d, u32 more, u32 like)
{
	struct event *e = bpf_ringbuf_reserve(&events, sizeof(*e), 0);

	if (!e) {
		lose(known);
		return;
	}
	fill(e, sk, known, kind, what, a, b, c, d);
	e->more = more;
	e->like = like;
	bpf_ringbuf_submit(e, BPF_RB_NO_WAKEUP);
}

static __always_inline void tell(const void *sk, struct known *known, u8 kind, u8 what, u32 a,
				 u32 b, u32 c, u32 d)
{
	tell_more(sk, known, kind, what, a, b, c, d, 0, 0);
}

/* "bbr" */
#define BBR 0x00726262
#define PHASED (1U << 31)

/*
 * Which phase of its cycle BBR is in, of which it draws the first by lot: struct bbr of tcp_bbr.c, a module, as it is since Linux 4.20.
 * Its mode, lt_use_bw and cycle_idx; 0: another congestion control.
 */
static __always_inline u32 phase(const void *sk, struct known *known)
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

static __always_inline void tell_state(const void *sk, struct known *known, u8 kind, u8 what,
				       u32 a)
{
	struct event_with_fields *e = bpf_ringbuf_reserve(&events, sizeof(*e), 0);

	if (!e) {
		lose(known);
		return;
	}
	fill(&e->event, sk, known, kind, what, a, 0, 0, 0);
	e->event.more = phase(sk, known);
	look(sk, e->fields);
	bpf_ringbuf_submit(e, BPF_RB_NO_WAKEUP);
}

/* What has begun: its end is told while it has the lock, where that can be seen, for another CPU may take it then. */
enum inside {
	FIRST = 1 << 0, /* a child's first packet */
	TIMERS = 1 << 1, /* and as many behind it as there are */
};

static __always_inline void leave(const void *sk, struct known *known, u8 inside, u8 what)
{
	if (!(known->inside & inside))
		return;
	known->inside &= ~inside;
	tell_state(sk, known, RUN_END, what, 0);
}

/* Unless it waits for the lock, and another one does the same. */
static __always_inline void leave_timer(const void *sk, struct known *known, u8 timer)
{
	if (!known->receiving && !LOAD(sk, sock___rec, sk_lock.owned))
		leave(sk, known, TIMERS << timer, TIMER);
}

static __always_inline void forget(const void *sk, struct known *known)
{
	u64 key = (u64)sk;

	tell(sk, known, GONE, 0, 0, 0, 0, 0);
	bpf_map_delete_elem(&ends, &key);
}

/* TCP has read its clock since the last event? */
static __always_inline void clock(const void *sk, struct known *known)
{
	u64 now = LOAD(sk, tcp_sock___rec, tcp_clock_cache);

	if (now == known->clock)
		return;
	known->clock = now;
	tell(sk, known, CLOCK, 0, 0, 0, 0, 0);
}

/* What became of a request for a connection, which has no socket yet. */
enum request {
	ASKED,       /* a SYN came to the listener */
	ASKED_AGAIN, /* or to the request itself */
	TIMED_OUT,
	ANSWERED, /* a SYN-ACK was made; clock is its time */
	IGNORED, /* an ACK came, and made no socket: TCP_DEFER_ACCEPT, or no room */
};

/* A packet came for which there is no socket; beyond enum tcp_tw_status. */
#define RESET 64
#define UNANSWERED 65

static __always_inline struct in6_addr mapped(u32 address)
{
	struct in6_addr it = { .in6_u.u6_addr32 = { 0, 0, __builtin_bswap32(0xffff), address } };

	return it;
}

static __always_inline struct addresses addresses(const void *sk)
{
	struct addresses it = {};

	if (is_ipv4(sk)) {
		it.own = mapped(READ(sk, sock_common___rec, skc_rcv_saddr));
		it.peer = mapped(READ(sk, sock_common___rec, skc_daddr));
	} else if (bpf_core_field_exists(struct sock_common___rec, skc_v6_daddr)) {
		it.own = READ(sk, sock_common___rec, skc_v6_rcv_saddr);
		it.peer = READ(sk, sock_common___rec, skc_v6_daddr);
	}
	return it;
}

/* Of what has no socket: a request, or time wait. */
struct stub {
	struct addresses addresses;
	u16 own_port, peer_port; /* the latter as in packets */
	/* The packet that came, and what is answered. */
	u16 id;
	u8 mark; /* the ECN bits of IP */
	u8 queue; /* whether nobody more may wait to be accepted; of ANSWERED: by a SYN cookie; of TIMED_OUT: tries() */
	u32 like;
	u32 from, acknowledges;
	u32 begins, expects;
};

static __always_inline struct stub stub(const void *sk)
{
	struct stub it = {
		.addresses = addresses(sk),
		.own_port = READ(sk, sock_common___rec, skc_num),
		.peer_port = READ(sk, sock_common___rec, skc_dport),
	};

	return it;
}

static __always_inline void tell_stub(const struct stub *it, u8 kind, u8 what, u64 clock)
{
	struct event_with_addresses *all;
	struct event *e;

	if (!is_chosen(it->own_port, __builtin_bswap16(it->peer_port)))
		return;
	all = bpf_ringbuf_reserve(&events, sizeof(*all), 0);
	if (!all) {
		__sync_fetch_and_add(&counters.lost, 1);
		return;
	}
	e = &all->event;
	__builtin_memset(e, 0, sizeof(*e));
	all->addresses = it->addresses;
	e->at = bpf_ktime_get_ns();
	e->clock = clock;
	e->jiffies = bpf_jiffies64();
	e->kind = kind;
	e->what = what;
	e->end = 1;
	e->a = it->mark;
	e->b = it->queue;
	e->c = it->own_port;
	e->d = it->peer_port;
	e->like = it->like;
	e->memory = it->id;
	e->backlog = it->from;
	e->received = it->begins;
	e->data_sent = it->acknowledges;
	e->more = it->expects;
	bpf_ringbuf_submit(all, BPF_RB_NO_WAKEUP);
}

static __always_inline void tell_settings(const void *sk, struct known *known)
{
	struct settings *e = bpf_ringbuf_reserve(&events, sizeof(*e), 0);

	if (!e) {
		lose(known);
		return;
	}
	fill(&e->event, sk, known, SETTINGS, 0, 0, 0, 0, 0);
	find_settings(sk, &e->found);
	bpf_ringbuf_submit(e, BPF_RB_NO_WAKEUP);
}

static __always_inline void tell_open(const void *sk, struct known *known)
{
	struct event_with_addresses *e = bpf_ringbuf_reserve(&events, sizeof(*e), 0);

	if (!e) {
		lose(known);
		return;
	}
	fill(&e->event, sk, known, OPEN, known->end, 0, 0,
	     READ(sk, sock___rec, __sk_common.skc_num),
	     READ(sk, sock___rec, __sk_common.skc_dport));
	e->addresses = addresses(sk);
	bpf_ringbuf_submit(e, BPF_RB_NO_WAKEUP);
}

static __always_inline struct known *open(const void *sk, u8 end)
{
	struct known fresh = { .end = end, .clock = READ(sk, tcp_sock___rec, tcp_clock_cache) };
	u64 key = (u64)sk;
	struct known *known;

	fresh.ipv6 = !is_ipv4(sk);
	bpf_map_update_elem(&ends, &key, &fresh, BPF_ANY);
	known = find(sk);
	if (!known) {
		__sync_fetch_and_add(&counters.unseen, 1);
		return NULL;
	}
	tell_open(sk, known);
	tell_settings(sk, known);
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
	HANDED_OVER = 1 << 6,
	SENT_AGAIN = 1 << 7,
	NAMING = 1 << 8,
};

static __always_inline struct known *find_first(const void *sk, enum twice what)
{
	struct known *known = find(sk);

	if (known)
		known->handled |= what;
	return known;
}

static __always_inline struct known *find_again(const void *sk, enum twice what)
{
	struct known *known = find(sk);

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
		struct known *known = find_first(sk, what);          \
		if (known)                                           \
			action;                                      \
		return 0;                                            \
	}                                                            \
	SEC(section)                                                 \
	int BPF_PROG(name##_again, ##parameters)                     \
	{                                                            \
		struct known *known = find_again(sk, what);          \
		if (known)                                           \
			action;                                      \
		return 0;                                            \
	}

/* The same for what does no harm twice: where one of them is left out the other one is not. */
#define BOTH(section, name, sk, action, parameters...)               \
	SEC(section)                                                 \
	int BPF_PROG(name, ##parameters)                             \
	{                                                            \
		struct known *known = find(sk);                      \
		if (known)                                           \
			action;                                      \
		return 0;                                            \
	}                                                            \
	SEC(section)                                                 \
	int BPF_PROG(name##_again, ##parameters)                     \
	{                                                            \
		struct known *known = find(sk);                      \
		if (known)                                           \
			action;                                      \
		return 0;                                            \
	}

#endif
