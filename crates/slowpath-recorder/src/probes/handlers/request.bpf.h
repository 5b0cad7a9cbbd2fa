/* SPDX-License-Identifier: GPL-2.0 */
/* Connections that have no socket yet, up to the child that the handshake's last packet makes. */
#ifndef SLOWPATH_HANDLERS_REQUEST_H
#define SLOWPATH_HANDLERS_REQUEST_H

#include "packet.bpf.h"
#include "options.bpf.h"

/* So many wait to be accepted that no more may (sk_acceptq_is_full()). */
static __always_inline u8 is_full(const void *listener)
{
	return READ(listener, sock___rec, sk_ack_backlog) >
	       READ(listener, sock___rec, sk_max_ack_backlog);
}

static __always_inline void request(u8 what, const void *req, u16 id, u32 alike, u64 clock,
				    u32 like, u8 mark, u8 queue)
{
	struct stub it = stub(req);

	it.id = id;
	it.like = alike;
	it.from = READ(req, tcp_request_sock, rcv_isn);
	it.begins = READ(req, tcp_request_sock, snt_isn);
	it.expects = like;
	it.mark = mark;
	it.queue = queue;
	tell_stub(&it, REQUEST, what, clock);
}

static __always_inline void asked(const void *listener, const void *skb)
{
	struct stub it = addressed(skb);

	it.queue = is_full(listener);
	tell_stub(&it, REQUEST, ASKED, 0);
}

SEC("fentry/tcp_v4_conn_request")
int BPF_PROG(on_asked, struct sock *sk, struct sk_buff *skb)
{
	asked(sk, skb);
	return 0;
}

SEC("fentry/tcp_v6_conn_request")
int BPF_PROG(on_asked_ipv6, struct sock *sk, struct sk_buff *skb)
{
	/* Those of IPv4 are handed on. */
	if (is_ipv6(skb))
		asked(sk, skb);
	return 0;
}

SEC("fentry/tcp_check_req")
int BPF_PROG(on_asked_again, struct sock *sk, struct sk_buff *skb, struct request_sock *req)
{
	const struct tcp_skb_cb *cb = (const void *)((const char *)skb + OFFSET(sk_buff___rec, cb));

	if ((READ(cb, tcp_skb_cb, tcp_flags) & SYN_ACK) == SYN)
		request(ASKED_AGAIN, req, __builtin_bswap16(READ(network(skb), iphdr, id)),
			is_ipv6(skb) ? alike(skb) : 0, 0, 0, mark(skb), 0);
	return 0;
}

SEC("fexit/tcp_check_req")
int BPF_PROG(on_ignored, struct sock *sk, struct sk_buff *skb, struct request_sock *req,
	     bool fastopen, bool *stolen, struct sock *child)
{
	const struct tcp_skb_cb *cb = (const void *)((const char *)skb + OFFSET(sk_buff___rec, cb));

	if (!child && (READ(cb, tcp_skb_cb, tcp_flags) & SYN_ACK) == ACK)
		request(IGNORED, req, __builtin_bswap16(READ(network(skb), iphdr, id)),
			is_ipv6(skb) ? alike(skb) : 0, 0, 0, mark(skb), is_full(sk));
	return 0;
}

/* As often as a SYN-ACK is sent again where too many old requests wait, see reqsk_timer_handler(); 0: as usual. */
static __always_inline u8 tries(const void *req)
{
	const void *sk = listener_of(req);
	const void *net = READ(sk, sock___rec, __sk_common.skc_net.net);
	u32 waiting = READ(sk, inet_connection_sock___rec, icsk_accept_queue.qlen.counter);
	u32 young = READ(sk, inet_connection_sock___rec, icsk_accept_queue.young.counter) << 1;
	u32 most = READ(sk, sock___rec, sk_max_ack_backlog);
	u32 usual = READ(sk, inet_connection_sock___rec, icsk_syn_retries), left;
	int i;

	if (!usual)
		usual = READ(net, net___rec, ipv4.sysctl_tcp_synack_retries);
	left = usual;
	if (waiting << 1 > (most > 8 ? most : 8))
		for (i = 0; i < 32 && left > 2 && waiting >= young; i++, young <<= 1)
			left--;
	return left == usual ? 0 : left;
}

