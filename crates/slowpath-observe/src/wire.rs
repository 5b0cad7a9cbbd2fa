// SPDX-License-Identifier: Apache-2.0
//! The records of `connection.bpf.h` as they come from the kernel, and their typed form.
//!
//! First step: [`Record`] is plain data of a checked size (the loader compares the sizes of
//! both sides when it makes the maps). Second step: [`Record::snapshot`] undoes the
//! kernel's scalings (srtt x8, mdev x4, jiffies) once and turns sentinels into `None`.

use slowpath_model::{
    CALL_HISTOGRAM_BUCKETS, CaState, CallStats, Claim, Closer, ConnectionId, EpisodeWaits,
    FourTuple, Holder, Micros, MonoNanos, OpeningWaits, Origin, QueueWaits, RecoveryStats,
    RtoStats, RttSums, Snapshot, TcpState, TcpStats, Tier, WaitSums, Waits,
};
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr};
use zerocopy::{FromBytes, Immutable, KnownLayout};

/// `TCP_INFINITE_SSTHRESH` (include/net/tcp.h).
const INFINITE_SSTHRESH: u32 = 0x7fff_ffff;

const AF_INET6: u8 = 10;

/// `struct calls`.
#[derive(Clone, Copy, Debug, FromBytes, Immutable, KnownLayout)]
#[repr(C)]
pub(crate) struct Calls {
    pub count: u64,
    pub bytes: u64,
    pub last_jiffies: u64,
    pub min: u32,
    pub max: u32,
    pub histogram: [u32; CALL_HISTOGRAM_BUCKETS],
}

/// `struct waits`; the last eight are the probes' own.
#[derive(Clone, Copy, Debug, FromBytes, Immutable, KnownLayout)]
#[repr(C)]
pub(crate) struct RecordWaits {
    pub reordering_ns: u64,
    pub cwr_ns: u64,
    pub burst_ns: u64,
    pub cwnd_jiffies: u32,
    pub nagle_jiffies: u32,
    pub zero_jiffies: u32,
    pub unread_jiffies: u32,
    pub full_jiffies: u32,
    pub zero_windows: u32,
    pub spurious: u32,
    pub burst_losses: u32,
    pub syn_retransmits: u32,
    pub syn_wait_ms: u32,
    pub few_losses: u32,
    pub late_after_loss: u32,
    pub seen_reord: u32,
    pub seen_ce: u32,
    pub seen_una: u32,
    pub burst_start: u32,
    pub burst_bytes: u32,
    pub zero_open: u8,
    pub burst_open: u8,
    pub pad: u16,
}

/// `struct caller`.
#[derive(Clone, Copy, Debug, FromBytes, Immutable, KnownLayout)]
#[repr(C)]
pub(crate) struct Caller {
    pub start_ns: u64,
    pub cgroup: u64,
    pub socket_cgroup: u64,
    pub listener: u64,
    pub closer_start_ns: u64,
    pub pid: u32,
    pub program: u32,
    pub flags: u32,
    pub closer_pid: u32,
    pub command: [u8; 16],
}

const CALLER_KERNEL: u32 = 1;
const CALLER_HANDED_ON: u32 = 2;

impl Caller {
    fn claim(&self, origin: u8) -> Option<Claim> {
        let holder = Holder {
            pid: self.pid,
            start_ns: self.start_ns,
            program: self.program,
            cgroup: self.cgroup,
            command: self.command,
        };
        let some = |id: u64| (id != 0).then_some(id);
        let socket_cgroup = some(self.socket_cgroup);
        let closer = (self.closer_pid != 0).then_some(Closer {
            pid: self.closer_pid,
            start_ns: self.closer_start_ns,
        });
        if self.flags & CALLER_KERNEL != 0 {
            Some(Claim::Kernel)
        } else if self.pid == 0 && origin == 1 {
            None
        } else if self.pid == 0 {
            Some(Claim::UnknownOpener {
                listener: some(self.listener),
                socket_cgroup,
                closer,
            })
        } else {
            match closer.filter(|_| self.flags & CALLER_HANDED_ON != 0) {
                Some(closer) => Some(Claim::HandedOn {
                    opener: holder,
                    closer,
                }),
                None => Some(Claim::Opener(holder)),
            }
        }
    }
}

