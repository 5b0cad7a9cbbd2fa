/* SPDX-License-Identifier: GPL-2.0 */
#ifndef SLOWPATH_LAB_H
#define SLOWPATH_LAB_H

#include <linux/hrtimer.h>
#include <linux/in.h>
#include <linux/in6.h>
#include <linux/kernel.h>
#include <linux/netdevice.h>
#include <linux/skbuff.h>
#include <linux/timerqueue.h>
#include <net/sock.h>
#include "plan.h"
#include "slowpath_switch.h"

/* Host n has the address 10.0.0.0 + 1 + n, and its listeners the ports from here on. */
#define LAB_NETWORK 0x0a000000u
#define LAB_LISTEN 5000
/* Captures count from 2000-01-01: that is 0 of the scenario. */
#define LAB_EPOCH_NS 946684800000000000ULL
#define PS_PER_NS 1000ULL

/* A file of the run's folder, which is the working directory of this kernel's process. */
struct lab_file {
	int fd;
	size_t used;
	size_t room;
	char *buffer;
};

struct lab_host {
	u32 number;
	struct net *net;
	struct net_device *dev;
	struct lab_file capture;
	u64 sent;
	u64 sent_bytes;
	/* By source port: the connection that begins there. */
	u32 *by_port;
};

/* One connection. */
struct lab_sender {
	struct socket *from;
	struct socket *to;
	u64 begun;      /* bytes of all flows that have begun */
	u64 wanted;     /* bytes that the application has wanted to write so far */
	u64 written;
	u64 arrived;
	u64 finished;   /* bytes up to the end of the last flow that is done */
	u32 first;      /* flow that is not done, U32_MAX: none */
	u32 last;
	u32 retransmissions;
	u32 timeouts;
	bool established;
	bool fresh;     /* open since the warm-up and not used yet */
	bool queued;
	u32 check[2];   /* of the recorder, by end */
	u32 sent[2];    /* packets, by end */
	u64 moment[2];  /* of the recorder's last run, by end */
	u32 same_moment[2]; /* runs of that moment */
	struct list_head ready;
	/* Writes in pieces, of its only flow. */
	struct timerqueue_node again;
	u32 chunk;
	u64 every;
	u64 left;       /* of the flow, to be wanted later */
	/* Reads in pieces. */
	struct timerqueue_node reading;
	bool reads;
};

struct lab {
	struct lab_plan plan;
	struct lab_kind *kinds;
	struct lab_connection *connections;
	struct lab_flow *flows;
	struct lab_watch *watches;
	void *fabric_plan;
	size_t fabric_bytes;

	struct lab_host *hosts;
	struct slowpath_fabric *fabric;
	struct hrtimer timer;
	struct sk_buff_head arrived;
	bool inside_timer;
	bool failed;
	u64 armed;     /* picoseconds of the network, or SLOWPATH_NEVER */
	ktime_t base;  /* 0 of the network */

	struct lab_result *results;
	struct lab_sender *senders;
	struct task_struct *task; /* that runs the workload */
	struct lab_file events;
	struct lab_file series;
	struct lab_file handlers;
	u64 recorded;
	bool replaying;
	bool following; /* a stock kernel's recording */
	bool further; /* the next packet is another piece of the last one */
	bool clearing; /* what is sent belongs to no recording */
	u64 marked;
	u64 host_packets;
	u64 captured;
	u64 lost_records;
	u64 delivered;
	u64 dropped;
	u64 corrupted;
	u64 inside;
	u64 most_inside;
	u64 sent_by_tag[LAB_TAGS];
	u64 detoured_by_tag[LAB_TAGS];
};

extern struct lab lab;

/* Picoseconds of the network. */
static inline u64 lab_network_time(void)
{
	return ktime_to_ns(ktime_sub(ktime_get(), lab.base)) * PS_PER_NS;
}

/* Of the scenario; before it they are negative. */
static inline s64 lab_scenario_time(u64 network)
{
	return network - lab.plan.warm_up;
}

static inline const struct lab_kind *lab_kind_of(u32 connection)
{
	return &lab.kinds[lab.connections[connection].kind];
}

/* record.c */
int lab_read_plan(void);
int lab_open(struct lab_file *file, const char *name, size_t room);
void lab_put(struct lab_file *file, const void *data, size_t length);
void lab_close(struct lab_file *file);
/* An array of the open file; piece is of lab_piece(). */
void *lab_read_array(int fd, void *piece, size_t count, size_t size, int *error);
void *lab_piece(void);
int lab_open_capture(struct lab_host *host);
void lab_capture(struct lab_host *host, const struct sk_buff *skb, bool partial);
void lab_event(const struct slowpath_fabric_event *source, u8 kind);
int lab_write_results(u64 end);

