// SPDX-License-Identifier: GPL-2.0
/* The calls of a recording that is followed, made as its programs made them. */
#include <linux/bvec.h>
#include <linux/tcp.h>
#include <linux/vmalloc.h>
#include <net/tcp.h>
#include "lab.h"
#include "follow.h"

/* SKB_FRAG_PAGE_ORDER */
#define LARGEST_PAGE 32768
/* Of one call. */
#define LARGEST (64U << 20)

/*
 * The task goes on where the recorded one did, in the page that it fills with data of all its
 * sockets. Another reference keeps that from beginning anew (skb_page_frag_refill()).
 */
void lab_find_page(struct caller *caller)
{
	struct page_frag *own = &current->task_frag;
	u32 fragment = 0, offset, size;

	lab_recorded(LAB_DECISION_FRAGMENT, 0, &fragment);
	offset = (u16)fragment;
	size = fragment >> 16;
	if (own->page && fragment && own->offset == offset && own->size == size &&
	    page_ref_count(own->page) > 1)
		return;
	if (caller->kept)
		put_page(caller->kept);
	caller->kept = NULL;
	if (own->page)
		put_page(own->page);
	own->page = NULL;
	if (!fragment || size > LARGEST_PAGE || offset > size)
		return;
	own->page = alloc_pages(GFP_KERNEL | __GFP_COMP, get_order(size));
	if (!own->page)
		return;
	own->offset = offset;
	own->size = size;
	get_page(own->page);
	caller->kept = own->page;
}

static int make_connection(struct caller *caller)
{
	const struct lab_connection *connection = &lab.connections[replay.connection];
	struct lab_sender *sender = &lab.senders[replay.connection];
	union lab_address address;
	int error, length = lab_address(&address, connection->kind, connection->to,
					LAB_LISTEN + connection->kind);

	if (caller->sk)
		return -EISCONN;
	error = sender->from ? 0 : lab_bind_connection(replay.connection, &sender->from);
	if (error)
		return error;
	caller->sk = sender->from->sk;
	sock_hold(caller->sk);
	/* The recorded one waited, or did not. */
	error = kernel_connect(sender->from, &address.any, length,
			       lab_goes_on(caller) ? 0 : O_NONBLOCK);
	return error == -EINPROGRESS ? 0 : error;
}

static int set_option(struct caller *caller)
{
	struct lab_sender *sender = &lab.senders[replay.connection];
	bool accepts = caller != lab_callers;
	struct socket *socket = accepts ? sender->to : sender->from;
	struct sock *sk = lab_follow_socket(accepts);
	int error;

	if (!socket && accepts && !sk) {
		caller->listener_has_options = true;
		socket = lab_listener(1, lab.connections[replay.connection].kind);
	} else if (!socket && !accepts) {
		error = lab_bind_connection(replay.connection, &sender->from);
		if (error)
			return error;
		socket = sender->from;
	}
	return lab_set_option(caller->call, socket, sk);
}

static int accept(struct caller *caller, struct socket **socket)
{
	struct socket *listener = lab_listener(1, lab.connections[replay.connection].kind);
	int error;

	for (;;) {
		error = kernel_accept(listener, socket, O_NONBLOCK);
		if (error || (*socket)->sk == caller->sk)
			return error;
		/* Left by one that went astray before it was accepted. */
		sock_release(*socket);
		*socket = NULL;
	}
}

/* sendfile() and splice(). */
static int send_pages(struct caller *caller, struct socket *socket)
{
	const struct lab_run_record *call = caller->call;
	struct msghdr message = { .msg_flags = call->more | MSG_NOSIGNAL };
	struct bio_vec pieces[LAB_PAGES];
	u32 offset = 0;
	int used, sent;

	lab_recorded(LAB_DECISION_FRAGMENT, 1, &offset);
	if (offset >= PAGE_SIZE)
		return -EINVAL;
	/* Behind what was sent before, or in another page. */
	if (offset != caller->file % PAGE_SIZE)
		caller->file = round_up(caller->file, PAGE_SIZE) + PAGE_SIZE + offset;
	used = lab_zeros(pieces, caller->file, call->value);
	if (used < 0)
		return used;
	iov_iter_bvec(&message.msg_iter, ITER_SOURCE, pieces, used, call->value);
	sent = sock_sendmsg(socket, &message);
	if (sent > 0)
		caller->file += sent;
	return sent;
}

static int move(struct caller *caller, struct socket *socket, bool receive)
{
	const struct lab_run_record *call = caller->call;
	struct msghdr message = { .msg_flags = call->more | MSG_NOSIGNAL };
	u32 length = call->value;
	struct kvec piece;

	if (!receive && call->more & MSG_SPLICE_PAGES)
		return send_pages(caller, socket);

	if (length > LARGEST)
		return -EMSGSIZE;
	if (length > caller->room) {
		vfree(caller->buffer);
		caller->buffer = vzalloc(length);
		caller->room = caller->buffer ? length : 0;
		if (!caller->buffer)
			return -ENOMEM;
	}
	piece.iov_base = caller->buffer;
	piece.iov_len = length;
	if (receive)
		return kernel_recvmsg(socket, &message, &piece, 1, length, call->more);
	return kernel_sendmsg(socket, &message, &piece, 1, length);
}

int lab_call(struct caller *caller)
{
	struct lab_sender *sender = &lab.senders[replay.connection];
	bool accepted = caller != lab_callers;
	struct socket **socket = accepted ? &sender->to : &sender->from;
	struct socket *closing;
	u8 kind = caller->call->kind;

	if (kind == LAB_RUN_CONNECT && !accepted)
		return make_connection(caller);
	if (kind == LAB_RUN_ACCEPT && accepted && !*socket)
		return accept(caller, socket);
	if (kind == LAB_RUN_OPTION)
		return set_option(caller);
	if (!*socket)
		return -ENOTCONN;
	switch (kind) {
	case LAB_RUN_SEND:
		lab_find_page(caller);
		return move(caller, *socket, false);
	case LAB_RUN_RECEIVE:
		return move(caller, *socket, true);
	case LAB_RUN_SHUTDOWN:
		return kernel_sock_shutdown(*socket, caller->call->value);
	case LAB_RUN_CLOSE:
		closing = *socket;
		*socket = NULL;
		/* As a program that ends: inet_release() does not wait then. */
		if (closing->sk->sk_lingertime && !lab_goes_on(caller))
			sock_reset_flag(closing->sk, SOCK_LINGER);
		sock_release(closing);
		return 0;
	default:
		return -EOPNOTSUPP;
	}
}
