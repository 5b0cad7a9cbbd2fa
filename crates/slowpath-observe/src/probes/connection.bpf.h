/* SPDX-License-Identifier: GPL-2.0 */
/*
 * What the probes keep for each connection, the maps they share, and the one function
 * that copies a connection's statistics out. The Rust side of what is MIRRORED is wire.rs: the
 * build compares both sides field by field, and so does the loader (test
 * probes::tests::a_mirrored_struct_that_differs_is_refused).
 */
#ifndef SLOWPATH_CONNECTION_H
#define SLOWPATH_CONNECTION_H

#include "kernel.bpf.h"

#define BUCKETS 16

/*
 * `calls.both` holds the bytes in its lower bits, the calls above them, and is exact: one atomic
 * addition a call. What it cannot hold of either is in `bytes` and `count`, which are near.
 */
enum both {
	BOTH_BYTES_BITS = 44,
};

/* Socket calls in one direction. Of two threads that call at once one may be lost, but not in `both`. */
struct calls {
	u64 count;
	u64 bytes;
	u64 both;
	u64 last_jiffies;
	u32 min;
	u32 max;
	u32 histogram[BUCKETS];
};

/* Bits of connection.ack: what the segment that tcp_probe met last could show. */
#define ACK_LONE 1 /* a pure ACK for the only segment in flight, and not the rest of a burst */
#define ACK_HELD 2 /* and unsent data or a blocked writer waited for it */
#define ACK_CROWD 4 /* one of several segments in flight */

/*
 * What a connection waited for, and what went wrong, beyond SNAP's six. Most connections
 * never touch it: it is copied only if connection.waited says so.
 */
struct waits {
	u64 reordering_ns;
	u64 cwr_ns;
	u64 burst_ns;
	u32 cwnd_jiffies;
	u32 nagle_jiffies;
	u32 zero_jiffies;
	u32 unread_jiffies;
	u32 full_jiffies; /* the send buffer was full, all of it under way */
	u32 zero_windows;
	u32 spurious; /* recoveries undone although no reordering was counted */
	u32 burst_losses;
	u32 syn_retransmits;
	u32 syn_wait_ms;
	u32 few_losses; /* timers that expired with too little in flight, and nothing unsent */
	u32 late_after_loss; /* delayed ACKs of what a timer sent again */
	/* not for user space: what was read last, and which episode is open */
	u32 last_reord;
	u32 last_ce;
	u32 last_una;
	u32 burst_start;
	u32 burst_bytes;
	u8 zero_open;
	u8 burst_open;
	u16 pad;
};

/* Whose turn it is. */
enum turn {
	TURN_UNKNOWN = 0, /* no data yet */
	TURN_PEER = 1,	  /* this end's application wrote last */
	TURN_HERE = 2,	  /* data arrived last */
	TURN_CROSSED = 3, /* data passed both ways at once: until this end writes again */
};

/* Answers of one end. */
struct answers {
	u64 sum_us;
	u32 count;
	u32 max_us;
};

/*
 * Requests and answers, see turns.bpf.h. In the storage all but the first eight bytes lie in one
 * cache line.
 */
struct turns {
	u32 overlapping;
	u32 pad;
	u64 since_us; /* the monotonic clock when the turn began */
	u32 written;  /* write_seq after the last write that is accounted for */
	u8 whose;     /* enum turn */
	u8 by_ack;    /* since_us is the request's still: RACK knows when the answer arrived */
	u8 by_clock;  /* RACK does not know it: read the clock */
	u8 unread;    /* data may have come since the application read all of it */
	struct answers peer;
	struct answers here;
};

#define LATEST 16

/* Whose turns. */
enum side {
	SIDE_PEER,
	SIDE_HERE,
};

/*
 * How long the latest turns of each side took, in microseconds: turn n is at n % LATEST. Turns
 * of both sides alternate, so that two that follow each other lie in one cache line.
 */
struct latest_turns {
	u32 lengths[LATEST][2];
};

/* Bits of caller.flags. */
enum caller_flag {
	CALLER_KERNEL = 1,    /* the kernel opened it for itself */
	CALLER_HANDED_ON = 2, /* another process than the opener closed it */
};

/* Who called connect(2), who closed it, and where the socket comes from. */
struct caller {
	u64 start_ns;
	u64 cgroup;
	u64 socket_cgroup;
	u64 listener; /* cookie of the listening socket, of an accepted connection */
	u64 closer_start_ns;
	u32 pid;
	u32 program;
	u32 flags;
	u32 closer_pid;
	char command[16];
};

