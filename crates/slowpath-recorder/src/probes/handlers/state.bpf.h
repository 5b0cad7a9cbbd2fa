/* SPDX-License-Identifier: GPL-2.0 */
/* What the recorder reads of sockets and packets, beside kernel.bpf.h: flavours of the same structures. */
#ifndef SLOWPATH_HANDLERS_STATE_H
#define SLOWPATH_HANDLERS_STATE_H

#include "kernel.bpf.h"

#pragma clang attribute push(__attribute__((preserve_access_index)), apply_to = record)

typedef struct {
	atomic_t refs;
} refcount_t___rec;

typedef struct {
	int owned;
} socket_lock_t___rec;

struct netns_ipv4___rec {
	u8 sysctl_tcp_timestamps;
	u8 sysctl_tcp_sack;
	u8 sysctl_tcp_ecn;
	u8 sysctl_tcp_recovery;
	u8 sysctl_tcp_early_retrans;
	int sysctl_tcp_reordering;
	u8 sysctl_tcp_slow_start_after_idle;
	u8 sysctl_tcp_moderate_rcvbuf;
	u8 sysctl_ip_default_ttl;
	int sysctl_tcp_rmem[3];
	int sysctl_tcp_wmem[3];
	u8 sysctl_tcp_window_scaling;
	u8 sysctl_tcp_dsack;
	u8 sysctl_tcp_frto;
	u8 sysctl_tcp_app_win;
	int sysctl_tcp_max_reordering;
	u8 sysctl_tcp_autocorking;
	u8 sysctl_tcp_tso_win_divisor;
	u8 sysctl_tcp_tso_rtt_log;
	u8 sysctl_tcp_min_tso_segs;
	int sysctl_tcp_min_snd_mss;
	unsigned int sysctl_tcp_notsent_lowat;
	int sysctl_tcp_limit_output_bytes;
	int sysctl_tcp_min_rtt_wlen;
	u8 sysctl_tcp_shrink_window;
	u8 sysctl_tcp_ecn_fallback;
	u8 sysctl_tcp_mtu_probing;
	int sysctl_tcp_mtu_probe_floor;
	int sysctl_tcp_base_mss;
	int sysctl_tcp_probe_threshold;
	u32 sysctl_tcp_probe_interval;
	u8 sysctl_tcp_keepalive_probes;
	u8 sysctl_tcp_syn_retries;
	u8 sysctl_tcp_synack_retries;
	u8 sysctl_tcp_retries1;
	u8 sysctl_tcp_retries2;
	u8 sysctl_tcp_orphan_retries;
	u8 sysctl_tcp_thin_linear_timeouts;
	u8 sysctl_tcp_retrans_collapse;
	u8 sysctl_tcp_stdurg;
	u8 sysctl_tcp_rfc1337;
	u8 sysctl_tcp_abort_on_overflow;
	u8 sysctl_tcp_workaround_signed_windows;
	u8 sysctl_tcp_reflect_tos;
	int sysctl_tcp_pacing_ss_ratio;
	int sysctl_tcp_pacing_ca_ratio;
	u8 sysctl_tcp_comp_sack_nr;
	unsigned long sysctl_tcp_comp_sack_delay_ns;
	u8 sysctl_tcp_backlog_ack_defer;
	u8 sysctl_tcp_pingpong_thresh;
	int sysctl_tcp_rto_min_us;
	u8 sysctl_tcp_syn_linear_timeouts;
	int sysctl_tcp_keepalive_time;
	int sysctl_tcp_keepalive_intvl;
	int sysctl_tcp_fin_timeout;
	int sysctl_tcp_invalid_ratelimit;
};

struct net___rec {
	struct netns_ipv4___rec ipv4;
};

typedef struct {
	struct net___rec *net;
} possible_net_t___rec;

struct net_device___rec {
	unsigned int mtu;
	u64 features;
};

struct dst_entry___rec {
	struct net_device___rec *dev;
};

struct tcp_congestion_ops___rec {
	char name[16];
};

struct sock_common___rec {
	possible_net_t___rec skc_net;
	__be32 skc_daddr;
	__be32 skc_rcv_saddr;
	__be16 skc_dport;
	__u16 skc_num;
	unsigned short skc_family;
	u32 skc_tw_snd_nxt;
	u32 skc_tw_rcv_nxt;
	volatile unsigned char skc_state;
	struct in6_addr skc_v6_daddr, skc_v6_rcv_saddr; /* with IPv6 */
};

