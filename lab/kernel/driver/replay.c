// SPDX-License-Identifier: GPL-2.0
/*
 * The replayer. Connections one after the other, each between two hosts without anything between
 * them. Its runs are made in the order of their moments, as far as the packets that they need
 * have been sent: calls by a generator, packets by a corrector that leaves out, marks and moves
 * them as the network did, timers by calling them. The kernel's own clock stands meanwhile, so
 * that no timer fires by itself; TCP reads the recording's.
 *
 * What a run leaves is compared with what it left then. At the first difference the replay of
 * that connection ends.
 */
#include <linux/tcp.h>
#include <linux/vmalloc.h>
#include <net/slowpath_lab.h>
#include <net/tcp.h>
#include <os.h>
#include "fields.h"
#include "lab.h"
#include "replay.h"

/* A line on the console at least every so many runs, for the user who watches. */
#define SAY_EVERY 65536

/* More of one connection are not replayed. */
#define MOST_PACKETS BIT(24)

struct replay replay;
int slowpath_ack_flag;

static struct lab_script script;
static struct lab_script_end *script_ends;
static struct lab_run_record *records;
static struct lab_file replayed, probes, more;
static u64 all_runs;

u32 lab_replay_decide(u32 decision, u32 natural)
{
	u32 before = replay.decided[decision]++;
	const struct lab_run_record *next = replay.decisions;

	/* Follows from what the device held, which was recorded. */
	if (lab.following)
		return lab_follow_decide(decision, natural);
	if (!replay.left || next->decision != decision || next->value != before)
		return 0;
	replay.decisions++;
	replay.left--;
	lab_account_decision(decision, true, before, next->result);
	return next->result;
}

bool lab_what_if(void)
{
	return lab.plan.flags & LAB_WHAT_IF;
}

void lab_diverge(u32 status, u8 end, u32 expected, u32 found)
{
	if (replay.result.status != LAB_EXACT)
		return;
	/* With something changed that is to be expected: it goes on until a packet is missing. */
	if (lab_what_if() && status != LAB_DIVERGED_PACKET && status != LAB_DIVERGED_CALL)
		return;
	replay.result.status = status;
	replay.result.end = end;
	replay.result.run = replay.ends[end].runs;
	replay.result.expected = expected;
	replay.result.found = found;
}

/* A sequence number, counted from the first. */
static u32 counted(u32 number, u32 first)
{
	return number ? number - first : 0;
}

static void probe_more(struct sock *sk, u8 end)
{
	s64 values[LAB_MORE_COUNT] = {};
	u32 n = 0;

	if (sk) {
		const struct tcp_sock *tp = tcp_sk(sk);
		const struct inet_connection_sock *icsk = inet_csk(sk);

#define own(number) counted(number, replay.first[end])
#define peers(number) counted(number, replay.first[!end])
#define LOOK(name, value) values[n++] = value;
		LAB_MORE_FIELDS(LOOK)
#undef LOOK
#undef peers
#undef own
	}
	lab_put(&more, values, sizeof(values));
}

static void probe(const struct lab_run_record *record, u8 end)
{
	struct sock *sk = lab_end_socket(replay.connection, end);
	struct lab_probe probe = {
		.connection = replay.connection,
		.end = end,
		.kind = record->kind,
		.run = replay.ends[end].runs,
		.at = record->at,
	};

	if (sk)
		lab_look(sk, probe.fields);
	lab_put(&probes, &probe, sizeof(probe));
	if (lab.plan.flags & LAB_PROBE_MORE)
		probe_more(sk, end);
}

/* Something about a socket that the recorded one did not have. */
static int change(struct sock *sk, const struct lab_run_record *record)
{
	switch ((u16)record->value) {
	case LAB_CHANGE_ACK_AT_ONCE:
		inet_csk_exit_pingpong_mode(sk);
		inet_csk(sk)->icsk_ack.quick = TCP_MAX_QUICKACKS;
		return 0;
	case LAB_CHANGE_REORDERING:
		tcp_sk(sk)->reordering = record->result;
		return 0;
	}
	return -ENOPROTOOPT;
}

static void receive(const struct lab_run_record *record)
{
	int read = lab_receive(&lab.senders[replay.connection], record->value);

	if (read != (int)record->result)
		lab_diverge(LAB_DIVERGED_RESULT, record->end, record->result, read);
}

