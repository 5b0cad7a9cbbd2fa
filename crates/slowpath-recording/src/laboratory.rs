// SPDX-License-Identifier: Apache-2.0
//! A handler as the laboratory's kernel writes it: twin of `struct lab_run_record` in `lab/kernel/driver/script.h`.

use super::{Handler, Timer};

const MARKED: u32 = 1;
const BACKLOG: u32 = 2;
const OWNED: u32 = 4;
/// `LAB_RUN_WRITE_TIMER`.
const FIRST_TIMER: u32 = 11;

impl Handler {
    /// Its kind with its flags in the second byte, its value, its result, and what more there is.
    pub fn words(&self) -> [u32; 4] {
        match *self {
            Handler::Connect => [1, 0, 0, 0],
            Handler::Accept => [2, 0, 0, 0],
            Handler::Begin { fresh } => [3, fresh.into(), 0, 0],
            Handler::Send {
                bytes,
                flags,
                result,
            } => [4, bytes, result as u32, flags],
            Handler::Receive {
                bytes,
                flags,
                result,
            } => [5, bytes, result as u32, flags],
            Handler::Resume => [6, 0, 0, 0],
            Handler::Shutdown { how } => [7, how.into(), 0, 0],
            Handler::Close => [8, 0, 0, 0],
            Handler::Option { name, value, level } => {
                let which = u32::from(name) | (u32::from(level) << 16);
                [9, which, value as u32, (value >> 32) as u32]
            }
            Handler::Packet {
                number,
                marked,
                backlog,
                merged,
                truesize,
            } => {
                let flags = u32::from(marked) * MARKED + u32::from(backlog) * BACKLOG;
                let more = if backlog { merged.into() } else { 0 };
                [10 | (flags << 8), number, truesize, more]
            }
            Handler::Timer { timer, deferred } => {
                let number = match timer {
                    Timer::Write => 0,
                    Timer::DelayedAck => 1,
                    Timer::Keepalive => 2,
                    Timer::Pacing => 3,
                    Timer::CompressedAck => 4,
                    Timer::Request => 5,
                };
                let flags = u32::from(deferred) * OWNED;
                [(FIRST_TIMER + number) | (flags << 8), 0, 0, 0]
            }
            Handler::SmallQueue => [17, 0, 0, 0],
            Handler::Release { flags } => [18, flags, 0, 0],
        }
    }
}