/// `struct record`.
#[derive(Clone, Copy, Debug, FromBytes, Immutable, KnownLayout)]
#[repr(C)]
pub(crate) struct Record {
    pub sk: u64,
    pub connection: u64,
    pub cookie: u64,
    pub start_ns: u64,
    pub at_ns: u64,
    pub since_ns: u64,
    pub at_jiffies: u64,
    pub bytes_sent: u64,
    pub bytes_acked: u64,
    pub bytes_received: u64,
    pub bytes_retrans: u64,
    pub pacing_rate: u64,
    pub rtt_sum_us: u64,
    pub lone_sum_us: u64,
    pub late_sum_us: u64,
    pub held_sum_us: u64,
    pub recovery_ns: u64,
    pub loss_ns: u64,
    pub rto_wait_us: u64,
    pub netns_cookie: u64,
    pub caller: Caller,
    pub sends: Calls,
    pub receives: Calls,
    pub rtt_count: u32,
    pub lone_count: u32,
    pub late_count: u32,
    pub held_count: u32,
    pub rtt_min_us: u32,
    pub fast_recoveries: u32,
    pub loss_entries: u32,
    pub netns: u32,
    pub segs_out: u32,
    pub segs_in: u32,
    pub data_segs_out: u32,
    pub data_segs_in: u32,
    pub total_retrans: u32,
    pub delivered: u32,
    pub delivered_ce: u32,
    pub dsack_dups: u32,
    pub reord_seen: u32,
    pub rcv_ooopack: u32,
    pub packets_out: u32,
    pub lost_out: u32,
    pub retrans_out: u32,
    pub sacked_out: u32,
    pub snd_cwnd: u32,
    pub snd_ssthresh: u32,
    pub snd_wnd: u32,
    pub rcv_wnd: u32,
    pub mss_cache: u32,
    pub pmtu: u32,
    pub reordering: u32,
    pub srtt_us: u32,
    pub mdev_us: u32,
    pub windowed_min_us: u32,
    pub rto_jiffies: u32,
    pub chrono_jiffies: [u32; 3],
    pub unsent: u32,
    pub send_queue: u32,
    pub receive_queue: u32,
    pub wmem_queued: u32,
    pub sndbuf: u32,
    pub rcvbuf: u32,
    pub rate_delivered: u32,
    pub rate_interval_us: u32,
    pub total_rto_time_ms: u32,
    pub total_rto: u16,
    pub total_rto_recoveries: u16,
    pub local_port: u16,
    pub remote_port: u16,
    pub family: u8,
    pub state: u8,
    pub ca_state: u8,
    pub backoff: u8,
    pub retransmits: u8,
    pub probes: u8,
    pub origin: u8,
    pub flags: u8,
    pub local: [u8; 16],
    pub remote: [u8; 16],
    pub waits: RecordWaits,
}

const RECORD_CLOSED: u8 = 1;
const RECORD_HAS_RTO: u8 = 2;
const RECORD_APP_LIMITED: u8 = 4;

/// A chronograph is running: the record changes without an event.
pub(crate) const RECORD_BUSY: u8 = 8;

/// `waits` is set; otherwise there were none.
const RECORD_WAITS: u8 = 16;

/// `struct shared`.
#[derive(Clone, Copy, Debug, FromBytes, Immutable, KnownLayout)]
#[repr(C)]
pub(crate) struct Shared {
    pub now_ns: u64,
    pub epoch: u32,
    pub late_margin_us: u32,
    pub hz: u32,
    pub emit_all: u32,
    pub suspects: u32,
    pub list_capacity: u32,
    pub list_base: u32,
    pub list_count: u32,
    pub list_epoch: u32,
    pub carried: u32,
    pub thinned: u32,
    pub pad: u32,
    pub pad0: [u64; 7],
    pub noted: [u32; 2],
    pub pad1: [u32; 14],
    pub area_used: u32,
    pub visited: u32,
    pub repeats: u32,
    pub left_over: u32,
    pub jiffies: u64,
    pub touched: u64,
    pub opened: u64,
    pub closed: u64,
    pub live: u64,
    pub storage_failed: u64,
    pub closes_dropped: u64,
    pub calls_dropped: u64,
    pub seeded: u64,
    pub notes_dropped: u64,
    pub late_closes: u64,
}

/// `struct note`.
#[derive(Clone, Copy, Debug, FromBytes, Immutable, KnownLayout)]
#[repr(C)]
pub(crate) struct Note {
    pub sk: u64,
    pub connection: u64,
    pub cookie: u64,
    /// The poll that is to look at it, by its epoch.
    pub due: u32,
    pub pad: u32,
}

/// Values of `Shared::thinned`.
pub(crate) const THINNED_NOTES: u32 = 1;
pub(crate) const THINNED_WALKS: u32 = 2;

