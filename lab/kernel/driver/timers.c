// SPDX-License-Identifier: GPL-2.0
/*
 * The timers of a replay. None fires by itself: they are called as the recording says, and only
 * if they are armed.
 */
#include <net/slowpath_lab.h>
#include <net/tcp.h>
#include "lab.h"
#include "replay.h"

/* As the clock would: only if it is armed. */
static bool fire(struct timer_list *timer)
{
	if (!timer_delete(timer))
		return false;
	local_bh_disable();
	timer->function(timer);
	local_bh_enable();
	return true;
}

static bool fire_high(struct hrtimer *timer)
{
	if (hrtimer_try_to_cancel(timer) <= 0)
		return false;
	local_bh_disable();
	timer->function(timer);
	local_bh_enable();
	return true;
}

static bool fire_request(void)
{
	struct sock *sk = lab_look_up(replay.connection);
	bool fired;

	if (!sk)
		return false;
	fired = sk->sk_state == TCP_NEW_SYN_RECV && fire(&inet_reqsk(sk)->rsk_timer);
	sock_gen_put(sk);
	return fired;
}

static void fire_one(const struct lab_run_record *record, struct sock *sk)
{
	bool fired = false;

	/* It fired before the call armed it again, as it may have: that one is to fire later. */
	if ((record->kind == LAB_RUN_WRITE_TIMER || record->kind == LAB_RUN_DELACK_TIMER) && sk &&
	    sock_owned_by_user(sk) && lab_follow_put_off(record, sk))
		return;
	if (record->kind == LAB_RUN_REQUEST_TIMER) {
		fired = fire_request();
	} else if (sk) {
		struct inet_connection_sock *icsk = inet_csk(sk);

		switch (record->kind) {
		case LAB_RUN_WRITE_TIMER:
			fired = fire(&icsk->icsk_retransmit_timer);
			break;
		case LAB_RUN_DELACK_TIMER:
			fired = fire(&icsk->icsk_delack_timer);
			break;
		case LAB_RUN_KEEPALIVE_TIMER:
			fired = fire(&icsk->icsk_keepalive_timer);
			break;
		case LAB_RUN_PACING_TIMER:
			fired = fire_high(&tcp_sk(sk)->pacing_timer);
			break;
		case LAB_RUN_COMPRESSED_ACK_TIMER:
			fired = fire_high(&tcp_sk(sk)->compressed_ack_timer);
			break;
		}
	}
	if (!fired && !lab_follow_put_off(record, sk))
		lab_diverge(LAB_DIVERGED_TIMER, record->end, record->kind, 0);
}

void lab_fire_overdue(struct sock *sk, const struct lab_run_record *record)
{
	const u64 before = replay.ends[record->end].jiffies;
	const u64 now = before + (s32)(record->jiffies - (u32)before);
	struct inet_connection_sock *icsk = inet_csk(sk);
	struct timer_list *timers[] = { &icsk->icsk_retransmit_timer, &icsk->icsk_delack_timer };
	unsigned long due, late;
	int i;

	replay.left = 0;
	for (i = 0; i < ARRAY_SIZE(timers); i++) {
		/* Each arms itself again; but there is an end to it. */
		int times = 64;

		while (times-- && timer_pending(timers[i])) {
			due = timers[i]->expires;
			/* The wheel is late by a tick, beyond 64 by up to an eighth (calc_index()). */
			late = due - before < 64 ? 1 : (due - before) / 8 + 1;
			due += late;
			if (!time_before(due, (unsigned long)now))
				break;
			replay.ends[record->end].jiffies = due;
			slowpath_replay_jiffies = due;
			slowpath_replay_ns = record->at - (now - due) * TICK_NSEC;
			fire(timers[i]);
		}
	}
}

void lab_fire(const struct lab_run_record *record)
{
	struct sock *sk = lab_end_socket(replay.connection, record->end);

	if (record->kind != LAB_RUN_SMALL_QUEUE) {
		fire_one(record, sk);
	} else if (sk) {
		local_bh_disable();
		slowpath_tsq(sk);
		local_bh_enable();
	} else {
		lab_diverge(LAB_DIVERGED_CALL, record->end, record->kind, -ENOTCONN);
	}
}
