// SPDX-License-Identifier: Apache-2.0
//! AcceptQueueOverflow and SynQueueOverflow: a listener turned connections away.
//!
//! The evidence has two sources. Each listener counts what was dropped at it
//! (`sk_drops`), not why; its namespace counts why, not where. On arrival of a SYN
//! (`tcp_conn_request`): a full SYN queue drops it (`TCPReqQFullDrop`) or answers with a
//! cookie (`TCPReqQFullDoCookies`); then a full accept queue drops it (`ListenOverflows`);
//! then, without cookies, a SYN of a peer not known to be alive is dropped in the last
//! quarter of `tcp_max_syn_backlog`. A handshake's last ACK finds a full accept queue
//! likewise (`tcp_v4_syn_recv_sock`). All these are in `ListenDrops` and in `sk_drops`
//! (`tcp_listendrop`); `sk_drops` has more, such as a SYN repeated for a half-open
//! connection.
//!
//! For one namespace and one interval, with *accept* = `ListenOverflows` and *syn* =
//! `TCPReqQFullDrop` where cookies are on, and `ListenDrops` less *accept* where they are
//! off:
//!
//! 1. Where *syn* is 0, what listeners dropped is their accept queues', where *accept* is 0,
//!    their SYN queues'. Each has its own drops; if those are more than the namespace's,
//!    the number is known if only one listener dropped something.
//! 2. Where only one listener dropped something, both parts are its.
//! 3. Otherwise, where each has one of its queues found full at either end and not the
//!    other, it dropped for that reason. The number is the namespace's if it is the only
//!    one with that reason, and its own drops if those add up to the namespace's.
//! 4. What is still open: both queues full means both, without numbers; otherwise the two
//!    problems could not be distinguished and are unmeasured. Without the namespace's counters
//!    only the queues decide, without numbers.
//! 5. Cookies are SynQueueOverflow of the listeners that sent one in the interval or whose
//!    SYN queue is found full; their number is known if there is one such listener. With
//!    `tcp_syncookies` = 2 every SYN gets one, so only a full queue counts.
//!
//! How long a queue was full is not known: shares are coarse.

mod advice;

pub use advice::advise_listener;

use slowpath_model::{
    Finding, ListenCounters, ListenSettings, ListenerDeltas, ListenerSnapshot, ListenerVerdict,
    Micros, Problem, ProblemSet, Share,
};

/// The kernel stores when it last sent a cookie once a second at most (`tcp_synq_overflow`).
const COOKIE_GRAIN: Micros = Micros(1_000_000);

/// One listener at both ends of an interval.
#[derive(Clone, Copy, Debug)]
pub struct ListenerPair<'a> {
    /// At the beginning.
    pub before: &'a ListenerSnapshot,
    /// At the end.
    pub after: &'a ListenerSnapshot,
}

/// What was observed of one network namespace over one interval.
#[derive(Clone, Copy, Debug, Default)]
pub struct ListenRound<'a> {
    /// Its listeners; those that dropped nothing, whose queues have room and that sent no
    /// cookie may be left out.
    pub listeners: &'a [ListenerPair<'a>],
    /// What its counters grew by; `None` if they could not be read.
    pub counters: Option<ListenCounters>,
    /// Its settings.
    pub settings: ListenSettings,
}

/// What is known of one listener, on the way to its verdict.
struct Case<'a> {
    pair: ListenerPair<'a>,
    drops: Option<u64>,
    accept_full: bool,
    syn_full: bool,
    cookies: bool,
    accept: Part,
    syn: Part,
}

/// One problem's part of what a listener dropped.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Part {
    None,
    Counted(u64),
    Uncounted,
    Unknown,
}

impl Part {
    fn of(count: u64) -> Self {
        if count == 0 {
            Part::None
        } else {
            Part::Counted(count)
        }
    }
}

/// The verdicts on the listeners of one namespace over one interval; only those with a
/// finding, or with something that could not be measured.
pub fn judge_listeners(round: &ListenRound<'_>) -> Vec<ListenerVerdict> {
    let mut cases: Vec<Case<'_>> = round.listeners.iter().map(|p| case(*p, round)).collect();
    let dropping = cases.iter().filter(|c| c.drops != Some(0)).count() as u32;
    split(&mut cases, round);
    cookies(&mut cases, round);
    cases
        .iter()
        .filter_map(|case| verdict(case, round, dropping))
        .collect()
}

fn case<'a>(pair: ListenerPair<'a>, round: &ListenRound<'_>) -> Case<'a> {
    let ListenerPair { before, after } = pair;
    let either = |full: fn(&ListenerSnapshot) -> bool| full(before) || full(after);
    let recent = after.at.since(before.at) + COOKIE_GRAIN;
    Case {
        pair,
        drops: after
            .drops
            .zip(before.drops)
            .and_then(|(a, b)| a.checked_sub(b)),
        accept_full: either(ListenerSnapshot::accept_queue_full),
        syn_full: either(ListenerSnapshot::syn_queue_full),
        cookies: round.settings.syncookies != Some(2)
            && after.cookie_age.is_some_and(|age| age <= recent),
        accept: Part::None,
        syn: Part::None,
    }
}

/// The queues decide, without numbers.
fn by_queues(case: &mut Case<'_>) {
    match (case.accept_full, case.syn_full) {
        (true, false) => case.accept = Part::Uncounted,
        (false, true) => case.syn = Part::Uncounted,
        (true, true) => (case.accept, case.syn) = (Part::Uncounted, Part::Uncounted),
        (false, false) => (case.accept, case.syn) = (Part::Unknown, Part::Unknown),
    }
}

