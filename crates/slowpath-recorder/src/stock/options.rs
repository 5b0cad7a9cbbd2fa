// SPDX-License-Identifier: Apache-2.0
//! `setsockopt` and what else a program does with a socket, as runs: twin of `probes/handlers/options.bpf.h`.
//!
//! Options that were set before the recorder knew the socket are runs at its beginning: of the end that connects before it does, of the other one before the
//! first SYN, when they are the listener's.

use super::call::{Call, CallRequest};
use super::event::Event;
use super::side::Side;
use super::wire::{Metrics, Set};
use slowpath_recording::fields::{Field, SocketFields};
use slowpath_recording::options::{self, Effect, IP, SOCKET, TCP};
use slowpath_recording::{Handler, Metric, Moment, Outcome, Run};

/// `SOCK_SNDBUF_LOCK`, `SOCK_RCVBUF_LOCK`.
const LOCKED: [u32; 2] = [1, 2];
/// `TCP_NAGLE_OFF`, `TCP_NAGLE_CORK`.
const NAGLE: [u32; 2] = [1, 2];
/// Bits of `enum sock_flags`.
const OUT_OF_BAND: u32 = 1 << 2;
const KEEP: u32 = 1 << 3;
const LINGER: u32 = 1 << 4;
/// `TCP_RTO_MAX` in seconds, see [`seconds_of`].
const RTO_MAX: i64 = 120;

const SEND_BUFFER: u16 = 7;
const RECEIVE_BUFFER: u16 = 8;
const LINGERS: u16 = 13;
const SEND_BUFFER_FORCED: u16 = 32;
const RECEIVE_BUFFER_FORCED: u16 = 33;
const PACING: u16 = 47;
pub(super) const CONGESTION: u16 = 13;
/// The longest name that a value has room for.
const LONGEST: usize = 8;

/// `EINTR`.
const INTERRUPTED: i32 = -4;

/// What a signal ended returns one of `ERESTARTSYS` to `ERESTART_RESTARTBLOCK` (include/linux/errno.h), of which programs see `EINTR` or nothing.
pub(super) fn visible(returned: i32) -> i32 {
    if (-516..=-512).contains(&returned) {
        INTERRUPTED
    } else {
        returned
    }
}

/// A congestion control's name as a value.
pub(super) fn congestion(name: &str) -> Option<i64> {
    let mut bytes = [0; LONGEST];
    let room = bytes.get_mut(..name.len())?;
    room.copy_from_slice(name.as_bytes());
    Some(i64::from_le_bytes(bytes))
}

/// Of a congestion control that the end has beside the other's.
pub(super) fn set_congestion(name: &str) -> Handler {
    match congestion(name) {
        Some(value) => set((TCP, CONGESTION), value),
        None => options::LONG_CONGESTION,
    }
}

fn set((level, name): (u16, u16), value: i64) -> Handler {
    Handler::Option { level, name, value }
}

/// The seconds in which this number of SYN-ACKs are sent again: what `secs_to_retrans` makes the number of.
fn seconds_of(retransmissions: u32) -> i64 {
    let mut timeout = 1;
    (0..retransmissions.min(255)).fold(0, |period, _| {
        let all = period + timeout;
        timeout = (timeout * 2).min(RTO_MAX);
        all
    })
}

