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

/* Of what a ring's entry is. */
enum piece {
	OPENED = 1, /* struct opened */
	PACKETS,    /* struct block with struct seen, in the order of the socket's lock */
	CALLS,      /* struct block with struct called; nobody has the lock there */
	TIMER,      /* struct fired */
	GONE,       /* struct block of packets, the last one */
};

/* Words of a socket, of which each event has those that have changed since the one before, in this order. */
struct words {
	u32 snd_nxt;
	u32 snd_una;
	u32 write_seq;
	u32 rcv_nxt;
	u32 copied_seq;
	u32 wmem_alloc;
	u32 rcv_wnd;
};

#define WORDS (sizeof(struct words) / sizeof(u32))

/* A packet, with which TCP was about to begin (tcp_rcv_established). The words follow that have changed; then what its flags say. */
struct seen {
	u16 id;    /* IP identification */
	u16 next;  /* identification that the next packet of this socket's own will have */
	u32 clock; /* TCP's last reading of its clock, lower half */
	u8 words;  /* which follow: a bit for each */
	u8 segments;
	u8 flags; /* enum flag */
	u8 what;  /* PACKET */
};

/* The state that a socket went to; what follows is the same. */
struct changed {
	u8 from;
	u8 to;
	u16 next;
	u32 clock;
	u8 words;
	u8 shutdown; /* sk_shutdown */
	u8 flags;
	u8 what; /* STATE */
};

_Static_assert(sizeof(struct seen) == sizeof(struct changed) &&
		       __builtin_offsetof(struct seen, next) == __builtin_offsetof(struct changed, next) &&
		       __builtin_offsetof(struct seen, clock) == __builtin_offsetof(struct changed, clock) &&
		       __builtin_offsetof(struct seen, words) == __builtin_offsetof(struct changed, words) &&
		       __builtin_offsetof(struct seen, flags) == __builtin_offsetof(struct changed, flags) &&
		       __builtin_offsetof(struct seen, what) == __builtin_offsetof(struct changed, what),
	       "note() fills what both have");

enum flag {
	OWNED = 1,  /* a call has the lock: it waited in the backlog */
	MARKED = 2, /* CE */
	FULL = 4,   /* the send buffer is */
	DATA = 8,   /* it has some, or ends them */
	/* Behind the words, in this order, each a moment's lower half: */
	TOLD = 16,  /* when something new was acknowledged last, in microseconds */
	TIMED = 32, /* when it came, if it acknowledges all that was sent */
	WENT = 64,  /* when something was sent last; the clock has been read since */
};

enum what {
	PACKET = 1,
	STATE,
};

/* A call that has returned. */
struct called {
	s32 result;
	u32 flags; /* MSG_*, the lower 24 bits; then SENT or RECEIVED */
	u32 clock; /* TCP's last reading of its clock, of what sends that with which it sent, lower half */
};

enum called_as {
	SENT = 1,
	RECEIVED = 2,
};

enum fired_timer {
	WRITE_TIMER,
	DELAYED_ACK_TIMER,
	KEEPALIVE_TIMER,
	PACING_TIMER,
	COMPRESSED_ACK_TIMER,
	SMALL_QUEUES,
};

/* A timer that is about to run, or what small queues held back. */
struct fired {
	u8 piece;
	u8 timer; /* enum fired_timer */
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
#define MOST 52 /* of one event: struct seen and its words, rounded up */

struct block {
	struct head head;
	u8 data[ROOM];
};

#define MOST_CALLS 64

struct calls {
	struct head head;
	struct called data[MOST_CALLS];
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
	struct words words;
	u32 lost; /* of all, before */
	struct found found;
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

MIRRORED(struct, seen);
MIRRORED(struct, changed);
MIRRORED(struct, called);
MIRRORED(struct, fired);
MIRRORED(struct, head);
MIRRORED(struct, opened);
MIRRORED(struct, timers);
MIRRORED(struct, counters);
MIRRORED(struct, state);
MIRRORED(struct, words);
MIRRORED(enum, piece);
MIRRORED(enum, flag);
MIRRORED(enum, what);
MIRRORED(enum, called_as);
MIRRORED(enum, fired_timer);

#endif
