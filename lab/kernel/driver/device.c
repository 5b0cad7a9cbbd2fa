// SPDX-License-Identifier: GPL-2.0
/*
 * The hosts, each a network namespace with one device, and the network between them: what a
 * device is given to send goes into the switch model, and what arrives there comes out of the
 * device of its destination.
 *
 * All of it happens on one processor, in process context with softirqs off or in softirqs:
 * nothing here is ever entered twice.
 */
#include <linux/etherdevice.h>
#include <linux/if_arp.h>
#include <linux/inetdevice.h>
#include <linux/ip.h>
#include <linux/ipv6.h>
#include <linux/rtnetlink.h>
#include <linux/tcp.h>
#include <linux/user_namespace.h>
#include <linux/vmalloc.h>
#include <net/inet_ecn.h>
#include <net/ip.h>
#include <net/net_namespace.h>
#include <net/tcp.h>
#include "lab.h"
#include "script.h"

/* A line on the console at least every so many packets, for the user who watches. */
#define SAY_EVERY 65536

/* What is remembered of a packet on its way. */
struct lab_carried {
	u32 destination;
	u32 number;  /* among the packets of its connection's end */
	u32 copies; /* that lines made and that have not come out yet */
	u8 ttl;
	bool marked;
	bool corrupted;
	bool detoured;
	bool partial; /* the sender left its checksum to the device */
};

#define carried(skb) ((struct lab_carried *)(skb)->cb)

static struct sk_buff *skb_of(const struct slowpath_packet *packet)
{
	return (struct sk_buff *)(uintptr_t)packet->handle;
}

/* The packet, or if it is to come out once more, a copy of it. */
static struct sk_buff *take(const struct slowpath_packet *packet)
{
	struct sk_buff *skb = skb_of(packet);

	if (!carried(skb)->copies)
		return skb;
	carried(skb)->copies--;
	return pskb_copy(skb, GFP_ATOMIC);
}

static void on_delivered(const struct slowpath_fabric_event *event)
{
	struct sk_buff *skb = take(&event->packet);

	lab.delivered++;
	lab.inside--;
	if (!skb) {
		lab.failed = true;
		return;
	}
	carried(skb)->destination = event->node;
	carried(skb)->ttl = event->packet.ttl;
	carried(skb)->marked = event->packet.ecn == INET_ECN_CE;
	carried(skb)->corrupted = event->flags & SLOWPATH_FABRIC_WAS_CORRUPTED;
	__skb_queue_tail(&lab.arrived, skb);
}

static void on_dropped(const struct slowpath_fabric_event *event)
{
	struct sk_buff *skb = skb_of(&event->packet);

	lab.dropped++;
	lab.inside--;
	lab_event(event, LAB_DROPPED);
	if (carried(skb)->copies)
		carried(skb)->copies--;
	else
		kfree_skb(skb);
}

/* The device has taken the packet from memory: its socket may count it as sent (TCP small
 * queues). */
static void on_line(const struct slowpath_fabric_event *event)
{
	struct lab_host *host = &lab.hosts[event->node];

	host->sent++;
	host->sent_bytes += event->packet.bytes;
	skb_orphan(skb_of(&event->packet));
}

static bool is_watched(u32 node, u16 port)
{
	u32 i;

	for (i = 0; i < lab.plan.watched; i++)
		if (lab.watches[i].node == node && lab.watches[i].port == port)
			return true;
	return false;
}

static void on_event(void *context, const struct slowpath_fabric_event *event)
{
	switch (event->kind) {
	case SLOWPATH_FABRIC_DELIVERED:
		on_delivered(event);
		break;
	case SLOWPATH_FABRIC_DROPPED:
		on_dropped(event);
		break;
	case SLOWPATH_FABRIC_COPIED:
		carried(skb_of(&event->packet))->copies++;
		lab.inside++;
		break;
	case SLOWPATH_FABRIC_DEQUEUED:
		if (!(event->node & SLOWPATH_FABRIC_SWITCH))
			on_line(event);
		fallthrough;
	case SLOWPATH_FABRIC_ENQUEUED:
		if (!lab.plan.sample_every && is_watched(event->node, event->port))
			lab_event(event, LAB_QUEUE);
		break;
	case SLOWPATH_FABRIC_MARKED:
		lab.marked++;
		lab_event(event, LAB_MARKED);
		break;
	case SLOWPATH_FABRIC_DETOURED:
		if (!carried(skb_of(&event->packet))->detoured)
			lab.detoured_by_tag[event->packet.tag % LAB_TAGS]++;
		carried(skb_of(&event->packet))->detoured = true;
		lab_event(event, LAB_DETOURED);
		break;
	}
}

