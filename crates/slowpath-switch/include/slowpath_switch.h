/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The switch and link model, for C. What it models and who schedules is documented in the
 * documentation of the Rust crate slowpath-switch; every name here has its twin there.
 *
 * Times are picoseconds. No function blocks, reads a clock or does I/O. A switch may be
 * used by one thread at a time; different switches do not know each other.
 *
 * The static library:
 *
 *   cargo rustc -p slowpath-switch --release --features freestanding \
 *       --crate-type staticlib --config 'profile.release.panic="abort"' \
 *       --config 'profile.release.lto="fat"'
 *
 * It needs memcpy, memmove, memset, memcmp and the three functions at the end.
 */
#ifndef SLOWPATH_SWITCH_H
#define SLOWPATH_SWITCH_H

#include <stddef.h>
#include <stdint.h>

#ifdef __cplusplus
extern "C" {
#endif

/* In a limit: no bound. */
#define SLOWPATH_UNLIMITED_PACKETS UINT32_MAX
#define SLOWPATH_UNLIMITED_BYTES UINT64_MAX
/* Not a time: no call is due. */
#define SLOWPATH_NEVER UINT64_MAX
/* Not a port. */
#define SLOWPATH_NO_PORT UINT16_MAX

/* What a function returns. */
enum slowpath_status {
	SLOWPATH_QUEUED = 0,   /* the packet waits in a queue; also: done */
	SLOWPATH_DROPPED = 1,  /* the packet is the caller's again */
	SLOWPATH_NOTHING = 2,  /* nothing was due */
	SLOWPATH_INVALID = -1, /* a null pointer, or an impossible argument */
};

enum slowpath_drop_reason {
	SLOWPATH_BUFFER_FULL = 0,
	SLOWPATH_TTL_EXPIRED = 1,
	SLOWPATH_NO_ROUTE = 2,
};

enum slowpath_port_kind {
	SLOWPATH_HOST_PORT = 0,
	SLOWPATH_SWITCH_PORT = 1,
};

/* Bits of slowpath_switch_config.flags. */
#define SLOWPATH_SHARED 1u                /* ports share memory: shared and alpha count */
#define SLOWPATH_DETOUR 2u                /* detour instead of drop */
#define SLOWPATH_DETOUR_TO_ARRIVAL_PORT 4u
#define SLOWPATH_DETOUR_MARKS 8u
#define SLOWPATH_DECREMENT_TTL 16u
#define SLOWPATH_COUNT_FLOWS 32u

/* Bits of slowpath_queued.flags. */
#define SLOWPATH_WAS_MARKED 1u
#define SLOWPATH_WAS_DETOURED 2u

struct slowpath_packet {
	uint64_t handle;      /* the caller's */
	uint64_t flow;        /* hashed by ECMP, counted by flow */
	uint32_t bytes;       /* on the wire */
	uint32_t destination; /* the route table's index */
	uint8_t class_;       /* 0 is served first */
	uint8_t ttl;
	uint8_t ecn;          /* 0 not capable, 1 ECT(1), 2 ECT(0), 3 CE */
	uint8_t tag;          /* the caller's */
};

struct slowpath_limit {
	uint64_t bytes;
	uint32_t packets;
};

struct slowpath_depth {
	uint64_t bytes;
	uint32_t packets;
};

struct slowpath_counters {
	uint64_t enqueued;
	uint64_t enqueued_bytes;
	uint64_t dequeued;
	uint64_t dequeued_bytes;
	uint64_t marked;
	uint64_t dropped;
	uint64_t dropped_bytes;
	uint64_t detoured;
};

struct slowpath_port_config {
	uint64_t bits_per_second;     /* 1e3 to 1e14 */
	uint64_t propagation;         /* picoseconds */
	struct slowpath_limit limit;  /* of all classes of the port */
	struct slowpath_limit marking; /* marks from the first that is reached */
	uint32_t kind;                /* enum slowpath_port_kind */
};

struct slowpath_switch_config {
	const struct slowpath_port_config *ports;
	uint32_t port_count;
	uint32_t classes;             /* 1 to 8 */
	uint32_t flags;
	uint32_t number;              /* salts the ECMP hash and the random numbers */
	uint64_t seed;
	struct slowpath_limit shared;
	uint32_t alpha_numerator;
	uint32_t alpha_denominator;
};

struct slowpath_queued {
	uint64_t start;  /* when to call slowpath_switch_transmit, or SLOWPATH_NEVER */
	uint16_t port;
	uint16_t flags;
	uint32_t reason; /* if dropped: enum slowpath_drop_reason */
};

struct slowpath_departure {
	struct slowpath_packet packet;
	uint64_t start;   /* the first bit leaves */
	uint64_t finish;  /* the last bit has left */
	uint64_t arrival; /* the last bit is at the other end */
	uint64_t next;    /* when to call again, or SLOWPATH_NEVER */
};

enum slowpath_event_kind {
	SLOWPATH_ENQUEUED = 0,
	SLOWPATH_DEQUEUED = 1,
	SLOWPATH_MARKED = 2,
	SLOWPATH_DROP = 3,
	SLOWPATH_DETOURED = 4,
};

struct slowpath_event {
	uint64_t at;
	const struct slowpath_packet *packet; /* valid during the call */
	struct slowpath_depth depth; /* enqueued, dequeued: the port; marked: the queue */
	uint32_t kind;
	uint32_t reason;   /* a drop's */
	uint16_t port;     /* SLOWPATH_NO_PORT where none was chosen */
	uint16_t to;       /* where a detour leads, otherwise SLOWPATH_NO_PORT */
};

typedef void (*slowpath_observer)(void *context, const struct slowpath_event *event);

struct slowpath_switch;

/* Null if the configuration is impossible. */
struct slowpath_switch *slowpath_switch_new(const struct slowpath_switch_config *config);
void slowpath_switch_free(struct slowpath_switch *sw);

/* Called for every event from now on; null ends that. It must not call the switch. */
int slowpath_switch_observe(struct slowpath_switch *sw, slowpath_observer observer,
			    void *context);

/* Replaces the ports that lead to a destination; count 0 takes the route away. */
int slowpath_switch_set_route(struct slowpath_switch *sw, uint32_t destination,
			      const uint16_t *ports, size_t count);

/* The packet's last bit came in by a port. It is rewritten as it is dropped. */
int slowpath_switch_arrive(struct slowpath_switch *sw, uint64_t now, uint16_t by,
			   struct slowpath_packet *packet, struct slowpath_queued *queued);

/* A packet made here leaves by that port. */
int slowpath_switch_send(struct slowpath_switch *sw, uint64_t now, uint16_t port,
			 struct slowpath_packet *packet, struct slowpath_queued *queued);

/* Starts the transmission that is due at a port. */
int slowpath_switch_transmit(struct slowpath_switch *sw, uint64_t now, uint16_t port,
			     struct slowpath_departure *departure);

int slowpath_switch_depth(const struct slowpath_switch *sw, uint16_t port,
			  struct slowpath_depth *depth);
int slowpath_switch_class_depth(const struct slowpath_switch *sw, uint16_t port,
				uint8_t class_, struct slowpath_depth *depth);
/* SLOWPATH_NOTHING without SLOWPATH_COUNT_FLOWS. */
int slowpath_switch_flow_depth(const struct slowpath_switch *sw, uint16_t port,
			       uint64_t flow, struct slowpath_depth *depth);
int slowpath_switch_counters(const struct slowpath_switch *sw, uint16_t port,
			     struct slowpath_counters *counters);
/* Packets dropped for that reason, in the whole switch. */
uint64_t slowpath_switch_dropped(const struct slowpath_switch *sw, uint32_t reason);

/*
 * A fabric: switches, the interfaces of hosts and the links between them as one state
 * machine. The Rust module slowpath_switch::fabric documents what it does. It is made from a plan's
 * bytes, which Plan::encode there writes; they are checked and never trusted.
 *
 * Who drives it calls slowpath_fabric_send when a host sends, and slowpath_fabric_advance
 * at slowpath_fabric_next or later. Both report to the callback what happens in the order of
 * time; it must not call the fabric.
 */

/* In a node's number: a switch. Otherwise it is a host. */
#define SLOWPATH_FABRIC_SWITCH (1u << 31)

enum slowpath_fabric_problem {
	SLOWPATH_FABRIC_UNREADABLE = -2, /* the bytes are no plan, or another version's */
	SLOWPATH_FABRIC_IMPOSSIBLE = -3, /* the plan cannot be */
};

enum slowpath_fabric_kind {
	SLOWPATH_FABRIC_DELIVERED = 0,
	SLOWPATH_FABRIC_DROPPED = 1,
	SLOWPATH_FABRIC_COPIED = 2, /* the handle will be delivered or dropped once more */
	SLOWPATH_FABRIC_ENQUEUED = 3,
	SLOWPATH_FABRIC_DEQUEUED = 4,
	SLOWPATH_FABRIC_MARKED = 5,
	SLOWPATH_FABRIC_DETOURED = 6,
};

/* Why a packet was dropped; the first three as in slowpath_drop_reason. */
enum slowpath_fabric_cause {
	SLOWPATH_FABRIC_BUFFER_FULL = 0,
	SLOWPATH_FABRIC_TTL_EXPIRED = 1,
	SLOWPATH_FABRIC_NO_ROUTE = 2,
	SLOWPATH_FABRIC_LOST = 3,      /* on a line, as the plan says */
	SLOWPATH_FABRIC_LINK_DOWN = 4,
	SLOWPATH_FABRIC_TOO_MANY = 5,  /* more packets inside than the plan allows */
	SLOWPATH_FABRIC_TOO_LONG = 6,  /* longer than the line's MTU; here nothing is fragmented */
	SLOWPATH_FABRIC_POLICED = 7,   /* the line's policer had no tokens */
};

/* Bits of slowpath_fabric_event.flags. */
#define SLOWPATH_FABRIC_WAS_MARKED 1u    /* by a switch of the fabric; packet.ecn is 3 */
#define SLOWPATH_FABRIC_WAS_CORRUPTED 2u /* damage a byte */
#define SLOWPATH_FABRIC_IS_COPY 4u

struct slowpath_fabric_event {
	uint64_t at;
	struct slowpath_packet packet; /* as it is then: ttl, ecn */
	struct slowpath_depth depth;   /* enqueued, dequeued: the port; marked: the queue */
	uint32_t kind;
	uint32_t cause; /* a drop's */
	uint32_t node;  /* delivered: where; dropped: where, of a line its beginning */
	uint32_t flags;
	uint16_t port; /* of the node; of a drop at a switch that could not take the packet, the
			* port by which it came in; or SLOWPATH_NO_PORT */
	uint16_t to;   /* where a detour leads, otherwise SLOWPATH_NO_PORT */
	uint16_t hops; /* delivered, dropped: switches that forwarded the packet */
};

struct slowpath_fabric_counts {
	uint64_t sent; /* sent + copies = delivered + dropped + inside */
	uint64_t copies;
	uint64_t delivered;
	uint64_t dropped;
	uint64_t inside;
	uint64_t fragmented; /* always 0 here */
	uint64_t fragments;  /* always 0 here */
};

struct slowpath_fabric_line {
	uint64_t packets; /* whose transmission started */
	uint64_t bytes;
	uint64_t lost;
	uint64_t cut;
	uint64_t corrupted;
	uint64_t copied;
	uint64_t late;
};

typedef void (*slowpath_fabric_observer)(void *context,
					 const struct slowpath_fabric_event *event);

struct slowpath_fabric;

/* Null if there is no such fabric; *problem, unless problem is null, is then
 * SLOWPATH_INVALID or an enum slowpath_fabric_problem, otherwise 0. The bytes are not
 * needed afterwards. */
struct slowpath_fabric *slowpath_fabric_new(const uint8_t *plan, size_t length,
					    int *problem);
/* What is inside is gone without a word. */
void slowpath_fabric_free(struct slowpath_fabric *fabric);

/* Called from now on for events whose kind's bit (1u << SLOWPATH_FABRIC_DELIVERED | ...) is
 * in kinds; a null observer ends that. */
int slowpath_fabric_observe(struct slowpath_fabric *fabric, slowpath_fabric_observer observer,
			    void *context, uint32_t kinds);

/* A host (or with SLOWPATH_FABRIC_SWITCH a switch) sends a packet. packet->destination is a
 * host's number, or the number of hosts plus a switch's. Everything that is due by now
 * happens first. The handle comes back in exactly one delivered or dropped event, perhaps
 * during the call, and in one more for each copied event. now must not go back. */
int slowpath_fabric_send(struct slowpath_fabric *fabric, uint64_t now, uint32_t node,
			 const struct slowpath_packet *packet);

/* When something happens next, or SLOWPATH_NEVER. */
uint64_t slowpath_fabric_next(const struct slowpath_fabric *fabric);

/* All that is due by now happens, each event at its own moment. */
int slowpath_fabric_advance(struct slowpath_fabric *fabric, uint64_t now);

int slowpath_fabric_counts(const struct slowpath_fabric *fabric,
			   struct slowpath_fabric_counts *counts);
/* Zero for a node, port or line that is not there. A host has port 0. Link l of the plan has
 * line 2 l from its first end to its second, and 2 l + 1 back. */
int slowpath_fabric_depth(const struct slowpath_fabric *fabric, uint32_t node, uint16_t port,
			  struct slowpath_depth *depth);
int slowpath_fabric_line(const struct slowpath_fabric *fabric, uint32_t line,
			 struct slowpath_fabric_line *counters);

/* What the static library asks for. Null from slowpath_alloc ends in slowpath_panic. */
void *slowpath_alloc(size_t size, size_t align);
void slowpath_dealloc(void *memory, size_t size, size_t align);
/* Must not return. */
void slowpath_panic(const char *file, size_t length, uint32_t line);

#ifdef __cplusplus
}
#endif
#endif
