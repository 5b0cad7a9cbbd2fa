// SPDX-License-Identifier: Apache-2.0
//! Random records, every field of them, from a seed.
#![allow(dead_code)]

use slowpath_model::{
    CaState, Cgroup, CgroupSource, ClockState, ClockStatus, ConnectionId, ConnectionSummary,
    Container, Coverage, Deltas, Ending, Finding, FourTuple, LifeAnswers, LifeFacts, LifeTurns,
    LossCounters, Micros, MonoNanos, Origin, Owner, Ownership, Problem, ProblemInterval,
    ProblemSet, Process, ProcessStart, RecoveryStats, RtoStats, RttSums, Share, SocketFacts,
    TcpState, TcpStats, Tier, UnknownOwner, UnknownOwners, WallMicros,
};
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr};
use std::sync::Arc;

pub const BOOT: u128 = 0x5f3c_9a01_77e2_4bd1_8c55_3e01_9f2b_6d70;
/// 2026-11-21T00:00:00Z.
pub const MIDNIGHT: i64 = 1_795_219_200_000_000;
pub const HOUR: i64 = 3_600_000_000;

pub struct Random(pub u64);

impl Random {
    pub fn next(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut z = self.0;
        z = (z ^ (z >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        z ^ (z >> 31)
    }

    pub fn below(&mut self, n: u64) -> u64 {
        self.next() % n
    }

    fn coin(&mut self) -> bool {
        self.below(2) == 0
    }

    /// Any size of number, small ones often.
    fn number(&mut self) -> u64 {
        let shift = 64 - self.below(50) as u32;
        self.next().checked_shr(shift).unwrap_or(0)
    }

    fn n32(&mut self) -> u32 {
        self.number() as u32
    }

    fn micros(&mut self) -> Micros {
        Micros(self.number())
    }

    fn maybe<T>(&mut self, value: impl FnOnce(&mut Self) -> T) -> Option<T> {
        (self.below(4) != 0).then(|| value(self))
    }

    fn one<T: Copy>(&mut self, of: &[T]) -> T {
        of[self.below(of.len() as u64) as usize]
    }

    pub fn set(&mut self) -> ProblemSet {
        ProblemSet::from_bits(self.next() as u32)
    }

    pub fn connection(&mut self, below: u64) -> ConnectionId {
        let cookie = self.below(below);
        ConnectionId {
            boot_id: if cookie % 7 == 3 { 42 } else { BOOT },
            netns: 4_026_531_840,
            cookie,
            start: MonoNanos(cookie * 1_000_003),
        }
    }

    pub fn interval(&mut self, end: WallMicros) -> ProblemInterval {
        let duration = Micros(1 + self.below(3_000_000));
        let deltas = self.deltas(duration);
        let mut findings: Vec<Finding> = Problem::ALL[1..]
            .iter()
            .filter_map(|problem| {
                if self.below(3) != 0 {
                    return None;
                }
                Some(self.finding(*problem, duration, &deltas))
            })
            .collect();
        if findings.is_empty() {
            findings.push(self.finding(Problem::Timeout, duration, &deltas));
        }
        findings.sort_by_key(|f| {
            (
                std::cmp::Reverse(f.share.time_of(duration)),
                f.problem as u8,
            )
        });
        ProblemInterval {
            connection: self.connection(50),
            end,
            duration,
            findings,
            unmeasured: if self.coin() {
                self.set()
            } else {
                ProblemSet::EMPTY
            },
            deltas,
        }
    }

    fn finding(&mut self, problem: Problem, duration: Micros, deltas: &Deltas) -> Finding {
        let share = match self.below(5) {
            0 => Share::Coarse,
            1 => Share::Measured(duration),
            2 => Share::Measured(deltas.rwnd_limited.unwrap_or_default().min(duration)),
            _ => Share::Measured(Micros(self.below(duration.0 + 1))),
        };
        let counted = match problem {
            Problem::FastRetransmit => deltas.fast_recoveries,
            Problem::Timeout => deltas.timeouts,
            Problem::DelayedAck => deltas.delayed_acks,
            _ => None,
        };
        Finding {
            problem,
            share,
            events: if self.below(3) == 0 {
                self.maybe(Self::number)
            } else {
                counted
            },
        }
    }

    fn deltas(&mut self, duration: Micros) -> Deltas {
        let sent = self.maybe(Self::number);
        Deltas {
            bytes_sent: sent,
            bytes_acked: self.maybe(Self::number),
            bytes_received: self.maybe(Self::number),
            retransmitted: self.maybe(|r| r.below(4)),
            fast_recoveries: self.maybe(|r| r.below(3)),
            timeouts: self.maybe(|r| r.below(3)),
            rtt_sum: self.maybe(Self::micros),
            rtt_count: self.maybe(Self::number),
            delayed_acks: self.maybe(|r| r.below(3)),
            busy: self.maybe(|r| {
                if r.coin() {
                    duration
                } else {
                    Micros(r.below(duration.0 + 1))
                }
            }),
            rwnd_limited: self.maybe(|r| Micros(r.below(duration.0 + 1))),
            sndbuf_limited: self.maybe(|r| if r.coin() { Micros::ZERO } else { r.micros() }),
            bytes_written: if self.coin() {
                sent
            } else {
                self.maybe(Self::number)
            },
            writes: self.maybe(Self::number),
            bytes_read: self.maybe(Self::number),
            reads: self.maybe(Self::number),
            cwnd: self.n32(),
            send_window: self.maybe(Self::n32),
            send_queue: self.n32(),
            receive_queue: self.n32(),
            srtt: self.maybe(Self::micros),
            baseline_rtt: self.maybe(Self::micros),
            send_mss: self.one(&[1448, 536, 8948]),
            send_buffer: self.maybe(Self::n32),
            thin_timeouts: None,
            acks_after_timeout: None,
        }
    }

    fn address(&mut self) -> SocketAddr {
        let ip = if self.coin() {
            IpAddr::V4(Ipv4Addr::from(self.next() as u32))
        } else {
            IpAddr::V6(Ipv6Addr::from(u128::from(self.next()) << 64 | 1))
        };
        SocketAddr::new(ip, self.next() as u16)
    }

    pub fn summary(
        &mut self,
        connection: ConnectionId,
        last_observed: WallMicros,
    ) -> ConnectionSummary {
        let observed = self.number();
        ConnectionSummary {
            connection,
            tuple: FourTuple::new(self.address(), self.address()),
            origin: self.one(&[Origin::Opened, Origin::Accepted, Origin::Unknown]),
            owner: self.owner(),
            real_peer: self.maybe(Self::address),
            tier: self.one(&[Tier::Bpf, Tier::InetDiag, Tier::Imported]),
            first_observed: last_observed - Micros(self.below(HOUR as u64)),
            last_observed,
            closed: self.coin(),
            observed: Micros(observed),
            polls: self.number(),
            problem_time: std::array::from_fn(|i| match (i, self.coin()) {
                (0, true) => Micros(observed),
                (_, true) => Micros::ZERO,
                (_, false) => self.micros(),
            }),
            problem_events: Problem::ALL.map(|p| if p.has_events() { self.below(4) } else { 0 }),
            unmeasured: self.set(),
            stats: self.stats(),
            bytes_written: self.maybe(Self::number),
            writes: self.maybe(Self::number),
            bytes_read: self.maybe(Self::number),
            reads: self.maybe(Self::number),
            life: self.life(),
        }
    }

    fn life(&mut self) -> LifeFacts {
        let answers = |draw: &mut Self| LifeAnswers {
            count: draw.number(),
            time: draw.micros(),
            pending: draw.maybe(Self::micros),
        };
        LifeFacts {
            idle: self.maybe(Self::micros),
            socket: SocketFacts {
                max_pacing_rate: self.maybe(Self::number),
                device_queue: self.maybe(|draw| draw.below(1 << 20) as u32),
                ending: self.maybe(|draw| Ending {
                    state: draw.maybe(|draw| draw.one(&[TcpState::SynSent, TcpState::Established])),
                    error: draw.maybe(|draw| 1 + draw.below(133) as u16),
                }),
                not_sent: false,
            },
            turns: self.maybe(|draw| LifeTurns {
                peer: answers(draw),
                here: answers(draw),
                overlapping: draw.number(),
            }),
        }
    }

    fn text(&mut self) -> Arc<str> {
        format!("ap\u{e9} {}", self.below(9)).into()
    }

    fn owner(&mut self) -> Owner {
        let known = self.coin();
        Owner::new(Ownership {
            process: if known {
                Ok(Process {
                    pid: self.n32(),
                    start: self.maybe(|r| ProcessStart(r.number())),
                    command: self.text(),
                    executable: self.maybe(Self::text),
                    command_line: self.maybe(Self::text),
                })
            } else {
                Err(self.one(&UnknownOwner::ALL))
            },
            cgroup: self.maybe(|r| {
                Arc::new(Cgroup {
                    path: r.text(),
                    source: r.one(&[CgroupSource::Process, CgroupSource::Socket]),
                    unit: r.maybe(Self::text),
                    container: r.maybe(|r| Container {
                        id: r.text(),
                        runtime: r.maybe(Self::text),
                    }),
                    pod: r.maybe(Self::text),
                })
            }),
            application: self.maybe(Self::text),
            listener: self.maybe(Self::text),
        })
    }

    fn stats(&mut self) -> TcpStats {
        TcpStats {
            state: self.one(&STATES),
            ca_state: self.one(&CA_STATES),
            bytes_sent: self.maybe(Self::number),
            bytes_acked: self.number(),
            bytes_received: self.number(),
            bytes_retransmitted: self.maybe(Self::number),
            segments_out: self.number(),
            segments_in: self.number(),
            data_segments_out: self.number(),
            data_segments_in: self.number(),
            retransmitted: self.number(),
            delivered: self.maybe(Self::number),
            delivered_ce: self.maybe(Self::number),
            dsack_duplicates: self.maybe(Self::number),
            reordering_events: self.maybe(Self::number),
            out_of_order_in: self.maybe(Self::number),
            in_flight: self.n32(),
            lost: self.n32(),
            retransmitted_in_flight: self.n32(),
            sacked: self.n32(),
            unanswered_timeouts: self.n32(),
            probes: self.n32(),
            backoff: self.n32(),
            cwnd: self.n32(),
            ssthresh: self.maybe(Self::n32),
            send_window: self.maybe(Self::n32),
            receive_window: self.maybe(Self::n32),
            send_mss: self.n32(),
            path_mtu: self.n32(),
            reordering: self.n32(),
            srtt: self.maybe(Self::micros),
            rttvar: self.micros(),
            min_rtt: self.maybe(Self::micros),
            rto: self.micros(),
            pacing_rate: self.maybe(Self::number),
            delivery_rate: self.maybe(Self::number),
            app_limited: self.maybe(Self::coin),
            busy: self.maybe(Self::micros),
            rwnd_limited: self.maybe(Self::micros),
            sndbuf_limited: self.maybe(Self::micros),
            unsent: self.n32(),
            send_queue: self.n32(),
            receive_queue: self.n32(),
            send_memory: self.maybe(Self::n32),
            send_buffer: self.maybe(Self::n32),
            receive_buffer: self.maybe(Self::n32),
            rtt_sums: self.maybe(|r| RttSums {
                sum: r.micros(),
                count: r.number(),
                lifetime_min: r.maybe(Self::micros),
                lone_sum: r.micros(),
                lone_count: r.number(),
                late_sum: r.micros(),
                late_count: r.number(),
                held_sum: r.micros(),
                held_count: r.number(),
            }),
            recovery: self.maybe(|r| RecoveryStats {
                fast_recoveries: r.below(4),
                recovery_time: r.micros(),
                loss_entries: r.below(4),
                loss_time: r.micros(),
                rto_wait: r.micros(),
            }),
            rto_stats: self.maybe(|r| RtoStats {
                timeouts: r.below(4),
                recoveries: r.below(4),
                time: r.micros(),
            }),
        }
    }

    pub fn coverage(&mut self, end: WallMicros) -> Coverage {
        Coverage {
            end,
            duration: Micros(self.below(60_000_000)),
            polls: self.number(),
            sockets: self.number(),
            missed: self.number(),
            repeats: self.number(),
            emitted: self.number(),
            opened: self.number(),
            closed: self.number(),
            owners_unknown: self.number(),
            losses: LossCounters {
                storage_failed: self.number(),
                snapshots_dropped: self.number(),
                closes_dropped: self.number(),
                calls_dropped: self.number(),
                records_dropped: self.number(),
            },
            cpu: self.micros(),
            unmeasured: self.set(),
            unknown_owners: {
                let mut counts = UnknownOwners::default();
                for reason in UnknownOwner::ALL {
                    counts.set(reason, self.number());
                }
                counts
            },
            clock: self.maybe(|r| ClockStatus {
                state: r.one(&ClockState::ALL),
                synchronised: r.coin(),
                max_error: r.micros(),
            }),
        }
    }
}

const STATES: [TcpState; 12] = [
    TcpState::Established,
    TcpState::SynSent,
    TcpState::SynReceived,
    TcpState::FinWait1,
    TcpState::FinWait2,
    TcpState::TimeWait,
    TcpState::Close,
    TcpState::CloseWait,
    TcpState::LastAck,
    TcpState::Listen,
    TcpState::Closing,
    TcpState::NewSynReceived,
];

const CA_STATES: [CaState; 5] = [
    CaState::Open,
    CaState::Disorder,
    CaState::Cwr,
    CaState::Recovery,
    CaState::Loss,
];
