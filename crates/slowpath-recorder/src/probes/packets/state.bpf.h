/* SPDX-License-Identifier: GPL-2.0 */
/* What the light recorder reads, beside kernel.bpf.h and the other recorder's: by direct loads, in each packet. */
#ifndef SLOWPATH_PACKETS_STATE_H
#define SLOWPATH_PACKETS_STATE_H

#include "../handlers/state.bpf.h"

#pragma clang attribute push(__attribute__((preserve_access_index)), apply_to = record)

struct sock___light {
	struct sock_common___rec __sk_common;
	unsigned short sk_type;
	unsigned short sk_protocol;
	unsigned char sk_shutdown;
};

struct sk_buff___light {
	char cb[48];
	unsigned char *head;
	unsigned int end;
	__u16 network_header;
};

struct skb_shared_info___light {
	unsigned short gso_segs;
};

struct timer_list___light {
	void (*function)(struct timer_list *);
};

struct hrtimer___light {
	void *function;
};

struct list_head___light {
	struct list_head___light *next;
};

/* Sockets that small queues held back, of one processor: in a tasklet until Linux 6.1x, then in a work. */
struct tsq_tasklet {
	struct list_head___light head;
};

struct tsq_work {
	struct list_head___light head;
};

struct tcp_sock___light {
	struct list_head___light tsq_node;
	__u64 delivered_mstamp, tcp_wstamp_ns;
	__u32 sacked_out;
};

struct work_struct___light {
	void *func;
};

struct tasklet_struct;

/* The keepalive timer has its own field since 6.12.96 or so. */
struct inet_connection_sock___light {
	struct timer_list icsk_keepalive_timer;
};

#pragma clang attribute pop

/* Of the 40 fields of look() those that packets themselves do not tell: STATE_FIELDS in slowpath-recorder's light/piece.rs. */
#define STATES 12

static __always_inline void look_at(struct sock *sk, u32 *f)
{
	const struct tcp_sock___rec *tp = KNOWN_AS(tcp_sock___rec, sk);
	const struct sock___rec *so = KNOWN_AS(sock___rec, sk);

	f[0] = tp->rcv_wnd;
	f[1] = tp->snd_wnd;
	f[2] = tp->rcv_ssthresh;
	f[3] = tp->snd_cwnd;
	f[4] = tp->snd_ssthresh;
	f[5] = tp->packets_out;
	f[6] = tp->total_retrans;
	f[7] = tp->reordering;
	f[8] = tp->srtt_us;
	f[9] = so->sk_rcvbuf;
	f[10] = so->sk_sndbuf;
	f[11] = tp->window_clamp;
}

#endif
