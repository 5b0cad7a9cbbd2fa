// SPDX-License-Identifier: Apache-2.0
//! A capture at a sender's interface, read packet by packet (tshark does the parsing), and
//! what can be derived from it of one sender: independent of everything slowpath reads.
//! The capture must hold the handshake, for the window scale.

use std::net::SocketAddr;
use std::path::Path;
use std::process::Command;
use std::time::Duration;

/// Half of TCP_RTO_MIN (include/net/tcp.h): timers count jiffies, which are behind on a
/// virtual processor that was not scheduled for a while, and then expire early. Nothing but
/// a timer waits so long.
const TIMER_SILENCE: Duration = Duration::from_millis(200 / 2);

/// One TCP packet.
#[derive(Clone, Copy, Debug)]
pub struct Packet {
    /// Time since the epoch.
    at: Duration,
    from: SocketAddr,
    to: SocketAddr,
    sequence: u32,
    acknowledged: u32,
    /// Bytes, scaled.
    window: u32,
    /// Payload bytes.
    length: u32,
    syn: bool,
}

/// The TCP packets of a capture, in its order.
pub fn read(capture: &Path) -> Vec<Packet> {
    const FIELDS: [&str; 12] = [
        "frame.time_epoch",
        "ip.src",
        "ipv6.src",
        "tcp.srcport",
        "ip.dst",
        "ipv6.dst",
        "tcp.dstport",
        "tcp.seq_raw",
        "tcp.ack_raw",
        "tcp.window_size",
        "tcp.len",
        "tcp.flags.syn",
    ];
    let mut command = Command::new("tshark");
    command.args(["-n", "-r"]).arg(capture);
    command.args(["-Y", "tcp", "-T", "fields", "-E", "occurrence=f"]);
    for field in FIELDS {
        command.args(["-e", field]);
    }
    let output = command.output().expect("tshark runs");
    assert!(output.status.success(), "{output:?}");
    let text = String::from_utf8(output.stdout).expect("numbers are text");
    text.lines()
        .map(|line| {
            let f: Vec<&str> = line.split('\t').collect();
            assert_eq!(f.len(), FIELDS.len(), "{line}");
            let end = |v4: usize, v6: usize, port: usize| {
                let host = if f[v4].is_empty() { f[v6] } else { f[v4] };
                let host = host.parse().expect("an address");
                SocketAddr::new(host, f[port].parse().expect("a port"))
            };
            let number = |i: usize| f[i].parse::<u32>().expect("a number");
            let (seconds, fraction) = f[0].split_once('.').expect("a time with a fraction");
            let nanos = format!("{fraction:0<9}");
            Packet {
                at: Duration::new(
                    seconds.parse().expect("seconds"),
                    nanos[..9].parse().expect("nanoseconds"),
                ),
                from: end(1, 2, 3),
                to: end(4, 5, 6),
                sequence: number(7),
                acknowledged: number(8),
                window: number(9),
                length: number(10),
                syn: matches!(f[11], "1" | "True"),
            }
        })
        .collect()
}

/// What the packets say of one sender. See [`sender`].
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Account {
    /// Segments with payload.
    pub segments: u64,
    /// Segments with payload sent before.
    pub retransmitted: u64,
    /// Expirations of the retransmission timer.
    pub timeouts: u64,
    /// Tail loss probes that sent a segment again after a wait as long as a timer's.
    pub late_probes: u64,
    /// Time in which the receiver's window had no room for a full segment.
    pub window_closed: Duration,
    /// At least so long only the send buffer can have held the sender back.
    pub buffer_full_least: Duration,
    /// At most so long the send buffer can have held the sender back.
    pub buffer_full_most: Duration,
}

