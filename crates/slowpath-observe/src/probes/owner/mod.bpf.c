/* SPDX-License-Identifier: GPL-2.0 */
/*
 * Owners: walks every open file of every process and tells which process holds which TCP
 * socket (iter/task_file, Linux 5.8; bpf_sock_from_file, 5.11).
 */
#include "../connection.bpf.h"

struct owner {
	u64 cookie;
	u32 pid;
	u32 pad;
	char command[16];
};

SEC("iter/task_file")
int owners(struct bpf_iter__task_file *ctx)
{
	struct task_struct *task = ctx->task;
	struct file *file = ctx->file;
	struct connection *c;
	struct owner owner;
	struct socket *socket;
	struct sock *sk;

	if (!task || !file || task->pid != task->tgid)
		return 0;
	socket = bpf_sock_from_file(file);
	if (!socket)
		return 0;
	sk = socket->sk;
	if (!sk)
		return 0;
	c = bpf_sk_storage_get(&connections, sk, 0, 0);
	if (!c)
		return 0;
	owner.cookie = c->cookie;
	owner.pid = task->tgid;
	owner.pad = 0;
	bpf_probe_read_kernel_str(owner.command, sizeof(owner.command), task->comm);
	bpf_seq_write(ctx->meta->seq, &owner, sizeof(owner));
	return 0;
}

char LICENSE[] SEC("license") = "GPL";
