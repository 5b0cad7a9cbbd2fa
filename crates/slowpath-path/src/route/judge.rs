// SPDX-License-Identifier: Apache-2.0
//! What unanswered probes mean: a hop's own limit on ICMP messages, or loss on the way.
//!
//! A probe that expires at a hop crosses the same links as one that goes further, so what the way loses it loses for
//! both: a hop cannot lose more than what lies behind it.
//!
//! 1. A hop that answers nothing is *silent*, whatever lies behind it.
//! 2. A hop that answers a part, and clearly less than some later hop or the destination, is *limited by ICMP*
//!    (RFC 1812 section 4.3.2.8, RFC 4443 section 2.4 (f)). Clearly: Fisher's exact test, 1 %.
//! 3. Loss is what the destination's echo replies lack. It begins behind the last router, not limited, that answers
//!    clearly more than the destination: so that as few unanswered probes as it has, or fewer, would come in less than
//!    1 of 100 traces if it lost as much.

use super::result::{HopKind, Loss};

/// How improbable chance has to be.
const CLEAR: f64 = 0.01;

/// Probes and answers of a hop, or of the destination.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Count {
    /// Probes.
    pub sent: u32,
    /// Answers.
    pub answered: u32,
}

impl Count {
    fn lost(self) -> u32 {
        self.sent.saturating_sub(self.answered)
    }

    /// Whether it answers a clearly smaller share than the other.
    fn clearly_less_than(self, other: Count) -> bool {
        if self.lost() == 0 || other.sent == 0 {
            return false;
        }
        let shares = u64::from(self.answered) * u64::from(other.sent)
            < u64::from(other.answered) * u64::from(self.sent);
        shares && as_many_lost_by_chance(self, other) < CLEAR
    }
}

/// Natural logarithms of factorials up to n.
fn log_factorials(n: u32) -> Vec<f64> {
    let mut logs = vec![0.0; n as usize + 1];
    for i in 1..logs.len() {
        logs[i] = logs[i - 1] + (i as f64).ln();
    }
    logs
}

/// Fisher's exact test, one-sided: how probable it is that as many or more of all losses fall to the first, if both
/// lose alike.
#[must_use]
pub fn as_many_lost_by_chance(first: Count, second: Count) -> f64 {
    let (sent, lost) = (first.sent + second.sent, first.lost() + second.lost());
    let log = log_factorials(sent);
    let choose = |n: u32, k: u32| log[n as usize] - log[k as usize] - log[(n - k) as usize];
    let most = lost.min(first.sent);
    let terms = (first.lost()..=most).filter(|k| lost - k <= second.sent);
    let each = terms.map(|k| {
        let ways = choose(first.sent, k) + choose(second.sent, lost - k);
        (ways - choose(sent, lost)).exp()
    });
    each.sum::<f64>().min(1.0)
}

/// What each hop is: `counts` by distance from 1 on; `destination`: whether it answered there; `echo`: what it
/// answered of echo requests.
#[must_use]
pub fn kinds(counts: &[Count], destination: &[bool], echo: Option<Count>) -> Vec<HopKind> {
    let echo = echo.filter(|echo| echo.answered > 0);
    let kind = |(index, count): (usize, &Count)| {
        if destination.get(index) == Some(&true) {
            return HopKind::Destination;
        }
        if count.answered == 0 {
            return HopKind::Silent;
        }
        let mut later = counts[index + 1..].iter().copied().chain(echo);
        match later.any(|later| later.answered > 0 && count.clearly_less_than(later)) {
            true => HopKind::IcmpLimited,
            false => HopKind::Router,
        }
    };
    counts.iter().enumerate().map(kind).collect()
}

/// The loss that carries on to the destination.
#[must_use]
pub fn loss(counts: &[Count], kinds: &[HopKind], echo: Count) -> Option<Loss> {
    if echo.answered == 0 {
        return None;
    }
    let lost = echo.lost();
    let share = f64::from(lost) / f64::from(echo.sent);
    let clean = |(count, kind): (&Count, &HopKind)| {
        *kind == HopKind::Router && as_few_lost_by_chance(*count, share) < CLEAR
    };
    let mut hops = counts.iter().zip(kinds);
    let routers = kinds.contains(&HopKind::Router);
    let from_hop = match (lost, routers) {
        (0, _) | (_, false) => None,
        // No router is clearly better: it begins at the first, unless that one was asked too rarely to say so.
        _ => match hops.rposition(clean) {
            Some(last) => u8::try_from(last + 2).ok(),
            None => loses_as_much(counts, kinds, share).then_some(1),
        },
    };
    Some(Loss {
        sent: echo.sent,
        lost,
        from_hop,
    })
}