/// Follows what `sender` sent over its one connection in the capture.
///
/// * A segment with payload that begins before the highest sequence number sent so far is
///   a retransmission.
/// * A retransmission is the timer's if the connection was silent in both directions for
///   half the minimum RTO before it and it is of the lowest unacknowledged segment (RFC 6298
///   rule 5.4): what acknowledgements trigger follows them at once.
/// * Of these the tail loss probe is the one of the last segment sent, while nothing has
///   been retransmitted since the last acknowledgement that advanced (RFC 8985 section 7.2:
///   one probe, before the timer, of the highest sequence number). With one segment in
///   flight it waits 200 ms more (tcp_schedule_loss_probe), as long as a timer.
/// * The window is closed while the right edge announced last leaves less than the largest
///   segment sent; only what comes before new data counts, for that data was waiting. The
///   application must be one that always has data to write. Then the kernel's
///   rwnd-limited time is this time, but for the moments in which the writer has not yet
///   refilled the queue.
/// * A send buffer that is full of data in flight holds the sender back only between two
///   segments of new data, while something is in flight and the window has room. That time
///   is the most. Of it, the buffer certainly was full until the first acknowledgement
///   after the segments left, since nothing before that can have freed any of it, if fewer
///   segments were in flight than the congestion window allows. That time is the least.
///   No packet states the congestion window; `cwnd` is the kernel's at the end. Without
///   losses it only grows, and what is in flight was below it after the first round trips.
pub fn sender(packets: &[Packet], sender: SocketAddr, cwnd: u32) -> Account {
    let mine: Vec<&Packet> = packets
        .iter()
        .filter(|p| p.from == sender || p.to == sender)
        .collect();
    let first = mine.first().expect("the connection was captured");
    assert!(
        first.from == sender && first.syn,
        "the handshake was captured"
    );
    let origin = first.sequence;
    let largest = mine
        .iter()
        .filter(|p| p.from == sender)
        .map(|p| p.length)
        .max()
        .unwrap_or(0);

    let mut progress = Progress {
        account: Account::default(),
        largest,
        cwnd,
        unacknowledged: 1,
        next: 1,
        edge: 0,
        repaired: false,
        closed: Duration::ZERO,
        open: Duration::ZERO,
        until_answer: None,
        data_sent_at: first.at,
    };
    let mut before = first.at;
    for p in &mine {
        let passed = p.at.saturating_sub(before);
        progress.wait(passed);
        if p.from == sender {
            progress.sent(p, p.sequence.wrapping_sub(origin), passed);
        } else {
            progress.answered(p, p.acknowledged.wrapping_sub(origin));
        }
        before = p.at;
    }
    progress.account
}

/// How far a sender has come, packet by packet. Numbers are relative to the initial sequence
/// number.
struct Progress {
    account: Account,
    /// Bytes of the largest segment sent.
    largest: u32,
    /// Segments: the congestion window at the end.
    cwnd: u32,
    unacknowledged: u32,
    next: u32,
    /// The right edge of the window announced last.
    edge: u32,
    /// Something was retransmitted since the last acknowledgement that advanced.
    repaired: bool,
    /// Since new data was sent last: time with the window closed, and with it open and
    /// something in flight.
    closed: Duration,
    open: Duration,
    /// From the newest data to the first packet of the receiver after it, if the send buffer
    /// certainly was full.
    until_answer: Option<Duration>,
    data_sent_at: Duration,
}

impl Progress {
    fn in_flight(&self) -> u32 {
        self.next - self.unacknowledged
    }

    fn wait(&mut self, passed: Duration) {
        if self.edge.saturating_sub(self.next) < self.largest {
            self.closed += passed;
        } else if self.in_flight() > 0 {
            self.open += passed;
        }
    }

    /// A packet of the sender that begins with that number, so long after the packet before it.
    fn sent(&mut self, p: &Packet, begin: u32, passed: Duration) {
        if p.length == 0 {
            return;
        }
        self.account.segments += 1;
        let end = begin + p.length;
        if begin < self.next {
            self.account.retransmitted += 1;
            if begin == self.unacknowledged && passed >= TIMER_SILENCE {
                if end == self.next && !self.repaired {
                    self.account.late_probes += 1;
                } else {
                    self.account.timeouts += 1;
                }
            }
            self.repaired = true;
        } else {
            self.account.window_closed += self.closed;
            self.account.buffer_full_most += self.open;
            self.account.buffer_full_least += self.until_answer.unwrap_or_default();
            self.next = end;
            self.data_sent_at = p.at;
            (self.closed, self.open, self.until_answer) = (Duration::ZERO, Duration::ZERO, None);
        }
    }

    /// A packet of the receiver that acknowledges all before that number.
    fn answered(&mut self, p: &Packet, acknowledged: u32) {
        // The capture is behind the queueing discipline, which may hold two segments
        // that TCP has sent (TCP small queues).
        if self.until_answer.is_none() {
            let in_flight = self.in_flight();
            let room = in_flight > 0
                && in_flight + 2 * self.largest < self.cwnd.saturating_mul(self.largest)
                && self.edge.saturating_sub(self.next) >= self.largest;
            self.until_answer = Some(if room {
                p.at.saturating_sub(self.data_sent_at)
            } else {
                Duration::ZERO
            });
        }
        if acknowledged > self.unacknowledged {
            self.unacknowledged = acknowledged;
            self.repaired = false;
        }
        self.edge = self.edge.max(acknowledged + p.window);
    }
}
