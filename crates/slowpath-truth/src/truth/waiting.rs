// SPDX-License-Identifier: Apache-2.0
//! Data that waits: for room in the send buffer, for the receiver's window, for the network.

use super::Truth;
use crate::stream::{State, Stream};

/// SendBufferLimited: the application waits for room although everything it has handed over
/// is under way, none of it is acknowledged, and the receiver's window has room for another
/// segment. Whatever the congestion window is, there is nothing for it to hold back.
pub(super) fn send_buffer(stream: &Stream) -> Truth {
    let under_way = |s: &State| s.unsent() == 0 && s.flight() > 0;
    Truth::state(stream, |s| {
        s.no_room_to_write() && under_way(s) && s.room() >= stream.mss
    })
}

/// The announced window has no room for the next segment that waits.
fn no_room(stream: &Stream, s: &State) -> bool {
    s.unsent() > 0 && s.room() < s.unsent().min(stream.mss)
}

/// ReceiverWindowLimited: data waits in the kernel and the announced window has no room for
/// its next segment.
pub(super) fn receiver_window(stream: &Stream) -> Truth {
    Truth::state(stream, |s| no_room(stream, s))
}

/// ZeroWindow: of that, while the announced window is zero, or nothing is under way that could
/// bring an acknowledgement.
pub(super) fn zero_window(stream: &Stream) -> Truth {
    let closed = |s: &State| s.window == 0 || s.flight() == 0;
    Truth::state(stream, |s| no_room(stream, s) && closed(s))
}

/// A segment that leaves so soon after an ACK was let go by it, nanoseconds: a host's own time.
const AT_ONCE: u64 = 1_000_000;

/// CongestionWindowLimited: data waits although the announced window has room for the next
/// segment, nothing is being repaired, and Nagle's algorithm does not hold it, until an ACK lets
/// the next segment go; the card passes nothing on for longer than two segments take. What a
/// timer lets go (pacing) or the card is doubtful.
pub(super) fn congestion_window(stream: &Stream) -> Truth {
    let holds = |s: &State| {
        let nagle = !stream.nodelay && s.nagle(stream.mss);
        s.unsent() > 0 && !no_room(stream, s) && !nagle
    };
    let (mut clear, mut doubtful) = (0, 0);
    let states = stream.states();
    // Between two segments that were sent.
    for gap in states.chunk_by(|(_, one), (_, other)| one.sends == other.sends) {
        let waits = gap.iter().filter(|(_, state)| holds(state));
        let time: u64 = waits.map(|(span, _)| span.length()).sum();
        let (Some((first, _)), Some((last, state))) = (gap.first(), gap.last()) else {
            continue;
        };
        let let_go = state.heard > first.from && state.heard + AT_ONCE > last.to;
        let idle = last.to - first.from > 2 * stream.card_ns;
        let sure = let_go && idle && !state.repairing;
        *(if sure { &mut clear } else { &mut doubtful }) += time;
    }
    Truth::lasting(stream, clear, doubtful)
}
