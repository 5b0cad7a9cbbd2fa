// SPDX-License-Identifier: Apache-2.0
//! A download or an upload.

use super::Ndt7Error;
use super::measurement::Measurement;
use super::transport::Transport;
use crate::requests::message::{Direction, StreamOptions};
use crate::session::{PathError, fill_random};
use crate::socket::monotonic;
use crate::throughput::cpu::{Cpu, ThreadTime};
use crate::throughput::end::Role;
use crate::throughput::report::{
    EndView, Interval, RoundTripsPerMinute, ThroughputNote, ThroughputReport, of_tallies,
};
use crate::throughput::tally::{StreamTally, window};
use crate::throughput::tcp;
use crate::throughput::verdict::judge;
use slowpath_model::{MonoNanos, TcpStats};
use std::net::{IpAddr, SocketAddr, ToSocketAddrs};
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};
use tungstenite::client::client_with_config;
use tungstenite::http::Uri;
use tungstenite::protocol::WebSocketConfig;
use tungstenite::{Bytes, ClientRequestBuilder, Error, Message, WebSocket};

/// The subprotocol (the specification, *The WebSocket handshake*).
const PROTOCOL: &str = "net.measurementlab.ndt.v7";

/// What a client takes for connecting and both handshakes (the specification: 5 to 10 seconds).
const SET_UP: Duration = Duration::from_secs(10);

/// A test's length, which the sender keeps.
const LENGTH: Duration = Duration::from_secs(10);

/// After this a client may close the connection.
const LONGEST: Duration = Duration::from_secs(13);

/// The smallest and the largest binary message.
const MESSAGES: [usize; 2] = [1 << 13, 1 << 20];

/// The largest message that is taken in: what an implementation must allow.
const MOST_OCTETS: usize = 1 << 24;

/// How often this end's socket is sampled, ns.
const SAMPLE: i64 = 100_000_000;

/// Length of a row, ns.
const ROW: i64 = 1_000_000_000;

/// What is tested.
#[derive(Clone, Debug)]
pub struct Ndt7Options {
    /// `ws://HOST:PORT`, `wss://HOST`, a host, or a URL with path and query.
    pub server: String,
    /// From which address; `None`: the route's.
    pub local: Option<IpAddr>,
    /// Back is a download, there an upload.
    pub direction: Direction,
    /// Options of this end's socket.
    pub options: StreamOptions,
}

/// Tests.
///
/// # Errors
/// See [`Ndt7Error`].
pub fn measure_ndt7(
    options: &Ndt7Options,
    interrupted: &AtomicBool,
) -> Result<ThroughputReport, Ndt7Error> {
    let socket = connect(options)?;
    let failed = PathError::io("prepare the connection");
    socket
        .get_ref()
        .socket()
        .set_nonblocking(true)
        .map_err(failed)?;
    let mut test = Test::new(socket, options.direction)?;
    test.run(interrupted)?;
    Ok(test.report(options, interrupted.load(Ordering::Relaxed)))
}

fn url(options: &Ndt7Options) -> Result<Uri, Ndt7Error> {
    let wrong = || Ndt7Error::Url(options.server.clone());
    let text = match options.server.contains("://") {
        true => options.server.clone(),
        false => format!("wss://{}", options.server),
    };
    let given: Uri = text.parse().map_err(|_| wrong())?;
    if !matches!(given.scheme_str(), Some("ws" | "wss")) || given.host().is_none() {
        return Err(wrong());
    }
    if given.path() != "/" {
        return Ok(given);
    }
    let kind = match options.direction {
        Direction::Back => "download",
        Direction::There => "upload",
    };
    let text = format!("{}/ndt/v7/{kind}", text.trim_end_matches('/'));
    text.parse().map_err(|_| wrong())
}

fn connect(options: &Ndt7Options) -> Result<WebSocket<Transport>, Ndt7Error> {
    let url = url(options)?;
    let server = slowpath_text::plain(url.host().unwrap_or_default());
    let host = server
        .trim_start_matches('[')
        .trim_end_matches(']')
        .to_owned();
    let secure = url.scheme_str() == Some("wss");
    let port = url.port_u16().unwrap_or(if secure { 443 } else { 80 });
    let resolve = |source| Ndt7Error::Resolve {
        host: host.clone(),
        source,
    };
    let found: Vec<SocketAddr> = (host.as_str(), port)
        .to_socket_addrs()
        .map_err(resolve)?
        .collect();
    let mut last = std::io::Error::from(std::io::ErrorKind::NotFound);
    for address in found {
        let stream = match tcp::connect(address, options.local, &options.options) {
            Ok(stream) => stream,
            Err(tcp::SocketError::Connect(error)) => {
                last = error;
                continue;
            }
            Err(error) => return Err(error.into()),
        };
        let prepared = stream
            .set_read_timeout(Some(SET_UP))
            .and_then(|()| stream.set_write_timeout(Some(SET_UP)));
        prepared.map_err(PathError::io("prepare the connection"))?;
        let mut transport = match secure {
            true => Transport::tls(stream, &host)?,
            false => Transport::plain(stream),
        };
        transport.deadline = Some(Instant::now() + SET_UP);
        return handshake(url, &server, transport);
    }
    Err(Ndt7Error::Connect {
        server,
        source: last,
    })
}

