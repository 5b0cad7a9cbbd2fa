/* SPDX-License-Identifier: GPL-2.0 */
/*
 * TCP sockets on their way through a Unix socket (SCM_RIGHTS): walks the messages that
 * wait in the Unix sockets of the namespace of whoever opens the iterator (iter/unix,
 * Linux 5.15; bpf_loop, 5.17). The lists may change meanwhile: loads are bpf_probe_read_kernel's, which
 * cannot fault, and a socket found by mistake is one that no query asks about.
 */
#include "../connection.bpf.h"

/* Messages of a socket, and files of a message (SCM_MAX_FD), that are looked at. */
#define MESSAGES 1024
#define FILES 253

struct walk {
	struct seq_file *seq;
	struct sk_buff *message;
	struct scm_fp_list *files;
};

static long look_at_file(u32 index, void *context)
{
	struct walk *walk = context;
	struct file *file = 0;
	struct socket *socket;
	struct sock *sk;
	u64 cookie;

	bpf_probe_read_kernel(&file, sizeof(file),
			      (void *)walk->files + bpf_core_field_offset(struct scm_fp_list, fp) +
				      index * sizeof(file));
	if (!file || (BPF_CORE_READ(file, f_inode, i_mode) & S_IFMT) != S_IFSOCK)
		return 0;
	socket = BPF_CORE_READ(file, private_data);
	sk = socket ? BPF_CORE_READ(socket, sk) : 0;
	if (!sk || BPF_CORE_READ(sk, sk_protocol) != IPPROTO_TCP)
		return 0;
	cookie = BPF_CORE_READ(sk, __sk_common.skc_cookie.counter);
	if (cookie)
		bpf_seq_write(walk->seq, &cookie, sizeof(cookie));
	return 0;
}

static long look_at_message(u32 index, void *context)
{
	struct walk *walk = context;
	struct sk_buff *message = walk->message;
	struct unix_skb_parms *parms;
	struct scm_fp_list *files;
	short count = 0;

	if (!message)
		return 1;
	parms = (void *)message + bpf_core_field_offset(struct sk_buff, cb);
	files = BPF_CORE_READ(parms, fp);
	if (files)
		count = BPF_CORE_READ(files, count);
	walk->files = files;
	if (count > 0)
		bpf_loop(count < FILES ? count : FILES, look_at_file, walk, 0);
	walk->message = BPF_CORE_READ(message, next);
	return 0;
}

SEC("iter/unix")
int in_flight(struct bpf_iter__unix *ctx)
{
	struct unix_sock *unix_sock = ctx->unix_sk;
	struct walk walk = {};
	u32 length;

	if (!unix_sock)
		return 0;
	length = unix_sock->sk.sk_receive_queue.qlen;
	walk.seq = ctx->meta->seq;
	walk.message = BPF_CORE_READ(unix_sock, sk.sk_receive_queue.next);
	if (length)
		bpf_loop(length < MESSAGES ? length : MESSAGES, look_at_message, &walk, 0);
	return 0;
}

char LICENSE[] SEC("license") = "GPL";
