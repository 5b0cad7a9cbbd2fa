// SPDX-License-Identifier: GPL-2.0
/*
 * Following the recording of a stock kernel. Its calls wait, find packets in the backlog when
 * they give the lock away, and leave work to whoever gives it away. Each end's calls are made by a
 * task of its own; only one task runs at a time. Where a call gives the lock away, the recording
 * says what it found: packets go into the backlog just before it is looked at. Where a call
 * slept, the task stops until the recording says that the call has the lock again.
 */
#include <linux/kthread.h>
#include <linux/tcp.h>
#include <linux/vmalloc.h>
#include <net/slowpath_lab.h>
#include <net/tcp.h>
#include "lab.h"
#include "follow.h"

bool slowpath_following;
struct caller lab_callers[2];

static DECLARE_COMPLETION(stopped);
static bool given_up;

static struct caller *of(const struct sock *sk)
{
	int end;

	for (end = 0; end < 2; end++)
		if (sk && lab_callers[end].sk == sk)
			return given_up ? NULL : &lab_callers[end];
	return NULL;
}

u32 lab_follow_end_of(const struct sock *sk)
{
	struct caller *caller = of(sk);

	return caller ? caller - lab_callers : LAB_NOTHING;
}

static struct replay_end *end_of(const struct caller *caller)
{
	return &replay.ends[caller - lab_callers];
}

struct sock *lab_follow_socket(u8 end)
{
	struct caller *caller = &lab_callers[end];

	if (!caller->sk && end) {
		struct sock *sk = lab_look_up(replay.connection);

		if (sk && sk_fullsock(sk))
			caller->sk = sk;
		else if (sk)
			sock_gen_put(sk);
	}
	/* What is left of one that has ended is no state to compare. */
	if (caller->sk && sock_flag(caller->sk, SOCK_DEAD) && caller->sk->sk_state == TCP_CLOSE)
		return NULL;
	return caller->sk;
}

static void give_up(struct caller *caller)
{
	given_up = true;
	if (caller->sk) {
		caller->sk->sk_err = EPIPE;
		caller->sk->sk_shutdown = SHUTDOWN_MASK;
	}
}

/* Until the one who leads says so. */
static void stop(struct caller *caller, enum state state)
{
	caller->state = state;
	complete(&stopped);
	wait_for_completion(&caller->go);
}

static bool is_as_recorded(const struct caller *caller)
{
	int recorded = caller->call->result;

	if (caller->call->kind == LAB_RUN_OPTION)
		return !caller->result;
	/* What it returned is not recorded: it does the same if the other end is gone. */
	if (caller->call->kind == LAB_RUN_SHUTDOWN && caller->result == -ENOTCONN)
		return true;
	/* Nothing says here when a signal came: such a call ends as at its time limit. */
	if (recorded == -EINTR && caller->result == -EAGAIN)
		return true;
	return caller->result == recorded || recorded == LAB_NOT_RETURNED;
}

static void lead(struct caller *caller)
{
	caller->state = RUNNING;
	complete(&caller->go);
	wait_for_completion(&stopped);
	if (caller->state == IDLE && caller->call && !given_up) {
		if (!is_as_recorded(caller))
			lab_diverge(LAB_DIVERGED_RESULT, caller - lab_callers, caller->call->result,
				    caller->result);
		lab_finish_run(end_of(caller));
	}
}

bool lab_follow_is_ready(struct replay_end *end)
{
	struct caller *caller = &lab_callers[end - replay.ends];

	if (caller->state == BLOCKED)
		return false;
	return end->next->kind != LAB_RUN_RESUME;
}

void lab_follow_resume(struct replay_end *end)
{
	struct caller *caller = &lab_callers[end - replay.ends];

	if (caller->state != WAITING && caller->state != BLOCKED) {
		lab_diverge(LAB_DIVERGED_CALL, end - replay.ends, end->next->kind, 0);
		return;
	}
	lead(caller);
}