struct sk_buff;
struct backlog___rec {
	atomic_t rmem_alloc;
	int len;
	struct sk_buff *tail;
};

struct timer_list {
	unsigned long expires;
};

struct sock___rec {
	struct sock_common___rec __sk_common;
	struct backlog___rec sk_backlog;
	socket_lock_t___rec sk_lock;
	int sk_rcvbuf;
	int sk_sndbuf;
	int sk_wmem_queued;
	struct dst_entry___rec *sk_dst_cache;
	refcount_t___rec sk_wmem_alloc;
	u32 sk_ack_backlog, sk_max_ack_backlog;
	unsigned long sk_tsq_flags;
	struct timer_list sk_timer;
};

struct inet_sock___rec {
	struct sock___rec sk;
	atomic_t inet_id;
};

struct hrtimer {
	u64 _softexpires;
};

struct icsk_ack___rec {
	__u8 pending;
	__u8 quick;
	__u32 ato : 8;
	__u32 lrcvtime;
};

struct request_sock_queue {
	atomic_t qlen, young;
};

struct inet_connection_sock___rec {
	struct request_sock_queue icsk_accept_queue;
	__u8 icsk_syn_retries;
	struct timer_list icsk_retransmit_timer;
	struct timer_list icsk_delack_timer;
	struct timer_list icsk_keepalive_timer; /* since 6.12.96 or so; sk_timer before */

	__u32 icsk_rto;
	__u8 icsk_ca_state : 5;
	__u8 icsk_pending;
	__u8 icsk_backoff;
	struct icsk_ack___rec icsk_ack;
	u64 icsk_ca_priv[13];
	const struct tcp_congestion_ops___rec *icsk_ca_ops;
};

struct bictcp {
	u32 last_time;
};

struct rcvq_space___rec {
	u32 space;
};

struct tcp_sock___rec {
	u64 tcp_clock_cache;
	u32 lsndtime, snd_cwnd_stamp, last_oow_ack_time;
	u32 snd_nxt, snd_una, write_seq, rcv_nxt, rcv_wup, copied_seq, rcv_wnd, snd_wnd;
	u64 bytes_acked, bytes_received;
	u32 rcv_ssthresh, snd_cwnd, snd_cwnd_cnt, snd_ssthresh;
	u32 packets_out, sacked_out, lost_out, retrans_out, total_retrans, reordering;
	u32 delivered, delivered_ce, srtt_us, mdev_us, segs_out, segs_in, window_clamp;
	struct rcvq_space___rec rcvq_space;
	u8 ecn_flags;
	u8 compressed_ack;
	void *fastopen_req;
	struct hrtimer pacing_timer;
	struct hrtimer compressed_ack_timer;
};

struct tcp_request_sock {
	u64 snt_synack;
	u32 rcv_isn, snt_isn;
};

struct request_sock;
struct inet_timewait_sock;
struct request_sock___rec {
	struct timer_list rsk_timer;
};

struct dst_entry;
struct msghdr;
struct proto_accept_arg;

struct tcp_skb_cb {
	__u32 seq;
	__u32 end_seq;
	__u8 tcp_flags;
	__u8 ip_dsfield;
	__u32 ack_seq;
};

struct sk_buff___rec {
	char cb[48];
	unsigned int len;
	unsigned int truesize;
	unsigned char *head;
	u64 tstamp;
	__u16 network_header;
	__u16 transport_header;
	__be16 protocol;
	unsigned char cloned : 1;
	unsigned int end;
};

struct skb_shared_info___rec {
	unsigned short gso_size;
	atomic_t dataref;
};

struct ipv6hdr {
	struct in6_addr saddr;
	struct in6_addr daddr;
};

struct iphdr {
	__be16 id;
	__be32 saddr;
	__be32 daddr;
};

struct tcphdr {
	__be16 source;
	__be16 dest;
};

#pragma clang attribute pop

#define OFFSET(structure, member) bpf_core_field_offset(struct structure, member)
#define READ(sk, type, field) BPF_CORE_READ((struct type *)(sk), field)

