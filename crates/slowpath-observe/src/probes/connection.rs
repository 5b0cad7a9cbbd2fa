// SPDX-License-Identifier: Apache-2.0
//! The mirrors of `connection.bpf.h`, which all probes share: records as they come from the kernel, and their typed form.
//!
//! First step: [`Record`] is plain data whose every field the build has compared with C's
//! ([`slowpath_layout`]). Second step: [`Record::snapshot`] undoes the
//! kernel's scalings (srtt x8, mdev x4, jiffies) once and turns sentinels into `None`.

use caller::Caller;
use calls::Calls;
use slowpath_layout::{Mirror, Struct, mirror};
use slowpath_model::{
    CaState, CallStats, ConnectionId, Ending, EpisodeWaits, FourTuple, Micros, MonoNanos,
    Multipath, OpeningWaits, Origin, QueueWaits, RecoveryStats, RtoStats, RttSums, Snapshot,
    SocketFacts, TcpState, TcpStats, Tier, Turns, WaitSums, Waits,
};
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr};
use turns::{LatestTurns, RecordAnswers, RecordTurns};

mod caller;
mod calls;
mod turns;

/// The C side of what is mirrored, from the objects' BTF.
#[allow(dead_code)]
pub(crate) mod layouts {
    include!(concat!(env!("OUT_DIR"), "/layouts.rs"));
}

use layouts::origin::{ORIGIN_ACCEPTED, ORIGIN_OPENED};
use layouts::record_flag::{
    RECORD_APP_LIMITED, RECORD_CLOSED, RECORD_HAS_RTO, RECORD_MPTCP_UNREAD, RECORD_MPTCP_WINDOW,
    RECORD_NOT_SENT, RECORD_WAITS,
};

/// `TCP_INFINITE_SSTHRESH` (include/net/tcp.h).
const INFINITE_SSTHRESH: u32 = 0x7fff_ffff;

const AF_INET6: u8 = 10;

mirror! {
    /// `struct waits`; the last eight are the probes' own.
    pub(crate) struct RecordWaits = layouts::WAITS {
        reordering_ns: u64,
        cwr_ns: u64,
        burst_ns: u64,
        cwnd_jiffies: u32,
        nagle_jiffies: u32,
        zero_jiffies: u32,
        unread_jiffies: u32,
        full_jiffies: u32,
        zero_windows: u32,
        spurious: u32,
        burst_losses: u32,
        syn_retransmits: u32,
        syn_wait_ms: u32,
        few_losses: u32,
        late_after_loss: u32,
        last_reord: u32,
        last_ce: u32,
        last_una: u32,
        burst_start: u32,
        burst_bytes: u32,
        zero_open: u8,
        burst_open: u8,
        pad: u16,
    }
}

mirror! {
    /// `struct record`.
    pub(crate) struct Record = layouts::RECORD {
        sk: u64,
        connection: u64,
        cookie: u64,
        start_ns: u64,
        at_ns: u64,
        since_ns: u64,
        at_jiffies: u64,
        bytes_sent: u64,
        bytes_acked: u64,
        bytes_received: u64,
        bytes_retrans: u64,
        pacing_rate: u64,
        max_pacing_rate: u64,
        rtt_sum_us: u64,
        lone_sum_us: u64,
        late_sum_us: u64,
        held_sum_us: u64,
        recovery_ns: u64,
        loss_ns: u64,
        rto_wait_us: u64,
        netns_cookie: u64,
        caller: Caller,
        sends: Calls,
        receives: Calls,
        turns: RecordTurns,
        rtt_count: u32,
        lone_count: u32,
        late_count: u32,
        held_count: u32,
        rtt_min_us: u32,
        fast_recoveries: u32,
        loss_entries: u32,
        netns: u32,
        segs_out: u32,
        segs_in: u32,
        data_segs_out: u32,
        data_segs_in: u32,
        total_retrans: u32,
        delivered: u32,
        delivered_ce: u32,
        dsack_dups: u32,
        reord_seen: u32,
        rcv_ooopack: u32,
        packets_out: u32,
        lost_out: u32,
        retrans_out: u32,
        sacked_out: u32,
        snd_cwnd: u32,
        snd_ssthresh: u32,
        snd_wnd: u32,
        rcv_wnd: u32,
        mss_cache: u32,
        pmtu: u32,
        reordering: u32,
        srtt_us: u32,
        mdev_us: u32,
        windowed_min_us: u32,
        rto_jiffies: u32,
        chrono_jiffies: [u32; 3],
        unsent: u32,
        send_queue: u32,
        receive_queue: u32,
        wmem_queued: u32,
        sndbuf: u32,
        rcvbuf: u32,
        rate_delivered: u32,
        rate_interval_us: u32,
        total_rto_time_ms: u32,
        total_rto: u16,
        total_rto_recoveries: u16,
        local_port: u16,
        remote_port: u16,
        family: u8,
        state: u8,
        ca_state: u8,
        backoff: u8,
        retransmits: u8,
        probes: u8,
        origin: u8,
        flags: u8,
        local: [u8; 16],
        remote: [u8; 16],
        wmem_alloc: u32,
        error: u16,
        closed_in: u8,
        pad: u8,
        snd_una: u32,
        waits: RecordWaits,
        latest: LatestTurns,
    }
}