static void send(const struct lab_run_record *record)
{
	int sent = lab_send(&lab.senders[replay.connection], record->value);

	if (sent != (int)record->result)
		lab_diverge(LAB_DIVERGED_RESULT, record->end, record->result, sent);
}

void lab_begin_run(const struct lab_run_record *record)
{
	struct replay_end *end = &replay.ends[record->end];
	bool traced;

	/* The lower half is known: the nearest that fits. */
	end->jiffies += (s32)(record->jiffies - (u32)end->jiffies);
	slowpath_replay_jiffies = end->jiffies;
	slowpath_replay_ns = record->at;
	replay.run = record;
	replay.decisions = record + 1;
	replay.left = lab.following ? 0 : record->decisions;
	replay.clocks = 0;
	replay.packets = 0;
	replay.compared = 0;
	slowpath_ack_flag = 0;
	memset(replay.decided, 0, sizeof(replay.decided));
	if (end->moment != record->at)
		end->same_moment = 0;
	end->moment = record->at;
	end->same_moment++;
	if (replay.left && replay.decisions->decision == LAB_DECISION_ORDER) {
		lab_account_decision(LAB_DECISION_ORDER, true, 0, replay.decisions->result);
		replay.decisions++;
		replay.left--;
	}
	end->under_way = record;
	end->sent = lab.senders[replay.connection].sent[record->end];
	if (replay.connection == script.stop_connection && record->end == script.stop_side &&
	    end->runs == script.stop_run)
		slowpath_replay_stop(record, lab_end_socket(replay.connection, record->end));
	traced = replay.connection == script.traced_connection && record->end == script.traced_side &&
	       end->runs >= script.traced_first && end->runs < script.traced_end;
	if (traced)
		lab_functions_begin(record, end->runs);
	replay.traced = traced;
}

void lab_finish_run(struct replay_end *end)
{
	const struct lab_run_record *record = end->under_way;
	struct lab_run_record run;
	u32 check, decisions = 0, i;

	if (!record)
		return;
	end->under_way = NULL;
	if (replay.traced)
		lab_functions_end();
	replay.traced = false;
	if (replay.left)
		lab_diverge(LAB_DIVERGED_DECISION, record->end, replay.decisions->decision,
			    replay.left);
	for (i = 1; i <= record->decisions; i++)
		if (!end->unnumbered || record[i].decision != LAB_DECISION_MERGED)
			decisions = lab_mix(decisions, record + i);
	run = *record;
	if (end->unnumbered && run.kind == LAB_RUN_PACKET)
		run.value = run.more = 0;
	check = lab_check(&run, end->check, decisions);
	/* A recording keeps the lowest byte of it. */
	if (record->decision != LAB_RUN_UNCHECKED && (u8)check != (u8)record->check)
		lab_diverge(LAB_DIVERGED_STATE, record->end, (u8)record->check, (u8)check);
	end->check = check;
	lab_account_run(record, check);
	if (lab.plan.flags & LAB_PROBE || replay.result.status != LAB_EXACT)
		probe(record, record->end);
	end->next = lab_behind(record);
	end->runs++;
	if (++all_runs % SAY_EVERY == 0)
		pr_info("slowpath-lab: at %llu ps\n", all_runs);
}

static int run_here(const struct lab_run_record *record)
{
	struct lab_sender *sender = &lab.senders[replay.connection];
	struct sock *sk = lab_end_socket(replay.connection, record->end);

	switch (record->kind) {
	case LAB_RUN_CONNECT:
		return record->end || sender->from ? -EISCONN :
						     lab_open_connection(replay.connection);
	case LAB_RUN_ACCEPT:
		if (record->end && !sender->to)
			lab_accept(1, lab.connections[replay.connection].kind);
		return sender->to ? 0 : -EAGAIN;
	case LAB_RUN_BEGIN:
		sender->fresh = record->value;
		if (record->end || !sk)
			return -ENOTCONN;
		lab_begin(sender);
		return 0;
	case LAB_RUN_SEND:
		if (record->end || !sk)
			return -ENOTCONN;
		send(record);
		return 0;
	case LAB_RUN_RECEIVE:
		if (!record->end || !sk)
			return -ENOTCONN;
		receive(record);
		return 0;
	case LAB_RUN_OPTION:
		return lab_what_if() && sk ? change(sk, record) : -ENOTCONN;
	case LAB_RUN_PACKET:
		lab_run_with_queue(record, lab_deliver_held);
		return 0;
	case LAB_RUN_WRITE_TIMER ... LAB_RUN_REQUEST_TIMER:
	case LAB_RUN_SMALL_QUEUE:
		lab_run_with_queue(record, lab_fire);
		return 0;
	default:
		return -EOPNOTSUPP;
	}
}

