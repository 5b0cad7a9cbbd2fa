/* SPDX-License-Identifier: GPL-2.0 */
/*
 * Opening and closing, from inet_sock_set_state: a connection gets its storage when it is
 * opened or established, in a network namespace that is observed, and leaves a final record when it
 * closes, however short it was.
 */
#include "../owner.bpf.h"

struct {
	__uint(type, BPF_MAP_TYPE_RINGBUF);
	__uint(max_entries, 16 << 20); /* 23,000 closes between two polls */
} closes SEC(".maps");

static __always_inline bool is_subflow(struct sock *sk)
{
	struct tcp_sock *tp = bpf_skc_to_tcp_sock(sk);

	return tp && bpf_core_field_exists(tp->is_mptcp) && tp->is_mptcp;
}

/*
 * connect(2), and sendto(2) with MSG_FASTOPEN, run in their caller. The kernel's own
 * sockets belong to no process, but for the subflows of MPTCP, which belong to whoever holds the
 * MPTCP socket: the first is opened by connect(2), further ones by a worker.
 */
static __always_inline void note_opener(struct connection *c, struct sock *sk)
{
	struct task_struct *task = bpf_get_current_task_btf();
	bool kernel = task->flags & PF_KTHREAD;

	if (!is_subflow(sk) && (kernel || BPF_CORE_READ_BITFIELD(sk, sk_kern_sock))) {
		c->caller.flags = CALLER_KERNEL;
		return;
	}
	if (kernel)
		return;
	name_process(&c->caller, task);
	c->caller.cgroup = cgroup_of_task(task);
}

/*
 * close(2) and shutdown(2) run in their caller too. They name no owner; but if the caller is
 * not the opener, the opener has handed the connection on, and so has whoever a look named
 * if it is not the caller. The opener itself may have turned to another program. A subflow
 * is closed by whom it may concern.
 */
static __always_inline void note_closer(struct connection *c, struct sock *sk)
{
	struct task_struct *task;

	if (is_subflow(sk))
		return;
	task = bpf_get_current_task_btf();
	c->caller.closer_pid = task->tgid;
	c->caller.closer_start_ns = task->group_leader->start_boottime;
	if (!c->caller.pid)
		return;
	if (c->caller.closer_pid == c->caller.pid &&
	    c->caller.closer_start_ns == c->caller.start_ns)
		name_process(&c->caller, task);
	else
		c->caller.flags |= CALLER_HANDED_ON;
}

static __always_inline void open_connection(struct sock *sk, struct shared *s, u8 origin)
{
	struct connection *c;

	if (!observed(sk, s))
		return;
	c = bpf_sk_storage_get(&connections, sk, 0, BPF_SK_STORAGE_GET_F_CREATE);
	if (!c) {
		__sync_fetch_and_add(&s->storage_failed, 1);
		return;
	}
	c->cookie = bpf_get_socket_cookie(sk);
	c->start_ns = bpf_ktime_get_ns();
	c->origin = origin;
	c->rtt_min_us = ~0u;
	c->sends.min = c->receives.min = ~0u;
	c->caller.socket_cgroup = cgroup_of_socket(sk);
	if (origin == ORIGIN_OPENED) {
		note_opener(c, sk);
	} else {
		u64 *listener = bpf_sk_storage_get(&births, sk, 0, 0);

		if (listener)
			c->caller.listener = *listener;
	}
	if (origin != ORIGIN_OPENED) {
		struct tcp_sock *tp = bpf_skc_to_tcp_sock(sk);

		if (tp)
			c->turns.written = tp->write_seq;
		/* tcp_create_openreq_child: of the SYN-ACK */
		if (tp && origin == ORIGIN_ACCEPTED && tp->total_retrans) {
			c->waits.syn_retransmits = tp->total_retrans;
			c->waited = 1;
		}
	}
	__sync_fetch_and_add(&s->opened, 1);
	__sync_fetch_and_add(&s->live, 1);
	changed(c, sk);
}

