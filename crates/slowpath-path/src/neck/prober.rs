// SPDX-License-Identifier: Apache-2.0
//! The sockets of a measurement: sends probes, trains and load, and keeps what answers them.

use super::probe::{
    Flow, LOAD_SHORTER, MOST_PROBES, PAYLOAD, ProbeAnswer, UDP_HEADER, V4_HEADER, V6_HEADER,
    ip_octets,
};
use super::train::{TrainEnd, TrainPacket, TrainPlan};
use crate::icmp::{ErrorKind, RawIcmp};
use crate::socket::{Datagram, WallClock, monotonic, send_batch, sleep_until};
use socket2::{Domain, Protocol, SockAddr, Socket, Type};
use std::collections::BTreeSet;
use std::io;
use std::net::{IpAddr, SocketAddr};
use std::os::fd::AsRawFd;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

/// Where probes go: the first port of traceroute, on which rarely anything listens.
const PORT: u16 = 33_434;
/// The TTL of load.
const TTL: u8 = 255;
/// Octets asked for as send buffer: the longest train.
const SEND_BUFFER: usize = 2 << 20;
/// An answer may take so long, ns; later ones are about something else.
const MOST_ROUND_TRIP: i64 = 10_000_000_000;

/// Answers that are taken before the time is looked at.
const MOST_AT_ONCE: u32 = 256;

/// A probe that was sent.
#[derive(Clone, Copy, Debug)]
pub(super) struct Probe {
    /// The hop that it was sent to.
    pub hop: u8,
    /// CLOCK_REALTIME just before it was sent, ns.
    pub sent: i64,
    /// The first answer.
    pub answer: Option<Answer>,
}

/// An answer to a probe.
#[derive(Clone, Copy, Debug)]
pub(super) struct Answer {
    /// Who answered.
    pub from: IpAddr,
    /// When it arrived, by the kernel, ns; `None`: the kernel gave no stamp.
    pub at: Option<i64>,
    /// The error; `None`: an echo reply.
    pub error: Option<ErrorKind>,
}

impl Probe {
    /// The round trip, ns.
    pub fn round_trip(&self) -> Option<f64> {
        let passed = self.answer?.at? - self.sent;
        (0..MOST_ROUND_TRIP)
            .contains(&passed)
            .then_some(passed as f64)
    }
}

/// How a hop is asked.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Question {
    /// A UDP datagram of the flow.
    Udp,
    /// An echo request: hosts limit how often they report a closed port, and not how often they answer those.
    Echo,
}

/// A train that was sent.
#[derive(Clone, Debug)]
pub(super) struct SentTrain {
    /// Numbers of the probes, with hop and end.
    pub probes: Vec<(u16, u8, TrainEnd)>,
    /// CLOCK_REALTIME just before it was sent, ns.
    pub began: i64,
    /// How long sending it took, ns.
    pub took: i64,
}

/// A burst of load.
#[derive(Clone, Debug)]
pub(super) struct Burst {
    /// Octets of IP of a packet.
    pub octets: usize,
    /// Packets.
    pub packets: u32,
    /// From one to the next, ns.
    pub interval: i64,
    /// Probes that go between them: when, ns after the beginning, in order; and to which hop.
    pub probes: Vec<(i64, u8, Question)>,
}

/// The sockets, and all probes so far.
#[derive(Debug)]
pub(super) struct Prober<'a> {
    udp: Socket,
    icmp: RawIcmp,
    flow: Flow,
    clock: WallClock,
    stop: &'a AtomicBool,
    buffer: Vec<u8>,
    probes: Vec<Probe>,
    /// Payload octets of the probes of trains.
    train_payload: usize,
    /// Octets of IP that were sent.
    pub sent_octets: u64,
    /// What a router said is the largest packet.
    pub too_big: Option<u32>,
}

impl<'a> Prober<'a> {
    /// Opens the sockets.
    pub fn open(peer: IpAddr, source: Option<IpAddr>, stop: &'a AtomicBool) -> io::Result<Self> {
        let icmp = RawIcmp::open(peer.is_ipv4())?;
        let domain = Domain::for_address(SocketAddr::new(peer, PORT));
        let udp = Socket::new(domain, Type::DGRAM, Some(Protocol::UDP))?;
        // Past wmem_max the kernel gives as much as there is.
        udp.set_send_buffer_size(SEND_BUFFER)?;
        if let Some(source) = source {
            udp.bind(&SockAddr::from(SocketAddr::new(source, 0)))?;
        }
        let peer = SocketAddr::new(peer, PORT);
        udp.connect(&SockAddr::from(peer))?;
        let local = udp.local_addr()?.as_socket();
        let local = local.ok_or_else(|| io::Error::other("the socket has no IP address"))?;
        Ok(Prober {
            udp,
            icmp,
            flow: Flow { local, peer },
            clock: WallClock::default(),
            stop,
            buffer: vec![0; 2048],
            probes: Vec::new(),
            train_payload: PAYLOAD,
            sent_octets: 0,
            too_big: None,
        })
    }

