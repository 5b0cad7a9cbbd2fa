/* SPDX-License-Identifier: GPL-2.0 */
/* Does nothing: the run time that the kernel measures for it is the cost of measuring. */
#include "../kernel.bpf.h"

char LICENSE[] SEC("license") = "GPL";

SEC("tp_btf/tcp_probe")
int BPF_PROG(empty, struct sock *sk, void *skb)
{
	return 0;
}