/* What the network has changed. */
static void write_back(struct sk_buff *skb, const struct lab_carried *carried)
{
	if (ip_hdr(skb)->version == 6) {
		if (carried->marked)
			IP6_ECN_set_ce(skb, ipv6_hdr(skb));
		ipv6_hdr(skb)->hop_limit = carried->ttl;
		skb->protocol = htons(ETH_P_IPV6);
	} else {
		struct iphdr *ip = ip_hdr(skb);

		if (carried->marked)
			IP_ECN_set_ce(ip);
		if (carried->ttl != ip->ttl) {
			csum_replace2(&ip->check, htons(ip->ttl << 8), htons(carried->ttl << 8));
			ip->ttl = carried->ttl;
		}
		skb->protocol = htons(ETH_P_IP);
	}
}

/* Into the device of its destination. */
static void deliver(struct sk_buff *skb)
{
	const struct lab_carried carried = *carried(skb);
	struct lab_host *host = &lab.hosts[carried.destination];
	const u32 connection = skb->mark >> 1;
	const bool reply = skb->mark & 1;

	skb_orphan(skb);
	skb_scrub_packet(skb, true);
	skb_dst_drop(skb);
	write_back(skb, &carried);
	if (lab.plan.flags & LAB_CAPTURE)
		lab_capture(host, skb, carried.partial);
	if (carried.corrupted) {
		/* Its checksum would be found wrong. */
		lab.corrupted++;
		kfree_skb(skb);
		return;
	}
	skb->mark = 0;
	skb->dev = host->dev;
	skb->skb_iif = 0;
	skb->pkt_type = PACKET_HOST;
	/* Nothing on the way changes a byte that the checksum covers. */
	skb->ip_summed = CHECKSUM_UNNECESSARY;
	skb_reset_mac_header(skb);
	dev_sw_netstats_rx_add(host->dev, skb->len);
	lab_run_begin(connection, !reply, LAB_RUN_PACKET, carried.marked ? LAB_RUN_MARKED : 0,
		      carried.number, skb->truesize);
	netif_receive_skb(skb);
	lab_run_end();
}

void lab_deliver_again(struct sk_buff *skb, u32 destination, bool marked)
{
	/* GRO has its own there. */
	memset(carried(skb), 0, sizeof(struct lab_carried));
	carried(skb)->partial = skb->ip_summed == CHECKSUM_PARTIAL;
	carried(skb)->destination = destination;
	carried(skb)->ttl = ip_hdr(skb)->version == 6 ? ipv6_hdr(skb)->hop_limit : ip_hdr(skb)->ttl;
	carried(skb)->marked = marked;
	local_bh_disable();
	deliver(skb);
	local_bh_enable();
}

void lab_deliver(struct sk_buff *skb, const struct slowpath_packet *packet)
{
	struct lab_carried *it = carried(skb);

	memset(it, 0, sizeof(*it));
	it->destination = packet->destination;
	it->ttl = packet->ttl;
	it->marked = packet->ecn == INET_ECN_CE;
	/* It was read without the checksum that its device would have filled in. */
	it->partial = true;
	lab.delivered++;
	deliver(skb);
}

static void arm(void)
{
	u64 next;

	if (lab.inside_timer)
		return;
	next = slowpath_fabric_next(lab.fabric);
	if (!skb_queue_empty(&lab.arrived))
		next = lab_network_time();
	if (next == lab.armed)
		return;
	lab.armed = next;
	if (next == SLOWPATH_NEVER) {
		hrtimer_cancel(&lab.timer);
		return;
	}
	hrtimer_start(&lab.timer,
		      ktime_add_ns(lab.base, div64_u64(next + PS_PER_NS - 1, PS_PER_NS)),
		      HRTIMER_MODE_ABS_SOFT);
}

static enum hrtimer_restart on_timer(struct hrtimer *timer)
{
	u64 now = lab_network_time();
	struct sk_buff *skb;