    fn v4(&self) -> bool {
        self.flow.peer.is_ipv4()
    }

    /// Whether a signal ends the measurement.
    pub fn stopped(&self) -> bool {
        self.stop.load(Ordering::Relaxed)
    }

    /// A train to a number of hops, whose packets have at most `octets` octets of IP.
    pub fn plan(&self, hops: u8, load_packets: u32, octets: usize) -> TrainPlan {
        // Payloads of probes are even, and those of trains longer than the small ones.
        let payload = (self.payload_of(octets) & !1).max(2 * PAYLOAD);
        TrainPlan {
            hops,
            load_packets,
            load_octets: ip_octets(self.v4(), payload - LOAD_SHORTER),
            probe_octets: ip_octets(self.v4(), payload),
            tail_only: BTreeSet::new(),
        }
    }

    /// The largest packet that the kernel knows to fit (IP_MTU).
    pub fn mtu(&self) -> Option<usize> {
        let (level, name) = match self.v4() {
            true => (libc::IPPROTO_IP, libc::IP_MTU),
            false => (libc::IPPROTO_IPV6, libc::IPV6_MTU),
        };
        let (mut value, mut length) = (
            0 as libc::c_int,
            size_of::<libc::c_int>() as libc::socklen_t,
        );
        // SAFETY: value and length are live and of their stated sizes.
        let result = unsafe {
            libc::getsockopt(
                self.udp.as_raw_fd(),
                level,
                name,
                (&raw mut value).cast(),
                &raw mut length,
            )
        };
        (result == 0).then(|| usize::try_from(value).ok()).flatten()
    }

    /// Payload octets of a datagram of that many octets of IP.
    fn payload_of(&self, octets: usize) -> usize {
        let header = if self.v4() { V4_HEADER } else { V6_HEADER };
        octets.saturating_sub(header + UDP_HEADER)
    }

    /// A new probe's number.
    fn number(&mut self, hop: u8) -> io::Result<u16> {
        let number = u16::try_from(self.probes.len() + 1)
            .ok()
            .filter(|number| *number <= MOST_PROBES)
            .ok_or_else(|| io::Error::other("more probes than one measurement can number"))?;
        self.probes.push(Probe {
            hop,
            sent: self.clock.now(),
            answer: None,
        });
        Ok(number)
    }

    /// Sends one probe.
    pub fn send_probe(&mut self, hop: u8, question: Question) -> io::Result<u16> {
        let number = self.number(hop)?;
        match question {
            Question::Udp => {
                let payload = self.flow.payload(number, PAYLOAD);
                let datagram = Datagram {
                    ttl: hop,
                    payload: &payload,
                };
                send_batch(&self.udp, self.v4(), &[datagram])?;
            }
            Question::Echo => {
                self.send_echo(hop, number, &self.flow.payload(number, PAYLOAD))?;
            }
        }
        self.sent_octets += ip_octets(self.v4(), PAYLOAD) as u64;
        Ok(number)
    }

    /// An echo request is as long as a UDP probe.
    fn send_echo(&self, hop: u8, number: u16, payload: &[u8]) -> io::Result<()> {
        let numbers = (self.flow.local.port(), number);
        self.icmp
            .send_echo(self.flow.peer.ip(), hop, numbers, payload)
    }