fn handshake(
    url: Uri,
    server: &str,
    transport: Transport,
) -> Result<WebSocket<Transport>, Ndt7Error> {
    let request = ClientRequestBuilder::new(url)
        .with_sub_protocol(PROTOCOL)
        .with_header(
            "User-Agent",
            concat!("slowpath/", env!("CARGO_PKG_VERSION")),
        );
    let config = WebSocketConfig::default()
        .max_message_size(Some(MOST_OCTETS))
        .max_frame_size(Some(MOST_OCTETS))
        .max_write_buffer_size(4 * MESSAGES[1]);
    let (mut socket, _) =
        client_with_config(request, transport, Some(config)).map_err(|error| {
            Ndt7Error::Handshake {
                server: server.to_owned(),
                reason: slowpath_text::plain(&error.to_string()),
            }
        })?;
    let transport = socket.get_mut();
    transport.deadline = None;
    (transport.read, transport.written) = (0, 0);
    Ok(socket)
}

/// A test that is under way.
struct Test {
    socket: WebSocket<Transport>,
    direction: Direction,
    payload: Bytes,
    started: i64,
    /// When it ended, ns since the start.
    ended: i64,
    /// The sender's statistics.
    tally: StreamTally,
    /// The latest count of a server that receives: µs, octets.
    received: Option<(u64, u64)>,
    /// Whether those have segments that were sent again.
    counts_segments: bool,
    rows: Vec<Interval>,
    /// Of the current row: since when, octets and retransmitted octets then.
    row: (i64, u64, Option<u64>),
    next_sample: i64,
    broken: bool,
    cpu: Option<Cpu>,
}

/// Whether the conversation goes on.
#[derive(PartialEq, Eq)]
enum Progress {
    Goes,
    Waits,
    Over,
}

impl Test {
    fn new(socket: WebSocket<Transport>, direction: Direction) -> Result<Self, PathError> {
        let mut payload = vec![0; MESSAGES[1]];
        fill_random(&mut payload)?;
        Ok(Test {
            socket,
            direction,
            payload: payload.into(),
            started: monotonic(),
            ended: 0,
            tally: StreamTally::default(),
            received: None,
            counts_segments: direction == Direction::There,
            rows: Vec::new(),
            row: (0, 0, None),
            next_sample: 0,
            broken: false,
            cpu: None,
        })
    }

    fn passed(&self) -> i64 {
        monotonic() - self.started
    }

    fn uploads(&self) -> bool {
        self.direction == Direction::There
    }

    fn octets(&self) -> u64 {
        let transport = self.socket.get_ref();
        match self.uploads() {
            true => transport.written,
            false => transport.read,
        }
    }

    fn run(&mut self, interrupted: &AtomicBool) -> Result<(), PathError> {
        let begin = ThreadTime::now();
        let (length, longest) = (LENGTH.as_nanos() as i64, LONGEST.as_nanos() as i64);
        loop {
            let passed = self.passed();
            self.look(passed);
            let sends = self.uploads() && passed < length;
            let over = passed >= longest || self.uploads() && !sends;
            if over || interrupted.load(Ordering::Relaxed) {
                break;
            }
            let read = self.read();
            if read == Progress::Over || sends && self.write() == Progress::Over {
                break;
            }
            let patience = Duration::from_millis(20);
            if read == Progress::Waits {
                self.socket.get_ref().wait(sends, patience);
            }
        }
        self.ended = self.passed();
        self.sample(self.ended);
        self.end_row(self.ended);
        let used = ThreadTime::now().since(begin);
        self.cpu = Cpu::of(&[used], Duration::from_nanos(self.ended.unsigned_abs()));
        self.close();
        Ok(())
    }

