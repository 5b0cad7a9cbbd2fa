// SPDX-License-Identifier: Apache-2.0
//! What tcptrace and tshark make of a capture: an oracle that owes slowpath nothing.

use crate::TestbedError;
use std::collections::BTreeMap;
use std::io;
use std::net::{IpAddr, SocketAddr};
use std::path::Path;
use std::process::Command;

/// One connection in a capture, by its two ends; `a` sent the first packet.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct CapturedConnection<Direction> {
    /// The end that sent the first packet.
    pub a: SocketAddr,
    /// The other end.
    pub b: SocketAddr,
    /// What `a` sent.
    pub a_to_b: Direction,
    /// What `b` sent.
    pub b_to_a: Direction,
}

impl<Direction> CapturedConnection<Direction> {
    /// What `sender` sent, if it is an end of this connection.
    pub fn sent_by(&self, sender: SocketAddr) -> Option<&Direction> {
        match sender {
            s if s == self.a => Some(&self.a_to_b),
            s if s == self.b => Some(&self.b_to_a),
            _ => None,
        }
    }
}

/// One direction as `tcptrace -l -r` counts it.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct TcptraceDirection {
    /// "actual data pkts": packets with payload, retransmissions included.
    pub data_packets: u64,
    /// "unique bytes sent": payload bytes without retransmissions.
    pub unique_bytes: u64,
    /// "rexmt data pkts": packets with payload sent before.
    pub retransmitted_packets: u64,
    /// "rexmt data bytes".
    pub retransmitted_bytes: u64,
    /// "zwnd probe pkts".
    pub zero_window_probes: u64,
    /// "zero win adv": packets that announced a window of 0.
    pub zero_window_advertisements: u64,
    /// "max # retrans": most retransmissions of one segment.
    pub max_retransmissions: u64,
    /// "RTT samples".
    pub rtt_samples: u64,
}

/// One direction as tshark's `tcp.analysis` marks its packets.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct TsharkDirection {
    /// Packets with payload.
    pub data_packets: u64,
    /// `tcp.analysis.retransmission`: retransmitted, for whatever reason.
    pub retransmissions: u64,
    /// `tcp.analysis.out_of_order`: behind what was sent before, soon after. In a capture
    /// at the sender's end these are retransmissions too.
    pub out_of_order: u64,
    /// `tcp.analysis.fast_retransmission`: after duplicate ACKs, by tshark's guess.
    pub fast_retransmissions: u64,
    /// `tcp.analysis.rto`: put down to a timer, tail loss probes included.
    pub timers: u64,
    /// `tcp.analysis.zero_window`: announced a window of 0.
    pub zero_windows: u64,
    /// `tcp.analysis.window_full`: filled the other end's window.
    pub windows_filled: u64,
}

/// Runs `tcptrace -l -r` on a capture.
///
/// # Errors
/// tcptrace is missing, fails, or prints what is not understood.
pub fn tcptrace(
    capture: &Path,
) -> Result<Vec<CapturedConnection<TcptraceDirection>>, TestbedError> {
    let mut command = Command::new("tcptrace");
    // No configuration of the user's may add other output.
    command
        .env("HOME", "/nonexistent")
        .env_remove("TCPTRACEOPTS");
    command.args(["-l", "-r", "-n", "--csv"]).arg(capture);
    parse_tcptrace(&run("tcptrace", command)?)
}

/// Runs tshark's TCP analysis on a capture.
///
/// # Errors
/// tshark is missing, fails, or prints what is not understood.
pub fn tshark(capture: &Path) -> Result<Vec<CapturedConnection<TsharkDirection>>, TestbedError> {
    let mut command = Command::new("tshark");
    command.args(["-n", "-2", "-r"]).arg(capture);
    command.args(["-Y", "tcp", "-T", "fields", "-E", "occurrence=f"]);
    for field in TSHARK_FIELDS {
        command.args(["-e", field]);
    }
    parse_tshark(&run("tshark", command)?)
}

fn run(program: &'static str, mut command: Command) -> Result<String, TestbedError> {
    let output = command.output().map_err(|source| match source.kind() {
        io::ErrorKind::NotFound => TestbedError::ToolMissing {
            program: program.to_owned(),
            package: program,
        },
        _ => TestbedError::io("run", program)(source),
    })?;
    if !output.status.success() {
        return Err(TestbedError::Tool {
            command: format!("{command:?}"),
            stderr: String::from_utf8_lossy(&output.stderr).trim().to_owned(),
        });
    }
    Ok(String::from_utf8_lossy(&output.stdout).into_owned())
}

fn unclear(program: &'static str, reason: impl Into<String>) -> TestbedError {
    TestbedError::Oracle {
        program,
        reason: reason.into(),
    }
}

