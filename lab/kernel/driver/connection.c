// SPDX-License-Identifier: GPL-2.0
/*
 * Connections: sockets inside the kernel, as the scenario wants them. What arrives is read at
 * once, in the softirq that brought it; what else sockets want waits for the task that runs the
 * workload, in the order in which they became ready.
 *
 * The payload is all zeros and is never copied.
 */
#include <linux/bvec.h>
#include <linux/inet.h>
#include <linux/net.h>
#include <linux/vmalloc.h>
#include <net/inet_connection_sock.h>
#include <net/tcp.h>
#include "lab.h"
#include "script.h"

/* Zeros to send: pages of this order, and so often in one call. */
#define ZEROS_ORDER 5
#define ZEROS (PAGE_SIZE << ZEROS_ORDER)
#define PIECES 16

struct listener {
	struct socket *socket;
	struct list_head ready;
	bool queued;
	u32 host;
};

static struct listener *listeners; /* by host and kind */
static LIST_HEAD(ready_senders);
static LIST_HEAD(ready_listeners);
static struct page *zeros;

static void wake_sender(struct lab_sender *sender)
{
	/* The recording says when. */
	if (lab.replaying)
		return;
	if (!sender->queued) {
		sender->queued = true;
		list_add_tail(&sender->ready, &ready_senders);
	}
	wake_up_process(lab.task);
}

static int swallow(read_descriptor_t *descriptor, struct sk_buff *skb, unsigned int offset,
		   size_t length)
{
	struct lab_sender *sender = descriptor->arg.data;

	length = min(length, descriptor->count);
	descriptor->count -= length;
	sender->arrived += length;
	return length;
}

/*
 * A window that is fixed does not grow. Linux would find that its buffer holds more data than it
 * thought at first, let the window grow by two segments at a time, and acknowledge every segment
 * as long as it does (tcp_grow_window).
 */
static void fix_window(struct sock *sk, u32 window)
{
	struct tcp_sock *tp = tcp_sk(sk);

	tp->window_clamp = window;
	tp->rcv_ssthresh = min(tp->rcv_ssthresh, window);
}

static void on_data(struct sock *sk)
{
	struct lab_sender *sender = sk->sk_user_data;
	read_descriptor_t descriptor = { .arg.data = sender, .count = SIZE_MAX };
	const struct lab_kind *kind;

	if (!sender)
		return;
	kind = lab_kind_of(sender - lab.senders);
	if (kind->read_every_ns)
		lab_read_later(sender);
	else
		tcp_read_sock(sk, &descriptor, swallow);
	if (kind->flags & LAB_ACK_AT_ONCE)
		inet_csk(sk)->icsk_ack.quick = TCP_MAX_QUICKACKS;
	if (kind->receive_window)
		fix_window(sk, kind->receive_window);
	if (!lab.replaying)
		lab_account(sender);
}

int lab_receive(struct lab_sender *sender, u32 bytes)
{
	const struct lab_kind *kind = lab_kind_of(sender - lab.senders);
	read_descriptor_t descriptor = { .arg.data = sender, .count = bytes };
	struct sock *sk = sender->to->sk;
	int read;

	/* As on_data(): no other code has the socket meanwhile. */
	local_bh_disable();
	lab_run_begin(sender - lab.senders, 1, LAB_RUN_RECEIVE, 0, bytes, 0);
	bh_lock_sock(sk);
	read = tcp_read_sock(sk, &descriptor, swallow);
	if (kind->receive_window)
		fix_window(sk, kind->receive_window);
	bh_unlock_sock(sk);
	lab_run_result(read);
	lab_run_end();
	if (!lab.replaying)
		lab_account(sender);
	local_bh_enable();
	return read;
}

static void on_connection(struct sock *sk)
{
	struct listener *listener = sk->sk_user_data;

	/* A child has its listener's function until it is accepted. */
	if (sk->sk_state != TCP_LISTEN || !listener || lab.replaying)
		return;
	if (!listener->queued) {
		listener->queued = true;
		list_add_tail(&listener->ready, &ready_listeners);
	}
	wake_up_process(lab.task);
}

static void on_state(struct sock *sk)
{
	struct lab_sender *sender = sk->sk_user_data;

	if (sender && sk->sk_state == TCP_ESTABLISHED) {
		sender->established = true;
		wake_sender(sender);
	}
}

