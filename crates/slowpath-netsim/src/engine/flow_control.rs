// SPDX-License-Identifier: Apache-2.0
//! Priority flow control between switches, and from switches to hosts: frames on their way, and what
//! hosts may not send.
//!
//! What leaves a switch's buffer may let others go on, so that in such networks every start of a
//! transmission is an event of its own; elsewhere none is.

use slowpath_switch::{PauseCounts, PortId, Time};
use std::cmp::Reverse;
use std::collections::BinaryHeap;

/// What is due. At equal times in the order in which it was planned.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(super) enum Event {
    /// A switch's port can start: that of the link of this number.
    Start(u32),
    /// A frame is at the end of the link of this number.
    Frame { link: u32, class: u8, pause: bool },
}

/// What a host may not send.
#[derive(Clone, Copy, Debug, Default)]
struct HostPause {
    /// A bit a class.
    paused: u8,
    since: Time,
    counts: PauseCounts,
}

impl HostPause {
    fn counts(&self, until: Time) -> PauseCounts {
        let mut counts = self.counts;
        if self.paused != 0 {
            counts.paused = counts.paused + (until - self.since);
        }
        counts
    }
}

/// Flow control of a network.
pub(super) struct FlowControl {
    events: BinaryHeap<Reverse<(Time, u64, Event)>>,
    planned: u64,
    /// By link: when its port's next start is due among the events.
    starts: Vec<Time>,
    hosts: Vec<HostPause>,
}

impl FlowControl {
    pub fn new(links: usize, hosts: usize) -> Self {
        FlowControl {
            events: BinaryHeap::new(),
            planned: 0,
            starts: vec![Time::MAX; links],
            hosts: vec![HostPause::default(); hosts],
        }
    }

    fn plan(&mut self, at: Time, event: Event) {
        self.planned += 1;
        self.events.push(Reverse((at, self.planned, event)));
    }

    /// A port's next start is due then; never, if that is the latest of times.
    pub fn starts_at(&mut self, link: u32, due: Time) {
        let known = &mut self.starts[link as usize];
        if due != Time::MAX && due != *known {
            *known = due;
            self.plan(due, Event::Start(link));
        }
    }

    pub fn send(&mut self, arrival: Time, link: u32, class: u8, pause: bool) {
        self.plan(arrival, Event::Frame { link, class, pause });
    }

    /// When the next event is due.
    pub fn next(&self) -> Time {
        self.events.peek().map_or(Time::MAX, |event| event.0.0)
    }

    /// Takes the next event.
    pub fn pop(&mut self) -> Option<Event> {
        let Reverse((at, _, event)) = self.events.pop()?;
        if let Event::Start(link) = event
            && self.starts[link as usize] == at
        {
            self.starts[link as usize] = Time::MAX;
        }
        Some(event)
    }

    /// A frame came to a host. Returns whether there is now a class that it may not send.
    pub fn receive(&mut self, now: Time, host: u32, classes: u8, pause: bool) -> bool {
        let state = &mut self.hosts[host as usize];
        let before = state.paused;
        match pause {
            true => state.paused |= classes,
            false => state.paused &= !classes,
        }
        state.counts.received += u64::from(pause);
        match (before, state.paused) {
            (0, 1..) => state.since = now,
            (1.., 0) => state.counts.paused = state.counts.paused + (now - state.since),
            _ => {}
        }
        state.paused != 0
    }

    /// Whether a host may not send a class.
    pub fn is_paused(&self, host: u32, class: u8) -> bool {
        self.hosts[host as usize].paused >> class & 1 == 1
    }

    /// What a host counted until then.
    pub fn counts(&self, host: u32, until: Time) -> PauseCounts {
        self.hosts[host as usize].counts(until)
    }
}

/// Ports that wait for each other in a circle, and so for good.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Deadlock {
    /// Since when: the last of them was stopped then.
    pub since: Time,
    /// The circle: each port waits for the next one, the last for the first.
    pub circle: Vec<(super::SwitchId, PortId)>,
    /// Ports that wait for good: the circle, and those that wait for it.
    pub ports: usize,
}

/// What flow control did in a network.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct PauseRecord {
    /// By host.
    pub hosts: Vec<PauseCounts>,
    /// By port, as [`Results::ports`](crate::results::Results::ports).
    pub ports: Vec<PauseCounts>,
    /// Whether ports wait for each other for good.
    pub deadlock: Option<Deadlock>,
}

#[cfg(test)]
mod tests {
    use super::*;
    use slowpath_switch::Span;

    /// A host that two classes are stopped of, one after the other: paused while either is.
    #[test]
    fn a_host_is_paused_while_it_may_not_send_some_class() {
        let mut control = FlowControl::new(1, 1);
        let at = |us| Time::ZERO + Span::from_micros(us);
        assert!(control.receive(at(1), 0, 1, true));
        assert!(control.receive(at(3), 0, 2, true));
        assert!(control.is_paused(0, 0) && control.is_paused(0, 1) && !control.is_paused(0, 2));
        assert!(control.receive(at(4), 0, 1, false));
        assert_eq!(control.counts(0, at(6)).paused, Span::from_micros(5));
        assert!(!control.receive(at(9), 0, 2, false));
        let counts = control.counts(0, at(20));
        assert_eq!((counts.received, counts.paused), (2, Span::from_micros(8)));
    }

    #[test]
    fn events_come_by_time_and_then_as_planned() {
        let mut control = FlowControl::new(2, 1);
        control.send(Time(5), 1, 0, true);
        control.starts_at(0, Time(5));
        // Planned already; and never.
        control.starts_at(0, Time(5));
        control.starts_at(1, Time::MAX);
        control.starts_at(1, Time(3));
        assert_eq!(control.next(), Time(3));
        assert_eq!(control.pop(), Some(Event::Start(1)));
        let frame = Event::Frame {
            link: 1,
            class: 0,
            pause: true,
        };
        assert_eq!(control.pop(), Some(frame));
        assert_eq!(control.pop(), Some(Event::Start(0)));
        assert_eq!((control.pop(), control.next()), (None, Time::MAX));
        // Once more after it came.
        control.starts_at(0, Time(5));
        assert_eq!(control.next(), Time(5));
    }
}
