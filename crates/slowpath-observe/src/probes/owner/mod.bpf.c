/* SPDX-License-Identifier: GPL-2.0 */
/*
 * The walk over owners: reads every descriptor of every process, threads with tables of their own
 * included, and reports which process holds which TCP socket (iter/task_file, Linux 5.8;
 * bpf_sock_from_file, 5.11). Sockets that no process was found to hold are looked at by the
 * other two programs: whether a process has accepted them or has closed them (a walk over
 * the storage), and whether a message on a Unix socket carries them (iter/unix, 5.15).
 */
#include "../owner.bpf.h"

/* Bits of holder.flags. */
enum holder_flag {
	HOLDER_LISTENS = 1, /* what is held is a listening socket */
};

struct holder {
	u64 cookie;
	u64 start_ns;
	u64 cgroup;
	u32 pid;
	u32 program;
	u32 flags;
	u32 pad;
	char command[16];
};

MIRRORED(struct, holder);
MIRRORED(enum, holder_flag);

/* An MPTCP socket has at most 8 subflows (MPTCP_SUBFLOWS_MAX, net/mptcp/pm.c). */
#define SUBFLOWS 16

SEC("iter/task_file")
int owners(struct bpf_iter__task_file *ctx)
{
	struct task_struct *task = ctx->task;
	struct file *file = ctx->file;
	struct caller process = {};
	struct shared *s = shared_page();
	struct holder holder = {};
	struct socket *socket;
	struct sock *sk;
	u16 protocol;

	if (!task || !file || task->flags & PF_KTHREAD)
		return 0;
	socket = bpf_sock_from_file(file);
	if (!socket)
		return 0;
	sk = socket->sk;
	if (!sk)
		return 0;
	protocol = sk->sk_protocol;
	if (protocol != IPPROTO_TCP && protocol != IPPROTO_MPTCP)
		return 0;
	if (sk->__sk_common.skc_family != AF_INET && sk->__sk_common.skc_family != AF_INET6)
		return 0;
	if (!s || !observed(sk, s))
		return 0;
	name_process(&process, task);
	holder.start_ns = process.start_ns;
	holder.cgroup = cgroup_of_task(task);
	holder.pid = process.pid;
	holder.program = process.program;
	__builtin_memcpy(holder.command, process.command, sizeof(holder.command));
	if (protocol == IPPROTO_TCP) {
		holder.cookie = sk->__sk_common.skc_cookie.counter;
		if (sk->__sk_common.skc_state == TCP_LISTEN)
			holder.flags = HOLDER_LISTENS;
		if (holder.cookie)
			bpf_seq_write(ctx->meta->seq, &holder, sizeof(holder));
		return 0;
	}
	if (bpf_core_type_exists(struct mptcp_subflow_context)) {
		struct mptcp_sock *mptcp = (struct mptcp_sock *)sk;
		struct list_head *head, *node;

		head = (void *)mptcp + bpf_core_field_offset(struct mptcp_sock, conn_list);
		node = BPF_CORE_READ(mptcp, conn_list.next);
		for (int i = 0; i < SUBFLOWS && node && node != head; i++) {
			struct mptcp_subflow_context *subflow;

			subflow = (void *)node -
				  bpf_core_field_offset(struct mptcp_subflow_context, node);
			holder.cookie =
				BPF_CORE_READ(subflow, tcp_sock, __sk_common.skc_cookie.counter);
			if (holder.cookie)
				bpf_seq_write(ctx->meta->seq, &holder, sizeof(holder));
			node = BPF_CORE_READ(node, next);
		}
	}
	return 0;
}

/* Why no descriptor can stand for it. */
enum unheld_reason {
	UNHELD_NO_FILE,   /* the kernel uses it and no process ever could */
	UNHELD_NO_SOCKET, /* neither accepted nor held; or closed, as its state says */
	UNHELD_KERNEL,    /* the kernel's own */
};

struct unheld {
	u64 cookie;
	u32 reason;
	u32 pad;
};

MIRRORED(struct, unheld);
MIRRORED(enum, unheld_reason);

SEC("iter/bpf_sk_storage_map")
int unheld(struct bpf_iter__bpf_sk_storage_map *ctx)
{
	struct connection *c = ctx->value;
	struct sock *sk = ctx->sk;
	struct unheld unheld = {};
	struct socket *socket;

	if (!sk || !c)
		return 0;
	socket = sk->sk_socket;
	if (!socket)
		unheld.reason = UNHELD_NO_SOCKET;
	else if (BPF_CORE_READ(socket, file))
		return 0;
	else if (BPF_CORE_READ_BITFIELD(sk, sk_kern_sock))
		unheld.reason = UNHELD_KERNEL;
	unheld.cookie = c->cookie;
	bpf_seq_write(ctx->meta->seq, &unheld, sizeof(unheld));
	return 0;
}

char LICENSE[] SEC("license") = "GPL";
