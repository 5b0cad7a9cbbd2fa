/* SPDX-License-Identifier: GPL-2.0 */
/*
 * Listening sockets, in every network namespace that is observed. Storage comes with listen(2), in its
 * caller; older listeners get theirs from the seed. A walk over that storage, now and then,
 * copies those that dropped something, whose queues are full or that sent cookies, so it
 * costs next to nothing for the others. Nothing runs when a connection arrives: the
 * kernel counts the drops itself.
 */
#include "../listener.bpf.h"

/* Bits of listener_record.flags. */
enum listener_flag {
	LISTENER_CLOSED = 1,
	LISTENER_OPENER_KNOWN = 2,
	LISTENER_REUSE_PORT = 4,
};

struct listener_record {
	u64 cookie;
	u64 netns_cookie;
	u64 at_ns;
	u32 netns;
	u32 pid;
	u32 base_drops;
	u32 drops;
	u32 accept_queue;
	u32 backlog;
	u32 syn_queue;
	u32 young;
	u32 cookie_jiffies; /* since the last cookie; all ones if there was none */
	u32 somaxconn;
	u32 max_syn_backlog;
	u16 port;
	u8 family;
	u8 flags;
	u8 syncookies;
	u8 abort_on_overflow;
	u16 pad;
	u8 address[16];
	char command[16];
	u32 pad2;
};

/* Knobs and counters, shared with user space through a mapped page. */
struct listening {
	u64 emit_all; /* copy every listener at the next walk */
	u64 opened;
	u64 closed;
	u64 storage_failed;
	u64 closes_dropped;
	u64 visited; /* by all walks */
};

MIRRORED(struct, listener_record);
MIRRORED(struct, listening);
MIRRORED(enum, listener_flag);

struct {
	__uint(type, BPF_MAP_TYPE_ARRAY);
	__uint(map_flags, BPF_F_MMAPABLE);
	__uint(max_entries, 1);
	__type(key, u32);
	__type(value, struct listening);
} listening SEC(".maps");

/* Final records of listeners that close; user space drains it at each walk. */
struct {
	__uint(type, BPF_MAP_TYPE_RINGBUF);
	__uint(max_entries, 256 << 10);
} listeners_closed SEC(".maps");

static __always_inline struct listening *listening_page(void)
{
	u32 zero = 0;

	return bpf_map_lookup_elem(&listening, &zero);
}

static __always_inline void fill_listener(struct listener_record *r, struct sock *sk,
					  struct tcp_sock *tp, struct listener *l)
{
	struct inet_connection_sock___listen *icsk = (void *)tp;
	struct sock___listen *lsk = (void *)sk;
	struct net *net = sk->__sk_common.skc_net.net;
	struct net___listen *lnet = (void *)net;
	struct sock_reuseport *group = lsk->sk_reuseport_cb;
	u32 stamp;

	r->cookie = l->cookie;
	r->at_ns = bpf_ktime_get_ns();
	r->netns = net->ns.inum;
	r->netns_cookie = net_cookie_of(net);
	r->pid = l->pid;
	r->base_drops = l->base_drops;
	r->drops = lsk->sk_drops.counter;
	r->accept_queue = lsk->sk_ack_backlog;
	r->backlog = lsk->sk_max_ack_backlog;
	r->syn_queue = icsk->icsk_accept_queue.qlen.counter;
	r->young = icsk->icsk_accept_queue.young.counter;
	r->somaxconn = lnet->core.sysctl_somaxconn;
	r->max_syn_backlog = lnet->ipv4.sysctl_max_syn_backlog;
	r->syncookies = lnet->ipv4.sysctl_tcp_syncookies;
	r->abort_on_overflow = lnet->ipv4.sysctl_tcp_abort_on_overflow;
	r->flags = l->pid ? LISTENER_OPENER_KNOWN : 0;
	stamp = ((struct tcp_sock___listen *)tp)->rx_opt.ts_recent_stamp;
	if (group) {
		r->flags |= LISTENER_REUSE_PORT;
		stamp = BPF_CORE_READ(group, synq_overflow_ts);
	}
	r->cookie_jiffies = stamp ? (u32)bpf_jiffies64() - stamp : ~0u;
	r->port = ((struct inet_sock *)tp)->inet_sport;
	r->port = __builtin_bswap16(r->port);
	r->family = sk->__sk_common.skc_family;
	r->pad = 0;
	r->pad2 = 0;
	__builtin_memset(r->address, 0, sizeof(r->address));
	if (r->family == AF_INET6)
		bpf_probe_read_kernel(r->address, 16, &sk->__sk_common.skc_v6_rcv_saddr);
	else
		bpf_probe_read_kernel(r->address, 4, &sk->__sk_common.skc_rcv_saddr);
	__builtin_memcpy(r->command, l->command, sizeof(r->command));
}

