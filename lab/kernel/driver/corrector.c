// SPDX-License-Identifier: GPL-2.0
/*
 * The corrector: a replayed end gets the packets that the other has sent as the network had
 * dealt with them. What no end is to get is dropped, what came late or twice is kept, what was
 * cut is cut, and what was made one of several is made one by the kernel's own GRO.
 */
#include <linux/tcp.h>
#include <net/gro.h>
#include <net/gso.h>
#include <net/hotdata.h>
#include <net/slowpath_lab.h>
#include <net/tcp.h>
#include "lab.h"
#include "replay.h"

/* The socket's memory is free at once, and no writer is woken by it: the recording says when one is. */
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
		lab_account_packet(skb, reply, number);
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

/* What is said of the packet with that place among those of the run. */
static bool is_recorded(const struct lab_run_record *record, u32 decision, u32 place, u32 *value)
{
	u32 i;

	for (i = 1; i <= record->decisions; i++)
		if (record[i].decision == decision && record[i].value == place) {
			*value = record[i].result;
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

/* The first sequence number of what was sent, of which pieces may have been taken. */
static u32 begins(struct replay_end *end, u32 number)
{
	if (!end->begins[number] && end->held[number])
		end->begins[number] = ntohl(tcp_hdr(end->held[number])->seq) | BIT_ULL(32);
	return end->begins[number];
}

/* Of what was cut the piece that begins there; the others stay held as one list. NULL: it is not there, or no more. */
static struct sk_buff *find_piece(struct replay_end *end, u32 number, u32 sequence)
{
	struct sk_buff **at = &end->held[number], *piece;

	if (!*at)
		return NULL;
	*at = cut(*at);
	for (; *at; at = &(*at)->next)
		if (ntohl(tcp_hdr(*at)->seq) == sequence)
			break;
	piece = *at;
	if (!piece)
		return NULL;
	/* The only one, and something is still to come: the network had doubled it. */
	if (end->uses[number] > 1 && end->held[number] == piece && !piece->next)
		return skb_clone(piece, GFP_ATOMIC);
	*at = piece->next;
	piece->next = NULL;
	return piece;
}

/* Once less. */
static void use(struct replay_end *end, u32 number)
{
	if (--end->uses[number])
		return;
	kfree_skb_list(end->held[number]);
	end->held[number] = NULL;
}

static struct sk_buff *take_piece(struct replay_end *end, u32 number, u32 before)
{
	struct sk_buff *piece = find_piece(end, number, begins(end, number) + before);

	use(end, number);
	return piece;
}

static u32 sequence_numbers(const struct sk_buff *skb)
{
	const struct tcphdr *tcp = tcp_hdr(skb);

	return skb->len - skb_transport_offset(skb) - tcp_hdrlen(skb) + tcp->syn + tcp->fin;
}

/* What the device's NAPI would be: it is never polled. */
static struct napi_struct joiner;

static int nothing_to_poll(struct napi_struct *napi, int budget)
{
	return 0;
}

void lab_join_begin(void)
{
	netif_napi_add(lab.hosts[0].dev, &joiner, nothing_to_poll);
	/* What is complete waits there until it is taken (gro_normal_one()). */
	net_hotdata.gro_normal_batch = INT_MAX;
}

/* What became of what was fed to it, if that is one packet. */
static struct sk_buff *joined(void)
{
	struct sk_buff *skb, *next, *one = NULL;
	bool several = false;

	napi_gro_flush(&joiner, false);
	list_for_each_entry_safe(skb, next, &joiner.rx_list, list) {
		skb_list_del_init(skb);
		several |= !!one;
		kfree_skb(one);
		one = skb;
	}
	joiner.rx_count = 0;
	if (!several)
		return one;
	kfree_skb(one);
	return NULL;
}

/* A packet or a piece, and what follows it up to so many sequence numbers; 0: as long as it is of the same packet. */
static struct sk_buff *join(struct replay_end *end, const struct lab_came *came, u32 before,
			    u32 length)
{
	u32 next = begins(end, came->number) + before, got = 0, number;
	struct sk_buff *piece, *skb;

	local_bh_disable();
	for (number = came->number; number <= came->last; number++) {
		begins(end, number);
		while ((!length || got < length) && (piece = find_piece(end, number, next + got))) {
			got += sequence_numbers(piece);
			piece->dev = lab.hosts[end - replay.ends].dev;
			skb_dst_drop(piece);
			skb_reset_mac_header(piece);
			/* As veth_xdp_rcv() does. */
			if (skb_unclone(piece, GFP_ATOMIC))
				pr_warn_once("slowpath-lab: no memory for a packet of its own\n");
			napi_gro_receive(&joiner, piece);
		}
		use(end, number);
	}
	skb = joined();
	local_bh_enable();
	if (!length || got == length)
		return skb;
	kfree_skb(skb);
	return NULL;
}

/*
 * The packet that is delivered; what is still needed is kept. Of one that the network had doubled
 * a copy came before the packet itself unless their sizes show otherwise: either may have been lost.
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

/* All of what was sent as one, whose bytes no other packet shares any more: it had been copied, not cut. */
static bool is_copy(const struct sk_buff *skb, u32 length)
{
	return skb && skb_is_gso(skb) && !skb_cloned(skb) && sequence_numbers(skb) == length;
}

static struct sk_buff *gather(struct replay_end *end, const struct lab_run_record *record,
			      const struct lab_came *came)
{
	const struct sk_buff *held = end->held[came->number];
	u32 before = 0, length = 0;
	bool piece = is_recorded(record, LAB_DECISION_PIECE, came->place, &before);
	bool several = is_recorded(record, LAB_DECISION_JOINED, came->place, &length);

	length = LAB_JOINED_LENGTH(length);
	if (several && !is_copy(held, length))
		return join(end, came, before, length);
	if (piece)
		return take_piece(end, came->number, before);
	/* The sender's device had cut it, and it came whole. */
	if (held && held->next)
		return join(end, came, 0, 0);
	return take(end, record, came->number);
}

static void deliver(const struct lab_run_record *record, const struct lab_came *came)
{
	struct sk_buff *skb = gather(&replay.ends[record->end], record, came);

	if (!skb) {
		lab_diverge(LAB_DIVERGED_PACKET, record->end, came->number, 0);
		return;
	}
	if (!is_as_large(skb, record)) {
		/* On the way it was copied, to be written into (skb_unshare()). */
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

bool lab_next_packet(const struct lab_run_record *record, struct lab_came *came)
{
	const u32 in_order = max(record->more, 1U);
	u32 stretch;

	for (; came->looked_at < in_order + record->decisions; came->looked_at++) {
		if (came->looked_at < in_order) {
			came->place = came->looked_at ? LAB_NOTHING : 0;
			came->number = record->value + came->looked_at;
		} else {
			const struct lab_run_record *it = record + 1 + came->looked_at - in_order;

			if (it->decision != LAB_DECISION_MERGED)
				continue;
			came->place = ++came->merged;
			came->number = record->value + it->result;
		}
		came->last = came->number;
		if (is_recorded(record, LAB_DECISION_JOINED, came->place, &stretch))
			came->last += LAB_JOINED_FURTHER(stretch);
		came->looked_at++;
		return true;
	}
	return false;
}

bool lab_is_held(const struct replay_end *end, const struct lab_run_record *record)
{
	struct lab_came came;
	u64 number;

	for_each_packet(record, came)
		for (number = came.number; number <= came.last; number++)
			if (!end->held[number])
				return false;
	return true;
}

void lab_deliver_held(const struct lab_run_record *record)
{
	struct lab_came came;

	for_each_packet(record, came)
		deliver(record, &came);
}
