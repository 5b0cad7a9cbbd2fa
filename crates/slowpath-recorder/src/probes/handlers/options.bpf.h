/* SPDX-License-Identifier: GPL-2.0 */
/*
 * What else a program does with a socket: options, and those of its calls that change what TCP
 * does without being one of sending and receiving.
 *
 * An option that was set before the recorder knew the socket stands in the socket itself: in the one that
 * connects, or in the listener, whose children have it from there.
 */
#ifndef SLOWPATH_HANDLERS_OPTIONS_H
#define SLOWPATH_HANDLERS_OPTIONS_H

#include "packet.bpf.h"

#pragma clang attribute push(__attribute__((preserve_access_index)), apply_to = record)

struct sock___set {
	u8 sk_userlocks : 4;
	int sk_sndbuf;
	int sk_rcvbuf;
	unsigned long sk_lingertime;
	int sk_rcvlowat;
	unsigned long sk_max_pacing_rate;
};

struct inet_sock___set {
	__s16 uc_ttl;
	__u8 tos;
	__u8 pmtudisc;
};

struct request_sock_queue___set {
	u8 rskq_defer_accept;
};

struct icsk_ack___set {
	__u8 pingpong;
};

struct inet_connection_sock___set {
	__u8 icsk_syn_retries;
	__u32 icsk_user_timeout;
	struct icsk_ack___set icsk_ack;
	struct request_sock_queue___set icsk_accept_queue;
};

struct tcp_options_received___set {
	u16 user_mss;
};

struct tcp_sock___set {
	u8 nonagle : 4;
	struct tcp_options_received___set rx_opt;
	u32 window_clamp;
	unsigned int keepalive_time;
	unsigned int keepalive_intvl;
	u8 keepalive_probes;
	u32 notsent_lowat;
	u32 snd_cwnd_clamp;
	int linger2;
};

struct sock_common___set {
	unsigned long skc_flags;
	struct sock *skc_listener;
};

struct socket___set {
	struct sock *sk;
	unsigned long flags;
};

struct page___set {
	atomic_t _refcount;
};

struct page_frag___set {
	struct page___set *page;
	__u32 offset;
	__u32 size;
};

struct task_struct___set {
	struct page_frag___set task_frag;
};

struct bio_vec___set {
	unsigned int bv_offset;
};

struct iov_iter___set {
	unsigned long iov_offset;
	const struct bio_vec___set *bvec;
};

struct msghdr___set {
	struct iov_iter___set msg_iter;
};

#pragma clang attribute pop

/*
 * Where skb_page_frag_refill() will have the task go on: a program fills one page after the other with the
 * data of all its sockets, and how many pieces of pages a packet has decides what its receiver
 * merges. 0: a page of its own; else how far it is filled, and in the upper half how large it is.
 */
static __always_inline u32 fragment(void)
{
	const void *task = (const void *)bpf_get_current_task();
	const struct page___set *page = READ(task, task_struct___set, task_frag.page);

	if (!page || READ(page, page___set, _refcount.counter) == 1)
		return 0;
	return READ(task, task_struct___set, task_frag.offset) |
	       READ(task, task_struct___set, task_frag.size) << 16;
}

/* MSG_SPLICE_PAGES: sendfile(), splice(). */
#define PAGES 0x8000000

/* Where in its first page the data of a file begins. */
static __always_inline u32 first_page(const void *msg, u32 flags)
{
	if (!(flags & PAGES))
		return 0;
	return READ(msg, msghdr___set, msg_iter.iov_offset) +
	       BPF_CORE_READ((struct msghdr___set *)msg, msg_iter.bvec, bv_offset);
}

static __always_inline void put_lock(const void *sk, struct tracked_socket *known)
{
	PUT(sk, known, lock, event, LOCK, e->fragment = fragment());
}

static __always_inline void find_options(const void *sk, struct set *set)
{
	u64 rate = READ(sk, sock___set, sk_max_pacing_rate);

	set->locked = BITS(sk, sock___set, sk_userlocks);
	set->send_buffer = READ(sk, sock___set, sk_sndbuf);
	set->receive_buffer = READ(sk, sock___set, sk_rcvbuf);
	set->nagle = BITS(sk, tcp_sock___set, nonagle);
	set->segment = READ(sk, tcp_sock___set, rx_opt.user_mss);
	set->window_clamp = READ(sk, tcp_sock___set, window_clamp);
	set->flags = READ(sk, sock_common___set, skc_flags);
	set->keep_idle = READ(sk, tcp_sock___set, keepalive_time);
	set->keep_interval = READ(sk, tcp_sock___set, keepalive_intvl);
	set->keep_count = READ(sk, tcp_sock___set, keepalive_probes);
	set->linger = READ(sk, sock___set, sk_lingertime);
	set->low_water = READ(sk, sock___set, sk_rcvlowat);
	set->unsent_low_water = READ(sk, tcp_sock___set, notsent_lowat);
	set->user_timeout = READ(sk, inet_connection_sock___set, icsk_user_timeout);
	set->syn_count = READ(sk, inet_connection_sock___set, icsk_syn_retries);
	set->linger_2 = READ(sk, tcp_sock___set, linger2);
	set->defer_accept =
		READ(sk, inet_connection_sock___set, icsk_accept_queue.rskq_defer_accept);
	set->pacing = rate;
	set->pacing_high = rate >> 32;
	set->service = READ(sk, inet_sock___set, tos);
	set->time_to_live = READ(sk, inet_sock___set, uc_ttl);
	set->discovery = READ(sk, inet_sock___set, pmtudisc);
	set->pingpong = READ(sk, inet_connection_sock___set, icsk_ack.pingpong);
}

