// SPDX-License-Identifier: Apache-2.0
//! What to do about a finding, and who should.

pub use sizing::{SendBufferSizing, size_send_buffer};

pub(crate) use sizing::bytes_in;

mod further;
mod sizing;

use serde::{Deserialize, Serialize};
use slowpath_model::{Deltas, Finding, IntervalVerdict, Micros, Problem, TcpStats};
use std::fmt;

/// Duplicate ACKs that start a fast retransmission (RFC 5681 section 3.2): a window below
/// this and one more segment cannot raise them.
const DUPLICATE_ACKS: u32 = 3;

/// The largest window without the window-scale option (16 bits, RFC 9293 section 3.1), bytes.
const UNSCALED_WINDOW: u32 = 65_535;

/// Who has to act.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Actor {
    /// The developer of the application that sends.
    SenderDeveloper,
    /// Who operates the sending host.
    HostOperator,
    /// Who operates the network between the hosts.
    NetworkOperator,
    /// Developer or operator of the receiving side.
    ReceiverSide,
    /// The developer of the application that accepts connections.
    AcceptingDeveloper,
}

impl fmt::Display for Actor {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(match self {
            Actor::SenderDeveloper => "application developer",
            Actor::HostOperator => "host operator",
            Actor::NetworkOperator => "network operator",
            Actor::ReceiverSide => "receiver side",
            Actor::AcceptingDeveloper => "developer of the accepting application",
        })
    }
}

/// What to do about a finding.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct Advice {
    /// Who has to act.
    pub who: Actor,
    /// What to do, in a few sentences, with the numbers that lead there.
    pub what: String,
    /// Where the advice comes from.
    pub source: &'static str,
}

/// What advice may use beyond the verdict. What is unknown is `None` and not spoken of.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct AdviceContext {
    /// SNAP TotalSendBufferMemory: memory that all send buffers of the host may take,
    /// bytes (`net.ipv4.tcp_mem`, in pages).
    pub total_send_buffer_memory: Option<u64>,
    /// SNAP ΣCwin: sum of the congestion windows of the host's connections, bytes.
    pub sum_cwnd: Option<u64>,
    /// What autotuning may grow a send buffer to, bytes (the last of
    /// `net.ipv4.tcp_wmem`).
    pub send_buffer_max: Option<u32>,
    /// Delivery rate, bytes a second.
    pub delivery_rate: Option<u64>,
    /// Minimum RTT.
    pub min_rtt: Option<Micros>,
    /// Segments in flight at the end.
    pub in_flight: Option<u32>,
    /// Delayed ACKs that held unsent data or a writer back
    /// ([`Measures::held_acks`](crate::Measures::held_acks)).
    pub held_acks: Option<u64>,
    /// What the interaction SendBufferBelowBdp asks SO_SNDBUF to be, of the same connection, bytes: it knows more of the
    /// path than one interval does.
    pub wanted_send_buffer: Option<u64>,
}

impl AdviceContext {
    /// What the connection's own statistics say; the host's figures stay unknown.
    pub fn of(stats: &TcpStats) -> Self {
        AdviceContext {
            delivery_rate: stats.delivery_rate,
            min_rtt: stats.min_rtt,
            in_flight: Some(stats.in_flight),
            ..AdviceContext::default()
        }
    }
}

/// Says what to do about `finding`, one of `verdict`'s.
pub fn advise(finding: &Finding, verdict: &IntervalVerdict, context: &AdviceContext) -> Advice {
    let deltas = &verdict.deltas;
    match finding.problem {
        Problem::SenderAppLimited => Advice {
            who: Actor::SenderDeveloper,
            what: "The connection waits for the application; if that is too slow, look at what \
                   the application does between its writes."
                .into(),
            source: "SNAP section 2.2",
        },
        Problem::SendBufferLimited => send_buffer(deltas, context),
        Problem::FastRetransmit => fast_retransmit(finding, deltas),
        Problem::Timeout => timeout(finding, verdict, context),
        Problem::DelayedAck => delayed_ack(finding, deltas, context),
        Problem::ReceiverWindowLimited => receiver_window(deltas, context),
        _ => further::advise(finding, verdict, context),
    }
}