	lab.inside_timer = true;
	lab.armed = SLOWPATH_NEVER;
	do {
		slowpath_fabric_advance(lab.fabric, now);
		/* Each may make its host send, at this very time. */
		while ((skb = __skb_dequeue(&lab.arrived)))
			deliver(skb);
	} while (slowpath_fabric_next(lab.fabric) <= now);
	lab.inside_timer = false;
	arm();
	return HRTIMER_NORESTART;
}

/* The connection that the packet belongs to, and whether it goes back to its sender. */
static bool find(const struct lab_host *host, const struct lab_headers *headers, u32 *connection,
		 bool *reply)
{
	u16 port = ntohs(headers->tcp->source);

	*reply = port < LAB_LISTEN + lab.plan.kinds;
	if (*reply)
		*connection = lab.hosts[headers->to].by_port[ntohs(headers->tcp->dest)];
	else
		*connection = host->by_port[port];
	return *connection != U32_MAX;
}

static netdev_tx_t lab_xmit(struct sk_buff *skb, struct net_device *dev)
{
	struct lab_host *host = *(struct lab_host **)netdev_priv(dev);
	struct slowpath_packet packet = {};
	const struct lab_connection *connection;
	struct lab_headers headers;
	u32 number;
	bool reply, further;
	u64 now;

	if (!lab_read_headers(skb, &headers) || !find(host, &headers, &number, &reply))
		goto drop;
	connection = &lab.connections[number];
	memset(skb->cb, 0, sizeof(struct lab_carried));
	carried(skb)->partial = skb->ip_summed == CHECKSUM_PARTIAL;
	if (lab.plan.flags & LAB_CAPTURE && !lab.clearing)
		lab_capture(host, skb, carried(skb)->partial);
	skb->mark = number << 1 | reply;
	/* The kernel has cut what is larger than the device says that it takes, as any kernel would (gso_features_check()). */
	further = lab.following && lab.further;
	lab.further = netdev_xmit_more();
	carried(skb)->number = lab.senders[number].sent[reply]++;
	if (further)
		carried(skb)->number = --lab.senders[number].sent[reply] - 1;
	carried(skb)->destination = headers.to;
	packet.handle = (uintptr_t)skb;
	packet.flow = (u32)(connection->key + reply);
	packet.bytes = skb->len + lab.kinds[connection->kind].framing;
	packet.destination = headers.to;
	packet.class_ = connection->class;
	packet.ttl = headers.ttl;
	packet.ecn = headers.traffic_class & INET_ECN_MASK;
	packet.tag = connection->tag;
	dev_sw_netstats_tx_add(dev, 1, skb->len);
	lab.host_packets++;
	lab.sent_by_tag[connection->tag % LAB_TAGS]++;
	lab.most_inside = max(lab.most_inside, ++lab.inside);
	if (lab.host_packets % SAY_EVERY == 0)
		pr_info("slowpath-lab: at %lld ps\n", lab_scenario_time(lab_network_time()));
	if (lab.replaying) {
		/* As a driver without a queue may: its socket gets the code of a queue. */
		int refused = lab_follow_refused(reply, carried(skb)->number);

		lab_replay_sent(skb, number, reply, carried(skb)->number, further);
		return refused;
	}
	if (!lab.fabric) {
		host->sent++;
		host->sent_bytes += packet.bytes;
		lab_process_send(skb, host->number, &packet);
		return NETDEV_TX_OK;
	}
	now = lab_network_time();
	slowpath_fabric_send(lab.fabric, now, host->number, &packet);
	arm();
	return NETDEV_TX_OK;
drop:
	/* Not of the workload: there should be none. */
	pr_warn_once("slowpath-lab: a packet of no connection\n");
	lab.failed = true;
	kfree_skb(skb);
	return NETDEV_TX_OK;
}

static const struct net_device_ops lab_netdev_ops = {
	.ndo_start_xmit = lab_xmit,
	.ndo_get_stats64 = dev_get_tstats64,
};

static void lab_setup(struct net_device *dev)
{
	dev->netdev_ops = &lab_netdev_ops;
	dev->type = ARPHRD_NONE;
	dev->flags = IFF_NOARP;
	dev->priv_flags |= IFF_NO_QUEUE;
	dev->lltx = true;
	dev->pcpu_stat_type = NETDEV_PCPU_STAT_TSTATS;
	dev->tx_queue_len = 0;
	dev->addr_len = 0;
	dev->hard_header_len = 0;
	dev->min_mtu = 68;
	/* That of loopback. */
	dev->max_mtu = 65536;
	dev->mtu = lab.plan.mtu;
	/* No segmentation: what the device sees is what the wire carries. */
	dev->features = NETIF_F_SG | NETIF_F_HW_CSUM | NETIF_F_HIGHDMA;
	/* A stock kernel's were as veth has them. */
	if (lab.plan.flags & LAB_FOLLOW)
		dev->features |= NETIF_F_FRAGLIST | NETIF_F_GSO_SOFTWARE;
	dev->hw_features = dev->features;
	dev->needs_free_netdev = true;
}

