// SPDX-License-Identifier: Apache-2.0
//! What a wait came from. The rules are at each [`Link`].

use super::link::Link;
use super::state::{Pending, State};
use super::timeline::Timeline;
use super::wait_kind::{PAUSE, Waited};
use slowpath_recording::{Handler, Moment, Timer};
use std::time::Duration;

/// What the sender's kernel goes by.
#[derive(Clone, Copy, Debug)]
pub(super) struct Rules {
    /// Duplicates that it begins with (`net.ipv4.tcp_reordering`).
    pub initial: u32,
    /// Duplicates are counted at all: RACK is off (`tcp_is_rack`), or there are no selective acknowledgments.
    pub counts: bool,
}

pub(super) fn links(
    timeline: &Timeline<'_>,
    end: usize,
    since: Moment,
    run: usize,
    waited: Waited,
    rules: &Rules,
) -> Vec<Link> {
    let it = RunPosition {
        timeline,
        end,
        since,
        run,
        rules,
    };
    match waited {
        Waited::Timeout => it.timeout(),
        Waited::FastRetransmission => it.fast_retransmission(),
        Waited::DelayedAck => it.delayed_ack(),
        Waited::ReceiveWindow => it.window(),
        Waited::LossProbe | Waited::ReorderingTimer => it.lost_tail(),
        Waited::CongestionWindow
        | Waited::Network
        | Waited::EarlierMessage
        | Waited::Application => Vec::new(),
    }
}

/// The run of the sender that ended the wait.
struct RunPosition<'t, 'a> {
    timeline: &'t Timeline<'a>,
    end: usize,
    /// The wait's beginning.
    since: Moment,
    run: usize,
    rules: &'t Rules,
}

impl RunPosition<'_, '_> {
    fn before(&self) -> Option<&State> {
        self.timeline.steps[self.end][self.run].before
    }

    /// The first byte that is not acknowledged.
    fn first(&self) -> u64 {
        self.timeline.steps[self.end][self.run].acknowledged
    }

    /// The number of the first packet of data that the run sent.
    fn sent(&self) -> Option<usize> {
        let step = &self.timeline.steps[self.end][self.run];
        let packets = &self.timeline.packets[self.end];
        step.sent.clone().find(|number| packets[*number].has_data())
    }

    fn timeout(&self) -> Vec<Link> {
        let Some(packet) = self.sent() else {
            return Vec::new();
        };
        let mut links = self.what_came_of(packet);
        let doublings = self.before().map_or(0, State::backoff);
        if doublings > 0 {
            links.push(Link::TimeoutBackoff { doublings });
        }
        links
    }

    /// Of the last sending of these bytes before this packet.
    fn what_came_of(&self, packet: usize) -> Vec<Link> {
        let own = &self.timeline.packets[self.end];
        let byte = own[packet].bytes.start;
        let earlier = own[..packet]
            .iter()
            .rposition(|it| it.bytes.contains(&byte));
        let Some(earlier) = earlier else {
            return Vec::new();
        };
        self.unanswered(packet, earlier)
    }

    /// Why there was no acknowledgment of an earlier packet before this one.
    fn unanswered(&self, packet: usize, earlier: usize) -> Vec<Link> {
        let own = &self.timeline.packets[self.end];
        match own[earlier].got {
            Some(run) => self.not_acknowledged(packet, earlier, run),
            None if own[earlier].again => vec![Link::RetransmissionLost { packet: earlier }],
            None => self.lost(packet, true),
        }
    }