fn send_buffer(deltas: &Deltas, context: &AdviceContext) -> Advice {
    let source = "SNAP section 5.3; socket(7) on SO_SNDBUF; tcp_sndbuf_expand";
    let now = match deltas.send_buffer {
        Some(size) => format!("The send buffer ({} of memory) is full", bytes(size.into())),
        None => "The send buffer is full".into(),
    };
    let Some(sizing) = size_send_buffer(deltas, context) else {
        return Advice {
            who: Actor::SenderDeveloper,
            what: format!(
                "{now} while the network could carry more: remove SO_SNDBUF so that Linux \
                 sizes it, or raise it."
            ),
            source,
        };
    };
    let mut what = format!(
        "{now} while the network could carry more: one congestion window is {}",
        bytes(sizing.window)
    );
    if let Some(product) = sizing.rate_delay {
        what += &format!(", the bandwidth-delay product {}", bytes(product));
    }
    what += ". ";
    let suggested = context.wanted_send_buffer.unwrap_or(sizing.so_sndbuf);
    let tuned_out = context
        .send_buffer_max
        .is_some_and(|max| deltas.send_buffer.is_some_and(|size| size >= max));
    let who = if u64::from(deltas.send_buffer.unwrap_or(0)) >= suggested.saturating_mul(2) {
        what += "That fits, so it is not its size: look for little CPU time for the writer, \
                 TCP_NOTSENT_LOWAT, or memory pressure (net.ipv4.tcp_mem)";
        Actor::HostOperator
    } else if tuned_out {
        what += &format!(
            "It has grown to what net.ipv4.tcp_wmem allows: raise the last value of that to {} \
             or more",
            suggested.saturating_mul(2)
        );
        Actor::HostOperator
    } else {
        what += &format!(
            "Remove SO_SNDBUF so that Linux sizes it, or set SO_SNDBUF to {suggested} (Linux \
             doubles it to {}; net.core.wmem_max caps it); if it is not set, raise the last \
             value of net.ipv4.tcp_wmem",
            suggested.saturating_mul(2)
        );
        Actor::SenderDeveloper
    };
    if let Some(share) = sizing.memory_share {
        what += &format!(
            "; by its window its share of the host's send-buffer memory is {}",
            bytes(share)
        );
    }
    what.push('.');
    Advice { who, what, source }
}

fn fast_retransmit(finding: &Finding, deltas: &Deltas) -> Advice {
    let mut what = match finding.events {
        Some(events) if events > 0 => format!("Segments were lost on the path {}", times(events)),
        Some(_) => "Segments lost before are still being repaired".into(),
        None => "Segments were lost on the path".into(),
    };
    if let Some(segments) = deltas.retransmitted.filter(|n| *n > 0) {
        what += &format!(" ({segments} retransmitted");
        if let Some(sent) = deltas.bytes_sent.filter(|s| *s > 0)
            && deltas.send_mss > 0
        {
            let all = sent.div_ceil(deltas.send_mss.into()).max(segments);
            what += &format!(
                ", about {:.2} % of what was sent",
                100.0 * segments as f64 / all as f64
            );
        }
        what.push(')');
    }
    what += ". Look for drops and errors on the links and switch queues that connections with \
             the same finding share; if losses follow large writes after idle time, let the \
             sender pace them (fq, SO_MAX_PACING_RATE) or keep \
             net.ipv4.tcp_slow_start_after_idle=1.";
    Advice {
        who: Actor::NetworkOperator,
        what,
        source: "SNAP sections 5.2 and 6.1",
    }
}

fn timeout(finding: &Finding, verdict: &IntervalVerdict, context: &AdviceContext) -> Advice {
    let deltas = &verdict.deltas;
    let mut what = match finding.events {
        Some(events) if events > 0 => {
            format!("The retransmission timer expired {}", times(events))
        }
        _ => "The connection is recovering from a retransmission timeout".into(),
    };
    let few = DUPLICATE_ACKS + 1;
    let write = average_write(deltas).filter(|_| deltas.send_mss > 0);
    let small_writes = write.filter(|w| *w < u64::from(few) * u64::from(deltas.send_mss));
    let who = if let Some(write) = small_writes {
        what += &format!(
            ": its writes of {} on average put fewer than {few} segments in flight, too few for \
             fast retransmission. Send requests over one connection instead of spreading them \
             over several",
            bytes(write)
        );
        Actor::SenderDeveloper
    } else if context.in_flight.is_some_and(|n| n > 0 && n < few)
        && verdict.finding(Problem::FastRetransmit).is_none()
    {
        what += &format!(
            " with few segments in flight (congestion window {}), too few for fast \
             retransmission. Look for drops at the bottleneck they share, and for many small \
             connections where one would do",
            deltas.cwnd
        );
        Actor::NetworkOperator
    } else {
        what += ": whole windows or retransmissions were lost. Look for queues that overflow \
                 (many senders answering one receiver at once) or a link that was down";
        Actor::NetworkOperator
    };
    if verdict.finding(Problem::DelayedAck).is_some() {
        what += ". After a timeout the window is one segment, whose ACK the receiver delays: \
                 quickack on the receiver's route shortens the recovery";
    }
    what.push('.');
    Advice {
        who,
        what,
        source: "SNAP sections 5.2 and 6.1, Figure 6; RFC 5681 section 3.2",
    }
}