static void set_up_namespace(struct net *net)
{
	const struct lab_plan *plan = &lab.plan;
	struct netns_ipv4 *ipv4 = &net->ipv4;

	ipv4->sysctl_tcp_timestamps = plan->timestamps;
	ipv4->sysctl_tcp_sack = plan->sack;
	ipv4->sysctl_tcp_ecn = plan->ecn;
	ipv4->sysctl_tcp_recovery = plan->recovery;
	ipv4->sysctl_tcp_early_retrans = plan->early_retrans;
	ipv4->sysctl_tcp_reordering = plan->reordering;
	ipv4->sysctl_tcp_slow_start_after_idle = plan->slow_start_after_idle;
	ipv4->sysctl_tcp_moderate_rcvbuf = plan->moderate_rcvbuf;
	ipv4->sysctl_tcp_rmem[1] = plan->rmem_default;
	ipv4->sysctl_tcp_rmem[2] = plan->rmem_max;
	/* As of any machine with 1 GB or more; the kernel's own depends on its memory (tcp_init()). */
	ipv4->sysctl_tcp_wmem[2] = SZ_4M;
	ipv4->sysctl_ip_default_ttl = plan->ttl;
	/* A connection learns nothing from those before it. */
	ipv4->sysctl_tcp_nometrics_save = 1;
	if (plan->flags & LAB_FOLLOW)
		return;
	/* All hosts share one processor: with slack a timer of one comes with a packet of another. */
	ipv4->sysctl_tcp_comp_sack_slack_ns = 0;
	ipv4->sysctl_tcp_syncookies = 0;
	ipv4->sysctl_max_syn_backlog = 1 << 20;
	net->core.sysctl_somaxconn = 1 << 20;
	ipv4->sysctl_tcp_keepalive_time = INT_MAX / HZ;
}

static int bring_up(struct net_device *dev)
{
	int error;

	rtnl_lock();
	error = dev_open(dev, NULL);
	rtnl_unlock();
	return error;
}

static int make_host(struct lab_host *host)
{
	struct ifreq request = {};
	struct sockaddr_in *address = (struct sockaddr_in *)&request.ifr_addr;
	int error;

	host->net = copy_net_ns(CLONE_NEWNET, &init_user_ns, &init_net);
	if (IS_ERR(host->net))
		return PTR_ERR(host->net);
	set_up_namespace(host->net);
	if (host->number < ARRAY_SIZE(lab.plan.own) && lab.plan.flags & LAB_REPLAY)
		lab_set_sysctls(host->net, lab.plan.own[host->number]);
	lab_prepare_ipv6(host->net);
	error = bring_up(host->net->loopback_dev);
	if (error)
		return error;
	host->dev = alloc_netdev(sizeof(host), "eth0", NET_NAME_PREDICTABLE, lab_setup);
	if (!host->dev)
		return -ENOMEM;
	*(struct lab_host **)netdev_priv(host->dev) = host;
	dev_net_set(host->dev, host->net);
	if (host->number < ARRAY_SIZE(lab.plan.own) && lab.plan.flags & LAB_REPLAY) {
		host->dev->mtu = lab.plan.own_mtu[host->number] & ~LAB_CUTS;
		if (lab.plan.own_mtu[host->number] & LAB_CUTS)
			host->dev->features &= ~NETIF_F_ALL_TSO;
	}
	error = register_netdev(host->dev);
	if (error)
		return error;
	error = bring_up(host->dev);
	if (error)
		return error;
	strscpy(request.ifr_name, "eth0", sizeof(request.ifr_name));
	address->sin_family = AF_INET;
	address->sin_addr.s_addr = htonl(LAB_NETWORK + 1 + host->number);
	/* The network is 10.0.0.0/8, as the address is of class A. */
	error = devinet_ioctl(host->net, SIOCSIFADDR, &request);
	/* One neighbour entry for all hosts, which has no address to find out. */
	host->dev->flags |= IFF_POINTOPOINT;
	return error;
}

