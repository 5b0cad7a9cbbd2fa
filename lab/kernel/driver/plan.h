/* SPDX-License-Identifier: GPL-2.0 */
/*
 * What stands in the files between the laboratory kernel and the program that starts it.
 * Little-endian. The program's twin is crates/slowpath-lab/src/virtual_time/wire.rs: its build
 * compares every struct and enum of this file and of script.h with it, field by field (test
 * virtual_time::layout::a_mirrored_struct_that_differs_is_refused).
 *
 * Times are picoseconds of the scenario unless their name says otherwise; the scenario begins
 * at 0, after a warm-up in which connections are opened.
 */
#ifndef SLOWPATH_LAB_PLAN_H
#define SLOWPATH_LAB_PLAN_H

#include <linux/types.h>

#define LAB_MAGIC 0x42414c50534c5053ULL /* "SPLSPLAB" */
#define LAB_VERSION 15
/* What these files look like: a digest of all that is compared, which the build of slowpath-lab says. */
#define LAB_LAYOUT 0x408c7012u
/* What files name as their version: a kernel and a program that were built from other headers refuse each other's. */
#define LAB_FORMAT (LAB_LAYOUT ^ LAB_VERSION)
#define LAB_NEVER U64_MAX
#define LAB_TAGS 8

/* Bits of lab_plan.flags. */
enum lab_plan_flag {
	LAB_CAPTURE = BIT(0),
	LAB_EVENTS = BIT(1),
	/* The packets go through a process inside, one system call each way: for comparison. */
	LAB_THROUGH_PROCESS = BIT(2),
	/* Runs of TCP's handlers are written to handlers.bin. */
	LAB_RECORD = BIT(3),
	/* script.bin is replayed: no network, no flows. */
	LAB_REPLAY = BIT(4),
	/* The state after each run of a replay is written to probes.bin. */
	LAB_PROBE = BIT(5),
	/* The script was recorded on a stock kernel: calls that wait, backlog, several clocks a run. */
	LAB_FOLLOW = BIT(6),
	/* A replay goes on with another state, and timers that were not recorded fire: only packets are compared, by who reads the captures. */
	LAB_WHAT_IF = BIT(7),
	/* What each run of a replay left is written to account.bin. */
	LAB_ACCOUNT = BIT(8),
	/* With LAB_PROBE: for each record of probes.bin the variables of fields.h are written to more.bin, 8 bytes each. */
	LAB_PROBE_MORE = BIT(9),
};

/* Of lab_plan.own: what the kernel has by itself, or lab_plan says for all. */
#define LAB_USUAL U32_MAX
#define LAB_CUTS BIT(31)
#define LAB_SYSCTLS 60

struct lab_plan {
	__le64 magic;
	__le32 version; /* LAB_FORMAT */
	__le32 hosts;
	__le32 kinds;
	__le32 connections;
	__le64 flows;
	__le64 until;
	__le64 warm_up;      /* before the scenario */
	__le64 open_every;   /* between two connections of the warm-up */
	__le64 info_every;   /* 0: no tcp_info series */
	__le64 sample_every; /* queues; 0: whenever they change */
	__le32 flags;
	__le32 snap;         /* bytes of a packet that a capture keeps */
	__le32 watched;      /* ports whose queue is written down */
	__le32 mtu;
	__le32 ttl;
	/* Of every host: net.ipv4.tcp_*. */
	__le32 timestamps;
	__le32 sack;
	__le32 ecn;
	__le32 recovery;
	__le32 early_retrans;
	__le32 reordering;
	__le32 slow_start_after_idle;
	__le32 moderate_rcvbuf;
	__le32 rmem_default;
	__le32 rmem_max;
	__le32 lines;        /* twice the links */
	__le64 fabric;       /* bytes of the network's plan */
	/* Of a replay's hosts. */
	__le32 own_mtu[2]; /* with LAB_CUTS: the device takes nothing that is larger */
	__le32 own[2][LAB_SYSCTLS]; /* lab_set_sysctls() */
};
/* Then lab_kind, lab_connection, lab_flow, lab_watch, the network's plan. */

