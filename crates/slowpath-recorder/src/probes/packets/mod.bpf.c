/* SPDX-License-Identifier: GPL-2.0 */
/*
 * The light recorder: one program a packet, at the tracepoint where TCP begins with it. It notes which packet it is,
 * and which fields of the socket have changed since the one before: they place calls, what calls sent, and
 * acknowledgments that no tracepoint shows between the packets. Events are gathered with the socket
 * and go into the ring half a kilobyte at a time.
 *
 * The socket's lock orders the packets. A call's return is observed when the lock has been
 * released, and has a block of its own: how much the call moved says where it belongs.
 */
#include "tracked_socket.bpf.h"

char LICENSE[] SEC("license") = "GPL";

/* One event behind the others; the socket has its lock. */
static __always_inline void note(struct sock *sk, struct tracked_socket *known, struct packet_event event)
{
	const struct tcp_sock___rec *tp = KNOWN_AS(tcp_sock___rec, sk);
	/* The verifier knows that it is one: a plain load. */
	const struct sock___rec *so = (const void *)sk;
	const struct tcp_sock___light *light = KNOWN_AS(tcp_sock___light, sk);
	struct head *head = &known->packets.head;
	u64 clock = tp->tcp_clock_cache;
	u32 used = head->used;
	struct packet_event *at;

	/* A lower half is enough within one block. */
	if (used > ROOM - MOST || (used && clock - head->clock >= 1U << 31)) {
		put_packets(known, PACKETS);
		used = 0;
	}
	if (!used) {
		head->clock = clock;
		head->jiffies = bpf_jiffies64();
		read_state(sk, &head->state);
	}
	used &= 1023;
	if (used > ROOM - MOST)
		return;
	at = (void *)(known->packets.data + used);
	used += sizeof(event);
	event.clock = clock;
	event.next = KNOWN_AS(inet_sock___rec, sk)->inet_id.counter;
	event.flags |= so->sk_lock.owned ? OWNED : 0;
	event.flags |= so->sk_wmem_queued >= so->sk_sndbuf ? FULL : 0;
#define BIT_OF(name) (1 << __builtin_offsetof(struct socket_words, name) / sizeof(u32))
#define WORD(name, value)                                          \
	do {                                                       \
		u32 now = (value);                                 \
		if (now != known->words.name) {                    \
			known->words.name = now;                   \
			event.words |= BIT_OF(name);               \
			if (used <= ROOM - 4)                      \
				*(u32 *)(known->packets.data + used) = now; \
			used += 4;                                 \
		}                                                  \
	} while (0)
	WORD(snd_nxt, tp->snd_nxt);
	WORD(snd_una, tp->snd_una);
	WORD(write_seq, tp->write_seq);
	WORD(rcv_nxt, tp->rcv_nxt);
	WORD(copied_seq, tp->copied_seq);
	WORD(wmem_alloc, so->sk_wmem_alloc.refs.counter);
	WORD(rcv_wnd, tp->rcv_wnd);
	/* Back from memory the verifier knows neither, and need not follow each of 128 ways on its own (850,000 instructions of the million it allows). */
	*(volatile u16 *)&head->used = used;
	*(volatile u8 *)&at->words = event.words;
	used = *(volatile u16 *)&head->used;
	event.words = *(volatile u8 *)&at->words;
#define MOMENT(flag, value)                                                \
	do {                                                               \
		event.flags |= (flag);                                     \
		if (used <= ROOM - 4)                                      \
			*(u32 *)(known->packets.data + used) = (value);    \
		used += 4;                                                 \
	} while (0)
	if (event.words & BIT_OF(snd_una) || light->sacked_out)
		MOMENT(DELIVERED, light->delivered_mstamp);
	if (event.flags & ARRIVED)
		MOMENT(ARRIVED, bpf_ktime_get_ns());
	/* A call that has read data has read the clock: when the packet before was acknowledged. */
	if (event.words & (BIT_OF(snd_nxt) | BIT_OF(copied_seq)) && (u32)light->tcp_wstamp_ns != (u32)clock)
		MOMENT(LAST_SENT, light->tcp_wstamp_ns);
	*at = event;
	head->used = used;
}

SEC("tp_btf/tcp_probe")
int BPF_PROG(on_packet, struct sock *sk, struct sk_buff___light *skb)
{
	struct tracked_socket *known = find(sk);
	const struct tcp_sock___rec *tp = KNOWN_AS(tcp_sock___rec, sk);
	const struct skb_shared_info___light *shared;
	const struct tcp_skb_cb *cb;
	struct packet_event event = { .kind = PACKET };
	u32 segments;

	if (!known || !known->open)
		return 0;
	shared = KNOWN_AS(skb_shared_info___light, skb->head + skb->end);
	cb = KNOWN_AS(tcp_skb_cb,
		      (char *)skb + bpf_core_field_offset(struct sk_buff___light, cb));
	segments = shared->gso_segs;
	event.id = __builtin_bswap16(KNOWN_AS(iphdr, skb->head + skb->network_header)->id);
	event.segments = segments > 255 ? 255 : segments;
	event.flags = (cb->ip_dsfield & 3) == 3 ? MARKED : 0;
	if (cb->seq != cb->end_seq)
		event.flags |= DATA;
	/* All that was sent is acknowledged: when, no field says once new data are sent, which leaves another moment. */
	if (tp->snd_una != tp->snd_nxt && cb->ack_seq == tp->snd_nxt)
		event.flags |= ARRIVED;
	note(sk, known, event);
	return 0;
}

