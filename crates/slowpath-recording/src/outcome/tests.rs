// SPDX-License-Identifier: Apache-2.0
//! Each decision keeps its numbers, and a bad number has a reason.

use super::*;

/// Numbers of each decision that mean something, and of each that has such some that mean nothing. After enum slowpath_decision, LAB_READER and
/// LAB_LISTENER in lab/kernel.
#[test]
fn numbers_are_those_of_the_kernel() {
    let most = u32::MAX;
    for (number, decision) in (0..).zip(Decision::ALL) {
        assert_eq!(decision.number(), number);
        for first in [
            0,
            1,
            2,
            3,
            4,
            39,
            40,
            0x0600_0005,
            0x0700_0000,
            LISTENER,
            most,
        ] {
            for second in [0, 1, 2, 0x1234_5678, most] {
                let means = match number {
                    0..=3 | 5 => second < 2,
                    7 => first >> 24 <= 6,
                    9 | 15 => first < 2,
                    13 => first == 0,
                    14 => first < 40,
                    16 => first < 4,
                    _ => true,
                };
                let outcome = Outcome::from_numbers(decision, first, second);
                assert_eq!(outcome.is_some(), means, "{decision:?} {first} {second}");
                if let Some(outcome) = outcome {
                    assert_eq!(outcome.decision(), decision);
                    assert_eq!(outcome.numbers(), [first, second]);
                }
            }
        }
    }
}

#[test]
fn fields_have_their_meaning() {
    let reader = Outcome::Ticks {
        at: TicksAt::Reader {
            reader: Reader::Cubic,
            sent: 3,
        },
        ticks: 1,
    };
    assert_eq!(reader.numbers(), [0x0400_0003, 1]);
    let page = Outcome::Fragment(Fragment::TaskPage {
        filled: 0x10,
        size: 0x8000,
    });
    assert_eq!(page.numbers(), [0, 0x8000_0010]);
    let refused = Outcome::Refused(Refused::Device {
        sent: 2,
        result: -105,
    });
    assert_eq!(refused.numbers(), [2, -105_i32 as u32]);
    let stretch = Stretch::new(1448, 3).unwrap();
    let joined = Outcome::Joined { packet: 1, stretch };
    assert_eq!(joined.numbers(), [1, 3 << 20 | 1448]);
    assert_eq!(Stretch::new(1 << 20, 0), None);
    assert_eq!(Stretch::new(0, 1 << 12), None);
}

#[test]
fn the_order_is_that_of_the_numbers() {
    let mut all = Vec::new();
    for decision in Decision::ALL {
        for first in [0, 1, 2, LISTENER] {
            for second in [0, 1, most()] {
                all.extend(Outcome::from_numbers(decision, first, second));
            }
        }
    }
    assert!(all.is_sorted());
    fn most() -> u32 {
        u32::MAX
    }
}
