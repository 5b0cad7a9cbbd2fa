// SPDX-License-Identifier: Apache-2.0
//! Where the end that sends a message waited, and for what. The rules are in the module's documentation.

use super::causes;
use super::link::Link;
use super::messages::{self, Message};
use super::state::{Pending, State, Window};
use super::timeline::{Packet, Step, Timeline};
use super::wait_kind::{PAUSE, Waited};
use slowpath_recording::{Handler, Moment, Timer};
use std::time::Duration;

/// `TCP_CA_Recovery` (include/uapi/linux/tcp.h).
const RECOVERY: u32 = 3;

/// A time without progress.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Wait {
    /// What for.
    pub waited: Waited,
    /// The last progress before, by the sender's clock.
    pub from: Moment,
    /// Its end.
    pub until: Moment,
    /// The sender's run that ended it.
    pub run: usize,
    /// Packets that this run sent, by their numbers.
    pub sent: std::ops::Range<usize>,
    /// A fast retransmission that came long after its first duplicates, and it is known why.
    pub late: bool,
    /// When what a fast retransmission sent again had been sent before.
    pub lost_at: Option<Moment>,
    /// What it came from.
    pub links: Vec<Link>,
    /// Whether it would have been over earlier without its cause: a replay in which that was changed. `None`: it was not tried, or there is nothing to change.
    pub confirmed: Option<bool>,
}

impl Wait {
    /// How long.
    pub fn duration(&self) -> Duration {
        Duration::from_nanos(self.until.0.saturating_sub(self.from.0))
    }
}

pub(super) fn waits(
    timeline: &Timeline<'_>,
    message: &Message,
    rules: &causes::Rules,
) -> Vec<Wait> {
    let end = usize::from(message.end);
    let mut found = MessageWaits {
        timeline,
        end,
        rules,
        waits: Vec::new(),
        longest: Duration::ZERO,
    };
    let mut calls = Calls::of(message);
    let (mut since, mut before) = (message.begun, message.bytes.start);
    for (run, step) in timeline.steps[end].iter().enumerate().skip(message.run) {
        if message.done.is_some_and(|done| step.at > done) {
            break;
        }
        let idle = calls.idle_before(step);
        let packets = &timeline.packets[end][step.sent.clone()];
        if packets.iter().any(Packet::has_data) {
            calls.sent = step.at;
        }
        if let Some(from) = idle {
            found.application(from, run);
            since = step.at;
            continue;
        }
        let sends = packets.iter().any(|packet| packet.carries(&message.bytes));
        let acknowledged = step.acknowledged.min(message.bytes.end);
        if !sends && acknowledged <= before {
            continue;
        }
        before = before.max(acknowledged);
        let from = std::mem::replace(&mut since, step.at);
        found.progress(message, from, run);
    }
    let mut found = found.waits;
    found.retain(|wait| !wait.waited.is_continuous() || wait.duration() > PAUSE);
    found.extend(held_back(timeline, message, since));
    found
}

/// What the application has called for a message, up to some run.
struct Calls {
    /// Where its next byte goes.
    written: u64,
    /// The message's end.
    end: u64,
    /// When its end sent data last.
    sent: Moment,
    /// All of the last call was taken: the application had nothing more to write.
    whole: bool,
}

impl Calls {
    fn of(message: &Message) -> Self {
        Calls {
            written: message.bytes.start,
            end: message.bytes.end,
            sent: message.begun,
            whole: false,
        }
    }

    /// Since when everything that it had written was sent, if this run is its next call.
    fn idle_before(&mut self, step: &Step<'_>) -> Option<Moment> {
        let Handler::Send { bytes, result, .. } = step.handler else {
            return None;
        };
        if self.written >= self.end {
            return None;
        }
        let taken = u64::try_from(*result).unwrap_or(0);
        self.written += taken;
        let whole = std::mem::replace(&mut self.whole, taken == u64::from(*bytes));
        let idle = whole && step.before.is_some_and(|state| state.unsent() == 0);
        idle.then_some(self.sent)
    }
}

/// The waits of a message, in the order of time.
struct MessageWaits<'t, 'a> {
    timeline: &'t Timeline<'a>,
    end: usize,
    rules: &'t causes::Rules,
    waits: Vec<Wait>,
    /// The longest part of the last one.
    longest: Duration,
}

impl MessageWaits<'_, '_> {
    /// The run made progress; since the last one nothing had.
    fn progress(&mut self, message: &Message, from: Moment, run: usize) {
        let step = &self.timeline.steps[self.end][run];
        let gap = Duration::from_nanos(step.at.0.saturating_sub(from.0));
        let Some(mut waited) = waited(self.timeline, self.end, step, gap) else {
            return;
        };
        let earlier = run
            .checked_sub(1)
            .map(|run| self.timeline.steps[self.end][run].acknowledged);
        let unfinished = earlier.is_some_and(|it| it < message.bytes.start);
        match waited {
            Waited::Network | Waited::CongestionWindow if unfinished => {
                if !is_long(step, gap) {
                    return;
                }
                waited = Waited::EarlierMessage;
            }
            _ => {}
        }
        self.add(waited, from, run);
    }

    /// Everything written was sent from then on, until the run, a call. Whatever came meanwhile was not waited for, but what repaired a loss was.
    fn application(&mut self, from: Moment, run: usize) {
        let until = self.timeline.steps[self.end][run].at;
        while let Some(last) = self.waits.pop() {
            if last.until <= from || last.waited.is_repair() {
                self.waits.push(last);
                break;
            }
        }
        let from = self.waits.last().map_or(from, |last| from.max(last.until));
        if from < until {
            self.add(Waited::Application, from, run);
        }
    }