/// Places for rates, by the lower bits of the cookie.
pub(crate) const RATE_SLOTS: usize = 1 << 18;

/// Different rates.
pub(crate) const RATES: usize = 8;

/// In a place: the connection's calls are logged one by one.
pub(crate) const RATE_SUSPECT: u8 = 8;

/// Quantiles of the polls passed over between two looks.
pub(crate) const GAPS: usize = 1024;

/// `struct rates`.
#[derive(Clone, Copy, FromBytes, Immutable, KnownLayout)]
#[repr(C)]
pub(crate) struct Rates {
    pub slots: [u8; RATE_SLOTS],
    pub gaps: [[u16; GAPS]; RATES],
}

/// `struct holder`.
#[derive(Clone, Copy, Debug, FromBytes, Immutable, KnownLayout)]
#[repr(C)]
pub(crate) struct HolderRecord {
    pub cookie: u64,
    pub start_ns: u64,
    pub cgroup: u64,
    pub pid: u32,
    pub program: u32,
    pub flags: u32,
    pub pad: u32,
    pub command: [u8; 16],
}

/// What is held is a listening socket.
pub(crate) const HOLDER_LISTENS: u32 = 1;

/// `struct unheld`.
#[derive(Clone, Copy, Debug, FromBytes, Immutable, KnownLayout)]
#[repr(C)]
pub(crate) struct UnheldRecord {
    pub cookie: u64,
    pub flags: u32,
    pub pad: u32,
}

/// No file and no process: not accepted yet, or closed.
pub(crate) const UNHELD_NO_SOCKET: u32 = 1;
/// The kernel's own.
pub(crate) const UNHELD_KERNEL: u32 = 2;

/// `struct call`.
#[derive(Clone, Copy, Debug, FromBytes, Immutable, KnownLayout)]
#[repr(C)]
pub(crate) struct CallRecord {
    pub cookie: u64,
    pub at_ns: u64,
    pub bytes: u32,
    pub direction: u32,
}

/// What a record does not carry.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Context {
    pub boot_id: u128,
    /// Jiffies a second.
    pub hz: u32,
    /// Which probes feed the record: without one its sums are `None`.
    pub rtt_sums: bool,
    pub recovery: bool,
    pub calls: bool,
}

impl Context {
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

impl Calls {
    /// `at` and `at_jiffies` name one moment.
    fn stats(&self, at: MonoNanos, at_jiffies: u64, hz: u32) -> CallStats {
        let some = self.count > 0;
        // At most the age of the host: a century in nanoseconds is below 2^62.
        let ago = at_jiffies.saturating_sub(self.last_jiffies);
        let ago = match hz {
            1000 => ago.saturating_mul(1_000_000),
            250 => ago.saturating_mul(4_000_000),
            100 => ago.saturating_mul(10_000_000),
            hz => ago.saturating_mul(1_000_000_000) / u64::from(hz.max(1)),
        };
        CallStats {
            count: self.count,
            bytes: self.bytes,
            min: some.then_some(self.min),
            max: some.then_some(self.max),
            histogram: self.histogram,
            last: some.then(|| MonoNanos(at.0.saturating_sub(ago))),
        }
    }
}

impl Record {
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
            origin: match self.origin {
                1 => Origin::Opened,
                2 => Origin::Accepted,
                _ => Origin::Unknown,
            },
            closed: self.flags & RECORD_CLOSED != 0,
            tier: Tier::Bpf,
            owner: self.caller.claim(self.origin),
            stats: self.stats(context)?,
            sends: context.calls.then(|| self.calls(&self.sends, context)),
            receives: context.calls.then(|| self.calls(&self.receives, context)),
            waits: self.waits(context),
        })
    }

    fn calls(&self, calls: &Calls, context: &Context) -> CallStats {
        calls.stats(MonoNanos(self.at_ns), self.at_jiffies, context.hz)
    }

    fn waits(&self, context: &Context) -> Waits {
        let both = context.rtt_sums && context.calls;
        let watched = Waits::watched(both, context.recovery, true);
        if self.flags & RECORD_WAITS == 0 {
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
                lonely_timeouts: w.few_losses.into(),
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
            app_limited: Some(self.flags & RECORD_APP_LIMITED != 0),
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
            rto_stats: (self.flags & RECORD_HAS_RTO != 0).then(|| RtoStats {
                timeouts: self.total_rto.into(),
                recoveries: self.total_rto_recoveries.into(),
                time: Micros::from_millis(self.total_rto_time_ms.into()),
            }),
        })
    }
}
