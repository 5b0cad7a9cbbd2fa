// SPDX-License-Identifier: Apache-2.0
//! A test with another slowpath, from this end.

use super::delay::{Delay, DelayProbe};
use super::end::{EndReport, Role, Timing, run};
use super::report::{Measured, ThroughputReport, of_ends};
use super::tcp;
use crate::control::Credentials;
use crate::requests::client::PATIENCE;
use crate::requests::message::{
    Answer, Command, DataUse, Direction, Opened, Opening, Request, StreamOptions,
    ThroughputRequest, Token,
};
use crate::requests::{Link, RequestError, Requester};
use crate::session::PathError;
use crate::socket::monotonic;
use slowpath_model::Micros;
use std::net::{IpAddr, SocketAddr, TcpStream};
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread;
use std::time::{Duration, Instant};

/// Round trips are measured for so long before the test.
const IDLE: Duration = Duration::from_millis(1_000);

/// What is tested and how.
#[derive(Clone, Debug)]
pub struct ThroughputOptions {
    /// Where the other slowpath answers requests.
    pub peer: SocketAddr,
    /// From which address; `None`: the route's.
    pub local: Option<IpAddr>,
    /// The key, if it asks for one.
    pub credentials: Option<Credentials>,
    /// Which end sends.
    pub direction: Direction,
    /// TCP connections.
    pub streams: u16,
    /// What counts.
    pub length: Duration,
    /// What passes before that.
    pub warm_up: Duration,
    /// Socket options of the end that sends.
    pub sender: StreamOptions,
    /// Of the end that receives.
    pub receiver: StreamOptions,
}

/// Tests, until it is done or a signal ends it; what was measured until then is reported.
///
/// # Errors
/// See [`RequestError`].
pub fn measure_throughput(
    options: &ThroughputOptions,
    interrupted: &AtomicBool,
) -> Result<ThroughputReport, RequestError> {
    let mut client = Client {
        options,
        requester: Requester {
            peer: options.peer,
            local: options.local,
            credentials: options.credentials.as_ref(),
            interrupted,
        },
        interrupted,
    };
    let mut control = client.requester.control()?;
    let token = client.ask(&mut control)?;
    let here = match options.direction {
        Direction::There => (Role::Sender, &options.sender),
        Direction::Back => (Role::Receiver, &options.receiver),
    };
    let streams: Vec<TcpStream> = (0..options.streams)
        .map(|_| client.data(token, DataUse::Stream, here.1))
        .collect::<Result<_, _>>()?;
    let probe = client.data(token, DataUse::Delay, &StreamOptions::default())?;
    let mut probe = DelayProbe::new(probe).map_err(PathError::io("prepare the probes"))?;
    let idle = probe.run(monotonic() + IDLE.as_nanos() as i64, interrupted);
    client.start(&mut control)?;
    let (own, loaded, finished) = client.transfer(&mut control, here.0, &streams, &mut probe)?;
    let theirs = client.result(&mut control, finished)?;
    streams.iter().for_each(tcp::abort);
    let per_stream = |bits: u64| bits as f64 * 8.0 * f64::from(options.streams);
    let measured = Measured {
        peer: options.peer.to_string(),
        direction: options.direction,
        warm_up: Micros::from(options.warm_up),
        length: Micros::from(options.length),
        pace: options.sender.pace.map(per_stream),
        send_buffer_set: options.sender.send_buffer.is_some(),
        idle: Delay::of(idle.into_iter().map(|(_, nanos)| nanos).collect()),
        loaded: Delay::of(loaded),
        interrupted: interrupted.load(Ordering::Relaxed),
    };
    Ok(of_ends(&measured, &own, &theirs))
}

/// Whose end this is.
struct Client<'a> {
    options: &'a ThroughputOptions,
    requester: Requester<'a>,
    interrupted: &'a AtomicBool,
}

/// An end's report, loaded round trips, and what the peer said meanwhile.
type Transferred = (EndReport, Vec<u64>, Option<Answer>);