    /// It had arrived.
    fn not_acknowledged(&self, packet: usize, earlier: usize, run: usize) -> Vec<Link> {
        let theirs = &self.timeline.packets[1 - self.end];
        let steps = &self.timeline.steps[1 - self.end];
        let until = self.timeline.packets[self.end][packet].got;
        let until = until.unwrap_or(steps.len());
        let covers = |(_, it): &(usize, &super::timeline::Packet<'_>)| {
            it.run >= run && it.acknowledges > self.first()
        };
        let mut answers = theirs.iter().enumerate().filter(covers).peekable();
        let next = answers.peek().map(|(_, it)| steps[it.run].at);
        let sent: Vec<usize> = answers
            .take_while(|(_, it)| it.run < until)
            .map(|(number, _)| number)
            .collect();
        let lost = sent.iter().all(|number| theirs[*number].got.is_none());
        if !sent.is_empty() && lost {
            return vec![Link::AckDrops { packets: sent }];
        }
        if !steps[run].after.is_some_and(State::delays_acknowledgment) {
            let coming = sent.first();
            return coming.map_or(Vec::new(), |packet| {
                vec![Link::TimeoutTooEarly { packet: *packet }]
            });
        }
        let held = next.map_or(Duration::ZERO, |next| between(steps[run].at, next));
        self.delayed(earlier, run, held)
    }

    /// The acknowledgment of a packet that arrived then was delayed.
    fn delayed(&self, packet: usize, run: usize, held: Duration) -> Vec<Link> {
        if self.is_timeout(self.timeline.packets[self.end][packet].run) {
            return vec![Link::DelayedAckAfterTimeout { packet, run, held }];
        }
        let mut links = self.shrinking(run);
        links.push(Link::DelayedAck { packet, run, held });
        links
    }

    fn is_timeout(&self, run: usize) -> bool {
        let step = &self.timeline.steps[self.end][run];
        let timer = is_write_timer(step.handler);
        timer && step.before.map(State::pending) == Some(Pending::Retransmission)
    }

    /// Packets before this one that are not acknowledged, were lost, and were not sent again since.
    fn lost_before(&self, packet: usize) -> Vec<usize> {
        let own = &self.timeline.packets[self.end][..packet];
        let first = self.first();
        let mut lost = Vec::new();
        let mut again = std::collections::BTreeSet::new();
        for (number, it) in own.iter().enumerate().rev() {
            if !it.has_data() || it.bytes.end <= first {
                // Sent in order: what is before was acknowledged, unless it is a retransmission.
                if it.has_data() && !it.again {
                    break;
                }
                continue;
            }
            let newest = again.insert(it.bytes.start);
            if newest && it.got.is_none() {
                lost.push(number);
            }
        }
        lost.reverse();
        lost
    }

    /// Packets were lost: why was it not noticed earlier?
    fn lost(&self, packet: usize, tail: bool) -> Vec<Link> {
        let own = &self.timeline.packets[self.end];
        let lost = self.lost_before(packet);
        let Some(first) = lost.first().copied() else {
            return Vec::new();
        };
        let after = own[first].bytes.end;
        let behind = own[first + 1..packet]
            .iter()
            .any(|it| it.has_data() && it.bytes.start >= after && it.got.is_some());
        if !behind {
            return if tail {
                vec![Link::TailDrops { packets: lost }]
            } else {
                Vec::new()
            };
        }
        self.duplicates(first)
    }

    /// Acknowledgments that repeat a number, and which of them announce another window and acknowledge nothing selectively.
    fn repeated(&self, lost: usize) -> (Vec<usize>, Vec<usize>) {
        let steps = &self.timeline.steps[self.end];
        let theirs = &self.timeline.packets[1 - self.end];
        let mut window = None;
        let (mut all, mut changed) = (Vec::new(), Vec::new());
        for run in self.timeline.packets[self.end][lost].run..self.run {
            let Some(number) = steps[run].packet() else {
                continue;
            };
            let Some(answer) = theirs.get(number) else {
                continue;
            };
            let same = run > 0 && steps[run - 1].acknowledged == self.first();
            if answer.is_pure() && same && answer.acknowledges == self.first() {
                all.push(number);
                if answer.header.sack.is_empty() && window != Some(answer.header.window) {
                    changed.push(number);
                }
            }
            window = Some(answer.header.window);
        }
        (all, changed)
    }

