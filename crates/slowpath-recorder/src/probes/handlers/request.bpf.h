/* SPDX-License-Identifier: GPL-2.0 */
/* Connections that have no socket yet, up to the child that the handshake's last packet makes. */
#ifndef SLOWPATH_HANDLERS_REQUEST_H
#define SLOWPATH_HANDLERS_REQUEST_H

#include "packet.bpf.h"
#include "options.bpf.h"

/* Whether no more connections may wait to be accepted (sk_acceptq_is_full()). */
static __always_inline u8 is_full(const void *listener)
{
	return READ(listener, sock___rec, sk_ack_backlog) >
	       READ(listener, sock___rec, sk_max_ack_backlog);
}

/* A packet came for it. */
static __always_inline void put_request(const struct stub *it, u8 request, const void *skb,
					u32 begins, u32 full)
{
	PUT_STUB(it, request_packet, REQUEST_PACKET, e->begins = begins,
		 e->alike = stub_alike(skb), e->id = stub_id(skb), e->ecn = mark(skb),
		 e->request = request, e->full = full);
}

static __always_inline void asked(const void *listener, const void *skb)
{
	struct stub it = addressed(skb);

	put_request(&it, ASKED, skb, 0, is_full(listener));
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
	struct stub it;

	if ((READ(cb, tcp_skb_cb, tcp_flags) & SYN_ACK) != SYN)
		return 0;
	it = stub(req);
	put_request(&it, ASKED_AGAIN, skb, READ(req, tcp_request_sock, rcv_isn), 0);
	return 0;
}

SEC("fexit/tcp_check_req")
int BPF_PROG(on_ignored, struct sock *sk, struct sk_buff *skb, struct request_sock *req,
	     bool fastopen, bool *stolen, struct sock *child)
{
	const struct tcp_skb_cb *cb = (const void *)((const char *)skb + OFFSET(sk_buff___rec, cb));
	struct stub it;

	if (child || (READ(cb, tcp_skb_cb, tcp_flags) & SYN_ACK) != ACK)
		return 0;
	it = stub(req);
	put_request(&it, IGNORED, skb, READ(req, tcp_request_sock, rcv_isn), is_full(sk));
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
	struct stub it = stub(req);

	PUT_STUB(&it, request_timer, REQUEST_TIMER, e->tries = tries(req));
	return 0;
}

/* TCP_SYNACK_COOKIE */
#define COOKIE 2

SEC("fexit/tcp_make_synack")
int BPF_PROG(on_answered, struct sock *sk, struct dst_entry *dst, struct request_sock *req,
	     void *cookie, int type, struct sk_buff *syn, struct sk_buff *skb)
{
	struct stub it;

	if (!skb)
		return 0;
	it = stub(req);
	PUT_STUB(&it, request_answered, REQUEST_ANSWERED,
		 e->clock = READ(skb, sk_buff___rec, tstamp),
		 e->theirs = READ(req, tcp_request_sock, rcv_isn),
		 e->own = READ(req, tcp_request_sock, snt_isn), e->likeness = likeness(skb),
		 e->cookie = type == COOKIE);
	return 0;
}

/* The last packet of the handshake makes the child, which begins with the round trip of the SYN-ACK. */
SEC("fentry/tcp_synack_rtt_meas")
int BPF_PROG(on_child, struct sock *sk, struct request_sock *req)
{
	struct tracked_socket *known = NULL;

	/* Without one: it is looked at again, of a SYN-ACK that was sent again. */
	if (req && is_chosen(READ(sk, sock___rec, __sk_common.skc_num),
		      __builtin_bswap16(READ(sk, sock___rec, __sk_common.skc_dport))))
		known = open(sk, 1);
	if (known)
		put_options(sk, known, listener_of(req));
	return 0;
}

SEC("fexit/tcp_synack_rtt_meas")
int BPF_PROG(on_child_rtt, struct sock *sk, struct request_sock *req)
{
	struct tracked_socket *known = req ? find(sk) : NULL;

	/* The first sample is the smoothed round trip, times eight. */
	if (known)
		PUT(sk, known, child, event, CHILD,
		    e->sent = READ(req, tcp_request_sock, snt_synack),
		    e->round_trip = READ(sk, tcp_sock___rec, srtt_us) >> 3);
	return 0;
}

/* The same of one that was answered by a SYN cookie: nothing is known of it but that packet. */
SEC("fexit/tcp_get_cookie_sock")
int BPF_PROG(on_cookie, struct sock *sk, struct sk_buff *skb, struct request_sock *req,
	     struct dst_entry *dst, struct sock *child)
{
	const struct tcp_skb_cb *cb = (const void *)((const char *)skb + OFFSET(sk_buff___rec, cb));
	struct tracked_socket *known = NULL;
	struct stub it;

	if (!child) {
		it = addressed(skb);
		put_request(&it, IGNORED, skb, READ(cb, tcp_skb_cb, seq), is_full(sk));
		return 0;
	}
	if (is_chosen(READ(child, sock___rec, __sk_common.skc_num),
		      __builtin_bswap16(READ(child, sock___rec, __sk_common.skc_dport))))
		known = open(child, 1);
	if (!known)
		return 0;
	put_options(child, known, sk);
	PUT(child, known, child, event, CHILD, e->sent = 0, e->round_trip = 0);
	return 0;
}

SEC("fentry/tcp_child_process")
int BPF_PROG(on_first, struct sock *parent, struct sock *sk, struct sk_buff *skb)
{
	struct tracked_socket *known = find(sk);

	if (!known)
		return 0;
	packet(sk, known, 1, skb);
	known->inside |= FIRST_PACKET;
	return 0;
}

/* While it has the lock still: another CPU may take it behind that. */
BOTH("fexit/tcp_rcv_state_process", after_first, sk, leave(sk, known, FIRST_PACKET, OF_PACKET),
     struct sock *sk, struct sk_buff *skb)

SEC("fexit/tcp_child_process")
int BPF_PROG(behind_first, struct sock *parent, struct sock *sk, struct sk_buff *skb)
{
	struct tracked_socket *known = find(sk);

	if (known)
		leave(sk, known, FIRST_PACKET, OF_PACKET);
	return 0;
}

#endif
