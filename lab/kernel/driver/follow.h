/* SPDX-License-Identifier: GPL-2.0 */
/* What follow.c and calls.c share: whoever makes an end's calls. */
#ifndef SLOWPATH_LAB_FOLLOW_H
#define SLOWPATH_LAB_FOLLOW_H

#include "replay.h"

enum state {
	IDLE,    /* no call */
	RUNNING,
	WAITING, /* without the lock */
	BLOCKED, /* with it: a packet is to come into the backlog */
};

struct caller {
	struct task_struct *task;
	struct completion go;
	enum state state;
	const struct lab_run_record *call;
	const struct lab_run_record *filled; /* is in the backlog */
	struct sock *sk;
	bool giving;
	u64 file; /* how far files were sent */
	struct page *kept; /* the page of its next data, as if other sockets had some in it as well */
	bool listener_has_options; /* the listener has options that are this connection's */
	int result;
	void *buffer;
	size_t room;
};

extern struct caller lab_callers[2];

/* The recording has the same call with the lock once more, behind the run under way. */
bool lab_goes_on(const struct caller *caller);
/* Makes the call; what it returns. */
int lab_call(struct caller *caller);
/* Before data is sent. */
void lab_find_page(struct caller *caller);

#endif