    fn add(&mut self, waited: Waited, from: Moment, run: usize) {
        let (timeline, end, rules) = (self.timeline, self.end, self.rules);
        let step = &timeline.steps[end][run];
        let gap = Duration::from_nanos(step.at.0.saturating_sub(from.0));
        let links = || causes::links(timeline, end, from, run, waited, rules);
        if let Some(last) = self.waits.last_mut()
            && waited.is_continuous()
            && (last.waited, last.until) == (waited, from)
        {
            (last.until, last.run, last.sent.end) = (step.at, run, step.sent.end);
            // What most of it came from.
            if gap > self.longest {
                self.longest = gap;
                last.links = links();
            }
            return;
        }
        self.longest = gap;
        let links = links();
        let fast = waited == Waited::FastRetransmission;
        self.waits.push(Wait {
            waited,
            from,
            until: step.at,
            run,
            sent: step.sent.clone(),
            late: fast && !links.is_empty(),
            lost_at: fast.then(|| sent_before(timeline, end, step)).flatten(),
            links,
            confirmed: None,
        });
    }
}

/// All of it had arrived, and bytes before it had not: until those came. Since its last progress, and with half a round trip that no end waits for.
fn held_back(timeline: &Timeline<'_>, message: &Message, since: Moment) -> Option<Wait> {
    let end = usize::from(message.end);
    let done = message.done?;
    let own = messages::arrived(timeline, end, &message.bytes)?;
    let all = messages::completing(timeline, end, message.bytes.end)?;
    let steps = &timeline.steps[1 - end];
    let held = steps[all].at.0.saturating_sub(steps[own].at.0);
    let from = Moment(done.0.saturating_sub(held).max(since.0));
    let run = timeline.steps[end]
        .iter()
        .rposition(|step| step.at <= done)?;
    let step = &timeline.steps[end][run];
    let gap = Duration::from_nanos(done.0.saturating_sub(from.0));
    is_long(step, gap).then(|| Wait {
        waited: Waited::EarlierMessage,
        from,
        until: done,
        run,
        sent: step.sent.end..step.sent.end,
        late: false,
        lost_at: None,
        links: Vec::new(),
        confirmed: None,
    })
}

/// When the first bytes that a run sent again had been sent before.
fn sent_before(timeline: &Timeline<'_>, end: usize, step: &Step<'_>) -> Option<Moment> {
    let packets = &timeline.packets[end];
    let again = step.sent.clone().find(|number| packets[*number].again)?;
    let byte = packets[again].bytes.start;
    let mut earlier = packets[..again].iter().rev();
    Some(earlier.find(|it| it.bytes.contains(&byte))?.at)
}

/// Longer than what is always there.
fn is_long(step: &Step<'_>, gap: Duration) -> bool {
    let trip = step.before.map_or(0, |state| state.srtt());
    gap > PAUSE && gap > 2 * Duration::from_micros(trip)
}

/// `None`: it is too short to report.
fn waited(timeline: &Timeline<'_>, end: usize, step: &Step<'_>, gap: Duration) -> Option<Waited> {
    let again = timeline.packets[end][step.sent.clone()]
        .iter()
        .any(|packet| packet.again);
    let long = is_long(step, gap);
    match step.handler {
        Handler::Timer {
            timer: Timer::Write,
            ..
        } => timer(step, again),
        Handler::Packet { number, .. } => {
            let (before, after) = (step.before?, step.after?);
            if again && before.recovery() < RECOVERY && after.recovery() == RECOVERY {
                return Some(Waited::FastRetransmission);
            }
            let window = before.limiting_window(timeline.segment[end]);
            if window == Some(Window::Receive) {
                return Some(Waited::ReceiveWindow);
            }
            let answer = timeline.packets[1 - end].get(*number as usize)?;
            let delayed = Handler::Timer {
                timer: Timer::DelayedAck,
                deferred: false,
            };
            if gap > PAUSE && *timeline.steps[1 - end][answer.run].handler == delayed {
                return Some(Waited::DelayedAck);
            }
            if window == Some(Window::Congestion) {
                return Some(Waited::CongestionWindow);
            }
            long.then_some(Waited::Network)
        }
        // What was written before had not been sent: that did not wait for the application (RFC 9293 section 3.7.4).
        Handler::Send { .. } if step.before.is_some_and(|it| it.unsent() > 0) => {
            long.then_some(Waited::Network)
        }
        Handler::Send { .. } => long.then_some(Waited::Application),
        _ => long.then_some(Waited::Network),
    }
}

/// What a run of the timer of retransmissions was for; `again`: it sent what had been sent.
pub(super) fn timer(step: &Step<'_>, again: bool) -> Option<Waited> {
    match step.before.map(State::pending) {
        Some(Pending::LossProbe) => Some(Waited::LossProbe),
        Some(Pending::Reordering) => Some(Waited::ReorderingTimer),
        Some(Pending::ZeroWindowProbe) => Some(Waited::ReceiveWindow),
        _ => again.then_some(Waited::Timeout),
    }
}

/// Bytes of a message that were sent again.
pub(super) fn sent_again(timeline: &Timeline<'_>, message: &Message) -> u64 {
    let packets = timeline.packets[usize::from(message.end)].iter();
    packets
        .filter(|packet| packet.again && packet.carries(&message.bytes))
        .map(|packet| packet.bytes.end - packet.bytes.start)
        .sum()
}