void lab_follow_call(struct replay_end *end, const struct lab_run_record *record)
{
	struct caller *caller = &lab_callers[end - replay.ends];

	if (caller->state != IDLE) {
		lab_diverge(LAB_DIVERGED_CALL, end - replay.ends, record->kind, -EBUSY);
		return;
	}
	caller->call = record;
	lead(caller);
}

static bool is_put_off(const struct lab_run_record *record)
{
	return record->flags & LAB_RUN_OWNED && record->kind >= LAB_RUN_WRITE_TIMER &&
	       record->kind <= LAB_RUN_REQUEST_TIMER;
}

/*
 * It fired while the call had the socket, and left a note. What the call did to the timer before
 * it gave the socket away, here it has done already: an ACK that it sent took the timer off.
 */
bool lab_follow_put_off(const struct lab_run_record *record, struct sock *sk)
{
	int note;

	if (!lab.following || !sk || !is_put_off(record))
		return false;
	switch (record->kind) {
	case LAB_RUN_WRITE_TIMER:
		note = TCP_WRITE_TIMER_DEFERRED;
		break;
	case LAB_RUN_DELACK_TIMER:
	case LAB_RUN_COMPRESSED_ACK_TIMER:
		note = TCP_DELACK_TIMER_DEFERRED;
		break;
	case LAB_RUN_PACING_TIMER:
		/* Twice during one call, which had armed it again. */
		note = TCP_TSQ_DEFERRED;
		break;
	default:
		return false;
	}
	if (!test_and_set_bit(note, &sk->sk_tsq_flags))
		sock_hold(sk);
	return true;
}

static bool is_for_backlog(const struct lab_run_record *record)
{
	return record->kind == LAB_RUN_PACKET && record->flags & LAB_RUN_BACKLOG;
}

/* Until the other end has done what came before. */
static bool give_way(struct caller *caller)
{
	/* tcp_close() looks at its backlog so; there is one processor, and who comes to the socket meanwhile finds its owner. */
	bool disabled = softirq_count();

	if (disabled)
		local_bh_enable();
	stop(caller, BLOCKED);
	if (disabled)
		local_bh_disable();
	return !given_up;
}

static void fill(struct caller *caller)
{
	struct replay_end *end = end_of(caller);

	for (;;) {
		const struct lab_run_record *next = lab_peek(end);

		if (!next || caller->filled == next)
			return;
		if (is_put_off(next)) {
			lab_begin_run(next);
			lab_fire(next);
			lab_finish_run(end);
			continue;
		}
		if (!is_for_backlog(next))
			return;
		/* The other end may come first: what it has freed shows here (skb_cloned()). */
		while (softirq_count() ? !lab_is_held(end, next) : !lab_is_first(end)) {
			if (softirq_count() > SOFTIRQ_DISABLE_OFFSET) {
				lab_diverge(LAB_DIVERGED_PACKET, caller - lab_callers, next->value, 0);
				give_up(caller);
				return;
			}
			if (!give_way(caller))
				return;
		}
		caller->filled = next;
		lab_deliver_held(next);
		return;
	}
}

void slowpath_give(struct sock *sk)
{
	struct caller *caller = of(sk);

	if (!caller)
		return;
	lab_finish_run(end_of(caller));
	caller->giving = true;
	fill(caller);
}

/* What is not acknowledged and not read shows where the recorded call looked. */
static bool looks_now(struct caller *caller, const struct sock *sk)
{
	const struct tcp_sock *tp = tcp_sk(sk);
	u32 sent, unread;

	return end_of(caller)->under_way && lab_recorded(LAB_DECISION_FLUSH, 0, &sent) &&
	       lab_recorded(LAB_DECISION_FLUSH, 1, &unread) && sent == tp->write_seq - tp->snd_una &&
	       unread == tp->rcv_nxt - tp->copied_seq;
}

