// SPDX-License-Identifier: GPL-2.0
/*
 * The recorder: which of TCP's handlers ran at which end of a connection, in their order, and
 * what they decided from what the connection does not contain.
 */
#include <linux/jhash.h>
#include <linux/tcp.h>
#include <net/slowpath_lab.h>
#include <net/tcp.h>
#include "lab.h"
#include "script.h"

u64 slowpath_replay_ns;
unsigned long slowpath_replay_jiffies;

/*
 * The runs under way. A call may end with a softirq in which small queues of other connections
 * are served: runs of different connections lie in each other, those of one never do.
 */
#define NESTED 4

struct under_way {
	struct lab_run_record record;
	bool inside; /* part of the one below: a pacing timer calls what small queues call */
	u32 decided[SLOWPATH_DECISIONS];
	u32 decisions; /* mixed */
};

static struct under_way stack[NESTED];
static u32 depth;

/*
 * What a replay must have in common with the runtime, without what differs between any two
 * connections (initial sequence numbers, addresses).
 */
void lab_look(struct sock *sk, u32 *fields)
{
	const struct inet_connection_sock *icsk = inet_csk(sk);
	const struct tcp_sock *tp = tcp_sk(sk);
	u32 n = 0;

	fields[n++] = sk->sk_state;
	fields[n++] = tp->snd_nxt - tp->snd_una;
	fields[n++] = tp->write_seq - tp->snd_una;
	fields[n++] = tp->bytes_acked;
	fields[n++] = tp->bytes_received;
	fields[n++] = tp->rcv_nxt - tp->rcv_wup;
	fields[n++] = tp->rcv_nxt - tp->copied_seq;
	fields[n++] = tp->rcv_wnd;
	fields[n++] = tp->snd_wnd;
	fields[n++] = tp->rcv_ssthresh;
	fields[n++] = tcp_snd_cwnd(tp);
	fields[n++] = tp->snd_cwnd_cnt;
	fields[n++] = tp->snd_ssthresh;
	fields[n++] = tp->packets_out;
	fields[n++] = tp->sacked_out;
	fields[n++] = tp->lost_out;
	fields[n++] = tp->retrans_out;
	fields[n++] = tp->total_retrans;
	fields[n++] = tp->reordering;
	fields[n++] = tp->delivered;
	fields[n++] = tp->delivered_ce;
	fields[n++] = tp->srtt_us;
	fields[n++] = tp->mdev_us;
	fields[n++] = icsk->icsk_rto;
	fields[n++] = icsk->icsk_ca_state;
	fields[n++] = icsk->icsk_backoff;
	fields[n++] = icsk->icsk_pending;
	fields[n++] = icsk->icsk_ack.pending;
	fields[n++] = icsk->icsk_ack.quick;
	fields[n++] = icsk->icsk_ack.ato;
	fields[n++] = sk->sk_rcvbuf;
	fields[n++] = sk->sk_sndbuf;
	fields[n++] = sk->sk_wmem_queued;
	fields[n++] = atomic_read(&sk->sk_rmem_alloc);
	fields[n++] = tp->segs_out;
	/* Counted before it goes into the backlog, where the end of a call may or may not see it. */
	fields[n++] = lab.following ? 0 : tp->segs_in;
	fields[n++] = tp->window_clamp;
	fields[n++] = tp->rcvq_space.space;
	fields[n++] = tp->ecn_flags;
	fields[n++] = tp->compressed_ack;
	BUILD_BUG_ON(LAB_PROBED != 40);
	WARN_ON_ONCE(n != LAB_PROBED);
}

struct sock *lab_end_socket(u32 connection, u8 end)
{
	struct lab_sender *sender = &lab.senders[connection];
	struct socket *socket = end ? sender->to : sender->from;

	if (lab.following)
		return lab_follow_socket(end);
	return socket ? socket->sk : NULL;
}

/* Goes on from the decisions before. */
u32 lab_mix(u32 before, const struct lab_run_record *decision)
{
	return jhash_3words(decision->decision, decision->value, decision->result, before);
}

/* What a run left, but for what only clocks decide: smoothed round trips and the timeout. Goes on from the packets it sent. */
u32 lab_effect(struct sock *sk, u32 sent)
{
	u32 fields[LAB_PROBED] = {};

	if (sk)
		lab_look(sk, fields);
	fields[LAB_FIELD_SRTT] = 0;
	fields[LAB_FIELD_MDEV] = 0;
	fields[LAB_FIELD_RTO] = 0;
	return jhash2(fields, LAB_PROBED, sent);
}

/* Goes on from the check before. */
u32 lab_check(const struct lab_run_record *record, u32 before, u32 decisions)
{
	struct sock *sk = lab_end_socket(record->connection, record->end);
	u32 words[8] = {
		record->at, record->at >> 32, record->jiffies,
		record->kind | record->flags << 8, record->value, record->result, decisions,
		record->more,
	};
	u32 fields[LAB_PROBED] = {};

	if (sk)
		lab_look(sk, fields);
	before = jhash2(words, ARRAY_SIZE(words), before);
	before = jhash2(fields, LAB_PROBED, before);
	/* 0: there is none. */
	return before ?: 1;
}

void lab_begin_recording(void)
{
	struct lab_recording head = {
		.magic = LAB_SCRIPT_MAGIC,
		.version = LAB_FORMAT,
		.hz = HZ,
		.origin = ktime_to_ns(lab.base) + div64_u64(lab.plan.warm_up, PS_PER_NS),
	};

	lab_put(&lab.handlers, &head, sizeof(head));
}

