/* SPDX-License-Identifier: GPL-2.0 */
/*
 * Copies what is known of a connection into its record. Included by connection.bpf.h, at its end.
 */
#ifndef SLOWPATH_FILL_H
#define SLOWPATH_FILL_H

/* tcp_get_info_chrono_stats without the socket lock: read again if it moved meanwhile. */
static __always_inline void read_chrono(struct record *r, struct tcp_sock *tp, u32 now)
{
	volatile u32 *start_at = &tp->chrono_start;
	u32 start, a, b, c;
	u8 type;

	start = *start_at;
	type = BPF_CORE_READ_BITFIELD(tp, chrono_type);
	a = tp->chrono_stat[0];
	b = tp->chrono_stat[1];
	c = tp->chrono_stat[2];
	barrier(); /* read the type again */
	if (*start_at != start || BPF_CORE_READ_BITFIELD(tp, chrono_type) != type) {
		start = *start_at;
		type = BPF_CORE_READ_BITFIELD(tp, chrono_type);
		a = tp->chrono_stat[0];
		b = tp->chrono_stat[1];
		c = tp->chrono_stat[2];
	}
	if (type == 1)
		a += elapsed(start, now);
	else if (type == 2)
		b += elapsed(start, now);
	else if (type == 3)
		c += elapsed(start, now);
	r->chrono_jiffies[0] = a;
	r->chrono_jiffies[1] = b;
	r->chrono_jiffies[2] = c;
}

#include "waits.bpf.h"

static __always_inline void copy_calls(struct record *r, const struct connection *c)
{
	__builtin_memcpy(&r->sends, &c->sends, sizeof(r->sends));
	__builtin_memcpy(&r->receives, &c->receives, sizeof(r->receives));
	__builtin_memcpy(&r->turns, &c->turns, sizeof(r->turns));
	if (any_turns(&c->turns))
		__builtin_memcpy(&r->latest, &c->latest, sizeof(r->latest));
	if (c->waited)
		__builtin_memcpy(&r->waits, &c->waits, sizeof(r->waits));
}

/*
 * Whether no SYN has left this host: only what the IP layer and the device took is in the queue of what was
 * sent (tcp_update_skb_after_send).
 */
static __always_inline bool not_sent(struct tcp_sock *tp)
{
	return tp->packets_out && (u64)tp->tsorted_sent_queue.next == (u64)&tp->tsorted_sent_queue;
}

/*
 * Everything but the socket calls, the turns, and the waits that have ended if there are any: the
 * caller copies those first.
 */
