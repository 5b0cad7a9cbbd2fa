// SPDX-License-Identifier: Apache-2.0
//! Every way to change one run of an end, for tests: a replay of what comes out must say that it went astray.

use super::{End, Handler, Outcome, Run, Timer};

/// What was changed.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Change {
    /// The run's place.
    pub run: usize,
    /// What is other.
    pub what: &'static str,
}

/// Every end with one run less, one twice, two exchanged, or one number of one run changed.
pub fn variants(end: &End) -> impl Iterator<Item = (Change, End)> + '_ {
    (0..end.runs.len()).flat_map(move |place| {
        let mut all = Vec::new();
        let mut push = |what, runs: &[Run], instead_of| {
            let mut other = end.clone();
            let range = place..place + instead_of;
            other.runs.splice(range, runs.iter().cloned());
            all.push((Change { run: place, what }, other));
        };
        let run = &end.runs[place];
        push("deleted", &[], 1);
        push("twice", &[run.clone(), run.clone()], 1);
        if let Some(next) = end.runs.get(place + 1)
            && next != run
        {
            push("exchanged with the next", &[next.clone(), run.clone()], 2);
        }
        for (what, other) in runs(run) {
            push(what, &[other], 1);
        }
        all
    })
}

/// Every run with one thing changed.
pub fn runs(run: &Run) -> Vec<(&'static str, Run)> {
    let mut all: Vec<(&'static str, Run)> = Vec::new();
    let mut with = |what, change: &dyn Fn(&mut Run)| {
        let mut other = run.clone();
        change(&mut other);
        if other != *run {
            all.push((what, other));
        }
    };
    with("time", &|run| run.at.0 = run.at.0.wrapping_add(1));
    with("jiffies", &|run| run.jiffies = run.jiffies.wrapping_add(1));
    with("check", &|run| run.check = run.check.map(|check| check ^ 1));
    with("a decision more", &|run| {
        run.outcomes.push(Outcome::SmallQueue {
            nth: run.outcomes.len() as u32,
            throttled: true,
        });
    });
    for place in 0..run.outcomes.len() {
        with("a decision less", &|run| {
            run.outcomes.remove(place);
        });
        with("a decision's value", &|run| {
            change(&mut run.outcomes[place], |[first, second]| {
                [first, second ^ 1]
            });
        });
        with("a decision's place", &|run| {
            change(&mut run.outcomes[place], |[first, second]| {
                [first.wrapping_add(1), second]
            });
        });
    }
    for (what, handler) in handlers(&run.handler) {
        with(what, &|run| run.handler = handler.clone());
    }
    all
}

/// Changes the numbers of an outcome, if the new ones mean something.
fn change(outcome: &mut Outcome, other: impl Fn([u32; 2]) -> [u32; 2]) {
    let [first, second] = other(outcome.numbers());
    if let Some(other) = Outcome::from_numbers(outcome.decision(), first, second) {
        *outcome = other;
    }
}

/// Every handler with one thing changed.
fn handlers(handler: &Handler) -> Vec<(&'static str, Handler)> {
    let mut all: Vec<(&'static str, Handler)> = Vec::new();
    let mut with = |what, change: &dyn Fn(&mut Handler)| {
        let mut other = handler.clone();
        change(&mut other);
        if other != *handler {
            all.push((what, other));
        }
    };
    with("another handler", &|handler| {
        *handler = match handler {
            Handler::SmallQueue => Handler::Resume,
            _ => Handler::SmallQueue,
        }
    });
    with("first number", &|handler| match handler {
        Handler::Begin { fresh } => *fresh ^= true,
        Handler::Send { bytes, .. } | Handler::Receive { bytes, .. } => {
            *bytes = bytes.wrapping_add(1);
        }
        Handler::Shutdown { how } => *how = how.wrapping_add(1),
        Handler::Option { level, .. } => *level = level.wrapping_add(1),
        Handler::Packet { number, .. } => *number = number.wrapping_add(1),
        Handler::Timer { timer, .. } => {
            *timer = match timer {
                Timer::Write => Timer::DelayedAck,
                _ => Timer::Write,
            }
        }
        Handler::Release { flags } => *flags ^= 1,
        _ => {}
    });
    with("second number", &|handler| match handler {
        Handler::Send { flags, .. } | Handler::Receive { flags, .. } => *flags ^= 1,
        Handler::Option { name, .. } => *name = name.wrapping_add(1),
        Handler::Packet { marked, .. } => *marked ^= true,
        Handler::Timer { deferred, .. } => *deferred ^= true,
        _ => {}
    });
    with("third number", &|handler| match handler {
        Handler::Send { result, .. } | Handler::Receive { result, .. } => {
            *result = result.wrapping_sub(1);
        }
        Handler::Option { value, .. } => *value = value.wrapping_add(1),
        Handler::Packet { merged, .. } => *merged = merged.wrapping_add(1),
        _ => {}
    });
    with("a packet's memory", &|handler| {
        if let Handler::Packet { truesize, .. } = handler {
            *truesize = truesize.wrapping_add(1);
        }
    });
    with("a packet's backlog", &|handler| {
        if let Handler::Packet { backlog, .. } = handler {
            *backlog ^= true;
        }
    });
    all
}
