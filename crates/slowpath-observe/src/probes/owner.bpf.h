/* SPDX-License-Identifier: GPL-2.0 */
/*
 * Processes and the cgroups of sockets, as owners are named by.
 */
#ifndef SLOWPATH_OWNER_H
#define SLOWPATH_OWNER_H

#include "connection.bpf.h"

/*
 * The cookie of the listening socket. The kernel copies it to every connection that the
 * listener gives birth to (sk_clone_lock, BPF_F_CLONE).
 */
struct {
	__uint(type, BPF_MAP_TYPE_SK_STORAGE);
	__uint(map_flags, BPF_F_NO_PREALLOC | BPF_F_CLONE);
	__type(key, int);
	__type(value, u64);
} births SEC(".maps");

static __always_inline void remember_listener(struct sock *sk)
{
	u64 *cookie = bpf_sk_storage_get(&births, sk, 0, BPF_SK_STORAGE_GET_F_CREATE);

	if (cookie)
		*cookie = bpf_get_socket_cookie(sk);
}

/* The number of the cgroup in which the socket, or its listener, was made. */
static __always_inline u64 cgroup_of_socket(struct sock *sk)
{
	struct cgroup *cgroup;

	if (!bpf_core_field_exists(sk->sk_cgrp_data.cgroup))
		return 0;
	cgroup = sk->sk_cgrp_data.cgroup;
	return cgroup ? BPF_CORE_READ(cgroup, kn, id) : 0;
}

/* Names the process that the task belongs to; its threads may call themselves anything. */
static __always_inline void name_process(struct caller *caller, struct task_struct *task)
{
	struct task_struct *leader = task->group_leader;

	caller->pid = task->tgid;
	caller->start_ns = leader->start_boottime;
	caller->program = leader->self_exec_id;
	bpf_probe_read_kernel_str(caller->command, sizeof(caller->command), leader->comm);
}

static __always_inline u64 cgroup_of_task(struct task_struct *task)
{
	return BPF_CORE_READ(task, cgroups, dfl_cgrp, kn, id);
}

#endif