/// How many probes a hop needs to be distinguished from one that loses such a share: were it to lose as much, all would be
/// answered in less than 1 of 100 traces.
#[must_use]
pub fn probes_to_distinguish(share: f64) -> u32 {
    let share = share.clamp(0.001, 0.999);
    (CLEAR.ln() / (1.0 - share).ln()).ceil() as u32 + 1
}

/// The binomial tail: as few losses as these or fewer, if each probe is lost with such a probability.
fn as_few_lost_by_chance(count: Count, share: f64) -> f64 {
    if share <= 0.0 || share >= 1.0 {
        return 1.0;
    }
    let log = log_factorials(count.sent);
    let term = |k: u32| {
        let choose = log[count.sent as usize] - log[k as usize] - log[(count.sent - k) as usize];
        (choose + f64::from(k) * share.ln() + f64::from(count.sent - k) * (1.0 - share).ln()).exp()
    };
    (0..=count.lost()).map(term).sum::<f64>().min(1.0)
}

/// Whether the first router was asked often enough, and lacks answers.
fn loses_as_much(counts: &[Count], kinds: &[HopKind], share: f64) -> bool {
    let first = counts.iter().zip(kinds);
    let first = first
        .filter(|(_, kind)| **kind == HopKind::Router)
        .map(|(count, _)| *count);
    first
        .take(1)
        .any(|count| count.sent >= probes_to_distinguish(share) && count.lost() > 0)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn count(sent: u32, answered: u32) -> Count {
        Count { sent, answered }
    }

    #[test]
    fn fishers_test_is_what_counting_says() {
        // 3 of 4 lost against 0 of 4: of the C(8,3) = 56 places of three losses 4 lie within the first four.
        let chance = as_many_lost_by_chance(count(4, 1), count(4, 4));
        assert!((chance - 4.0 / 56.0).abs() < 1e-12, "{chance}");
        // 5 of 5 against 0 of 5: 1 of C(10,5) = 252.
        let chance = as_many_lost_by_chance(count(5, 0), count(5, 5));
        assert!((chance - 1.0 / 252.0).abs() < 1e-12, "{chance}");
    }

    #[test]
    fn a_hop_that_answers_less_than_later_ones_limits_its_messages() {
        let counts = [count(40, 40), count(40, 0), count(40, 12), count(40, 40)];
        let kinds = kinds(&counts, &[], Some(count(100, 100)));
        use HopKind::{IcmpLimited, Router, Silent};
        assert_eq!(kinds, [Router, Silent, IcmpLimited, Router]);
        let loss = loss(&counts, &kinds, count(100, 100)).expect("measured");
        assert_eq!((loss.lost, loss.from_hop), (0, None));
    }

    #[test]
    fn the_hop_before_the_destination_is_judged_by_its_echo_replies() {
        let counts = [count(40, 40), count(40, 12)];
        assert_eq!(
            kinds(&counts, &[], Some(count(100, 100)))[1],
            HopKind::IcmpLimited
        );
        assert_eq!(
            kinds(&counts, &[], None)[1],
            HopKind::Router,
            "nothing to compare with"
        );
    }

    #[test]
    fn loss_that_carries_on_begins_behind_the_last_hop_without_it() {
        // 10 % from hop 3 on: 100 probes all answered have 0.9^100 = 3e-5.
        let counts = [
            count(100, 100),
            count(100, 100),
            count(100, 91),
            count(100, 89),
        ];
        let kinds = kinds(&counts, &[], Some(count(200, 180)));
        assert_eq!(kinds[..4], [HopKind::Router; 4]);
        let loss = loss(&counts, &kinds, count(200, 180)).expect("measured");
        assert_eq!(
            loss,
            Loss {
                sent: 200,
                lost: 20,
                from_hop: Some(3)
            }
        );
    }

    #[test]
    fn a_limited_hop_neither_hides_nor_begins_a_loss() {
        let counts = [count(100, 100), count(100, 30), count(100, 90)];
        let kinds = kinds(&counts, &[], Some(count(200, 180)));
        assert_eq!(kinds[1], HopKind::IcmpLimited);
        let loss = loss(&counts, &kinds, count(200, 180)).expect("measured");
        assert_eq!(
            loss.from_hop,
            Some(2),
            "behind hop 1: at hop 2 or on the link to hop 3"
        );
    }

    #[test]
    fn a_destination_without_answers_shows_no_loss() {
        assert_eq!(loss(&[count(9, 9)], &[HopKind::Router], count(9, 0)), None);
    }

    #[test]
    fn probes_that_distinguish_are_those_of_the_power() {
        // 0.9^n < 0.01: n = 44.
        assert!((44..=45).contains(&probes_to_distinguish(0.1)));
        assert!((90..=91).contains(&probes_to_distinguish(0.05)));
    }
}