bool slowpath_flush(struct sock *sk)
{
	struct caller *caller;

	if (likely(!slowpath_following))
		return false;
	caller = of(sk);
	if (!caller || !looks_now(caller, sk))
		return false;
	/* Before softirqs are off: the other end may have to come first. */
	lab_finish_run(end_of(caller));
	fill(caller);
	return true;
}

void slowpath_fill(struct sock *sk, bool again)
{
	struct caller *caller = of(sk);
	const struct lab_run_record *next;
	u32 unread;

	if (!caller)
		return;
	if (!again && !caller->giving) {
		next = lab_peek(end_of(caller));
		if (!next || !(is_for_backlog(next) || is_put_off(next)))
			return;
		/* A receiver looks whenever it has enough; at its end a call always does. */
		if (lab_recorded(LAB_DECISION_FLUSH, 1, &unread) && !looks_now(caller, sk))
			return;
		lab_finish_run(end_of(caller));
	}
	fill(caller);
}

static void go_on(struct caller *caller)
{
	struct replay_end *end = end_of(caller);
	const struct lab_run_record *next = lab_peek(end);

	if (!caller->giving && !end->under_way && next && next->kind == LAB_RUN_RESUME)
		lab_begin_run(next);
}

void slowpath_filled(struct sock *sk)
{
	struct caller *caller = of(sk);

	if (caller)
		go_on(caller);
}

void slowpath_handle(struct sock *sk)
{
	struct caller *caller = of(sk);
	const struct lab_run_record *next;

	if (!caller)
		return;
	next = lab_peek(end_of(caller));
	if (!next || caller->filled != next) {
		lab_diverge(LAB_DIVERGED_PACKET, caller - lab_callers, next ? next->kind : 0, 0);
		give_up(caller);
		return;
	}
	lab_begin_run(next);
}

void slowpath_handled(struct sock *sk)
{
	struct caller *caller = of(sk);

	if (!caller)
		return;
	lab_finish_run(end_of(caller));
	caller->filled = NULL;
}

void slowpath_callback(struct sock *sk)
{
	struct caller *caller = of(sk);
	const struct lab_run_record *next;

	if (!caller)
		return;
	next = lab_peek(end_of(caller));
	if (!next || next->kind != LAB_RUN_RELEASE)
		return;
	lab_finish_run(end_of(caller));
	lab_begin_run(next);
	if (next->value & TCPF_TSQ_DEFERRED) {
		clear_bit(TSQ_THROTTLED, &sk->sk_tsq_flags);
		if (!test_and_set_bit(TCP_TSQ_DEFERRED, &sk->sk_tsq_flags))
			sock_hold(sk);
	}
}

void slowpath_called_back(struct sock *sk)
{
	struct caller *caller = of(sk);
	const struct lab_run_record *run;

	if (!caller)
		return;
	run = end_of(caller)->under_way;
	if (run && run->kind == LAB_RUN_RELEASE)
		lab_finish_run(end_of(caller));
	go_on(caller);
}

/* From there on the run with which the call has the lock again; NULL: it has it no more. */
static const struct lab_run_record *resumed(const struct replay_end *end,
					    const struct lab_run_record *record)
{
	for (; record && record != end->last; record = lab_behind(record)) {
		if (record->kind == LAB_RUN_RESUME)
			return record;
		if (record->kind < LAB_RUN_PACKET)
			return NULL;
	}
	return NULL;
}

bool lab_goes_on(const struct caller *caller)
{
	const struct replay_end *end = end_of(caller);

	/* Or it slept when the recording ended. */
	return resumed(end, lab_peek(end)) || (int)caller->call->result == LAB_NOT_RETURNED;
}

/* It gave up before it had all: a time limit, a signal, or an error, which comes first. */
static bool is_short(const struct lab_run_record *call)
{
	int result = call->result;

	if (call->kind == LAB_RUN_SEND || (call->kind == LAB_RUN_RECEIVE && call->more & MSG_WAITALL))
		return result < (int)call->value;
	return result < 0;
}

