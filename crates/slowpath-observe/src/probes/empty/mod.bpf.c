/* SPDX-License-Identifier: GPL-2.0 */
/* Does nothing: what the kernel books for it is the booking itself. */
#include "../kernel.bpf.h"

char LICENSE[] SEC("license") = "GPL";

SEC("tp_btf/tcp_probe")
int BPF_PROG(empty, struct sock *sk, void *skb)
{
	return 0;
}