struct connection {
	/*
	 * poll: the poll that the latest note is for, when last met by a walk, what the last
	 * snapshot was made of, and the poll before the latest note: until then nothing had changed
	 */
	u32 marked;
	u32 epoch;
	u32 copied_segments;
	u32 copied_calls;
	u64 since_ns;
	u8 copied_state;
	u8 origin;
	u8 suspect; /* calls that may still be logged */
	u8 ca_state;
	/* segments */
	u32 srtt_us;
	u32 mdev_us;
	u32 snd_una;
	u32 ack;
	u32 rtt_min_us;
	u32 rtt_count;
	u32 wait_mark; /* jiffies since which data is known to wait, or 0 */
	u64 rtt_sum_us;
	u32 lone_count;
	u32 late_count;
	u64 lone_sum_us;
	u64 late_sum_us;
	u64 held_sum_us;
	u32 held_count;
	/* recovery */
	u32 fast_recoveries;
	u32 loss_entries;
	u32 unread_mark; /* jiffies since which too much is known to be unread, or 0 */
	u32 last_event;	 /* jiffies of the last segment received or state changed */
	u32 waited;	 /* whether anything of `waits` is set */
	u64 ca_since_ns;
	u64 recovery_ns;
	u64 loss_ns;
	u64 rto_wait_us;
	/* life */
	u64 cookie;
	u64 start_ns;
	struct caller caller;
	struct calls sends;
	struct calls receives;
	struct turns turns;
	struct waits waits;
	struct latest_turns latest;
};

enum origin {
	ORIGIN_UNKNOWN = 0,
	ORIGIN_OPENED = 1,
	ORIGIN_ACCEPTED = 2,
};

/* Bits of record.flags. */
enum record_flag {
	RECORD_CLOSED = 1,
	RECORD_HAS_RTO = 2,
	RECORD_APP_LIMITED = 4,
	RECORD_BUSY = 8, /* a chronograph is running: it changes without an event */
	RECORD_WAITS = 16, /* `waits` is set */
	RECORD_NOT_SENT = 32, /* its SYN never left this host */
};

/* One connection at one moment, in the kernel's own scales. */
struct record {
	u64 sk;
	u64 connection;
	u64 cookie;
	u64 start_ns;
	u64 at_ns;
	u64 since_ns;
	u64 at_jiffies;
	u64 bytes_sent;
	u64 bytes_acked;
	u64 bytes_received;
	u64 bytes_retrans;
	u64 pacing_rate;
	u64 max_pacing_rate;
	u64 rtt_sum_us;
	u64 lone_sum_us;
	u64 late_sum_us;
	u64 held_sum_us;
	u64 recovery_ns;
	u64 loss_ns;
	u64 rto_wait_us;
	u64 netns_cookie; /* no later namespace gets it again, as it may get netns */
	struct caller caller;
	struct calls sends;
	struct calls receives;
	struct turns turns;
	u32 rtt_count;
	u32 lone_count;
	u32 late_count;
	u32 held_count;
	u32 rtt_min_us;
	u32 fast_recoveries;
	u32 loss_entries;
	u32 netns;
	u32 segs_out;
	u32 segs_in;
	u32 data_segs_out;
	u32 data_segs_in;
	u32 total_retrans;
	u32 delivered;
	u32 delivered_ce;
	u32 dsack_dups;
	u32 reord_seen;
	u32 rcv_ooopack;
	u32 packets_out;
	u32 lost_out;
	u32 retrans_out;
	u32 sacked_out;
	u32 snd_cwnd;
	u32 snd_ssthresh;
	u32 snd_wnd;
	u32 rcv_wnd;
	u32 mss_cache;
	u32 pmtu;
	u32 reordering;
	u32 srtt_us;
	u32 mdev_us;
	u32 windowed_min_us;
	u32 rto_jiffies;
	u32 chrono_jiffies[3];
	u32 unsent;
	u32 send_queue;
	u32 receive_queue;
	u32 wmem_queued;
	u32 sndbuf;
	u32 rcvbuf;
	u32 rate_delivered;
	u32 rate_interval_us;
	u32 total_rto_time_ms;
	u16 total_rto;
	u16 total_rto_recoveries;
	u16 local_port;
	u16 remote_port;
	u8 family;
	u8 state;
	u8 ca_state;
	u8 backoff;
	u8 retransmits;
	u8 probes;
	u8 origin;
	u8 flags;
	u8 local[16];
	u8 remote[16];
	u32 wmem_alloc;
	u16 error;	/* sk_err as it closed */
	u8 closed_in;	/* the state that it closed in */
	u8 pad;
	u32 snd_una;
	struct waits waits;
	struct latest_turns latest; /* as many as were counted */
};