/* It is one, whatever the compiler thinks: no call, and a load that faults reads 0. */
#define KNOWN_AS(type, pointer) \
	((struct type *)bpf_rdonly_cast(pointer, bpf_core_type_id_kernel(struct type)))
#define LOAD(sk, type, field) (KNOWN_AS(type, sk)->field)
#define BITS(sk, type, field) BPF_CORE_READ_BITFIELD(KNOWN_AS(type, sk), field)

/* Whether it speaks IPv4: AF_INET6 sockets do with ::ffff:0:0/96 (RFC 4291, 2.5.5.2), by IPv4's functions (ipv6_mapped in tcp_ipv6.c). */
static __always_inline int is_ipv4(const void *sk)
{
	u16 family = READ(sk, sock_common___rec, skc_family);
	struct in6_addr peer;

	if (family != AF_INET6 || !bpf_core_field_exists(struct sock_common___rec, skc_v6_daddr))
		return family == AF_INET;
	peer = READ(sk, sock_common___rec, skc_v6_daddr);
	return !peer.in6_u.u6_addr32[0] && !peer.in6_u.u6_addr32[1] &&
	       peer.in6_u.u6_addr32[2] == __builtin_bswap32(0xffff);
}

/* LAB_PROBED of the laboratory's kernel: the same fields in the same order, see lab_look(). */
struct probed {
	u32 state;
	u32 in_flight_bytes;
	u32 queued_bytes;
	u32 bytes_acked;
	u32 bytes_received;
	u32 unannounced_bytes;
	u32 unread_bytes;
	u32 rcv_wnd;
	u32 snd_wnd;
	u32 rcv_ssthresh;
	u32 snd_cwnd;
	u32 snd_cwnd_cnt;
	u32 snd_ssthresh;
	u32 packets_out;
	u32 sacked_out;
	u32 lost_out;
	u32 retrans_out;
	u32 total_retrans;
	u32 reordering;
	u32 delivered;
	u32 delivered_ce;
	u32 srtt_us_x8;
	u32 mdev_us_x4;
	u32 rto_jiffies;
	u32 ca_state;
	u32 backoff;
	u32 pending_timer;
	u32 ack_pending;
	u32 ack_quick;
	u32 ack_ato_jiffies;
	u32 rcvbuf;
	u32 sndbuf;
	u32 wmem_queued;
	u32 rmem_alloc;
	u32 segs_out;
	u32 segs_in;
	u32 window_clamp;
	u32 rcvq_space;
	u32 ecn_flags;
	u32 compressed_ack;
};

MIRRORED(struct, probed);

