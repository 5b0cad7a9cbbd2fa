// SPDX-License-Identifier: Apache-2.0
//! What the program `slowpath-workload` is given and what it reports.
//!
//! It prints one JSON line when its sockets stand ([`Ready`]) and one when its work is
//! done ([`Report`]). It reads lines: `go` starts the work, `stop` ends it early; at the
//! end of its input it closes its sockets and exits. Sockets stay open between report and
//! exit, so that they can still be looked at.

mod tcp_truth;

pub use tcp_truth::{StateTimes, TcpTruth};

use serde::{Deserialize, Serialize};
use std::net::{IpAddr, SocketAddr};

/// Bytes in front of every request: its total length and the length of the response it
/// wants, both 32-bit big-endian.
pub const REQUEST_HEADER_BYTES: usize = 8;

/// What a server does with a connection.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize, clap::ValueEnum)]
#[serde(rename_all = "kebab-case")]
pub enum ServeMode {
    /// Reads and discards.
    #[default]
    Sink,
    /// Sends back what it reads.
    Echo,
    /// Answers framed requests, see [`REQUEST_HEADER_BYTES`].
    RequestResponse,
    /// Accepts and never reads.
    Hold,
}

/// How a server behaves.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, clap::Args)]
#[serde(deny_unknown_fields, default)]
pub struct ServeOptions {
    /// What it does with a connection.
    #[arg(long, value_enum, default_value = "sink")]
    pub mode: ServeMode,
    /// Address to listen on; default all IPv6 and IPv4 addresses.
    #[arg(long)]
    pub bind: Option<IpAddr>,
    /// Port to listen on; 0 lets the kernel choose.
    #[arg(long, default_value_t = 0)]
    pub port: u16,
    /// SO_RCVBUF in bytes, which the kernel doubles; default: automatic.
    #[arg(long)]
    pub rcvbuf: Option<u32>,
    /// Bytes a second a sink reads at most; default: as fast as they come.
    #[arg(long)]
    pub read_rate: Option<u64>,
    /// Largest read in bytes; default 65,536.
    #[arg(long)]
    pub read_bytes: Option<u32>,
    /// Milliseconds between a request and its response.
    #[arg(long, default_value_t = 0)]
    pub think_ms: u64,
    /// Delays acknowledgements (TCP_QUICKACK off before every read).
    #[arg(long)]
    #[serde(skip_serializing_if = "is_false")]
    pub delay_acks: bool,
    /// Sets TCP_NODELAY.
    #[arg(long)]
    #[serde(skip_serializing_if = "is_false")]
    pub nodelay: bool,
    /// Congestion control; default: cubic, whatever the namespace's.
    #[arg(long)]
    pub cc: Option<String>,
}

/// What a driver does with its connections.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize, clap::ValueEnum)]
#[serde(rename_all = "kebab-case")]
pub enum DriveMode {
    /// Sends a request in one write, waits for the response, pauses; `requests` times, or
    /// until stopped.
    #[default]
    RequestResponse,
    /// Sends a request in two writes, `header_bytes` and the rest, and waits for the
    /// response.
    WriteWriteRead,
    /// Sends `request_bytes` every `pause_ms` and reads nothing.
    OneWay,
    /// Sends until `bytes` or `seconds`, paced at `rate`.
    Bulk,
    /// Opens `connections` at once, then sends `request_bytes` on each.
    Many,
    /// Opens, uses (`lifetime_ms`) and closes `requests` connections in turn.
    ShortLived,
    /// Like short-lived, always from the same port (`source_port` or one found free),
    /// closed by reset.
    PortReuse,
    /// Request/response, then dies by SIGKILL without closing anything.
    Die,
}