/*
 * Knobs and counters, shared with user space through a mapped page. What every event
 * reads has cache lines of its own, separate from what is written often.
 */
struct shared {
	/* written by user space before a poll */
	u64 now_ns;
	u32 epoch; /* the list that changes are noted in is epoch & 1 */
	u32 late_margin_us;
	u32 hz;
	u32 emit_all;
	u32 suspects;
	u32 list_capacity;
	u32 list_base; /* for `collect`: where to read */
	u32 list_count;
	u32 list_epoch;
	u32 carried;
	u32 thinned; /* THINNED_*: not every poll looks at every changed connection */
	u32 netns; /* inode number of the network namespace to observe; 0: all */
	u64 pad0[7];
	/* noted changes, list by list */
	u32 noted[2];
	u32 pad1[14];
	/* written by a poll */
	u32 area_used;
	u32 visited;
	u32 repeats;
	u32 left_over;
	u64 jiffies;
	u64 touched;
	/* since the start */
	u64 opened;
	u64 closed;
	u64 live;
	u64 storage_failed;
	u64 closes_dropped;
	u64 calls_dropped;
	u64 seeded;
	u64 notes_dropped;
	u64 late_closes;
};

/* Values of shared.thinned. */
enum thinned {
	THINNED_NOT,
	THINNED_NOTES, /* polls read the notes */
	THINNED_WALKS, /* polls walk over all */
};

/*
 * A connection that changed: where to find it, the cookie to know it again by, and the
 * poll that is to look at it.
 */
struct note {
	u64 sk;
	u64 connection;
	u64 cookie;
	u32 due;
	u32 pad;
};

#define RATE_SLOTS (1 << 18)
#define RATES 8
#define GAPS 1024

/* Above the number of a rate. */
enum rate_flag {
	RATE_SUSPECT = 8, /* the calls on this connection are logged one by one */
};

/*
 * How often connections are looked at, written by user space at any time: the rate of
 * each, and for each rate how many polls are passed over between two looks. These numbers
 * are quantiles of a geometric distribution, of which one is drawn: so each poll looks
 * with the same probability, whatever came before.
 */
struct rates {
	u8 slots[RATE_SLOTS]; /* by cookie; RATE_* above the number of the rate */
	u16 gaps[RATES][GAPS];
};

MIRRORED(struct, calls);
MIRRORED(enum, both);
MIRRORED(struct, waits);
MIRRORED(struct, answers);
MIRRORED(struct, turns);
MIRRORED(struct, latest_turns);
MIRRORED(enum, turn);
MIRRORED(enum, side);
MIRRORED(struct, caller);
MIRRORED(struct, record);
MIRRORED(struct, shared);
MIRRORED(struct, note);
MIRRORED(struct, rates);
MIRRORED(enum, caller_flag);
MIRRORED(enum, origin);
MIRRORED(enum, record_flag);
MIRRORED(enum, thinned);
MIRRORED(enum, rate_flag);

struct {
	__uint(type, BPF_MAP_TYPE_SK_STORAGE);
	__uint(map_flags, BPF_F_NO_PREALLOC);
	__type(key, int);
	__type(value, struct connection);
} connections SEC(".maps");

/* A section of its own: its address is in the programs, where an array's element is looked up. */
struct shared shared SEC(".bss.shared");

/* Two lists of notes, one being written and one being read, and one for user space. */
struct {
	__uint(type, BPF_MAP_TYPE_ARRAY);
	__uint(map_flags, BPF_F_MMAPABLE);
	__uint(max_entries, 3); /* set before load */
	__type(key, u32);
	__type(value, struct note);
} notes SEC(".maps");

struct {
	__uint(type, BPF_MAP_TYPE_ARRAY);
	__uint(map_flags, BPF_F_MMAPABLE);
	__uint(max_entries, 1);
	__type(key, u32);
	__type(value, struct rates);
} rates SEC(".maps");

