/* SPDX-License-Identifier: GPL-2.0 */
/* What replay.c and follow.c share. */
#ifndef SLOWPATH_LAB_REPLAY_H
#define SLOWPATH_LAB_REPLAY_H

#include <linux/skbuff.h>
#include <net/slowpath_lab.h>
#include "script.h"

struct replay_end {
	const struct lab_run_record *next;
	const struct lab_run_record *last; /* one past it */
	const struct lab_run_record *under_way;
	u64 runs;
	u32 check;
	u32 digest;
	u64 jiffies;
	u64 clock;
	bool unnumbered;
	u64 moment;   /* of the last run */
	u32 same_moment; /* runs of that moment */
	u32 sent; /* before the run under way */
	/* Packets that this end is to get, by their number. */
	u32 packets;
	struct sk_buff **held;
	u64 *begins; /* of those that were cut on the way: the first sequence number, and a bit above it */
	u16 *uses; /* how often each comes, or pieces of it do */
};

struct replay {
	struct replay_end ends[2];
	u32 connection;
	/* Of the run under way. */
	const struct lab_run_record *run;
	const struct lab_run_record *decisions;
	u32 left;
	u32 clocks; /* read so far */
	u32 compared; /* so far */
	bool traced; /* its functions are written down */
	u32 packets; /* that it sent, mixed */
	u32 first[2]; /* sequence numbers of SYN and SYN-ACK */
	u32 decided[SLOWPATH_DECISIONS];
	struct lab_replayed result;
};

extern struct replay replay;

void lab_begin_run(const struct lab_run_record *record);
void lab_finish_run(struct replay_end *end);
void lab_diverge(u32 status, u8 end, u32 expected, u32 found);
/* Something is changed: it need not come out as recorded. */
bool lab_what_if(void);
/* Of those that came in a run one that the network had delivered, from the first to the last. */
struct lab_came {
	u32 looked_at;
	u32 merged; /* in the backlog, so far, of those that do not follow the first */
	u32 place;  /* 0: the first, or one more of merged; LAB_NOTHING: it follows the first, and nothing is said of it */
	u32 number;
	u64 last;   /* number of the last one that it was made of */
};

bool lab_next_packet(const struct lab_run_record *record, struct lab_came *came);
#define for_each_packet(record, came) \
	for ((came) = (struct lab_came){}; lab_next_packet(record, &(came));)
bool lab_is_held(const struct replay_end *end, const struct lab_run_record *record);
/* Its next run is the one that began first of those that can be made. */
bool lab_is_first(const struct replay_end *end);
void lab_deliver_held(const struct lab_run_record *record);
void lab_join_begin(void);
/* What the recording of a stock kernel says of the run under way. */
bool lab_recorded(u32 decision, u32 before, u32 *value);
/* Whose socket it is; LAB_NOTHING: of none that is followed. */
u32 lab_follow_end_of(const struct sock *sk);
bool lab_follow_put_off(const struct lab_run_record *record, struct sock *sk);
/* What a run decided; the packets it sent; what it left. */
int lab_account_open(void);
void lab_account_close(void);
void lab_account_decision(u8 decision, bool needed, u32 first, u32 second);
void lab_account_packet(const struct sk_buff *skb, bool reply, u32 number);
void lab_account_run(const struct lab_run_record *record, u32 check);
/* sk: that of the connection, if it has one yet. */
int lab_set_option(const struct lab_run_record *record, struct socket *socket, struct sock *sk);
/* With the queue of the listener as it was. */
void lab_run_with_queue(const struct lab_run_record *record,
			void (*run)(const struct lab_run_record *record));
/* A timer, or what small queues held back. */
void lab_fire(const struct lab_run_record *record);
/* Of a replay with something changed: what the clock would have fired before that run. */
void lab_fire_overdue(struct sock *sk, const struct lab_run_record *record);

static inline const struct lab_run_record *lab_behind(const struct lab_run_record *record)
{
	return record + 1 + record->decisions;
}

/* The next one after that under way, or NULL. */
static inline const struct lab_run_record *lab_peek(const struct replay_end *end)
{
	const struct lab_run_record *next =
		end->under_way ? lab_behind(end->under_way) : end->next;

	return next == end->last ? NULL : next;
}

#endif
