// SPDX-License-Identifier: Apache-2.0
//! Frames and captures made by hand, byte for byte after the formats' documents.
#![allow(dead_code, reason = "each test uses a part")]

pub const SYN: u8 = 2;
pub const ACK: u8 = 16;
pub const FIN: u8 = 1;
pub const RST: u8 = 4;

/// A TCP segment without options.
pub fn tcp(from: u16, to: u16, sequence: u32, flags: u8, payload: &[u8]) -> Vec<u8> {
    let mut bytes = [from.to_be_bytes(), to.to_be_bytes()].concat();
    bytes.extend(sequence.to_be_bytes());
    bytes.extend(77u32.to_be_bytes());
    bytes.extend([0x50, flags, 0x20, 0, 0, 0, 0, 0]);
    bytes.extend(payload);
    bytes
}

pub fn udp(from: u16, to: u16, payload: &[u8]) -> Vec<u8> {
    let length = 8 + payload.len() as u16;
    let words = [from, to, length, 0];
    let mut bytes: Vec<u8> = words.iter().flat_map(|w| w.to_be_bytes()).collect();
    bytes.extend(payload);
    bytes
}

/// An IPv4 packet with that fragment field.
pub fn ipv4_fragment(protocol: u8, ends: [[u8; 4]; 2], fragment: u16, carried: &[u8]) -> Vec<u8> {
    let mut bytes = vec![0x45, 0];
    bytes.extend((20 + carried.len() as u16).to_be_bytes());
    bytes.extend([0x12, 0x34]);
    bytes.extend(fragment.to_be_bytes());
    bytes.extend([64, protocol, 0, 0]);
    bytes.extend(ends.concat());
    bytes.extend(carried);
    bytes
}

pub fn ipv4(protocol: u8, ends: [[u8; 4]; 2], carried: &[u8]) -> Vec<u8> {
    ipv4_fragment(protocol, ends, 0x4000, carried)
}

/// An IPv6 packet between 2001:db8::last of `ends`.
pub fn ipv6(next: u8, ends: [u8; 2], carried: &[u8]) -> Vec<u8> {
    let mut bytes = vec![0x60, 0, 0, 0];
    bytes.extend((carried.len() as u16).to_be_bytes());
    bytes.extend([next, 60]);
    for last in ends {
        bytes.extend([0x20, 1, 0x0d, 0xb8, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, last]);
    }
    bytes.extend(carried);
    bytes
}

pub fn ethernet(kind: u16, carried: &[u8]) -> Vec<u8> {
    let mut bytes = vec![2, 0, 0, 0, 0, 2, 2, 0, 0, 0, 0, 1];
    bytes.extend(kind.to_be_bytes());
    bytes.extend(carried);
    bytes
}

/// Nanoseconds, what was captured, length on the wire.
pub type Timed = (u64, Vec<u8>, u32);

/// Frames captured whole, one each millisecond.
pub fn timed(frames: Vec<Vec<u8>>) -> Vec<Timed> {
    let at = |n: usize| 1_700_000_000_000_000_000 + n as u64 * 1_000_000;
    let numbered = frames.into_iter().enumerate();
    numbered
        .map(|(n, f)| (at(n), f.clone(), f.len() as u32))
        .collect()
}

/// How a file is written.
#[derive(Clone, Copy, Debug)]
pub struct Form {
    pub big_endian: bool,
    pub nanoseconds: bool,
}

pub const USUAL: Form = Form {
    big_endian: false,
    nanoseconds: true,
};

impl Form {
    pub fn word(self, word: u32) -> [u8; 4] {
        if self.big_endian {
            word.to_be_bytes()
        } else {
            word.to_le_bytes()
        }
    }

    pub fn half(self, half: u16) -> [u8; 2] {
        if self.big_endian {
            half.to_be_bytes()
        } else {
            half.to_le_bytes()
        }
    }

    pub fn pcap(self, link: u32, frames: &[Timed]) -> Vec<u8> {
        let magic = if self.nanoseconds {
            0xa1b2_3c4d
        } else {
            0xa1b2_c3d4
        };
        let unit = if self.nanoseconds { 1 } else { 1000 };
        let mut file = self.word(magic).to_vec();
        file.extend(self.half(2));
        file.extend(self.half(4));
        file.extend([0, 0, 65_535, link].map(|word| self.word(word)).concat());
        for (time, frame, wire) in frames {
            let words = [
                (time / 1_000_000_000) as u32,
                (time % 1_000_000_000 / unit) as u32,
                frame.len() as u32,
                *wire,
            ];
            file.extend(words.map(|word| self.word(word)).concat());
            file.extend(frame);
        }
        file
    }

    pub fn block(self, kind: u32, body: &[u8]) -> Vec<u8> {
        let padded = body.len().next_multiple_of(4);
        let length = self.word(padded as u32 + 12);
        let mut block = [self.word(kind), length].concat();
        block.extend(body);
        block.resize(padded + 8, 0);
        block.extend(length);
        block
    }

    pub fn option(self, code: u16, value: &[u8]) -> Vec<u8> {
        let mut option = [self.half(code), self.half(value.len() as u16)].concat();
        option.extend(value);
        option.resize(option.len().next_multiple_of(4), 0);
        option
    }

