// SPDX-License-Identifier: Apache-2.0
//! Connections with random lives and random problems, drawn anew for every poll: nothing
//! repeats that would not repeat on a real host, and problems come singly, the case that
//! packs worst.

use slowpath_model::{
    CaState, ClockState, ClockStatus, ConnectionId, ConnectionSummary, Coverage, Deltas, Finding,
    FourTuple, LossCounters, Micros, MonoNanos, Origin, Owner, Problem, ProblemInterval,
    ProblemSet, RecoveryStats, RtoStats, RttSums, Share, TcpState, TcpStats, Tier, WallMicros,
};
use std::net::{IpAddr, Ipv4Addr, SocketAddr};

/// SplitMix64 (Steele, Lea, Flood: Fast splittable pseudorandom number generators, 2014).
pub struct Random(pub u64);

impl Random {
    fn next(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut z = self.0;
        z = (z ^ (z >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        z ^ (z >> 31)
    }

    /// Uniform in (0, 1].
    fn unit(&mut self) -> f64 {
        ((self.next() >> 11) + 1) as f64 / (1u64 << 53) as f64
    }

    pub fn chance(&mut self, p: f64) -> bool {
        self.unit() <= p
    }

    fn below(&mut self, n: u64) -> u64 {
        ((u128::from(self.next()) * u128::from(n)) >> 64) as u64
    }

    pub fn exponential(&mut self, mean: f64) -> f64 {
        -self.unit().ln() * mean
    }

    /// Lognormal about a median, `sigma` in units of e.
    pub fn lognormal(&mut self, median: f64, sigma: f64) -> f64 {
        let normal = (-2.0 * self.unit().ln()).sqrt() * (std::f64::consts::TAU * self.unit()).cos();
        median * (sigma * normal).exp()
    }

    fn size(&mut self, median: f64, sigma: f64) -> u64 {
        self.lognormal(median, sigma).min(1e15) as u64
    }

    fn weighted(&mut self, weights: &[f64]) -> usize {
        let mut left = self.unit() * weights.iter().sum::<f64>();
        for (i, weight) in weights.iter().enumerate() {
            left -= weight;
            if left <= 0.0 {
                return i;
            }
        }
        weights.len() - 1
    }
}

/// One connection: what stays the same over its life, and its totals so far.
pub struct Connection {
    pub summary: ConnectionSummary,
    /// The last segment that has a summary of it; 0 for none.
    pub logged_in: u32,
    base_rtt: f64,
    rwnd: u64,
    /// Median bytes in a polling interval.
    pub rate: f64,
    /// Median bytes a write.
    write: f64,
}

impl Connection {
    pub fn new(random: &mut Random, host: u128, cookie: u64, now: WallMicros, mono: u64) -> Self {
        let base_rtt = random.lognormal(2_000.0, 1.8);
        let mss = [1448, 1460, 1398, 1408, 1368, 8948, 65483]
            [random.weighted(&[60.0, 5.0, 10.0, 5.0, 5.0, 10.0, 5.0])];
        let rate = random.lognormal(60_000.0, 2.0);
        let accepted = random.chance(0.5);
        let remote = IpAddr::V4(Ipv4Addr::from(0x0a00_0000 | random.below(1 << 16) as u32));
        let local = IpAddr::V4(Ipv4Addr::new(10, 3, 1, 7));
        let service = [443, 80, 5432, 6379, 9092, 8080][random.below(6) as usize];
        let ephemeral = 32_768 + random.below(28_232) as u16;
        let (local_port, remote_port) = if accepted {
            (service, ephemeral)
        } else {
            (ephemeral, service)
        };
        let process = random.below(30);
        let stats = TcpStats {
            send_mss: mss,
            path_mtu: mss + 52,
            send_buffer: Some(87_040 + 2_304 * random.size(80.0, 1.5) as u32),
            receive_buffer: Some(131_072 + 4_096 * random.size(30.0, 1.5) as u32),
            ..empty()
        };
        Connection {
            summary: ConnectionSummary {
                connection: ConnectionId {
                    boot_id: host,
                    netns: 4_026_531_840,
                    cookie,
                    start: MonoNanos(mono * 1_000 + random.below(1_000)),
                },
                tuple: FourTuple::new(
                    SocketAddr::new(local, local_port),
                    SocketAddr::new(remote, remote_port),
                ),
                origin: if accepted {
                    Origin::Accepted
                } else {
                    Origin::Opened
                },
                owner: Owner::named(1_000 + 37 * process as u32, &format!("service-{process}")),
                real_peer: None,
                tier: Tier::Bpf,
                first_observed: now,
                last_observed: now,
                closed: false,
                observed: Micros::ZERO,
                polls: 0,
                problem_time: Default::default(),
                problem_events: Default::default(),
                unmeasured: ProblemSet::EMPTY,
                stats,
                bytes_written: Some(0),
                writes: Some(0),
                bytes_read: Some(0),
                reads: Some(0),
                life: Default::default(),
            },
            logged_in: 0,
            base_rtt,
            rwnd: random.size(200_000.0, 1.2) + 14_600,
            rate,
            write: random.lognormal(2_000.0, 1.5),
        }
    }

    /// An interval with a problem, or two.
    pub fn trouble(
        &mut self,
        random: &mut Random,
        end: WallMicros,
        length: u64,
    ) -> ProblemInterval {
        let events = Events::draw(random, length);
        let Events {
            sndbuf,
            rwnd,
            recoveries,
            timeouts,
            delayed,
            ..
        } = events;
        let sent = random.size(self.rate * length as f64 / 500_000.0, 1.0) + 1;
        let mss = u64::from(self.summary.stats.send_mss);
        let retransmitted = recoveries
            + timeouts
            + if recoveries > 0 {
                random.exponential(3.0) as u64
            } else {
                0
            };
        let srtt = random.lognormal(self.base_rtt * 1.3, 0.3) as u64 + 20;
        let samples = sent / (2 * mss) + 1;
        let rtt_sum = random.lognormal((samples * srtt) as f64, 0.2) as u64 + 40_000 * delayed;
        let window = self.send_window(random, rwnd > 0);
        let findings = events.findings(random, srtt, length);
        for finding in &findings {
            let i = finding.problem as usize;
            self.summary.problem_time[i] += finding.share.time_of(Micros(length));
            self.summary.problem_events[i] += finding.events.unwrap_or(1);
        }
        // Without retransmissions.
        let new = sent.saturating_sub(retransmitted * mss).max(1);
        let (written, queue) = self.written_and_queued(random, sent, new, sndbuf);
        ProblemInterval {
            connection: self.summary.connection,
            end,
            duration: Micros(length),
            findings,
            unmeasured: ProblemSet::EMPTY,
            deltas: Deltas {
                bytes_sent: Some(sent),
                bytes_acked: Some(sent - random.below(sent / 4 + 1)),
                bytes_received: Some(random.size(self.rate / 10.0, 1.5)),
                retransmitted: Some(retransmitted),
                fast_recoveries: Some(recoveries),
                timeouts: Some(timeouts),
                rtt_sum: Some(Micros(rtt_sum)),
                rtt_count: Some(samples),
                delayed_acks: Some(delayed),
                busy: Some(Micros(events.busy)),
                rwnd_limited: Some(Micros(rwnd)),
                sndbuf_limited: Some(Micros(sndbuf)),
                bytes_written: Some(written),
                writes: Some((written as f64 / self.write) as u64 + 1),
                bytes_read: Some(random.size(self.rate / 10.0, 1.5)),
                reads: Some(random.size(5.0, 1.0)),
                cwnd: if timeouts > 0 {
                    1 + random.below(10) as u32
                } else {
                    random.size(20.0, 1.0) as u32 + 2
                },
                send_window: Some(window as u32),
                send_queue: queue as u32,
                receive_queue: if random.chance(0.05) {
                    random.size(2_000.0, 1.0) as u32
                } else {
                    0
                },
                srtt: Some(Micros(srtt)),
                baseline_rtt: Some(Micros(self.base_rtt as u64)),
                send_mss: self.summary.stats.send_mss,
                send_buffer: self.summary.stats.send_buffer,
                ..Deltas::default()
            },
        }
    }

    /// The summary as it would be now.
    pub fn checkpoint(
        &mut self,
        random: &mut Random,
        now: WallMicros,
        closed: bool,
    ) -> &ConnectionSummary {
        let summary = &mut self.summary;
        let age = (now.0 - summary.first_observed.0) as u64;
        let polls = age / 500_000 + 1;
        let sent = random.size(self.rate * polls as f64, 0.2);
        let mss = u64::from(summary.stats.send_mss);
        let received = random.size(self.rate * polls as f64 / 10.0, 0.5);
        let segments = sent / mss + random.below(sent / mss + 2);
        let rtt = random.lognormal(self.base_rtt * 1.3, 0.3) as u64 + 20;
        let [_, sndbuf, _, _, _, rwnd, ..] = summary.problem_time;
        let [_, _, recoveries, timeouts, ..] = summary.problem_events;
        let retransmitted = recoveries * 3 + timeouts + random.below(3);
        let busy = random.below(age + 1) / 4_000 * 4_000 + sndbuf.0 + rwnd.0;
        let writes = (sent as f64 / self.write) as u64 + 1;
        let queue = if random.chance(0.5) {
            0
        } else {
            random.size(8_000.0, 1.5) as u32
        };
        summary.last_observed = now;
        summary.closed = closed;
        summary.observed = Micros(age);
        summary.polls = polls;
        summary.problem_time[0] =
            Micros(age.saturating_sub(summary.problem_time[1..].iter().map(|t| t.0).sum()));
        summary.bytes_written = Some(sent + u64::from(queue));
        summary.writes = Some(writes);
        summary.bytes_read = Some(received);
        summary.reads = Some(received / 1_000 + random.below(received / 1_000 + 2));
        let totals = Totals {
            sent,
            received,
            segments,
            retransmitted,
            rtt,
            busy,
            queue,
        };
        self.summary.stats = self.stats(random, &totals);
        &self.summary
    }

    /// The statistics after such totals.
    fn stats(&self, random: &mut Random, totals: &Totals) -> TcpStats {
        let Totals {
            sent,
            received,
            segments,
            retransmitted,
            rtt,
            busy,
            queue,
        } = *totals;
        let mss = u64::from(self.summary.stats.send_mss);
        let samples = segments / 2 + 1;
        let [_, sndbuf, recovery, timeout, _, rwnd, ..] = self.summary.problem_time;
        let [_, _, recoveries, timeouts, ..] = self.summary.problem_events;
        let cwnd = random.size(20.0, 1.0) as u32 + 2;
        TcpStats {
            state: if self.summary.closed {
                TcpState::Close
            } else {
                TcpState::Established
            },
            bytes_sent: Some(sent + retransmitted * mss),
            bytes_acked: sent + 1,
            bytes_received: received,
            bytes_retransmitted: Some(retransmitted * mss),
            segments_out: segments + received / mss,
            segments_in: samples + random.below(segments + 1),
            data_segments_out: segments,
            data_segments_in: received / mss + random.below(received / mss + 2),
            retransmitted,
            delivered: Some(segments - random.below(3).min(segments)),
            reordering_events: Some(u64::from(random.chance(0.05))),
            out_of_order_in: Some(if random.chance(0.1) {
                random.size(5.0, 1.0)
            } else {
                0
            }),
            in_flight: queue.div_ceil(mss as u32),
            cwnd,
            ssthresh: (retransmitted > 2).then(|| cwnd / 2 + random.below(10) as u32),
            send_window: Some(self.rwnd as u32),
            receive_window: Some(random.size(100_000.0, 0.7) as u32),
            srtt: Some(Micros(rtt)),
            rttvar: Micros(rtt / 2 + random.below(rtt)),
            min_rtt: Some(Micros(self.base_rtt as u64)),
            rto: Micros(200_000 + (rtt / 1_000 + 1) * 4_000),
            pacing_rate: Some(u64::from(cwnd) * mss * 2_000_000 / rtt),
            delivery_rate: Some(
                random.size(u64::from(cwnd) as f64 * mss as f64 * 1e6 / rtt as f64, 0.5),
            ),
            app_limited: Some(random.chance(0.7)),
            busy: Some(Micros(busy)),
            rwnd_limited: Some(rwnd),
            sndbuf_limited: Some(sndbuf),
            unsent: if queue > 50_000 { queue / 2 } else { 0 },
            send_queue: queue,
            send_memory: Some(queue.div_ceil(mss as u32) * 2_304),
            rtt_sums: Some(self.rtt_sums(random, samples, rtt)),
            recovery: Some(RecoveryStats {
                fast_recoveries: recoveries,
                recovery_time: recovery,
                loss_entries: timeouts,
                loss_time: timeout,
                rto_wait: Micros(timeout.0 / 2),
            }),
            rto_stats: Some(RtoStats {
                timeouts,
                recoveries: timeouts,
                time: Micros(timeout.0 / 1_000 * 1_000),
            }),
            ..self.summary.stats
        }
    }

    fn rtt_sums(&self, random: &mut Random, samples: u64, rtt: u64) -> RttSums {
        let delayed = self.summary.problem_time[4];
        let delays = self.summary.problem_events[4];
        RttSums {
            sum: Micros(samples * rtt),
            count: samples,
            lifetime_min: Some(Micros(self.base_rtt as u64)),
            lone_sum: Micros(samples / 3 * rtt + delays * 40_000),
            lone_count: samples / 3 + delays,
            late_sum: Micros(delays * 40_000 + random.below(delays * 4_000 + 1)),
            late_count: delays,
            held_sum: Micros(delayed.0 / 3),
            held_count: delays / 3,
        }
    }

    /// The peer's window at the end of an interval in which it limited the connection or not.
    fn send_window(&self, random: &mut Random, limited: bool) -> u64 {
        if limited {
            random.below(self.rwnd / 4)
        } else if random.chance(0.6) {
            self.rwnd
        } else {
            self.rwnd - random.below(self.rwnd / 3)
        }
    }

    /// Bytes written in an interval, and queued at its end. Where the queue drains between
    /// polls, what was written is what was sent, but for retransmissions; a bulk sender's queue
    /// grows or shrinks meanwhile.
    fn written_and_queued(
        &self,
        random: &mut Random,
        sent: u64,
        new: u64,
        sndbuf: u64,
    ) -> (u64, u64) {
        let drained = sndbuf == 0 && random.chance(0.5);
        let written = if drained {
            new
        } else {
            random.size(new as f64, 0.3)
        };
        let queue = if sndbuf > 0 {
            u64::from(self.summary.stats.send_buffer.unwrap_or(0)) / 2 - random.below(20_000)
        } else if drained && random.chance(0.7) {
            0
        } else {
            random.size(sent as f64 / 8.0, 1.0)
        };
        (written, queue)
    }
}

/// What a connection did up to a checkpoint: bytes, segments, microseconds.
struct Totals {
    sent: u64,
    received: u64,
    segments: u64,
    retransmitted: u64,
    rtt: u64,
    busy: u64,
    queue: u32,
}

/// What happens in an interval with a problem, or two: microseconds and counts.
struct Events {
    problems: ProblemSet,
    busy: u64,
    sndbuf: u64,
    rwnd: u64,
    recoveries: u64,
    timeouts: u64,
    delayed: u64,
}

impl Events {
    fn draw(random: &mut Random, length: u64) -> Self {
        let mut problems = ProblemSet::EMPTY;
        for _ in 0..=u8::from(random.chance(0.15)) {
            problems.insert(Problem::ALL[1 + random.weighted(&[30.0, 20.0, 15.0, 20.0, 15.0])]);
        }
        let interactive = problems.contains(Problem::DelayedAck);
        // Busy time counts in jiffies of 4 ms; a bulk sender is busy all the time.
        let busy = if interactive || random.chance(0.15) {
            (length as f64 * random.unit()) as u64
        } else {
            length
        } / 4_000
            * 4_000;
        let part = |random: &mut Random, of: u64| -> u64 {
            if random.chance(0.25) {
                of
            } else {
                (of as f64 * random.unit()) as u64 / 4_000 * 4_000
            }
        };
        let sndbuf = if problems.contains(Problem::SendBufferLimited) {
            part(random, busy).max(4_000)
        } else {
            0
        };
        let rwnd = if problems.contains(Problem::ReceiverWindowLimited) {
            part(random, busy.saturating_sub(sndbuf)).max(4_000)
        } else {
            0
        };
        let recoveries = if problems.contains(Problem::FastRetransmit) {
            1 + random.exponential(0.7) as u64
        } else {
            0
        };
        let timeouts = if problems.contains(Problem::Timeout) {
            1 + random.exponential(0.4) as u64
        } else {
            0
        };
        let delayed = if interactive {
            1 + random.exponential(2.0) as u64
        } else {
            0
        };
        Events {
            problems,
            busy,
            sndbuf,
            rwnd,
            recoveries,
            timeouts,
            delayed,
        }
    }

    /// The problems' times and events, longest first.
    fn findings(&self, random: &mut Random, srtt: u64, length: u64) -> Vec<Finding> {
        let Events {
            sndbuf,
            rwnd,
            recoveries,
            timeouts,
            delayed,
            ..
        } = *self;
        let mut findings = Vec::new();
        for problem in self.problems.iter() {
            let time = match problem {
                Problem::SendBufferLimited => sndbuf,
                Problem::ReceiverWindowLimited => rwnd,
                Problem::FastRetransmit => random
                    .size(1.5 * srtt as f64 * recoveries as f64, 0.5)
                    .min(length),
                Problem::Timeout => random.size(200_000.0 + srtt as f64, 0.6).min(length),
                _ => (delayed * 40_000 + random.below(4_000)).min(length),
            };
            findings.push(Finding {
                problem,
                share: Share::Measured(Micros(time.clamp(1, length))),
                events: match problem {
                    Problem::FastRetransmit => Some(recoveries),
                    Problem::Timeout => Some(timeouts),
                    Problem::DelayedAck => Some(delayed),
                    _ => None,
                },
            });
        }
        findings.sort_by_key(|f| std::cmp::Reverse(f.share.time_of(Micros(length))));
        findings
    }
}

/// A coverage record of one stretch.
pub fn coverage(random: &mut Random, end: WallMicros, length: u64, sockets: u64) -> Coverage {
    Coverage {
        end,
        duration: Micros(length),
        polls: length / 500_000 + random.below(8),
        sockets,
        missed: 0,
        repeats: random.below(2),
        emitted: random.below(sockets * 20),
        opened: random.below(3),
        closed: random.below(3),
        owners_unknown: random.below(4),
        unknown_owners: Default::default(),
        losses: LossCounters::default(),
        cpu: Micros(random.size(20_000.0, 0.3)),
        unmeasured: ProblemSet::EMPTY,
        clock: Some(ClockStatus {
            state: ClockState::Ok,
            synchronised: true,
            max_error: Micros(random.size(20_000.0, 1.0)),
        }),
    }
}

fn empty() -> TcpStats {
    TcpStats {
        state: TcpState::Established,
        ca_state: CaState::Open,
        bytes_sent: None,
        bytes_acked: 0,
        bytes_received: 0,
        bytes_retransmitted: None,
        segments_out: 0,
        segments_in: 0,
        data_segments_out: 0,
        data_segments_in: 0,
        retransmitted: 0,
        delivered: None,
        delivered_ce: Some(0),
        dsack_duplicates: Some(0),
        reordering_events: None,
        out_of_order_in: None,
        in_flight: 0,
        lost: 0,
        retransmitted_in_flight: 0,
        sacked: 0,
        unanswered_timeouts: 0,
        probes: 0,
        backoff: 0,
        cwnd: 10,
        ssthresh: None,
        send_window: None,
        receive_window: None,
        send_mss: 1448,
        path_mtu: 1500,
        reordering: 3,
        srtt: None,
        rttvar: Micros::ZERO,
        min_rtt: None,
        rto: Micros(200_000),
        pacing_rate: None,
        delivery_rate: None,
        app_limited: None,
        busy: None,
        rwnd_limited: None,
        sndbuf_limited: None,
        unsent: 0,
        send_queue: 0,
        receive_queue: 0,
        send_memory: None,
        send_buffer: None,
        receive_buffer: None,
        rtt_sums: None,
        recovery: None,
        rto_stats: None,
    }
}
