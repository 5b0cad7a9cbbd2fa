/* SPDX-License-Identifier: GPL-2.0 */
/*
 * The recorder's events: one struct for each kind that carries something of its own. Rust's side is
 * src/stock/wire.rs: the build compares both field by field, and so does the loader (test
 * probes::tests::a_mirrored_struct_that_differs_is_refused).
 */
#ifndef SLOWPATH_HANDLERS_EVENT_H
#define SLOWPATH_HANDLERS_EVENT_H

#include "state.bpf.h"

/* Of the socket: SO_*, TCP_* and IP_* as they are kept there. */
struct set {
	u32 locked; /* SOCK_SNDBUF_LOCK, SOCK_RCVBUF_LOCK */
	u32 send_buffer;
	u32 receive_buffer;
	u32 nagle; /* TCP_NAGLE_* */
	u32 segment;
	u32 window_clamp;
	u32 flags; /* SOCK_* of enum sock_flags */
	u32 keep_idle; /* ticks */
	u32 keep_interval; /* ticks */
	u32 keep_count;
	u32 linger; /* ticks */
	u32 low_water;
	u32 unsent_low_water;
	u32 user_timeout; /* ms */
	u32 syn_count;
	s32 linger_2; /* ticks; negative: not at all */
	u32 defer_accept;
	u32 pacing; /* of 64 bits: the lower half, */
	u32 pacing_high;
	u32 service;
	s32 time_to_live; /* negative: the usual one */
	u32 discovery;
	u32 pingpong;
};

/* With which struct each comes stands behind it. */
enum kind {
	OPEN = 1,	   /* opened */
	CALL,		   /* call: CONNECT, ACCEPT, CLOSE */
	TRANSFER,	   /* transfer: SEND, RECEIVE */
	SHUTDOWN_CALL,	   /* shutdown_call */
	OPTION_CALL,	   /* option_call */
	CALL_END,	   /* call_end */
	OPTION_END,	   /* option_end */
	LOCK,		   /* lock */
	RELEASE,	   /* snapshot */
	DRAIN,		   /* snapshot */
	RUN_END,	   /* run_end */
	CALLBACK,	   /* callback */
	CALLBACK_END,	   /* snapshot */
	PACKET,		   /* packet */
	SYN_PACKET,	   /* syn_packet: one that has SYN */
	TIMER,		   /* timer */
	SMALL_QUEUE,	   /* event */
	CLOCK,		   /* event: TCP has read its clock */
	CHILD,		   /* child: a handshake's last packet has made this socket */
	SENT,		   /* sent */
	HANDED_OVER,	   /* handed_over: the device has it */
	QUEUED,		   /* queued: into the backlog */
	DRAINED,	   /* event */
	GONE,		   /* event */
	BUSY,		   /* event: what is to be sent again has not left yet */
	SETTINGS,	   /* settings */
	WINDOW,		   /* event: it is looked for, and more waits in the backlog than the event before says */
	ANSWERED_BY_RESET, /* answered_by_reset */
	NAMED,		   /* named */
	OPTIONS,	   /* options */
	NO_ROOM,	   /* snapshot: a poll said so */
	OTHER_CALL,	   /* other_call */
	METRICS,	   /* metrics */
	/* Of what has no socket. */
	REQUEST_PACKET,	   /* request_packet */
	REQUEST_TIMER,	   /* request_timer */
	REQUEST_ANSWERED,  /* request_answered */
	LATE_PACKET,	   /* late_packet */
};

/* Whose call. */
enum call_name {
	CONNECT = 1,
	ACCEPT,
	SEND,
	RECEIVE,
	SHUTDOWN,
	CLOSE,
};

/* What each begins with. */
struct head {
	u64 at; /* ns of the monotonic clock */
	u32 jiffies;
	u8 kind;
	u8 end;	  /* 0: it connected, 1: it accepts */
	u8 owned; /* a call has the socket */
	u8 pad;
};

