// SPDX-License-Identifier: Apache-2.0
//! What the command wrote to `/out`, written to a folder here.
//!
//! What enters: the guest's messages about files. What leaves: those files. What is promised:
//! nothing is written outside the folder, whatever the guest says; a file whose length or
//! CRC-32 is not what was read inside is an error.

use super::wire::{Entry, EntryEnd, EntryKind, WireError};
use super::{GuestError, wire};
use std::fs::{self, File, OpenOptions, Permissions};
use std::io::{self, BufWriter, Write};
use std::os::unix::fs::{OpenOptionsExt, PermissionsExt, symlink};
use std::path::{Component, Path, PathBuf};

/// What came out.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Results {
    /// How many files.
    pub files: u64,
    /// How many bytes in them.
    pub bytes: u64,
    /// Things in `/out` that cannot come out: devices, sockets, names that are not UTF-8.
    pub left_out: u64,
}

/// Receives them.
#[derive(Debug)]
pub struct Receiver {
    folder: PathBuf,
    open: Option<Open>,
    /// Made last, so that nothing is written through one.
    links: Vec<(String, String)>,
    results: Results,
}

#[derive(Debug)]
struct Open {
    path: String,
    file: BufWriter<File>,
    length: u64,
    crc32: crc32fast::Hasher,
}

fn failed(path: &str) -> impl FnOnce(io::Error) -> GuestError {
    let path = path.to_owned();
    move |error| GuestError::Result {
        path,
        reason: error.to_string(),
    }
}

fn unexpected(what: &'static str) -> GuestError {
    WireError::Order { what }.into()
}

impl Receiver {
    /// Into a folder, which is made if it is missing.
    ///
    /// # Errors
    /// It cannot be made.
    pub fn new(folder: &Path) -> Result<Self, GuestError> {
        fs::create_dir_all(folder).map_err(GuestError::file("make", folder))?;
        Ok(Receiver {
            folder: folder.to_owned(),
            open: None,
            links: Vec::new(),
            results: Results::default(),
        })
    }

    /// Something begins.
    ///
    /// # Errors
    /// Its path leads out of the folder, or it cannot be made.
    pub fn entry(&mut self, entry: Entry) -> Result<(), GuestError> {
        if self.open.is_some() {
            return Err(unexpected("a file within a file"));
        }
        let path = self.place(&entry.path)?;
        match entry.kind {
            EntryKind::Folder => match fs::create_dir(&path) {
                Err(error) if error.kind() == io::ErrorKind::AlreadyExists && path.is_dir() => {}
                other => other.map_err(failed(&entry.path))?,
            },
            EntryKind::Link(target) => self.links.push((entry.path, target)),
            EntryKind::File => {
                let nofollow = rustix::fs::OFlags::NOFOLLOW.bits();
                let file = OpenOptions::new()
                    .write(true)
                    .create(true)
                    .truncate(true)
                    .custom_flags(nofollow as i32)
                    .open(&path)
                    .map_err(failed(&entry.path))?;
                file.set_permissions(Permissions::from_mode(entry.mode & 0o777))
                    .map_err(failed(&entry.path))?;
                self.open = Some(Open {
                    path: entry.path,
                    file: BufWriter::new(file),
                    length: 0,
                    crc32: crc32fast::Hasher::new(),
                });
            }
        }
        Ok(())
    }

    /// Bytes of the file that began.
    ///
    /// # Errors
    /// None began, or they cannot be written.
    pub fn data(&mut self, bytes: &[u8]) -> Result<(), GuestError> {
        let open = self.open.as_mut();
        let open = open.ok_or_else(|| unexpected("bytes of no file"))?;
        open.length += bytes.len() as u64;
        open.crc32.update(bytes);
        open.file.write_all(bytes).map_err(failed(&open.path))
    }

    /// The file is complete.
    ///
    /// # Errors
    /// None began; it is not what the guest read; it cannot be written.
    pub fn end(&mut self, end: EntryEnd) -> Result<(), GuestError> {
        let open = self.open.take();
        let mut open = open.ok_or_else(|| unexpected("the end of no file"))?;
        open.file.flush().map_err(failed(&open.path))?;
        let got = wire::EntryEnd {
            length: open.length,
            crc32: open.crc32.finalize(),
        };
        if got != end {
            return Err(GuestError::Result {
                path: open.path,
                reason: format!(
                    "{} bytes with CRC {:08x} came out of {} with CRC {:08x}",
                    got.length, got.crc32, end.length, end.crc32
                ),
            });
        }
        self.results.files += 1;
        self.results.bytes += end.length;
        Ok(())
    }

    /// Nothing more will come.
    ///
    /// # Errors
    /// A file is not complete; a link cannot be made.
    pub fn finish(mut self, left_out: u64) -> Result<Results, GuestError> {
        if self.open.is_some() {
            return Err(unexpected("the end amid a file"));
        }
        for (path, target) in std::mem::take(&mut self.links) {
            let place = self.place(&path)?;
            if fs::symlink_metadata(&place).is_ok_and(|about| about.is_symlink()) {
                fs::remove_file(&place).map_err(failed(&path))?;
            }
            symlink(target, place).map_err(failed(&path))?;
        }
        self.results.left_out = left_out;
        Ok(self.results)
    }

    /// The path here, if it stays within the folder and no link is on the way.
    fn place(&self, path: &str) -> Result<PathBuf, GuestError> {
        let refuse = |reason: &str| GuestError::Result {
            path: path.to_owned(),
            reason: reason.to_owned(),
        };
        let parts: Vec<Component> = Path::new(path).components().collect();
        if parts.is_empty()
            || !parts
                .iter()
                .all(|part| matches!(part, Component::Normal(_)))
        {
            return Err(refuse("it leads out of the folder"));
        }
        let mut place = self.folder.clone();
        for (at, part) in parts.iter().enumerate() {
            if at > 0 && fs::symlink_metadata(&place).is_ok_and(|about| about.is_symlink()) {
                return Err(refuse("a link is on the way"));
            }
            place.push(part);
        }
        Ok(place)
    }
}
