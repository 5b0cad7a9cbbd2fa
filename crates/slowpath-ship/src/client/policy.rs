// SPDX-License-Identifier: Apache-2.0
//! What to do with each answer to a batch: pure, see the table in `docs/decisions/0044-fleet.md`.

use super::Failure;
use crate::answers::{Flushed, RefusalKind};
use crate::batch::Prefix;
use std::time::Duration;

/// The next step after an answer.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Step {
    /// It is flushed: up to here, with that running CRC.
    Settle(u64, Prefix),
    /// The server stands elsewhere: there, with that running CRC.
    Rewind(u64, Prefix),
    /// The server cannot read these items, for the third time: they become a gap.
    Refuse,
    /// The server is too old for the segment.
    HoldNewer,
    /// The batch is too long: smaller ones at once.
    Halve,
    /// Nothing is to be sent for so long.
    Wait(Duration),
    /// Nothing is to be sent for so long, unless the identity changes: the server refuses this
    /// client as such.
    Stop(RefusalKind, Duration),
}

/// The cap of waits without an answer, and what the first is drawn from. With the connection's
/// own timeouts all clients are back within 30 s of a server's restart.
const LONGEST_WAIT: Duration = Duration::from_secs(20);
const FIRST_WAIT: Duration = Duration::from_secs(1);
/// The longest `Retry-After` that is followed.
const LONGEST_RETRY_AFTER: Duration = Duration::from_secs(3600);
/// How long a client that is refused as such waits, times 0.5 to 1.5.
const STOP: Duration = Duration::from_secs(600);
/// So often the same bytes are sent before they become a gap.
const MOST_MALFORMED: u32 = 3;
/// The size of batches, bytes of items, and the smallest one that halving leads to: the longest
/// record fits into it.
const LARGEST: usize = 1 << 20;
const SMALLEST: usize = 128 << 10;
/// Batches that are flushed before the size is doubled again.
const FLUSHED_BEFORE_GROWTH: u32 = 100;

/// What is remembered between answers.
#[derive(Clone, Debug)]
pub struct Policy {
    failures: u32,
    /// The items that were malformed last, by length and CRC, and how often.
    malformed: Option<((u32, u32), u32)>,
    most: usize,
    flushed: u32,
}

impl Default for Policy {
    fn default() -> Self {
        Policy {
            failures: 0,
            malformed: None,
            most: LARGEST,
            flushed: 0,
        }
    }
}

impl Policy {
    /// The most bytes of items that a batch should have.
    pub fn most_bytes(&self) -> usize {
        self.most
    }

    /// Reacts to the answer to a batch of items with this length and CRC; `draw` is random in
    /// [0, 1).
    pub fn react(
        &mut self,
        answer: &Result<Flushed, Failure>,
        items: (u32, u32),
        draw: f64,
    ) -> Step {
        let (status, refusal, retry_after) = match answer {
            Ok(flushed) => {
                self.succeed();
                return Step::Settle(flushed.offset, flushed.crc);
            }
            Err(Failure::NoAnswer(_)) => return Step::Wait(self.back_off(draw)),
            Err(Failure::Refused {
                status,
                refusal,
                retry_after,
            }) => (*status, refusal, *retry_after),
        };
        match refusal.error {
            RefusalKind::Behind | RefusalKind::OtherBytes => {
                self.failures = 0;
                match (refusal.offset, refusal.crc) {
                    (Some(offset), Some(crc)) => Step::Rewind(offset, crc),
                    _ => Step::Wait(self.back_off(draw)),
                }
            }
            RefusalKind::Malformed => self.malformed(items, draw),
            RefusalKind::TooLarge if self.most > SMALLEST => {
                self.most = (self.most / 2).max(SMALLEST);
                self.flushed = 0;
                Step::Halve
            }
            RefusalKind::TooLarge | RefusalKind::MediaType => self.malformed(items, draw),
            RefusalKind::Newer => Step::HoldNewer,
            RefusalKind::Certificate
            | RefusalKind::Revoked
            | RefusalKind::Expired
            | RefusalKind::Name
            | RefusalKind::Token
            | RefusalKind::Used
            | RefusalKind::TokenExpired
            | RefusalKind::Clone => Step::Stop(refusal.error, STOP.mul_f64(0.5 + draw)),
            RefusalKind::Busy | RefusalKind::Full | RefusalKind::Unknown => {
                let stated = retry_after.filter(|_| matches!(status, 429 | 503 | 507));
                Step::Wait(match stated {
                    Some(stated) => stated.min(LONGEST_RETRY_AFTER).mul_f64(1.0 + draw),
                    None => self.back_off(draw),
                })
            }
        }
    }

    /// After a failure of another request: how long to wait.
    pub fn back_off(&mut self, draw: f64) -> Duration {
        let most = FIRST_WAIT.saturating_mul(1 << self.failures.min(16));
        self.failures += 1;
        most.min(LONGEST_WAIT).mul_f64(draw)
    }

    fn succeed(&mut self) {
        self.failures = 0;
        self.malformed = None;
        self.flushed += 1;
        if self.flushed >= FLUSHED_BEFORE_GROWTH {
            self.flushed = 0;
            self.most = (self.most * 2).min(LARGEST);
        }
    }