static __always_inline void look(const void *sk, struct probed *f)
{
	u32 nxt = LOAD(sk, tcp_sock___rec, snd_nxt), una = LOAD(sk, tcp_sock___rec, snd_una);
	u32 rcv = LOAD(sk, tcp_sock___rec, rcv_nxt);

	f->state = LOAD(sk, sock___rec, __sk_common.skc_state);
	f->in_flight_bytes = nxt - una;
	f->queued_bytes = LOAD(sk, tcp_sock___rec, write_seq) - una;
	f->bytes_acked = LOAD(sk, tcp_sock___rec, bytes_acked);
	f->bytes_received = LOAD(sk, tcp_sock___rec, bytes_received);
	f->unannounced_bytes = rcv - LOAD(sk, tcp_sock___rec, rcv_wup);
	f->unread_bytes = rcv - LOAD(sk, tcp_sock___rec, copied_seq);
	f->rcv_wnd = LOAD(sk, tcp_sock___rec, rcv_wnd);
	f->snd_wnd = LOAD(sk, tcp_sock___rec, snd_wnd);
	f->rcv_ssthresh = LOAD(sk, tcp_sock___rec, rcv_ssthresh);
	f->snd_cwnd = LOAD(sk, tcp_sock___rec, snd_cwnd);
	f->snd_cwnd_cnt = LOAD(sk, tcp_sock___rec, snd_cwnd_cnt);
	f->snd_ssthresh = LOAD(sk, tcp_sock___rec, snd_ssthresh);
	f->packets_out = LOAD(sk, tcp_sock___rec, packets_out);
	f->sacked_out = LOAD(sk, tcp_sock___rec, sacked_out);
	f->lost_out = LOAD(sk, tcp_sock___rec, lost_out);
	f->retrans_out = LOAD(sk, tcp_sock___rec, retrans_out);
	f->total_retrans = LOAD(sk, tcp_sock___rec, total_retrans);
	f->reordering = LOAD(sk, tcp_sock___rec, reordering);
	f->delivered = LOAD(sk, tcp_sock___rec, delivered);
	f->delivered_ce = LOAD(sk, tcp_sock___rec, delivered_ce);
	f->srtt_us_x8 = LOAD(sk, tcp_sock___rec, srtt_us);
	f->mdev_us_x4 = LOAD(sk, tcp_sock___rec, mdev_us);
	f->rto_jiffies = LOAD(sk, inet_connection_sock___rec, icsk_rto);
	f->ca_state = BITS(sk, inet_connection_sock___rec, icsk_ca_state);
	f->backoff = LOAD(sk, inet_connection_sock___rec, icsk_backoff);
	f->pending_timer = LOAD(sk, inet_connection_sock___rec, icsk_pending);
	f->ack_pending = LOAD(sk, inet_connection_sock___rec, icsk_ack.pending);
	f->ack_quick = LOAD(sk, inet_connection_sock___rec, icsk_ack.quick);
	f->ack_ato_jiffies = BITS(sk, inet_connection_sock___rec, icsk_ack.ato);
	f->rcvbuf = LOAD(sk, sock___rec, sk_rcvbuf);
	f->sndbuf = LOAD(sk, sock___rec, sk_sndbuf);
	f->wmem_queued = LOAD(sk, sock___rec, sk_wmem_queued);
	f->rmem_alloc = LOAD(sk, sock___rec, sk_backlog.rmem_alloc.counter);
	f->segs_out = LOAD(sk, tcp_sock___rec, segs_out);
	f->segs_in = LOAD(sk, tcp_sock___rec, segs_in);
	f->window_clamp = LOAD(sk, tcp_sock___rec, window_clamp);
	f->rcvq_space = LOAD(sk, tcp_sock___rec, rcvq_space.space);
	f->ecn_flags = LOAD(sk, tcp_sock___rec, ecn_flags);
	f->compressed_ack = LOAD(sk, tcp_sock___rec, compressed_ack);
}

/* In the order of SYSCTLS in slowpath-recording's sysctls.rs: those that a replay takes from the kernel's own defaults unless they differ. */
#define SYSCTLS(X)                     \
	X(tcp_window_scaling)         \
	X(tcp_dsack)                  \
	X(tcp_frto)                   \
	X(tcp_app_win)                \
	X(tcp_max_reordering)         \
	X(tcp_autocorking)            \
	X(tcp_tso_win_divisor)        \
	X(tcp_tso_rtt_log)            \
	X(tcp_min_tso_segs)           \
	X(tcp_min_snd_mss)            \
	X(tcp_notsent_lowat)          \
	X(tcp_limit_output_bytes)     \
	X(tcp_min_rtt_wlen)           \
	X(tcp_shrink_window)          \
	X(tcp_ecn_fallback)           \
	X(tcp_mtu_probing)            \
	X(tcp_mtu_probe_floor)        \
	X(tcp_base_mss)               \
	X(tcp_probe_threshold)        \
	X(tcp_probe_interval)         \
	X(tcp_keepalive_probes)       \
	X(tcp_syn_retries)            \
	X(tcp_synack_retries)         \
	X(tcp_retries1)               \
	X(tcp_retries2)               \
	X(tcp_orphan_retries)         \
	X(tcp_thin_linear_timeouts)   \
	X(tcp_retrans_collapse)       \
	X(tcp_stdurg)                 \
	X(tcp_rfc1337)                \
	X(tcp_abort_on_overflow)      \
	X(tcp_workaround_signed_windows) \
	X(tcp_reflect_tos)            \
	X(tcp_pacing_ss_ratio)        \
	X(tcp_pacing_ca_ratio)        \
	X(tcp_comp_sack_nr)           \
	X(tcp_comp_sack_delay_ns)     \
	X(tcp_backlog_ack_defer)      \
	X(tcp_pingpong_thresh)        \
	X(tcp_rto_min_us)             \
	X(tcp_syn_linear_timeouts)    \
	X(tcp_keepalive_time)         \
	X(tcp_keepalive_intvl)        \
	X(tcp_fin_timeout)            \
	X(tcp_invalid_ratelimit)