static bool is_call(u8 kind)
{
	return kind == LAB_RUN_CONNECT || kind == LAB_RUN_ACCEPT ||
	       (kind >= LAB_RUN_SEND && kind <= LAB_RUN_OPTION && kind != LAB_RUN_RESUME);
}

static void run(struct replay_end *end)
{
	const struct lab_run_record *record = end->next;
	struct sock *sk = lab_end_socket(replay.connection, record->end);
	int error;

	if (lab.following && !lab_follow_is_ready(end))
		return lab_follow_resume(end);
	if (lab_what_if() && !lab.following && sk)
		lab_fire_overdue(sk, record);
	lab_begin_run(record);
	if (lab.following && is_call(record->kind))
		return lab_follow_call(end, record);
	error = run_here(record);
	if (error)
		lab_diverge(LAB_DIVERGED_CALL, record->end, record->kind, error);
	lab_finish_run(end);
}

/* When it is to go on, by the clock of both. */
static u64 when(const struct replay_end *end)
{
	return end->next->at + end->clock;
}

/* Both are to run at one moment: the end that accepted first, if the recording says so. */
static bool accepted_comes_first(void)
{
	const struct replay_end *accepted = &replay.ends[1];
	const struct lab_run_record *next = replay.ends[0].next;
	u32 done = accepted->moment == next->at ? accepted->same_moment : 0;

	return next->decisions && next[1].decision == LAB_DECISION_ORDER && done < next[1].result;
}

/* Which end goes on: the one whose run began first, if what it needs is there. */
static struct replay_end *choose(void)
{
	struct replay_end *best = NULL;
	u32 number;

	for (number = 0; number < 2; number++) {
		struct replay_end *end = &replay.ends[number];

		if (end->next == end->last)
			continue;
		if (end->next->kind == LAB_RUN_PACKET && !lab_is_held(end, end->next))
			continue;
		if (!best || when(end) < when(best) ||
		    (when(end) == when(best) && accepted_comes_first()))
			best = end;
	}
	return best;
}

bool lab_is_first(const struct replay_end *end)
{
	return choose() == end;
}

/* How often each packet that comes in that run is needed. */
static bool count_uses(struct replay_end *end, const struct lab_run_record *record)
{
	struct lab_came came;
	u64 number;

	for_each_packet(record, came)
		for (number = came.number; number <= came.last; number++)
			if (number >= end->packets || ++end->uses[number] == U16_MAX)
				return false;
	return true;
}

/* What the packets of this end are, and that the script can be followed. */
static int prepare(struct replay_end *end, const struct lab_script_end *from, u8 number)
{
	const struct lab_run_record *record;
	u64 i;

	memset(end, 0, sizeof(*end));
	if (from->first > script.records || from->records > script.records - from->first)
		return -EINVAL;
	end->next = records + from->first;
	end->last = end->next + from->records;
	end->packets = from->packets;
	end->digest = from->digest;
	end->clock = from->clock;
	end->unnumbered = from->flags & LAB_END_UNNUMBERED;
	end->jiffies = BIT_ULL(32);
	if (end->packets > MOST_PACKETS)
		return -E2BIG;
	end->held = vcalloc(max(end->packets, 1U), sizeof(*end->held));
	end->uses = vcalloc(max(end->packets, 1U), sizeof(*end->uses));
	end->begins = vcalloc(max(end->packets, 1U), sizeof(*end->begins));
	if (!end->held || !end->uses || !end->begins)
		return -ENOMEM;
	for (i = 0; i < from->records; i++) {
		record = end->next + i;
		if (record->kind == LAB_RUN_DECISION)
			return -EINVAL;
		if (record->end != number || record->connection != replay.connection ||
		    record->decisions > from->records - i - 1)
			return -EINVAL;
		if (record->kind == LAB_RUN_PACKET && !count_uses(end, record))
			return -EINVAL;
		i += record->decisions;
	}
	return 0;
}

