// SPDX-License-Identifier: GPL-2.0
/*
 * The corrector: a replayed end gets the packets that the other has sent as the network had
 * dealt with them. What nobody is to get is dropped, what came late or twice is kept.
 */
#include <linux/tcp.h>
#include <net/gso.h>
#include <net/slowpath_lab.h>
#include <net/tcp.h>
#include "lab.h"
#include "replay.h"

/* The socket's memory is free at once, and nobody is told of it: the recording does that. */
static void leave_socket(struct sk_buff *skb)
{
	struct sock *sk = skb->sk;

	if (skb->destructor == tcp_wfree)
		WARN_ON_ONCE(refcount_sub_and_test(skb->truesize, &sk->sk_wmem_alloc));
	else if (skb->destructor)
		return skb_orphan(skb);
	skb->destructor = NULL;
	skb->sk = NULL;
}

void lab_replay_sent(struct sk_buff *skb, u32 connection, bool reply, u32 number, bool further)
{
	struct replay_end *to = &replay.ends[!reply];
	struct sk_buff **at;

	leave_socket(skb);
	if (connection == replay.connection && !lab.clearing)
		lab_tell_packet(skb, reply, number);
	if (lab.clearing || connection != replay.connection || number >= to->packets ||
	    !to->uses[number] || !to->held[number] != !further) {
		/* Lost on the way, or of no use to anybody. */
		kfree_skb(skb);
		return;
	}
	for (at = &to->held[number]; *at; at = &(*at)->next)
		;
	*at = skb;
}

static bool is_told_piece(const struct lab_run_record *record, u32 place, u32 *before)
{
	u32 i;

	for (i = 1; i <= record->decisions; i++)
		if (record[i].decision == LAB_DECISION_PIECE && record[i].value == place) {
			*before = record[i].result;
			return true;
		}
	return false;
}

/* As recorded; in the backlog it may have been made smaller. */
static bool is_as_large(const struct sk_buff *skb, const struct lab_run_record *record)
{
	return !record->result || record->flags & LAB_RUN_BACKLOG || lab_what_if() ||
	       skb->truesize == record->result;
}

/*
 * Cuts what was sent as one, as a queue does that cannot take it whole (tbf_segment(), netem_segment()).
 */
static struct sk_buff *cut(struct sk_buff *skb)
{
	struct sk_buff *pieces;

	if (!skb_is_gso(skb))
		return skb;
	pieces = skb_gso_segment(skb, netif_skb_features(skb) & ~NETIF_F_GSO_MASK);
	if (IS_ERR_OR_NULL(pieces))
		return skb;
	consume_skb(skb);
	return pieces;
}

/* Of what was cut the piece with so many bytes before it; those that are left are held together. NULL: it is not there, or no more. */
static struct sk_buff *take_piece(struct replay_end *end, u32 number, u32 before)
{
	struct sk_buff **at = &end->held[number], *piece;

	if (!*at)
		return NULL;
	if (!end->begins[number])
		end->begins[number] = ntohl(tcp_hdr(*at)->seq) | BIT_ULL(32);
	*at = cut(*at);
	for (; *at; at = &(*at)->next)
		if (ntohl(tcp_hdr(*at)->seq) == (u32)end->begins[number] + before)
			break;
	piece = *at;
	if (!piece)
		return NULL;
	*at = piece->next;
	piece->next = NULL;
	if (!--end->uses[number]) {
		kfree_skb_list(end->held[number]);
		end->held[number] = NULL;
	}
	return piece;
}

/*
 * The packet that is delivered; what is still needed is kept. Of one that the network had doubled
 * a copy came before the packet itself unless their sizes tell otherwise: either may have been lost.
 */
static struct sk_buff *take(struct replay_end *end, const struct lab_run_record *record, u32 number)
{
	struct sk_buff *skb = end->held[number], *copy;
	bool last = !--end->uses[number];

	if (!skb)
		return NULL;
	if (last) {
		end->held[number] = NULL;
		kfree_skb_list(skb->next);
		skb->next = NULL;
	}
	if (last && is_as_large(skb, record))
		return skb;
	/* On a stock kernel (netem) both share their bytes, and then neither takes what comes behind it. */
	copy = lab.plan.flags & LAB_FOLLOW ? skb_clone(skb, GFP_ATOMIC) :
					      pskb_copy(skb, GFP_ATOMIC);
	if (copy && !last && is_as_large(skb, record) && !is_as_large(copy, record))
		swap(end->held[number], copy);
	else if (last && (!copy || !is_as_large(copy, record)))
		swap(skb, copy);
	if (last)
		kfree_skb(skb);
	return copy;
}

/* place: 0 the packet itself, behind it those that are merged with it in the backlog and do not follow. */
static void deliver(const struct lab_run_record *record, u32 place, u32 number)
{
	struct replay_end *end = &replay.ends[record->end];
	struct sk_buff *skb;
	u32 before;

	if (is_told_piece(record, place, &before))
		skb = take_piece(end, number, before);
	else
		skb = take(end, record, number);
	if (!skb) {
		lab_diverge(LAB_DIVERGED_PACKET, record->end, number, 0);
		return;
	}
	if (!is_as_large(skb, record)) {
		/* Somebody on the way had it copied, to write into it (skb_unshare()). */
		struct sk_buff *copy = skb_copy(skb, GFP_ATOMIC);

		if (copy && is_as_large(copy, record))
			swap(skb, copy);
		kfree_skb(copy);
	}
	if (!is_as_large(skb, record)) {
		lab_diverge(LAB_DIVERGED_RESULT, record->end, record->result, skb->truesize);
		kfree_skb(skb);
		return;
	}
	lab_deliver_again(skb, record->end, record->flags & LAB_RUN_MARKED);
}

bool lab_next_packet(const struct lab_run_record *record, u32 *i, u32 *number)
{
	u32 in_order = max(record->more, 1U);

	for (; *i < in_order + record->decisions; ++*i) {
		const struct lab_run_record *decision = record + 1 + (*i - in_order);

		if (*i >= in_order && decision->decision != LAB_DECISION_MERGED)
			continue;
		*number = record->value + (*i < in_order ? *i : decision->result);
		++*i;
		return true;
	}
	return false;
}

bool lab_is_held(const struct replay_end *end, const struct lab_run_record *record)
{
	u32 i, number;

	for_each_packet(record, i, number)
		if (!end->held[number])
			return false;
	return true;
}

void lab_deliver_held(const struct lab_run_record *record)
{
	u32 in_order = max(record->more, 1U), place = 0, i, number;

	for_each_packet(record, i, number) {
		/* i is one further. */
		place += i > in_order;
		deliver(record, i > 1 && !place ? U32_MAX : place, number);
	}
}
