/* SPDX-License-Identifier: GPL-2.0 */
/*
 * The seed where network namespaces may not be entered: every open file of every process
 * that is a TCP socket (iter/task_file, Linux 5.8; bpf_sock_from_file, 5.11). It sees all
 * namespaces, but no connection that no process holds.
 */
#include "../seed.bpf.h"

SEC("iter/task_file")
int seed_held(struct bpf_iter__task_file *ctx)
{
	struct task_struct *task = ctx->task;
	struct shared *s = shared_page();
	struct file *file = ctx->file;
	struct socket *socket;
	struct tcp_sock *tp;
	u8 looked = 1;

	if (!task || !file || !s || task->pid != task->tgid)
		return 0;
	socket = bpf_sock_from_file(file);
	if (!socket || !socket->sk)
		return 0;
	tp = bpf_skc_to_tcp_sock(socket->sk);
	if (!tp)
		return 0;
	give_storage((struct sock *)tp, tp, s);
	/* What has been read shows user space how many sockets were looked at: it may pause. */
	bpf_seq_write(ctx->meta->seq, &looked, sizeof(looked));
	return 0;
}

char LICENSE[] SEC("license") = "GPL";