    /// One message, if there is one.
    fn read(&mut self) -> Progress {
        match self.socket.read() {
            Ok(Message::Text(text)) => {
                // What is no measurement may be ignored.
                if let Ok(measurement) = serde_json::from_str::<Measurement>(text.as_str()) {
                    self.take(&measurement);
                }
                Progress::Goes
            }
            // A server must not send data during an upload.
            Ok(Message::Binary(_)) if self.uploads() => self.broke(),
            Ok(Message::Close(_)) => Progress::Over,
            Ok(_) => Progress::Goes,
            Err(error) if waits(&error) => Progress::Waits,
            Err(Error::ConnectionClosed | Error::AlreadyClosed) => Progress::Over,
            Err(_) => self.broke(),
        }
    }

    fn broke(&mut self) -> Progress {
        // The specification wants ends that break off tolerated: what came until then counts.
        self.broken = true;
        Progress::Over
    }

    /// A message: small at first, a sixteenth of what was sent then.
    fn write(&mut self) -> Progress {
        let sent = usize::try_from(self.octets() / 16).unwrap_or(usize::MAX);
        let size = sent.clamp(MESSAGES[0], MESSAGES[1]).next_power_of_two();
        let message = self.payload.slice(..size.min(MESSAGES[1]));
        match self.socket.write(Message::Binary(message)) {
            Ok(()) => Progress::Goes,
            Err(Error::WriteBufferFull(_)) => match self.socket.flush() {
                Ok(()) => Progress::Goes,
                Err(error) if waits(&error) => Progress::Waits,
                Err(_) => self.broke(),
            },
            Err(error) if waits(&error) => Progress::Waits,
            Err(_) => self.broke(),
        }
    }

    fn take(&mut self, measurement: &Measurement) {
        let unsigned = |number: Option<i64>| u64::try_from(number?).ok();
        if self.uploads() {
            let application = measurement
                .app_info
                .and_then(|info| Some((unsigned(info.elapsed_time)?, unsigned(info.num_bytes)?)));
            let kernel = measurement.tcp_info.and_then(|info| {
                Some((unsigned(info.elapsed_time)?, unsigned(info.bytes_received)?))
            });
            self.received = application.or(kernel).or(self.received);
        } else if let Some(info) = measurement.tcp_info
            && let Some((at, stats)) = info.at().zip(info.stats())
        {
            self.tally.add(at, stats);
            self.counts_segments = info.further.total_retrans.is_some();
        }
    }

    /// Samples and rows that are due.
    fn look(&mut self, passed: i64) {
        if passed >= self.next_sample {
            self.sample(passed);
            self.next_sample = passed + SAMPLE;
        }
        if passed >= self.row.0 + ROW {
            self.end_row(passed);
        }
    }

    fn sample(&mut self, passed: i64) {
        if self.uploads()
            && let Some(stats) = tcp::stats(self.socket.get_ref().socket())
        {
            let at = MonoNanos(passed.unsigned_abs());
            self.tally.add(at, stats);
        }
    }

    fn end_row(&mut self, passed: i64) {
        let (from, octets_then, retransmitted_then) = self.row;
        let octets = self.octets();
        let stats: Option<TcpStats> = self.tally.after.map(|(_, stats)| stats);
        let retransmitted = stats.and_then(|stats| stats.bytes_retransmitted);
        let seconds = (passed - from) as f64 / 1e9;
        if seconds > 0.0 {
            let count = octets - octets_then;
            self.rows.push(Interval {
                start: from as f64 / 1e9,
                end: passed as f64 / 1e9,
                warm_up: false,
                // What this end writes is in its own buffers first.
                goodput_bps: (!self.uploads()).then(|| count as f64 * 8.0 / seconds),
                retransmitted_bytes: retransmitted
                    .map(|count| count.saturating_sub(retransmitted_then.unwrap_or(0))),
                cwnd_bytes: stats
                    .map(|stats| window(&stats))
                    .filter(|window| *window > 0),
                rtt_ns: stats.and_then(|stats| Some(stats.srtt?.0.saturating_mul(1_000))),
            });
        }
        self.row = (passed, octets, retransmitted);
    }

    /// Ends the conversation as RFC 6455 section 7.1.1 has it, for a short time.
    fn close(&mut self) {
        let until = Instant::now() + Duration::from_secs(1);
        // What waits to be written is not worth waiting for.
        tcp::abort(self.socket.get_ref().socket());
        let _ = self.socket.close(None);
        while Instant::now() < until {
            match self.socket.read() {
                Ok(Message::Text(text)) => {
                    if let Ok(measurement) = serde_json::from_str::<Measurement>(text.as_str()) {
                        self.take(&measurement);
                    }
                }
                Ok(_) => {}
                Err(error) if waits(&error) => {
                    let _ = self.socket.flush();
                    self.socket.get_ref().wait(false, Duration::from_millis(20));
                }
                Err(_) => return,
            }
        }
    }

