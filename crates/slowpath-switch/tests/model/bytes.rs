// SPDX-License-Identifier: Apache-2.0
//! What bytes describe: a configuration, routes and packets.

use slowpath_switch::{
    Alpha, Detour, Header, Limit, PortConfig, PortId, PortKind, Rate, Shared, Span, SwitchConfig,
    Threshold,
};

/// Numbers out of bytes; zeros when they are used up.
pub struct Bytes<'a>(pub &'a [u8]);

impl Bytes<'_> {
    pub fn next(&mut self) -> u8 {
        let Some((first, rest)) = self.0.split_first() else {
            return 0;
        };
        self.0 = rest;
        *first
    }

    pub fn below(&mut self, bound: u64) -> u64 {
        let wide = u64::from(self.next()) << 8 | u64::from(self.next());
        (wide * bound) >> 16
    }

    fn flag(&mut self) -> bool {
        self.next() & 1 == 1
    }
}

const RATES: [u64; 6] = [
    1_000_000_000,
    10_000_000_000,
    100_000_000_000,
    7_000_000,
    3_000_000_007,
    99_999_999_999_989,
];

fn limit(bytes: &mut Bytes<'_>, packets: u64, length: u64) -> Limit {
    let kind = bytes.next();
    Limit {
        packets: (kind & 1 == 0).then(|| 1 + bytes.below(packets) as u32),
        bytes: (kind & 2 == 0).then(|| 1 + bytes.below(length)),
    }
}

fn port(bytes: &mut Bytes<'_>) -> PortConfig {
    let rate = RATES[bytes.below(RATES.len() as u64) as usize];
    PortConfig {
        kind: if bytes.flag() {
            PortKind::Switch
        } else {
            PortKind::Host
        },
        rate: Rate::from_bits_per_second(rate).expect("in range"),
        propagation: Span(bytes.below(3_000_000)),
        limit: limit(bytes, 12, 12_000),
        marking: match bytes.next() % 3 {
            0 => None,
            1 => Some(Threshold::Packets(bytes.below(8) as u32)),
            _ => Some(Threshold::Bytes(bytes.below(8_000))),
        },
    }
}

pub fn config(bytes: &mut Bytes<'_>) -> SwitchConfig {
    let count = 1 + bytes.below(6);
    let mut config = SwitchConfig::new((0..count).map(|_| port(bytes)).collect(), 0, 0);
    config.classes = 1 + bytes.below(3) as u8;
    config.shared = bytes.flag().then(|| Shared {
        total: match limit(bytes, 30, 30_000) {
            Limit::NONE => Limit::packets(20),
            limit => limit,
        },
        alpha: Alpha::new(1 + bytes.below(4) as u32, 1 + bytes.below(4) as u32).expect("not 0"),
    });
    config.detour = bytes.flag().then(|| Detour {
        arrival_port: bytes.flag(),
        mark: bytes.flag(),
    });
    config.decrement_ttl = !bytes.next().is_multiple_of(4);
    config.count_flows = bytes.flag();
    config.seed = u64::from(bytes.next());
    config.number = u32::from(bytes.next());
    config
}

/// Ports for each of 8 destinations.
pub fn routes(bytes: &mut Bytes<'_>, ports: usize) -> Vec<Vec<PortId>> {
    (0..8)
        .map(|_| {
            let mask = bytes.next();
            let all = (0..ports as u16).filter(|port| mask >> port & 1 == 1);
            all.map(PortId).collect()
        })
        .collect()
}

pub fn packet(bytes: &mut Bytes<'_>, handle: u64) -> Header {
    Header {
        handle,
        flow: u64::from(bytes.next() % 32),
        bytes: 1 + bytes.below(2_000) as u32,
        destination: u32::from(bytes.next() % 9),
        class: bytes.next() % 5,
        ttl: bytes.next(),
        ecn: bytes.next() % 4,
        tag: 7,
    }
}
