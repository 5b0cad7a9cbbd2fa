// SPDX-License-Identifier: Apache-2.0
//! The state of an end after a run of one of its handlers, as a replay probes it.

use slowpath_recording::fields::{Field, SocketFields};

/// `ICSK_ACK_TIMER` of `icsk_ack.pending` (include/net/inet_connection_sock.h): the timer of the delayed acknowledgment runs.
const ACK_TIMER: u32 = 2;

/// What the timer of an end that sends waits for: `icsk_pending`, `ICSK_TIME_*` in include/net/inet_connection_sock.h.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Pending {
    /// Nothing.
    Nothing,
    /// `ICSK_TIME_RETRANS`.
    Retransmission,
    /// `ICSK_TIME_PROBE0`.
    ZeroWindowProbe,
    /// `ICSK_TIME_LOSS_PROBE`.
    LossProbe,
    /// `ICSK_TIME_REO_TIMEOUT`: RACK waits for what may be late only.
    Reordering,
    /// A number that Linux 6.12 does not have.
    Unknown(u32),
}

/// A window that bounds how much may be on its way.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Window {
    /// The sender's congestion window.
    Congestion,
    /// The window that the receiver announced.
    Receive,
}

/// One probe.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct State {
    fields: SocketFields,
}

macro_rules! fields {
    ($($(#[$doc:meta])* $name:ident = $field:ident;)*) => {
        $($(#[$doc])* pub fn $name(&self) -> u32 { self.fields[Field::$field] })*
    };
}

impl State {
    /// Of these fields.
    pub fn new(fields: SocketFields) -> Self {
        State { fields }
    }

    /// Whether there was a socket: a connection that has not been accepted yet has none.
    pub fn is_there(&self) -> bool {
        self.fields[Field::State] != 0
    }

    fields! {
        /// Bytes sent and not acknowledged.
        outstanding = InFlight;
        /// Bytes received since a window was announced last: what no acknowledgment has covered yet.
        unacknowledged = Unannounced;
        /// Bytes that the application has not read.
        unread = Unread;
        /// The window that the other end announced last.
        send_window = SendWindow;
        /// Packets.
        congestion_window = CongestionWindow;
        /// Packets sent and not acknowledged, cumulatively (`packets_out`).
        packets_out = PacketsOut;
        /// Packets that are taken for lost.
        lost = LostOut;
        /// Packets sent again and not acknowledged.
        retransmitted = RetransmittedOut;
        /// Packets; huge: there was no loss yet.
        slow_start_threshold = SlowStartThreshold;
        /// Bytes written and not acknowledged.
        written = Queued;
        /// Packets that selective acknowledgments (or duplicates, without them) have reported.
        sacked = SackedOut;
        /// How many duplicates make a loss (`tp->reordering`).
        reordering = Reordering;
        /// How losses are dealt with: `TCP_CA_*`.
        recovery = RecoveryState;
        /// How often the timeout has been doubled.
        backoff = Backoff;
        /// Segments sent in all.
        segments_out = SegmentsOut;
    }

    /// Bytes written and not sent.
    pub fn unsent(&self) -> u32 {
        self.written().saturating_sub(self.outstanding())
    }

    /// Packets that are taken to be on their way (`tcp_packets_in_flight`).
    pub fn packets_in_flight(&self) -> u32 {
        let left = self.sacked().saturating_add(self.lost());
        (self.packets_out().saturating_add(self.retransmitted())).saturating_sub(left)
    }

    /// The window that kept a sender from sending more of what was written, in segments of so many bytes: in the kernel's order, as
    /// `tcp_write_xmit` tries them, and where `tcp_tso_should_defer` waits for more room, the smaller one. `None`: neither did.
    pub fn limiting_window(&self, segment: u64) -> Option<Window> {
        let unsent = u64::from(self.unsent());
        if unsent == 0 {
            return None;
        }
        let congestion = u64::from(self.congestion_window()) * segment;
        let room = u64::from(
            self.congestion_window()
                .saturating_sub(self.packets_in_flight()),
        );
        let room = room * segment;
        let receive = u64::from(self.send_window().saturating_sub(self.outstanding()));
        if room == 0 {
            return Some(Window::Congestion);
        }
        if receive < segment.min(unsent) {
            return Some(Window::Receive);
        }
        // A third of the window is sent at once (`net.ipv4.tcp_tso_win_divisor`).
        let chunk = u64::from(self.send_window()).min(congestion) / 3;
        if room.min(receive) >= chunk {
            return None;
        }
        if room < receive {
            (room <= unsent).then_some(Window::Congestion)
        } else {
            (receive <= unsent).then_some(Window::Receive)
        }
    }

    /// What the timer waits for.
    pub fn pending(&self) -> Pending {
        match self.fields[Field::PendingTimer] {
            0 => Pending::Nothing,
            1 => Pending::Retransmission,
            3 => Pending::ZeroWindowProbe,
            5 => Pending::LossProbe,
            6 => Pending::Reordering,
            other => Pending::Unknown(other),
        }
    }

    /// The smoothed round trip in microseconds; 0: none yet. The kernel keeps eight times that.
    pub fn srtt(&self) -> u64 {
        u64::from(self.fields[Field::SmoothedRoundTrip] >> 3)
    }

    /// Whether an acknowledgment is being delayed.
    pub fn delays_acknowledgment(&self) -> bool {
        self.fields[Field::AckPending] & ACK_TIMER != 0
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use slowpath_recording::fields::{Variable, variables};

    fn at(name: &str) -> u32 {
        match variables([name]).as_deref() {
            Ok([Variable::Checked(field)]) => *field as u32,
            other => panic!("{name}: {other:?}"),
        }
    }

    #[test]
    fn fields_are_where_their_names_say() {
        let mut numbers = SocketFields::NONE;
        for (place, number) in numbers.0.iter_mut().enumerate() {
            *number = place as u32;
        }
        let state = State::new(numbers);
        let named = [
            ("in_flight_bytes", state.outstanding()),
            ("queued_bytes", state.written()),
            ("unannounced_bytes", state.unacknowledged()),
            ("unread_bytes", state.unread()),
            ("snd_wnd", state.send_window()),
            ("snd_cwnd", state.congestion_window()),
            ("packets_out", state.packets_out()),
            ("lost_out", state.lost()),
            ("retrans_out", state.retransmitted()),
            ("snd_ssthresh", state.slow_start_threshold()),
            ("sacked_out", state.sacked()),
            ("reordering", state.reordering()),
            ("ca_state", state.recovery()),
            ("backoff", state.backoff()),
            ("segs_out", state.segments_out()),
        ];
        for (name, place) in named {
            assert_eq!(at(name), place, "{name}");
        }
        assert_eq!(u64::from(at("srtt_us_x8")) / 8, state.srtt());
        assert_eq!((at("pending_timer"), at("ack_pending")), (26, 27));
    }

    fn sending(changes: &[(Field, u32)]) -> State {
        let mut fields = SocketFields::NONE;
        let usual = [
            (Field::CongestionWindow, 40),
            (Field::PacketsOut, 38),
            (Field::InFlight, 38 * 1_448),
            (Field::SendWindow, 49 * 1_448),
            (Field::Queued, 200 * 1_448),
        ];
        for (field, value) in usual.iter().chain(changes) {
            fields.0[*field as usize] = *value;
        }
        State::new(fields)
    }

    #[test]
    fn the_window_that_limits_is_the_one_that_the_kernel_tries_first_or_the_smaller() {
        let limit = |changes: &[(Field, u32)]| sending(changes).limiting_window(1_448);
        // Room for two packets in one window and for eleven in the other: a third of it is waited for.
        assert_eq!(limit(&[]), Some(Window::Congestion));
        assert_eq!(limit(&[(Field::PacketsOut, 40)]), Some(Window::Congestion));
        let full = (Field::SendWindow, 38 * 1_448 + 700);
        assert_eq!(limit(&[full]), Some(Window::Receive));
        // Both are full.
        let both = [(Field::PacketsOut, 40), full];
        assert_eq!(limit(&both), Some(Window::Congestion));
        assert_eq!(
            limit(&[(Field::CongestionWindow, 400)]),
            Some(Window::Receive)
        );
        let open = [
            (Field::CongestionWindow, 400),
            (Field::SendWindow, 400 * 1_448),
        ];
        assert_eq!(limit(&open), None);
        assert_eq!(limit(&[(Field::Queued, 38 * 1_448)]), None, "all is sent");
        let last = [full, (Field::Queued, 38 * 1_448 + 600)];
        assert_eq!(limit(&last), None, "what is left fits");
        // What is lost or has arrived is not on its way.
        let lost = [
            (Field::LostOut, 20),
            (Field::SackedOut, 10),
            (Field::RetransmittedOut, 2),
        ];
        assert_eq!(sending(&lost).packets_in_flight(), 10);
    }
}
