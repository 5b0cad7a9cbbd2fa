/* SPDX-License-Identifier: GPL-2.0 */
/* What packets are known by: IP identifications, or what they look like; and their events. */
#ifndef SLOWPATH_HANDLERS_PACKET_H
#define SLOWPATH_HANDLERS_PACKET_H

#include "ring.bpf.h"

static __always_inline const struct iphdr *network(const void *skb)
{
	return (const void *)(LOAD(skb, sk_buff___rec, head) +
			      LOAD(skb, sk_buff___rec, network_header));
}

static __always_inline const void *transport(const void *skb)
{
	return (const void *)(LOAD(skb, sk_buff___rec, head) +
			      LOAD(skb, sk_buff___rec, transport_header));
}

#define ETH_P_IPV6 0x86dd

/* TCP_LISTEN */
#define LISTEN 10

/* TCPHDR_* */
#define SYN 0x02
#define RST 0x04
#define ACK 0x10
#define SYN_ACK (SYN | ACK)

static __always_inline u32 mixed(u32 number, u32 word)
{
	number = (number ^ word) * 0x9e3779b1;
	return number ^ number >> 15;
}

/*
 * A number made of a packet's TCP header without its ports, which may be translated on the way,
 * and its checksum: what has no IP identification is recognised by it.
 */
static __always_inline u32 likeness(const void *skb)
{
	const char *tcp = transport(skb);
	u32 words[5], options[10] = {}, number = 0;
	int i, more;

	if (bpf_probe_read_kernel(words, sizeof(words), tcp))
		return 0;
	more = (words[3] >> 2 & 0x3c) - sizeof(words);
	words[4] &= 0xffff0000; /* the checksum is the first half of it */
	if (more > 0 && more <= (int)sizeof(options) &&
	    bpf_probe_read_kernel(options, more, tcp + sizeof(words)))
		return 0;
	for (i = 1; i < 5; i++)
		number = mixed(number, words[i]);
	for (i = 0; i < 10; i++)
		number = mixed(number, options[i]);
	return number;
}

static __always_inline u32 is_ipv6(const void *skb)
{
	return LOAD(skb, sk_buff___rec, protocol) == __builtin_bswap16(ETH_P_IPV6);
}

/*
 * What stands for the identification that IPv6 does not have; skb begins with its TCP header. Of two packets with the same one, both are
 * what the other is.
 */
static __always_inline u32 alike(const void *skb)
{
	return mixed(likeness(skb), LOAD(skb, sk_buff___rec, len));
}

/* The one whose checksum was wrong; what is large is only looked at by the socket itself. */
struct {
	__uint(type, BPF_MAP_TYPE_PERCPU_ARRAY);
	__uint(max_entries, 1);
	__type(key, u32);
	__type(value, u64);
} damaged SEC(".maps");

static __always_inline void found_damaged(const void *skb)
{
	u32 key = 0;
	u64 *it = bpf_map_lookup_elem(&damaged, &key);

	if (it)
		*it = (u64)skb;
}

static __always_inline u32 was_damaged(const void *skb)
{
	u32 key = 0;
	u64 *it = bpf_map_lookup_elem(&damaged, &key);

	return it && *it == (u64)skb;
}

/* Its identification over IPv4. */
static __always_inline u16 identification(const void *skb)
{
	return __builtin_bswap16(LOAD(network(skb), iphdr, id));
}

/* How it came. */
static __always_inline u8 bits(const void *skb)
{
	const void *shared = (const void *)(LOAD(skb, sk_buff___rec, head) +
					    LOAD(skb, sk_buff___rec, end));
	u8 it = 0;

	if (LOAD(shared, skb_shared_info___rec, gso_size))
		it |= SEVERAL;
	if (!BITS(skb, sk_buff___rec, cloned) ||
	    (LOAD(shared, skb_shared_info___rec, dataref.counter) & 0xffff) == 1)
		it |= ITS_OWN;
	return it;
}

static __always_inline void fill_packet(struct packet *e, struct tracked_socket *known, const void *skb,
					u8 first)
{
	const struct tcp_skb_cb *cb =
		(const void *)((const char *)skb + bpf_core_field_offset(struct sk_buff___rec, cb));

	e->begins = LOAD(cb, tcp_skb_cb, seq);
	e->ends = LOAD(cb, tcp_skb_cb, end_seq);
	e->truesize = LOAD(skb, sk_buff___rec, truesize);
	e->acknowledges = LOAD(cb, tcp_skb_cb, ack_seq);
	e->alike = known->ipv6 ? alike(skb) : 0;
	e->id = identification(skb);
	e->ecn = LOAD(cb, tcp_skb_cb, ip_dsfield) & 3;
	e->bits = bits(skb) | (first ? FIRST : 0);
}

static __always_inline void packet(const void *sk, struct tracked_socket *known, u8 first, const void *skb)
{
	const struct tcp_skb_cb *cb =
		(const void *)((const char *)skb + bpf_core_field_offset(struct sk_buff___rec, cb));

	/* An earlier one may have been at the same place. */
	found_damaged(NULL);
	known->receiving = !first;
	if (LOAD(cb, tcp_skb_cb, tcp_flags) & SYN)
		PUT(sk, known, syn_packet, packet.event, SYN_PACKET,
		    fill_packet(&e->packet, known, skb, first), e->likeness = likeness(skb));
	else
		PUT(sk, known, packet, event, PACKET, fill_packet(e, known, skb, first));
}

/* It may be made smaller, and part of the one before it, on its way into the backlog. */
static __always_inline void before_queued(struct tracked_socket *known, const void *skb)
{
	const struct tcp_skb_cb *cb = (const void *)((const char *)skb + OFFSET(sk_buff___rec, cb));

	known->queued_id = identification(skb);
	known->queued_bits = bits(skb);
	known->queued_begins = LOAD(cb, tcp_skb_cb, seq);
	known->queued_ends = LOAD(cb, tcp_skb_cb, end_seq);
	/* The one that others are merged into gets another header. */
	known->queued_alike = known->ipv6 ? alike(skb) : 0;
}

static __always_inline u8 mark(const void *skb)
{
	const struct tcp_skb_cb *cb =
		(const void *)((const char *)skb + bpf_core_field_offset(struct sk_buff___rec, cb));

	return LOAD(cb, tcp_skb_cb, ip_dsfield) & 3;
}

/* Its identification over IPv4, and over IPv6 what stands for it. */
static __always_inline u16 stub_id(const void *skb)
{
	return is_ipv6(skb) ? 0 : __builtin_bswap16(READ(network(skb), iphdr, id));
}

static __always_inline u32 stub_alike(const void *skb)
{
	return is_ipv6(skb) ? alike(skb) : 0;
}

/* Whose packet it is, where no socket says so. */
static __always_inline struct stub addressed(const void *skb)
{
	const void *ip = network(skb);
	const struct tcphdr *tcp = transport(skb);
	struct stub it = {
		.own_port = __builtin_bswap16(READ(tcp, tcphdr, dest)),
		.peer_port = READ(tcp, tcphdr, source),
	};

	if (is_ipv6(skb)) {
		copy_address(it.addresses.own, READ(ip, ipv6hdr, daddr));
		copy_address(it.addresses.peer, READ(ip, ipv6hdr, saddr));
	} else {
		map_address(it.addresses.own, READ(ip, iphdr, daddr));
		map_address(it.addresses.peer, READ(ip, iphdr, saddr));
	}
	return it;
}

#endif