static bool was_cut_short(const struct caller *caller)
{
	return !lab_goes_on(caller) && is_short(caller->call);
}

/* A send found no room and gives up the next time it has the lock, even if there is some by then. */
static bool sleeps_in_vain(const struct caller *caller)
{
	const struct replay_end *end = end_of(caller);
	const struct lab_run_record *last = resumed(end, lab_peek(end));

	return caller->call->kind == LAB_RUN_SEND && last && !resumed(end, lab_behind(last)) &&
	       (int)caller->call->result != LAB_NOT_RETURNED && is_short(caller->call);
}

static bool wait_for_lock(struct caller *caller)
{
	stop(caller, WAITING);
	if (given_up)
		return false;
	go_on(caller);
	if (caller->call->kind == LAB_RUN_SEND)
		lab_find_page(caller);
	return true;
}

void slowpath_given(struct sock *sk)
{
	struct caller *caller = of(sk);

	if (!caller)
		return;
	caller->giving = false;
	if (caller->task != current || !lab_goes_on(caller))
		return;
	/* Whether it sleeps is decided before anything comes: slowpath_awake(). */
	if (!sleeps_in_vain(caller))
		wait_for_lock(caller);
}

long slowpath_awake(long timeout)
{
	struct caller *caller;

	for (caller = lab_callers; caller < lab_callers + 2; caller++) {
		if (caller->task != current || given_up)
			continue;
		if (!end_of(caller)->under_way && sleeps_in_vain(caller) && !wait_for_lock(caller))
			return 0;
		if (end_of(caller)->under_way)
			return was_cut_short(caller) ? 0 : timeout;
		/* The recorded call had ended. */
		lab_diverge(LAB_DIVERGED_CALL, caller - lab_callers, LAB_RUN_RESUME, 0);
		give_up(caller);
	}
	return 0;
}

static int make_calls(void *data)
{
	struct caller *caller = data;

	for (;;) {
		wait_for_completion(&caller->go);
		if (kthread_should_stop())
			return 0;
		caller->result = lab_call(caller);
		caller->state = IDLE;
		complete(&stopped);
	}
}

int lab_follow_begin(void)
{
	int number;

	given_up = false;
	for (number = 0; number < 2; number++) {
		struct caller *caller = &lab_callers[number];

		if (!caller->task) {
			init_completion(&caller->go);
			caller->task = kthread_run(make_calls, caller, "slowpath-call/%d", number);
			if (IS_ERR(caller->task))
				return PTR_ERR(caller->task);
		}
		caller->state = IDLE;
		caller->call = NULL;
		caller->filled = NULL;
		caller->giving = false;
		caller->file = 0;
	}
	slowpath_following = true;
	return 0;
}

void lab_follow_end(void)
{
	int number;

	given_up = true;
	for (number = 0; number < 2; number++) {
		struct caller *caller = &lab_callers[number];

		if (caller->state == WAITING || caller->state == BLOCKED) {
			give_up(caller);
			lead(caller);
		}
	}
	slowpath_following = false;
	if (lab_callers[1].listener_has_options && lab_listen_again(1, lab.connections[replay.connection].kind)) {
		pr_err("slowpath-lab: the host that accepts cannot listen again\n");
		lab.failed = true;
	}
	lab_callers[1].listener_has_options = false;
	for (number = 0; number < 2; number++) {
		struct caller *caller = &lab_callers[number];

		if (!caller->sk)
			continue;
		if (sock_flag(caller->sk, SOCK_DEAD) && caller->sk->sk_state != TCP_CLOSE)
			tcp_abort(caller->sk, ECONNABORTED);
		sock_put(caller->sk);
		caller->sk = NULL;
	}
	replay.run = NULL;
}