fn parse_tcptrace(text: &str) -> Result<Vec<CapturedConnection<TcptraceDirection>>, TestbedError> {
    let mut lines = text
        .lines()
        .filter(|line| !line.starts_with('#') && !line.trim().is_empty())
        .skip_while(|line| !line.starts_with("conn_#,"));
    let Some(header) = lines.next() else {
        return Ok(Vec::new());
    };
    let columns: BTreeMap<&str, usize> = header.split(',').zip(0..).collect();
    lines
        .map(|line| {
            let fields: Vec<&str> = line.split(',').map(str::trim).collect();
            let text = |column: &str| {
                let field = columns.get(column).and_then(|at| fields.get(*at));
                field
                    .copied()
                    .ok_or_else(|| unclear("tcptrace", format!("no column {column}")))
            };
            let number = |column: String| {
                text(&column)?
                    .parse::<u64>()
                    .map_err(|e| unclear("tcptrace", format!("{column}: {e}")))
            };
            let end = |end: &str| {
                let host = text(&format!("host_{end}"))?.parse::<IpAddr>();
                let host = host.map_err(|e| unclear("tcptrace", e.to_string()))?;
                let port = number(format!("port_{end}"))?;
                Ok(SocketAddr::new(host, port as u16))
            };
            let direction = |d: &str| {
                Ok(TcptraceDirection {
                    data_packets: number(format!("actual_data_pkts_{d}"))?,
                    unique_bytes: number(format!("unique_bytes_sent_{d}"))?,
                    retransmitted_packets: number(format!("rexmt_data_pkts_{d}"))?,
                    retransmitted_bytes: number(format!("rexmt_data_bytes_{d}"))?,
                    zero_window_probes: number(format!("zwnd_probe_pkts_{d}"))?,
                    zero_window_advertisements: number(format!("zero_win_adv_{d}"))?,
                    max_retransmissions: number(format!("max_#_retrans_{d}"))?,
                    rtt_samples: number(format!("RTT_samples_{d}"))?,
                })
            };
            Ok(CapturedConnection {
                a: end("a")?,
                b: end("b")?,
                a_to_b: direction("a2b")?,
                b_to_a: direction("b2a")?,
            })
        })
        .collect()
}

const TSHARK_FIELDS: [&str; 14] = [
    "tcp.stream",
    "ip.src",
    "ipv6.src",
    "tcp.srcport",
    "ip.dst",
    "ipv6.dst",
    "tcp.dstport",
    "tcp.len",
    "tcp.analysis.retransmission",
    "tcp.analysis.out_of_order",
    "tcp.analysis.fast_retransmission",
    "tcp.analysis.rto",
    "tcp.analysis.zero_window",
    "tcp.analysis.window_full",
];

fn parse_tshark(text: &str) -> Result<Vec<CapturedConnection<TsharkDirection>>, TestbedError> {
    let mut connections = BTreeMap::<u64, CapturedConnection<TsharkDirection>>::new();
    for line in text.lines() {
        let fields: Vec<&str> = line.split('\t').collect();
        let &[
            stream,
            v4_source,
            v6_source,
            source_port,
            v4_destination,
            v6_destination,
            destination_port,
            length,
            retransmission,
            out_of_order,
            fast,
            timer,
            zero_window,
            window_full,
        ] = &fields[..]
        else {
            return Err(unclear("tshark", format!("{} fields", fields.len())));
        };
        let end = |v4: &str, v6: &str, port: &str| {
            let host = if v4.is_empty() { v6 } else { v4 };
            match (host.parse::<IpAddr>(), port.parse()) {
                (Ok(host), Ok(port)) => Ok(SocketAddr::new(host, port)),
                _ => Err(unclear("tshark", line)),
            }
        };
        let source = end(v4_source, v6_source, source_port)?;
        let destination = end(v4_destination, v6_destination, destination_port)?;
        let stream = stream.parse().map_err(|_| unclear("tshark", line))?;
        let connection = connections.entry(stream).or_insert(CapturedConnection {
            a: source,
            b: destination,
            a_to_b: TsharkDirection::default(),
            b_to_a: TsharkDirection::default(),
        });
        let direction = match source == connection.a {
            true => &mut connection.a_to_b,
            false => &mut connection.b_to_a,
        };
        let marked = |mark: &str| u64::from(!mark.is_empty());
        direction.data_packets += u64::from(length != "0" && !length.is_empty());
        direction.retransmissions += marked(retransmission);
        direction.out_of_order += marked(out_of_order);
        direction.fast_retransmissions += marked(fast);
        direction.timers += marked(timer);
        direction.zero_windows += marked(zero_window);
        direction.windows_filled += marked(window_full);
    }
    Ok(connections.into_values().collect())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn nothing_captured_is_no_connection() {
        assert_eq!(parse_tcptrace("#0 packets seen\n\n").expect("parses"), []);
        assert_eq!(parse_tshark("").expect("parses"), []);
    }

    #[test]
    fn a_missing_column_is_an_error() {
        let text = "conn_#,host_a,host_b,port_a\n\n1,10.0.0.1,10.0.0.2,5\n";
        let error = parse_tcptrace(text).expect_err("must not parse");
        assert!(error.to_string().contains("port_b"), "{error}");
    }

    #[test]
    fn marks_count_for_the_direction_of_their_packet() {
        let text = "0\t10.0.0.1\t\t5\t10.0.0.2\t\t80\t100\t\t\t\t\t\t\n\
                    0\t10.0.0.2\t\t80\t10.0.0.1\t\t5\t0\t\t\t\t\t1\t\n\
                    0\t10.0.0.1\t\t5\t10.0.0.2\t\t80\t100\t1\t\t1\t\t\t1\n\
                    1\t\tfd00::1\t5\t\tfd00::2\t80\t7\t1\t\t\t0.2\t\t\n";
        let connections = parse_tshark(text).expect("parses");
        assert_eq!(connections.len(), 2);
        assert_eq!(
            connections[0].a_to_b,
            TsharkDirection {
                data_packets: 2,
                retransmissions: 1,
                fast_retransmissions: 1,
                windows_filled: 1,
                ..TsharkDirection::default()
            }
        );
        assert_eq!(connections[0].b_to_a.zero_windows, 1);
        let v6 = "[fd00::1]:5".parse().expect("an address");
        let sent = connections[1].sent_by(v6).expect("is an end");
        assert_eq!((sent.timers, sent.retransmissions), (1, 1));
        let other = "10.0.0.1:5".parse().expect("an address");
        assert_eq!(connections[1].sent_by(other), None);
    }
}