static void on_space(struct sock *sk)
{
	struct lab_sender *sender = sk->sk_user_data;

	if (sk_stream_wspace(sk) < sk_stream_min_wspace(sk))
		return;
	clear_bit(SOCK_NOSPACE, &sk->sk_socket->flags);
	if (sender)
		wake_sender(sender);
}

/* What a socket of that kind has from the beginning on. */
static int prepare(struct sock *sk, const struct lab_kind *kind, bool accepts)
{
	struct inet_connection_sock *icsk = inet_csk(sk);
	struct tcp_sock *tp = tcp_sk(sk);
	int error;

	lock_sock(sk);
	error = tcp_set_congestion_control(sk, kind->algorithm, false, true);
	if (lab.following) {
		release_sock(sk);
		return error;
	}
	icsk->icsk_rto_min = nsecs_to_jiffies(accepts ? kind->accepted_rto_min_ns :
							kind->rto_min_ns);
	icsk->icsk_rto = max(nsecs_to_jiffies(kind->rto_initial_ns), 1UL);
	if (kind->ack_delay_ns)
		icsk->icsk_delack_max = max(nsecs_to_jiffies(kind->ack_delay_ns), 1UL);
	tp->rx_opt.user_mss = kind->mss;
	if (kind->receive_window) {
		/* Half of a buffer is taken for what the kernel needs beside the data. */
		sk->sk_userlocks |= SOCK_RCVBUF_LOCK;
		sk->sk_rcvbuf = min_t(u64, 2ULL * kind->receive_window, INT_MAX);
		tp->window_clamp = kind->receive_window;
	}
	release_sock(sk);
	return error;
}

int lab_make_socket(u32 host, u32 kind, struct socket **socket)
{
	/* Those that are followed end as an application's do. */
	return __sock_create(lab.hosts[host].net, lab_is_ipv6(kind) ? AF_INET6 : AF_INET,
			     SOCK_STREAM, IPPROTO_TCP, socket, !lab.following);
}

struct socket *lab_listener(u32 host, u32 kind)
{
	return listeners[host * lab.plan.kinds + kind].socket;
}

static int listen(u32 host, u32 number, struct listener *listener)
{
	union lab_address address;
	struct sock *sk;
	int error, length = lab_address(&address, number, LAB_ANY, LAB_LISTEN + number);

	error = lab_make_socket(host, number, &listener->socket);
	if (error)
		return error;
	sk = listener->socket->sk;
	/* Another one may follow, when connections of this one are still in time wait. */
	sk->sk_reuse = lab.following ? SK_CAN_REUSE : SK_NO_REUSE;
	if (!lab.following) {
		sk->sk_user_data = listener;
		sk->sk_data_ready = on_connection;
	}
	error = prepare(sk, &lab.kinds[number], true);
	if (!error)
		error = kernel_bind(listener->socket, &address.any, length);
	if (!error)
		error = kernel_listen(listener->socket, 1 << 20);
	return error;
}

int lab_listen_again(u32 host, u32 kind)
{
	struct listener *listener = &listeners[host * lab.plan.kinds + kind];

	sock_release(listener->socket);
	listener->socket = NULL;
	return listen(host, kind, listener);
}

int lab_zeros(struct bio_vec *pieces, u64 place, size_t length)
{
	int used;

	for (used = 0; length && used < LAB_PAGES; used++) {
		u32 offset = place % PAGE_SIZE, page = place / PAGE_SIZE % LAB_PAGES;
		size_t part = min_t(size_t, length, PAGE_SIZE - offset);

		bvec_set_page(&pieces[used], zeros + 2 * page, part, offset);
		length -= part;
		place += part;
	}
	return length ? -EMSGSIZE : used;
}