mirror! {
    /// `struct shared`.
    pub(crate) struct Shared = layouts::SHARED {
        now_ns: u64,
        epoch: u32,
        late_margin_us: u32,
        hz: u32,
        emit_all: u32,
        suspects: u32,
        list_capacity: u32,
        list_base: u32,
        list_count: u32,
        list_epoch: u32,
        carried: u32,
        thinned: u32,
        netns: u32,
        pad0: [u64; 7],
        noted: [u32; 2],
        pad1: [u32; 14],
        area_used: u32,
        visited: u32,
        repeats: u32,
        left_over: u32,
        jiffies: u64,
        touched: u64,
        opened: u64,
        closed: u64,
        live: u64,
        storage_failed: u64,
        closes_dropped: u64,
        calls_dropped: u64,
        seeded: u64,
        notes_dropped: u64,
        late_closes: u64,
    }
}

mirror! {
    /// `struct note`.
    pub(crate) struct Note = layouts::NOTE {
        sk: u64,
        connection: u64,
        cookie: u64,
        /// The poll that is to look at it, by its epoch.
        due: u32,
        pad: u32,
    }
}

/// Places for rates, by the lower bits of the cookie.
pub(crate) const RATE_SLOTS: usize = 1 << 18;

/// Different rates.
pub(crate) const RATES: usize = 8;

/// Quantiles of the polls passed over between two looks.
pub(crate) const GAPS: usize = 1024;

mirror! {
    /// `struct rates`.
    pub(crate) struct Rates = layouts::RATES {
        slots: [u8; RATE_SLOTS],
        gaps: [[u16; GAPS]; RATES],
    }
}

/// What every probe shares; a probe's own types stand beside it.
pub(crate) const MIRRORS: [Struct<'static>; 10] = [
    Calls::LAYOUT,
    RecordWaits::LAYOUT,
    RecordAnswers::LAYOUT,
    RecordTurns::LAYOUT,
    LatestTurns::LAYOUT,
    Caller::LAYOUT,
    Record::LAYOUT,
    Shared::LAYOUT,
    Note::LAYOUT,
    Rates::LAYOUT,
];

/// Sums of a record that a probe of its own keeps; without it they are `None`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Sums {
    Rtt,
    Recovery,
    Calls,
}

/// What a record does not carry.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Context {
    pub boot_id: u128,
    /// Jiffies a second.
    pub hz: u32,
    pub rtt_sums: bool,
    pub recovery: bool,
    pub calls: bool,
}

impl Context {
    /// A probe runs that keeps these sums.
    pub(crate) fn add(&mut self, sums: &[Sums]) {
        for it in sums {
            match it {
                Sums::Rtt => self.rtt_sums = true,
                Sums::Recovery => self.recovery = true,
                Sums::Calls => self.calls = true,
            }
        }
    }

    fn jiffies(&self, n: u32) -> Micros {
        // The usual frequencies: the compiler divides by multiplying.
        Micros(match (u64::from(n) * 1_000_000, self.hz) {
            (n, 1000) => n / 1000,
            (n, 250) => n / 250,
            (n, 100) => n / 100,
            (n, hz) => n / u64::from(hz.max(1)),
        })
    }
}

