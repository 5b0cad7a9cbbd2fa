// SPDX-License-Identifier: GPL-2.0
/* What a replay's hosts have of their own among net.ipv4's sysctls: each end what it had when it was recorded. */
#include "lab.h"

#include <net/net_namespace.h>

#define SET(name)                                   \
	do {                                       \
		u32 value = values[place++];       \
		if (value != LAB_USUAL)             \
			ipv4->sysctl_##name = value; \
	} while (0)

/* In the order of lab_plan.own; its twin is own() of crates/slowpath-lab/src/virtual_time/sysctls.rs. */
void lab_set_sysctls(struct net *net, const __le32 *values)
{
	struct netns_ipv4 *ipv4 = &net->ipv4;
	u32 place = 0;

	SET(tcp_timestamps);
	SET(tcp_sack);
	SET(tcp_ecn);
	SET(tcp_recovery);
	SET(tcp_early_retrans);
	SET(tcp_reordering);
	SET(tcp_slow_start_after_idle);
	SET(tcp_moderate_rcvbuf);
	SET(ip_default_ttl);
	SET(tcp_rmem[0]);
	SET(tcp_rmem[1]);
	SET(tcp_rmem[2]);
	SET(tcp_wmem[0]);
	SET(tcp_wmem[1]);
	SET(tcp_wmem[2]);
	SET(tcp_window_scaling);
	SET(tcp_dsack);
	SET(tcp_frto);
	SET(tcp_app_win);
	SET(tcp_max_reordering);
	SET(tcp_autocorking);
	SET(tcp_tso_win_divisor);
	SET(tcp_tso_rtt_log);
	SET(tcp_min_tso_segs);
	SET(tcp_min_snd_mss);
	SET(tcp_notsent_lowat);
	SET(tcp_limit_output_bytes);
	SET(tcp_min_rtt_wlen);
	SET(tcp_shrink_window);
	SET(tcp_ecn_fallback);
	SET(tcp_mtu_probing);
	SET(tcp_mtu_probe_floor);
	SET(tcp_base_mss);
	SET(tcp_probe_threshold);
	SET(tcp_probe_interval);
	SET(tcp_keepalive_probes);
	SET(tcp_syn_retries);
	SET(tcp_synack_retries);
	SET(tcp_retries1);
	SET(tcp_retries2);
	SET(tcp_orphan_retries);
	SET(tcp_thin_linear_timeouts);
	SET(tcp_retrans_collapse);
	SET(tcp_stdurg);
	SET(tcp_rfc1337);
	SET(tcp_abort_on_overflow);
	SET(tcp_workaround_signed_windows);
	SET(tcp_reflect_tos);
	SET(tcp_pacing_ss_ratio);
	SET(tcp_pacing_ca_ratio);
	SET(tcp_comp_sack_nr);
	SET(tcp_comp_sack_delay_ns);
	SET(tcp_backlog_ack_defer);
	SET(tcp_pingpong_thresh);
	SET(tcp_rto_min_us);
	SET(tcp_syn_linear_timeouts);
	SET(tcp_keepalive_time);
	SET(tcp_keepalive_intvl);
	SET(tcp_fin_timeout);
	SET(tcp_invalid_ratelimit);
	WARN_ON(place != LAB_SYSCTLS);
}
