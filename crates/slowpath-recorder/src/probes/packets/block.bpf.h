/* SPDX-License-Identifier: GPL-2.0 */
/*
 * What the light recorder puts into the ring. Rust's side is src/light/wire.rs: the build compares both field by
 * field, and so does the loader (test probes::tests::a_mirrored_struct_that_differs_is_refused).
 */
#ifndef SLOWPATH_PACKETS_BLOCK_H
#define SLOWPATH_PACKETS_BLOCK_H

#include "state.bpf.h"
#include "../ports.bpf.h"

#define EBUSY 16

/* The kinds of the ring's entries. */
enum piece {
	OPENED = 1, /* struct opened */
	PACKETS,    /* struct block with struct packet_event, in the order of the socket's lock */
	CALLS,      /* struct block with struct call_event; no call holds the lock there */
	TIMER,      /* struct timer_event */
	GONE,       /* struct block of packets, the last one */
};

/* Words of a socket; each event carries those that have changed since the event before, in this order. */
struct socket_words {
	u32 snd_nxt;
	u32 snd_una;
	u32 write_seq;
	u32 rcv_nxt;
	u32 copied_seq;
	u32 wmem_alloc;
	u32 rcv_wnd;
};

#define WORDS (sizeof(struct socket_words) / sizeof(u32))

/* A packet that TCP was about to process (tcp_rcv_established). The words that have changed follow it; then the moments that its flags name. */
struct packet_event {
	u16 id;    /* IP identification */
	u16 next;  /* identification that the next packet of this socket's own will have */
	u32 clock; /* TCP's last reading of its clock, lower half */
	u8 words;  /* which follow: a bit for each */
	u8 segments;
	u8 flags; /* enum flag */
	u8 kind;  /* PACKET */
};

/* The state that a socket went to; what follows is the same. */
struct state_event {
	u8 from;
	u8 to;
	u16 next;
	u32 clock;
	u8 words;
	u8 shutdown; /* sk_shutdown */
	u8 flags;
	u8 kind; /* STATE */
};

_Static_assert(sizeof(struct packet_event) == sizeof(struct state_event) &&
		       __builtin_offsetof(struct packet_event, next) == __builtin_offsetof(struct state_event, next) &&
		       __builtin_offsetof(struct packet_event, clock) == __builtin_offsetof(struct state_event, clock) &&
		       __builtin_offsetof(struct packet_event, words) == __builtin_offsetof(struct state_event, words) &&
		       __builtin_offsetof(struct packet_event, flags) == __builtin_offsetof(struct state_event, flags) &&
		       __builtin_offsetof(struct packet_event, kind) == __builtin_offsetof(struct state_event, kind),
	       "note() fills what both have");

enum flag {
	OWNED = 1,  /* a call holds the lock: the packet waited in the backlog */
	MARKED = 2, /* CE */
	FULL = 4,   /* the send buffer is */
	DATA = 8,   /* the packet has some, or ends them */
	/* Behind the words, in this order, each a moment's lower half: */
	DELIVERED = 16, /* when something new was acknowledged last, in microseconds */
	ARRIVED = 32,   /* when the packet arrived, if it acknowledges all that was sent */
	LAST_SENT = 64, /* when something was sent last; the clock has been read since */
};

enum event_kind {
	PACKET = 1,
	STATE,
};

/* A call that has returned. */
struct call_event {
	s32 result;
	u32 flags; /* MSG_*, the lower 24 bits; then SENT or RECEIVED */
	u32 clock; /* TCP's last reading of its clock; of a call that sends, the reading with which it sent; lower half */
};

enum call_direction {
	SENT = 1,
	RECEIVED = 2,
};

enum timer_name {
	WRITE_TIMER,
	DELAYED_ACK_TIMER,
	KEEPALIVE_TIMER,
	PACING_TIMER,
	COMPRESSED_ACK_TIMER,
	SMALL_QUEUES,
};

/* A timer that is about to run, or what small queues held back. */
struct timer_event {
	u8 piece;
	u8 timer; /* enum timer_name */
	u16 next; /* identification that the next packet of the socket's own will have */
	u32 jiffies;
	u64 sk;
	u64 at;
	u32 memory; /* sk_wmem_alloc */
	u32 owned;  /* a call has the lock: put off */
};

struct head {
	u8 piece;
	u8 end; /* 0: it connected */
	u16 used; /* bytes behind the head */
	u32 serial;
	u64 clock; /* of its first event, all of it */
	u64 sk;
	u32 lost; /* blocks, events and calls of this socket before */
	u32 jiffies;
	struct state state; /* before its first event */
};

#define ROOM 960
#define MOST 52 /* of one event: struct packet_event and its words, rounded up */

struct block {
	struct head head;
	u8 data[ROOM];
};

#define MOST_CALLS 64

struct calls {
	struct head head;
	struct call_event data[MOST_CALLS];
};

struct opened {
	u8 piece;
	u8 end;
	u16 own_port;
	u16 peer_port; /* as in packets */
	u16 next;
	u32 own, peer;
	u64 sk;
	u64 at;
	u64 clock;
	u64 begun; /* connect() */
	u32 jiffies;
	struct socket_words words;
	u32 lost; /* of all, before */
	struct socket_settings found;
	u32 pad;
};

struct {
	__uint(type, BPF_MAP_TYPE_RINGBUF);
	__uint(max_entries, 64 << 20);
} events SEC(".maps");

/* All of .rodata.timers: the kernel's functions of TCP's timers, which the loader writes; 0: it has none such. */
struct timers {
	u64 write;
	u64 delayed_ack;
	u64 keepalive;
	u64 pacing;
	u64 compressed_ack;
	u64 small_queues;
};
const volatile struct timers timers SEC(".rodata.timers") = {};

/* All of .bss. */
struct counters {
	u64 lost;
	u64 ipv6; /* chosen sockets that speak it: their packets have no identification */
	u64 stored; /* sockets that are not in the table */
};
struct counters counters = {};

MIRRORED(struct, packet_event);
MIRRORED(struct, state_event);
MIRRORED(struct, call_event);
MIRRORED(struct, timer_event);
MIRRORED(struct, head);
MIRRORED(struct, opened);
MIRRORED(struct, timers);
MIRRORED(struct, counters);
MIRRORED(struct, state);
MIRRORED(struct, socket_words);
MIRRORED(enum, piece);
MIRRORED(enum, flag);
MIRRORED(enum, event_kind);
MIRRORED(enum, call_direction);
MIRRORED(enum, timer_name);

#endif
