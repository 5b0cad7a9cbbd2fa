/* SPDX-License-Identifier: Apache-2.0 */
/* Two hosts at one switch, from a file of a plan's bytes: 1,250-byte packets at 1 Gbit/s with
 * 5 us to each end, the second packet from host 0 lost. */
#include "slowpath_switch.h"
#include <stdio.h>
#include <stdlib.h>

#define CHECK(condition) \
	do { \
		if (!(condition)) { \
			fprintf(stderr, "fabric.c:%d: %s\n", __LINE__, #condition); \
			exit(1); \
		} \
	} while (0)

void check_fabric(const char *plan);

struct observed {
	unsigned delivered, dropped, others;
};

static void observe(void *context, const struct slowpath_fabric_event *event)
{
	struct observed *observed = context;
	if (event->kind == SLOWPATH_FABRIC_DELIVERED) {
		/* Twice 10 us onto a link and 5 us along it, one after the other. */
		uint64_t expected = 30000000 + 10000000 * (uint64_t)(event->packet.handle - 1);
		CHECK(event->at == expected);
		CHECK(event->node == 1 && event->hops == 1 && event->packet.ttl == 7);
		observed->delivered++;
	} else if (event->kind == SLOWPATH_FABRIC_DROPPED) {
		CHECK(event->packet.handle == 2 && event->node == 0 && event->port == 0);
		CHECK(event->cause == SLOWPATH_FABRIC_LOST);
		observed->dropped++;
	} else {
		observed->others++;
	}
}

void check_fabric(const char *plan)
{
	static uint8_t bytes[65536];
	FILE *file = fopen(plan, "rb");
	CHECK(file);
	size_t length = fread(bytes, 1, sizeof bytes, file);
	fclose(file);

	int problem = 0;
	CHECK(!slowpath_fabric_new(NULL, 0, &problem) && problem == SLOWPATH_INVALID);
	CHECK(!slowpath_fabric_new(bytes, length - 1, &problem));
	CHECK(problem == SLOWPATH_FABRIC_UNREADABLE);
	struct slowpath_fabric *fabric = slowpath_fabric_new(bytes, length, &problem);
	CHECK(fabric && problem == 0);
	struct observed observed = { 0 };
	CHECK(slowpath_fabric_observe(fabric, observe, &observed,
				      1u << SLOWPATH_FABRIC_DELIVERED |
					      1u << SLOWPATH_FABRIC_DROPPED) == 0);
	CHECK(slowpath_fabric_next(fabric) == SLOWPATH_NEVER);
	for (unsigned n = 1; n <= 3; n++) {
		struct slowpath_packet packet = {
			.handle = n, .flow = 9, .bytes = 1250, .destination = 1, .ttl = 8,
		};
		CHECK(slowpath_fabric_send(fabric, 0, 0, &packet) == 0);
	}
	struct slowpath_depth depth;
	CHECK(slowpath_fabric_depth(fabric, 0, 0, &depth) == 0 && depth.packets == 2);
	uint64_t next;
	while ((next = slowpath_fabric_next(fabric)) != SLOWPATH_NEVER)
		CHECK(slowpath_fabric_advance(fabric, next) == 0);
	CHECK(observed.delivered == 2 && observed.dropped == 1 && observed.others == 0);
	struct slowpath_fabric_counts counts;
	CHECK(slowpath_fabric_counts(fabric, &counts) == 0);
	CHECK(counts.sent == 3 && counts.delivered == 2 && counts.dropped == 1);
	CHECK(counts.inside == 0 && counts.copies == 0);
	struct slowpath_fabric_line line;
	CHECK(slowpath_fabric_line(fabric, 0, &line) == 0 && line.packets == 3 && line.lost == 1);
	CHECK(slowpath_fabric_advance(NULL, 0) == SLOWPATH_INVALID);
	slowpath_fabric_free(fabric);
	slowpath_fabric_free(NULL);
}
