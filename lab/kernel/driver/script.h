/* SPDX-License-Identifier: GPL-2.0 */
/*
 * What stands in the files of a recording and of its replay, beside plan.h. The program's twin is
 * crates/slowpath-lab/src/virtual_time/wire.rs.
 *
 * A run of one of TCP's handlers is recorded when it ends; decisions that it made stand before
 * it. In a script they stand behind it.
 */
#ifndef SLOWPATH_LAB_SCRIPT_H
#define SLOWPATH_LAB_SCRIPT_H

#include <linux/types.h>

#define LAB_SCRIPT_MAGIC 0x54534350534c5053ULL /* "SPLSPCST" */
#define LAB_NOTHING 0xffffffffu

enum lab_run_kind {
	LAB_RUN_DECISION = 0,
	LAB_RUN_CONNECT = 1,
	LAB_RUN_ACCEPT = 2,
	LAB_RUN_BEGIN = 3,
	LAB_RUN_SEND = 4,
	LAB_RUN_RECEIVE = 5,
	LAB_RUN_RESUME = 6,
	LAB_RUN_SHUTDOWN = 7,
	LAB_RUN_CLOSE = 8,
	LAB_RUN_OPTION = 9,
	LAB_RUN_PACKET = 10,
	LAB_RUN_WRITE_TIMER = 11,
	LAB_RUN_DELACK_TIMER = 12,
	LAB_RUN_KEEPALIVE_TIMER = 13,
	LAB_RUN_PACING_TIMER = 14,
	LAB_RUN_COMPRESSED_ACK_TIMER = 15,
	LAB_RUN_REQUEST_TIMER = 16,
	LAB_RUN_SMALL_QUEUE = 17,
	LAB_RUN_RELEASE = 18,
};

/* Lower half of LAB_RUN_OPTION's value, in a replay with something changed (LAB_WHAT_IF). */
enum lab_change {
	LAB_CHANGE_ACK_AT_ONCE = 1,
	LAB_CHANGE_REORDERING = 2, /* the threshold that result says */
};

/* Bits of lab_run_record.flags. */
enum lab_run_flag {
	LAB_RUN_MARKED = BIT(0), /* a packet: CE */
	LAB_RUN_BACKLOG = BIT(1), /* a packet: it waited in the backlog */
	LAB_RUN_OWNED = BIT(2), /* a timer: the socket belonged to a call */
};

/* lab_run_record.decision of a run: its check is not known. */
#define LAB_RUN_UNCHECKED 1

/* Beside enum slowpath_decision, of recordings that are followed. */
enum lab_following_decision {
	LAB_DECISION_CLOCK = 6,  /* what TCP's clock read the next time: ns after the run's */
	LAB_DECISION_TICKS = 7,  /* jiffies after the run's: from so many clocks and packets on, or of one reader (LAB_READER) */
	LAB_DECISION_MEMORY = 8, /* sk_wmem_alloc after so many packets of the run; 1 if not recorded */
	LAB_DECISION_FLUSH = 9,  /* the call looked at the backlog when so much was queued */
	LAB_DECISION_MERGED = 11, /* this much further one more packet is merged in the backlog */
	LAB_DECISION_COMPARISON = 12, /* what the run's comparison of clocks with that number gave */
	LAB_DECISION_ORDER = 13, /* so many runs of the end that accepted, of the same moment, came before */
	LAB_DECISION_FRAGMENT = 15, /* where the data of a send began: in the task's page, and (1) in the first one of a file */
	LAB_DECISION_METRICS = 16, /* what came of what earlier connections left: timeout, reordering, ssthresh, largest window */
	LAB_DECISION_REFUSED = 17, /* what the device's queue made of the packet after so many of the run: NET_XMIT_*, or an error */
	LAB_DECISION_PIECE = 18, /* the packet was cut on the way: the bytes before this piece of it */
	LAB_DECISION_JOINED = 19, /* it has bytes of its own, of one or several that follow each other: LAB_JOINED_* */
	LAB_DECISION_BACKLOG = 10, /* sk_backlog.len from so many clocks and packets on; 0 if not recorded */
};

/* Whose jiffies, in LAB_DECISION_TICKS; with the packets sent before by the run. */
#define LAB_READER(reader, sent) ((u32)(reader) << 24 | (sent))

/* With LAB_DECISION_REFUSED: what the listener's queue made of what came; of a packet one of these, of the request's timer how often a SYN-ACK is sent again. */
#define LAB_LISTENER 0x00ffffffu
#define LAB_QUEUE_FULL 1
#define LAB_QUEUE_COOKIE 2

