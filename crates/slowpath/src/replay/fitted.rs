// SPDX-License-Identifier: Apache-2.0
//! Light recordings, by tracepoints only: what was inferred otherwise so that replays go further, and how far the recorder observed.

use super::Replay;
use crate::failure::Failure;
use slowpath_lab::virtual_time::Kernel;
use slowpath_machine::progress::Progress;
use slowpath_model::Micros;
use slowpath_recording::{RecorderKind, Recording};
use slowpath_replay::{FitOptions, Fitted};
use std::path::Path;
use std::time::{Duration, Instant};

/// Fits a light recording, unless the arguments say not to. `None`: it is as it was recorded.
pub(super) fn fit(
    args: &Replay,
    kernel: &Kernel,
    recording: &Recording,
    chosen: &[usize],
    folder: &Path,
) -> Result<Option<Fitted>, Failure> {
    if args.no_fit || recording.origin.recorder != RecorderKind::Tracepoints {
        return Ok(None);
    }
    let processors = std::thread::available_parallelism().map_or(1, usize::from);
    let options = FitOptions {
        jobs: args.jobs.unwrap_or(processors).max(1),
        ..FitOptions::default()
    };
    let begun = Instant::now();
    let mut progress = (!args.quiet).then(|| Progress::new("fitting", Duration::ZERO));
    let fitted = slowpath_replay::fit(kernel, recording, chosen, &options, folder, &mut |it| {
        let Some(progress) = &mut progress else {
            return;
        };
        let elapsed = begun.elapsed();
        let share = it.replays as f64 / it.most.max(1) as f64;
        progress.expect(elapsed.div_f64(share.clamp(1e-3, 1.0)));
        let note = format!("{} connections left, {} replays", it.searched, it.replays);
        progress.at(Micros(elapsed.as_micros() as u64), &note);
    });
    let fitted = fitted.map_err(|error| Failure::Recording {
        file: args.file.clone(),
        reason: error.to_string(),
    })?;
    Ok(Some(fitted))
}
