// SPDX-License-Identifier: Apache-2.0
//! One queue against queueing theory: D/D/1 exactly, M/D/1 by Pollaczek and Khinchine.

use slowpath_switch::{
    Departure, Header, Limit, Outcome, PortConfig, PortId, PortKind, Random, Rate, Span, Switch,
    SwitchConfig, Time,
};

const PORT: PortId = PortId(0);
/// 1,250 bytes at 1 Gbit/s: 10 us.
const SERVICE: u64 = 10_000_000;
const PROPAGATION: u64 = 3_000_000;

fn switch(limit: Limit) -> Switch<Header> {
    let port = PortConfig {
        kind: PortKind::Host,
        rate: Rate::from_bits_per_second(1_000_000_000).expect("in range"),
        propagation: Span(PROPAGATION),
        limit,
        marking: None,
    };
    Switch::new(&SwitchConfig::new(vec![port], 1, 0)).expect("possible")
}

fn packet(handle: u64) -> Header {
    Header {
        handle,
        bytes: 1250,
        ttl: 64,
        ..Header::default()
    }
}

/// Sends packets at those moments and serves them; the departures in order, and which
/// packets were dropped.
fn serve(
    switch: &mut Switch<Header>,
    arrivals: impl IntoIterator<Item = u64>,
) -> (Vec<Departure<Header>>, Vec<u64>) {
    let mut left = Vec::new();
    let mut dropped = Vec::new();
    for (number, at) in arrivals.into_iter().enumerate() {
        let at = Time(at);
        while switch.due(PORT).is_some_and(|due| due <= at) {
            left.extend(switch.transmit(at, PORT, &mut ()));
        }
        match switch.send(at, PORT, packet(number as u64), &mut ()) {
            Outcome::Queued(queued) if queued.start == Some(at) => {
                left.extend(switch.transmit(at, PORT, &mut ()));
            }
            Outcome::Queued(_) => {}
            Outcome::Dropped { packet, .. } => dropped.push(packet.handle),
        }
    }
    while let Some(due) = switch.due(PORT) {
        left.extend(switch.transmit(due, PORT, &mut ()));
    }
    (left, dropped)
}

#[test]
fn with_time_to_spare_no_packet_waits() {
    let arrivals = |n: u64| n * (SERVICE + 1);
    let (left, dropped) = serve(&mut switch(Limit::packets(1)), (0..1000).map(arrivals));
    assert!(dropped.is_empty());
    for (n, departure) in (0..).zip(&left) {
        assert_eq!(departure.start, Time(arrivals(n)));
        assert_eq!(departure.finish, Time(arrivals(n) + SERVICE));
        assert_eq!(departure.arrival, Time(arrivals(n) + SERVICE + PROPAGATION));
    }
}

/// D/D/1 at twice the rate it serves: the n-th packet waits n halves of a service time.
#[test]
fn an_overload_waits_in_proportion() {
    let (left, _) = serve(&mut switch(Limit::NONE), (0..1000).map(|n| n * SERVICE / 2));
    assert_eq!(left.len(), 1000);
    for (n, departure) in (0..).zip(&left) {
        assert_eq!(departure.packet.handle, n);
        assert_eq!(departure.start, Time(n * SERVICE));
    }
}

/// A burst of n into a buffer of k: one goes onto the line, k wait, the rest is lost.
#[test]
fn a_burst_leaves_what_the_buffer_holds() {
    let (left, dropped) = serve(&mut switch(Limit::packets(100)), (0..300).map(|_| 0));
    assert_eq!(left.len(), 101);
    assert_eq!(dropped, (101..300).collect::<Vec<u64>>());
    assert_eq!(left[100].finish, Time(101 * SERVICE));
    // 100 packets of 1,250 bytes are 125,000 bytes: one byte less holds 99.
    let (left, _) = serve(&mut switch(Limit::bytes(124_999)), (0..300).map(|_| 0));
    assert_eq!(left.len(), 100);
}

/// A uniform number in (0, 1].
fn uniform(random: &mut Random) -> f64 {
    ((random.next_u64() >> 11) + 1) as f64 / (1u64 << 53) as f64
}

/// The mean wait of M/D/1 is rho * s / (2 * (1 - rho)) (Pollaczek and Khinchine), the mean
/// queue by Little's law that times the arrival rate. Measured in batches far longer than
/// the queue remembers, so their means are independent; 99.9 % of such measurements lie
/// within 3.66 standard errors (Student's t, 29 degrees of freedom, two-sided).
#[test]
fn poisson_arrivals_wait_as_pollaczek_and_khinchine_say() {
    for (rho, seed) in [(0.3, 1), (0.6, 2), (0.8, 3)] {
        const BATCHES: usize = 30;
        const BATCH: usize = 10_000;
        let mut random = Random::new(seed);
        let mut at = 0.0;
        let arrivals: Vec<u64> = (0..BATCHES * BATCH)
            .map(|_| {
                at -= uniform(&mut random).ln() * SERVICE as f64 / rho;
                at as u64
            })
            .collect();
        let (left, _) = serve(&mut switch(Limit::NONE), arrivals.iter().copied());
        assert_eq!(left.len(), arrivals.len());
        let waits: Vec<f64> = left
            .iter()
            .zip(&arrivals)
            .map(|(departure, arrival)| (departure.start.0 - arrival) as f64)
            .collect();
        let means: Vec<f64> = waits
            .chunks(BATCH)
            .map(|batch| batch.iter().sum::<f64>() / BATCH as f64)
            .collect();
        let mean = means.iter().sum::<f64>() / BATCHES as f64;
        let squares: f64 = means.iter().map(|m| (m - mean).powi(2)).sum();
        let error = (squares / (BATCHES - 1) as f64 / BATCHES as f64).sqrt();
        let expected = rho * SERVICE as f64 / (2.0 * (1.0 - rho));
        assert!(
            (mean - expected).abs() < 3.66 * error,
            "rho {rho}: waited {mean}, expected {expected} +- {error}"
        );
        // Otherwise the bound above says nothing.
        assert!(
            error < 0.05 * expected,
            "rho {rho}: error {error} of {expected}"
        );
    }
}