/* Of a socket. */
struct event {
	struct head head;
	u64 sk;
	u64 clock; /* TCP's last reading of its clock, ns */
	u32 task;
	u32 lost; /* events of this socket before this one */
	u32 memory; /* sk_wmem_alloc */
	u32 backlog; /* sk_backlog.len */
	/* What jiffies were for those who noted them. */
	u32 received;  /* when data came last */
	u32 data_sent; /* when it was sent last */
	u32 window_changed;
	u32 cubic; /* noted by ourselves: when its window was looked at last */
	u32 delayed_ack;
	u32 out_of_window; /* when one was answered last */
};

/* Those of IPv4 as ::ffff:0:0/96. */
struct addresses {
	u8 own[16];
	u8 peer[16];
};

struct opened {
	struct event event;
	struct addresses addresses;
	u16 own_port;
	u16 peer_port; /* as in packets */
	u32 pad;
};

struct call {
	struct event event;
	u32 call; /* enum call_name */
	u32 pad;
};

struct transfer {
	struct event event;
	u32 call; /* enum call_name */
	u32 bytes;
	u32 flags; /* MSG_* */
	u32 first_page; /* of a file that is sent: first_page() */
};

struct shutdown_call {
	struct event event;
	u32 how;
	u32 pad;
};

struct option_call {
	struct event event;
	u64 value; /* its first bytes */
	u32 level;
	u32 name;
	u32 length;
	u32 pad;
};

struct call_end {
	struct event event;
	u32 call; /* enum call_name */
	s32 result;
};

struct lock {
	struct event event;
	u32 fragment; /* fragment() */
	u32 pad;
};

/* The state that a check is made from. */
struct snapshot {
	struct event event;
	u32 phase; /* phase() */
	struct probed probed;
	u32 pad;
};

struct option_end {
	struct snapshot snapshot;
	s32 result;
	u32 pad;
};

/* What ends. */
enum run_name {
	OF_PACKET = 1,
	OF_TIMER,
	OF_SMALL_QUEUE,
};

struct run_end {
	struct snapshot snapshot;
	u32 run; /* enum run_name */
	u32 damaged; /* of a packet: its checksum was wrong */
};

struct callback {
	struct snapshot snapshot;
	u32 flags; /* TCPF_*_DEFERRED */
	u32 pad;
};

/* Bits of packet.bits and queued.bits. */
enum packet_bit {
	SEVERAL = 1, /* several segments are one: it was not cut, or it was joined */
	ITS_OWN = 2, /* no other packet has its bytes: who sent it does, unless it was cut or copied (SKB_DATAREF_MASK) */
	FIRST = 4,   /* a child's */
	MERGED = 8,  /* into the one before it in the backlog */
};

struct packet {
	struct event event;
	u32 begins, ends; /* sequence numbers */
	u32 truesize;
	u32 acknowledges;
	u32 alike; /* over IPv6: alike() */
	u16 id; /* over IPv4: its identification */
	u8 ecn;
	u8 bits; /* enum packet_bit */
};

struct syn_packet {
	struct packet packet;
	u32 likeness; /* likeness() */
	u32 pad;
};

enum timer_name {
	WRITE_TIMER,
	DELAYED_ACK_TIMER,
	KEEPALIVE_TIMER,
	PACING_TIMER,
	COMPRESSED_ACK_TIMER,
};

struct timer {
	struct event event;
	u32 timer; /* enum timer_name */
	u32 pad;
};

struct child {
	struct event event;
	u64 sent; /* the SYN-ACK, us; 0: it was a cookie */
	u32 round_trip; /* us; 0: not measured */
	u32 pad;
};

struct sent {
	struct event event;
	u32 begins, ends; /* sequence numbers */
	u32 id; /* the identification that it gets over IPv4 */
	u32 pad;
};

struct handed_over {
	struct event event;
	s32 result; /* NET_XMIT_*, or an error */
	u32 pad;
};

/* As it came; it may be made smaller, and part of the one before it, on its way into the backlog. */
struct queued {
	struct event event;
	u32 begins, ends; /* sequence numbers */
	u32 alike; /* over IPv6: alike() */
	u16 id; /* over IPv4: its identification */
	u8 bits; /* enum packet_bit */
	u8 pad;
};

struct settings {
	struct event event;
	struct socket_settings found;
};

struct answered_by_reset {
	struct event event;
	u32 begins; /* the reset */
	u32 acknowledges;
};

/* What was SENT last, over IPv6. */
struct named {
	struct event event;
	u32 alike; /* alike() */
	u32 pad;
};

