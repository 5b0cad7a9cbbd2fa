/* SPDX-License-Identifier: GPL-2.0 */
/*
 * Snapshots of the connections that changed, and of no others: reads the notes that the
 * event probes left, run by user space with BPF_PROG_RUN.
 *
 * A note may be stale: its socket may be gone and the memory another socket's. Loads
 * through bpf_rdonly_cast (Linux 6.2) and bpf_probe_read_kernel cannot fault, and the
 * cookie is compared before and after; whatever does not match is passed over.
 *
 * Almost all the time goes into cache misses. So while one connection is copied, the cache
 * lines of the one AHEAD of it are touched: loads that nothing waits for.
 */
#include "../connection.bpf.h"

struct {
	__uint(type, BPF_MAP_TYPE_ARRAY);
	__uint(map_flags, BPF_F_MMAPABLE);
	__uint(max_entries, 1); /* set before load */
	__type(key, u32);
	__type(value, struct record);
} area SEC(".maps");

#define AHEAD 4

struct pass {
	struct shared *s;
	u32 base;
	u32 count;
	u64 touched;
};

static __always_inline struct note *note_at(const struct pass *pass, u32 i)
{
	u32 index = pass->base + i;

	return i < pass->count ? bpf_map_lookup_elem(&notes, &index) : 0;
}

static __always_inline struct tcp_sock *tcp_of(u64 sk)
{
	return bpf_rdonly_cast((void *)sk, bpf_core_type_id_kernel(struct tcp_sock));
}

static __always_inline struct sock *sock_of(u64 sk)
{
	return bpf_rdonly_cast((void *)sk, bpf_core_type_id_kernel(struct sock));
}

/* One field of each cache line that `fill` reads, as the structures lie in Linux 6.18. */
static __always_inline u64 touch_socket(u64 address)
{
	struct tcp_sock *tp = tcp_of(address);
	struct sock *sk = sock_of(address);
	u64 sum;

	sum = sk->__sk_common.skc_cookie.counter;
	sum += sk->__sk_common.skc_daddr;
	sum += sk->sk_rcvbuf;
	sum += sk->sk_sndbuf;
	sum += sk->sk_wmem_queued;
	sum += sk->sk_pacing_rate;
	sum += tp->inet_conn.icsk_rto;
	sum += tp->inet_conn.icsk_backoff;
	sum += tp->copied_seq;
	sum += tp->snd_ssthresh;
	sum += BPF_CORE_READ_BITFIELD(tp, rate_app_limited);
	sum += tp->segs_out;
	sum += tp->write_seq;
	sum += tp->rcv_nxt;
	sum += tp->bytes_received;
	sum += tp->bytes_acked;
	sum += tp->dsack_dups;
	sum += tp->reord_seen;
	sum += tp->total_retrans;
	sum += tp->rcv_ooopack;
	return sum;
}

/* Cache lines in which what is copied of the storage lies, a few bytes past the first's start. */
#define STORAGE_LINES ((offsetof(struct connection, waits) + 63) / 64)

/* A type of the kernel's that begins with a number serves to read any word. */
static __always_inline u64 word_at(u64 address)
{
	struct timespec64 *word =
		bpf_rdonly_cast((void *)address, bpf_core_type_id_kernel(struct timespec64));

	return word->tv_sec;
}

static __always_inline u64 touch_storage(u64 address)
{
	u64 sum = 0;

#pragma unroll
	for (u32 i = 0; i < STORAGE_LINES; i++)
		sum += word_at(address + i * 64);
	return sum;
}

static long collect_one(u32 i, struct pass *pass)
{
	struct note *note = note_at(pass, i), *ahead = note_at(pass, i + AHEAD);
	struct shared *s = pass->s;
	/* the head only: with the calls, the stack passes 512 bytes, which kernels to 6.12 refuse */
	u64 head[__builtin_offsetof(struct connection, sends) / sizeof(u64)];
	const struct connection *c = (void *)head;
	struct tcp_sock *tp;
	struct record *r;
	struct sock *sk;
	u64 address, connection, cookie;
	u32 index;

	if (!note)
		return 1;
	if (ahead)
		pass->touched += touch_socket(ahead->sk) + touch_storage(ahead->connection);
	address = note->sk;
	connection = note->connection;
	cookie = note->cookie;
	sk = sock_of(address);
	tp = tcp_of(address);
	if (sk->__sk_common.skc_cookie.counter != cookie || sk->__sk_common.skc_state == TCP_CLOSE)
		return 0;
	/* calls and turns go straight into the record */
	if (bpf_probe_read_kernel(head, sizeof(head), (void *)connection) || c->cookie != cookie)
		return 0;
	if (s->carried && (s->thinned ? awaited(c->marked, s->list_epoch) :
					c->marked == s->list_epoch))
		return 0; /* it had an event, too, and has been collected, or will be */
	index = s->area_used;
	r = bpf_map_lookup_elem(&area, &index);
	if (!r) {
		s->left_over = pass->count - i;
		return 1;
	}
	if (bpf_probe_read_kernel(&r->sends,
				  sizeof(r->sends) + sizeof(r->receives) + sizeof(r->turns),
				  (void *)connection + offsetof(struct connection, sends)))
		return 0;
	if (any_turns(&r->turns) &&
	    bpf_probe_read_kernel(&r->latest, sizeof(r->latest),
				  (void *)connection + offsetof(struct connection, latest)))
		return 0;
	if (c->waited &&
	    bpf_probe_read_kernel(&r->waits, sizeof(r->waits),
				  (void *)connection + offsetof(struct connection, waits)))
		return 0;
	fill(r, sk, tp, c, s->now_ns, s->late_margin_us);
	r->connection = connection;
	if (sk->__sk_common.skc_cookie.counter == cookie)
		s->area_used = index + 1;
	return 0;
}

SEC("raw_tp")
int collect(void *ctx)
{
	struct shared *s = shared_page();
	struct pass pass = {};

	if (!s || !bpf_rdonly_cast)
		return 0;
	pass.s = s;
	pass.base = s->list_base;
	pass.count = s->list_count;
	s->jiffies = bpf_jiffies64();
	bpf_loop(pass.count, collect_one, &pass, 0);
	s->touched = pass.touched;
	return 0;
}

char LICENSE[] SEC("license") = "GPL";
