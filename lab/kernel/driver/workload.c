// SPDX-License-Identifier: GPL-2.0
/*
 * The applications of all hosts: which flow is written when, and what came of it. One task does
 * it, in the order of time; at one time flows in their order, then later writes of flows, then
 * reads, then sockets in the order in which they became ready.
 */
#include <linux/timerqueue.h>
#include <linux/vmalloc.h>
#include <net/tcp.h>
#include "lab.h"

/* How long is waited for the last packets when all flows are done. */
#define SETTLE_NS (300 * NSEC_PER_MSEC)
/* A line on the console at least every so many rounds, as in device.c. */
#define SAY_EVERY 4096

static u32 *next_flow; /* of the same connection */
static struct timerqueue_head writes = {
	.rb_root = RB_ROOT_CACHED,
};
static struct timerqueue_head reads = {
	.rb_root = RB_ROOT_CACHED,
};
static bool reads_new; /* since the task last looked */
static u64 unfinished;

/* The receiver has more in order: flows may be done by that. */
void lab_account(struct lab_sender *sender)
{
	struct tcp_sock *tp = tcp_sk(sender->from->sk);

	while (sender->first != U32_MAX) {
		u32 flow = sender->first;
		struct lab_result *result = &lab.results[flow];
		u64 end = sender->finished + lab.flows[flow].bytes;

		if (sender->arrived < end)
			return;
		result->finish = lab_scenario_time(lab_network_time());
		result->arrived = lab.flows[flow].bytes;
		result->retransmissions = tp->total_retrans - sender->retransmissions;
		result->timeouts = tp->total_rto - sender->timeouts;
		sender->retransmissions = tp->total_retrans;
		sender->timeouts = tp->total_rto;
		sender->finished = end;
		sender->first = next_flow[flow];
		unfinished--;
	}
	wake_up_process(lab.task);
}

static int begin_flow(u32 number)
{
	const struct lab_flow *flow = &lab.flows[number];
	struct lab_sender *sender = &lab.senders[flow->connection];
	int error = 0;

	if (!sender->from)
		error = lab_open_connection(flow->connection);
	if (error)
		return error;
	if (sender->first == U32_MAX)
		sender->first = number;
	else
		next_flow[sender->last] = number;
	sender->last = number;
	sender->begun += flow->bytes;
	if (flow->chunk && flow->chunk < flow->bytes) {
		sender->wanted += flow->chunk;
		sender->left = flow->bytes - flow->chunk;
		sender->chunk = flow->chunk;
		sender->every = flow->every;
		sender->again.expires = flow->start + flow->every;
		timerqueue_add(&writes, &sender->again);
	} else {
		sender->wanted += flow->bytes;
	}
	lab_write_more(sender);
	return 0;
}

static void write_again(struct timerqueue_node *node)
{
	struct lab_sender *sender = container_of(node, struct lab_sender, again);
	u64 part = min_t(u64, sender->chunk, sender->left);

	timerqueue_del(&writes, node);
	sender->wanted += part;
	sender->left -= part;
	if (sender->left) {
		node->expires += sender->every;
		timerqueue_add(&writes, node);
	}
	lab_write_more(sender);
}

static s64 scenario_now(void)
{
	return lab_scenario_time(lab_network_time());
}

void lab_read_later(struct lab_sender *sender)
{
	const struct tcp_sock *tp = tcp_sk(sender->to->sk);

	if (lab.replaying || sender->reads || tp->rcv_nxt == tp->copied_seq)
		return;
	sender->reads = true;
	sender->reading.expires = scenario_now() +
		(s64)(lab_kind_of(sender - lab.senders)->read_every_ns * PS_PER_NS);
	timerqueue_add(&reads, &sender->reading);
	reads_new = true;
	wake_up_process(lab.task);
}

static void read_again(struct timerqueue_node *node)
{
	struct lab_sender *sender = container_of(node, struct lab_sender, reading);
	const struct lab_kind *kind = lab_kind_of(sender - lab.senders);

	local_bh_disable();
	timerqueue_del(&reads, node);
	lab_receive(sender, kind->read_bytes);
	sender->reads = sender->first != U32_MAX;
	if (sender->reads) {
		node->expires += kind->read_every_ns * PS_PER_NS;
		timerqueue_add(&reads, node);
	}
	local_bh_enable();
}

/* The state of every sender that has something to do. */
static void write_info(s64 now)
{
	struct tcp_info info;
	struct lab_series head = { .at = now, .length = sizeof(info) };
	u32 number;

	for (number = 0; number < lab.plan.connections; number++) {
		struct lab_sender *sender = &lab.senders[number];

		if (sender->first == U32_MAX || !sender->from)
			continue;
		tcp_get_info(sender->from->sk, &info);
		head.connection = number;
		lab_put(&lab.series, &head, sizeof(head));
		lab_put(&lab.series, &info, sizeof(info));
	}
}

/* Sleeps until that time of the scenario, or until something is ready. */
static void sleep_until(s64 until)
{
	ktime_t expires = ktime_add_ns(lab.base,
		div64_u64(until + lab.plan.warm_up + PS_PER_NS - 1, PS_PER_NS));

	set_current_state(TASK_UNINTERRUPTIBLE);
	if (!lab_is_ready() && !reads_new)
		schedule_hrtimeout_range(&expires, 0, HRTIMER_MODE_ABS);
	__set_current_state(TASK_RUNNING);
}

