// SPDX-License-Identifier: Apache-2.0
//! The runs of a sweep that are done, kept one by one in a file, so that an interrupted sweep goes on.

use super::RunResult;
use rustix::fs::{FlockOperation, flock};
use serde::{Deserialize, Serialize};
use std::collections::BTreeMap;
use std::fs::File;
use std::io::{self, Read, Seek, SeekFrom, Write};
use std::path::{Path, PathBuf};

/// The file of the runs that are done, in the folder of `--out`.
const RUNS: &str = "sweep.runs";

/// What a sweep leaves in the folder of `--out`.
pub const SWEEP_FILES: [&str; 3] = [RUNS, "sweep.parquet", "sweep.csv"];

/// Why runs cannot be kept.
#[derive(Debug, thiserror::Error)]
pub enum DoneRunsError {
    /// The file cannot be read or written.
    #[error("cannot keep runs in {0}")]
    File(String),
    /// Another process keeps runs there.
    #[error("another command is running a sweep into {0}: wait for it, or give another --out")]
    Busy(PathBuf),
    /// The runs there are of another sweep.
    #[error("{0} has the runs of another sweep: give another --out, or remove {RUNS} there")]
    Other(PathBuf),
}

/// The first line of the file of runs: what they are of.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Header {
    /// The version of the file.
    pub sweep: u32,
    /// The program and its version.
    pub producer: String,
    /// The JSON document's `type`.
    pub kind: String,
    /// The scenario's text.
    pub scenario: String,
    /// What varies, as `KEY=VALUES`.
    pub vary: Vec<String>,
    /// The seeds.
    pub seeds: Vec<u64>,
}

impl Header {
    /// The file's version.
    pub const VERSION: u32 = 1;
}

/// The runs that are done, and the file that they are in.
#[derive(Debug, Default)]
pub struct DoneRuns {
    /// Their results, by number.
    pub done: BTreeMap<u64, RunResult>,
    file: Option<(PathBuf, File)>,
}

impl DoneRuns {
    /// Those that an earlier command of the same sweep left in the folder.
    ///
    /// # Errors
    /// The file cannot be read or written, another process has it open, or it is another sweep's.
    pub fn open(directory: &Path, header: &Header) -> Result<Self, DoneRunsError> {
        let path = directory.join(RUNS);
        let failed = |error: io::Error| DoneRunsError::File(format!("{}: {error}", path.display()));
        slowpath_files::create_folder(directory).map_err(failed)?;
        let mut file = File::options()
            .read(true)
            .write(true)
            .create(true)
            .truncate(false)
            .open(&path)
            .map_err(failed)?;
        flock(&file, FlockOperation::NonBlockingLockExclusive)
            .map_err(|_| DoneRunsError::Busy(directory.to_owned()))?;
        let mut text = Vec::new();
        file.read_to_end(&mut text).map_err(failed)?;
        let mut lines = text.split_inclusive(|byte| *byte == b'\n');
        let mut kept = DoneRuns::default();
        let mut whole = 0;
        match lines.next().filter(|line| line.ends_with(b"\n")) {
            // Of a command that ended before its first line was whole.
            None => {}
            Some(first) => {
                if serde_json::from_slice::<Header>(first).ok().as_ref() != Some(header) {
                    return Err(DoneRunsError::Other(directory.to_owned()));
                }
                whole += first.len();
                for line in lines {
                    // The last one may have been cut.
                    let Ok(result) = serde_json::from_slice::<RunResult>(line) else {
                        break;
                    };
                    if !line.ends_with(b"\n") {
                        break;
                    }
                    whole += line.len();
                    kept.done.insert(result.run, result);
                }
            }
        }
        file.set_len(whole as u64).map_err(failed)?;
        file.seek(SeekFrom::End(0)).map_err(failed)?;
        if whole == 0 {
            write_line(&mut file, header).map_err(failed)?;
        }
        kept.file = Some((path, file));
        Ok(kept)
    }

    /// Keeps one more.
    ///
    /// # Errors
    /// The file cannot be written.
    pub fn add(&mut self, result: RunResult) -> Result<(), DoneRunsError> {
        if let Some((path, file)) = &mut self.file {
            write_line(file, &result)
                .map_err(|error| DoneRunsError::File(format!("{}: {error}", path.display())))?;
        }
        self.done.insert(result.run, result);
        Ok(())
    }
}

fn write_line(file: &mut File, line: &impl Serialize) -> io::Result<()> {
    let mut text = serde_json::to_vec(line)?;
    text.push(b'\n');
    file.write_all(&text)
}