/* The kernel does not have it. */
#define NO_SYSCTL 0xffffffff

/* NETIF_F_TSO: 1 << NETIF_F_TSO_BIT, which is NETIF_F_GSO_SHIFT */
#define TSO (1 << 16)

/* Those that every recording names. */
struct usual_sysctls {
	u32 tcp_timestamps;
	u32 tcp_sack;
	u32 tcp_ecn;
	u32 tcp_recovery;
	u32 tcp_early_retrans;
	u32 tcp_reordering;
	u32 tcp_slow_start_after_idle;
	u32 tcp_moderate_rcvbuf;
	u32 ip_default_ttl;
	u32 tcp_rmem_least, tcp_rmem_usual, tcp_rmem_most;
};

/* Those that it names where they are not what the kernel has by itself. */
struct further_sysctls {
	u32 tcp_wmem_least, tcp_wmem_usual, tcp_wmem_most;
#define FIELD(name) u32 name;
	SYSCTLS(FIELD)
#undef FIELD
};

/* What a socket and its namespace are set to. */
struct socket_settings {
	u32 mtu;
	struct usual_sysctls usual;
	char congestion[16];
	struct further_sysctls further;
	u32 segments; /* whether the device takes packets of TCP that are larger than the path does */
};

MIRRORED(struct, usual_sysctls);
MIRRORED(struct, further_sysctls);
MIRRORED(struct, socket_settings);

static __always_inline void find_settings(const void *sk, struct socket_settings *found)
{
	const struct net___rec *net = READ(sk, sock___rec, __sk_common.skc_net.net);
	const struct dst_entry___rec *dst = READ(sk, sock___rec, sk_dst_cache);
	struct usual_sysctls *usual = &found->usual;
	struct further_sysctls *further = &found->further;

	found->mtu = dst ? BPF_CORE_READ((struct dst_entry___rec *)dst, dev, mtu) : 0;
	usual->tcp_timestamps = READ(net, net___rec, ipv4.sysctl_tcp_timestamps);
	usual->tcp_sack = READ(net, net___rec, ipv4.sysctl_tcp_sack);
	usual->tcp_ecn = READ(net, net___rec, ipv4.sysctl_tcp_ecn);
	usual->tcp_recovery = READ(net, net___rec, ipv4.sysctl_tcp_recovery);
	usual->tcp_early_retrans = READ(net, net___rec, ipv4.sysctl_tcp_early_retrans);
	usual->tcp_reordering = READ(net, net___rec, ipv4.sysctl_tcp_reordering);
	usual->tcp_slow_start_after_idle =
		READ(net, net___rec, ipv4.sysctl_tcp_slow_start_after_idle);
	usual->tcp_moderate_rcvbuf = READ(net, net___rec, ipv4.sysctl_tcp_moderate_rcvbuf);
	usual->ip_default_ttl = READ(net, net___rec, ipv4.sysctl_ip_default_ttl);
	usual->tcp_rmem_least = READ(net, net___rec, ipv4.sysctl_tcp_rmem[0]);
	usual->tcp_rmem_usual = READ(net, net___rec, ipv4.sysctl_tcp_rmem[1]);
	usual->tcp_rmem_most = READ(net, net___rec, ipv4.sysctl_tcp_rmem[2]);
	further->tcp_wmem_least = READ(net, net___rec, ipv4.sysctl_tcp_wmem[0]);
	further->tcp_wmem_usual = READ(net, net___rec, ipv4.sysctl_tcp_wmem[1]);
	further->tcp_wmem_most = READ(net, net___rec, ipv4.sysctl_tcp_wmem[2]);
#define LOOK(name)                                                             \
	further->name = bpf_core_field_exists(net->ipv4.sysctl_##name) ?        \
				BPF_CORE_READ_BITFIELD_PROBED(net, ipv4.sysctl_##name) : \
				NO_SYSCTL;
	SYSCTLS(LOOK)
#undef LOOK
	found->segments = NO_SYSCTL;
	if (dst)
		found->segments = !!(BPF_CORE_READ((struct dst_entry___rec *)dst, dev, features) & TSO);
	BPF_CORE_READ_STR_INTO(&found->congestion, (struct inet_connection_sock___rec *)sk,
			       icsk_ca_ops, name);
}

#endif