/// The options that a program had set before the socket was recorded; times are ticks where the kernel keeps ticks.
pub(super) fn inherited(set_before: &Set, hz: u32) -> Vec<Handler> {
    let Set {
        locked,
        send_buffer: send,
        receive_buffer: receive,
        nagle,
        segment,
        window_clamp: clamp,
        flags,
        keep_idle: idle,
        keep_interval: interval,
        keep_count: count,
        linger,
        low_water,
        unsent_low_water: unsent,
        user_timeout,
        syn_count,
        linger_2,
        defer_accept: defer,
        pacing,
        pacing_high,
        service,
        time_to_live,
        discovery,
        pingpong,
    } = *set_before;
    let seconds = |ticks: u32| i64::from(ticks / hz.max(1));
    let pace = (i64::from(pacing_high) << 32) | i64::from(pacing);
    let after_end = match linger_2 {
        ..0 => -1,
        ticks => i64::from(ticks) / i64::from(hz.max(1)),
    };
    let lingers = 1 | (seconds(linger) << 32);
    // Each with what makes it differ from a socket without options.
    let all = [
        (
            locked & LOCKED[0] != 0,
            (SOCKET, SEND_BUFFER_FORCED),
            i64::from(send / 2),
        ),
        (
            locked & LOCKED[1] != 0,
            (SOCKET, RECEIVE_BUFFER_FORCED),
            i64::from(receive / 2),
        ),
        (nagle & NAGLE[0] != 0, (TCP, 1), 1),
        (nagle & NAGLE[1] != 0, (TCP, 3), 1),
        (segment != 0, (TCP, 2), segment.into()),
        (clamp != 0, (TCP, 10), clamp.into()),
        (flags & OUT_OF_BAND != 0, (SOCKET, 10), 1),
        (idle != 0, (TCP, 4), seconds(idle)),
        (interval != 0, (TCP, 5), seconds(interval)),
        (count != 0, (TCP, 6), count.into()),
        (flags & KEEP != 0, (SOCKET, 9), 1),
        (flags & LINGER != 0, (SOCKET, LINGERS), lingers),
        (low_water != 1, (SOCKET, 18), low_water.into()),
        (unsent != 0, (TCP, 25), unsent.into()),
        (user_timeout != 0, (TCP, 18), user_timeout.into()),
        (syn_count != 0, (TCP, 7), syn_count.into()),
        (linger_2 != 0, (TCP, 8), after_end),
        (defer != 0, (TCP, 9), seconds_of(defer)),
        (pace != -1, (SOCKET, PACING), pace),
        (service != 0, (IP, 1), service.into()),
        (time_to_live >= 0, (IP, 2), time_to_live.into()),
        // IP_PMTUDISC_WANT
        (discovery != 1, (IP, 10), discovery.into()),
        (pingpong != 0, (TCP, 12), 0),
    ];
    let set_before = all.into_iter().filter(|(differs, ..)| *differs);
    set_before
        .map(|(_, which, value)| set(which, value))
        .collect()
}

/// What a call of `setsockopt` asked for.
fn requested(request: CallRequest) -> Option<Handler> {
    let CallRequest::Option {
        level,
        name,
        value,
        length,
    } = request
    else {
        return None;
    };
    let (level, name) = (u16::try_from(level).ok()?, u16::try_from(name).ok()?);
    let (long, low) = (value as i64, value as u32);
    let value = match (level, name) {
        (SOCKET, LINGERS) => long,
        (SOCKET, PACING) if length >= 8 => long,
        // ~0: no limit.
        (SOCKET, PACING) if low == u32::MAX => -1,
        (SOCKET, PACING) => low.into(),
        (TCP, CONGESTION) => {
            let bytes = long.to_le_bytes();
            let name = bytes.split(|byte| *byte == 0).next().unwrap_or_default();
            if name.len() == LONGEST && length as usize > LONGEST {
                return Some(options::LONG_CONGESTION);
            }
            let mut exact = [0; LONGEST];
            exact[..name.len()].copy_from_slice(name);
            i64::from_le_bytes(exact)
        }
        // IP takes a byte as well.
        (IP, _) if length < 4 => i64::from(low & 0xff),
        _ => i64::from(low as i32),
    };
    Some(set((level, name), value))
}

impl Call {
    /// What the run of this call is, as it begins.
    pub(super) fn option(&self) -> Handler {
        requested(self.request).unwrap_or(options::LOCKED)
    }
}

impl Side {
    /// The options that were set before anything happened, as runs.
    pub(super) fn inherited_runs(&self, at: Moment, jiffies: u32) -> Vec<Run> {
        let run = |handler: &Handler| Run {
            at,
            jiffies,
            handler: handler.clone(),
            outcomes: Vec::new(),
            check: None,
        };
        self.inherited.iter().map(run).collect()
    }

    /// Where `sockopt_lock_sock` has `lock_sock_nested` inlined, no event shows that the call has the lock until it does something with it.
    pub(super) fn option_locks(&mut self, event: &Event) {
        let call = self.calls.get(&event.of.task);
        let waits = call
            .is_some_and(|it| matches!(it.request, CallRequest::Option { .. }) && it.run.is_none());
        if waits && event.owned && self.current.is_none() {
            self.lock(event);
        }
    }

    /// What a call returned belongs to its first run.
    pub(super) fn returned(&mut self, call: Call, returned: i32) {
        let run = call.run.and_then(|place| self.log.run_at(place));
        if let Some(Handler::Send { result, .. } | Handler::Receive { result, .. }) =
            run.map(|run| &mut run.handler)
        {
            *result = returned;
        }
    }

