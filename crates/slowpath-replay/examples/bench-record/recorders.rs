// SPDX-License-Identifier: Apache-2.0
//! The recorders, in one form.

use slowpath_observe::ProgramCost;
use slowpath_recorder::handlers::{Losses, OpenError, Recorder};
use slowpath_recorder::packets::LightRecorder;
use std::error::Error;
use std::time::Duration;

/// Which recorder.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum RecorderKind {
    Light,
    Exact,
}

/// One of them, at work.
pub enum AnyRecorder {
    Light(LightRecorder),
    Exact(Recorder),
}

impl AnyRecorder {
    pub fn open(which: RecorderKind, port: u16) -> Result<AnyRecorder, OpenError> {
        Ok(match which {
            RecorderKind::Light => AnyRecorder::Light(LightRecorder::open(&[port])?),
            RecorderKind::Exact => AnyRecorder::Exact(Recorder::open(&[port])?),
        })
    }

    pub fn take(&mut self) -> Result<usize, Box<dyn Error>> {
        let taken = match self {
            AnyRecorder::Light(recorder) => recorder.take()?,
            AnyRecorder::Exact(recorder) => recorder.take()?,
        };
        Ok(taken.len())
    }

    pub fn reported(&self) -> (Duration, Losses) {
        match self {
            AnyRecorder::Light(recorder) => (recorder.run_time(), recorder.losses()),
            AnyRecorder::Exact(recorder) => (recorder.run_time(), recorder.losses()),
        }
    }

    /// What each program took.
    pub fn programs(&self) -> Vec<ProgramCost> {
        match self {
            AnyRecorder::Light(recorder) => recorder.programs().costs("packets"),
            AnyRecorder::Exact(recorder) => recorder.programs().costs("handlers"),
        }
    }

    /// Detached, or attached again.
    pub fn turn(&mut self, on: bool) -> Result<(), Box<dyn Error>> {
        match (self, on) {
            (AnyRecorder::Light(recorder), false) => recorder.pause(),
            (AnyRecorder::Light(recorder), true) => recorder.resume()?,
            (AnyRecorder::Exact(recorder), false) => recorder.pause(),
            (AnyRecorder::Exact(recorder), true) => recorder.resume()?,
        }
        Ok(())
    }
}
