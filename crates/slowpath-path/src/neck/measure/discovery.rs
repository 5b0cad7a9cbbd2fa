// SPDX-License-Identifier: Apache-2.0
//! The hops of a path: which is the last, and how it answers.

use super::super::prober::{Probe, Prober, Question};
use super::{MILLISECOND, NeckOptions};
use crate::icmp::ErrorKind;
use crate::socket::monotonic;
use std::io;
use std::net::IpAddr;

/// Rounds in which hops are looked for that have not answered yet.
const ROUNDS: usize = 3;
/// How long answers of a round are waited for at most.
pub(super) const ROUND_PATIENCE: i64 = 1_000 * MILLISECOND;
/// From one probe of a round to the next.
const INTERVAL: i64 = MILLISECOND / 2;

/// The last hop (0: none answers), and how it is asked; `None`: the destination does not answer.
pub(super) fn discover(
    prober: &mut Prober<'_>,
    options: &NeckOptions,
) -> io::Result<(u8, Option<Question>)> {
    let peer = options.peer;
    for round in 0..ROUNDS {
        let limit = end_of(prober.probes(), peer).map_or(options.max_ttl, |it| it.0);
        for hop in 1..=limit {
            for question in [Question::Udp, Question::Echo] {
                let known = round > 0 && is_known(prober.probes(), peer, hop, question);
                if prober.stopped() || known {
                    continue;
                }
                prober.send_probe(hop, question)?;
                prober.wait(monotonic() + INTERVAL, |_| false)?;
            }
        }
        let all = |prober: &Prober<'_>| {
            let probes = prober.probes();
            let known = |hop| is_known(probes, peer, hop, Question::Echo);
            end_of(probes, peer).is_some_and(|(end, _)| (1..=end).all(known))
        };
        if !all(prober) {
            prober.wait(monotonic() + ROUND_PATIENCE, all)?;
        }
    }
    let answered = prober.probes().iter().filter(|it| it.answer.is_some());
    let furthest = answered.map(|probe| probe.hop).max().unwrap_or(0);
    Ok(end_of(prober.probes(), peer).unwrap_or((furthest, None)))
}

/// Whether a hop need not be asked that question again: it has answered; the destination has to answer an echo request.
fn is_known(probes: &[Probe], peer: IpAddr, hop: u8, question: Question) -> bool {
    let answers = || {
        let of_hop = probes.iter().filter(|probe| probe.hop == hop);
        of_hop.filter_map(|probe| probe.answer)
    };
    let is_end = end_of(probes, peer).is_some_and(|(end, _)| end == hop);
    match is_end && question == Question::Echo {
        true => answers().any(|answer| answer.error.is_none()),
        false => answers().next().is_some(),
    }
}

/// The nearest hop that is no router on the way, and how the destination answers there: by echo where it does.
fn end_of(probes: &[Probe], peer: IpAddr) -> Option<(u8, Option<Question>)> {
    let ends = |probe: &&Probe| {
        probe
            .answer
            .is_some_and(|answer| answer.error != Some(ErrorKind::TimeExceeded))
    };
    let hop = probes.iter().filter(ends).map(|probe| probe.hop).min()?;
    let answers = || probes.iter().filter_map(|probe| probe.answer);
    let echoes = answers().any(|answer| answer.error.is_none());
    let reports = answers().any(|answer| answer.from == peer);
    let question = match (echoes, reports) {
        (true, _) => Some(Question::Echo),
        (false, true) => Some(Question::Udp),
        (false, false) => None,
    };
    Some((hop, question))
}
