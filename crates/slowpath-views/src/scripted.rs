// SPDX-License-Identifier: Apache-2.0
//! A scripted [`Source`] and builders of its values, for tests.

use crate::source::*;
use slowpath_model::*;
use std::collections::VecDeque;
use std::time::Duration;

/// The time between two polls.
pub const INTERVAL: Micros = Micros::from_millis(500);

pub fn id(cookie: u64) -> ConnectionId {
    ConnectionId {
        boot_id: 1,
        netns: 4_026_531_840,
        cookie,
        start: MonoNanos(0),
    }
}

pub fn finding(problem: Problem, share: Share) -> Finding {
    Finding {
        problem,
        share,
        events: matches!(share, Share::Coarse).then_some(1),
    }
}

pub fn verdict(cookie: u64, interval: Micros, findings: Vec<Finding>) -> IntervalVerdict {
    let mut longest = (interval, Problem::SenderAppLimited);
    for f in &findings {
        let time = f.share.time_of(interval);
        if longest.1 == Problem::SenderAppLimited || time > longest.0 {
            longest = (time, f.problem);
        }
    }
    IntervalVerdict {
        connection: id(cookie),
        from: MonoNanos(1_000_000_000),
        to: MonoNanos(1_000_000_000) + interval,
        dominating: longest.1,
        findings,
        unmeasured: ProblemSet::EMPTY,
        deltas: Deltas {
            cwnd: 10,
            send_mss: 1448,
            srtt: Some(Micros(1_200)),
            bytes_acked: Some(4_000_000),
            timeouts: Some(0),
            ..Deltas::default()
        },
    }
}

pub fn stats() -> TcpStats {
    TcpStats {
        state: TcpState::Established,
        ca_state: CaState::Open,
        bytes_sent: Some(4_000_000),
        bytes_acked: 4_000_000,
        bytes_received: 100,
        bytes_retransmitted: None,
        segments_out: 3000,
        segments_in: 1500,
        data_segments_out: 2800,
        data_segments_in: 1,
        retransmitted: 0,
        delivered: None,
        delivered_ce: None,
        dsack_duplicates: None,
        reordering_events: None,
        out_of_order_in: None,
        in_flight: 4,
        lost: 0,
        retransmitted_in_flight: 0,
        sacked: 0,
        unanswered_timeouts: 0,
        probes: 0,
        backoff: 0,
        cwnd: 10,
        ssthresh: None,
        send_window: Some(65_535),
        receive_window: None,
        send_mss: 1448,
        path_mtu: 1500,
        reordering: 3,
        srtt: Some(Micros(1_200)),
        rttvar: Micros(100),
        min_rtt: Some(Micros(900)),
        rto: Micros::from_millis(201),
        pacing_rate: None,
        delivery_rate: None,
        app_limited: None,
        busy: None,
        rwnd_limited: None,
        sndbuf_limited: None,
        unsent: 0,
        send_queue: 123_456,
        receive_queue: 0,
        send_memory: None,
        send_buffer: None,
        receive_buffer: None,
        rtt_sums: None,
        recovery: None,
        rto_stats: None,
    }
}

/// A connection owned by `command` (its pid is its cookie).
pub fn live(cookie: u64, command: &str, local: &str, remote: &str) -> OwnedConnection {
    let owner = Owner::named(cookie as u32, command);
    OwnedConnection {
        snapshot: Snapshot {
            id: id(cookie),
            tuple: FourTuple::new(local.parse().unwrap(), remote.parse().unwrap()),
            at: MonoNanos(0),
            origin: Origin::Opened,
            closed: false,
            tier: Tier::Bpf,
            owner: None,
            stats: stats(),
            sends: None,
            receives: None,
            waits: slowpath_model::Waits::UNOBSERVED,
            facts: slowpath_model::SocketFacts::default(),
            turns: slowpath_model::Turns::UNOBSERVED,
        },
        owner,
        real_peer: None,
        latest: None,
        observed: Micros::ZERO,
        problem_time: Default::default(),
        history: VecDeque::new(),
    }
}

/// A listener, kept.
#[derive(Clone)]
pub struct OwnedListener {
    pub snapshot: ListenerSnapshot,
    pub owner: Owner,
    pub latest: Option<ListenerVerdict>,
}

impl OwnedListener {
    pub fn live(&self) -> LiveListener<'_> {
        LiveListener {
            snapshot: &self.snapshot,
            owner: &self.owner,
            holders: &[],
            latest: self.latest.as_ref(),
        }
    }
}

/// Names that need no system: ports in figures only, no host.
pub struct NoNames;

impl crate::filter::Names for NoNames {
    fn port(&self, _service: &str) -> Option<u16> {
        None
    }
    fn addresses(&self, _host: &str) -> Vec<std::net::IpAddr> {
        Vec::new()
    }
    fn ephemeral_ports(&self) -> std::ops::RangeInclusive<u16> {
        32768..=60999
    }
}

/// Each poll shows the next step; the last one stays.
pub struct ScriptedSource {
    steps: VecDeque<Vec<OwnedConnection>>,
    current: Vec<OwnedConnection>,
    closed: Vec<OwnedConnection>,
    at: MonoNanos,
    capabilities: Capabilities,
    pub programs: Vec<Vec<ProgramCost>>,
    /// At every poll the same.
    pub listeners: Vec<OwnedListener>,
    polls: usize,
    pub losses: LossCounters,
    /// How long each process waits for a processor from one poll to the next.
    pub processor_wait: Micros,
}

