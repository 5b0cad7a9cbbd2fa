// SPDX-License-Identifier: Apache-2.0
//! Captures to measure with: many connections at once, each with a handshake, requests and
//! responses, delayed ACKs, losses repaired by fast retransmission or timeout, SACK,
//! timestamps, and a close. The same seed gives the same file.

use std::cmp::Reverse;
use std::collections::{BinaryHeap, VecDeque};
use std::io::{self, Write};

/// What is made.
#[derive(Clone, Copy, Debug)]
pub struct Plan {
    /// Bytes of the file, about.
    pub bytes: u64,
    /// Bytes captured of a frame at most.
    pub snap: u32,
    /// Connections open at the same time.
    pub connections: u32,
    /// Segments of a connection, on average and about.
    pub segments: u32,
    /// Where the random numbers begin.
    pub seed: u64,
}

/// What was made.
#[derive(Clone, Copy, Debug, Default)]
pub struct Made {
    /// Frames.
    pub packets: u64,
    /// Bytes of the file.
    pub bytes: u64,
    /// Connections.
    pub connections: u64,
}

/// Sebastiano Vigna's SplitMix64.
struct Random(u64);

impl Random {
    fn next(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut z = self.0;
        z = (z ^ (z >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        z ^ (z >> 31)
    }

    fn below(&mut self, bound: u64) -> u64 {
        self.next() % bound
    }

    fn in_thousand(&mut self, chance: u64) -> bool {
        self.below(1000) < chance
    }
}

const SYN: u8 = 2;
const FIN: u8 = 1;
const ACK: u8 = 16;
const PSH: u8 = 8;
const MSS: u32 = 1448;
const SECOND: u64 = 1_000_000_000;
/// 2024-01-01, where the capture begins.
const BEGIN: u64 = 1_704_067_200 * SECOND;

#[derive(Clone, Copy)]
struct Packet {
    time: u64,
    from_client: bool,
    flags: u8,
    sequence: u32,
    acknowledgement: u32,
    length: u32,
    sack: Option<(u32, u32)>,
}

/// A connection, observed beside its server.
struct Connection {
    client: u32,
    server: u32,
    client_port: u16,
    ipv6: bool,
    id: [u16; 2],
    /// Next sequence numbers of client and server.
    next: [u32; 2],
    rtt: u64,
    gap: u64,
    window: u64,
    segments_left: i64,
    queue: VecDeque<Packet>,
    over: bool,
}

impl Connection {
    fn new(number: u64, time: u64, plan: &Plan, random: &mut Random) -> Self {
        let mut connection = Connection {
            client: 0x0a00_0000 + (number / 50_000) as u32,
            server: 0xc0a8_0000 + random.below(64) as u32,
            client_port: (10_000 + number % 50_000) as u16,
            ipv6: random.in_thousand(50),
            id: [random.next() as u16, random.next() as u16],
            next: [random.next() as u32, random.next() as u32],
            rtt: 1_000_000 + random.below(80_000_000),
            gap: 5_000 + random.below(200_000),
            window: 2 + random.below(30),
            segments_left: (plan.segments / 2) as i64 + random.below(plan.segments.into()) as i64,
            queue: VecDeque::new(),
            over: false,
        };
        let [client, server] = connection.next;
        connection.put(time, true, SYN, client, 0, 0);
        connection.put(
            time + 30_000,
            false,
            SYN | ACK,
            server,
            client.wrapping_add(1),
            0,
        );
        connection.next = [client.wrapping_add(1), server.wrapping_add(1)];
        let [client, server] = connection.next;
        connection.put(time + connection.rtt, true, ACK, client, server, 0);
        connection
    }

    fn put(&mut self, time: u64, from_client: bool, flags: u8, seq: u32, ack: u32, length: u32) {
        self.queue.push_back(Packet {
            time,
            from_client,
            flags,
            sequence: seq,
            acknowledgement: ack,
            length,
            sack: None,
        });
    }

    /// A request and a window of response, or the end.
    fn round(&mut self, mut time: u64, random: &mut Random) {
        if self.segments_left <= 0 {
            let [client, server] = self.next;
            self.put(time, false, FIN | ACK, server, client, 0);
            self.put(
                time + self.rtt,
                true,
                FIN | ACK,
                client,
                server.wrapping_add(1),
                0,
            );
            self.put(
                time + self.rtt + 20_000,
                false,
                ACK,
                server.wrapping_add(1),
                client.wrapping_add(1),
                0,
            );
            self.over = true;
            return;
        }
        let first = self.queue.len();
        if random.in_thousand(150) {
            time += random.below(50_000_000);
            let length = 100 + random.below(1000) as u32;
            let [client, server] = self.next;
            self.put(time, true, PSH | ACK, client, server, length);
            self.next[0] = client.wrapping_add(length);
            time += 100_000 + random.below(5_000_000);
        }
        self.response(time, random);
        self.segments_left -= (self.queue.len() - first) as i64;
        self.queue.make_contiguous()[first..].sort_by_key(|packet| packet.time);
    }

    fn response(&mut self, time: u64, random: &mut Random) {
        let count = 1 + random.below(self.window);
        let [client, start] = self.next;
        let lost = random
            .in_thousand(15 * count.min(20))
            .then(|| random.below(count));
        for n in 0..count {
            let flags = if n + 1 == count { PSH | ACK } else { ACK };
            let sequence = start.wrapping_add(n as u32 * MSS);
            self.put(time + n * self.gap, false, flags, sequence, client, MSS);
        }
        let end = start.wrapping_add(count as u32 * MSS);
        let at = |n: u64| start.wrapping_add(n as u32 * MSS);
        // ACKs of every second segment, the last one delayed.
        let whole = lost.unwrap_or(count);
        for n in (2..=whole).step_by(2) {
            self.put(
                time + self.rtt + (n - 1) * self.gap,
                true,
                ACK,
                client,
                at(n),
                0,
            );
        }
        if let Some(lost) = lost {
            let after = count - lost - 1;
            for n in 1..=after {
                self.put(
                    time + self.rtt + (lost + n) * self.gap,
                    true,
                    ACK,
                    client,
                    at(lost),
                    0,
                );
                if let Some(ack) = self.queue.back_mut() {
                    ack.sack = Some((at(lost + 1), at(lost + 1 + n)));
                }
            }
            // Three duplicates repair it at once, fewer leave it to the timer.
            let wait = if after >= 3 {
                (lost + 3) * self.gap
            } else {
                200_000_000
            };
            let again = time + self.rtt + wait + 10_000;
            self.put(again, false, ACK, at(lost), client, MSS);
            self.put(again + self.rtt, true, ACK, client, end, 0);
        } else if !count.is_multiple_of(2) {
            let delayed = time + self.rtt + count * self.gap + 40_000_000;
            self.put(delayed, true, ACK, client, end, 0);
        }
        self.next[1] = end;
    }

    /// The frame as it was captured, and its length on the wire.
    fn frame(&mut self, packet: &Packet, payload: &[u8], snap: usize, into: &mut Vec<u8>) -> u32 {
        into.clear();
        into.extend([2, 0, 0, 0, 0, 1, 2, 0, 0, 0, 0, 2]);
        let options = match (packet.flags & SYN != 0, packet.sack) {
            (true, _) => 20,
            (false, None) => 12,
            (false, Some(_)) => 24,
        };
        let tcp = 20 + options;
        let [from, to] = if packet.from_client {
            [self.client, self.server]
        } else {
            [self.server, self.client]
        };
        if self.ipv6 {
            into.extend([0x86, 0xdd, 0x60, 0, 0, 0]);
            into.extend(((tcp + packet.length) as u16).to_be_bytes());
            into.extend([6, 63]);
            for address in [from, to] {
                into.extend([0x20, 1, 0x0d, 0xb8, 0, 0, 0, 0, 0, 0, 0, 0]);
                into.extend(address.to_be_bytes());
            }
        } else {
            let id = &mut self.id[usize::from(packet.from_client)];
            *id = id.wrapping_add(1);
            into.extend([8, 0, 0x45, 0]);
            into.extend(((20 + tcp + packet.length) as u16).to_be_bytes());
            into.extend(id.to_be_bytes());
            into.extend([0x40, 0, 63, 6, 0, 0]);
            into.extend(from.to_be_bytes());
            into.extend(to.to_be_bytes());
        }
        let ports = if packet.from_client {
            [self.client_port, 443]
        } else {
            [443, self.client_port]
        };
        into.extend(ports.iter().flat_map(|port| port.to_be_bytes()));
        into.extend(packet.sequence.to_be_bytes());
        into.extend(packet.acknowledgement.to_be_bytes());
        into.extend([(tcp / 4 * 16) as u8, packet.flags, 0x02, 0, 0, 0, 0, 0]);
        let clock = ((packet.time - BEGIN) / 1_000_000) as u32;
        if packet.flags & SYN != 0 {
            into.extend([2, 4, 5, 0xb4, 4, 2]);
        } else {
            into.extend([1, 1]);
        }
        into.extend([8, 10]);
        into.extend(clock.to_be_bytes());
        into.extend(clock.wrapping_sub(1).to_be_bytes());
        if packet.flags & SYN != 0 {
            into.extend([1, 3, 3, 7]);
        } else if let Some((left, right)) = packet.sack {
            into.extend([1, 1, 5, 10]);
            into.extend(left.to_be_bytes());
            into.extend(right.to_be_bytes());
        }
        let wire = (into.len() + packet.length as usize).max(60);
        let room = snap.min(wire).saturating_sub(into.len());
        let kept = room.min(packet.length as usize);
        let from = packet.sequence as usize % (payload.len() - MSS as usize);
        into.extend_from_slice(&payload[from..from + kept]);
        into.resize(snap.min(wire), 0);
        wire as u32
    }
}

/// Writes a pcap file with nanoseconds.
pub fn generate(plan: &Plan, out: &mut dyn Write) -> io::Result<Made> {
    let mut random = Random(plan.seed);
    let payload: Vec<u8> = (0..8192)
        .flat_map(|_| random.next().to_le_bytes())
        .collect();
    out.write_all(&0xa1b2_3c4du32.to_le_bytes())?;
    out.write_all(&[2, 0, 4, 0, 0, 0, 0, 0, 0, 0, 0, 0])?;
    out.write_all(&plan.snap.to_le_bytes())?;
    out.write_all(&1u32.to_le_bytes())?;
    let mut made = Made {
        bytes: 24,
        ..Made::default()
    };
    let mut open = Vec::new();
    let mut due = BinaryHeap::new();
    for place in 0..plan.connections {
        // They begin over ten seconds.
        let time = BEGIN + random.below(10 * SECOND);
        open.push(Connection::new(place.into(), time, plan, &mut random));
        due.push(Reverse((time, place)));
    }
    made.connections = plan.connections.into();
    let mut frame = Vec::new();
    while let Some(Reverse((_, place))) = due.pop() {
        let connection = &mut open[place as usize];
        let Some(packet) = connection.queue.pop_front() else {
            continue;
        };
        let wire = connection.frame(&packet, &payload, plan.snap as usize, &mut frame);
        out.write_all(&((packet.time / SECOND) as u32).to_le_bytes())?;
        out.write_all(&((packet.time % SECOND) as u32).to_le_bytes())?;
        out.write_all(&(frame.len() as u32).to_le_bytes())?;
        out.write_all(&wire.to_le_bytes())?;
        out.write_all(&frame)?;
        made.packets += 1;
        made.bytes += 16 + frame.len() as u64;
        if made.bytes >= plan.bytes {
            break;
        }
        if connection.queue.is_empty() {
            let pause = packet.time + 1_000 + random.below(2_000_000);
            if connection.over {
                *connection = Connection::new(made.connections, pause, plan, &mut random);
                made.connections += 1;
            } else {
                connection.round(pause, &mut random);
            }
        }
        if let Some(next) = connection.queue.front() {
            due.push(Reverse((next.time, place)));
        }
    }
    out.flush()?;
    Ok(made)
}
