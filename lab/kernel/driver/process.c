// SPDX-License-Identifier: GPL-2.0
/*
 * For comparison: packets go through a process inside, which holds the switch model. It reads
 * and writes them one by one from /proc/slowpath-lab, as it would from TUN devices, but from one
 * file for all hosts and with what the model asks for already found.
 */
#include <linux/completion.h>
#include <linux/ip.h>
#include <linux/poll.h>
#include <linux/proc_fs.h>
#include <linux/uaccess.h>
#include "lab.h"

static DECLARE_COMPLETION(opened);
static DECLARE_WAIT_QUEUE_HEAD(waiting);
static struct sk_buff_head outgoing;

void lab_process_send(struct sk_buff *skb, u32 host, const struct slowpath_packet *packet)
{
	struct lab_packet_head *head = (struct lab_packet_head *)skb->cb;

	BUILD_BUG_ON(sizeof(*head) > sizeof(skb->cb));
	*head = (struct lab_packet_head){
		.handle = packet->handle,
		.flow = packet->flow,
		.bytes = packet->bytes,
		.destination = packet->destination,
		.class_ = packet->class_,
		.ttl = packet->ttl,
		.ecn = packet->ecn,
		.tag = packet->tag,
		.host = host,
		.length = skb->len,
	};
	skb_orphan(skb);
	__skb_queue_tail(&outgoing, skb);
	wake_up_interruptible(&waiting);
}

static ssize_t lab_read(struct file *file, char __user *to, size_t room, loff_t *at)
{
	struct sk_buff *skb;
	struct lab_packet_head head;
	struct iov_iter iter;
	int error;

	local_bh_disable();
	skb = __skb_dequeue(&outgoing);
	local_bh_enable();
	if (!skb)
		return -EAGAIN;
	head = *(struct lab_packet_head *)skb->cb;
	error = -EMSGSIZE;
	if (room >= sizeof(head) + skb->len) {
		error = copy_to_user(to, &head, sizeof(head)) ? -EFAULT : 0;
		if (!error)
			error = import_ubuf(ITER_DEST, to + sizeof(head), skb->len, &iter);
		if (!error)
			error = skb_copy_datagram_iter(skb, 0, &iter, skb->len);
	}
	kfree_skb(skb);
	return error ? error : sizeof(head) + head.length;
}

static ssize_t lab_write(struct file *file, const char __user *from, size_t length, loff_t *at)
{
	struct slowpath_packet packet = {};
	struct lab_packet_head head;
	struct sk_buff *skb;

	if (length < sizeof(head) + sizeof(struct iphdr))
		return -EINVAL;
	if (copy_from_user(&head, from, sizeof(head)))
		return -EFAULT;
	if (head.destination >= lab.plan.hosts || head.length != length - sizeof(head))
		return -EINVAL;
	skb = alloc_skb(head.length + NET_SKB_PAD, GFP_KERNEL);
	if (!skb)
		return -ENOMEM;
	skb_reserve(skb, NET_SKB_PAD);
	if (copy_from_user(skb_put(skb, head.length), from + sizeof(head), head.length)) {
		kfree_skb(skb);
		return -EFAULT;
	}
	skb_reset_network_header(skb);
	packet.destination = head.destination;
	packet.ttl = head.ttl;
	packet.ecn = head.ecn;
	local_bh_disable();
	lab_deliver(skb, &packet);
	local_bh_enable();
	return length;
}

static __poll_t lab_poll(struct file *file, struct poll_table_struct *table)
{
	poll_wait(file, &waiting, table);
	return skb_queue_empty(&outgoing) ? 0 : EPOLLIN;
}

static int lab_file_open(struct inode *inode, struct file *file)
{
	complete(&opened);
	return 0;
}

static const struct proc_ops lab_file_ops = {
	.proc_open = lab_file_open,
	.proc_read = lab_read,
	.proc_write = lab_write,
	.proc_poll = lab_poll,
};

int lab_make_process_path(void)
{
	__skb_queue_head_init(&outgoing);
	return proc_create("slowpath-lab", 0600, NULL, &lab_file_ops) ? 0 : -ENOMEM;
}

void lab_wait_for_process(void)
{
	wait_for_completion(&opened);
}