int lab_make_hosts(void)
{
	u32 number, connection;
	int error;

	lab.hosts = vcalloc(lab.plan.hosts, sizeof(*lab.hosts));
	if (!lab.hosts)
		return -ENOMEM;
	for (number = 0; number < lab.plan.hosts; number++) {
		struct lab_host *host = &lab.hosts[number];

		host->number = number;
		host->by_port = vmalloc(sizeof(u32) << 16);
		if (!host->by_port)
			return -ENOMEM;
		memset(host->by_port, 0xff, sizeof(u32) << 16);
		error = make_host(host);
		if (!error && lab.plan.flags & LAB_CAPTURE)
			error = lab_open_capture(host);
		if (error) {
			pr_err("slowpath-lab: host %u cannot be made: %d\n", number, error);
			return error;
		}
	}
	error = lab_add_ipv6();
	if (error) {
		pr_err("slowpath-lab: hosts cannot have addresses of IPv6: %d\n", error);
		return error;
	}
	for (connection = 0; connection < lab.plan.connections; connection++) {
		const struct lab_connection *it = &lab.connections[connection];

		if (it->from >= lab.plan.hosts || it->to >= lab.plan.hosts ||
		    it->kind >= lab.plan.kinds)
			return -EINVAL;
		lab.hosts[it->from].by_port[it->port] = connection;
	}
	return 0;
}

int lab_make_network(void)
{
	int problem = 0;
	u32 kinds;

	__skb_queue_head_init(&lab.arrived);
	if (lab.plan.flags & LAB_REPLAY)
		return 0;
	if (lab.plan.flags & LAB_THROUGH_PROCESS)
		return lab_make_process_path();
	lab.armed = SLOWPATH_NEVER;
	hrtimer_init(&lab.timer, CLOCK_MONOTONIC, HRTIMER_MODE_ABS_SOFT);
	lab.timer.function = on_timer;
	lab.fabric = slowpath_fabric_new(lab.fabric_plan, lab.fabric_bytes, &problem);
	if (!lab.fabric) {
		pr_err("slowpath-lab: the network is impossible: %d\n", problem);
		return -EINVAL;
	}
	kinds = BIT(SLOWPATH_FABRIC_DELIVERED) | BIT(SLOWPATH_FABRIC_DROPPED) |
		BIT(SLOWPATH_FABRIC_COPIED) | BIT(SLOWPATH_FABRIC_DEQUEUED) |
		BIT(SLOWPATH_FABRIC_MARKED) | BIT(SLOWPATH_FABRIC_DETOURED);
	if (lab.plan.watched && !lab.plan.sample_every)
		kinds |= BIT(SLOWPATH_FABRIC_ENQUEUED);
	slowpath_fabric_observe(lab.fabric, on_event, NULL, kinds);
	return 0;
}

bool lab_network_is_empty(void)
{
	if (!lab.fabric)
		return true;
	return slowpath_fabric_next(lab.fabric) == SLOWPATH_NEVER &&
	       skb_queue_empty(&lab.arrived);
}

void lab_sample_queues(void)
{
	struct slowpath_fabric_event sample = { .port = 0 };
	u32 i;

	if (!lab.fabric)
		return;
	local_bh_disable();
	sample.at = lab_network_time();
	for (i = 0; i < lab.plan.watched; i++) {
		sample.node = lab.watches[i].node;
		sample.port = lab.watches[i].port;
		slowpath_fabric_depth(lab.fabric, sample.node, sample.port, &sample.depth);
		lab_event(&sample, LAB_QUEUE);
	}
	local_bh_enable();
}

void *slowpath_alloc(size_t size, size_t align)
{
	/* Small pieces are aligned to their size if that is a power of two, large ones to pages. */
	if (align > PAGE_SIZE)
		return NULL;
	if (align > ARCH_KMALLOC_MINALIGN && size <= KMALLOC_MAX_CACHE_SIZE)
		size = roundup_pow_of_two(max(size, align));
	return kvmalloc(size, in_interrupt() || irqs_disabled() ? GFP_ATOMIC : GFP_KERNEL);
}

void slowpath_dealloc(void *memory, size_t size, size_t align)
{
	kvfree(memory);
}

void slowpath_panic(const char *file, size_t length, u32 line)
{
	panic("slowpath-lab: the switch model panicked at %.*s:%u", (int)length, file, line);
}
