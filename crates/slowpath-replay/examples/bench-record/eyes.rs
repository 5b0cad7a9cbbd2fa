// SPDX-License-Identifier: Apache-2.0
//! The recorders, in one form.

use slowpath_observe::ProgramCost;
use slowpath_recorder::handlers::{Losses, OpenError, Recorder};
use slowpath_recorder::packets::LightRecorder;
use std::error::Error;
use std::time::Duration;

/// Which recorder.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Which {
    Light,
    Exact,
}

/// One of them, at work.
pub enum Eyes {
    Light(LightRecorder),
    Exact(Recorder),
}

impl Eyes {
    pub fn open(which: Which, port: u16) -> Result<Eyes, OpenError> {
        Ok(match which {
            Which::Light => Eyes::Light(LightRecorder::open(&[port])?),
            Which::Exact => Eyes::Exact(Recorder::open(&[port])?),
        })
    }

    pub fn take(&mut self) -> Result<usize, Box<dyn Error>> {
        let taken = match self {
            Eyes::Light(recorder) => recorder.take()?,
            Eyes::Exact(recorder) => recorder.take()?,
        };
        Ok(taken.len())
    }

    pub fn told(&self) -> (Duration, Losses) {
        match self {
            Eyes::Light(recorder) => (recorder.run_time(), recorder.losses()),
            Eyes::Exact(recorder) => (recorder.run_time(), recorder.losses()),
        }
    }

    /// What each program took.
    pub fn programs(&self) -> Vec<ProgramCost> {
        match self {
            Eyes::Light(recorder) => recorder.programs().costs("packets"),
            Eyes::Exact(recorder) => recorder.programs().costs("handlers"),
        }
    }

    /// Detached, or attached again.
    pub fn turn(&mut self, on: bool) -> Result<(), Box<dyn Error>> {
        match (self, on) {
            (Eyes::Light(recorder), false) => recorder.pause(),
            (Eyes::Light(recorder), true) => recorder.resume()?,
            (Eyes::Exact(recorder), false) => recorder.pause(),
            (Eyes::Exact(recorder), true) => recorder.resume()?,
        }
        Ok(())
    }
}