fn address(family: u8, bytes: &[u8; 16]) -> IpAddr {
    if family == AF_INET6 {
        IpAddr::V6(Ipv6Addr::from(*bytes)).to_canonical()
    } else {
        let [a, b, c, d, ..] = *bytes;
        IpAddr::V4(Ipv4Addr::new(a, b, c, d))
    }
}

/// `None` for the kernel's "no sample yet".
fn sample(us: u32) -> Option<Micros> {
    (us != u32::MAX).then_some(Micros(us.into()))
}

impl Record {
    /// Whether it has that one of `enum record_flag`.
    pub(crate) fn has(&self, flag: u32) -> bool {
        u32::from(self.flags) & flag != 0
    }

    /// The record as a snapshot, or `None` if its state is no TCP state.
    pub(crate) fn snapshot(&self, context: &Context) -> Option<Snapshot> {
        Some(Snapshot {
            id: ConnectionId {
                boot_id: context.boot_id,
                netns: self.netns,
                cookie: self.cookie,
                start: MonoNanos(self.start_ns),
            },
            tuple: FourTuple {
                local: SocketAddr::new(address(self.family, &self.local), self.local_port),
                remote: SocketAddr::new(address(self.family, &self.remote), self.remote_port),
            },
            at: MonoNanos(self.at_ns),
            origin: match self.origin.into() {
                ORIGIN_OPENED => Origin::Opened,
                ORIGIN_ACCEPTED => Origin::Accepted,
                _ => Origin::Unknown,
            },
            closed: self.has(RECORD_CLOSED),
            tier: Tier::Bpf,
            owner: self.caller.claim(self.origin.into()),
            stats: self.stats(context)?,
            sends: context.calls.then(|| self.calls(&self.sends, context)),
            receives: context.calls.then(|| self.calls(&self.receives, context)),
            waits: self.waits(context),
            facts: self.facts(),
            turns: self.turns(context),
        })
    }

    fn facts(&self) -> SocketFacts {
        let ending = self.has(RECORD_CLOSED).then(|| Ending {
            state: TcpState::from_kernel(self.closed_in),
            error: (self.error != 0).then_some(self.error),
        });
        SocketFacts {
            max_pacing_rate: (self.max_pacing_rate != u64::MAX).then_some(self.max_pacing_rate),
            // The socket itself counts as one byte (sk_alloc).
            device_queue: Some(self.wmem_alloc.saturating_sub(1)),
            ending,
            not_sent: self.has(RECORD_NOT_SENT),
        }
    }

    fn calls(&self, calls: &Calls, context: &Context) -> CallStats {
        calls.stats(MonoNanos(self.at_ns), self.at_jiffies, context.hz)
    }

    fn turns(&self, context: &Context) -> Turns {
        if context.rtt_sums && context.calls {
            let closed = self.has(RECORD_CLOSED);
            self.turns.turns(&self.latest, self.state, closed)
        } else {
            Turns::UNOBSERVED
        }
    }

    fn waits(&self, context: &Context) -> Waits {
        let both = context.rtt_sums && context.calls;
        let watched = Waits::watched(both, context.recovery, true).with_multipath(Multipath {
            window_full: self.has(RECORD_MPTCP_WINDOW),
            unread: self.has(RECORD_MPTCP_UNREAD),
        });
        if !self.has(RECORD_WAITS) {
            watched
        } else {
            self.waited(context, &watched)
        }
    }

    #[cold]
    #[inline(never)]
    fn waited(&self, context: &Context, watched: &Waits) -> Waits {
        let w = &self.waits;
        let jiffies = |n: u32| context.jiffies(n);
        watched.with(WaitSums {
            queues: QueueWaits {
                congestion_window: jiffies(w.cwnd_jiffies),
                nagle: jiffies(w.nagle_jiffies),
                zero_window: jiffies(w.zero_jiffies),
                zero_windows: w.zero_windows.into(),
                unread: jiffies(w.unread_jiffies),
                send_buffer: jiffies(w.full_jiffies),
            },
            episodes: EpisodeWaits {
                reordering: Micros(w.reordering_ns / 1_000),
                spurious_recoveries: w.spurious.into(),
                marked: Micros(w.cwr_ns / 1_000),
                burst_losses: w.burst_losses.into(),
                burst: Micros(w.burst_ns / 1_000),
                thin_timeouts: w.few_losses.into(),
                acks_after_timeout: w.late_after_loss.into(),
            },
            opening: OpeningWaits {
                syn_retransmits: w.syn_retransmits.into(),
                syn_wait: Micros::from_millis(w.syn_wait_ms.into()),
            },
        })
    }

