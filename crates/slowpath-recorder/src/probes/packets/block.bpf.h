/* SPDX-License-Identifier: GPL-2.0 */
/* What the light recorder puts into the ring. */
#ifndef SLOWPATH_PACKETS_BLOCK_H
#define SLOWPATH_PACKETS_BLOCK_H

#include "state.bpf.h"

#define PORTS 16
#define EBUSY 16

/* Of what a ring's entry is. */
enum piece {
	OPENED = 1, /* struct opened */
	PACKETS,    /* struct block with struct seen, in the order of the socket's lock */
	CALLS,      /* struct block with struct called; nobody has the lock there */
	TIMER,      /* struct fired */
	GONE,       /* struct block of packets, the last one */
};

/*
 * What TCP was about to do with a packet (tcp_rcv_established), or which state it went to. Words of what
 * has changed since the one before follow, in the order of WORDS; then what its flags say.
 */
struct seen {
	u16 id;    /* IP identification; before a change of state: which it was, then which it will be */
	u16 next;  /* identification that the next packet of this socket's own will have */
	u32 clock; /* TCP's last reading of its clock, lower half */
	u8 words;  /* which follow */
	u8 segments;
	u8 flags;
	u8 what;
};

/* Words: snd_nxt, snd_una, write_seq, rcv_nxt, copied_seq, sk_wmem_alloc, rcv_wnd. */
#define WORDS 7

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

#define SENT 1
#define RECEIVED 2

/* A timer that is about to run, or what small queues held back. */
struct fired {
	u8 piece;
	u8 timer; /* in the order of timers below */
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
	u32 state[STATES]; /* before its first event */
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
	u32 words[WORDS];
	u32 lost; /* of all, before */
	struct found found;
};

struct {
	__uint(type, BPF_MAP_TYPE_RINGBUF);
	__uint(max_entries, 64 << 20);
} events SEC(".maps");

/* Connections to and from these ports; none: all. The loader writes it as 16-bit words. */
const volatile struct {
	u16 count;
	u16 ports[PORTS];
} chosen = {};

/* The kernel's functions of TCP's timers; 0: it has none such. The loader writes it as 64-bit words. */
const volatile struct {
	u64 write, delayed_ack, keepalive, pacing, compressed_ack, small_queues;
} timers SEC(".rodata.timers") = {};

/* In .bss: the loader reads it so. */
struct {
	u64 lost;
	u64 ipv6; /* chosen sockets that speak it: their packets have no identification */
	u64 stored; /* sockets that are not in the table */
} counters = {};

#endif