SEC("tp_btf/inet_sock_set_state")
int BPF_PROG(listens, struct sock *sk, int oldstate, int newstate)
{
	struct shared *shared = shared_page();
	struct listener_record *r;
	struct listening *s;
	struct tcp_sock *tp;
	struct listener *l;

	if (newstate != TCP_LISTEN && oldstate != TCP_LISTEN)
		return 0;
	s = listening_page();
	if (!s || sk->sk_protocol != IPPROTO_TCP)
		return 0;
	if (newstate == TCP_LISTEN) { /* listen(2) runs in its caller */
		if (!shared || !observed(sk, shared))
			return 0;
		l = meet_listener(sk);
		if (!l) {
			__sync_fetch_and_add(&s->storage_failed, 1);
			return 0;
		}
		l->pid = bpf_get_current_pid_tgid() >> 32;
		bpf_get_current_comm(l->command, sizeof(l->command));
		__sync_fetch_and_add(&s->opened, 1);
		return 0;
	}
	l = bpf_sk_storage_get(&listeners, sk, 0, 0);
	if (!l)
		return 0;
	__sync_fetch_and_add(&s->closed, 1);
	tp = bpf_skc_to_tcp_sock(sk);
	r = tp ? bpf_ringbuf_reserve(&listeners_closed, sizeof(*r), 0) : 0;
	if (r) {
		fill_listener(r, sk, tp, l);
		r->flags |= LISTENER_CLOSED;
		bpf_ringbuf_submit(r, BPF_RB_NO_WAKEUP);
	} else {
		__sync_fetch_and_add(&s->closes_dropped, 1);
	}
	bpf_sk_storage_delete(&listeners, sk);
	return 0;
}

/* Cookies are stamped once a second: one within the last three may be new to user space. */
#define RECENT_COOKIE 3

SEC("iter/bpf_sk_storage_map")
int walk_listeners(struct bpf_iter__bpf_sk_storage_map *ctx)
{
	struct listener_record r = {};
	struct listener *l = ctx->value;
	struct sock *sk = ctx->sk;
	struct shared *shared;
	struct listening *s;
	struct tcp_sock *tp;

	s = listening_page();
	shared = shared_page();
	if (!s || !shared || !sk || !l)
		return 0;
	tp = bpf_skc_to_tcp_sock(sk);
	if (!tp || sk->__sk_common.skc_state != TCP_LISTEN)
		return 0;
	s->visited++;
	fill_listener(&r, sk, tp, l);
	if (l->shown && !s->emit_all && r.drops == l->drops && r.accept_queue <= r.backlog &&
	    r.syn_queue < r.backlog && r.cookie_jiffies > RECENT_COOKIE * shared->hz)
		return 0;
	if (bpf_seq_write(ctx->meta->seq, &r, sizeof(r)))
		return 0;
	l->shown = 1;
	l->drops = r.drops;
	return 0;
}

char LICENSE[] SEC("license") = "GPL";