    fn duplicates(&self, lost: usize) -> Vec<Link> {
        let (all, changed) = self.repeated(lost);
        let initial = self.rules.initial;
        let threshold = self.before().map_or(initial, State::reordering);
        let counted = all.len() - changed.len();
        if changed.len() >= initial as usize && counted < threshold as usize {
            return vec![Link::WindowUpdates {
                lost,
                packets: changed,
            }];
        }
        if !self.rules.counts {
            return Vec::new();
        }
        let reported = self.before().map_or(0, State::sacked);
        let duplicates = reported.max(all.len() as u32);
        let since = self.timeline.packets[self.end][lost].run;
        if duplicates < initial {
            return vec![Link::TooFewDuplicateAcks {
                lost,
                duplicates,
                needed: threshold,
                since,
            }];
        }
        if threshold > initial {
            return vec![Link::RaisedThreshold {
                lost,
                duplicates,
                threshold,
                initial,
                since,
                raised: self.raised(),
            }];
        }
        Vec::new()
    }

    /// When the threshold became what it is.
    fn raised(&self) -> Option<(Moment, usize)> {
        let steps = &self.timeline.steps[self.end][..self.run];
        let step = steps.iter().rev().find(|step| {
            let change = step.before.zip(step.after);
            change.is_some_and(|(before, after)| after.reordering() > before.reordering())
        })?;
        Some((step.at, step.packet()?))
    }

    /// Later than what came back reported the loss, or than a round trip after it. Duplicates of one round trip come one after the other.
    fn fast_retransmission(&self) -> Vec<Link> {
        let Some(packet) = self.sent() else {
            return Vec::new();
        };
        let steps = &self.timeline.steps[self.end][..self.run];
        let duplicates = steps.iter().rev().take_while(|step| {
            step.acknowledged == self.first() && step.after.is_some_and(|it| it.sacked() > 0)
        });
        let reported = duplicates.last().map_or(self.now(), |step| step.at);
        let trip = Duration::from_micros(self.before().map_or(0, State::srtt));
        if between(reported, self.now()) > PAUSE.max(trip) {
            return self.lost(packet, false);
        }
        let own = &self.timeline.packets[self.end];
        let long_ago = |number: &usize| {
            let lost = &own[*number];
            // A timer that had something sent meanwhile is a wait of its own.
            let timer = steps[lost.run..].iter().any(|step| {
                let sent = own[step.sent.clone()].iter().any(|it| it.has_data());
                sent && is_write_timer(step.handler)
            });
            !lost.again && !timer && between(lost.at, reported) > PAUSE + 2 * trip
        };
        let lost = self.lost_before(packet).into_iter();
        let packets: Vec<usize> = lost.filter(long_ago).collect();
        match packets.is_empty() {
            true => Vec::new(),
            false => vec![Link::TailDrops { packets }],
        }
    }

    fn now(&self) -> Moment {
        self.timeline.steps[self.end][self.run].at
    }

    /// A probe came for lost packets at the end, or for acknowledgments that were; early ones are as they should be.
    fn lost_tail(&self) -> Vec<Link> {
        let Some(packet) = self.sent() else {
            return Vec::new();
        };
        let own = &self.timeline.packets[self.end];
        let mut links = match own[packet].again {
            true => self.what_came_of(packet),
            // New data is sent where there is some (RFC 8985 section 7.3): it is about the last before it.
            false => match own[..packet].iter().rposition(|it| it.has_data()) {
                Some(last) => self.unanswered(packet, last),
                None => Vec::new(),
            },
        };
        links.retain(|link| !matches!(link, Link::TimeoutTooEarly { .. }));
        links
    }