static int make_flows(void)
{
	u64 number;

	lab.results = vcalloc(max(lab.plan.flows, 1ULL), sizeof(*lab.results));
	next_flow = vmalloc(max(lab.plan.flows, 1ULL) * sizeof(*next_flow));
	if (!lab.results || !next_flow)
		return -ENOMEM;
	for (number = 0; number < lab.plan.flows; number++) {
		next_flow[number] = U32_MAX;
		lab.results[number].finish = LAB_NEVER;
		if (lab.flows[number].connection >= lab.plan.connections)
			return -EINVAL;
	}
	return 0;
}

/* Opens the connections that are there when the scenario begins. */
static int warm_up(void)
{
	s64 at = -(s64)lab.plan.warm_up;
	u32 number;
	int error;

	for (number = 0; number < lab.plan.connections; number++) {
		if (lab_kind_of(number)->flags & LAB_HANDSHAKE)
			continue;
		while (at > scenario_now()) {
			sleep_until(at);
			lab_serve_ready();
		}
		error = lab_open_connection(number);
		if (error)
			return error;
		lab.senders[number].fresh = true;
		at += lab.plan.open_every;
	}
	while (scenario_now() < 0) {
		sleep_until(0);
		lab_serve_ready();
	}
	for (number = 0; number < lab.plan.connections; number++) {
		struct lab_sender *sender = &lab.senders[number];

		if (sender->fresh && !(sender->established && sender->to)) {
			pr_err("slowpath-lab: connection %u is not open after the warm-up\n",
			       number);
			return -ETIMEDOUT;
		}
	}
	return 0;
}

static void finish_results(void)
{
	u32 number;

	for (number = 0; number < lab.plan.connections; number++) {
		struct lab_sender *sender = &lab.senders[number];
		struct tcp_sock *tp;
		struct lab_result *result;

		if (sender->first == U32_MAX || !sender->from)
			continue;
		/* Those behind it have nothing. */
		tp = tcp_sk(sender->from->sk);
		result = &lab.results[sender->first];
		result->arrived = sender->arrived - sender->finished;
		result->retransmissions = tp->total_retrans - sender->retransmissions;
		result->timeouts = tp->total_rto - sender->timeouts;
	}
}

int lab_run(u64 *end)
{
	const s64 until = lab.plan.until;
	s64 next_info = lab.plan.info_every ? 0 : S64_MAX;
	s64 next_sample = lab.plan.sample_every && lab.plan.watched ? 0 : S64_MAX;
	s64 settled = S64_MAX;
	u64 flow = 0, rounds = 0;
	int error;

	lab.task = current;
	unfinished = lab.plan.flows;
	/* Memory is not what this is about. */
	sysctl_tcp_mem[0] = sysctl_tcp_mem[1] = sysctl_tcp_mem[2] = LONG_MAX >> PAGE_SHIFT;
	error = lab_open(&lab.events, "events.bin", SZ_256K);
	if (!error)
		error = lab_open(&lab.series, "series.bin", SZ_256K);
	if (!error && lab.plan.flags & LAB_RECORD)
		error = lab_open(&lab.handlers, "handlers.bin", SZ_256K);
	if (!error)
		error = lab_make_connections();
	if (!error)
		error = make_flows();
	if (error)
		return error;
	/* A whole second: ticks are where they always are. */
	lab.base = ktime_set(ktime_divns(ktime_get(), NSEC_PER_SEC) + 1, 0);
	schedule_hrtimeout(&lab.base, HRTIMER_MODE_ABS);
	if (lab.plan.flags & LAB_RECORD)
		lab_begin_recording();
	error = warm_up();
	if (error)
		return error;
	for (;;) {
		s64 now = scenario_now(), next;
		struct timerqueue_node *write, *read;

		reads_new = false;
		if (++rounds % SAY_EVERY == 0)
			pr_info("slowpath-lab: at %lld ps\n", now);
		if (now >= until || lab.failed)
			break;
		while (flow < lab.plan.flows && (s64)lab.flows[flow].start <= now) {
			error = begin_flow(flow++);
			if (error)
				return error;
		}
		while ((write = timerqueue_getnext(&writes)) && write->expires <= now)
			write_again(write);
		while ((read = timerqueue_getnext(&reads)) && read->expires <= now)
			read_again(read);
		lab_serve_ready();
		if (next_info <= now) {
			write_info(next_info);
			next_info += lab.plan.info_every;
		}
		if (next_sample <= now) {
			lab_sample_queues();
			next_sample += lab.plan.sample_every;
		}
		if (!unfinished) {
			if (settled == S64_MAX)
				settled = now + (s64)(SETTLE_NS * PS_PER_NS);
			if (now >= settled && lab_network_is_empty())
				break;
		}
		next = min(until, min(next_info, next_sample));
		if (flow < lab.plan.flows)
			next = min_t(s64, next, lab.flows[flow].start);
		write = timerqueue_getnext(&writes);
		if (write)
			next = min_t(s64, next, write->expires);
		read = timerqueue_getnext(&reads);
		if (read)
			next = min_t(s64, next, read->expires);
		if (settled != S64_MAX)
			next = min(next, max(settled, now + (s64)(NSEC_PER_MSEC * PS_PER_NS)));
		sleep_until(next);
	}
	finish_results();
	*end = min(scenario_now(), until);
	return lab.failed ? -EIO : 0;
}
