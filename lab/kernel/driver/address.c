// SPDX-License-Identifier: GPL-2.0
/*
 * Hosts' addresses. Each has one of IPv4, and if there are connections of IPv6 one more, without anything that would send by
 * itself: no duplicate address detection, no solicitations, no link-local address. Their device needs no neighbours.
 */
#include <linux/delay.h>
#include <linux/ip.h>
#include <linux/ipv6.h>
#include <linux/tcp.h>
#include <net/addrconf.h>
#include <net/inet6_hashtables.h>
#include <net/inet_hashtables.h>
#include <net/ip6_fib.h>
#include <net/ip6_route.h>
#include <net/ipv6.h>
#include <net/tcp.h>
#include "lab.h"

/* fd00::/64 (RFC 4193): host n has the address of IPv4 in the last word. */
#define LAB_PREFIX 0xfd000000u
#define LAB_PREFIX_LENGTH 64

/* Until the kernel's own worker has made a new address known. */
#define SETTLE_MS 20

static struct in6_addr ipv6_of(u32 host)
{
	struct in6_addr address = {};

	address.s6_addr32[0] = htonl(LAB_PREFIX);
	address.s6_addr32[3] = htonl(LAB_NETWORK + 1 + host);
	return address;
}

bool lab_is_ipv6(u32 kind)
{
	return lab.kinds[kind].flags & LAB_IPV6;
}

static bool has_ipv6(void)
{
	u32 kind;

	for (kind = 0; kind < lab.plan.kinds; kind++)
		if (lab_is_ipv6(kind))
			return true;
	return false;
}

int lab_address(union lab_address *address, u32 kind, u32 host, u16 port)
{
	memset(address, 0, sizeof(*address));
	if (lab_is_ipv6(kind)) {
		address->ipv6.sin6_family = AF_INET6;
		address->ipv6.sin6_port = htons(port);
		if (host != LAB_ANY)
			address->ipv6.sin6_addr = ipv6_of(host);
		return sizeof(address->ipv6);
	}
	address->ipv4.sin_family = AF_INET;
	address->ipv4.sin_port = htons(port);
	if (host != LAB_ANY)
		address->ipv4.sin_addr.s_addr = htonl(LAB_NETWORK + 1 + host);
	return sizeof(address->ipv4);
}

u32 lab_peer_of(const struct sock *sk)
{
	__be32 last = sk->sk_family == AF_INET6 ? sk->sk_v6_daddr.s6_addr32[3] : sk->sk_daddr;

	return ntohl(last) - LAB_NETWORK - 1;
}

struct sock *lab_look_up(u32 number)
{
	const struct lab_connection *connection = &lab.connections[number];
	const struct lab_host *host = &lab.hosts[connection->to];
	struct inet_hashinfo *table = host->net->ipv4.tcp_death_row.hashinfo;
	const u16 listens = LAB_LISTEN + connection->kind;
	const __be16 port = htons(le16_to_cpu(connection->port));

	if (lab_is_ipv6(connection->kind)) {
		const struct in6_addr from = ipv6_of(connection->from);
		const struct in6_addr to = ipv6_of(connection->to);

		return __inet6_lookup_established(host->net, table, &from, port, &to, listens,
						  host->dev->ifindex, 0);
	}
	return __inet_lookup_established(host->net, table,
					 htonl(LAB_NETWORK + 1 + connection->from), port,
					 htonl(LAB_NETWORK + 1 + connection->to), listens,
					 host->dev->ifindex, 0);
}

bool lab_read_headers(struct sk_buff *skb, struct lab_headers *headers)
{
	__be32 to;

	skb_reset_network_header(skb);
	if (skb->protocol == htons(ETH_P_IPV6)) {
		const struct ipv6hdr *ip;

		if (!pskb_may_pull(skb, sizeof(*ip) + sizeof(struct tcphdr)))
			return false;
		ip = ipv6_hdr(skb);
		if (ip->nexthdr != IPPROTO_TCP)
			return false;
		to = ip->daddr.s6_addr32[3];
		headers->ttl = ip->hop_limit;
		headers->traffic_class = ipv6_get_dsfield(ip);
		headers->tcp = (const void *)(ip + 1);
	} else {
		const struct iphdr *ip;

		if (skb->protocol != htons(ETH_P_IP) ||
		    !pskb_may_pull(skb, sizeof(*ip) + sizeof(struct tcphdr)))
			return false;
		ip = ip_hdr(skb);
		if (ip->protocol != IPPROTO_TCP)
			return false;
		to = ip->daddr;
		headers->ttl = ip->ttl;
		headers->traffic_class = ip->tos;
		headers->tcp = (const void *)ip + 4 * ip->ihl;
	}
	headers->to = ntohl(to) - LAB_NETWORK - 1;
	return headers->to < lab.plan.hosts;
}

void lab_prepare_ipv6(struct net *net)
{
	struct ipv6_devconf *settings = net->ipv6.devconf_dflt;

	if (!has_ipv6())
		return;
	settings->addr_gen_mode = IN6_ADDR_GEN_MODE_NONE;
	settings->accept_ra = 0;
	settings->rtr_solicits = 0;
	settings->accept_dad = 0;
}

static int add_address(struct lab_host *host)
{
	const struct prefix_info prefix = { .prefix_len = LAB_PREFIX_LENGTH };
	const struct in6_addr address = ipv6_of(host->number);
	struct fib6_config route = {
		.fc_table = RT6_TABLE_MAIN,
		.fc_metric = IP6_RT_PRIO_ADDRCONF,
		.fc_ifindex = host->dev->ifindex,
		.fc_dst_len = LAB_PREFIX_LENGTH,
		.fc_flags = RTF_UP,
		.fc_protocol = RTPROT_KERNEL,
		.fc_type = RTN_UNICAST,
		.fc_nlinfo.nl_net = host->net,
	};
	struct inet6_dev *device = __in6_dev_get(host->dev);
	int error;

	/* The device is too small for it. */
	if (!device)
		return -ENODEV;
	ipv6_addr_prefix(&route.fc_dst, &address, LAB_PREFIX_LENGTH);
	error = addrconf_prefix_rcv_add_addr(host->net, host->dev, &prefix, device, &address,
					     IPV6_ADDR_UNICAST, IFA_F_PERMANENT | IFA_F_NODAD,
					     false, false, INFINITY_LIFE_TIME,
					     INFINITY_LIFE_TIME);
	return error ? error : ip6_route_add(&route, GFP_KERNEL, NULL);
}

int lab_add_ipv6(void)
{
	u32 number;
	int error = 0;

	if (!has_ipv6())
		return 0;
	rtnl_lock();
	for (number = 0; number < lab.plan.hosts && !error; number++)
		error = add_address(&lab.hosts[number]);
	rtnl_unlock();
	msleep(SETTLE_MS);
	return error;
}
