// SPDX-License-Identifier: GPL-2.0
/*
 * Files of the run: the plan in, captures, events and results out. Calls of the machine's own
 * kernel, in large pieces; none of them is noticed by virtual time.
 */
#include <linux/gfp.h>
#include <linux/ip.h>
#include <linux/ipv6.h>
#include <linux/tcp.h>
#include <linux/vmalloc.h>
#include <net/checksum.h>
#include <net/ip6_checksum.h>
#include <net/slowpath_lab.h>
#include <net/tcp.h>
#include <os.h>
#include "lab.h"

/* Pages of this order are where the machine's kernel can reach them. */
#define PIECE_ORDER 4
#define PIECE (PAGE_SIZE << PIECE_ORDER)

/* pcap with nanoseconds, and packets that begin with IP: LINKTYPE_RAW. */
#define PCAP_MAGIC 0xa1b23c4du
#define LINKTYPE_RAW 101

struct pcap_header {
	u32 magic;
	u16 major;
	u16 minor;
	s32 zone;
	u32 accuracy;
	u32 snap;
	u32 link;
};

struct pcap_packet {
	u32 seconds;
	u32 nanoseconds;
	u32 captured;
	u32 length;
};

static void flush(struct lab_file *file)
{
	size_t done = 0;

	while (done < file->used) {
		int wrote = os_write_file(file->fd, file->buffer + done, file->used - done);

		if (wrote <= 0) {
			if (!lab.failed)
				pr_err("slowpath-lab: cannot write results: %d\n", wrote);
			lab.failed = true;
			lab.lost_records++;
			break;
		}
		done += wrote;
	}
	file->used = 0;
}

int lab_open(struct lab_file *file, const char *name, size_t room)
{
	int order = get_order(room);

	file->fd = os_open_file(name, of_create(of_trunc(of_write(OPENFLAGS()))), 0644);
	if (file->fd < 0) {
		pr_err("slowpath-lab: cannot create %s: %d\n", name, file->fd);
		return file->fd;
	}
	file->buffer = (char *)__get_free_pages(GFP_KERNEL, order);
	if (!file->buffer)
		return -ENOMEM;
	file->room = PAGE_SIZE << order;
	file->used = 0;
	return 0;
}

void lab_put(struct lab_file *file, const void *data, size_t length)
{
	while (length) {
		size_t part = min(length, file->room - file->used);

		memcpy(file->buffer + file->used, data, part);
		file->used += part;
		data += part;
		length -= part;
		if (file->used == file->room)
			flush(file);
	}
}

void lab_close(struct lab_file *file)
{
	if (!file->buffer)
		return;
	flush(file);
	os_close_file(file->fd);
}

/* As much as there should be, or an error. */
static int read_all(int fd, void *piece, void *to, size_t length)
{
	while (length) {
		int got = os_read_file(fd, piece, min(length, PIECE));

		if (got <= 0)
			return got ? got : -EPIPE;
		memcpy(to, piece, got);
		to += got;
		length -= got;
	}
	return 0;
}

void *lab_read_array(int fd, void *piece, size_t count, size_t size, int *error)
{
	void *array;

	if (*error)
		return NULL;
	array = vmalloc(max_t(size_t, count * size, 1));
	*error = array ? read_all(fd, piece, array, count * size) : -ENOMEM;
	return array;
}

void *lab_piece(void)
{
	return (void *)__get_free_pages(GFP_KERNEL, PIECE_ORDER);
}

int lab_read_plan(void)
{
	struct lab_plan *plan = &lab.plan;
	void *piece = lab_piece();
	int error, fd;

	if (!piece)
		return -ENOMEM;
	fd = os_open_file("plan.bin", of_read(OPENFLAGS()), 0);
	if (fd < 0)
		return fd;
	error = read_all(fd, piece, plan, sizeof(*plan));
	if (!error && (plan->magic != LAB_MAGIC || plan->version != LAB_FORMAT))
		error = -EINVAL;
	lab.kinds = lab_read_array(fd, piece, plan->kinds, sizeof(*lab.kinds), &error);
	lab.connections = lab_read_array(fd, piece, plan->connections,
				     sizeof(*lab.connections), &error);
	lab.flows = lab_read_array(fd, piece, plan->flows, sizeof(*lab.flows), &error);
	lab.watches = lab_read_array(fd, piece, plan->watched, sizeof(*lab.watches), &error);
	lab.fabric_bytes = plan->fabric;
	lab.fabric_plan = lab_read_array(fd, piece, plan->fabric, 1, &error);
	os_close_file(fd);
	free_pages((unsigned long)piece, PIECE_ORDER);
	return error;
}

int lab_open_capture(struct lab_host *host)
{
	const struct pcap_header header = {
		.magic = PCAP_MAGIC,
		.major = 2,
		.minor = 4,
		.snap = lab.plan.snap,
		.link = LINKTYPE_RAW,
	};
	char name[32];
	int error;

	snprintf(name, sizeof(name), "capture-%u.pcap", host->number);
	error = lab_open(&host->capture, name, PIECE);
	if (!error)
		lab_put(&host->capture, &header, sizeof(header));
	return error;
}

/*
 * The checksum that the network card of a real host would fill in. The payload is all zeros
 * (see workload.c), so that the header decides it.
 */
