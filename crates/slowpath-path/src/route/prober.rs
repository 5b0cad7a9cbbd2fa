// SPDX-License-Identifier: Apache-2.0
//! Runs plans: sends what they want, at a bounded rate, and hands them what came.

use super::RouteError;
use super::flow::Flow;
use super::plan::{Next, Plan, Probe, Reply};
use crate::icmp::{IcmpMessage, RawIcmp};
use crate::socket::monotonic;
use std::collections::HashMap;
use std::io;
use std::net::{IpAddr, SocketAddr};
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

/// How long an answer may take: at the least, at the most, and until any has come, ns.
const LEAST_PATIENCE: i64 = 500_000_000;
const MOST_PATIENCE: i64 = 2_000_000_000;
const FIRST_PATIENCE: i64 = 1_000_000_000;
/// At most so long it waits without looking whether it is to end, ns.
const NAP: i64 = 50_000_000;
/// Octets of an ICMP message that are looked at.
const BUFFER: usize = 2_048;

/// The sockets of all flows, and the raw one that reads quoted headers if that is allowed.
pub(super) struct Prober<'a> {
    source: Option<IpAddr>,
    target: SocketAddr,
    flows: Vec<Flow>,
    raw: Option<RawIcmp>,
    /// Between two probes, ns.
    gap: i64,
    due: i64,
    longest: i64,
    /// The octet that was called TOS, of what is sent from now on.
    pub(super) tos: u8,
    interrupted: &'a AtomicBool,
}

impl<'a> Prober<'a> {
    pub(super) fn new(
        source: Option<IpAddr>,
        target: SocketAddr,
        rate: u32,
        interrupted: &'a AtomicBool,
    ) -> Self {
        Prober {
            source,
            target,
            flows: Vec::new(),
            raw: RawIcmp::open(target.is_ipv4()).ok(),
            gap: 1_000_000_000 / i64::from(rate.max(1)),
            due: 0,
            longest: 0,
            tos: 0,
            interrupted,
        }
    }

    /// Whether quoted headers can be read.
    pub(super) fn reads_quotes(&self) -> bool {
        self.raw.is_some() || self.target.is_ipv6()
    }

    /// A flow's source port; 0: it has sent nothing.
    pub(super) fn port(&self, flow: usize) -> u16 {
        self.flows.get(flow).map_or(0, |flow| flow.port)
    }

    pub(super) fn interrupted(&self) -> bool {
        self.interrupted.load(Ordering::Relaxed)
    }

    /// Runs a plan to its end or until a signal; `each` gets every probe and what came of it.
    pub(super) fn run(
        &mut self,
        plan: &mut dyn Plan,
        each: &mut dyn FnMut(Probe, Option<&Reply>),
    ) -> Result<(), RouteError> {
        loop {
            let now = monotonic();
            self.expire(now, plan, each);
            let mut wake = now + NAP;
            if self.interrupted() {
                break;
            }
            if now < self.due {
                wake = wake.min(self.due);
            } else {
                match plan.next(now) {
                    Next::Done => break,
                    Next::Wait(until) => wake = wake.min(until),
                    Next::Probe(probe) => {
                        self.send(probe, now)?;
                        self.due = now.max(self.due + self.gap);
                        wake = now;
                    }
                }
            }
            let ends = self.flows.iter().filter_map(|flow| flow.under_way);
            wake = ends.map(|it| it.until).fold(wake, i64::min);
            self.wait(wake - monotonic()).map_err(RouteError::Receive)?;
            self.receive(plan, each).map_err(RouteError::Receive)?;
        }
        for flow in &mut self.flows {
            flow.under_way = None;
        }
        Ok(())
    }

    fn send(&mut self, probe: Probe, now: i64) -> Result<(), RouteError> {
        while self.flows.len() <= probe.flow {
            let flow = Flow::open(self.source, self.target).map_err(RouteError::Open)?;
            self.flows.push(flow);
        }
        let until = now + self.patience();
        self.flows[probe.flow]
            .send(probe, self.tos, until)
            .map_err(|source| RouteError::Send {
                target: self.target.ip(),
                source,
            })
    }

    fn patience(&self) -> i64 {
        match self.longest {
            0 => FIRST_PATIENCE,
            longest => (4 * longest).clamp(LEAST_PATIENCE, MOST_PATIENCE),
        }
    }

    fn expire(
        &mut self,
        now: i64,
        plan: &mut dyn Plan,
        each: &mut dyn FnMut(Probe, Option<&Reply>),
    ) {
        for flow in &mut self.flows {
            if let Some(under_way) = flow.under_way.filter(|it| it.until <= now) {
                flow.under_way = None;
                each(under_way.probe, None);
                plan.unanswered(under_way.probe, now);
            }
        }
    }

    fn receive(
        &mut self,
        plan: &mut dyn Plan,
        each: &mut dyn FnMut(Probe, Option<&Reply>),
    ) -> io::Result<()> {
        let mut answers = Vec::new();
        for (index, flow) in self.flows.iter_mut().enumerate() {
            if flow.under_way.is_some()
                && let Some(answer) = flow.answer()?
            {
                answers.push((index, answer));
            }
        }
        if answers.is_empty() {
            return Ok(());
        }
        // The kernel gives a message to raw sockets before it queues it for the flow's.
        let quotes = self.quotes()?;
        for (index, (probe, mut reply)) in answers {
            let quoted = quotes.get(&(self.flows[index].port, reply.from));
            reply.tos = quoted.copied().or(reply.tos);
            if let Some(rtt) = reply.rtt.and_then(|rtt| i64::try_from(rtt).ok()) {
                self.longest = self.longest.max(rtt);
            }
            each(probe, Some(&reply));
            plan.answered(probe, &reply, monotonic());
        }
        Ok(())
    }

    /// What raw messages quote, by the flow's port and who sent them.
    fn quotes(&self) -> io::Result<HashMap<(u16, IpAddr), u8>> {
        let mut quotes = HashMap::new();
        let Some(raw) = &self.raw else {
            return Ok(quotes);
        };
        let mut buffer = [0; BUFFER];
        while let Some(arrival) = raw.receive(&mut buffer, Duration::ZERO)? {
            let IcmpMessage::Error(error) = arrival.message else {
                continue;
            };
            let quoted = error.quoted;
            let Some((source, destination)) = quoted.ports() else {
                continue;
            };
            if quoted.destination == self.target.ip() && destination == self.target.port() {
                quotes.insert((source, arrival.from), quoted.traffic_class);
            }
        }
        Ok(quotes)
    }

    /// Waits for an answer, `nanos` nanoseconds at the most.
    fn wait(&self, nanos: i64) -> io::Result<()> {
        let waiting = self.flows.iter().filter(|flow| flow.under_way.is_some());
        let mut polls: Vec<libc::pollfd> = waiting
            .map(|flow| libc::pollfd {
                fd: flow.fd(),
                events: libc::POLLIN,
                revents: 0,
            })
            .collect();
        let nanos = nanos.clamp(0, NAP);
        let time = libc::timespec {
            tv_sec: 0,
            tv_nsec: nanos,
        };
        // SAFETY: the array lives through the call and its length is given; no signal mask.
        let result = unsafe {
            libc::ppoll(
                polls.as_mut_ptr(),
                polls.len() as libc::nfds_t,
                &time,
                std::ptr::null(),
            )
        };
        match result {
            0.. => Ok(()),
            _ => match io::Error::last_os_error() {
                error if error.kind() == io::ErrorKind::Interrupted => Ok(()),
                error => Err(error),
            },
        }
    }
}
