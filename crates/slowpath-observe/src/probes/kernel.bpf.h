/* SPDX-License-Identifier: GPL-2.0 */
/*
 * The few kernel structures the probes read, with only the fields they use. libbpf
 * relocates every access to the running kernel's layout (CO-RE), so order and padding
 * mean nothing here.
 */
#ifndef SLOWPATH_KERNEL_H
#define SLOWPATH_KERNEL_H

typedef unsigned char __u8;
typedef signed char __s8;
typedef unsigned short __u16;
typedef short __s16;
typedef unsigned int __u32;
typedef int __s32;
typedef unsigned long long __u64;
typedef long long __s64;
typedef __u16 __be16;
typedef __u32 __be32;
typedef __u32 __wsum;
typedef _Bool bool;
typedef __u8 u8;
typedef __u16 u16;
typedef __u32 u32;
typedef __u64 u64;
typedef __s32 s32;
typedef __s64 s64;

/*
 * Marks a type that Rust has, too: slowpath-layout finds it in the object's BTF by this variable,
 * whose section libbpf does not load.
 */
#define MIRRORED(kind, name) const kind name *mirrored_##name SEC("mirrored")

enum bpf_map_type {
	BPF_MAP_TYPE_HASH = 1,
	BPF_MAP_TYPE_ARRAY = 2,
	BPF_MAP_TYPE_PERCPU_ARRAY = 6,
	BPF_MAP_TYPE_SK_STORAGE = 24,
	BPF_MAP_TYPE_RINGBUF = 27,
};

enum {
	BPF_F_NO_PREALLOC = 1U << 0,
	BPF_F_CLONE = 1U << 9,
	BPF_F_MMAPABLE = 1U << 10,
	BPF_SK_STORAGE_GET_F_CREATE = 1,
	BPF_RB_NO_WAKEUP = 1,
};

#define AF_INET 2
#define AF_INET6 10
#define IPPROTO_TCP 6
#define IPPROTO_MPTCP 262

enum tcp_state {
	TCP_ESTABLISHED = 1,
	TCP_SYN_SENT = 2,
	TCP_SYN_RECV = 3,
	TCP_FIN_WAIT1 = 4,
	TCP_TIME_WAIT = 6,
	TCP_CLOSE = 7,
	TCP_CLOSE_WAIT = 8,
	TCP_LAST_ACK = 9,
	TCP_LISTEN = 10,
	TCP_NEW_SYN_RECV = 12,
};

#define PF_KTHREAD 0x00200000 /* include/linux/sched.h */
#define SHUTDOWN_MASK 3       /* include/net/sock.h */
#define S_IFMT 0170000
#define S_IFSOCK 0140000

enum ca_state {
	CA_OPEN = 0,
	CA_DISORDER = 1,
	CA_CWR = 2,
	CA_RECOVERY = 3,
	CA_LOSS = 4,
};

#pragma clang attribute push(__attribute__((preserve_access_index)), apply_to = record)

struct in6_addr {
	union {
		__u8 u6_addr8[16];
		__be32 u6_addr32[4];
	} in6_u;
};

struct ns_common {
	unsigned int inum;
};

struct net {
	struct ns_common ns;
	u64 net_cookie; /* since 5.12 */
};

typedef struct {
	int counter;
} atomic_t;

typedef struct {
	s64 counter;
} atomic64_t;

typedef struct {
	struct net *net;
} possible_net_t;

struct sock_common {
	union {
		struct {
			__be32 skc_daddr;
			__be32 skc_rcv_saddr;
		};
	};
	union {
		struct {
			__be16 skc_dport;
			__u16 skc_num;
		};
	};
	unsigned short skc_family;
	volatile unsigned char skc_state;
	possible_net_t skc_net;
	struct in6_addr skc_v6_daddr;
	struct in6_addr skc_v6_rcv_saddr;
	atomic64_t skc_cookie;
};

