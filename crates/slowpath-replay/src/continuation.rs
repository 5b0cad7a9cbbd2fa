// SPDX-License-Identifier: Apache-2.0
//! How a message might have gone on behind the first packet that differs: a simulation, and never more.
//!
//! What enters is where the message under way stood ([`MessageState`]), and the connection's settings as they were changed. What leaves is how long [`slowpath_netsim`]'s TCP takes for these bytes on that path, with no one else on it and no loss
//! ([`Continued`]). The network's own answer is not known, and nothing here claims to know it.

use slowpath_explain::{MessageState, NoMessageState};
use slowpath_netsim::engine::{Simulation, SimulationError};
use slowpath_netsim::scenario::{Scenario, ScenarioError};
use slowpath_recording::Settings;
use std::time::Duration;

/// Bytes of IPv4 and TCP headers with timestamps (RFC 791, RFC 9293, RFC 7323 appendix A).
const HEADERS: u64 = 52;
/// Nothing simulated takes longer, in seconds.
const LONGEST: u64 = 600;
/// More than any window, in packets: the switch drops nothing.
const ROOM: u32 = 10_000_000;

/// Why nothing is simulated.
#[derive(Debug, thiserror::Error)]
pub enum NotContinued {
    /// Where the message stood is not known.
    #[error(transparent)]
    MessageState(#[from] NoMessageState),
    /// The simulator lacks it.
    #[error("slowpath-netsim has no congestion control '{0}': it has reno, cubic, dctcp and bbr")]
    Congestion(String),
    /// What follows from the settings is impossible.
    #[error("the rest cannot be simulated: {0}")]
    Scenario(#[from] ScenarioError),
    /// The simulator refuses.
    #[error("the rest cannot be simulated: {0}")]
    Simulation(#[from] SimulationError),
    /// It did not end.
    #[error("the simulated rest takes longer than {LONGEST} s")]
    Endless,
}

/// What was simulated.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Continued {
    /// From where.
    pub from: MessageState,
    /// What was left takes so long, until the other end has the last byte.
    pub took: Duration,
}

impl Continued {
    /// What the whole message takes: as it was up to there, and then as simulated.
    pub fn message(&self) -> Duration {
        let begun = self.from.at.0.saturating_sub(self.from.message.begun.0);
        Duration::from_nanos(begun) + self.took
    }
}

/// A message's rest simulated with a change, and beside it without: what the simulator gets wrong of the path is in both, so only their
/// difference is the change's.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Continuation {
    /// With the change.
    pub changed: Continued,
    /// As it was.
    pub control: Continued,
}

impl Continuation {
    /// How many seconds of the message the change takes away; negative: it adds them.
    pub fn gain_s(&self) -> f64 {
        self.control.message().as_secs_f64() - self.changed.message().as_secs_f64()
    }
}

/// Sends what is left through the simulator.
///
/// # Errors
/// The simulator cannot.
pub fn continued(from: MessageState, settings: &Settings) -> Result<Continued, NotContinued> {
    let text = scenario(&from, settings)?;
    let no_files = |_: &str| Err(std::io::ErrorKind::NotFound.into());
    let scenario = Scenario::parse(&text, &no_files)?;
    let simulation = Simulation::new(&scenario.network(), scenario.settings())?;
    let results = simulation.run(scenario.flows(), |_| {})?;
    let flow = results.flows.first();
    let took = flow.and_then(|flow| flow.completion());
    let took = took.ok_or(NotContinued::Endless)?;
    Ok(Continued {
        from,
        took: Duration::from_nanos(took.as_nanos()),
    })
}

/// Two hosts and a switch that drops nothing. The path's rate is one of payload; half of what a round trip is longer than the sending of a
/// packet and its acknowledgment is divided among the two links.
fn scenario(from: &MessageState, settings: &Settings) -> Result<String, NotContinued> {
    let end = usize::from(from.message.end);
    let sysctl = |name: &str| settings.sysctls[end].get(name)?.parse::<u64>().ok();
    let own = |name: &str| settings.socket[end].get(name);
    let rate = from.path.rate.ok_or(NoMessageState::Path)?.max(1);
    let packet = from.payload + HEADERS;
    let bits = u128::from(rate) * 8 * u128::from(packet) / u128::from(from.payload);
    // Twice: to the switch and from it.
    let lines = 2 * 8 * u128::from(packet + HEADERS) * 1_000_000_000 / bits.max(1);
    let delay = from.path.round_trip.as_nanos().saturating_sub(lines) / 4;
    let congestion = own("congestion").map_or("cubic", String::as_str);
    let algorithm = match congestion {
        "reno" => "newreno",
        "cubic" | "dctcp" | "bbr" => congestion,
        other => return Err(NotContinued::Congestion(other.to_owned())),
    };
    // `TCP_RACK_LOSS_DETECTION`, and the values of `tcp_early_retrans` that send probes (Documentation/networking/ip-sysctl.rst).
    let rack = sysctl("tcp_recovery").unwrap_or(1) & 1 == 1;
    let probes = matches!(sysctl("tcp_early_retrans").unwrap_or(3), 3 | 4);
    let mut tcp = format!(
        "preset = \"linux\"\nalgorithm = \"{algorithm}\"\nmss = \"{} B\"\nheader = \"{HEADERS} B\"\ninitial-window = {}\n\
         loss-detection = \"{}\"\ntail-loss-probe = {probes}\n",
        from.payload,
        from.window,
        if rack { "rack" } else { "duplicate-acks" },
    );
    if let Some(threshold) = from.threshold {
        tcp += &format!("initial-ssthresh = {}\n", threshold.max(1));
    }
    if let Some(least) = own("rto_min_ns")
        .and_then(|it| it.parse::<u64>().ok())
        .filter(|it| *it > 0)
    {
        tcp += &format!("rto-min = \"{least} ns\"\n");
    }
    Ok(format!(
        "seed = 1\nduration = \"1 ms\"\ndrain = \"{LONGEST} s\"\n[topology]\nkind = \"custom\"\nhosts = [\"a\", \"b\"]\n\
         switches = [\"s\"]\nlink = [{{ ends = [\"a\", \"s\"] }}, {{ ends = [\"b\", \"s\"] }}]\n[topology.links]\n\
         rate = \"{bits} bit/s\"\ndelay = \"{delay} ns\"\n[switch]\nbuffer = \"{ROOM} packets\"\n[tcp]\n{tcp}[[workload]]\nkind = \"bulk\"\n\
         from = [\"a\"]\nto = [\"b\"]\nbytes = \"{} B\"\n",
        from.left
    ))
}

#[cfg(test)]
mod tests {
    use super::*;
    use slowpath_explain::{Message, NetworkPath};
    use slowpath_recording::Moment;
    use std::collections::BTreeMap;

