/* SPDX-License-Identifier: GPL-2.0 */
/*
 * What is kept for each listening socket, in a storage map of its own: listeners are no
 * connections. User space does not read it; it gets `struct listener_record`.
 */
#ifndef SLOWPATH_LISTENER_H
#define SLOWPATH_LISTENER_H

#include "connection.bpf.h"

#pragma clang attribute push(__attribute__((preserve_access_index)), apply_to = record)

struct sock_reuseport {
	unsigned int synq_overflow_ts;
};

struct netns_core {
	int sysctl_somaxconn;
};

struct netns_ipv4___listen {
	u8 sysctl_tcp_syncookies;
	u8 sysctl_tcp_abort_on_overflow;
	int sysctl_max_syn_backlog;
};

struct net___listen {
	struct netns_core core;
	struct netns_ipv4___listen ipv4;
};

struct sock___listen {
	u32 sk_ack_backlog;
	u32 sk_max_ack_backlog;
	atomic_t sk_drops;
	struct sock_reuseport *sk_reuseport_cb;
};

struct request_sock_queue {
	atomic_t qlen;
	atomic_t young;
};

struct inet_connection_sock___listen {
	struct request_sock_queue icsk_accept_queue;
};

struct tcp_options_received {
	int ts_recent_stamp; /* of a listener: when it last sent a cookie (tcp_synq_overflow) */
};

struct tcp_sock___listen {
	struct tcp_options_received rx_opt;
};

#pragma clang attribute pop

struct listener {
	u64 cookie;
	u32 pid; /* who called listen(2); 0 if that was before the agent */
	u32 base_drops; /* when it was first met */
	u32 drops; /* when it was last copied */
	u32 shown; /* copied at least once */
	char command[16];
};

struct {
	__uint(type, BPF_MAP_TYPE_SK_STORAGE);
	__uint(map_flags, BPF_F_NO_PREALLOC);
	__type(key, int);
	__type(value, struct listener);
} listeners SEC(".maps");

static __always_inline u32 listener_drops(struct sock *sk)
{
	return ((struct sock___listen *)sk)->sk_drops.counter;
}

/* Gives a listener its storage; `pid` as far as known. */
static __always_inline struct listener *meet_listener(struct sock *sk)
{
	struct listener *l = bpf_sk_storage_get(&listeners, sk, 0, BPF_SK_STORAGE_GET_F_CREATE);

	if (!l)
		return 0;
	l->cookie = bpf_get_socket_cookie(sk);
	l->base_drops = l->drops = listener_drops(sk);
	l->shown = 0;
	return l;
}

#endif
