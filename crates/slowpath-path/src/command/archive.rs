// SPDX-License-Identifier: Apache-2.0
//! Results for others: their format, and where they are posted.

use super::CommandError;
use crate::pscheduler::{Archive, Run, latency_of, rtt_of};
use crate::report::PathReport;
use crate::session::{OneWayOutcome, TestOptions, TwoWayOutcome};
use clap::{Args, ValueEnum};
use std::io::{self, Write};

/// A format of others.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub enum Format {
    /// What pScheduler gives its archivers: a line a run
    Pscheduler,
}

/// Arguments of it.
#[derive(Clone, Debug, Args)]
pub struct Archiving {
    /// Print results as others have them
    #[arg(long, value_enum, conflicts_with = "json")]
    pub format: Option<Format>,
    /// Post each result, as pScheduler's archiver `http` does
    #[arg(long, value_name = "URL")]
    pub archive: Option<String>,
}

/// What sessions left.
pub(super) enum Outcome {
    OneWay(Box<OneWayOutcome>),
    TwoWay(Box<TwoWayOutcome>),
}

/// Where results go.
#[derive(Clone, Debug)]
pub(super) struct Archiver {
    format: Option<Format>,
    archive: Option<Archive>,
    raw: bool,
}

impl Archiver {
    pub(super) fn new(archiving: &Archiving, raw: bool) -> Result<Self, CommandError> {
        let archive = archiving.archive.as_deref().map(Archive::new).transpose()?;
        Ok(Archiver {
            format: archiving.format,
            archive,
            raw,
        })
    }

    /// Whether results are printed as others have them.
    pub(super) fn prints(&self) -> bool {
        self.format.is_some()
    }

    /// What others get of an outcome; nothing where neither was asked for.
    pub(super) fn runs(
        &self,
        outcome: &Outcome,
        report: &PathReport,
        options: &TestOptions,
    ) -> Result<Vec<Run>, CommandError> {
        if !self.is_wanted() {
            return Ok(Vec::new());
        }
        Ok(match outcome {
            Outcome::OneWay(outcome) => latency_of(outcome, report, options, self.raw)?,
            Outcome::TwoWay(outcome) => rtt_of(outcome, report, options)?,
        })
    }

    /// Whether there is anyone to get results.
    pub(super) fn is_wanted(&self) -> bool {
        self.format.is_some() || self.archive.is_some()
    }

    /// Prints what is to be printed, then posts.
    pub(super) fn deliver(&self, runs: &[Run], out: &mut dyn Write) -> Result<(), CommandError> {
        if self.prints() {
            for run in runs {
                serde_json::to_writer(&mut *out, &run.to_json()).map_err(io::Error::from)?;
                writeln!(out)?;
            }
            out.flush()?;
        }
        for run in runs {
            if let Some(archive) = &self.archive {
                archive.post(run)?;
            }
        }
        Ok(())
    }
}