    fn report(self, options: &Ndt7Options, interrupted: bool) -> ThroughputReport {
        let mut facts = of_tallies(std::slice::from_ref(&self.tally));
        if !self.counts_segments {
            facts.retransmitted_segments = None;
        }
        let seconds = self.ended as f64 / 1e9;
        let acknowledged = self
            .tally
            .after
            .map(|(at, stats)| (at.0 / 1_000, stats.bytes_acked));
        let (octets, length) = match self.uploads() {
            false => (Some(self.octets()), seconds),
            // The receiver's count; else what this end's kernel knows to have arrived.
            true => match self
                .received
                .or(acknowledged)
                .filter(|(micros, _)| *micros > 0)
            {
                Some((micros, octets)) => (Some(octets), micros as f64 / 1e6),
                None => (None, seconds),
            },
        };
        facts.goodput = octets
            .filter(|_| length > 0.0)
            .map(|octets| octets as f64 * 8.0 / length);
        facts.pace = options
            .options
            .pace
            .filter(|_| self.uploads())
            .map(|pace| pace as f64 * 8.0);
        facts.send_buffer_set = self.uploads() && options.options.send_buffer.is_some();
        let (sender, receiver) = match self.uploads() {
            true => (self.cpu, None),
            false => (None, self.cpu),
        };
        (facts.sender_cpu, facts.receiver_cpu) = (sender, receiver);
        let mut notes = Vec::new();
        if self.broken {
            notes.push(ThroughputNote::Broken);
        }
        notes.push(match self.uploads() {
            _ if self.tally.after.is_none() => ThroughputNote::NoStatistics,
            true => ThroughputNote::OwnStatistics,
            false => ThroughputNote::PeerStatistics,
        });
        ThroughputReport {
            peer: slowpath_text::plain(&options.server),
            protocol: "ndt7",
            streams: 1,
            direction: self.direction,
            seconds: length,
            goodput_bps: facts.goodput,
            sent_bytes: facts.sent,
            received_bytes: octets,
            retransmitted_bytes: facts.retransmitted,
            ends: ends(&self),
            intervals: self.rows,
            idle_delay_ns: None,
            loaded_delay_ns: None,
            round_trips_per_minute: RoundTripsPerMinute::default(),
            verdict: judge(&facts),
            notes,
            interrupted,
        }
    }
}

fn ends(test: &Test) -> Vec<EndView> {
    let here = match test.uploads() {
        true => Role::Sender,
        false => Role::Receiver,
    };
    let tcp: Vec<TcpStats> = test
        .tally
        .after
        .map(|(_, stats)| stats)
        .into_iter()
        .collect();
    let end = |role, is_here: bool| EndView {
        role,
        here: is_here,
        tcp: match role {
            Role::Sender => tcp.clone(),
            Role::Receiver => Vec::new(),
        },
        cpu_percent: test.cpu.filter(|_| is_here).map(|cpu| cpu.percent),
        busiest_thread_percent: test.cpu.filter(|_| is_here).map(|cpu| cpu.busiest_percent),
        congestion: match (is_here, role) {
            (true, Role::Sender) => tcp::congestion(test.socket.get_ref().socket()),
            _ => None,
        },
    };
    [Role::Sender, Role::Receiver]
        .into_iter()
        .map(|role| end(role, role == here))
        .collect()
}

fn waits(error: &Error) -> bool {
    matches!(error, Error::Io(error) if matches!(
        error.kind(),
        std::io::ErrorKind::WouldBlock | std::io::ErrorKind::Interrupted
    ))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn of(server: &str, direction: Direction) -> Option<String> {
        let options = Ndt7Options {
            server: server.to_owned(),
            local: None,
            direction,
            options: StreamOptions::default(),
        };
        url(&options).ok().map(|url| url.to_string())
    }

    #[test]
    fn servers_are_hosts_or_urls_and_nothing_else() {
        for (server, direction, url) in [
            (
                "ws://192.0.2.7:8080",
                Direction::Back,
                "ws://192.0.2.7:8080/ndt/v7/download",
            ),
            (
                "wss://ndt.example/",
                Direction::There,
                "wss://ndt.example/ndt/v7/upload",
            ),
            (
                "ndt.example:4443",
                Direction::There,
                "wss://ndt.example:4443/ndt/v7/upload",
            ),
            (
                "wss://ndt.example/ndt/v7/download?access_token=x",
                Direction::Back,
                "wss://ndt.example/ndt/v7/download?access_token=x",
            ),
        ] {
            assert_eq!(of(server, direction).as_deref(), Some(url), "{server}");
        }
        for wrong in ["http://ndt.example", "ws://", "", "a b"] {
            assert_eq!(of(wrong, Direction::Back), None, "{wrong}");
        }
    }
}