    fn malformed(&mut self, items: (u32, u32), draw: f64) -> Step {
        let times = match self.malformed {
            Some((same, times)) if same == items => times + 1,
            _ => 1,
        };
        if times >= MOST_MALFORMED {
            self.malformed = None;
            self.failures = 0;
            return Step::Refuse;
        }
        self.malformed = Some((items, times));
        Step::Wait(self.back_off(draw))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::answers::{Refusal, ServerState};
    use proptest::prelude::*;

    const ITEMS: (u32, u32) = (100, 7);

    fn refused(error: RefusalKind, retry_after: Option<u64>) -> Result<Flushed, Failure> {
        Err(Failure::Refused {
            status: error.status(),
            refusal: Box::new(Refusal::new(error, "for a reason")),
            retry_after: retry_after.map(Duration::from_secs),
        })
    }

    fn flushed() -> Result<Flushed, Failure> {
        Ok(Flushed {
            offset: 9,
            crc: Prefix(1),
            received_us: 0,
            sent_us: 0,
            state: ServerState::default(),
        })
    }

    #[test]
    fn a_third_malformed_answer_to_the_same_bytes_makes_them_a_gap() {
        let mut policy = Policy::default();
        let malformed = refused(RefusalKind::Malformed, None);
        for items in [ITEMS, (100, 8), ITEMS, ITEMS] {
            assert!(matches!(
                policy.react(&malformed, items, 0.5),
                Step::Wait(_)
            ));
        }
        assert_eq!(policy.react(&malformed, ITEMS, 0.5), Step::Refuse);
        assert!(matches!(
            policy.react(&malformed, ITEMS, 0.5),
            Step::Wait(_)
        ));
    }

    #[test]
    fn a_batch_that_is_too_large_is_halved_down_to_the_longest_record() {
        let mut policy = Policy::default();
        let mut sizes = Vec::new();
        while policy.react(&refused(RefusalKind::TooLarge, None), ITEMS, 0.5) == Step::Halve {
            sizes.push(policy.most_bytes());
        }
        assert_eq!(sizes, [512 << 10, 256 << 10, 128 << 10]);
        const { assert!(SMALLEST > slowpath_store::spool::MAX_RECORD + 64) };
        for _ in 0..300 {
            assert_eq!(
                policy.react(&flushed(), ITEMS, 0.5),
                Step::Settle(9, Prefix(1))
            );
        }
        assert_eq!(policy.most_bytes(), LARGEST);
    }

    #[test]
    fn a_stated_wait_is_followed_and_drawn() {
        let mut policy = Policy::default();
        for (error, draw, waits) in [
            (RefusalKind::Busy, 0.0, 10),
            (RefusalKind::Busy, 0.5, 15),
            (RefusalKind::Full, 0.9, 19),
        ] {
            let wait = Duration::from_secs(waits);
            assert_eq!(
                policy.react(&refused(error, Some(10)), ITEMS, draw),
                Step::Wait(wait)
            );
        }
        let hours = refused(RefusalKind::Busy, Some(1 << 40));
        assert_eq!(
            policy.react(&hours, ITEMS, 0.0),
            Step::Wait(LONGEST_RETRY_AFTER)
        );
    }

    #[test]
    fn a_client_that_is_refused_as_such_stops() {
        let mut policy = Policy::default();
        for error in [
            RefusalKind::Certificate,
            RefusalKind::Revoked,
            RefusalKind::Expired,
            RefusalKind::Name,
            RefusalKind::Clone,
        ] {
            let step = policy.react(&refused(error, None), ITEMS, 0.5);
            assert_eq!(step, Step::Stop(error, STOP));
        }
    }

    #[test]
    fn where_the_server_stands_is_gone_back_to() {
        let mut policy = Policy::default();
        for error in [RefusalKind::Behind, RefusalKind::OtherBytes] {
            let mut refusal = Refusal::new(error, "");
            (refusal.offset, refusal.crc) = (Some(3), Some(Prefix(4)));
            let answer = Err(Failure::Refused {
                status: 409,
                refusal: Box::new(refusal),
                retry_after: None,
            });
            assert_eq!(
                policy.react(&answer, ITEMS, 0.5),
                Step::Rewind(3, Prefix(4))
            );
        }
        let newer = refused(RefusalKind::Newer, None);
        assert_eq!(policy.react(&newer, ITEMS, 0.5), Step::HoldNewer);
    }

    proptest! {
        /// 20 s of waiting, 10 s of connecting: all are back within 30 s.
        #[test]
        fn without_an_answer_every_wait_is_drawn_from_its_start(
            draws in prop::collection::vec(0.0f64..1.0, 1..60),
        ) {
            let mut policy = Policy::default();
            let none = Err(Failure::NoAnswer("connection refused".to_owned()));
            for (n, draw) in draws.into_iter().enumerate() {
                let most = (1u64 << n.min(10)).min(20);
                let Step::Wait(wait) = policy.react(&none, ITEMS, draw) else { panic!() };
                let drawn = Duration::from_secs(most).mul_f64(draw);
                prop_assert!(wait.abs_diff(drawn) < Duration::from_millis(1));
            }
        }
    }
}