/* Options that were set before. */
struct options {
	struct event event;
	struct set set;
	u32 pad;
};

/* What no replay can do. */
enum other {
	SPLICED = 1,   /* splice() from the socket */
	ABORTED,       /* ss -K */
	FAST_OPEN = 5, /* connect() by sendto(), or TCP_FASTOPEN_CONNECT */
};

struct other_call {
	struct event event;
	u32 other; /* enum other */
	u32 pad;
};

/* What earlier connections left changed these. */
struct metrics {
	struct event event;
	u32 timeout;
	u32 reordering;
	u32 threshold; /* ssthresh */
	u32 largest_window;
};

/* Of what has no socket: a request for a connection, or what is left of one. */
struct stub {
	struct head head;
	struct addresses addresses;
	u16 own_port;
	u16 peer_port; /* as in packets */
	u32 pad;
};

/* What was made of a packet that came for a request. */
enum request {
	ASKED = 1,   /* a SYN came to the listener */
	ASKED_AGAIN, /* or to the request itself */
	IGNORED,     /* an ACK came, and made no socket: TCP_DEFER_ACCEPT, or no room */
};

struct request_packet {
	struct stub stub;
	u32 begins; /* its sequence number; 0: not known */
	u32 alike; /* over IPv6: alike() */
	u16 id; /* over IPv4: its identification */
	u8 ecn;
	u8 request; /* enum request */
	u32 full; /* no more may wait to be accepted */
};

struct request_timer {
	struct stub stub;
	u32 tries; /* tries() */
	u32 pad;
};

/* A SYN-ACK was made. */
struct request_answered {
	struct stub stub;
	u64 clock; /* its time; of a cookie nothing */
	u32 theirs; /* initial sequence numbers: of the SYN, and its own */
	u32 own;
	u32 likeness; /* likeness() */
	u32 cookie; /* it was a SYN cookie */
};

/* A packet came for which there is no socket: what was made of it. */
enum late {
	/* enum tcp_tw_status */
	LATE_SUCCESS,
	LATE_RESET,
	LATE_ACK,
	LATE_SYN,
	LATE_ACK_OUT_OF_WINDOW,
	/* Not even time wait. */
	NO_SOCKET_RESET = 64,
	NO_SOCKET_UNANSWERED, /* it was a reset itself */
};

struct late_packet {
	struct stub stub;
	u32 begins; /* sequence numbers: its own, */
	u32 acknowledges;
	u32 answer_begins; /* of what is answered */
	u32 answer_acknowledges;
	u32 alike; /* over IPv6: alike() */
	u16 id; /* over IPv4: its identification */
	u8 ecn;
	u8 late; /* enum late */
};

MIRRORED(struct, set);
MIRRORED(struct, head);
MIRRORED(struct, event);
MIRRORED(struct, addresses);
MIRRORED(struct, opened);
MIRRORED(struct, call);
MIRRORED(struct, transfer);
MIRRORED(struct, shutdown_call);
MIRRORED(struct, option_call);
MIRRORED(struct, call_end);
MIRRORED(struct, lock);
MIRRORED(struct, snapshot);
MIRRORED(struct, option_end);
MIRRORED(struct, run_end);
MIRRORED(struct, callback);
MIRRORED(struct, packet);
MIRRORED(struct, syn_packet);
MIRRORED(struct, timer);
MIRRORED(struct, child);
MIRRORED(struct, sent);
MIRRORED(struct, handed_over);
MIRRORED(struct, queued);
MIRRORED(struct, settings);
MIRRORED(struct, answered_by_reset);
MIRRORED(struct, named);
MIRRORED(struct, options);
MIRRORED(struct, other_call);
MIRRORED(struct, metrics);
MIRRORED(struct, stub);
MIRRORED(struct, request_packet);
MIRRORED(struct, request_timer);
MIRRORED(struct, request_answered);
MIRRORED(struct, late_packet);
MIRRORED(enum, kind);
MIRRORED(enum, call_name);
MIRRORED(enum, run_name);
MIRRORED(enum, packet_bit);
MIRRORED(enum, timer_name);
MIRRORED(enum, other);
MIRRORED(enum, request);
MIRRORED(enum, late);

#endif