/* Bits of lab_kind.flags. */
enum lab_kind_flag {
	LAB_HANDSHAKE = BIT(0), /* opened when the flow begins, otherwise in the warm-up */
	LAB_ACK_AT_ONCE = BIT(1),
	LAB_IPV6 = BIT(2), /* its sockets are, and speak, that */
};

struct lab_kind {
	char algorithm[16];
	__le64 rto_min_ns;
	__le64 rto_initial_ns;
	__le64 ack_delay_ns;   /* 0: the kernel's own */
	__le64 accepted_rto_min_ns; /* of the end that accepts */
	__le64 read_every_ns;  /* 0: what arrives is read at once */
	__le32 initial_window; /* segments */
	__le32 initial_ssthresh;
	__le32 receive_window; /* 0: autotuned */
	__le32 mss;
	__le32 framing;        /* bytes a packet takes on the wire beside IP */
	__le32 flags;
	__le32 read_bytes;     /* at a time */
	__le32 reserved;
};

struct lab_connection {
	__le32 from;
	__le32 to;
	__le32 key;   /* what ECMP hashes; of the other direction it is one more */
	__le16 port;  /* the sender's, of no other connection of that host */
	__u8 kind;
	__u8 class;
	__u8 tag;     /* written with every event */
	__u8 reserved[7];
};

struct lab_flow {
	__le64 start;
	__le64 bytes;
	__le32 connection;
	__le32 chunk;     /* bytes of a write; 0: all at once */
	__le64 every;     /* between two writes */
};

struct lab_watch {
	__le32 node;  /* a host, or a switch with the highest bit set */
	__le32 port;
};

/* flows.bin: one for each flow of the plan. */
struct lab_result {
	__le64 finish; /* the receiver had the last byte; LAB_NEVER */
	__le64 arrived;
	__le32 retransmissions; /* of the connection since the flow before */
	__le32 timeouts;
};

/* events.bin */
enum lab_event_kind {
	LAB_DROPPED = 0,
	LAB_MARKED = 1,
	LAB_DETOURED = 2,
	LAB_QUEUE = 3,
};

struct lab_event {
	__le64 at;         /* signed: the warm-up is before 0 */
	__le32 node;
	__le16 port;       /* 0xffff: none */
	__u8 kind;
	__u8 cause;        /* a drop's; of a detour the low byte of the port it goes to */
	__le32 packets;
	__le32 bytes;
	__le32 connection; /* a queue's: 0xffffffff */
	__u8 tag;
	__u8 reply;        /* from the receiver to the sender */
	__le16 length;     /* of the packet */
};

/* /proc/slowpath-lab, with LAB_THROUGH_PROCESS: before each packet. The first eight are those of
 * struct slowpath_packet; of a packet that is written only destination, ttl, ecn and length count. */
struct lab_packet_head {
	__le64 handle;
	__le64 flow;
	__le32 bytes;
	__le32 destination;
	__u8 class_;
	__u8 ttl;
	__u8 ecn;
	__u8 tag;
	__le32 reserved;
	__le32 host;       /* that sends it */
	__le32 length;     /* of the IP packet behind this */
};

/* series.bin: lab_series, then that many bytes of struct tcp_info. */
struct lab_series {
	__le64 at;
	__le32 connection;
	__le32 length;
};

/* summary.bin */
struct lab_summary {
	__le64 magic;
	__le32 version;
	__le32 complete;     /* 1 */
	__le64 end;
	__le64 sent;         /* by hosts */
	__le64 delivered;
	__le64 dropped;
	__le64 copied;
	__le64 inside;
	__le64 marked;
	__le64 events;       /* of the network */
	__le64 host_packets; /* into their queue, by sockets */
	__le64 captured;
	__le64 lost_records; /* could not be written */
	__le64 corrupted;    /* of those delivered: thrown away by their host */
	__le64 most_inside;  /* packets in the network at once */
	__le64 sent_by_tag[LAB_TAGS];
	__le64 detoured_by_tag[LAB_TAGS]; /* packets, not detours */
};
/* Then for each host: packets and bytes sent; for each line: struct slowpath_fabric_line. */

#endif
