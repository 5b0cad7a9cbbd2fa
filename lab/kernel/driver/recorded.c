// SPDX-License-Identifier: GPL-2.0
/*
 * What TCP takes from the recording of a stock kernel for the run under way: clocks, jiffies, and what
 * was in the device's queue and in the backlog.
 */
#include <net/slowpath_lab.h>
#include <net/tcp.h>
#include "lab.h"
#include "replay.h"

/* What the recording says of the run under way. */
bool lab_recorded(u32 decision, u32 before, u32 *value)
{
	const struct lab_run_record *run = replay.run;
	u32 i;

	for (i = 1; run && i <= run->decisions; i++) {
		if (run[i].decision == decision && run[i].value == before) {
			*value = run[i].result;
			return true;
		}
	}
	return false;
}

u64 slowpath_next_clock(void)
{
	u32 later;

	if (!replay.run || !slowpath_replay_ns)
		return ktime_get_ns();
	/* The first reading is the run's own time. */
	if (replay.clocks && lab_recorded(LAB_DECISION_CLOCK, replay.clocks, &later))
		slowpath_replay_ns = replay.run->at + later;
	replay.clocks++;
	return slowpath_replay_ns;
}

static u32 sent_by_run(void)
{
	u32 end = replay.run->end;

	return lab.senders[replay.connection].sent[end] - replay.ends[end].sent;
}

/* What stands for the largest count that is not beyond what the run has done. */
static u32 recorded_last(u32 decision)
{
	const struct lab_run_record *run = replay.run;
	u32 done = replay.clocks + sent_by_run(), last = 0, value = 0, i;

	for (i = 1; i <= run->decisions; i++) {
		if (run[i].decision == decision && run[i].value >= last && run[i].value <= done) {
			last = run[i].value;
			value = run[i].result;
		}
	}
	return value;
}

unsigned long slowpath_recorded_jiffies(enum slowpath_reader reader)
{
	u32 later;

	if (!replay.run || !slowpath_replay_jiffies)
		return slowpath_replay_jiffies ?: jiffies;
	if (!reader ||
	    !lab_recorded(LAB_DECISION_TICKS,
		  LAB_READER(reader, reader == SLOWPATH_SENT ? sent_by_run() : 0), &later))
		later = recorded_last(LAB_DECISION_TICKS);
	return replay.ends[replay.run->end].jiffies + later;
}

unsigned int slowpath_recorded_memory(struct sock *sk)
{
	u32 memory = 1;

	if (!replay.run || lab_follow_end_of(sk) != replay.run->end)
		return refcount_read(&sk->sk_wmem_alloc);
	lab_recorded(LAB_DECISION_MEMORY, sent_by_run(), &memory);
	return memory;
}

unsigned int slowpath_recorded_backlog(struct sock *sk)
{
	if (!replay.run || lab_follow_end_of(sk) != replay.run->end)
		return READ_ONCE(sk->sk_backlog.len);
	return recorded_last(LAB_DECISION_BACKLOG);
}

/* What the queue of the device said of the packet that is being sent: 0 if it took it. */
int lab_follow_refused(bool reply, u32 number)
{
	u32 refused = 0;

	if (lab.following && replay.run && replay.run->end == reply)
		lab_recorded(LAB_DECISION_REFUSED, number - replay.ends[reply].sent, &refused);
	return refused;
}

u32 lab_follow_decide(u32 decision, u32 natural)
{
	u32 busy = 0;

	if (decision == SLOWPATH_RANDOM) {
		/* At most once a run; 0 where nothing is recorded. */
		lab_recorded(decision, 0, &busy);
		return busy;
	}
	/* The device had less when the packet was sent than when the run began. */
	if ((decision == SLOWPATH_SMALL_QUEUE || decision == SLOWPATH_AUTOCORK) && natural &&
	    replay.run && lab_recorded(SLOWPATH_SMALL_QUEUE, sent_by_run(), &busy))
		return 0;
	if (decision != SLOWPATH_HOST_QUEUE || !replay.run)
		return natural;
	lab_recorded(decision, sent_by_run(), &busy);
	return busy;
}