static __always_inline void put_opened(struct sock *sk, struct tracked_socket *known)
{
	struct opened *it = bpf_ringbuf_reserve(&events, sizeof(*it), 0);

	if (!it) {
		lose(known);
		return;
	}
	it->piece = OPENED;
	it->end = known->end;
	it->own_port = READ(sk, sock___rec, __sk_common.skc_num);
	it->peer_port = READ(sk, sock___rec, __sk_common.skc_dport);
	it->next = READ(sk, inet_sock___rec, inet_id.counter);
	it->own = READ(sk, sock___rec, __sk_common.skc_rcv_saddr);
	it->peer = READ(sk, sock___rec, __sk_common.skc_daddr);
	it->sk = (u64)sk;
	it->at = bpf_ktime_get_ns();
	it->clock = READ(sk, tcp_sock___rec, tcp_clock_cache);
	it->begun = known->packets.head.clock;
	it->jiffies = bpf_jiffies64();
	it->words.snd_nxt = READ(sk, tcp_sock___rec, snd_nxt);
	it->words.snd_una = READ(sk, tcp_sock___rec, snd_una);
	it->words.write_seq = READ(sk, tcp_sock___rec, write_seq);
	it->words.rcv_nxt = READ(sk, tcp_sock___rec, rcv_nxt);
	it->words.copied_seq = READ(sk, tcp_sock___rec, copied_seq);
	it->words.wmem_alloc = READ(sk, sock___rec, sk_wmem_alloc.refs.counter);
	it->words.rcv_wnd = READ(sk, tcp_sock___rec, rcv_wnd);
	/* Changes from here on are recorded. */
	known->words = it->words;
	it->lost = counters.lost;
	find_settings(sk, &it->found);
	bpf_ringbuf_submit(it, BPF_RB_NO_WAKEUP);
}

static __always_inline void meet(struct sock *sk, int from, int to)
{
	const struct sock___light *so = KNOWN_AS(sock___light, sk);
	struct tracked_socket *known;
	u8 end = to != TCP_SYN_SENT;

	if (so->sk_protocol != IPPROTO_TCP || !is_ipv4(sk))
		return;
	known = take_place(sk);
	if (!known) {
		lose(NULL);
		return;
	}
	known->end = end;
	known->packets.head.end = end;
	known->packets.head.sk = (u64)sk;
	known->packets.head.clock = bpf_ktime_get_ns();
}

SEC("tp_btf/inet_sock_set_state")
int BPF_PROG(on_state, struct sock *sk, int from, int to)
{
	const struct sock___light *so = KNOWN_AS(sock___light, sk);
	struct state_event state = { .kind = STATE };
	struct tracked_socket *known;
	struct packet_event event;

	if (to == TCP_SYN_SENT || (from == TCP_SYN_RECV && to == TCP_ESTABLISHED))
		meet(sk, from, to);
	known = find(sk);
	if (!known) {
		if (to == TCP_ESTABLISHED && so->sk_protocol == IPPROTO_TCP && !is_ipv4(sk) &&
		    is_chosen(so->__sk_common.skc_num,
			      __builtin_bswap16(so->__sk_common.skc_dport)))
			__sync_fetch_and_add(&counters.ipv6, 1);
		return 0;
	}
	if (to == TCP_ESTABLISHED) {
		known->open = is_chosen(so->__sk_common.skc_num,
					__builtin_bswap16(so->__sk_common.skc_dport));
		if (!known->open) {
			give_back(sk, known);
			return 0;
		}
		put_opened(sk, known);
	}
	if (!known->open)
		return 0;
	state.from = from;
	state.to = to;
	state.shutdown = so->sk_shutdown;
	__builtin_memcpy(&event, &state, sizeof(event));
	note(sk, known, event);
	return 0;
}

static __always_inline void called(struct sock *sk, int result, int flags, u32 direction)
{
	struct tracked_socket *known = find(sk);
	u32 place;

	if (!known || !known->open)
		return;
	place = __sync_fetch_and_add(&known->used, 1);
	if (place >= MOST_CALLS) {
		/* Another processor is emptying it. */
		lose(known);
		return;
	}
	known->calls.data[place].result = result;
	known->calls.data[place].flags = (flags & 0xffffff) | direction << 24;
	known->calls.data[place].clock =
		direction == SENT ? KNOWN_AS(tcp_sock___light, sk)->tcp_wstamp_ns :
			       KNOWN_AS(tcp_sock___rec, sk)->tcp_clock_cache;
	if (place == MOST_CALLS - 1) {
		put_calls(known, MOST_CALLS);
		known->used = 0;
	}
}

