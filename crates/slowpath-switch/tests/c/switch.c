/* SPDX-License-Identifier: Apache-2.0 */
/* Uses the static library as a kernel would: its own memory, its own end. Prints the layout
 * of every structure, then checks a burst into one port. */
#include "slowpath_switch.h"
#include <stdio.h>
#include <stdlib.h>

static size_t held;

void *slowpath_alloc(size_t size, size_t align)
{
	void *memory = NULL;
	if (posix_memalign(&memory, align < sizeof(void *) ? sizeof(void *) : align, size))
		return NULL;
	held += size;
	return memory;
}

void slowpath_dealloc(void *memory, size_t size, size_t align)
{
	(void)align;
	held -= size;
	free(memory);
}

void slowpath_panic(const char *file, size_t length, uint32_t line)
{
	fprintf(stderr, "panic at %.*s:%u\n", (int)length, file, line);
	abort();
}

#define SIZE(type) printf("size %s %zu\n", #type, sizeof(struct slowpath_##type))
#define FIELD(type, field) \
	printf("field %s.%s %zu\n", #type, #field, offsetof(struct slowpath_##type, field))
#define CHECK(condition) \
	do { \
		if (!(condition)) { \
			fprintf(stderr, "line %d: %s\n", __LINE__, #condition); \
			exit(1); \
		} \
	} while (0)

static unsigned events[5];

void check_fabric(const char *plan);

static void count(void *context, const struct slowpath_event *event)
{
	CHECK(context == events);
	CHECK(event->packet->bytes == 1250);
	events[event->kind]++;
}

int main(int count_of_arguments, char **arguments)
{
	CHECK(count_of_arguments == 2);
	SIZE(packet);
	FIELD(packet, handle);
	FIELD(packet, flow);
	FIELD(packet, bytes);
	FIELD(packet, destination);
	FIELD(packet, class_);
	FIELD(packet, ttl);
	FIELD(packet, ecn);
	FIELD(packet, tag);
	SIZE(limit);
	FIELD(limit, packets);
	SIZE(depth);
	FIELD(depth, packets);
	SIZE(counters);
	FIELD(counters, detoured);
	SIZE(port_config);
	FIELD(port_config, propagation);
	FIELD(port_config, limit);
	FIELD(port_config, marking);
	FIELD(port_config, kind);
	SIZE(switch_config);
	FIELD(switch_config, port_count);
	FIELD(switch_config, classes);
	FIELD(switch_config, flags);
	FIELD(switch_config, number);
	FIELD(switch_config, seed);
	FIELD(switch_config, shared);
	FIELD(switch_config, alpha_numerator);
	FIELD(switch_config, alpha_denominator);
	SIZE(queued);
	FIELD(queued, port);
	FIELD(queued, flags);
	FIELD(queued, reason);
	SIZE(departure);
	FIELD(departure, start);
	FIELD(departure, finish);
	FIELD(departure, arrival);
	FIELD(departure, next);
	SIZE(event);
	FIELD(event, packet);
	FIELD(event, depth);
	FIELD(event, kind);
	FIELD(event, reason);
	FIELD(event, port);
	FIELD(event, to);
	SIZE(fabric_event);
	FIELD(fabric_event, packet);
	FIELD(fabric_event, depth);
	FIELD(fabric_event, kind);
	FIELD(fabric_event, cause);
	FIELD(fabric_event, node);
	FIELD(fabric_event, flags);
	FIELD(fabric_event, port);
	FIELD(fabric_event, to);
	FIELD(fabric_event, hops);
	SIZE(fabric_counts);
	FIELD(fabric_counts, inside);
	SIZE(fabric_line);
	FIELD(fabric_line, late);

	/* A host at port 0 with room for 3, a switch at port 1 with room for 2. */
	struct slowpath_port_config ports[2] = {
		{ 1000000000, 5000000, { SLOWPATH_UNLIMITED_BYTES, 3 },
		  { SLOWPATH_UNLIMITED_BYTES, 2 }, SLOWPATH_HOST_PORT },
		{ 1000000000, 5000000, { SLOWPATH_UNLIMITED_BYTES, 2 },
		  { SLOWPATH_UNLIMITED_BYTES, SLOWPATH_UNLIMITED_PACKETS }, SLOWPATH_SWITCH_PORT },
	};
	struct slowpath_switch_config config = {
		.ports = ports,
		.port_count = 2,
		.classes = 1,
		.flags = SLOWPATH_DETOUR | SLOWPATH_DETOUR_TO_ARRIVAL_PORT |
			 SLOWPATH_DECREMENT_TTL | SLOWPATH_COUNT_FLOWS,
		.seed = 1,
	};
	struct slowpath_switch *sw = slowpath_switch_new(&config);
	CHECK(sw);
	CHECK(slowpath_switch_observe(sw, count, events) == 0);
	uint16_t route[] = { 0 };
	CHECK(slowpath_switch_set_route(sw, 4, route, 1) == 0);
	route[0] = 2;
	CHECK(slowpath_switch_set_route(sw, 4, route, 1) == SLOWPATH_INVALID);

	/* Six at once: three find room, two take the detour, one is lost. */
	for (unsigned n = 0; n < 6; n++) {
		struct slowpath_packet packet = {
			.handle = n, .flow = 9, .bytes = 1250, .destination = 4, .ttl = 8, .ecn = 2,
		};
		struct slowpath_queued queued;
		int status = slowpath_switch_arrive(sw, 1000, 1, &packet, &queued);
		CHECK(status == (n < 5 ? SLOWPATH_QUEUED : SLOWPATH_DROPPED));
		if (n == 5) {
			CHECK(queued.reason == SLOWPATH_BUFFER_FULL);
			CHECK(packet.ttl == 7);
			continue;
		}
		CHECK(queued.port == (n < 3 ? 0 : 1));
		CHECK(queued.flags ==
		      (n == 2 ? SLOWPATH_WAS_MARKED : n > 2 ? SLOWPATH_WAS_DETOURED : 0));
		CHECK(queued.start == (n == 0 || n == 3 ? 1000 : SLOWPATH_NEVER));
	}
	struct slowpath_depth depth;
	CHECK(slowpath_switch_depth(sw, 0, &depth) == 0);
	CHECK(depth.packets == 3 && depth.bytes == 3750);
	CHECK(slowpath_switch_flow_depth(sw, 1, 9, &depth) == 0 && depth.packets == 2);
	CHECK(slowpath_switch_class_depth(sw, 1, 0, &depth) == 0 && depth.packets == 2);

	/* 1,250 bytes at 1 Gbit/s: 10 us each. */
	struct slowpath_departure left;
	CHECK(slowpath_switch_transmit(sw, 999, 0, &left) == SLOWPATH_NOTHING);
	uint64_t now = 1000;
	for (unsigned n = 0; n < 3; n++) {
		CHECK(slowpath_switch_transmit(sw, now, 0, &left) == 0);
		CHECK(left.packet.handle == n && left.start == now);
		CHECK(left.packet.ecn == (n == 2 ? 3 : 2));
		CHECK(left.finish == now + 10000000 && left.arrival == now + 15000000);
		CHECK(left.next == (n < 2 ? left.finish : SLOWPATH_NEVER));
		now = left.finish;
	}
	struct slowpath_counters counters;
	CHECK(slowpath_switch_counters(sw, 0, &counters) == 0);
	CHECK(counters.dequeued == 3 && counters.detoured == 2 && counters.dropped == 1);
	CHECK(slowpath_switch_dropped(sw, SLOWPATH_BUFFER_FULL) == 1);
	CHECK(slowpath_switch_dropped(sw, 77) == 0);
	CHECK(events[SLOWPATH_ENQUEUED] == 5 && events[SLOWPATH_DEQUEUED] == 3);
	CHECK(events[SLOWPATH_MARKED] == 1 && events[SLOWPATH_DROP] == 1);
	CHECK(events[SLOWPATH_DETOURED] == 2);

	CHECK(slowpath_switch_transmit(NULL, 0, 0, &left) == SLOWPATH_INVALID);
	CHECK(slowpath_switch_depth(sw, 0, NULL) == SLOWPATH_INVALID);
	ports[1].limit.packets = 0;
	CHECK(!slowpath_switch_new(&config));
	CHECK(!slowpath_switch_new(NULL));
	slowpath_switch_free(sw);
	slowpath_switch_free(NULL);
	check_fabric(arguments[1]);
	CHECK(held == 0);
	return 0;
}
