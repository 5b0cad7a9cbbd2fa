/* SPDX-License-Identifier: GPL-2.0 */
/*
 * The least that a program on the same tracepoints can do: count its events in an array.
 * What the probes cost is compared with this. Nothing of it is shared with Rust.
 */
typedef unsigned int __u32;
typedef unsigned long long __u64;

#define SEC(name) __attribute__((section(name), used))

static void *(*const bpf_map_lookup_elem)(void *map, const void *key) = (void *)1;

struct {
	int (*type)[2]; /* BPF_MAP_TYPE_ARRAY */
	int (*max_entries)[4];
	__u32 *key;
	__u64 *value;
} counts SEC(".maps");

static inline __attribute__((always_inline)) int count(__u32 which)
{
	__u64 *n = bpf_map_lookup_elem(&counts, &which);

	if (n)
		__sync_fetch_and_add(n, 1);
	return 0;
}

SEC("tp_btf/sock_send_length")
int bare_send(void *ctx)
{
	return count(0);
}

SEC("tp_btf/sock_recv_length")
int bare_receive(void *ctx)
{
	return count(1);
}

SEC("tp_btf/tcp_probe")
int bare_segment(void *ctx)
{
	return count(2);
}

char LICENSE[] SEC("license") = "GPL";
