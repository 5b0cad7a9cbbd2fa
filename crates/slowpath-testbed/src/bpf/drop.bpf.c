// SPDX-License-Identifier: GPL-2.0
/* Drops chosen TCP segments at a tc ingress hook and writes down which.
 *
 * It belongs at the receiver's ingress: a drop at the sender's egress would be noticed by
 * the sender's TCP (NET_XMIT_DROP), which then neither counts the segment as sent nor
 * leaves its congestion window as it is. Captures at either end still hold the segment.
 *
 * Segments are numbered by sequence number: one that starts at or after the highest end
 * observed so far is an original, any other a retransmission.
 */
typedef unsigned char __u8;
typedef unsigned short __u16;
typedef unsigned int __u32;
typedef unsigned long long __u64;
typedef int __s32;
typedef long long __s64;
typedef __u16 __be16;
typedef __u32 __be32;
typedef __u32 __wsum;

enum { BPF_MAP_TYPE_HASH = 1, BPF_MAP_TYPE_ARRAY = 2 };
enum { BPF_ANY = 0, BPF_NOEXIST = 1 };
enum { TC_ACT_OK = 0, TC_ACT_SHOT = 2 };
enum { ETH_HEADER = 14, ETH_P_IP = 0x0800, ETH_P_IPV6 = 0x86dd, PROTOCOL_TCP = 6 };
enum { FLAG_SYN = 0x02 };

struct bpf_spin_lock {
	__u32 val;
};

/* The program hands its context on and reads none of it. */
struct __sk_buff;

#include <bpf/bpf_helpers.h>

#define LOG_ENTRIES 16384

struct rule {
	__u32 port; /* source or destination port, host order; 0: any */
	__u32 every; /* 0: none but those in `ordinals` */
	__u32 first; /* first chosen number, from 1 */
	__u32 limit; /* chosen at most; 0: no limit */
	__u32 transmissions; /* dropped of each chosen segment */
	__u32 message_bytes; /* not 0: number messages, choose their last segments */
	__u32 blackout; /* not 0: everything is dropped */
};

struct flow_key {
	__u8 source[16];
	__u8 destination[16];
	__u16 source_port;
	__u16 destination_port;
};

struct flow {
	struct bpf_spin_lock lock;
	__u32 start; /* sequence number of the first payload byte */
	__u32 next; /* highest end observed */
	__u32 originals;
	__u32 chosen;
};

struct segment_key {
	struct flow_key flow;
	__u32 sequence;
};

struct victim {
	__u32 drop; /* transmissions to drop */
	__u32 transmissions; /* observed so far */
	__u32 ordinal;
};

struct entry {
	__u64 time_ns;
	struct flow_key flow;
	__u32 sequence;
	__u32 offset;
	__u32 length;
	__u32 ordinal;
	__u32 transmission;
};

struct totals {
	__u64 originals;
	__u64 retransmissions;
	__u64 dropped;
	__u64 dropped_without_data;
	__u64 unrecorded; /* drops that found no room in `victims` or `flows` */
};

/* Types that drops.rs mirrors: slowpath-layout reads them from the object's BTF. The section is not loaded. */
#define MIRRORED(kind, name) const kind name *mirrored_##name SEC("mirrored")

MIRRORED(struct, rule);
MIRRORED(struct, flow_key);
MIRRORED(struct, entry);
MIRRORED(struct, totals);

struct {
	__uint(type, BPF_MAP_TYPE_ARRAY);
	__uint(max_entries, 1);
	__type(key, __u32);
	__type(value, struct rule);
} rules SEC(".maps");

struct {
	__uint(type, BPF_MAP_TYPE_HASH);
	__uint(max_entries, 4096);
	__type(key, __u32);
	__type(value, __u32);
} ordinals SEC(".maps");

struct {
	__uint(type, BPF_MAP_TYPE_HASH);
	__uint(max_entries, 16384);
	__type(key, struct flow_key);
	__type(value, struct flow);
} flows SEC(".maps");

struct {
	__uint(type, BPF_MAP_TYPE_HASH);
	__uint(max_entries, LOG_ENTRIES);
	__type(key, struct segment_key);
	__type(value, struct victim);
} victims SEC(".maps");

struct {
	__uint(type, BPF_MAP_TYPE_ARRAY);
	__uint(max_entries, LOG_ENTRIES);
	__type(key, __u32);
	__type(value, struct entry);
} drop_log SEC(".maps");

struct {
	__uint(type, BPF_MAP_TYPE_ARRAY);
	__uint(max_entries, 1);
	__type(key, __u32);
	__type(value, struct totals);
} totals SEC(".maps");

struct packet {
	struct flow_key flow;
	__u32 sequence;
	__u32 length; /* of the payload */
	__u8 flags;
};

static __always_inline __u16 be16(const __u8 *p)
{
	return (__u16)p[0] << 8 | p[1];
}

static __always_inline __u32 be32(const __u8 *p)
{
	return (__u32)be16(p) << 16 | be16(p + 2);
}