    pub fn section(self, options: &[u8]) -> Vec<u8> {
        let mut body = self.word(0x1a2b_3c4d).to_vec();
        body.extend([self.half(1), self.half(0)].concat());
        body.extend([0xff; 8]);
        body.extend(options);
        self.block(0x0a0d_0d0a, &body)
    }

    pub fn interface(self, link: u16, snap: u32, options: &[u8]) -> Vec<u8> {
        let mut body = [self.half(link), self.half(0)].concat();
        body.extend(self.word(snap));
        body.extend(options);
        self.block(1, &body)
    }

    /// An enhanced packet block; the time in the interface's unit.
    pub fn packet(
        self,
        interface: u32,
        units: u64,
        frame: &[u8],
        wire: u32,
        options: &[u8],
    ) -> Vec<u8> {
        let words = [
            interface,
            (units >> 32) as u32,
            units as u32,
            frame.len() as u32,
            wire,
        ];
        let mut body = words.map(|word| self.word(word)).concat();
        body.extend(frame);
        body.resize(body.len().next_multiple_of(4), 0);
        body.extend(options);
        self.block(6, &body)
    }

    pub fn long(self, long: u64) -> [u8; 8] {
        if self.big_endian {
            long.to_be_bytes()
        } else {
            long.to_le_bytes()
        }
    }
}

/// A capture of everything that filters and decoders distinguish.
pub fn menagerie() -> Vec<Vec<u8>> {
    let (a, b, c) = ([10, 0, 0, 1], [10, 0, 0, 2], [192, 168, 7, 9]);
    let web = tcp(40_000, 80, 1000, ACK, b"GET /");
    let tagged = |ids: &[u16], kind: u16, carried: &[u8]| {
        let mut inner = Vec::new();
        for (n, id) in ids.iter().enumerate() {
            let next = if n + 1 == ids.len() { kind } else { 0x8100 };
            inner.extend([id.to_be_bytes(), next.to_be_bytes()].concat());
        }
        inner.extend(carried);
        ethernet(if ids.len() > 1 { 0x88a8 } else { 0x8100 }, &inner)
    };
    let mut arp = vec![0, 1, 8, 0, 6, 4, 0, 1, 2, 0, 0, 0, 0, 1];
    arp.extend(a);
    arp.extend([0; 6]);
    arp.extend(b);
    let mut fragment6 = vec![6, 0, 0, 1, 0, 0, 0, 9];
    fragment6.extend(&web);
    let mut later6 = vec![6, 0, 1, 0x58, 0, 0, 0, 9];
    later6.extend([0xaa; 40]);
    let mut hops = vec![6, 0, 5, 2, 0, 0, 1, 0];
    hops.extend(&web);
    vec![
        ethernet(0x0800, &ipv4(6, [a, b], &tcp(40_000, 80, 999, SYN, b""))),
        ethernet(
            0x0800,
            &ipv4(6, [b, a], &tcp(80, 40_000, 5, SYN | ACK, b"")),
        ),
        ethernet(0x0800, &ipv4(6, [a, b], &web)),
        ethernet(0x0800, &ipv4(6, [c, b], &tcp(53, 8080, 1, RST, b""))),
        ethernet(0x0800, &ipv4(17, [a, c], &udp(5353, 53, b"query"))),
        ethernet(0x0800, &ipv4(132, [a, c], &tcp(80, 81, 0, 0, b""))),
        ethernet(0x0800, &ipv4(1, [a, b], &[8, 0, 0, 0, 0, 1, 0, 1])),
        ethernet(0x0800, &ipv4(2, [a, b], &[0x11; 8])),
        ethernet(0x0800, &ipv4(50, [a, b], &[0x11; 16])),
        ethernet(0x0800, &ipv4_fragment(6, [a, b], 0x2000, &web)),
        ethernet(0x0800, &ipv4_fragment(6, [a, b], 0x00b9, &web)),
        ethernet(0x0806, &arp),
        ethernet(0x8035, &arp),
        ethernet(0x86dd, &ipv6(6, [1, 2], &web)),
        ethernet(0x86dd, &ipv6(17, [2, 1], &udp(9, 80, b"x"))),
        ethernet(0x86dd, &ipv6(58, [1, 2], &[128, 0, 0, 0])),
        ethernet(0x86dd, &ipv6(44, [1, 2], &fragment6)),
        ethernet(0x86dd, &ipv6(44, [1, 2], &later6)),
        ethernet(0x86dd, &ipv6(0, [1, 2], &hops)),
        tagged(&[100], 0x0800, &ipv4(6, [a, b], &web)),
        tagged(&[200], 0x86dd, &ipv6(6, [1, 2], &web)),
        tagged(&[100, 7], 0x0800, &ipv4(6, [a, b], &web)),
        ethernet(0x88cc, &[1, 2, 3, 4]),
        ethernet(46, &[0x42, 0x42, 3, 0, 0, 0, 0, 0]),
        ethernet(0x0800, &ipv4(6, [a, b], &web)[..30]),
        ethernet(0x0800, &[0x45, 0, 0]),
        vec![1, 2, 3],
    ]
}
