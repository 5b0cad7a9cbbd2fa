// SPDX-License-Identifier: Apache-2.0
//! The steps that change files: each of them may be the last one before a kill.

use slowpath_files::OutputFile;
use std::fs;
use std::io::{self, BufWriter};
use std::path::Path;

/// Changes files; a test has it fail at any step.
#[derive(Debug, Default)]
pub(super) struct Disk {
    /// Steps that still succeed; `None`: all.
    #[cfg(test)]
    pub(super) steps: Option<u32>,
}

impl Disk {
    fn step(&mut self) -> io::Result<()> {
        #[cfg(test)]
        if let Some(steps) = &mut self.steps {
            *steps = steps
                .checked_sub(1)
                .ok_or_else(|| io::Error::other("killed here"))?;
        }
        Ok(())
    }

    pub(super) fn rename(&mut self, from: &Path, to: &Path) -> io::Result<()> {
        self.step()?;
        fs::rename(from, to)
    }

    /// Removes a file that may be gone already.
    pub(super) fn remove(&mut self, path: &Path) -> io::Result<()> {
        self.step()?;
        match fs::remove_file(path) {
            Err(e) if e.kind() != io::ErrorKind::NotFound => Err(e),
            _ => Ok(()),
        }
    }

    pub(super) fn empty(&mut self, path: &Path) -> io::Result<()> {
        self.step()?;
        fs::OpenOptions::new().write(true).open(path)?.set_len(0)
    }

    /// Writes a small file, whole or not at all, and leaves it to the kernel when it reaches the disk.
    pub(super) fn write(&mut self, path: &Path, bytes: &[u8]) -> io::Result<()> {
        self.step()?;
        slowpath_files::write(path, bytes)
    }

    /// Writes a file, whole or not at all, and flushes it before it has its name.
    pub(super) fn write_flushed(
        &mut self,
        path: &Path,
        fill: impl FnOnce(&mut BufWriter<OutputFile>) -> io::Result<()>,
    ) -> io::Result<()> {
        self.step()?;
        let mut out = BufWriter::with_capacity(64 << 10, OutputFile::create(path)?);
        fill(&mut out)?;
        let file = out.into_inner().map_err(io::IntoInnerError::into_error)?;
        file.sync()?;
        self.step()?;
        file.commit()
    }
}