    /// Sends a train at once, or its packets at an interval, ns; `last` is how the last hop is asked.
    pub fn send_train(
        &mut self,
        plan: &TrainPlan,
        last: Question,
        interval: Option<i64>,
    ) -> io::Result<SentTrain> {
        let load = vec![0u8; self.payload_of(plan.load_octets)];
        let length = self.payload_of(plan.probe_octets);
        self.train_payload = length;
        let mut probes = Vec::new();
        // TTL, number and payload of each; load has neither of the latter.
        let mut packets = Vec::new();
        for packet in plan.packets() {
            packets.push(match packet {
                TrainPacket::Probe { hop, end } => {
                    let number = self.number(hop)?;
                    probes.push((number, hop, end));
                    (hop, Some((number, self.flow.payload(number, length))))
                }
                TrainPacket::Load => (TTL, None),
            });
        }
        let datagrams: Vec<Datagram<'_>> = packets
            .iter()
            .map(|(ttl, probe)| Datagram {
                ttl: *ttl,
                payload: probe
                    .as_ref()
                    .map_or(load.as_slice(), |(_, payload)| payload),
            })
            .collect();
        // An echo request in the middle goes by another socket, in the same order.
        let echo = |at: usize| -> Option<&(u16, Vec<u8>)> {
            let (hop, probe) = &packets[at];
            let is_last = last == Question::Echo && *hop == plan.hops;
            probe.as_ref().filter(|_| is_last)
        };
        let began = self.clock.now();
        let (mut at, begin) = (0, monotonic());
        while at < packets.len() {
            if let Some(interval) = interval
                && !sleep_until(begin + at as i64 * interval, self.stop)
            {
                break;
            }
            if let Some((number, payload)) = echo(at) {
                self.send_echo(plan.hops, *number, payload)?;
                at += 1;
                continue;
            }
            let run = (at..packets.len())
                .take_while(|it| echo(*it).is_none())
                .count();
            let run = if interval.is_some() { 1 } else { run };
            send_batch(&self.udp, self.v4(), &datagrams[at..at + run])?;
            at += run;
        }
        let ended = self.clock.now();
        self.sent_octets += plan.octets() as u64;
        Ok(SentTrain {
            probes,
            began,
            took: ended - began,
        })
    }

    /// Sends load at a rate, and probes between its packets.
    pub fn send_burst(&mut self, burst: &Burst) -> io::Result<Vec<u16>> {
        let load = vec![0u8; self.payload_of(burst.octets)];
        let datagram = [Datagram {
            ttl: TTL,
            payload: &load,
        }];
        let mut probes = burst.probes.iter().peekable();
        let mut numbers = Vec::with_capacity(burst.probes.len());
        let begin = monotonic() + 100_000;
        for packet in 0..i64::from(burst.packets) {
            let due = packet * burst.interval;
            while let Some((_, hop, question)) = probes.next_if(|(at, _, _)| *at <= due) {
                numbers.push(self.send_probe(*hop, *question)?);
            }
            if !sleep_until(begin + due, self.stop) {
                break;
            }
            send_batch(&self.udp, self.v4(), &datagram)?;
            self.sent_octets += burst.octets as u64;
            self.take_answers(Duration::ZERO)?;
        }
        Ok(numbers)
    }

    /// Takes the answers that are there, and one that comes within the time; a flood is left for the next call.
    fn take_answers(&mut self, patience: Duration) -> io::Result<()> {
        let mut patience = patience;
        for _ in 0..MOST_AT_ONCE {
            let Some(arrival) = self.icmp.receive(&mut self.buffer, patience)? else {
                break;
            };
            patience = Duration::ZERO;
            let lengths = [PAYLOAD, self.train_payload];
            match self.flow.answer(arrival.from, &arrival.message, lengths) {
                Some(ProbeAnswer::Answered { number, error }) => {
                    let probe = usize::from(number).checked_sub(1);
                    let probe = probe.and_then(|at| self.probes.get_mut(at));
                    if let Some(probe) = probe.filter(|probe| probe.answer.is_none()) {
                        probe.answer = Some(Answer {
                            from: arrival.from,
                            at: arrival.stamp,
                            error,
                        });
                    }
                }
                Some(ProbeAnswer::TooBig { mtu }) => self.too_big = mtu.or(Some(0)),
                None => {}
            }
        }
        Ok(())
    }

    /// Waits for answers until a time of [`monotonic`], or until `done` says that there is nothing to wait for.
    pub fn wait(&mut self, until: i64, done: impl Fn(&Self) -> bool) -> io::Result<()> {
        loop {
            self.take_answers(Duration::ZERO)?;
            let left = until - monotonic();
            if left <= 0 || self.stopped() || done(self) {
                return Ok(());
            }
            // Often enough to notice a signal.
            let patience = Duration::from_nanos(left.min(50_000_000) as u64);
            self.take_answers(patience)?;
        }
    }

    /// Waits until all of these are answered, or so long, ns.
    pub fn wait_for(&mut self, numbers: &[u16], patience: i64) -> io::Result<()> {
        let answered =
            |prober: &Self, number| prober.probe(number).is_some_and(|it| it.answer.is_some());
        let all = |prober: &Self| numbers.iter().all(|number| answered(prober, *number));
        self.wait(monotonic() + patience, all)
    }

    /// A probe by its number.
    pub fn probe(&self, number: u16) -> Option<&Probe> {
        self.probes.get(usize::from(number).checked_sub(1)?)
    }

    /// All probes so far.
    pub fn probes(&self) -> &[Probe] {
        &self.probes
    }
}