struct kernfs_node {
	u64 id;
};

struct cgroup {
	struct kernfs_node *kn;
};

struct css_set {
	struct cgroup *dfl_cgrp;
};

struct sock_cgroup_data {
	struct cgroup *cgroup; /* since 5.15 */
};

struct timespec64 {
	s64 tv_sec;
};

struct list_head {
	struct list_head *next;
};

struct rb_node {
	struct rb_node *rb_left;
};

struct rb_root {
	struct rb_node *rb_node;
};

struct sk_buff;

struct sk_buff_head {
	struct sk_buff *next;
	__u32 qlen;
};

struct inode {
	u16 i_mode;
};

struct file {
	void *private_data;
	struct inode *f_inode;
};

struct sock;

struct socket {
	unsigned long flags;
	struct sock *sk;
	struct file *file;
};

struct refcount_struct {
	struct {
		int counter;
	} refs;
};

struct sock {
	struct sock_common __sk_common;
	int sk_rcvbuf;
	int sk_sndbuf;
	int sk_wmem_queued;
	unsigned long sk_pacing_rate;
	unsigned long sk_max_pacing_rate;
	struct refcount_struct sk_wmem_alloc;
	int sk_err;
	u16 sk_protocol;
	u8 sk_kern_sock : 1;
	u8 sk_shutdown;
	struct socket *sk_socket;
	struct rb_root tcp_rtx_queue;
	struct sk_buff_head sk_receive_queue;
	struct {
		atomic_t rmem_alloc;
	} sk_backlog;
	struct sk_buff_head sk_write_queue;
	struct sock_cgroup_data sk_cgrp_data;
};

struct inet_sock {
	__be16 inet_sport;
};

struct inet_connection_sock {
	struct inet_sock icsk_inet;
	void *icsk_ulp_data;
	__u32 icsk_rto;
	__u32 icsk_pmtu_cookie;
	__u8 icsk_ca_state : 5;
	__u8 icsk_retransmits;
	__u8 icsk_backoff;
	__u8 icsk_probes_out;
	struct {
		__u32 lrcvtime;
	} icsk_ack;
};

struct minmax_sample {
	u32 t;
	u32 v;
};

struct minmax {
	struct minmax_sample s[3];
};

struct tcp_rack {
	u64 mstamp; /* when the data that was delivered last was sent, and its RTT */
	u32 rtt_us;
};

struct tcp_sock {
	struct inet_connection_sock inet_conn;
	u64 tcp_mstamp; /* microseconds: the last segment received or sent, or data read */
	struct tcp_rack rack;
	u32 reordering;
	u32 snd_wnd;
	u32 mss_cache;
	u32 snd_cwnd;
	u32 lost_out;
	u32 sacked_out;
	u32 copied_seq;
	u32 retrans_out;
	u32 snd_ssthresh;
	struct minmax rtt_min;
	u32 segs_out;
	u32 data_segs_out;
	u64 bytes_sent;
	u8 chrono_type : 2; /* a whole byte in later kernels */
	u32 chrono_start;
	u32 chrono_stat[3];
	u32 snd_sml;
	u32 write_seq;
	u32 lsndtime;
	u32 mdev_us;
	u8 nonagle : 4;
	u8 rate_app_limited : 1;
	u32 rcv_nxt;
	u32 snd_nxt;
	u32 snd_una;
	u32 srtt_us;
	u32 packets_out;
	struct list_head tsorted_sent_queue;
	u32 snd_wl1;
	u32 delivered;
	u32 delivered_ce;
	u32 rcv_wnd;
	u32 rcv_wup;
	u32 undo_marker;
	u32 rcv_tstamp;
	u64 bytes_received;
	u32 segs_in;
	u32 data_segs_in;
	u32 rate_delivered;
	u32 rate_interval_us;
	u64 bytes_acked;
	u32 dsack_dups;
	u32 reord_seen;
	u64 bytes_retrans;
	u32 total_retrans;
	u32 rto_stamp;
	u16 total_rto;
	u16 total_rto_recoveries;
	u32 total_rto_time;
	u32 rcv_ooopack;
	bool is_mptcp;
};