/* The options that `from` has: the socket itself, or its listener. */
static __always_inline void put_options(const void *sk, struct tracked_socket *known, const void *from)
{
	PUT(sk, known, options, event, OPTIONS, find_options(from, &e->set));
}

static __always_inline const void *listener_of(const void *request)
{
	return READ(request, sock_common___set, skc_listener);
}

/*
 * setsockopt(). The value is a sockptr_t, which takes two arguments: where, and whether that is
 * in the kernel. Eight bytes of it will do for every option that a replay can set.
 */
static __always_inline void set_option(const void *sk, u32 level, u32 name, u64 pointer,
				       u64 in_kernel, u32 length)
{
	struct tracked_socket *known = find(sk);
	u64 value = 0;
	u32 size = length;

	if (!known)
		return;
	if (size > sizeof(value))
		size = sizeof(value);
	/* The verifier is to see it. */
	barrier_var(size);
	size &= 15;
	if (size > sizeof(value))
		return;
	if (in_kernel & 1)
		bpf_probe_read_kernel(&value, size, (const void *)pointer);
	else
		bpf_probe_read_user(&value, size, (const void *)pointer);
	PUT(sk, known, option_call, event, OPTION_CALL, e->level = level, e->name = name,
	    e->value = value, e->length = length);
}

static __always_inline void option_set(const void *sk, int ret)
{
	struct tracked_socket *known = find(sk);

	if (known)
		PUT(sk, known, option_end, snapshot.event, OPTION_END,
		    fill_state(&e->snapshot, sk, known), e->result = ret);
}

#define SETS(function)                                                                         \
	SEC("fentry/" #function)                                                               \
	int BPF_PROG(begin_##function, struct sock *sk, int level, int name, u64 pointer,      \
		     u64 in_kernel, u32 length)                                                 \
	{                                                                                      \
		set_option(sk, level, name, pointer, in_kernel, length);                       \
		return 0;                                                                      \
	}                                                                                      \
	SEC("fexit/" #function)                                                                \
	int BPF_PROG(end_##function, struct sock *sk, int level, int name, u64 pointer,        \
		     u64 in_kernel, u32 length, int ret)                                        \
	{                                                                                      \
		option_set(sk, ret);                                                           \
		return 0;                                                                      \
	}

SETS(sk_setsockopt)
SETS(do_tcp_setsockopt)
SETS(do_ip_setsockopt)

/* SOCK_NOSPACE of net.h */
#define NO_SPACE (1 << 2)

/* Whoever polls and finds no room to send leaves word that it wants to know of it: tcp_check_space() then makes the buffer larger. */
SEC("fentry/tcp_poll")
int BPF_PROG(before_poll, struct file *file, struct socket___set *socket)
{
	struct tracked_socket *known = find(READ(socket, socket___set, sk));

	if (known)
		known->no_space = READ(socket, socket___set, flags) & NO_SPACE;
	return 0;
}

SEC("fexit/tcp_poll")
int BPF_PROG(after_poll, struct file *file, struct socket___set *socket)
{
	const void *sk = READ(socket, socket___set, sk);
	struct tracked_socket *known = find(sk);

	if (known && !known->no_space && READ(socket, socket___set, flags) & NO_SPACE)
		put_state(sk, known, NO_ROOM);
	return 0;
}

/*
 * What earlier connections to the same host left (tcp_metrics.c), if it changes anything. There is
 * no congestion yet: tcp_init_metrics() itself forgets ssthresh.
 */
SEC("fentry/tcp_init_metrics")
int BPF_PROG(before_metrics, struct sock *sk)
{
	struct tracked_socket *known = find(sk);

	if (!known)
		return 0;
	known->metrics[0] = READ(sk, inet_connection_sock___rec, icsk_rto);
	known->metrics[1] = READ(sk, tcp_sock___rec, reordering);
	known->metrics[2] = READ(sk, tcp_sock___set, snd_cwnd_clamp);
	return 0;
}

#define INFINITE 0x7fffffff

SEC("fexit/tcp_init_metrics")
int BPF_PROG(after_metrics, struct sock *sk)
{
	struct tracked_socket *known = find(sk);
	u32 timeout, reordering, clamp, threshold;

	if (!known)
		return 0;
	timeout = READ(sk, inet_connection_sock___rec, icsk_rto);
	reordering = READ(sk, tcp_sock___rec, reordering);
	clamp = READ(sk, tcp_sock___set, snd_cwnd_clamp);
	threshold = READ(sk, tcp_sock___rec, snd_ssthresh);
	if (timeout != known->metrics[0] || reordering != known->metrics[1] ||
	    clamp != known->metrics[2] || threshold != INFINITE)
		PUT(sk, known, metrics, event, METRICS, e->timeout = timeout,
		    e->reordering = reordering, e->threshold = threshold,
		    e->largest_window = clamp);
	return 0;
}

static __always_inline void put_other(const void *sk, u32 other)
{
	struct tracked_socket *known = find(sk);

	if (known)
		PUT(sk, known, other_call, event, OTHER_CALL, e->other = other);
}

SEC("fentry/tcp_abort")
int BPF_PROG(other_tcp_abort, struct sock *sk)
{
	put_other(sk, ABORTED);
	return 0;
}

SEC("fentry/tcp_splice_read")
int BPF_PROG(other_tcp_splice_read, struct socket___set *socket)
{
	put_other(READ(socket, socket___set, sk), SPLICED);
	return 0;
}

#endif
