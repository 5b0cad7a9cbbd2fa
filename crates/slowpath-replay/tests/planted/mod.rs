// SPDX-License-Identifier: Apache-2.0
//! Messages with a planted cause: recorded, replayed, explained, and what the packets say.

mod packets;
mod plants;

use plants::{CAUSES, Plant};
use slowpath_explain::Explanation;
use slowpath_lab::virtual_time::{Kernel, Options, run};
use slowpath_recording::headers::{self, Header};
use slowpath_replay::explain;
use std::fmt;
use std::path::Path;
use std::time::Duration;

pub use plants::Cause;

pub type Failure = Box<dyn std::error::Error>;

/// Largest difference of the time that the cause took, as a part of it.
const WITHIN: f64 = 0.1;

/// What came out for one message.
pub struct Trial {
    number: u64,
    pub cause: Cause,
    /// The scenario.
    pub text: String,
    explanation: Explanation,
    /// How long the cause held it up, by the packets.
    held_up: Duration,
}

impl Trial {
    /// Runs the message of that number and seed, and explains it.
    pub fn of(kernel: &Kernel, number: u64, seed: u64) -> Result<Trial, Failure> {
        let cause = CAUSES[(number % CAUSES.len() as u64) as usize];
        let plant = Plant::draw(cause, seed, number);
        let folder = tempfile::tempdir()?;
        let options = Options {
            events: false,
            info_every: None,
            record: true,
            ..Options::default()
        };
        let scenario = plant.scenario()?;
        let run = run(kernel, &scenario, &options, folder.path(), &mut |_| {})?;
        let recording = run.recording.ok_or("there is no recording")?;
        let again = tempfile::tempdir()?;
        let (mut explained, _) = explain(kernel, &recording, &[0], again.path(), &mut |_| {})?;
        let messages = explained.pop().ok_or("nothing was explained")??;
        let message = messages.into_iter().find(|it| it.message.end == 0);
        let [sender, receiver] = &run.captures[..] else {
            return Err("two hosts have two captures".into());
        };
        let headers = [read(sender)?, read(receiver)?];
        Ok(Trial {
            number,
            cause,
            explanation: message.ok_or("there is no message")?,
            held_up: Duration::from_nanos(packets::held_up(&plant, &headers)),
            text: plant.text,
        })
    }

    /// The explanation names the cause.
    pub fn is_named(&self) -> bool {
        self.cause.is_named_by(&self.explanation)
    }

    /// How long the cause took, by the explanation.
    fn explained(&self) -> Duration {
        let waits = self.explanation.waits.iter();
        waits
            .filter(|wait| self.cause.is_of(wait))
            .map(|wait| wait.duration())
            .sum()
    }

    /// That is as long as by the packets.
    pub fn is_within(&self) -> bool {
        let differs = self.explained().abs_diff(self.held_up).as_secs_f64();
        differs <= WITHIN * self.held_up.as_secs_f64()
    }
}

impl fmt::Display for Trial {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(
            f,
            "message {}, {:?}: {}; {:?} by the packets, {:?} explained; waits:",
            self.number,
            self.cause,
            self.explanation.category.name(),
            self.held_up,
            self.explained()
        )?;
        for wait in &self.explanation.waits {
            write!(f, " {} {:?}", wait.waited.name(), wait.duration())?;
            for link in &wait.links {
                write!(f, " [{link}]")?;
            }
        }
        Ok(())
    }
}

fn read(capture: &Path) -> Result<Vec<Header>, Failure> {
    let connections = headers::read(&std::fs::read(capture)?)?;
    let first = connections.into_values().next();
    first.ok_or_else(|| "an empty capture".into())
}