static void accept(struct listener *listener)
{
	struct socket *child;

	while (!kernel_accept(listener->socket, &child, O_NONBLOCK)) {
		struct sock *sk = child->sk;
		u32 from = lab_peer_of(sk);
		u32 connection = lab.hosts[from].by_port[ntohs(sk->sk_dport)];
		struct lab_sender *sender = &lab.senders[connection];
		const struct lab_kind *kind = lab_kind_of(connection);

		lab_run_begin(connection, 1, LAB_RUN_ACCEPT, 0, 0, 0);
		sender->to = child;
		lock_sock(sk);
		inet_csk(sk)->icsk_rto_min = nsecs_to_jiffies(kind->accepted_rto_min_ns);
		if (kind->ack_delay_ns)
			inet_csk(sk)->icsk_delack_max =
				max(nsecs_to_jiffies(kind->ack_delay_ns), 1UL);
		if (kind->flags & LAB_ACK_AT_ONCE)
			inet_csk(sk)->icsk_ack.quick = TCP_MAX_QUICKACKS;
		sk->sk_user_data = sender;
		sk->sk_data_ready = on_data;
		/* What came before. */
		local_bh_disable();
		on_data(sk);
		local_bh_enable();
		release_sock(sk);
		lab_run_end();
	}
}

void lab_accept(u32 host, u32 kind)
{
	accept(&listeners[host * lab.plan.kinds + kind]);
}

int lab_bind_connection(u32 number, struct socket **socket)
{
	const struct lab_connection *connection = &lab.connections[number];
	union lab_address address;
	int error, length = lab_address(&address, connection->kind, LAB_ANY,
					le16_to_cpu(connection->port));

	error = lab_make_socket(connection->from, connection->kind, socket);
	if (!error)
		error = prepare((*socket)->sk, lab_kind_of(number), false);
	if (!error)
		error = kernel_bind(*socket, &address.any, length);
	return error;
}

static int open_connection(u32 number)
{
	const struct lab_connection *connection = &lab.connections[number];
	struct lab_sender *sender = &lab.senders[number];
	const u32 kind = connection->kind;
	union lab_address address;
	struct sock *sk;
	int error, length = lab_address(&address, kind, LAB_ANY, le16_to_cpu(connection->port));

	error = sock_create_kern(lab.hosts[connection->from].net,
				 lab_is_ipv6(kind) ? AF_INET6 : AF_INET, SOCK_STREAM,
				 IPPROTO_TCP, &sender->from);
	if (error)
		return error;
	sk = sender->from->sk;
	sk->sk_user_data = sender;
	sk->sk_state_change = on_state;
	sk->sk_write_space = on_space;
	error = prepare(sk, lab_kind_of(number), false);
	if (!error)
		error = kernel_bind(sender->from, &address.any, length);
	if (error)
		return error;
	length = lab_address(&address, kind, connection->to, LAB_LISTEN + kind);
	error = kernel_connect(sender->from, &address.any, length, O_NONBLOCK);
	return error == -EINPROGRESS ? 0 : error;
}

int lab_open_connection(u32 number)
{
	int error;

	lab_run_begin(number, 0, LAB_RUN_CONNECT, 0, 0, 0);
	error = open_connection(number);
	lab_run_end();
	return error;
}

void lab_close_connection(u32 number)
{
	struct lab_sender *sender = &lab.senders[number];
	struct socket *sockets[] = { sender->from, sender->to };
	int end;

	for (end = 0; end < ARRAY_SIZE(sockets); end++) {
		struct sock *sk;

		if (!sockets[end])
			continue;
		sk = sockets[end]->sk;
		lock_sock(sk);
		sk->sk_user_data = NULL;
		tcp_disconnect(sk, 0);
		release_sock(sk);
		sock_release(sockets[end]);
	}
	sender->from = NULL;
	sender->to = NULL;
}

/*
 * The first write of a connection that has been open since the warm-up: the scenario says that
 * it begins without a handshake, so that nothing is known of the path, and that it has its
 * initial window.
 */
static void begin_fresh(struct sock *sk, const struct lab_kind *kind)
{
	struct inet_connection_sock *icsk = inet_csk(sk);
	struct tcp_sock *tp = tcp_sk(sk);

	lock_sock(sk);
	tp->srtt_us = 0;
	tp->mdev_us = jiffies_to_usecs(TCP_TIMEOUT_INIT);
	tp->mdev_max_us = 0;
	tp->rttvar_us = 0;
	minmax_reset(&tp->rtt_min, tcp_jiffies32, ~0U);
	icsk->icsk_rto = max(nsecs_to_jiffies(kind->rto_initial_ns), 1UL);
	/* Not idle: it has not begun. */
	tp->lsndtime = tcp_jiffies32;
	tp->snd_cwnd_stamp = tcp_jiffies32;
	release_sock(sk);
}

