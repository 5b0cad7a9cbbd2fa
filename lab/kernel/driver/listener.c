// SPDX-License-Identifier: GPL-2.0
/*
 * The listener of a recording that is followed: it has this one connection, and the recorded one
 * had others, which waited to be accepted. Where that mattered the recording says so.
 */
#include <net/inet_connection_sock.h>
#include <net/sock.h>
#include "lab.h"
#include "replay.h"

static void sent_again_less_often(struct sock *sk, const struct lab_run_record *record, u32 tries,
				  void (*run)(const struct lab_run_record *record))
{
	u8 usual = inet_csk(sk)->icsk_syn_retries;

	inet_csk(sk)->icsk_syn_retries = min_t(u32, tries, U8_MAX);
	run(record);
	inet_csk(sk)->icsk_syn_retries = usual;
}

static void with_full_queue(struct sock *sk, const struct lab_run_record *record,
				 void (*run)(const struct lab_run_record *record))
{
	u32 waiting = sk->sk_ack_backlog;

	WRITE_ONCE(sk->sk_ack_backlog, sk->sk_max_ack_backlog + 1);
	run(record);
	WRITE_ONCE(sk->sk_ack_backlog, waiting);
}

static void answered_by_cookie(struct sock *sk, const struct lab_run_record *record,
			       void (*run)(const struct lab_run_record *record))
{
	struct net *net = sock_net(sk);

	net->ipv4.sysctl_tcp_syncookies = 2;
	run(record);
	/* The last packet of the handshake is to be taken for what it is. */
	net->ipv4.sysctl_tcp_syncookies = 1;
}

void lab_run_with_queue(const struct lab_run_record *record,
			void (*run)(const struct lab_run_record *record))
{
	const u32 kind = lab.connections[replay.connection].kind;
	struct sock *sk;
	u32 recorded;

	if (!lab.following || !record->end ||
	    !lab_recorded(LAB_DECISION_REFUSED, LAB_LISTENER, &recorded))
		return run(record);
	sk = lab_listener(1, kind)->sk;
	if (record->kind == LAB_RUN_REQUEST_TIMER)
		sent_again_less_often(sk, record, recorded, run);
	else if (recorded == LAB_QUEUE_COOKIE)
		answered_by_cookie(sk, record, run);
	else
		with_full_queue(sk, record, run);
}