static __always_inline void close_connection(struct sock *sk, struct shared *s, int oldstate)
{
	struct connection *c = bpf_sk_storage_get(&connections, sk, 0, 0);
	struct tcp_sock *tp;
	struct record *r;

	if (!c)
		return;
	__sync_fetch_and_add(&s->closed, 1);
	__sync_fetch_and_sub(&s->live, 1);
	tp = bpf_skc_to_tcp_sock(sk);
	r = tp ? bpf_ringbuf_reserve(&closes, sizeof(*r), 0) : 0;
	if (r) {
		copy_calls(r, c);
		fill(r, sk, tp, c, bpf_ktime_get_ns(), s->late_margin_us);
		r->connection = 0;
		r->flags |= RECORD_CLOSED;
		r->closed_in = oldstate;
		r->error = sk->sk_err; /* set before the state (tcp_reset, tcp_write_err) */
		/* user space drains the ring at each poll */
		bpf_ringbuf_submit(r, BPF_RB_NO_WAKEUP);
	} else {
		__sync_fetch_and_add(&s->closes_dropped, 1);
	}
	bpf_sk_storage_delete(&connections, sk);
}

/* No state but ESTABLISHED has segment events, and the opening ends with SYN_SENT. */
static __always_inline void leave_state(struct connection *c, struct sock *sk, int oldstate)
{
	struct tcp_sock *tp = bpf_skc_to_tcp_sock(sk);

	if (!tp)
		return;
	if (oldstate == TCP_ESTABLISHED) {
		count_wait(c, tp, (u32)bpf_jiffies64(), tp->write_seq - tp->snd_nxt, 0);
	} else if (oldstate == TCP_SYN_SENT) {
		c->turns.written = tp->write_seq;
		if (tp->total_retrans) {
			c->waits.syn_retransmits = tp->total_retrans;
			c->waits.syn_wait_ms = (bpf_ktime_get_ns() - c->start_ns) / 1000000;
			c->waited = 1;
		}
	}
}

SEC("tp_btf/inet_sock_set_state")
int BPF_PROG(lifecycle, struct sock *sk, int oldstate, int newstate)
{
	struct shared *s;

	if (sk->sk_protocol != IPPROTO_TCP)
		return 0;
	s = shared_page();
	if (!s)
		return 0;
	if (newstate == TCP_SYN_SENT)
		open_connection(sk, s, ORIGIN_OPENED);
	else if (newstate == TCP_LISTEN) {
		if (observed(sk, s))
			remember_listener(sk);
	} else if (newstate == TCP_CLOSE) {
		if (oldstate == TCP_LISTEN)
			return 0;
		/* __tcp_close sets sk_shutdown before, tcp_done after the state */
		if ((oldstate < TCP_FIN_WAIT1 || oldstate == TCP_CLOSE_WAIT) &&
		    sk->sk_shutdown == SHUTDOWN_MASK) {
			struct connection *c = bpf_sk_storage_get(&connections, sk, 0, 0);

			if (c)
				note_closer(c, sk);
		}
		close_connection(sk, s, oldstate);
	} else {
		struct connection *c = bpf_sk_storage_get(&connections, sk, 0, 0);

		if (c) {
			leave_state(c, sk, oldstate);
			/* only tcp_close_state leads there */
			if (newstate == TCP_FIN_WAIT1 || newstate == TCP_LAST_ACK)
				note_closer(c, sk);
			changed(c, sk);
		} else if (newstate == TCP_ESTABLISHED && oldstate == TCP_SYN_RECV)
			open_connection(sk, s, ORIGIN_ACCEPTED);
		else if (oldstate == TCP_ESTABLISHED) /* the event above was missed */
			open_connection(sk, s, ORIGIN_UNKNOWN);
	}
	return 0;
}

/*
 * The socket goes. A close that did not run the program above, because it interrupted that
 * very program on its processor (a few in a million), leaves its record here.
 */
SEC("tp_btf/tcp_destroy_sock")
int BPF_PROG(gone, struct sock *sk)
{
	struct shared *s = shared_page();

	if (s && bpf_sk_storage_get(&connections, sk, 0, 0)) {
		__sync_fetch_and_add(&s->late_closes, 1);
		close_connection(sk, s, 0);
	}
	return 0;
}

char LICENSE[] SEC("license") = "GPL";
