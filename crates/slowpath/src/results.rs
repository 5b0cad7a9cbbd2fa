// SPDX-License-Identifier: Apache-2.0
//! Folders that commands write results to, and who writes which.

use crate::failure::Failure;
use slowpath_files::{RefusedOutput, ResultsError, ResultsFolder};
use std::path::PathBuf;

/// Who writes folders of results, as their lists and messages say it.
pub(crate) const SIM: &str = "slowpath sim";
pub(crate) const SIM_SWEEP: &str = "slowpath sim, a sweep";
pub(crate) const VIRTUAL: &str = "slowpath lab virtual";
pub(crate) const VIRTUAL_SWEEP: &str = "slowpath lab virtual, a sweep";
pub(crate) const GUEST: &str = "slowpath lab guest";
pub(crate) const QUEUES: &str = "slowpath queues";
pub(crate) const EXPLAIN: &str = "slowpath explain";
pub(crate) const REPLAY: &str = "slowpath replay";
pub(crate) const TRACE: &str = "slowpath trace";

/// The folder of results that the user wants, if he wants one.
///
/// # Errors
/// It has something else in it, or cannot be made.
pub(crate) fn open(
    folder: Option<&PathBuf>,
    maker: &str,
) -> Result<Option<ResultsFolder>, Failure> {
    let opened = folder.map(|it| ResultsFolder::open(it, maker));
    Ok(opened.transpose()?)
}

/// Puts what a run wrote in its place.
///
/// # Errors
/// The file system refuses.
pub(crate) fn commit(folder: Option<ResultsFolder>) -> Result<(), Failure> {
    Ok(folder.map(ResultsFolder::commit).transpose().map(drop)?)
}

impl From<ResultsError> for Failure {
    fn from(error: ResultsError) -> Self {
        let says = error.to_string();
        if error.is_usage() {
            Failure::Usage(says)
        } else {
            Failure::Write(says)
        }
    }
}

impl From<RefusedOutput> for Failure {
    fn from(error: RefusedOutput) -> Self {
        let says = error.to_string();
        if error.is_usage() {
            Failure::Usage(says)
        } else {
            Failure::Write(says)
        }
    }
}