static __always_inline void fill(struct record *r, struct sock *sk, struct tcp_sock *tp,
				 const struct connection *c, u64 now_ns, u32 late_margin_us)
{
	struct inet_connection_sock *icsk = &tp->inet_conn;
	u32 srtt = tp->srtt_us, mdev = tp->mdev_us, una = tp->snd_una;
	u32 sample = pending_sample(c, srtt, mdev, una);
	u64 jiffies = bpf_jiffies64();
	u32 now = (u32)jiffies;
	u32 write_seq = tp->write_seq, nxt = tp->snd_nxt;

	r->sk = (u64)sk;
	r->cookie = c->cookie;
	r->start_ns = c->start_ns;
	r->at_ns = now_ns;
	r->since_ns = c->since_ns;
	r->at_jiffies = jiffies;
	r->bytes_sent = tp->bytes_sent;
	r->bytes_acked = tp->bytes_acked;
	r->bytes_received = tp->bytes_received;
	r->bytes_retrans = tp->bytes_retrans;
	r->pacing_rate = sk->sk_pacing_rate;
	r->max_pacing_rate = sk->sk_max_pacing_rate;

	r->rtt_sum_us = c->rtt_sum_us + sample;
	r->rtt_count = c->rtt_count + !!sample;
	r->lone_sum_us = c->lone_sum_us;
	r->lone_count = c->lone_count;
	r->late_sum_us = c->late_sum_us;
	r->late_count = c->late_count;
	r->held_sum_us = c->held_sum_us;
	r->held_count = c->held_count;
	r->rtt_min_us = c->rtt_min_us;
	if (sample) {
		if (sample < r->rtt_min_us)
			r->rtt_min_us = sample;
		if (c->ack & ACK_LONE) {
			r->lone_sum_us += sample;
			r->lone_count++;
			if (sample > r->rtt_min_us + late_margin_us) {
				r->late_sum_us += sample;
				r->late_count++;
				if (c->ack & ACK_HELD) {
					r->held_sum_us += sample;
					r->held_count++;
				}
			}
		}
	}
	r->recovery_ns = c->recovery_ns;
	r->loss_ns = c->loss_ns;
	if (c->ca_state == CA_RECOVERY && now_ns > c->ca_since_ns)
		r->recovery_ns += now_ns - c->ca_since_ns;
	else if (c->ca_state == CA_LOSS && now_ns > c->ca_since_ns)
		r->loss_ns += now_ns - c->ca_since_ns;
	r->rto_wait_us = c->rto_wait_us;
	r->fast_recoveries = c->fast_recoveries;
	r->loss_entries = c->loss_entries;

	__builtin_memcpy(&r->caller, &c->caller, sizeof(r->caller));
	r->netns = sk->__sk_common.skc_net.net->ns.inum;
	r->netns_cookie = net_cookie_of(sk->__sk_common.skc_net.net);
	r->segs_out = tp->segs_out;
	r->segs_in = tp->segs_in;
	r->data_segs_out = tp->data_segs_out;
	r->data_segs_in = tp->data_segs_in;
	r->total_retrans = tp->total_retrans;
	r->delivered = tp->delivered;
	r->delivered_ce = tp->delivered_ce;
	r->dsack_dups = tp->dsack_dups;
	r->reord_seen = tp->reord_seen;
	r->rcv_ooopack = tp->rcv_ooopack;
	r->packets_out = tp->packets_out;
	r->lost_out = tp->lost_out;
	r->retrans_out = tp->retrans_out;
	r->sacked_out = tp->sacked_out;
	r->snd_cwnd = tp->snd_cwnd;
	r->snd_ssthresh = tp->snd_ssthresh;
	r->snd_wnd = tp->snd_wnd;
	r->rcv_wnd = tp->rcv_wnd;
	r->mss_cache = tp->mss_cache;
	r->pmtu = icsk->icsk_pmtu_cookie;
	r->reordering = tp->reordering;
	r->srtt_us = srtt;
	r->mdev_us = mdev;
	r->windowed_min_us = tp->rtt_min.s[0].v;
	r->rto_jiffies = icsk->icsk_rto;
	read_chrono(r, tp, now);
	r->unsent = elapsed(nxt, write_seq);
	r->send_queue = elapsed(una, write_seq);
	r->receive_queue = elapsed(tp->copied_seq, tp->rcv_nxt);
	r->wmem_queued = sk->sk_wmem_queued;
	r->wmem_alloc = sk->sk_wmem_alloc.refs.counter;
	r->error = 0;
	r->closed_in = 0;
	r->snd_una = una;
	r->sndbuf = sk->sk_sndbuf;
	r->rcvbuf = sk->sk_rcvbuf;
	r->rate_delivered = tp->rate_delivered;
	r->rate_interval_us = tp->rate_interval_us;
	r->flags = 0;
	r->total_rto_time_ms = 0;
	r->total_rto = 0;
	r->total_rto_recoveries = 0;
	if (bpf_core_field_exists(tp->total_rto_time)) {
		u32 stamp = tp->rto_stamp;

		r->flags = RECORD_HAS_RTO;
		r->total_rto = tp->total_rto;
		r->total_rto_recoveries = tp->total_rto_recoveries;
		r->total_rto_time_ms = tp->total_rto_time;
		if (stamp) /* tcp_clock_ms() - rto_stamp */
			r->total_rto_time_ms += elapsed(stamp, (u32)(now_ns / 1000000));
	}
	if (BPF_CORE_READ_BITFIELD(tp, chrono_type))
		r->flags |= RECORD_BUSY;
	if (BPF_CORE_READ_BITFIELD(tp, rate_app_limited))
		r->flags |= RECORD_APP_LIMITED;
	r->family = sk->__sk_common.skc_family;
	r->state = sk->__sk_common.skc_state;
	if (r->state == TCP_SYN_SENT && not_sent(tp))
		r->flags |= RECORD_NOT_SENT;
	r->ca_state = BPF_CORE_READ_BITFIELD(icsk, icsk_ca_state);
	r->backoff = icsk->icsk_backoff;
	r->retransmits = icsk->icsk_retransmits;
	r->probes = icsk->icsk_probes_out;
	r->origin = c->origin;
	/*
	 * A closing socket has given its port back. Of any other, inet_sport lies in a cache line that
	 * nothing else is read from.
	 */
	r->local_port = sk->__sk_common.skc_num;
	if (!r->local_port)
		r->local_port = __builtin_bswap16(icsk->icsk_inet.inet_sport);
	r->remote_port = __builtin_bswap16(sk->__sk_common.skc_dport);
	if (r->family == AF_INET6) {
		u32 *local = (u32 *)r->local, *remote = (u32 *)r->remote;

#pragma unroll
		for (int i = 0; i < 4; i++) {
			local[i] = sk->__sk_common.skc_v6_rcv_saddr.in6_u.u6_addr32[i];
			remote[i] = sk->__sk_common.skc_v6_daddr.in6_u.u6_addr32[i];
		}
	} else {
		*(u32 *)r->local = sk->__sk_common.skc_rcv_saddr;
		*(u32 *)r->remote = sk->__sk_common.skc_daddr;
	}
	r->flags |= multipath_waits(tp);
	if (r->flags & (RECORD_MPTCP_WINDOW | RECORD_MPTCP_UNREAD))
		r->flags |= RECORD_BUSY;
	fill_waits(r, tp, c, now);
	fill_turns(r, tp);
}

#endif
