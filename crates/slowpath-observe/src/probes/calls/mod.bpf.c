/* SPDX-License-Identifier: GPL-2.0 */
/*
 * Socket calls, from sock_send_length and sock_recv_length (Linux 6.3), summed up for
 * each connection; call by call for connections under suspicion. Data begins to wait, and
 * to be read, with a call: so these are events of the waits, too, and a write ends a turn.
 */
#include "../connection.bpf.h"

struct call {
	u64 cookie;
	u64 at_ns;
	u32 bytes;
	u32 direction; /* enum direction */
};

enum direction {
	DIRECTION_SEND,
	DIRECTION_RECEIVE,
};

MIRRORED(struct, call);
MIRRORED(enum, direction);

struct {
	__uint(type, BPF_MAP_TYPE_RINGBUF);
	__uint(max_entries, 1 << 20);
} call_log SEC(".maps");

static __noinline void log_call(struct connection *c, u32 bytes, u32 direction)
{
	struct call *call = bpf_ringbuf_reserve(&call_log, sizeof(*call), 0);

	if (call) {
		call->cookie = c->cookie;
		call->at_ns = bpf_ktime_get_ns();
		call->bytes = bytes;
		call->direction = direction;
		bpf_ringbuf_submit(call, BPF_RB_NO_WAKEUP);
	} else {
		struct shared *s = shared_page();

		if (s)
			__sync_fetch_and_add(&s->calls_dropped, 1);
	}
}

/* The histogram's first bucket is below 16 bytes, each other one a power of two, the last has all above. */
static __always_inline u32 bucket_of(u32 bytes)
{
	u32 n = bytes >> 4, bucket = 1;

	if (!n)
		return 0;
	if (n >= 1 << (BUCKETS - 2))
		return BUCKETS - 1;
	/* a barrier each, or clang makes several branches of one */
	if (n >= 1 << 8) {
		n >>= 8;
		bucket += 8;
		barrier_var(n);
	}
	if (n >= 1 << 4) {
		n >>= 4;
		bucket += 4;
		barrier_var(n);
	}
	if (n >= 1 << 2) {
		n >>= 2;
		bucket += 2;
		barrier_var(n);
	}
	if (n >= 1 << 1)
		bucket++;
	return bucket;
}

static __always_inline void count_call(struct sock *sk, struct connection *c,
				       struct calls *calls, u32 bytes, u32 direction)
{
	struct tcp_sock *tp;
	u64 now;

	/* two threads may call on one socket at once: what they lose of the rest, `both` has */
	__sync_fetch_and_add(&calls->both, bytes | 1ull << BOTH_BYTES_BITS);
	calls->count++;
	calls->bytes += bytes;
	calls->histogram[bucket_of(bytes) & (BUCKETS - 1)]++;
	if (bytes < calls->min)
		calls->min = bytes;
	if (bytes > calls->max)
		calls->max = bytes;
	now = bpf_jiffies64(); /* a clock would double the cost */
	calls->last_jiffies = now;
	tp = tcp_socket(sk);
	if (tp) {
		if (direction == DIRECTION_RECEIVE) {
			count_unread(c, sk, tp, (u32)now);
		} else {
			u32 written = tp->write_seq;

			count_wait(c, tp, (u32)now, unsent_of(sk, tp, written), bytes);
			note_write(c, sk, tp, written);
		}
	}
	changed(c, sk);
	if (c->suspect) {
		c->suspect--;
		log_call(c, bytes, direction);
	}
}

/* Of a socket that is no TCP connection there is none. */
static __always_inline struct connection *connection_of(struct sock *sk, int bytes)
{
	return bytes < 0 ? 0 : bpf_sk_storage_get(&connections, sk, 0, 0);
}

SEC("tp_btf/sock_send_length")
int BPF_PROG(sends, struct sock *sk, int bytes, int flags)
{
	struct connection *c = connection_of(sk, bytes);

	if (c)
		count_call(sk, c, &c->sends, bytes, DIRECTION_SEND);
	return 0;
}

SEC("tp_btf/sock_recv_length")
int BPF_PROG(receives, struct sock *sk, int bytes, int flags)
{
	struct connection *c = connection_of(sk, bytes);

	if (c)
		count_call(sk, c, &c->receives, bytes, DIRECTION_RECEIVE);
	return 0;
}

char LICENSE[] SEC("license") = "GPL";
