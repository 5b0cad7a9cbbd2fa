/* SPDX-License-Identifier: GPL-2.0 */
/*
 * Entries to recovery and loss and the time spent there, from tcp_cong_state_set, which
 * fires before the new state is stored.
 */
#include "../connection.bpf.h"

SEC("tp_btf/tcp_cong_state_set")
int BPF_PROG(recovery, struct sock *sk, u8 ca_state)
{
	struct connection *c = bpf_sk_storage_get(&connections, sk, 0, 0);
	u8 old;
	u64 now;

	if (!c)
		return 0;
	old = c->ca_state;
	if (old == ca_state)
		return 0;
	c->ca_state = ca_state;
	if (old < CA_RECOVERY && ca_state < CA_RECOVERY)
		return 0;
	now = bpf_ktime_get_ns();
	if (old == CA_RECOVERY)
		c->recovery_ns += now - c->ca_since_ns;
	else if (old == CA_LOSS)
		c->loss_ns += now - c->ca_since_ns;
	c->ca_since_ns = now;
	if (ca_state == CA_RECOVERY) {
		c->fast_recoveries++;
	} else if (ca_state == CA_LOSS) {
		struct tcp_sock *tp = bpf_skc_to_tcp_sock(sk);
		struct shared *s = shared_page();

		c->loss_entries++;
		if (tp && s && s->hz) {
			u32 jiffies = (u32)bpf_jiffies64();
			u32 sent = elapsed(tp->lsndtime, jiffies);
			u32 heard = elapsed(tp->rcv_tstamp, jiffies);
			u32 silent = sent < heard ? sent : heard;

			c->rto_wait_us += (u64)silent * 1000000 / s->hz;
		}
	}
	return 0;
}

char LICENSE[] SEC("license") = "GPL";