SEC("tp_btf/sock_send_length")
int BPF_PROG(on_sent, struct sock *sk, int result, int flags)
{
	called(sk, result, flags, SENT);
	return 0;
}

SEC("tp_btf/sock_recv_length")
int BPF_PROG(on_received, struct sock *sk, int result, int flags)
{
	called(sk, result, flags, RECEIVED);
	return 0;
}

static __always_inline void fired(const void *timer, u32 offset, u8 which)
{
	const void *sk = (const char *)timer - offset;
	struct timer_event *it = bpf_ringbuf_reserve(&events, sizeof(*it), 0);

	if (!it) {
		lose(NULL);
		return;
	}
	it->piece = TIMER;
	it->timer = which;
	it->next = KNOWN_AS(inet_sock___rec, sk)->inet_id.counter;
	it->jiffies = bpf_jiffies64();
	it->sk = (u64)sk;
	it->at = bpf_ktime_get_ns();
	it->memory = KNOWN_AS(sock___rec, sk)->sk_wmem_alloc.refs.counter;
	it->owned = KNOWN_AS(sock___rec, sk)->sk_lock.owned;
	bpf_ringbuf_submit(it, BPF_RB_NO_WAKEUP);
}

SEC("tp_btf/timer_expire_entry")
int BPF_PROG(on_timer, struct timer_list___light *timer)
{
	u64 function = (u64)timer->function;

	if (function == timers.write)
		fired(timer, OFFSET(inet_connection_sock___rec, icsk_retransmit_timer), WRITE_TIMER);
	else if (function == timers.delayed_ack)
		fired(timer, OFFSET(inet_connection_sock___rec, icsk_delack_timer), DELAYED_ACK_TIMER);
	else if (function != timers.keepalive)
		return 0;
	else if (bpf_core_field_exists(struct inet_connection_sock___light, icsk_keepalive_timer))
		fired(timer, OFFSET(inet_connection_sock___light, icsk_keepalive_timer), KEEPALIVE_TIMER);
	else
		fired(timer, OFFSET(sock___rec, sk_timer), KEEPALIVE_TIMER);
	return 0;
}

SEC("tp_btf/hrtimer_expire_entry")
int BPF_PROG(on_fine_timer, struct hrtimer___light *timer)
{
	u64 function = (u64)timer->function;

	if (function == timers.pacing)
		fired(timer, OFFSET(tcp_sock___rec, pacing_timer), PACING_TIMER);
	else if (function == timers.compressed_ack)
		fired(timer, OFFSET(tcp_sock___rec, compressed_ack_timer), COMPRESSED_ACK_TIMER);
	return 0;
}

/* More sockets than that wait at once for one processor seldom; they are lost to us. */
#define MOST_WAITING 32

static __always_inline void small_queues(const void *head)
{
	const struct list_head___light *node = KNOWN_AS(list_head___light, head)->next;
	int i;

	for (i = 0; i < MOST_WAITING; i++) {
		if (!node || (const void *)node == head)
			return;
		fired(node, OFFSET(tcp_sock___light, tsq_node), SMALL_QUEUES);
		node = KNOWN_AS(list_head___light, node)->next;
	}
	lose(NULL);
}

SEC("tp_btf/tasklet_entry")
int BPF_PROG(on_tasklet, struct tasklet_struct *tasklet, void *function)
{
	if ((u64)function == timers.small_queues)
		small_queues((const char *)tasklet + OFFSET(tsq_tasklet, head));
	return 0;
}

SEC("tp_btf/workqueue_execute_start")
int BPF_PROG(on_work, struct work_struct___light *work)
{
	if ((u64)work->func == timers.small_queues)
		small_queues((const char *)work + OFFSET(tsq_work, head));
	return 0;
}

/* What has not filled a block. */
static __always_inline void put_rest(struct tracked_socket *known, u8 piece)
{
	u32 used = known->used;

	if (used)
		put_calls(known, used);
	put_packets(known, piece);
}

/* When the socket goes. */
SEC("tp_btf/tcp_destroy_sock")
int BPF_PROG(on_gone, struct sock *sk)
{
	struct tracked_socket *known = find(sk);

	if (!known)
		return 0;
	if (known->open)
		put_rest(known, GONE);
	give_back(sk, known);
	return 0;
}

/* And of all others, when nothing is recorded any more. */
SEC("iter/bpf_map_elem")
int rest_of_table(struct bpf_iter__bpf_map_elem *it)
{
	struct tracked_socket *known = it->value;

	if (known && known->open)
		put_rest(known, PACKETS);
	return 0;
}

SEC("iter/bpf_sk_storage_map")
int rest_of_sockets(struct bpf_iter__bpf_sk_storage_map *it)
{
	struct tracked_socket *known = it->value;

	if (known && known->open)
		put_rest(known, PACKETS);
	return 0;
}
