// SPDX-License-Identifier: Apache-2.0
//! Times on the line: exact, and without drift.

use proptest::prelude::*;
use slowpath_switch::{Line, Rate, Span, Time};

fn rate(bits: u64) -> Rate {
    Rate::from_bits_per_second(bits).expect("in range")
}

#[test]
fn byte_times_of_usual_rates_are_whole() {
    for (bits, picoseconds) in [
        (10_000_000, 800_000),
        (100_000_000, 80_000),
        (1_000_000_000, 8_000),
        (10_000_000_000, 800),
        (25_000_000_000, 320),
        (40_000_000_000, 200),
        (100_000_000_000, 80),
        (400_000_000_000, 20),
    ] {
        let mut line = Line::new(rate(bits), Span::ZERO);
        for bytes in [1, 64, 1500, 9018] {
            let start = line.free_at();
            assert_eq!(
                line.send(start, bytes) - start,
                Span(u64::from(bytes) * picoseconds)
            );
        }
    }
}

#[test]
fn a_busy_line_keeps_a_packet_waiting_and_a_free_one_does_not() {
    let mut line = Line::new(rate(1_000_000_000), Span::from_micros(5));
    // 1,500 bytes at 1 Gbit/s: 12 us.
    assert_eq!(
        line.send(Time::from_nanos(1_000), 1500),
        Time::from_nanos(13_000)
    );
    assert_eq!(
        line.send(Time::from_nanos(2_000), 1500),
        Time::from_nanos(25_000)
    );
    assert_eq!(
        line.send(Time::from_nanos(30_000), 1500),
        Time::from_nanos(42_000)
    );
    assert_eq!(line.propagation(), Span::from_micros(5));
}

/// The end of `n` packets of `bytes` back to back from 0, by one division.
fn closed_form(bits: u64, bytes: u32, n: u64) -> Time {
    let picobits = u128::from(n) * u128::from(bytes) * 8_000_000_000_000;
    Time((picobits / u128::from(bits)) as u64)
}

fn check_drift(packets: u64) {
    // A prime rate, one whose byte takes 8/3 us, and the largest prime below the limit.
    for (bits, bytes) in [
        (999_999_937, 1500),
        (3_000_000, 40),
        (99_999_999_999_973, 1499),
    ] {
        let mut line = Line::new(rate(bits), Span::ZERO);
        // 213 days are over sooner at 3 Mbit/s.
        let packets = packets.min(u64::MAX / (8_000_000_000_000 / bits + 1) / u64::from(bytes));
        for n in 1..=packets {
            let finish = line.send(Time::ZERO, bytes);
            if n % 65_536 == 0 || n == packets {
                assert_eq!(
                    finish,
                    closed_form(bits, bytes, n),
                    "{n} packets at {bits} bit/s"
                );
            }
        }
    }
}

#[test]
fn no_drift_over_a_million_packets() {
    check_drift(1_000_000);
}

#[test]
#[ignore = "soak: 3 x 10^9 packets"]
fn no_drift_over_a_thousand_million_packets() {
    check_drift(1_000_000_000);
}

proptest! {
    #![proptest_config(ProptestConfig { failure_persistence: None, ..ProptestConfig::with_cases(500) })]

    /// However a line got where it is: one more packet of a sequence back to back ends
    /// where the closed form of the whole sequence says. By induction that holds for any
    /// number of packets.
    #[test]
    fn a_sequence_ends_where_its_sum_says(
        bits in 1_000u64..=100_000_000_000_000,
        start in 0u64..1 << 50,
        lengths in proptest::collection::vec(0u32..70_000, 1..60),
    ) {
        let mut line = Line::new(rate(bits), Span::ZERO);
        let mut sum = 0u128;
        for bytes in lengths {
            let finish = line.send(Time(start), bytes);
            sum += u128::from(bytes) * 8_000_000_000_000;
            let exact = u128::from(start) + sum / u128::from(bits);
            prop_assert_eq!(u128::from(finish.0), exact.min(u128::from(u64::MAX)));
            if exact > u128::from(u64::MAX) {
                break;
            }
        }
    }

    /// A pause begins a new sequence: nothing is carried over it.
    #[test]
    fn a_pause_forgets_the_remainder(
        bits in 1_000_000u64..=1_000_000_000_000,
        bytes in 1u32..10_000,
        pause in 1u64..1_000_000,
    ) {
        let mut line = Line::new(rate(bits), Span::ZERO);
        let first = line.send(Time(0), bytes);
        let second = line.send(Time(first.0 + pause), bytes);
        prop_assert_eq!(second.0 - first.0 - pause, first.0);
    }
}

#[test]
fn rates_outside_the_bounds_do_not_exist() {
    assert_eq!(Rate::from_bits_per_second(0), None);
    assert_eq!(Rate::from_bits_per_second(999), None);
    assert_eq!(Rate::from_bits_per_second(100_000_000_000_001), None);
    assert_eq!(Rate::from_bits_per_second(1_000), Some(Rate::MIN));
}

#[test]
fn nothing_overflows_at_the_end_of_time() {
    let mut line = Line::new(Rate::MIN, Span(u64::MAX));
    assert_eq!(line.send(Time::MAX, u32::MAX), Time::MAX);
    assert_eq!(line.send(Time::ZERO, u32::MAX), Time::MAX);
}