    fn stats(&self, context: &Context) -> Option<TcpStats> {
        let jiffies = |n: u32| context.jiffies(n);
        let [busy, rwnd_limited, sndbuf_limited] = self.chrono_jiffies;
        Some(TcpStats {
            state: TcpState::from_kernel(self.state)?,
            ca_state: CaState::from_kernel(self.ca_state)?,
            bytes_sent: Some(self.bytes_sent),
            bytes_acked: self.bytes_acked,
            bytes_received: self.bytes_received,
            bytes_retransmitted: Some(self.bytes_retrans),
            segments_out: self.segs_out.into(),
            segments_in: self.segs_in.into(),
            data_segments_out: self.data_segs_out.into(),
            data_segments_in: self.data_segs_in.into(),
            retransmitted: self.total_retrans.into(),
            delivered: Some(self.delivered.into()),
            delivered_ce: Some(self.delivered_ce.into()),
            dsack_duplicates: Some(self.dsack_dups.into()),
            reordering_events: Some(self.reord_seen.into()),
            out_of_order_in: Some(self.rcv_ooopack.into()),
            in_flight: self.packets_out,
            lost: self.lost_out,
            retransmitted_in_flight: self.retrans_out,
            sacked: self.sacked_out,
            unanswered_timeouts: self.retransmits.into(),
            probes: self.probes.into(),
            backoff: self.backoff.into(),
            cwnd: self.snd_cwnd,
            ssthresh: (self.snd_ssthresh < INFINITE_SSTHRESH).then_some(self.snd_ssthresh),
            send_window: Some(self.snd_wnd),
            receive_window: Some(self.rcv_wnd),
            send_mss: self.mss_cache,
            path_mtu: self.pmtu,
            reordering: self.reordering,
            srtt: (self.srtt_us != 0).then(|| Micros((self.srtt_us >> 3).into())),
            rttvar: Micros((self.mdev_us >> 2).into()),
            min_rtt: sample(self.windowed_min_us),
            rto: jiffies(self.rto_jiffies),
            pacing_rate: (self.pacing_rate != u64::MAX).then_some(self.pacing_rate),
            // tcp_compute_delivery_rate
            delivery_rate: (u64::from(self.rate_delivered) * u64::from(self.mss_cache))
                .saturating_mul(1_000_000)
                .checked_div(self.rate_interval_us.into()),
            app_limited: Some(self.has(RECORD_APP_LIMITED)),
            busy: Some(jiffies(busy) + jiffies(rwnd_limited) + jiffies(sndbuf_limited)),
            rwnd_limited: Some(jiffies(rwnd_limited)),
            sndbuf_limited: Some(jiffies(sndbuf_limited)),
            unsent: self.unsent,
            send_queue: self.send_queue,
            receive_queue: self.receive_queue,
            send_memory: Some(self.wmem_queued),
            send_buffer: Some(self.sndbuf),
            receive_buffer: Some(self.rcvbuf),
            rtt_sums: context.rtt_sums.then(|| RttSums {
                sum: Micros(self.rtt_sum_us),
                count: self.rtt_count.into(),
                lifetime_min: sample(self.rtt_min_us),
                lone_sum: Micros(self.lone_sum_us),
                lone_count: self.lone_count.into(),
                late_sum: Micros(self.late_sum_us),
                late_count: self.late_count.into(),
                held_sum: Micros(self.held_sum_us),
                held_count: self.held_count.into(),
            }),
            recovery: context.recovery.then(|| RecoveryStats {
                fast_recoveries: self.fast_recoveries.into(),
                recovery_time: Micros(self.recovery_ns / 1_000),
                loss_entries: self.loss_entries.into(),
                loss_time: Micros(self.loss_ns / 1_000),
                rto_wait: Micros(self.rto_wait_us),
            }),
            rto_stats: self.has(RECORD_HAS_RTO).then(|| RtoStats {
                timeouts: self.total_rto.into(),
                recoveries: self.total_rto_recoveries.into(),
                time: Micros::from_millis(self.total_rto_time_ms.into()),
            }),
        })
    }
}