fn delayed_ack(finding: &Finding, deltas: &Deltas, context: &AdviceContext) -> Advice {
    let acks = match finding.events {
        Some(1) => "One ACK came late".into(),
        Some(n) => format!("{n} ACKs came late"),
        None => "ACKs came late".to_owned(),
    };
    let each = match (finding.share, finding.events) {
        (slowpath_model::Share::Measured(time), Some(n)) if n > 0 => {
            format!(", by {} each", Micros(time.0 / n))
        }
        _ => String::new(),
    };
    // In an exchange only ACKs that held something back are found.
    let held = match context.held_acks {
        Some(held) => held > 0,
        None => deltas.bytes_received.is_some_and(|received| received > 0),
    };
    let write = match average_write(deltas) {
        Some(write) => format!(" (writes of {} on average)", bytes(write)),
        None => String::new(),
    };
    if held {
        Advice {
            who: Actor::SenderDeveloper,
            what: format!(
                "{acks}{each}, and what the application wrote meanwhile{write} waited for them: \
                 Nagle's algorithm, or a send buffer for less than one message. Write each \
                 message with one call (writev), or set TCP_NODELAY; at the receiver, \
                 TCP_QUICKACK or `ip route change ROUTE quickack 1`."
            ),
            source: "SNAP section 6.2; RFC 9293 sections 3.7.4 and 3.8.6.3",
        }
    } else {
        Advice {
            who: Actor::ReceiverSide,
            what: format!(
                "{acks}{each}: the receiver delays the ACK of a single segment{write}. If the \
                 sender waits for it, send more at once, or at the receiver set TCP_QUICKACK or \
                 `ip route change ROUTE quickack 1`."
            ),
            source: "SNAP sections 5.1 and 6.2; RFC 9293 section 3.8.6.3",
        }
    }
}

fn receiver_window(deltas: &Deltas, context: &AdviceContext) -> Advice {
    let source = "SNAP sections 5.3 and 6.3; RFC 7323 section 2; tcp(7) on tcp_rmem";
    let who = Actor::ReceiverSide;
    let Some(window) = deltas.send_window else {
        return Advice {
            who,
            what: "The receiver's window is full: look at its receive queue (ss -tm there). If \
                   it is full, the process reads too slowly; if not, raise net.ipv4.tcp_rmem \
                   or remove SO_RCVBUF."
                .into(),
            source,
        };
    };
    if window <= deltas.send_mss {
        return Advice {
            who,
            what: format!(
                "The receiver announces a window of {}: the process there does not read. Look at \
                 what it waits for (CPU, disk, locks) while its receive queue is full (ss -tm).",
                bytes(window.into())
            ),
            source,
        };
    }
    let rtt = context.min_rtt.or(deltas.baseline_rtt).or(deltas.srtt);
    let mut what = format!(
        "The receiver announces a window of {}",
        bytes(window.into())
    );
    if let Some(rtt) = rtt.filter(|r| *r > Micros::ZERO) {
        let rate = u128::from(window) * 1_000_000 / u128::from(rtt.0);
        what += &format!(
            ", which allows at most {}/s at an RTT of {rtt}",
            bytes(u64::try_from(rate).unwrap_or(u64::MAX))
        );
    }
    let product = context
        .delivery_rate
        .zip(rtt)
        .map_or(0, |(rate, rtt)| bytes_in(rate, rtt));
    let wanted = (u64::from(deltas.cwnd) * u64::from(deltas.send_mss)).max(product);
    if wanted > u64::from(window) {
        what += &format!("; the congestion window would carry {}", bytes(wanted));
    }
    what += ". If its receive queue is full (ss -tm there), the process reads too slowly; if not, \
             raise the last value of net.ipv4.tcp_rmem or remove SO_RCVBUF";
    if window <= UNSCALED_WINDOW && wanted > u64::from(UNSCALED_WINDOW) {
        what += ", and see that window scaling is on (net.ipv4.tcp_window_scaling)";
    }
    what.push('.');
    Advice { who, what, source }
}

fn average_write(deltas: &Deltas) -> Option<u64> {
    deltas.bytes_written?.checked_div(deltas.writes?)
}

fn times(events: u64) -> String {
    match events {
        1 => "once".into(),
        2 => "twice".into(),
        n => format!("{n} times"),
    }
}

/// Bytes with a binary unit.
fn bytes(n: u64) -> String {
    let value = n as f64;
    match n {
        0..1024 => format!("{n} B"),
        1024..1_048_576 => format!("{:.1} KiB", value / 1024.0),
        1_048_576..1_073_741_824 => format!("{:.1} MiB", value / 1_048_576.0),
        _ => format!("{:.1} GiB", value / 1_073_741_824.0),
    }
}