SEC("fentry/reqsk_timer_handler")
int BPF_PROG(on_request_timer, struct timer_list *timer)
{
	const void *req = (const char *)timer - OFFSET(request_sock___rec, rsk_timer);

	request(TIMED_OUT, req, 0, 0, 0, 0, 0, tries(req));
	return 0;
}

/* TCP_SYNACK_COOKIE */
#define COOKIE 2

SEC("fexit/tcp_make_synack")
int BPF_PROG(on_answered, struct sock *sk, struct dst_entry *dst, struct request_sock *req,
	     void *cookie, int type, struct sk_buff *syn, struct sk_buff *skb)
{
	if (skb)
		request(ANSWERED, req, 0, 0, READ(skb, sk_buff___rec, tstamp), likeness(skb),
			0, type == COOKIE);
	return 0;
}

/* The last packet of the handshake makes the child, which begins with the round trip of the SYN-ACK. */
SEC("fentry/tcp_synack_rtt_meas")
int BPF_PROG(on_child, struct sock *sk, struct request_sock *req)
{
	struct known *known = NULL;

	/* Without one: it is looked at again, of a SYN-ACK that was sent again. */
	if (req && is_chosen(READ(sk, sock___rec, __sk_common.skc_num),
		      __builtin_bswap16(READ(sk, sock___rec, __sk_common.skc_dport))))
		known = open(sk, 1);
	if (known)
		tell_options(sk, known, listener_of(req));
	return 0;
}

SEC("fexit/tcp_synack_rtt_meas")
int BPF_PROG(on_child_rtt, struct sock *sk, struct request_sock *req)
{
	struct known *known = req ? find(sk) : NULL;
	u64 sent;

	if (!known)
		return 0;
	sent = READ(req, tcp_request_sock, snt_synack);
	/* The first sample is the smoothed round trip, times eight. */
	tell(sk, known, CLOCK, 1, sent, sent >> 32, READ(sk, tcp_sock___rec, srtt_us) >> 3, 0);
	return 0;
}

/* The same of one that was answered by a SYN cookie: nothing is known of it but that packet. */
SEC("fexit/tcp_get_cookie_sock")
int BPF_PROG(on_cookie, struct sock *sk, struct sk_buff *skb, struct request_sock *req,
	     struct dst_entry *dst, struct sock *child)
{
	const struct tcp_skb_cb *cb = (const void *)((const char *)skb + OFFSET(sk_buff___rec, cb));
	struct known *known = NULL;
	struct stub it;

	if (!child) {
		it = addressed(skb);
		it.from = READ(cb, tcp_skb_cb, seq);
		it.queue = is_full(sk);
		tell_stub(&it, REQUEST, IGNORED, 0);
		return 0;
	}
	if (is_chosen(READ(child, sock___rec, __sk_common.skc_num),
		      __builtin_bswap16(READ(child, sock___rec, __sk_common.skc_dport))))
		known = open(child, 1);
	if (!known)
		return 0;
	tell_options(child, known, sk);
	tell(child, known, CLOCK, 1, 0, 0, 0, 0);
	return 0;
}

SEC("fentry/tcp_child_process")
int BPF_PROG(on_first, struct sock *parent, struct sock *sk, struct sk_buff *skb)
{
	struct known *known = find(sk);

	if (!known)
		return 0;
	packet(sk, known, 1, skb);
	known->inside |= FIRST;
	return 0;
}

/* While it has the lock still: another CPU may take it behind that. */
BOTH("fexit/tcp_rcv_state_process", after_first, sk, leave(sk, known, FIRST, PACKET),
     struct sock *sk, struct sk_buff *skb)

SEC("fexit/tcp_child_process")
int BPF_PROG(behind_first, struct sock *parent, struct sock *sk, struct sk_buff *skb)
{
	struct known *known = find(sk);

	if (known)
		leave(sk, known, FIRST, PACKET);
	return 0;
}

#endif
