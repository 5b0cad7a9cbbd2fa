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

/* Of the fields of struct probed those that packets themselves do not show. */
struct state {
	u32 rcv_wnd;
	u32 snd_wnd;
	u32 rcv_ssthresh;
	u32 snd_cwnd;
	u32 snd_ssthresh;
	u32 packets_out;
	u32 total_retrans;
	u32 reordering;
	u32 srtt_us_x8;
	u32 rcvbuf;
	u32 sndbuf;
	u32 window_clamp;
};

static __always_inline void read_state(struct sock *sk, struct state *f)
{
	const struct tcp_sock___rec *tp = KNOWN_AS(tcp_sock___rec, sk);
	const struct sock___rec *so = KNOWN_AS(sock___rec, sk);

	f->rcv_wnd = tp->rcv_wnd;
	f->snd_wnd = tp->snd_wnd;
	f->rcv_ssthresh = tp->rcv_ssthresh;
	f->snd_cwnd = tp->snd_cwnd;
	f->snd_ssthresh = tp->snd_ssthresh;
	f->packets_out = tp->packets_out;
	f->total_retrans = tp->total_retrans;
	f->reordering = tp->reordering;
	f->srtt_us_x8 = tp->srtt_us;
	f->rcvbuf = so->sk_rcvbuf;
	f->sndbuf = so->sk_sndbuf;
	f->window_clamp = tp->window_clamp;
}

#endif
