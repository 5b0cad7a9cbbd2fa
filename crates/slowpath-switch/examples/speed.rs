// SPDX-License-Identifier: Apache-2.0
//! What one packet costs a switch: route, enqueue and dequeue, in nanoseconds.
//!
//!   cargo run --release -p slowpath-switch --example speed

use slowpath_switch::{
    Alpha, Depth, Destination, Detour, Header, Limit, Observer, Passed, PortConfig, PortId,
    PortKind, Random, Rate, Shared, Span, Switch, SwitchConfig, Threshold, Time,
};
use std::hint::black_box;
use std::time::Instant;

const PORTS: u16 = 16;
const PACKETS: u64 = 20_000_000;

fn config(number: u32) -> SwitchConfig {
    let port = PortConfig {
        kind: PortKind::Switch,
        rate: Rate::from_bits_per_second(10_000_000_000).expect("in range"),
        propagation: Span::from_micros(1),
        limit: Limit::packets(100),
        marking: Some(Threshold::Packets(65)),
    };
    SwitchConfig::new(vec![port; usize::from(PORTS)], 1, number)
}

fn build(config: &SwitchConfig) -> Switch<Header> {
    let mut switch = Switch::new(config).expect("possible");
    // Half the destinations have one way, half have eight.
    for destination in 0..1024 {
        let ports: Vec<PortId> = if destination < 512 {
            vec![PortId((destination % 8) as u16)]
        } else {
            (8..16).map(PortId).collect()
        };
        switch
            .set_route(Destination(destination), &ports)
            .expect("possible");
    }
    switch
}

/// Counts the events it receives.
#[derive(Default)]
struct Count {
    enqueued: u64,
    deepest: u32,
}

impl Observer<Header> for Count {
    fn enqueued(&mut self, _: Time, _: PortId, _: &Header, depth: Depth) {
        self.enqueued += 1;
        self.deepest = self.deepest.max(depth.packets);
    }
}

/// A packet every `gap` picoseconds to a destination at random; its port is served up to
/// that moment first.
fn run(name: &str, switches: &mut [Switch<Header>], gap: u64, mut observer: impl Observer<Header>) {
    let mut random = Random::new(7);
    let mut now = 0;
    let (mut left, mut dropped, mut checksum) = (0u64, 0u64, 0u64);
    let start = Instant::now();
    for number in 0..PACKETS {
        now += gap;
        let bits = random.next_u64();
        let switch = &mut switches[((bits >> 40) as usize) % switches.len()];
        let packet = Header {
            handle: number,
            flow: bits >> 20,
            bytes: 1500,
            destination: (bits % 1024) as u32,
            ttl: 64,
            ecn: 2,
            ..Header::default()
        };
        let port = switch.next_port(Destination(packet.destination), packet.flow);
        let port = port.expect("every destination has a route");
        while let Some(departure) = switch.transmit(Time(now), port, &mut observer) {
            left += 1;
            checksum ^= departure.arrival.0;
        }
        match switch.pass(Time(now), PortId(0), packet, &mut observer) {
            Passed::Left { departure, .. } => {
                checksum ^= departure.arrival.0;
                left += 1;
            }
            Passed::Queued(_) => {}
            Passed::Dropped { .. } => dropped += 1,
        }
    }
    let elapsed = start.elapsed();
    black_box(checksum);
    println!(
        "{name:<44} {:>6.1} ns a packet   left {:>5.1} %  dropped {:>4.1} %",
        elapsed.as_nanos() as f64 / PACKETS as f64,
        left as f64 * 100.0 / PACKETS as f64,
        dropped as f64 * 100.0 / PACKETS as f64,
    );
}

fn main() {
    // One packet takes 1.2 us at 10 Gbit/s, 16 ports make one each 75 ns.
    let light = 250_000;
    let heavy = 60_000;
    run("one switch, 30 % load", &mut [build(&config(0))], light, ());
    run("one switch, overload", &mut [build(&config(0))], heavy, ());
    run(
        "one switch, 30 % load, counting observer",
        &mut [build(&config(0))],
        light,
        Count::default(),
    );
    let mut shared = config(0);
    shared.shared = Some(Shared {
        total: Limit::bytes(2_000_000),
        alpha: Alpha::ONE,
    });
    run("shared memory, overload", &mut [build(&shared)], heavy, ());
    let mut detour = config(0);
    detour.detour = Some(Detour::default());
    run("detours, overload", &mut [build(&detour)], heavy, ());
    let mut flows = config(0);
    flows.count_flows = true;
    run("counting flows, overload", &mut [build(&flows)], heavy, ());
    let mut many: Vec<_> = (0..320).map(|number| build(&config(number))).collect();
    run(
        "320 switches at random, 30 % load",
        &mut many,
        light / 320,
        (),
    );
}