/* Whether the packet is TCP, and what matters of it. */
static __always_inline int parse(struct __sk_buff *skb, struct packet *packet)
{
	__u8 eth[ETH_HEADER], ip[40], tcp[20];
	__u32 at = ETH_HEADER, end;

	if (bpf_skb_load_bytes(skb, 0, eth, sizeof(eth)))
		return 0;
	switch (be16(eth + 12)) {
	case ETH_P_IP:
		if (bpf_skb_load_bytes(skb, at, ip, 20) || ip[9] != PROTOCOL_TCP)
			return 0;
		packet->flow.source[10] = packet->flow.source[11] = 0xff;
		packet->flow.destination[10] = packet->flow.destination[11] = 0xff;
		__builtin_memcpy(packet->flow.source + 12, ip + 12, 4);
		__builtin_memcpy(packet->flow.destination + 12, ip + 16, 4);
		end = at + be16(ip + 2);
		at += (ip[0] & 0x0f) * 4;
		break;
	case ETH_P_IPV6:
		if (bpf_skb_load_bytes(skb, at, ip, 40) || ip[6] != PROTOCOL_TCP)
			return 0;
		__builtin_memcpy(packet->flow.source, ip + 8, 16);
		__builtin_memcpy(packet->flow.destination, ip + 24, 16);
		at += 40;
		end = at + be16(ip + 4);
		break;
	default:
		return 0;
	}
	if (bpf_skb_load_bytes(skb, at, tcp, sizeof(tcp)))
		return 0;
	packet->flow.source_port = be16(tcp);
	packet->flow.destination_port = be16(tcp + 2);
	packet->sequence = be32(tcp + 4);
	packet->flags = tcp[13];
	at += (tcp[12] >> 4) * 4;
	packet->length = end > at ? end - at : 0;
	return 1;
}

/* How many transmissions to drop of the original with that ordinal, which ends or does
 * not end a message. */
static __always_inline __u32 choose(const struct rule *rule, struct flow *flow, __u32 ordinal,
				    __u32 offset, __u32 length)
{
	__u32 number = ordinal;
	__u32 *listed = bpf_map_lookup_elem(&ordinals, &ordinal);

	if (listed)
		return *listed;
	if (!rule->every)
		return 0;
	if (rule->message_bytes) {
		number = (offset + length) / rule->message_bytes;
		if (number == offset / rule->message_bytes)
			return 0;
	}
	if (number < rule->first || (number - rule->first) % rule->every)
		return 0;
	if (__sync_fetch_and_add(&flow->chosen, 1) >= rule->limit && rule->limit)
		return 0;
	return rule->transmissions;
}

static __always_inline void record(const struct packet *packet, __u32 offset,
				   const struct victim *victim, struct totals *total)
{
	__u32 index = __sync_fetch_and_add(&total->dropped, 1);
	struct entry *entry = bpf_map_lookup_elem(&drop_log, &index);

	if (!entry)
		return; /* the reader sees `dropped` exceed the log */
	entry->time_ns = bpf_ktime_get_ns();
	entry->flow = packet->flow;
	entry->sequence = packet->sequence;
	entry->offset = offset;
	entry->length = packet->length;
	entry->ordinal = victim->ordinal;
	entry->transmission = victim->transmissions;
}

SEC("tc")
int drop_chosen(struct __sk_buff *skb)
{
	struct packet packet = {};
	struct segment_key key = {};
	struct victim fresh = {};
	struct victim *victim;
	struct flow *flow;
	__u32 zero = 0, offset, original, ordinal;
	struct rule *rule = bpf_map_lookup_elem(&rules, &zero);
	struct totals *total = bpf_map_lookup_elem(&totals, &zero);

	if (!rule || !total || !parse(skb, &packet))
		return TC_ACT_OK;
	if (rule->port && packet.flow.source_port != rule->port &&
	    packet.flow.destination_port != rule->port)
		return TC_ACT_OK;

	flow = bpf_map_lookup_elem(&flows, &packet.flow);
	if (packet.flags & FLAG_SYN || !flow) {
		/* A connection older than this program starts with what is observed first. */
		struct flow begin = { .start = packet.sequence, .next = packet.sequence };

		if (packet.flags & FLAG_SYN)
			begin.start = begin.next = packet.sequence + 1;
		bpf_map_update_elem(&flows, &packet.flow, &begin, BPF_ANY);
		flow = bpf_map_lookup_elem(&flows, &packet.flow);
		if (!flow) {
			__sync_fetch_and_add(&total->unrecorded, 1);
			return TC_ACT_OK;
		}
	}
	if (!packet.length) {
		if (!rule->blackout)
			return TC_ACT_OK;
		__sync_fetch_and_add(&total->dropped_without_data, 1);
		return TC_ACT_SHOT;
	}

	bpf_spin_lock(&flow->lock);
	offset = packet.sequence - flow->start;
	original = (__s32)(packet.sequence - flow->next) >= 0;
	if (original) {
		flow->next = packet.sequence + packet.length;
		flow->originals++;
	}
	ordinal = flow->originals;
	bpf_spin_unlock(&flow->lock);

	key.flow = packet.flow;
	key.sequence = packet.sequence;
	if (original) {
		__sync_fetch_and_add(&total->originals, 1);
		fresh.drop = choose(rule, flow, ordinal, offset, packet.length);
		fresh.ordinal = ordinal;
	} else {
		__sync_fetch_and_add(&total->retransmissions, 1);
	}
	victim = bpf_map_lookup_elem(&victims, &key);
	if (!victim) {
		if (!fresh.drop && !rule->blackout)
			return TC_ACT_OK;
		bpf_map_update_elem(&victims, &key, &fresh, BPF_NOEXIST);
		victim = bpf_map_lookup_elem(&victims, &key);
		if (!victim) {
			__sync_fetch_and_add(&total->unrecorded, 1);
			return TC_ACT_OK;
		}
	}
	if (victim->transmissions >= victim->drop && !rule->blackout)
		return TC_ACT_OK;
	__sync_fetch_and_add(&victim->transmissions, 1);
	record(&packet, offset, victim, total);
	return TC_ACT_SHOT;
}

char LICENSE[] SEC("license") = "GPL";