/// What the namespace counted: segments dropped for a full accept queue and a full SYN queue.
fn totals(round: &ListenRound<'_>) -> Option<(u64, u64)> {
    let counters = round.counters?;
    let accept = counters.overflows?;
    let all = counters.drops?;
    let syn = match round.settings.syncookies {
        Some(0) => all.checked_sub(accept)?,
        _ => counters.queue_full_drops?,
    };
    Some((accept, syn))
}

/// Conditions 1 to 4.
fn split(cases: &mut [Case<'_>], round: &ListenRound<'_>) {
    let mut open: Vec<&mut Case<'_>> = cases
        .iter_mut()
        .filter(|case| match case.drops {
            Some(drops) => drops > 0,
            // Unknown drops: the queues are all there is to go by.
            None => case.accept_full || case.syn_full,
        })
        .collect();
    let Some((accept, syn)) = totals(round) else {
        open.into_iter().for_each(by_queues);
        return;
    };
    // 1.
    let sum: Option<u64> = open.iter().map(|c| c.drops).sum();
    if accept == 0 || syn == 0 {
        let whole = accept + syn;
        let only_one = open.len() == 1;
        for case in open {
            let full = if accept > 0 {
                case.accept_full
            } else {
                case.syn_full
            };
            let part = match (case.drops, sum) {
                _ if whole == 0 => Part::None,
                (Some(drops), Some(sum)) if sum <= whole => Part::Counted(drops),
                // Some were dropped for another reason.
                (Some(_), Some(_)) if only_one => Part::Counted(whole),
                _ if full => Part::Uncounted,
                _ => Part::Unknown,
            };
            if accept > 0 {
                case.accept = part;
            } else {
                case.syn = part;
            }
        }
        return;
    }
    // 2.
    if let [case] = open.as_mut_slice()
        && case.drops.is_some_and(|drops| drops >= accept + syn)
    {
        (case.accept, case.syn) = (Part::of(accept), Part::of(syn));
        return;
    }
    // 3.
    if open.iter().all(|c| c.accept_full != c.syn_full) {
        let (mut accepts, mut syns): (Vec<_>, Vec<_>) =
            open.into_iter().partition(|c| c.accept_full);
        let parts = shared(&accepts, accept);
        for (case, part) in accepts.iter_mut().zip(parts) {
            case.accept = part;
        }
        let parts = shared(&syns, syn);
        for (case, part) in syns.iter_mut().zip(parts) {
            case.syn = part;
        }
        return;
    }
    // 4.
    for case in &mut open {
        by_queues(case);
    }
}

/// Condition 3: the parts of listeners that dropped for one reason, `total` in all.
fn shared(cases: &[&mut Case<'_>], total: u64) -> Vec<Part> {
    let drops: Option<Vec<u64>> = cases.iter().map(|c| c.drops).collect();
    match drops.as_deref() {
        Some([one]) if *one >= total => vec![Part::of(total)],
        Some(all) if all.iter().sum::<u64>() == total => {
            all.iter().map(|drops| Part::of(*drops)).collect()
        }
        _ => vec![Part::Uncounted; cases.len()],
    }
}

/// Condition 5.
fn cookies(cases: &mut [Case<'_>], round: &ListenRound<'_>) {
    let sent = round.counters.and_then(|c| c.queue_full_cookies);
    if sent == Some(0) || round.settings.syncookies == Some(0) {
        return;
    }
    // The time of the last cookie is a group's: a full queue names the member.
    let named = cases.iter().any(|c| c.syn_full);
    let sole = cases.len() == 1 && sent.is_some();
    let mut senders: Vec<&mut Case<'_>> = cases
        .iter_mut()
        .filter(|c| {
            c.syn_full
                || (c.cookies && !(named && c.pair.after.reuse_port == Some(true)))
                || (sole && round.settings.syncookies == Some(1))
        })
        .collect();
    let count = match (senders.len(), sent) {
        (1, Some(sent)) => Part::Counted(sent),
        _ => Part::Uncounted,
    };
    for case in &mut senders {
        case.syn = match (case.syn, count) {
            (Part::Counted(dropped), Part::Counted(sent)) => Part::Counted(dropped + sent),
            (Part::None | Part::Unknown, count) => count,
            _ => Part::Uncounted,
        };
    }
}

fn verdict(case: &Case<'_>, round: &ListenRound<'_>, dropping: u32) -> Option<ListenerVerdict> {
    let ListenerPair { before, after } = case.pair;
    let mut findings = Vec::new();
    let mut unmeasured = ProblemSet::EMPTY;
    for (problem, part) in [
        (Problem::AcceptQueueOverflow, case.accept),
        (Problem::SynQueueOverflow, case.syn),
    ] {
        let events = match part {
            Part::None => continue,
            Part::Unknown => {
                unmeasured.insert(problem);
                continue;
            }
            Part::Counted(count) => Some(count),
            Part::Uncounted => None,
        };
        findings.push(Finding {
            problem,
            share: Share::Coarse,
            events,
        });
    }
    if findings.is_empty() && unmeasured.is_empty() {
        return None;
    }
    Some(ListenerVerdict {
        listener: after.id,
        from: before.at,
        to: after.at,
        findings,
        unmeasured,
        deltas: ListenerDeltas {
            drops: case.drops,
            accept_queue_before: before.accept_queue,
            accept_queue: after.accept_queue,
            backlog: after.backlog,
            syn_queue: after.syn_queue,
            young: after.young,
            namespace: round.counters.unwrap_or_default(),
            dropping,
            settings: round.settings,
        },
    })
}
