// SPDX-License-Identifier: Apache-2.0
//! A replay with a setting changed, up to the first packet that differs from the recording.

use super::Replay;
use crate::failure::{Failure, Outcome};
use serde_json::json;
use slowpath_lab::virtual_time::Kernel;
use slowpath_recording::Recording;
use slowpath_replay::{Altered, ExplainError, ReplayError, WhatIf, WhatIfError};
use slowpath_replay_report::frames::{Frames, HINT};
use slowpath_replay_report::{outputs, what_if};
use std::io::{Write, stdout};

/// `NAME=VALUE`.
pub(super) fn setting(text: &str) -> Result<Altered, String> {
    match text.split_once('=') {
        Some((name, value)) if !name.is_empty() => Ok(Altered::Setting {
            name: name.trim().to_owned(),
            value: value.trim().to_owned(),
        }),
        _ => Err("is not NAME=VALUE".to_owned()),
    }
}

pub(super) fn run(
    args: &Replay,
    kernel: &Kernel,
    recording: &Recording,
    chosen: &[usize],
    frames: &Frames,
) -> Result<Outcome, Failure> {
    let failed = |error: WhatIfError| match error {
        WhatIfError::Setting(error) => Failure::Usage(format!("--set: {error}")),
        WhatIfError::Explain(ExplainError::Replay(ReplayError::Setting(error))) => {
            Failure::Usage(format!("--set: {error}"))
        }
        error => Failure::Recording {
            file: args.file.clone(),
            reason: error.to_string(),
        },
    };
    let working = outputs::Working::new()?;
    let out = &mut stdout().lock();
    let mut answers = Vec::new();
    let mut differs = false;
    for number in chosen.iter().copied() {
        let own = working.path.join(format!("what-if-{number}"));
        std::fs::create_dir(&own)
            .map_err(|error| Failure::Write(format!("cannot create {}: {error}", own.display())))?;
        let mut experiment = WhatIf::new(kernel, recording, number, &own).map_err(failed)?;
        let answer = experiment.ask(&args.set).map_err(failed)?;
        differs |= answer.departure.is_some();
        let simulated = match args.go_on.then(|| experiment.go_on(&args.set, &answer)) {
            None | Some(Ok(None)) => None,
            Some(Ok(Some(continued))) => Some(Ok(continued)),
            Some(Err(WhatIfError::Continuation(reason))) => Some(Err(reason.to_string())),
            Some(Err(error)) => return Err(failed(error)),
        };
        if args.json {
            let mut value = what_if::answer_json(recording, number, &answer, frames);
            if let Some(simulated) = &simulated {
                value["simulation"] = what_if::simulation_json(simulated);
            }
            answers.push(value);
        } else {
            what_if::write(recording, number, &answer, frames, out)?;
            if let Some(simulated) = &simulated {
                what_if::simulation_text(simulated, out)?;
            }
        }
    }
    if args.json {
        writeln!(out, "{}", json!({ "connections": answers }))?;
    } else if differs && frames.is_empty() {
        writeln!(out, "{HINT}")?;
    }
    Ok(Outcome::Done)
}