/// How a driver behaves.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, clap::Args)]
#[serde(deny_unknown_fields)]
pub struct DriveOptions {
    /// What it does with its connections.
    #[arg(long, value_enum, default_value = "request-response")]
    #[serde(default)]
    pub mode: DriveMode,
    /// The server's address and port; `[::ffff:a.b.c.d]:port` makes an IPv6 socket to an
    /// IPv4 address.
    #[arg(long)]
    #[serde(default = "nowhere")]
    pub connect: SocketAddr,
    /// Source address.
    #[arg(long)]
    pub bind: Option<IpAddr>,
    /// Source port.
    #[arg(long)]
    pub source_port: Option<u16>,
    /// Requests or connections; default: until stopped.
    #[arg(long)]
    pub requests: Option<u64>,
    /// Bytes of a request, its header included; default 200.
    #[arg(long)]
    pub request_bytes: Option<u32>,
    /// Bytes of a response; default 1,000.
    #[arg(long)]
    pub response_bytes: Option<u32>,
    /// Bytes of the first of two writes; default 8.
    #[arg(long)]
    pub header_bytes: Option<u32>,
    /// Milliseconds between a response and the next request; default 5.
    #[arg(long)]
    pub pause_ms: Option<u64>,
    /// Bytes of a bulk transfer.
    #[arg(long)]
    pub bytes: Option<u64>,
    /// Seconds of work at most.
    #[arg(long)]
    pub seconds: Option<f64>,
    /// Bytes a second the application writes at; default: as fast as they go.
    #[arg(long)]
    pub rate: Option<u64>,
    /// Bytes of a bulk write; default 65,536.
    #[arg(long)]
    pub write_bytes: Option<u32>,
    /// Number of connections of the mode `many`; default 1.
    #[arg(long)]
    pub connections: Option<u32>,
    /// Milliseconds a short-lived connection lives; default 5.
    #[arg(long)]
    pub lifetime_ms: Option<u64>,
    /// SO_SNDBUF in bytes, which the kernel doubles; default: automatic.
    #[arg(long)]
    pub sndbuf: Option<u32>,
    /// Sets TCP_NODELAY.
    #[arg(long)]
    #[serde(default, skip_serializing_if = "is_false")]
    pub nodelay: bool,
    /// Congestion control; default: cubic, whatever the namespace's.
    #[arg(long)]
    pub cc: Option<String>,
}

impl DriveOptions {
    /// Request/response to `connect` with the defaults.
    pub fn to(connect: SocketAddr) -> Self {
        DriveOptions {
            connect,
            ..Self::default()
        }
    }
}

impl Default for DriveOptions {
    fn default() -> Self {
        DriveOptions {
            mode: DriveMode::default(),
            connect: nowhere(),
            bind: None,
            source_port: None,
            requests: None,
            request_bytes: None,
            response_bytes: None,
            header_bytes: None,
            pause_ms: None,
            bytes: None,
            seconds: None,
            rate: None,
            write_bytes: None,
            connections: None,
            lifetime_ms: None,
            sndbuf: None,
            nodelay: false,
            cc: None,
        }
    }
}

fn nowhere() -> SocketAddr {
    SocketAddr::from(([0, 0, 0, 0], 0))
}

fn is_false(value: &bool) -> bool {
    !value
}

/// A workload's first line.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Ready {
    /// Its process id.
    pub pid: u32,
    /// A server's listening port; 0 of a driver.
    pub port: u16,
    /// A driver's connections, local and remote address as the socket sees them. Empty
    /// for modes that open connections while they work.
    pub connections: Vec<(SocketAddr, SocketAddr)>,
}

/// A workload's last line: its own account.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct Report {
    /// Payload bytes written.
    pub bytes_written: u64,
    /// Payload bytes read.
    pub bytes_read: u64,
    /// Requests answered, messages sent or connections used.
    pub transactions: u64,
    /// Connections opened or accepted.
    pub connections: u64,
    /// Connections or requests that failed.
    pub errors: u64,
    /// Time from `go` to the end of the work, in microseconds.
    pub elapsed_us: u64,
    /// Time spent in write calls, in microseconds.
    pub blocked_us: u64,
    /// Time from a request to its response.
    pub latency: Option<Latency>,
    /// The kernel's account of a driver's first connection at the end of the work.
    pub tcp: Option<TcpTruth>,
    /// Where that connection's time went, sampled.
    pub states: Option<StateTimes>,
}

/// Latencies in microseconds, nearest rank.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Latency {
    /// Median.
    pub p50_us: u64,
    /// 90th percentile.
    pub p90_us: u64,
    /// 99th percentile.
    pub p99_us: u64,
    /// Largest.
    pub max_us: u64,
}

impl Latency {
    /// Of these samples; `None` if there are none.
    pub fn of(mut samples_us: Vec<u64>) -> Option<Self> {
        samples_us.sort_unstable();
        let last = samples_us.len().checked_sub(1)?;
        let rank = |percent: usize| {
            let at = (samples_us.len() * percent).div_ceil(100);
            samples_us[at.clamp(1, last + 1) - 1]
        };
        Some(Latency {
            p50_us: rank(50),
            p90_us: rank(90),
            p99_us: rank(99),
            max_us: samples_us[last],
        })
    }
}

#[cfg(test)]
mod tests {
    use super::Latency;

    #[test]
    fn percentiles_are_nearest_ranks() {
        assert_eq!(Latency::of(vec![]), None);
        let latency = Latency::of((1..=200).rev().collect()).expect("there are samples");
        assert_eq!(latency.p50_us, 100);
        assert_eq!(latency.p90_us, 180);
        assert_eq!(latency.p99_us, 198);
        assert_eq!(latency.max_us, 200);
        let one = Latency::of(vec![7]).expect("there is one");
        assert_eq!((one.p50_us, one.p99_us), (7, 7));
    }
}