static void set_window(struct sock *sk, const struct lab_kind *kind)
{
	struct tcp_sock *tp = tcp_sk(sk);

	lock_sock(sk);
	tcp_snd_cwnd_set(tp, kind->initial_window);
	if (kind->initial_ssthresh != U32_MAX)
		tp->snd_ssthresh = kind->initial_ssthresh;
	release_sock(sk);
}

void lab_begin(struct lab_sender *sender)
{
	const struct lab_kind *kind = lab_kind_of(sender - lab.senders);

	lab_run_begin(sender - lab.senders, 0, LAB_RUN_BEGIN, 0, sender->fresh, 0);
	if (sender->fresh)
		begin_fresh(sender->from->sk, kind);
	set_window(sender->from->sk, kind);
	sender->fresh = false;
	lab_run_end();
}

int lab_send(struct lab_sender *sender, u64 left)
{
	struct msghdr message = {
		.msg_flags = MSG_DONTWAIT | MSG_NOSIGNAL | MSG_SPLICE_PAGES,
	};
	struct bio_vec pieces[PIECES];
	size_t length = 0;
	int used = 0, sent;

	while (left && used < PIECES) {
		size_t part = min_t(u64, left, ZEROS);

		bvec_set_page(&pieces[used++], zeros, part, 0);
		length += part;
		left -= part;
	}
	iov_iter_bvec(&message.msg_iter, ITER_SOURCE, pieces, used, length);
	lab_run_begin(sender - lab.senders, 0, LAB_RUN_SEND, 0, length, 0);
	sent = sock_sendmsg(sender->from, &message);
	lab_run_result(sent);
	lab_run_end();
	return sent;
}

void lab_write_more(struct lab_sender *sender)
{
	if (!sender->established || sender->written == sender->wanted)
		return;
	if (!sender->written)
		lab_begin(sender);
	while (sender->written < sender->wanted) {
		int sent = lab_send(sender, sender->wanted - sender->written);

		if (sent == -EAGAIN)
			return;
		if (sent < 0) {
			pr_err("slowpath-lab: connection %td cannot be written: %d\n",
			       sender - lab.senders, sent);
			lab.failed = true;
			return;
		}
		sender->written += sent;
	}
}

void lab_serve_ready(void)
{
	struct lab_sender *sender;
	struct listener *listener;

	for (;;) {
		local_bh_disable();
		listener = list_first_entry_or_null(&ready_listeners, struct listener, ready);
		if (listener) {
			list_del(&listener->ready);
			listener->queued = false;
		}
		local_bh_enable();
		if (!listener)
			break;
		accept(listener);
	}
	for (;;) {
		local_bh_disable();
		sender = list_first_entry_or_null(&ready_senders, struct lab_sender, ready);
		if (sender) {
			list_del(&sender->ready);
			sender->queued = false;
		}
		local_bh_enable();
		if (!sender)
			break;
		lab_write_more(sender);
	}
}

bool lab_is_ready(void)
{
	return !list_empty(&ready_listeners) || !list_empty(&ready_senders);
}

int lab_make_connections(void)
{
	u32 host, kind, number;
	int error;

	zeros = alloc_pages(GFP_KERNEL | __GFP_COMP | __GFP_ZERO, ZEROS_ORDER);
	lab.senders = vcalloc(max(lab.plan.connections, 1U), sizeof(*lab.senders));
	listeners = vcalloc(lab.plan.hosts * lab.plan.kinds, sizeof(*listeners));
	if (!zeros || !lab.senders || !listeners)
		return -ENOMEM;
	for (number = 0; number < lab.plan.connections; number++) {
		lab.senders[number].first = U32_MAX;
		timerqueue_init(&lab.senders[number].again);
		timerqueue_init(&lab.senders[number].reading);
	}
	for (host = 0; host < lab.plan.hosts; host++) {
		for (kind = 0; kind < lab.plan.kinds; kind++) {
			error = listen(host, kind, &listeners[host * lab.plan.kinds + kind]);
			if (error) {
				pr_err("slowpath-lab: host %u cannot listen (%s): %d\n", host,
				       lab.kinds[kind].algorithm, error);
				return error;
			}
		}
	}
	return 0;
}
