// SPDX-License-Identifier: Apache-2.0
//! This host's clock: what the kernel says of it, and how far it is from a server's.

use crate::answers::Flushed;
use crate::batch::{ClockOffset, SentClock};
use slowpath_model::WallMicros;
use std::time::{Duration, SystemTime, UNIX_EPOCH};

/// What the kernel could not be asked.
const UNKNOWN: u8 = 255;

/// The wall clock.
pub fn wall() -> WallMicros {
    let since = SystemTime::now().duration_since(UNIX_EPOCH);
    // Before 1970 a clock says nothing.
    WallMicros(since.map_or(0, |since| since.as_micros() as i64))
}

/// The wall clock now and what adjtimex(2) says of it.
pub fn sent_clock() -> SentClock {
    // SAFETY: all of timex are numbers, for which zero is valid; modes 0 changes nothing.
    let mut timex: libc::timex = unsafe { std::mem::zeroed() };
    // SAFETY: timex is a valid struct timex for the duration of the call.
    let state = unsafe { libc::adjtimex(&raw mut timex) };
    SentClock {
        sent: wall(),
        state: u8::try_from(state).unwrap_or(UNKNOWN),
        max_error_us: (state >= 0)
            .then(|| u32::try_from(timex.maxerror).ok())
            .flatten(),
    }
}

/// The offset of the server's clock from the host's, by the four timestamps of RFC 5905 section 8:
/// sent and answered by the host's clock, received and sent by the server's. `elapsed` is by a
/// monotonic clock, so that a clock that is set between does no harm.
pub fn offset_of(sent: WallMicros, elapsed: Duration, answer: &Flushed) -> ClockOffset {
    let elapsed = i128::try_from(elapsed.as_micros()).unwrap_or(i128::MAX);
    let (t1, t2, t3) = (
        i128::from(sent.0),
        i128::from(answer.received_us),
        i128::from(answer.sent_us),
    );
    let t4 = t1 + elapsed;
    let offset = ((t2 - t1) + (t3 - t4)) / 2;
    // A server whose clock was set between may state to have answered before it received.
    let error = ((t4 - t1) - (t3 - t2).clamp(0, elapsed)) / 2;
    ClockOffset {
        offset_us: offset.clamp(i64::MIN.into(), i64::MAX.into()) as i64,
        error_us: u32::try_from(error).unwrap_or(u32::MAX - 1),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::answers::ServerState;
    use crate::batch::Prefix;

    fn answer(received_us: i64, sent_us: i64) -> Flushed {
        Flushed {
            offset: 0,
            crc: Prefix::default(),
            received_us,
            sent_us,
            state: ServerState::default(),
        }
    }

    #[test]
    fn the_offset_is_found_within_half_of_the_time_under_way() {
        // The server is 1 h ahead; 3 ms there, 5 ms of work, 9 ms back.
        let hour = 3_600_000_000;
        let answer = answer(hour + 103_000, hour + 108_000);
        let offset = offset_of(WallMicros(100_000), Duration::from_millis(17), &answer);
        assert_eq!(offset.error_us, 6_000);
        assert!(offset.offset_us.abs_diff(hour) <= 6_000);
        assert_eq!(offset.offset_us, hour - 3_000);
    }

    #[test]
    fn a_server_that_states_nonsense_gives_no_negative_error() {
        for (received, sent) in [(i64::MAX, i64::MIN), (i64::MIN, i64::MAX), (5, 3)] {
            let offset = offset_of(
                WallMicros(0),
                Duration::from_micros(10),
                &answer(received, sent),
            );
            assert!(offset.error_us <= 5);
        }
    }
}