impl ScriptedSource {
    /// Verdicts in the steps get the time of their poll. A connection that is gone from one
    /// step to the next has closed.
    pub fn new(steps: Vec<Vec<OwnedConnection>>) -> Self {
        ScriptedSource {
            steps: steps.into(),
            current: Vec::new(),
            closed: Vec::new(),
            at: MonoNanos(1_000_000_000),
            capabilities: Capabilities {
                tier: Tier::InetDiag,
                features: vec![
                    Feature {
                        name: "segment",
                        measures: "RTT sums",
                        state: FeatureState::Missing {
                            reason: "no BPF".to_owned(),
                        },
                        serves: ProblemSet::EMPTY.with(Problem::DelayedAck),
                    },
                    Feature {
                        name: "snapshot",
                        measures: "tcp_info",
                        state: FeatureState::Active,
                        serves: ProblemSet::EMPTY.with(Problem::ReceiverWindowLimited),
                    },
                ],
                fallback: None,
            },
            programs: Vec::new(),
            listeners: Vec::new(),
            polls: 0,
            losses: LossCounters::default(),
            processor_wait: Micros::ZERO,
        }
    }
}

impl Source for ScriptedSource {
    fn poll(&mut self) -> Result<PollReport, SourceError> {
        self.at = self.at + INTERVAL;
        self.polls += 1;
        if let Some(mut step) = self.steps.pop_front() {
            for connection in &mut step {
                connection.snapshot.at = self.at;
                let before = self
                    .current
                    .iter()
                    .find(|c| c.snapshot.id == connection.snapshot.id);
                (connection.observed, connection.problem_time) =
                    before.map_or_else(Default::default, |c| (c.observed, c.problem_time));
                if let Some(latest) = &mut connection.latest {
                    let length = latest.interval();
                    latest.to = self.at;
                    latest.from = MonoNanos(self.at.0 - length.0 * 1000);
                    connection.observed += length;
                    for p in Problem::ALL {
                        let share = crate::watch::share_of(latest, p);
                        connection.problem_time[p as usize] +=
                            Micros((length.0 as f64 * share) as u64);
                    }
                }
            }
            let old = std::mem::replace(&mut self.current, step);
            self.closed = old
                .into_iter()
                .filter(|c| !self.current.iter().any(|n| n.snapshot.id == c.snapshot.id))
                .collect();
        } else {
            self.closed.clear();
        }
        Ok(PollReport {
            at: self.at,
            sockets: self.current.len() as u64,
            emitted: self.current.len() as u64,
            cpu: Micros(1_000),
            refresh: true,
            ..PollReport::default()
        })
    }

    fn until_next_poll(&self) -> Duration {
        Duration::ZERO
    }

    fn connections(&self) -> Box<dyn Iterator<Item = LiveConnection<'_>> + '_> {
        Box::new(self.current.iter().map(OwnedConnection::live))
    }

    fn recently_closed(&self) -> Box<dyn Iterator<Item = LiveConnection<'_>> + '_> {
        Box::new(self.closed.iter().map(OwnedConnection::live))
    }

    fn listeners(&self) -> Box<dyn Iterator<Item = LiveListener<'_>> + '_> {
        Box::new(self.listeners.iter().map(OwnedListener::live))
    }

    fn processor_wait(&self, _pid: u32) -> Option<Micros> {
        Some(Micros(self.processor_wait.0 * self.polls as u64))
    }

    fn capabilities(&self) -> &Capabilities {
        &self.capabilities
    }

    fn losses(&self) -> LossCounters {
        self.losses
    }

    fn measure_programs(&mut self) -> std::io::Result<()> {
        Ok(())
    }

    fn programs(&self) -> Vec<ProgramCost> {
        match self.programs.len() {
            0 => Vec::new(),
            n => self.programs[self.polls.min(n - 1)].clone(),
        }
    }
}

const START: i64 = 1_700_000_000_000_000;

pub fn at(seconds: i64) -> WallMicros {
    WallMicros(START + seconds * 1_000_000)
}

pub fn seconds(s: u64) -> Micros {
    Micros(s * 1_000_000)
}

/// A connection observed from 0 s to 100 s with `time` seconds of `problem`.
pub fn summary(cookie: u64, command: &str, problem: Problem, time: u64) -> ConnectionSummary {
    let mut problem_time = [Micros::ZERO; Problem::ALL.len()];
    problem_time[problem as usize] = seconds(time);
    problem_time[0] = seconds(100 - time);
    ConnectionSummary {
        connection: id(cookie),
        tuple: FourTuple::new(
            format!("10.0.0.1:{}", 4000 + cookie).parse().unwrap(),
            format!("10.0.0.{}:80", 2 + cookie % 2).parse().unwrap(),
        ),
        origin: Origin::Opened,
        owner: match command {
            "" => Owner::default(),
            command => Owner::named(cookie as u32, command),
        },
        real_peer: None,
        tier: Tier::Bpf,
        first_observed: at(0),
        last_observed: at(100),
        closed: false,
        observed: seconds(100),
        polls: 200,
        problem_time,
        problem_events: [0; Problem::ALL.len()],
        unmeasured: ProblemSet::EMPTY,
        stats: stats(),
        bytes_written: None,
        writes: None,
        bytes_read: None,
        reads: None,
        life: Default::default(),
    }
}

pub fn interval(cookie: u64, end: i64, problem: Problem, time: u64) -> ProblemInterval {
    ProblemInterval {
        connection: id(cookie),
        end: at(end),
        duration: seconds(time),
        findings: vec![Finding {
            problem,
            share: Share::Coarse,
            events: Some(1),
        }],
        unmeasured: ProblemSet::EMPTY,
        deltas: Deltas::default(),
    }
}