    /// `setsockopt` returned. What changes nothing, or was refused, is only a call that had the lock, if it had.
    pub(super) fn option_returned(&mut self, call: &Call, event: &Event, result: i32) {
        let failed = result < 0;
        let asked = call.option();
        let Handler::Option { level, name, .. } = asked else {
            return;
        };
        let handler = match options::effect(level, name) {
            Effect::None => options::LOCKED,
            _ if failed => options::LOCKED,
            _ => match (level, name, event.fields) {
                // Half of what came of it: whatever the largest allowed was.
                (SOCKET, SEND_BUFFER | SEND_BUFFER_FORCED, Some(fields)) => set(
                    (SOCKET, SEND_BUFFER_FORCED),
                    i64::from(fields[Field::SendBuffer] / 2),
                ),
                (SOCKET, RECEIVE_BUFFER | RECEIVE_BUFFER_FORCED, Some(fields)) => set(
                    (SOCKET, RECEIVE_BUFFER_FORCED),
                    i64::from(fields[Field::ReceiveBuffer] / 2),
                ),
                _ => asked,
            },
        };
        match call.run {
            Some(place) => {
                if let Some(run) = self.log.run_at(place) {
                    run.handler = handler;
                }
            }
            None if handler != options::LOCKED => {
                self.look_for_others(event);
                self.aside(event, handler);
            }
            None => {}
        }
    }

    /// A replay's end makes one call at a time.
    pub(super) fn look_for_others(&mut self, event: &Event) {
        let other = |(task, call): (&u32, &Call)| *task != event.of.task && call.run.is_some();
        if self.calls.iter().any(other) && self.current.is_none() {
            self.aside(event, options::TWO_TASKS);
        }
    }

    /// What earlier connections to the same host left.
    pub(super) fn metrics(&mut self, left: &Metrics) -> bool {
        let Some(current) = &mut self.current else {
            return false;
        };
        for (metric, value) in [
            (Metric::Timeout, left.timeout),
            (Metric::Reordering, left.reordering),
            (Metric::SlowStartThreshold, left.threshold),
            (Metric::LargestWindow, left.largest_window),
        ] {
            current.outcome(Outcome::Metrics { metric, value });
        }
        true
    }

    /// What a program did without the lock.
    pub(super) fn aside(&mut self, event: &Event, handler: Handler) {
        let run = Run {
            at: Moment(event.at()),
            jiffies: event.jiffies(),
            handler,
            outcomes: Vec::new(),
            check: None,
        };
        if self.current.is_some() {
            self.put_off.push(run);
        } else {
            let state = event.fields.unwrap_or(SocketFields::NONE);
            self.log.push(run, state);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::{Set, congestion, inherited, seconds_of};
    use slowpath_recording::Handler;
    use zerocopy::FromZeros;

    /// `secs_to_retrans` of net/ipv4/tcp.c, with `TCP_TIMEOUT_INIT` and `TCP_RTO_MAX` in seconds.
    fn retransmissions(seconds: i64) -> u32 {
        let (mut timeout, mut period, mut count) = (1, 1, 1);
        while seconds > period && count < 255 {
            count += 1;
            timeout = (timeout * 2).min(120);
            period += timeout;
        }
        count
    }

    #[test]
    fn seconds_make_as_many_retransmissions() {
        for count in [1, 2, 3, 7, 8, 20, 255] {
            assert_eq!(retransmissions(seconds_of(count)), count);
        }
    }

    /// What a socket has whose options are the usual ones: SO_RCVLOWAT 1, no limit of the rate, no time to live of its own, IP_PMTUDISC_WANT.
    fn usual() -> Set {
        Set {
            low_water: 1,
            pacing: u32::MAX,
            pacing_high: u32::MAX,
            time_to_live: -1,
            discovery: 1,
            ..Set::new_zeroed()
        }
    }

    #[test]
    fn a_socket_without_options_has_none() {
        assert_eq!(inherited(&usual(), 250), []);
    }

    #[test]
    fn what_was_set_before_becomes_options() {
        let option = |level, name, value| Handler::Option { level, name, value };
        // A receive buffer of 80,000 bytes that was set (SO_RCVBUF doubles), TCP_NODELAY (TCP_NAGLE_OFF), 30 s of keepalive and 5 s of SO_LINGER, all at 250 ticks a second.
        let all = Set {
            locked: 2,
            send_buffer: 50_000,
            receive_buffer: 80_000,
            nagle: 1,
            flags: 1 << 3 | 1 << 4,
            keep_idle: 7_500,
            linger: 1_250,
            ..usual()
        };
        let expected = [
            option(1, 33, 40_000),
            option(6, 1, 1),
            option(6, 4, 30),
            option(1, 9, 1),
            option(1, 13, 1 | 5 << 32),
        ];
        assert_eq!(inherited(&all, 250), expected);
    }

    #[test]
    fn a_name_is_a_number_as_far_as_there_is_room() {
        assert_eq!(congestion("bbr"), Some(0x72_62_62));
        assert_eq!(
            congestion("scalable").map(i64::to_le_bytes),
            Some(*b"scalable")
        );
        assert_eq!(congestion("highspeed"), None);
    }
}
