/* SPDX-License-Identifier: GPL-2.0 */
/*
 * The seed: gives storage to the connections and listeners that are older than the agent. Walks the
 * TCP sockets of the network namespace of whoever opens the iterator (Linux 5.9).
 */
#include "../seed.bpf.h"

SEC("iter/tcp")
int seed(struct bpf_iter__tcp *ctx)
{
	struct sock_common *skc = ctx->sk_common;
	struct shared *s = shared_page();
	struct tcp_sock *tp;

	if (!skc || !s)
		return 0;
	tp = bpf_skc_to_tcp_sock(skc);
	if (!tp)
		return 0;
	give_storage((struct sock *)tp, tp, s);
	return 0;
}

char LICENSE[] SEC("license") = "GPL";
