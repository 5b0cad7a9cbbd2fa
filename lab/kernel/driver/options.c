// SPDX-License-Identifier: GPL-2.0
/*
 * Options of the sockets of a recording that is followed: each is set as the recording says. One
 * that was set before there was a socket is the listener's; the next connection gets a listener
 * without any options.
 */
#include <linux/net.h>
#include <linux/tcp.h>
#include <net/sock.h>
#include <net/tcp.h>
#include "lab.h"
#include "replay.h"

/* Beside those of sockets: IP has no options with these numbers. See slowpath-replay's recording/options.rs. */
#define LOCKED 0    /* had the lock, and did nothing */
#define NO_ROOM 256 /* a poll found no room */

static u16 name_of(const struct lab_run_record *record)
{
	return record->value;
}

static u16 level_of(const struct lab_run_record *record)
{
	return record->value >> 16;
}

static int size_of(const struct lab_run_record *record, const char *value)
{
	switch (level_of(record) << 16 | name_of(record)) {
	case SOL_SOCKET << 16 | SO_LINGER:
	case SOL_SOCKET << 16 | SO_MAX_PACING_RATE:
		return sizeof(u64);
	case SOL_TCP << 16 | TCP_CONGESTION:
		return strnlen(value, sizeof(u64));
	default:
		return sizeof(u32);
	}
}

void slowpath_metrics(struct sock *sk);

/* The cache of what earlier connections left is empty here. */
void slowpath_metrics(struct sock *sk)
{
	struct tcp_sock *tp = tcp_sk(sk);
	u32 value;

	if (lab_recorded(LAB_DECISION_METRICS, 0, &value)) {
		inet_csk(sk)->icsk_rto = value;
		/* Without a sample of the handshake its default is taken only if none had left one. */
		if (!tp->srtt_us && value != TCP_TIMEOUT_FALLBACK) {
			tp->mdev_us = jiffies_to_usecs(TCP_TIMEOUT_INIT);
			tp->mdev_max_us = tp->rttvar_us = 0;
		}
	}
	if (lab_recorded(LAB_DECISION_METRICS, 1, &value))
		tp->reordering = value;
	if (lab_recorded(LAB_DECISION_METRICS, 2, &value))
		tp->snd_ssthresh = value;
	if (lab_recorded(LAB_DECISION_METRICS, 3, &value))
		tp->snd_cwnd_clamp = value;
}

int lab_set_option(const struct lab_run_record *record, struct socket *socket, struct sock *sk)
{
	u64 value = record->result | (u64)record->more << 32;

	if (level_of(record) == SOL_IP && name_of(record) == LOCKED) {
		if (sk) {
			lock_sock(sk);
			release_sock(sk);
		}
		return 0;
	}
	if (!socket)
		return -ENOTCONN;
	if (level_of(record) == SOL_IP && name_of(record) == NO_ROOM) {
		set_bit(SOCK_NOSPACE, &socket->flags);
		return 0;
	}
	return do_sock_setsockopt(socket, false, level_of(record), name_of(record),
				  KERNEL_SOCKPTR(&value), size_of(record, (char *)&value));
}