static __always_inline struct shared *shared_page(void)
{
	return &shared;
}

/* Whether the socket is in a network namespace that is observed. */
static __always_inline bool observed(const struct sock *sk, const struct shared *s)
{
	u32 netns = s->netns;

	return !netns || sk->__sk_common.skc_net.net->ns.inum == netns;
}

/* Calls of a suspect that are logged between two polls; the sums count all. */
#define SUSPECT_CALLS 255

static __always_inline u8 rate_of(const struct rates *r, u64 cookie)
{
	return r->slots[cookie & (RATE_SLOTS - 1)];
}

/* How many polls pass before the one that looks at a connection with this rate. */
static __always_inline u32 draw_gap(const struct rates *r, u8 rate)
{
	return r->gaps[rate & (RATES - 1)][bpf_get_prandom_u32() & (GAPS - 1)];
}

static __always_inline struct rates *rate_table(void)
{
	u32 zero = 0;

	return bpf_map_lookup_elem(&rates, &zero);
}

/* `marked` is what the connection's mark was when the caller decided to note it. */
static __always_inline void note_change(struct connection *c, const void *sk, struct shared *s,
					u32 epoch, u32 marked)
{
	u32 list = epoch & 1, index, due = epoch;
	struct note *note;
	u8 suspect = 0;

	if (s->suspects || s->thinned) {
		struct rates *r = rate_table();

		if (r) {
			u8 rate = rate_of(r, c->cookie);

			if (rate & RATE_SUSPECT)
				suspect = SUSPECT_CALLS;
			if (s->thinned && marked) /* a new one is looked at by the next poll */
				due += draw_gap(r, rate);
		}
	}
	/* an event on another processor may note it at this very moment: one of them does */
	if (__sync_val_compare_and_swap(&c->marked, marked, due) != marked)
		return;
	c->suspect = suspect;
	c->since_ns = s->now_ns;
	index = __sync_fetch_and_add(&s->noted[list], 1);
	if (index >= s->list_capacity) {
		/* the next poll walks over everything */
		__sync_fetch_and_add(&s->notes_dropped, 1);
		return;
	}
	index += list ? s->list_capacity : 0;
	note = bpf_map_lookup_elem(&notes, &index);
	if (note) {
		note->sk = (u64)sk;
		note->connection = (u64)c;
		note->cookie = c->cookie;
		note->due = due;
	}
}

/* Whether a poll that has not begun yet is to look at the connection. */
static __always_inline bool awaited(u32 marked, u32 epoch)
{
	return (s32)(marked - epoch) >= 0;
}

/* Notes that the connection changed, once between two looks at it. */
static __always_inline void changed(struct connection *c, const void *sk)
{
	struct shared *s = shared_page();
	u32 epoch, marked;

	if (!s)
		return;
	epoch = *(volatile u32 *)&s->epoch;
	marked = *(volatile u32 *)&c->marked;
	if (!marked || !awaited(marked, epoch))
		note_change(c, sk, s, epoch, marked);
}

/* TCP_SKB_CB: seq and end_seq are its first two members (include/net/tcp.h). */
struct tcp_skb_cb_head {
	u32 seq;
	u32 end_seq;
};

/*
 * The RTT sample that changed the smoothed RTT from `old` to `new` (both x8):
 * tcp_rtt_estimator computes new = old + m - (old >> 3), and new = m << 3 at first.
 */
static __always_inline u32 rtt_sample(u32 old, u32 new)
{
	s64 m = old ? (s64)new - old + (old >> 3) : new >> 3;

	return m > 0 && m < 0x7fffffff ? m : 0;
}

/*
 * Whether the latest ACK gave a sample, and which. A sample that equals the smoothed
 * RTT changes neither it nor a mean deviation below 4; then the advance of snd_una shows it.
 */
static __always_inline u32 pending_sample(const struct connection *c, u32 srtt, u32 mdev, u32 una)
{
	if (srtt != c->srtt_us || mdev != c->mdev_us)
		return rtt_sample(c->srtt_us, srtt);
	if (una != c->snd_una && mdev < 4 && srtt)
		return srtt >> 3;
	return 0;
}

static __always_inline u32 elapsed(u32 from, u32 to)
{
	s32 d = to - from;

	return d > 0 ? d : 0;
}

#include "turns.bpf.h"
#include "fill.bpf.h"

#endif
