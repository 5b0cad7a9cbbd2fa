/* SPDX-License-Identifier: GPL-2.0 */
/*
 * What can be looked at after a run, beside what each check covers (lab_look() in recorder.c):
 * further variables of the socket, by the names and in the units that they have in Linux.
 * Sequence numbers are counted from the SYN of who sends them, 0 where there is none.
 *
 * MORE(name, value) for each; sk, tp and icsk are the socket's. The program's twin is MORE in
 * crates/slowpath-replay/src/probe.rs.
 */
#define LAB_MORE_FIELDS(MORE) \
	MORE(flag, slowpath_ack_flag) \
	MORE(snd_una, own(tp->snd_una)) \
	MORE(snd_nxt, own(tp->snd_nxt)) \
	MORE(write_seq, own(tp->write_seq)) \
	MORE(rcv_nxt, peers(tp->rcv_nxt)) \
	MORE(copied_seq, peers(tp->copied_seq)) \
	MORE(rcv_wup, peers(tp->rcv_wup)) \
	MORE(high_seq, own(tp->high_seq)) \
	MORE(undo_marker, own(tp->undo_marker)) \
	MORE(undo_retrans, tp->undo_retrans) \
	MORE(prior_cwnd, tp->prior_cwnd) \
	MORE(prior_ssthresh, tp->prior_ssthresh) \
	MORE(prr_delivered, tp->prr_delivered) \
	MORE(prr_out, tp->prr_out) \
	MORE(snd_cwnd_clamp, tp->snd_cwnd_clamp) \
	MORE(snd_cwnd_used, tp->snd_cwnd_used) \
	MORE(snd_cwnd_stamp, tp->snd_cwnd_stamp) \
	MORE(is_cwnd_limited, tp->is_cwnd_limited) \
	MORE(max_packets_out, tp->max_packets_out) \
	MORE(cwnd_usage_seq, own(tp->cwnd_usage_seq)) \
	MORE(lost, tp->lost) \
	MORE(retransmits, icsk->icsk_retransmits) \
	MORE(retrans_stamp, tp->retrans_stamp) \
	MORE(bytes_sent, tp->bytes_sent) \
	MORE(bytes_retrans, tp->bytes_retrans) \
	MORE(data_segs_out, tp->data_segs_out) \
	MORE(data_segs_in, tp->data_segs_in) \
	MORE(total_rto, tp->total_rto) \
	MORE(total_rto_recoveries, tp->total_rto_recoveries) \
	MORE(total_rto_time, tp->total_rto_time) \
	MORE(frto, tp->frto) \
	MORE(reord_seen, tp->reord_seen) \
	MORE(dsack_dups, tp->dsack_dups) \
	MORE(rcv_ooopack, tp->rcv_ooopack) \
	MORE(is_sack_reneg, tp->is_sack_reneg) \
	MORE(dup_ack_counter, tp->dup_ack_counter) \
	MORE(tlp_high_seq, own(tp->tlp_high_seq)) \
	MORE(tlp_retrans, tp->tlp_retrans) \
	MORE(rack_mstamp, tp->rack.mstamp) \
	MORE(rack_rtt_us, tp->rack.rtt_us) \
	MORE(rack_end_seq, own(tp->rack.end_seq)) \
	MORE(rack_reo_wnd_steps, tp->rack.reo_wnd_steps) \
	MORE(rack_reo_wnd_persist, tp->rack.reo_wnd_persist) \
	MORE(rack_dsack_seen, tp->rack.dsack_seen) \
	MORE(rttvar_us, tp->rttvar_us) \
	MORE(mdev_max_us, tp->mdev_max_us) \
	MORE(rtt_seq, own(tp->rtt_seq)) \
	MORE(rtt_min_us, minmax_get(&tp->rtt_min)) \
	MORE(rto_min_jiffies, icsk->icsk_rto_min) \
	MORE(probes_out, icsk->icsk_probes_out) \
	MORE(tcp_mstamp, tp->tcp_mstamp) \
	MORE(tcp_wstamp_ns, tp->tcp_wstamp_ns) \
	MORE(first_tx_mstamp, tp->first_tx_mstamp) \
	MORE(delivered_mstamp, tp->delivered_mstamp) \
	MORE(rate_delivered, tp->rate_delivered) \
	MORE(rate_interval_us, tp->rate_interval_us) \
	MORE(rate_app_limited, tp->rate_app_limited) \
	MORE(app_limited, tp->app_limited) \
	MORE(lsndtime, tp->lsndtime) \
	MORE(rcv_tstamp, tp->rcv_tstamp) \
	MORE(max_window, tp->max_window) \
	MORE(snd_wl1, peers(tp->snd_wl1)) \
	MORE(mss_cache, tp->mss_cache) \
	MORE(advmss, tp->advmss) \
	MORE(gso_segs, tp->gso_segs) \
	MORE(nonagle, tp->nonagle) \
	MORE(snd_sml, own(tp->snd_sml)) \
	MORE(pushed_seq, own(tp->pushed_seq)) \
	MORE(notsent_lowat, tp->notsent_lowat) \
	MORE(snd_wscale, tp->rx_opt.snd_wscale) \
	MORE(rcv_wscale, tp->rx_opt.rcv_wscale) \
	MORE(num_sacks, tp->rx_opt.num_sacks) \
	MORE(saw_tstamp, tp->rx_opt.saw_tstamp) \
	MORE(scaling_ratio, tp->scaling_ratio) \
	MORE(rcv_rtt_us, tp->rcv_rtt_est.rtt_us) \
	MORE(rcvq_space_seq, peers(tp->rcvq_space.seq)) \
	MORE(ack_pingpong, icsk->icsk_ack.pingpong) \
	MORE(ack_rcv_mss, icsk->icsk_ack.rcv_mss) \
	MORE(ack_last_seg_size, icsk->icsk_ack.last_seg_size) \
	MORE(ack_lrcvtime, icsk->icsk_ack.lrcvtime) \
	MORE(compressed_ack_rcv_nxt, peers(tp->compressed_ack_rcv_nxt)) \
	MORE(chrono_type, tp->chrono_type) \
	MORE(pacing_rate, sk->sk_pacing_rate) \
	MORE(forward_alloc, sk->sk_forward_alloc) \
	MORE(wmem_alloc, refcount_read(&sk->sk_wmem_alloc)) \
	MORE(shutdown, sk->sk_shutdown) \
	MORE(err, sk->sk_err)

#define LAB_COUNT_FIELD(name, value) + 1
#define LAB_MORE_COUNT (0 LAB_MORE_FIELDS(LAB_COUNT_FIELD))
