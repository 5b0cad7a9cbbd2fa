/* SPDX-License-Identifier: GPL-2.0 */
/*
 * The sockets that the light recorder knows. Most have a place in a table, one of two that follow from the
 * socket's address: finding it is no call, and reads the line of the cache that is needed anyway. Socket storage, three
 * lines and a call, cost more than all else of a packet; it is for those that find no place.
 */
#ifndef SLOWPATH_PACKETS_TRACKED_SOCKET_H
#define SLOWPATH_PACKETS_TRACKED_SOCKET_H

#include "block.bpf.h"

/* Of one socket. What each packet and each call needs is in the first line of the cache, up to `clock` of packets' head. */
struct tracked_socket {
	u64 key; /* key_of(); 0: free */
	struct socket_words words;
	u8 end;
	u8 open;
	u8 stored; /* with the socket, not in the table */
	u8 reserved;
	u32 used; /* calls; more than there is room for were lost */
	u32 lost;
	struct block packets;
	struct calls calls;
} __attribute__((aligned(64)));

_Static_assert(__builtin_offsetof(struct tracked_socket, packets.head.sk) == 64, "the first line");

#define PLACES_BITS 11

/* Mapped so that it begins with a page, and each place with a line. */
struct {
	__uint(type, BPF_MAP_TYPE_ARRAY);
	__uint(map_flags, BPF_F_MMAPABLE);
	__uint(max_entries, 1 << PLACES_BITS);
	__type(key, u32);
	__type(value, struct tracked_socket);
} table SEC(".maps");

struct {
	__uint(type, BPF_MAP_TYPE_SK_STORAGE);
	__uint(map_flags, BPF_F_NO_PREALLOC);
	__type(key, int);
	__type(value, struct tracked_socket);
} sockets SEC(".maps");

/* A socket's address as a number: the verifier forbids arithmetic on a pointer, but takes the distance of two for a number. */
static __always_inline u64 key_of(const struct sock *sk)
{
	u64 key = (u64)sk - (u64)&counters;

	asm volatile("" : "+r"(key));
	return key;
}

/* The first of two places, which differ in one bit. Fibonacci hashing: 2^64 over the golden ratio. */
static __always_inline u32 place_of(u64 key)
{
	return key * 0x9e3779b97f4a7c15 >> (64 - PLACES_BITS);
}

static __always_inline struct tracked_socket *find(struct sock *sk)
{
	u64 key = key_of(sk);
	u32 place = place_of(key);
	struct tracked_socket *known = bpf_map_lookup_elem(&table, &place);

	if (known && known->key == key)
		return known;
	place ^= 1;
	known = bpf_map_lookup_elem(&table, &place);
	if (known && known->key == key)
		return known;
	if (!counters.stored)
		return NULL;
	return bpf_sk_storage_get(&sockets, sk, 0, 0);
}

/* A place for a socket that no other program can find yet; as if it had just been made. */
static __always_inline struct tracked_socket *take_place(struct sock *sk)
{
	struct tracked_socket *known = find(sk);
	u64 key = key_of(sk);
	u32 place = place_of(key);
	int i;

	for (i = 0; i < 2 && !known; i++) {
		known = bpf_map_lookup_elem(&table, &place);
		if (known && __sync_val_compare_and_swap(&known->key, 0, key))
			known = NULL;
		place ^= 1;
	}
	if (!known) {
		known = bpf_sk_storage_get(&sockets, sk, 0, BPF_SK_STORAGE_GET_F_CREATE);
		if (!known)
			return NULL;
		__sync_fetch_and_add(&counters.stored, 1);
		known->key = key;
		known->stored = 1;
	}
	known->open = 0;
	known->used = 0;
	known->lost = 0;
	known->packets.head.used = 0;
	known->packets.head.serial = 0;
	known->calls.head.serial = 0;
	return known;
}

static __always_inline void give_back(struct sock *sk, struct tracked_socket *known)
{
	known->open = 0;
	if (known->stored) {
		__sync_fetch_and_add(&counters.stored, -1);
		bpf_sk_storage_delete(&sockets, sk);
	} else {
		known->key = 0;
	}
}

static __always_inline void lose(struct tracked_socket *known)
{
	if (known)
		__sync_fetch_and_add(&known->lost, 1);
	__sync_fetch_and_add(&counters.lost, 1);
}

static __always_inline void put(struct tracked_socket *known, const void *piece, u64 bytes)
{
	if (bpf_ringbuf_output(&events, (void *)piece, bytes, BPF_RB_NO_WAKEUP))
		lose(known);
}

static __always_inline void put_packets(struct tracked_socket *known, u8 piece)
{
	struct head *head = &known->packets.head;
	u32 used = head->used;

	if (used > ROOM)
		used = ROOM;
	head->piece = piece;
	head->lost = known->lost;
	put(known, head, sizeof(*head) + used);
	head->serial++;
	head->used = 0;
}

static __always_inline void put_calls(struct tracked_socket *known, u32 count)
{
	struct head *head = &known->calls.head;

	if (count > MOST_CALLS)
		count = MOST_CALLS;
	head->piece = CALLS;
	head->end = known->end;
	head->sk = known->packets.head.sk;
	head->lost = known->lost;
	head->used = count * sizeof(struct call_event);
	put(known, head, sizeof(*head) + count * sizeof(struct call_event));
	head->serial++;
}

#endif