/* address.c */
#define LAB_ANY U32_MAX
union lab_address {
	struct sockaddr any;
	struct sockaddr_in ipv4;
	struct sockaddr_in6 ipv6;
};
struct lab_headers {
	u32 to; /* the host */
	u8 ttl;
	u8 traffic_class;
	const struct tcphdr *tcp;
};
bool lab_is_ipv6(u32 kind);
/* How long it is; host may be LAB_ANY. */
int lab_address(union lab_address *address, u32 kind, u32 host, u16 port);
u32 lab_peer_of(const struct sock *sk);
/* The socket, or request, of the end that accepted; NULL: there is none. */
struct sock *lab_look_up(u32 connection);
/* Of a packet that a device is to send; false if it is no TCP between hosts. */
bool lab_read_headers(struct sk_buff *skb, struct lab_headers *headers);
/* Before there is a device; and when all are up. */
void lab_prepare_ipv6(struct net *net);
int lab_add_ipv6(void);

/* device.c */
void lab_set_sysctls(struct net *net, const __le32 *values);
int lab_make_hosts(void);
int lab_make_network(void);
bool lab_network_is_empty(void);
void lab_sample_queues(void);

/* Into the device of its destination; ttl and ecn are what the packet came with. */
void lab_deliver(struct sk_buff *skb, const struct slowpath_packet *packet);

/* A packet that lab_replay_sent() took, to the other end. */
void lab_deliver_again(struct sk_buff *skb, u32 destination, bool marked);

/* process.c */
int lab_make_process_path(void);
void lab_wait_for_process(void);
void lab_process_send(struct sk_buff *skb, u32 host, const struct slowpath_packet *packet);

/* connection.c */
int lab_make_connections(void);
int lab_open_connection(u32 number);
int lab_make_socket(u32 host, u32 kind, struct socket **socket);
struct socket *lab_listener(u32 host, u32 kind);
/* That listener once more, as new. */
int lab_listen_again(u32 host, u32 kind);
/* Pages of zeros as a file's from that place on, none behind the other in memory: so many bytes, in at most LAB_PAGES pieces. */
#define LAB_PAGES 16
int lab_zeros(struct bio_vec *pieces, u64 place, size_t length);
/* A socket that connects from its port. */
int lab_bind_connection(u32 number, struct socket **socket);
/* As much of what the application wants to write as the socket takes. */
void lab_write_more(struct lab_sender *sender);
void lab_serve_ready(void);
bool lab_is_ready(void);

/* As much of that as the socket takes; what sendmsg() returns. */
int lab_send(struct lab_sender *sender, u64 bytes);
/* At most that many bytes; how many there were. */
int lab_receive(struct lab_sender *sender, u32 bytes);
/* The laboratory's beginning of a connection. */
void lab_begin(struct lab_sender *sender);
void lab_accept(u32 host, u32 kind);
void lab_close_connection(u32 number);

struct lab_run_record;

/* recorder.c */
void lab_begin_recording(void);
void lab_run_begin(u32 connection, u8 end, u8 kind, u8 flags, u32 value, u32 result);
void lab_run_result(u32 result);
void lab_run_end(void);
void lab_look(struct sock *sk, u32 *fields);
u32 lab_mix(u32 before, const struct lab_run_record *decision);
u32 lab_effect(struct sock *sk, u32 sent);
u32 lab_check(const struct lab_run_record *record, u32 before, u32 decisions);
struct sock *lab_end_socket(u32 connection, u8 end);

/* replay.c */
int lab_replay(void);
u32 lab_replay_decide(u32 decision, u32 natural);
/* Takes the packet. */
/* further: behind another piece of the same packet. */
void lab_replay_sent(struct sk_buff *skb, u32 connection, bool reply, u32 number, bool further);

/* functions.c */
int lab_functions_open(void);
void lab_functions_begin(const struct lab_run_record *record, u64 run);
void lab_functions_end(void);
void lab_functions_close(void);
void slowpath_replay_stop(const struct lab_run_record *record, struct sock *sk);

struct replay_end;

/* follow.c */
int lab_follow_begin(void);
int lab_follow_refused(bool reply, u32 number);
u32 lab_follow_decide(u32 decision, u32 natural);
void lab_follow_end(void);
/* A call, in a task of its own, until it is done or waits. */
void lab_follow_call(struct replay_end *end, const struct lab_run_record *record);
/* Goes on with a call that waits. */
void lab_follow_resume(struct replay_end *end);
bool lab_follow_is_ready(struct replay_end *end);
struct sock *lab_follow_socket(u8 end);

/* workload.c */
/* There is something to read, for an application that takes its time. */
void lab_read_later(struct lab_sender *sender);
/* The receiver has more in order: flows may be done by that. */
void lab_account(struct lab_sender *sender);
int lab_run(u64 *end);

#endif