static void finish_checksum(u8 *packet, size_t kept, size_t length)
{
	struct iphdr *ip = (struct iphdr *)packet;
	struct ipv6hdr *ipv6 = ip->version == 6 ? (struct ipv6hdr *)packet : NULL;
	size_t ip_length = ipv6 ? sizeof(*ipv6) : ip->ihl * 4;
	struct tcphdr *tcp = (struct tcphdr *)(packet + ip_length);
	size_t header;

	if (kept < ip_length + sizeof(*tcp) ||
	    (ipv6 ? ipv6->nexthdr : ip->protocol) != IPPROTO_TCP)
		return;
	header = tcp->doff * 4;
	if (kept < ip_length + header)
		return;
	tcp->check = 0;
	if (ipv6)
		tcp->check = csum_ipv6_magic(&ipv6->saddr, &ipv6->daddr, length - ip_length,
					     IPPROTO_TCP, csum_partial(tcp, header, 0));
	else
		tcp->check = tcp_v4_check(length - ip_length, ip->saddr, ip->daddr,
					  csum_partial(tcp, header, 0));
}

void lab_capture(struct lab_host *host, const struct sk_buff *skb, bool partial)
{
	struct lab_file *file = &host->capture;
	/* Of a replay: the recording's own clock. */
	u64 ns = lab.replaying ? slowpath_replay_ns :
		 LAB_EPOCH_NS + div_s64(lab_scenario_time(lab_network_time()), PS_PER_NS);
	struct {
		struct pcap_packet packet;
		u8 bytes[1600];
	} record;
	u32 kept = min3((u32)lab.plan.snap, skb->len, (u32)sizeof(record.bytes));
	u32 rest;

	if (skb_copy_bits(skb, 0, record.bytes, kept))
		return;
	record.packet.seconds = div_u64_rem(ns, NSEC_PER_SEC, &rest);
	record.packet.nanoseconds = rest;
	record.packet.captured = kept;
	record.packet.length = skb->len;
	if (partial)
		finish_checksum(record.bytes, kept, skb->len);
	lab_put(file, &record, sizeof(record.packet) + kept);
	lab.captured++;
}

void lab_event(const struct slowpath_fabric_event *source, u8 kind)
{
	struct lab_event event = {
		.at = lab_scenario_time(source->at),
		.node = source->node,
		.port = source->port,
		.kind = kind,
		.packets = source->depth.packets,
		.bytes = source->depth.bytes,
		.connection = U32_MAX,
	};

	if (!(lab.plan.flags & LAB_EVENTS))
		return;
	if (kind == LAB_DROPPED)
		event.cause = source->cause;
	else if (kind == LAB_DETOURED)
		event.cause = source->to;
	if (kind != LAB_QUEUE) {
		const struct sk_buff *skb = (const void *)(uintptr_t)source->packet.handle;

		event.connection = skb->mark >> 1;
		event.reply = skb->mark & 1;
		event.tag = source->packet.tag;
		event.length = source->packet.bytes;
	}
	lab_put(&lab.events, &event, sizeof(event));
}

int lab_write_results(u64 end)
{
	struct slowpath_fabric_counts counts = {};
	struct lab_summary summary = {
		.magic = LAB_MAGIC,
		.version = LAB_FORMAT,
		.end = end,
	};
	struct lab_file flows = {}, out = {};
	int error, host, line;

	error = lab_open(&flows, "flows.bin", PIECE);
	if (error)
		return error;
	lab_put(&flows, lab.results, lab.plan.flows * sizeof(*lab.results));
	lab_close(&flows);
	lab_close(&lab.events);
	lab_close(&lab.series);
	lab_close(&lab.handlers);
	for (host = 0; host < lab.plan.hosts; host++)
		lab_close(&lab.hosts[host].capture);
	if (lab.fabric) {
		slowpath_fabric_counts(lab.fabric, &counts);
	} else {
		/* The process does not report what it dropped. */
		counts.sent = lab.host_packets;
		counts.delivered = lab.delivered;
		counts.dropped = counts.sent - counts.delivered;
	}
	summary.sent = counts.sent;
	summary.copied = counts.copies;
	summary.delivered = counts.delivered;
	summary.dropped = counts.dropped;
	summary.inside = counts.inside;
	summary.marked = lab.marked;
	summary.host_packets = lab.host_packets;
	summary.captured = lab.captured;
	summary.lost_records = lab.lost_records;
	summary.corrupted = lab.corrupted;
	summary.most_inside = lab.most_inside;
	memcpy(summary.sent_by_tag, lab.sent_by_tag, sizeof(summary.sent_by_tag));
	memcpy(summary.detoured_by_tag, lab.detoured_by_tag, sizeof(summary.detoured_by_tag));
	summary.complete = !lab.failed;
	error = lab_open(&out, "summary.bin", PIECE);
	if (error)
		return error;
	lab_put(&out, &summary, sizeof(summary));
	for (host = 0; host < lab.plan.hosts; host++) {
		__le64 sent[2] = { lab.hosts[host].sent, lab.hosts[host].sent_bytes };

		lab_put(&out, sent, sizeof(sent));
	}
	for (line = 0; line < lab.plan.lines; line++) {
		struct slowpath_fabric_line counters = {};

		if (lab.fabric)
			slowpath_fabric_line(lab.fabric, line, &counters);
		lab_put(&out, &counters, sizeof(counters));
	}
	lab_close(&out);
	return lab.failed ? -EIO : 0;
}
