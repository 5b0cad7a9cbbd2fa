// SPDX-License-Identifier: GPL-2.0
/*
 * What each run of a replay decided, sent and left, in a few numbers (account.bin): they
 * compare two replays whose clocks differ a little.
 */
#include <linux/ip.h>
#include <linux/ipv6.h>
#include <linux/jhash.h>
#include <linux/tcp.h>
#include <linux/unaligned.h>
#include <net/dsfield.h>
#include <net/slowpath_lab.h>
#include <net/tcp.h>
#include "lab.h"
#include "replay.h"

static struct lab_file account;

int lab_account_open(void)
{
	return lab_open(&account, "account.bin", SZ_256K);
}

void lab_account_close(void)
{
	lab_close(&account);
}

void lab_account_decision(u8 decision, bool needed, u32 first, u32 second)
{
	struct lab_done done = {
		.connection = replay.connection,
		.end = replay.run->end,
		.decision = decision,
		.needed = needed,
		.first = first,
		.second = second,
	};

	if (lab.plan.flags & LAB_ACCOUNT)
		lab_put(&account, &done, sizeof(done));
}

u32 slowpath_compared(u32 natural)
{
	const struct lab_run_record *next = replay.decisions;
	u32 before, decided = natural;

	if (lab.following || lab.clearing || !replay.run)
		return natural;
	before = replay.compared++;
	if (replay.left && next->decision == LAB_DECISION_COMPARISON && next->value == before) {
		decided = next->result;
		replay.decisions++;
		replay.left--;
	}
	lab_account_decision(LAB_DECISION_COMPARISON, decided != natural, before, decided);
	return decided;
}

/* Headers as they are whatever the first sequence numbers, addresses, ports and clocks. */
void lab_account_packet(const struct sk_buff *skb, bool reply, u32 number)
{
	const struct iphdr *ip = ip_hdr(skb);
	const struct ipv6hdr *ipv6 = ip->version == 6 ? ipv6_hdr(skb) : NULL;
	const u8 traffic_class = ipv6 ? ipv6_get_dsfield(ipv6) : ip->tos;
	const struct tcphdr *tcp = ipv6 ? (const void *)(ipv6 + 1) : (const void *)ip + 4 * ip->ihl;
	const u8 *option = (const void *)(tcp + 1), *end = (const void *)tcp + 4 * tcp->doff;
	u32 sequence = ntohl(tcp->seq), mixed = replay.packets;

	if (!number)
		replay.first[reply] = sequence;
	if (!(lab.plan.flags & LAB_ACCOUNT))
		return;
	mixed = jhash_3words(skb->len | (u32)traffic_class << 24, sequence - replay.first[reply],
			     tcp->ack ? ntohl(tcp->ack_seq) - replay.first[!reply] : 0, mixed);
	mixed = jhash_2words(ntohs(tcp->window), ntohs(((const __be16 *)tcp)[6]), mixed);
	while (option < end && *option != TCPOPT_EOL) {
		u8 length = *option == TCPOPT_NOP || option + 1 == end ? 1 : max_t(u8, option[1], 2);
		int at;

		length = min_t(long, length, end - option);
		if (*option == TCPOPT_SACK)
			for (at = 2; at + 4 <= length; at += 4)
				mixed = jhash_1word(get_unaligned_be32(option + at) -
						    replay.first[!reply], mixed);
		else if (*option != TCPOPT_TIMESTAMP)
			mixed = jhash(option, length, mixed);
		option += length;
	}
	replay.packets = mixed;
}

void lab_account_run(const struct lab_run_record *record, u32 check)
{
	struct sock *sk = lab_end_socket(record->connection, record->end);

	if (lab.plan.flags & LAB_ACCOUNT)
		lab_account_decision(LAB_ACCOUNT_RUN, false, check, lab_effect(sk, replay.packets));
}