/* Of LAB_DECISION_JOINED: sequence numbers, and how many packets behind the first it reaches into. */
#define LAB_JOINED_LENGTH(value) ((value) & 0xfffff)
#define LAB_JOINED_FURTHER(value) ((value) >> 20)

/* The result of a call that had not returned when its recording ended. */
#define LAB_NOT_RETURNED (-512)

/* handlers.bin of a recording, and the runs of a script. */
struct lab_run_record {
	__le64 at;         /* ns of the monotonic clock */
	__le32 jiffies;
	__le32 connection;
	__u8 end;          /* 0: connected, 1: accepted */
	__u8 kind;
	__u8 flags;
	__u8 decision;     /* of a run in a script: LAB_RUN_UNCHECKED or 0 */
	__le32 value;      /* packet: its number. call: bytes asked, or how. option: its name, and its level in the upper half. decision: how often it had been decided before */
	__le32 result;     /* packet: its truesize. call: what it returned. option: lower half of its value. decision: what came out */
	__le32 check;
	__le32 decisions;  /* in a script: so many behind it */
	__le32 more;       /* call: its flags. option: upper half of its value. packet: how many are merged in the backlog */
};

/* At the beginning of handlers.bin. */
struct lab_recording {
	__le64 magic;
	__le32 version;
	__le32 hz;
	__le64 origin;     /* ns of the monotonic clock at 0 of the scenario */
};

/* script.bin: this, a lab_script_end for each end of each connection of the plan (connected, accepted, connected, ...), the runs. */
struct lab_script {
	__le64 magic;
	__le32 version;    /* LAB_FORMAT */
	__le32 connections;
	__le64 records;
	/* Runs whose functions are written to functions.txt: of one end, from first up to and
	 * without end; and the run at which slowpath_replay_stop() is called. */
	__le32 traced_connection;  /* LAB_NOTHING: none */
	__le32 traced_side;
	__le64 traced_first;
	__le64 traced_end;
	__le32 stop_connection;    /* LAB_NOTHING: none */
	__le32 stop_side;
	__le64 stop_run;
};

struct lab_script_end {
	__le64 first;      /* record */
	__le64 records;
	__le32 packets;    /* of the other end, that are needed */
	__le32 digest;     /* the last check, 0: none */
	__le64 clock;      /* to be added to its times for the order of both ends' runs */
	__le32 flags;
	__le32 reserved;
};

/* Bit of lab_script_end.flags: its checks were made where packets have no numbers. */
#define LAB_END_UNNUMBERED BIT(0)

enum lab_replay_status {
	LAB_EXACT = 0,
	LAB_DIVERGED_STATE = 1,    /* the check differs */
	LAB_DIVERGED_RESULT = 2,   /* a call returned something else */
	LAB_DIVERGED_TIMER = 3,    /* a timer that is not armed fired */
	LAB_DIVERGED_PACKET = 4,   /* a packet came that no end sent */
	LAB_DIVERGED_DECISION = 5, /* a decision was not asked for */
	LAB_DIVERGED_DIGEST = 6,   /* all runs are as they were, and more or fewer than there were */
	LAB_DIVERGED_CALL = 7,     /* a call that cannot be made here */
	LAB_NOT_REPLAYED = 8,
};

/* replayed.bin: one for each connection. */
struct lab_replayed {
	__le32 status;
	__le32 end;        /* that diverged */
	__le64 run;        /* which of that end, without decisions */
	__le32 expected;
	__le32 found;
	__le64 runs[2];    /* done */
	__le64 packets[2]; /* sent */
};

/* account.bin: after each run, and before it what it decided. */
struct lab_done {
	__le32 connection;
	__u8 end;
	__u8 decision; /* LAB_ACCOUNT_RUN: what follows is of the run */
	__u8 needed;   /* without the recording, something else would have been decided */
	__u8 reserved;
	__le32 first;  /* the run's check; of a decision how often it was decided before */
	__le32 second; /* mixed from the packets it sent and the state it left, without clocks; what was decided */
};

#define LAB_ACCOUNT_RUN 255

/* What is looked at after each run, see look() in replay.c for the order. */
#define LAB_PROBED 40
#define LAB_FIELD_SRTT 21
#define LAB_FIELD_MDEV 22
#define LAB_FIELD_RTO 23

/* probes.bin: after each run, if wanted; and of both ends where a replay diverged. */
struct lab_probe {
	__le32 connection;
	__u8 end;
	__u8 kind;
	__le16 reserved;
	__le64 run;
	__le64 at;
	__le32 fields[LAB_PROBED];
};

#endif