static void release(struct replay_end *end)
{
	u32 i;

	for (i = 0; end->held && i < end->packets; i++)
		kfree_skb_list(end->held[i]);
	vfree(end->held);
	vfree(end->begins);
	vfree(end->uses);
}

static void replay_one(u32 connection)
{
	const struct lab_script_end *from = script_ends + 2 * connection;
	struct lab_replayed *result = &replay.result;
	const struct lab_run_record nothing = {};
	struct replay_end *end;
	u32 i;
	int error = 0;

	memset(&replay, 0, sizeof(replay));
	replay.connection = connection;
	for (i = 0; i < 2 && !error; i++)
		error = prepare(&replay.ends[i], from + i, i);
	if (!error && lab.following)
		error = lab_follow_begin();
	if (error)
		/* Not this one; the others may be as they should. */
		lab_diverge(LAB_NOT_REPLAYED, i - 1, 0, -error);
	while (result->status == LAB_EXACT && (end = choose()))
		run(end);
	for (i = 0; i < 2 && result->status == LAB_EXACT; i++) {
		end = &replay.ends[i];
		if (end->next != end->last)
			lab_diverge(LAB_DIVERGED_PACKET, i, end->next->value,
				lab.senders[connection].sent[!i]);
		else if (end->digest && end->digest != end->check)
			lab_diverge(LAB_DIVERGED_DIGEST, i, end->digest, end->check);
	}
	for (i = 0; i < 2; i++) {
		result->runs[i] = replay.ends[i].runs;
		result->packets[i] = lab.senders[connection].sent[i];
		/* Where it stopped. */
		end = &replay.ends[i];
		if (result->status != LAB_EXACT && end->next)
			probe(end->next == end->last ? &nothing : end->next, i);
	}
	lab_put(&replayed, result, sizeof(*result));
	lab.clearing = true;
	if (lab.following)
		lab_follow_end();
	slowpath_replay_ns = 0;
	slowpath_replay_jiffies = 0;
	lab_close_connection(connection);
	for (i = 0; i < 2; i++)
		release(&replay.ends[i]);
	/* What is freed later is freed now. */
	schedule_timeout_uninterruptible(1);
	lab.clearing = false;
}

static int read_script(void)
{
	void *piece = lab_piece();
	int fd, error = 0;
	struct lab_script *head;

	if (!piece)
		return -ENOMEM;
	fd = os_open_file("script.bin", of_read(OPENFLAGS()), 0);
	if (fd < 0)
		return fd;
	head = lab_read_array(fd, piece, 1, sizeof(*head), &error);
	if (!error && (head->magic != LAB_SCRIPT_MAGIC || head->version != LAB_FORMAT ||
		       head->connections != lab.plan.connections))
		error = -EINVAL;
	if (error)
		goto out;
	script = *head;
	script_ends = lab_read_array(fd, piece, 2 * script.connections, sizeof(*script_ends),
				     &error);
	records = lab_read_array(fd, piece, script.records, sizeof(*records), &error);
out:
	os_close_file(fd);
	return error;
}

int lab_replay(void)
{
	u32 connection;
	int error;

	sysctl_tcp_mem[0] = sysctl_tcp_mem[1] = sysctl_tcp_mem[2] = LONG_MAX >> PAGE_SHIFT;
	lab.replaying = true;
	lab.following = lab.plan.flags & LAB_FOLLOW;
	error = read_script();
	if (!error)
		error = lab_open(&replayed, "replayed.bin", SZ_64K);
	if (!error)
		error = lab_functions_open();
	if (!error)
		error = lab_open(&probes, "probes.bin", SZ_256K);
	if (!error && lab.plan.flags & LAB_PROBE_MORE)
		error = lab_open(&more, "more.bin", SZ_256K);
	if (!error)
		error = lab_account_open();
	if (!error)
		error = lab_make_connections();
	if (!error)
		lab_join_begin();
	/* In the first second ktime_get_seconds() is 0: no timestamp has come yet (ts_recent_stamp). */
	if (!error && lab.following)
		schedule_timeout_uninterruptible(2 * HZ);
	for (connection = 0; connection < lab.plan.connections && !error; connection++)
		replay_one(connection);
	lab_close(&replayed);
	lab_close(&probes);
	if (lab.plan.flags & LAB_PROBE_MORE)
		lab_close(&more);
	lab_account_close();
	lab_functions_close();
	return error;
}