struct mptcp_sock {
	u64 write_seq;
	u64 snd_nxt;
	u64 bytes_received;
	u64 ack_seq;
	atomic64_t rcv_wnd_sent;
	u64 bytes_consumed;
	u64 wnd_end;
	struct list_head conn_list;
};

struct mptcp_subflow_context {
	struct list_head node;
	struct sock *tcp_sock;
	struct sock *conn;
};

struct sk_buff {
	struct sk_buff *next;
	struct rb_node rbnode;
	u64 skb_mstamp_ns; /* when it was sent last */
	char cb[48];
};

struct scm_fp_list {
	short count;
	struct file *fp[253]; /* SCM_MAX_FD */
};

struct unix_skb_parms {
	struct scm_fp_list *fp;
};

struct unix_sock {
	struct sock sk;
};

struct task_struct {
	unsigned int flags;
	int pid;
	int tgid;
	struct task_struct *group_leader;
	u64 start_boottime;
	char comm[16];
	struct css_set *cgroups;
	u64 self_exec_id;
};

struct seq_file;
struct bpf_map;

struct bpf_iter_meta {
	struct seq_file *seq;
	u64 session_id;
	u64 seq_num;
};

struct bpf_iter__bpf_map_elem {
	struct bpf_iter_meta *meta;
	struct bpf_map *map;
	void *key;
	void *value;
};

struct bpf_iter__bpf_sk_storage_map {
	struct bpf_iter_meta *meta;
	struct bpf_map *map;
	struct sock *sk;
	void *value;
};

struct bpf_iter__tcp {
	struct bpf_iter_meta *meta;
	struct sock_common *sk_common;
};

struct bpf_iter__task_file {
	struct bpf_iter_meta *meta;
	struct task_struct *task;
	u32 fd;
	struct file *file;
};

struct bpf_iter__unix {
	struct bpf_iter_meta *meta;
	struct unix_sock *unix_sk;
};

#pragma clang attribute pop

#include <bpf/bpf_helpers.h>
#include <bpf/bpf_tracing.h>
#include <bpf/bpf_core_read.h>

extern void *bpf_rdonly_cast(const void *obj, u32 btf_id) __ksym __weak
	__attribute__((returns_nonnull));

/*
 * The TCP socket that `sk` is known to be. The cast (Linux 6.2) is no call at run time, which
 * the helper is.
 */
static __always_inline struct tcp_sock *tcp_socket(struct sock *sk)
{
	if (bpf_rdonly_cast)
		return bpf_rdonly_cast(sk, bpf_core_type_id_kernel(struct tcp_sock));
	return bpf_skc_to_tcp_sock(sk);
}

/*
 * What the two below read first is in struct sock, at the tracepoint's own pointer, which the kernel trusts (Linux
 * 6.2): a plain load. Through tcp_socket() each load has its address checked, some eight instructions.
 */

/* Bytes written and not yet sent: they have a queue of their own. `written` is write_seq. */
static __always_inline u32 unsent_of(struct sock *sk, struct tcp_sock *tp, u32 written)
{
	return sk->sk_write_queue.qlen ? written - tp->snd_nxt : 0;
}

/* Whether nothing that arrived is left: the memory of what is unread, or out of order, is charged to the socket. */
static __always_inline bool all_read(struct sock *sk)
{
	return !sk->sk_backlog.rmem_alloc.counter;
}

/* A number that no other network namespace gets while the machine runs; 0 before Linux 5.12. */
static __always_inline u64 net_cookie_of(struct net *net)
{
	return bpf_core_field_exists(net->net_cookie) ? net->net_cookie : 0;
}

#endif