    fn delayed_ack(&self) -> Vec<Link> {
        let step = &self.timeline.steps[self.end][self.run];
        let steps = &self.timeline.steps[1 - self.end];
        let own = &self.timeline.packets[self.end];
        let theirs = &self.timeline.packets[1 - self.end];
        let Some(answer) = step.packet().and_then(|number| theirs.get(number)) else {
            return Vec::new();
        };
        let data = |run: &usize| {
            let packet = steps[*run].packet();
            packet.is_some_and(|number| own.get(number).is_some_and(|it| it.has_data()))
        };
        let Some(run) = (0..answer.run).rev().find(data) else {
            return Vec::new();
        };
        let Some(packet) = steps[run].packet() else {
            return Vec::new();
        };
        let held = between(steps[run].at, steps[answer.run].at);
        self.delayed(packet, run, held)
    }

    /// More than a packet waits for its acknowledgment, and the application has not read.
    fn shrinking(&self, run: usize) -> Vec<Link> {
        let Some(state) = self.timeline.steps[1 - self.end][run].after else {
            return Vec::new();
        };
        let more = u64::from(state.unacknowledged()) > self.timeline.largest[self.end];
        if more && state.unread() > 0 && state.delays_acknowledgment() {
            return vec![Link::ShrinkingReceiveBuffer {
                run,
                unacknowledged: state.unacknowledged(),
                unread: state.unread(),
            }];
        }
        Vec::new()
    }

    fn window(&self) -> Vec<Link> {
        let steps = &self.timeline.steps[self.end][..self.run];
        let last = steps.iter().rev().find_map(|step| step.packet());
        let (Some(packet), Some(before)) = (last, self.before()) else {
            return Vec::new();
        };
        let window = before.send_window();
        let announced = if u64::from(window) < self.timeline.segment[self.end] {
            Link::ZeroWindow { packet, window }
        } else {
            Link::FullWindow {
                packet,
                window,
                outstanding: before.outstanding(),
            }
        };
        let unread = self
            .read_late(window)
            .or_else(|| self.unread(packet, window));
        std::iter::once(announced).chain(unread).collect()
    }

    /// Reading ended the wait, or the timer of an acknowledgment that waited for it, and for half of the wait or more everything that came had been there; a
    /// tenth suffices where as much as the window was unread.
    fn read_late(&self, window: u32) -> Option<Link> {
        let steps = &self.timeline.steps[1 - self.end];
        let packet = self.timeline.steps[self.end][self.run].packet()?;
        let run = self.timeline.packets[1 - self.end].get(packet)?.run;
        let read = matches!(
            steps[run].handler,
            Handler::Receive { .. }
                | Handler::Resume
                | Handler::Timer {
                    timer: Timer::DelayedAck,
                    ..
                }
        );
        let arrival = steps[..run].iter().rfind(|it| it.packet().is_some())?;
        let unread = steps[run].before.map_or(0, State::unread);
        // Some of it passes while what fills the window still comes in.
        let most = if unread >= window { 10 } else { 2 };
        let late = between(arrival.at, steps[run].at) * most >= between(self.since, self.now());
        (read && late && unread > 0).then_some(Link::Unread { packet, unread })
    }

    /// As much as the window that was left, or more, was unread when this packet of the other end announced that; without what the same run brought: an application that reads at
    /// once has not had the time for it.
    fn unread(&self, packet: usize, window: u32) -> Option<Link> {
        let answer = self.timeline.packets[1 - self.end].get(packet)?;
        let state = self.timeline.steps[1 - self.end][answer.run].before?;
        let unread = state.unread();
        (unread > 0 && unread >= window).then_some(Link::Unread { packet, unread })
    }
}

/// Of retransmissions and probes.
fn is_write_timer(handler: &Handler) -> bool {
    matches!(
        handler,
        Handler::Timer {
            timer: Timer::Write,
            ..
        }
    )
}

fn between(from: Moment, to: Moment) -> Duration {
    Duration::from_nanos(to.0.saturating_sub(from.0))
}