impl Client<'_> {
    fn ask(&self, control: &mut Link) -> Result<Token, RequestError> {
        let options = self.options;
        let theirs = match options.direction {
            Direction::There => &options.receiver,
            Direction::Back => &options.sender,
        };
        let millis = |length: Duration| u64::try_from(length.as_millis()).unwrap_or(u64::MAX);
        let request = Request::Throughput(ThroughputRequest {
            direction: options.direction,
            streams: options.streams,
            length_ms: millis(options.length),
            warm_up_ms: millis(options.warm_up),
            options: theirs.clone(),
        });
        control
            .send(&Command::ask(&request))
            .map_err(self.requester.failed("a test"))?;
        match self.requester.receive(control, "a test")? {
            Answer::Accepted { token } => Ok(token),
            Answer::Refused { reason } => Err(self.requester.refused(reason)),
            Answer::Started {} | Answer::Finished { .. } => {
                let peer = self.options.peer;
                Err(RequestError::Unexpected { peer })
            }
        }
    }

    /// Opens a data connection.
    fn data(
        &self,
        token: Token,
        use_for: DataUse,
        options: &StreamOptions,
    ) -> Result<TcpStream, RequestError> {
        let (mut link, _) = self.requester.connect(options)?;
        link.send(&Opening::Data { token, use_for })
            .map_err(self.requester.failed("a data connection"))?;
        match self.requester.receive(&mut link, "a data connection")? {
            Opened::Welcome { .. } => Ok(link.into_stream()),
            Opened::Refused { reason } => Err(self.requester.refused(reason)),
        }
    }

    fn start(&self, control: &mut Link) -> Result<(), RequestError> {
        control
            .send(&Command::Start {})
            .map_err(self.requester.failed("the start"))?;
        match self.requester.receive(control, "the start")? {
            Answer::Started {} => Ok(()),
            Answer::Refused { reason } => Err(self.requester.refused(reason)),
            Answer::Accepted { .. } | Answer::Finished { .. } => {
                let peer = self.options.peer;
                Err(RequestError::Unexpected { peer })
            }
        }
    }

    /// Sends or receives, with probes beside, until the time is over.
    fn transfer(
        &mut self,
        control: &mut Link,
        role: Role,
        streams: &[TcpStream],
        probe: &mut DelayProbe,
    ) -> Result<Transferred, RequestError> {
        let timing = Timing {
            warm_up: self.options.warm_up,
            length: self.options.length,
        };
        let begin = monotonic() + timing.warm_up.as_nanos() as i64;
        let until = begin.saturating_add(timing.length.as_nanos() as i64);
        // A sender goes on until the receiver is through.
        let stop = AtomicBool::new(false);
        let through = AtomicBool::new(false);
        let interrupted = self.interrupted;
        thread::scope(|scope| {
            let probing = scope.spawn(|| probe.run(until, &stop));
            let watching = scope.spawn(|| {
                let deadline = Instant::now() + timing.warm_up + timing.length + 2 * PATIENCE;
                let answer = match role {
                    Role::Sender => control.receive(deadline, &through).ok(),
                    Role::Receiver => None,
                };
                if role == Role::Sender && !through.load(Ordering::Relaxed) {
                    stop.store(true, Ordering::Relaxed);
                }
                answer
            });
            scope.spawn(|| {
                while !through.load(Ordering::Relaxed) {
                    if interrupted.load(Ordering::Relaxed) {
                        stop.store(true, Ordering::Relaxed);
                    }
                    thread::sleep(Duration::from_millis(20));
                }
            });
            let report = run(role, streams, timing, &stop);
            through.store(true, Ordering::Relaxed);
            let finished = watching.join().ok().flatten();
            stop.store(true, Ordering::Relaxed);
            let loaded = probing.join().unwrap_or_default();
            let counted = loaded
                .into_iter()
                .filter(|(sent, _)| *sent >= begin)
                .map(|(_, nanos)| nanos)
                .collect();
            Ok((report?, counted, finished))
        })
    }

    /// The peer's report.
    fn result(
        &self,
        control: &mut Link,
        finished: Option<Answer>,
    ) -> Result<EndReport, RequestError> {
        let peer = self.options.peer;
        let answer = match finished {
            Some(answer) => answer,
            None => {
                // It may have finished, and closed the connection behind its result.
                let _ = control.send(&Command::Stop {});
                let never = AtomicBool::new(false);
                control
                    .receive(Instant::now() + PATIENCE, &never)
                    .map_err(self.requester.failed("its result"))?
            }
        };
        match answer {
            Answer::Finished { result } => {
                let report: EndReport = serde_json::from_value(result)
                    .map_err(|_| RequestError::Unexpected { peer })?;
                match report.streams.len() <= usize::from(self.options.streams) {
                    true => Ok(report),
                    false => Err(RequestError::Unexpected { peer }),
                }
            }
            Answer::Refused { reason } => Err(self.requester.refused(reason)),
            Answer::Accepted { .. } | Answer::Started {} => Err(RequestError::Unexpected { peer }),
        }
    }
}