static void put(struct lab_run_record *record)
{
	lab_put(&lab.handlers, record, sizeof(*record));
	lab.recorded++;
}

/* At one moment the end that connected comes first unless it is recorded that it did not. */
static void note_order(struct under_way *it)
{
	struct lab_sender *sender = &lab.senders[it->record.connection];
	struct lab_run_record order = it->record;
	u8 end = order.end;

	if (sender->moment[end] != order.at)
		sender->same_moment[end] = 0;
	sender->moment[end] = order.at;
	sender->same_moment[end]++;
	if (end || !sender->same_moment[1] || sender->moment[1] != order.at)
		return;
	order.kind = LAB_RUN_DECISION;
	order.decision = LAB_DECISION_ORDER;
	order.value = 0;
	order.result = sender->same_moment[1];
	it->decisions = lab_mix(it->decisions, &order);
	put(&order);
}

void lab_run_begin(u32 connection, u8 end, u8 kind, u8 flags, u32 value, u32 result)
{
	struct under_way *it;
	u32 i;

	if (!(lab.plan.flags & LAB_RECORD))
		return;
	if (depth == NESTED) {
		pr_err_once("slowpath-lab: too many runs inside each other\n");
		lab.failed = true;
		return;
	}
	it = &stack[depth++];
	memset(it, 0, sizeof(*it));
	for (i = 0; i + 1 < depth; i++) {
		const struct lab_run_record *outer = &stack[i].record;

		if (outer->connection != connection || outer->end != end)
			continue;
		if (outer->kind != LAB_RUN_PACING_TIMER || i + 2 != depth) {
			pr_err_once("slowpath-lab: runs of one connection overlap: %u in %u\n", kind,
				    outer->kind);
			lab.failed = true;
		}
		it->inside = true;
	}
	it->record.at = ktime_get_ns();
	it->record.jiffies = jiffies;
	it->record.connection = connection;
	it->record.end = end;
	it->record.kind = kind;
	it->record.flags = flags;
	it->record.value = value;
	it->record.result = result;
	if (!it->inside)
		note_order(it);
}

void lab_run_result(u32 result)
{
	if (depth)
		stack[depth - 1].record.result = result;
}

void lab_run_end(void)
{
	struct lab_run_record *record;
	u32 *check;

	if (!(lab.plan.flags & LAB_RECORD) || !depth || stack[--depth].inside)
		return;
	record = &stack[depth].record;
	check = &lab.senders[record->connection].check[record->end];
	*check = lab_check(record, *check, stack[depth].decisions);
	record->check = *check;
	put(record);
}

/* Of any socket, also of one that is not whole. */
static bool find(const struct sock *sk, u32 *connection, u8 *end)
{
	u32 local = ntohl(sk->sk_rcv_saddr) - LAB_NETWORK - 1;
	u32 remote = ntohl(sk->sk_daddr) - LAB_NETWORK - 1;

	if (!lab.hosts || local >= lab.plan.hosts || remote >= lab.plan.hosts)
		return false;
	*end = sk->sk_num < LAB_LISTEN + lab.plan.kinds;
	*connection = *end ? lab.hosts[remote].by_port[ntohs(sk->sk_dport)] :
			     lab.hosts[local].by_port[sk->sk_num];
	return *connection != LAB_NOTHING;
}

void slowpath_begin(struct sock *sk, enum slowpath_handler handler, bool owned)
{
	static const u8 kinds[] = {
		[SLOWPATH_WRITE_TIMER] = LAB_RUN_WRITE_TIMER,
		[SLOWPATH_DELACK_TIMER] = LAB_RUN_DELACK_TIMER,
		[SLOWPATH_KEEPALIVE_TIMER] = LAB_RUN_KEEPALIVE_TIMER,
		[SLOWPATH_PACING_TIMER] = LAB_RUN_PACING_TIMER,
		[SLOWPATH_COMPRESSED_ACK_TIMER] = LAB_RUN_COMPRESSED_ACK_TIMER,
		[SLOWPATH_REQUEST_TIMER] = LAB_RUN_REQUEST_TIMER,
		[SLOWPATH_TSQ] = LAB_RUN_SMALL_QUEUE,
	};
	u32 connection;
	u8 end;

	if (lab.plan.flags & LAB_RECORD && find(sk, &connection, &end))
		lab_run_begin(connection, end, kinds[handler], owned ? LAB_RUN_OWNED : 0, 0, 0);
}

void slowpath_end(struct sock *sk, enum slowpath_handler handler)
{
	u32 connection;
	u8 end;

	if (lab.plan.flags & LAB_RECORD && find(sk, &connection, &end))
		lab_run_end();
}

u32 slowpath_decide(struct sock *sk, enum slowpath_decision decision, u32 natural)
{
	struct lab_run_record record;
	struct under_way *it;

	if (lab.replaying)
		return lab_replay_decide(decision, natural);
	if (!(lab.plan.flags & LAB_RECORD) || !depth)
		return natural;
	it = &stack[depth - 1];
	if (it->inside && depth > 1)
		it--;
	record = it->record;
	record.kind = LAB_RUN_DECISION;
	record.decision = decision;
	record.value = it->decided[decision]++;
	record.result = natural;
	if (natural) {
		it->decisions = lab_mix(it->decisions, &record);
		put(&record);
	}
	return natural;
}
