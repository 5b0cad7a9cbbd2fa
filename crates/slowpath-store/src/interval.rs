// SPDX-License-Identifier: Apache-2.0
//! Problem intervals as rows of the spool and of version 1, and the merging of contiguous
//! intervals.

use crate::cells::{CellValue, Flat, Row, columns_of};
use crate::column::{Column, number, problems, time, us};
use crate::rows::{FIRST, PROBLEM_EVENTS, PROBLEM_TIME};
use slowpath_model::{
    ConnectionId, Deltas, Finding, Micros, Problem, ProblemInterval, ProblemSet, Share, WallMicros,
};

/// In an events column: the finding does not count events although the evidence does.
const NOT_COUNTED: u64 = u64::MAX;

/// A problem interval and the number of polling intervals that it covers.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Logged {
    pub interval: ProblemInterval,
    pub polls: u64,
}

/// The cells of an interval, its connection excepted.
pub(crate) fn columns() -> Vec<Column> {
    let mut columns = vec![
        time("end", "end"),
        us("duration_us", "length"),
        number("polls", "polling intervals"),
    ];
    let times = |names: &[&'static str]| names.iter().map(|n| us(n, "time")).collect::<Vec<_>>();
    let events = |names: &[&'static str]| {
        names
            .iter()
            .map(|n| number(n, "events"))
            .collect::<Vec<_>>()
    };
    columns.extend(times(&PROBLEM_TIME[..FIRST]));
    columns.push(problems("coarse", "without a measured time"));
    columns.extend(events(&PROBLEM_EVENTS[..FIRST]));
    columns.push(problems("unmeasured", "not measured"));
    columns.extend(columns_of::<Deltas>());
    columns.extend(times(&PROBLEM_TIME[FIRST..]));
    columns.extend(events(&PROBLEM_EVENTS[FIRST..]));
    columns.push(problems("looked_for", "looked for by the rules"));
    columns
}

/// How often a problem occurred according to the evidence.
fn events_by_evidence(problem: Problem, deltas: &Deltas) -> Option<u64> {
    match problem {
        Problem::FastRetransmit => deltas.fast_recoveries,
        Problem::Timeout => deltas.timeouts,
        Problem::DelayedAck => deltas.delayed_acks,
        _ => None,
    }
}

impl Logged {
    /// Appends the cells of [`columns`].
    pub(crate) fn put(&self, row: &mut Vec<CellValue>) {
        let ProblemInterval {
            connection: _,
            end,
            duration,
            findings,
            unmeasured,
            deltas,
        } = &self.interval;
        end.put(row);
        duration.put(row);
        self.polls.put(row);
        let mut times: [Option<Micros>; Problem::ALL.len()] = [None; Problem::ALL.len()];
        let mut events: [Option<u64>; Problem::ALL.len()] = [None; Problem::ALL.len()];
        let mut coarse = ProblemSet::EMPTY;
        for finding in findings {
            let problem = finding.problem;
            times[problem as usize] = Some(match finding.share {
                Share::Measured(time) => time,
                Share::Coarse => {
                    coarse.insert(problem);
                    *duration
                }
            });
            if finding.events != events_by_evidence(problem, deltas) {
                events[problem as usize] = Some(finding.events.unwrap_or(NOT_COUNTED));
            }
        }
        times[..FIRST].iter().for_each(|t| t.put(row));
        coarse.put(row);
        events[..FIRST].iter().for_each(|n| n.put(row));
        unmeasured.put(row);
        deltas.put(row);
        times[FIRST..].iter().for_each(|t| t.put(row));
        events[FIRST..].iter().for_each(|n| n.put(row));
        ProblemSet::of_connections().put(row);
    }

    /// Takes the cells that [`Logged::put`] appends.
    pub(crate) fn take(connection: ConnectionId, row: &mut Row<'_>) -> Option<Self> {
        let end = WallMicros::take(row)?;
        let duration = Micros::take(row)?;
        let polls = u64::take(row)?;
        let mut times: [Option<Micros>; Problem::ALL.len()] = [None; Problem::ALL.len()];
        take_all(&mut times[..FIRST], row)?;
        let coarse = ProblemSet::take(row)?;
        let mut events: [Option<u64>; Problem::ALL.len()] = [None; Problem::ALL.len()];
        take_all(&mut events[..FIRST], row)?;
        let mut unmeasured = ProblemSet::take(row)?;
        let deltas = Deltas::take(row)?;
        take_all(&mut times[FIRST..], row)?;
        take_all(&mut events[FIRST..], row)?;
        let looked_for = <Option<ProblemSet> as Flat>::take(row)?;
        let looked_for =
            looked_for.unwrap_or_else(|| Problem::ALL[..FIRST].iter().copied().collect());
        for problem in ProblemSet::of_connections().iter() {
            if !looked_for.contains(problem) {
                unmeasured.insert(problem);
            }
        }
        let mut findings: Vec<Finding> = Problem::ALL
            .into_iter()
            .filter_map(|problem| {
                let time = times[problem as usize]?;
                Some(Finding {
                    problem,
                    share: if coarse.contains(problem) {
                        Share::Coarse
                    } else {
                        Share::Measured(time.min(duration))
                    },
                    events: match events[problem as usize] {
                        Some(NOT_COUNTED) => None,
                        Some(count) => Some(count),
                        None => events_by_evidence(problem, &deltas),
                    },
                })
            })
            .collect();
        order(&mut findings, duration);
        Some(Logged {
            interval: ProblemInterval {
                connection,
                end,
                duration,
                findings,
                unmeasured,
                deltas,
            },
            polls,
        })
    }

    /// The problems found.
    pub(crate) fn problems(&self) -> ProblemSet {
        self.interval.findings.iter().map(|f| f.problem).collect()
    }

    /// Takes `next` in, if it follows without a gap and found the same: one row then says
    /// what two said. Counters and times add up; gauges are those at the end.
    ///
    /// Not merged: a gap or an overlap of more than `TOLERANCE`, other problems, another
    /// kind of share, a counter that only one of them has, or a result longer than `limit`.
    pub(crate) fn absorb(&mut self, next: &Logged, limit: Micros) -> bool {
        const TOLERANCE: u64 = 1_000;
        let (a, b) = (&self.interval, &next.interval);
        let duration = a.duration + b.duration;
        if a.connection != b.connection
            || a.unmeasured != b.unmeasured
            || duration > limit
            || (b.end - b.duration).0.abs_diff(a.end.0) > TOLERANCE
            || self.problems() != next.problems()
        {
            return false;
        }
        let Some(deltas) = add(&a.deltas, &b.deltas) else {
            return false;
        };
        let mut findings = Vec::with_capacity(a.findings.len());
        for one in &a.findings {
            let Some(other) = b.findings.iter().find(|f| f.problem == one.problem) else {
                return false;
            };
            let share = match (one.share, other.share) {
                (Share::Coarse, Share::Coarse) => Share::Coarse,
                (Share::Measured(x), Share::Measured(y)) => {
                    Share::Measured(x.min(a.duration) + y.min(b.duration))
                }
                _ => return false,
            };
            let Some(events) = both(one.events, other.events, u64::saturating_add) else {
                return false;
            };
            findings.push(Finding {
                problem: one.problem,
                share,
                events,
            });
        }
        order(&mut findings, duration);
        self.interval = ProblemInterval {
            connection: a.connection,
            end: b.end,
            duration,
            findings,
            unmeasured: a.unmeasured,
            deltas,
        };
        self.polls += next.polls;
        true
    }
}

fn take_all<T>(values: &mut [Option<T>], row: &mut Row<'_>) -> Option<()>
where
    Option<T>: Flat,
{
    for value in values {
        *value = <Option<T> as Flat>::take(row)?;
    }
    Some(())
}

/// Largest share first, ties in the order of the stages.
pub(crate) fn order(findings: &mut [Finding], duration: Micros) {
    findings.sort_by_key(|f| {
        (
            std::cmp::Reverse(f.share.time_of(duration)),
            f.problem as u8,
        )
    });
}

/// The sum where both are known, nothing where neither is; otherwise there is no answer.
fn both<T>(a: Option<T>, b: Option<T>, add: impl Fn(T, T) -> T) -> Option<Option<T>> {
    match (a, b) {
        (Some(a), Some(b)) => Some(Some(add(a, b))),
        (None, None) => Some(None),
        _ => None,
    }
}

/// The evidence of two contiguous intervals as that of one.
fn add(a: &Deltas, b: &Deltas) -> Option<Deltas> {
    let count = |a, b| both(a, b, u64::saturating_add);
    let time = |a, b| both(a, b, |a: Micros, b| a + b);
    Some(Deltas {
        bytes_sent: count(a.bytes_sent, b.bytes_sent)?,
        bytes_acked: count(a.bytes_acked, b.bytes_acked)?,
        bytes_received: count(a.bytes_received, b.bytes_received)?,
        retransmitted: count(a.retransmitted, b.retransmitted)?,
        fast_recoveries: count(a.fast_recoveries, b.fast_recoveries)?,
        timeouts: count(a.timeouts, b.timeouts)?,
        rtt_sum: time(a.rtt_sum, b.rtt_sum)?,
        rtt_count: count(a.rtt_count, b.rtt_count)?,
        delayed_acks: count(a.delayed_acks, b.delayed_acks)?,
        busy: time(a.busy, b.busy)?,
        rwnd_limited: time(a.rwnd_limited, b.rwnd_limited)?,
        sndbuf_limited: time(a.sndbuf_limited, b.sndbuf_limited)?,
        bytes_written: count(a.bytes_written, b.bytes_written)?,
        writes: count(a.writes, b.writes)?,
        bytes_read: count(a.bytes_read, b.bytes_read)?,
        reads: count(a.reads, b.reads)?,
        cwnd: b.cwnd,
        send_window: b.send_window,
        send_queue: b.send_queue,
        receive_queue: b.receive_queue,
        srtt: b.srtt,
        baseline_rtt: b.baseline_rtt,
        send_mss: b.send_mss,
        send_buffer: b.send_buffer,
        thin_timeouts: None,
        acks_after_timeout: None,
    })
}