    /// 100 packets left on a path of 1 Gbit/s and 10 ms.
    fn some(window: u32) -> MessageState {
        MessageState {
            message: Message {
                end: 0,
                number: 0,
                bytes: 0..1_448_000,
                run: 0,
                begun: Moment(5_000_000),
                done: None,
            },
            at: Moment(9_000_000),
            left: 144_800,
            window,
            threshold: None,
            payload: 1448,
            path: NetworkPath {
                round_trip: Duration::from_millis(10),
                rate: Some(125_000_000 * 1448 / 1500),
            },
        }
    }

    fn settings(congestion: &str) -> Settings {
        let socket = BTreeMap::from([("congestion".to_owned(), congestion.to_owned())]);
        Settings {
            sysctls: Default::default(),
            socket: [socket.clone(), socket],
            mtu: [1500; 2],
        }
    }

    /// Slow start doubles each round: 10, 20, 40 and the last 30 take three round trips and one way. With a window of 100 it is one way.
    #[test]
    fn rounds_of_slow_start() {
        for congestion in ["reno", "cubic", "dctcp"] {
            for (window, trips) in [(10, 3.5), (50, 1.5), (100, 0.5)] {
                let took = continued(some(window), &settings(congestion)).unwrap();
                let trips_taken = took.took.as_secs_f64() / 0.010;
                // 100 packets at 1 Gbit/s are 1.2 ms, 0.12 of a round trip.
                let over = trips_taken - trips;
                assert!(
                    (0.0..0.15).contains(&over),
                    "{congestion} {window}: {trips_taken}"
                );
                // 4 ms had passed before.
                let whole = took.message().as_secs_f64() - took.took.as_secs_f64();
                assert!((whole - 0.004).abs() < 1e-9);
            }
        }
    }

    /// The line bounds it: a million bytes of payload at 1.2 MB/s.
    #[test]
    fn a_slow_line() {
        let mut from = some(1000);
        from.left = 1_000_000;
        from.path.rate = Some(1_200_000);
        from.path.round_trip = Duration::from_millis(20);
        let took = continued(from, &settings("cubic"))
            .unwrap()
            .took
            .as_secs_f64();
        let line = 1_000_000.0 / 1_200_000.0;
        assert!((line..line + 0.02).contains(&took), "{took} {line}");
    }

    #[test]
    fn what_cannot_be() {
        let error = continued(some(10), &settings("vegas"))
            .unwrap_err()
            .to_string();
        assert!(
            error.contains("'vegas'") && error.contains("cubic"),
            "{error}"
        );
        let mut dark = some(10);
        dark.path.rate = None;
        assert!(matches!(
            continued(dark, &settings("cubic")),
            Err(NotContinued::MessageState(NoMessageState::Path))
        ));
    }
}
