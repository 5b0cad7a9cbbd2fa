// SPDX-License-Identifier: Apache-2.0
//! The command's results, sent out.

use super::{InitError, say};
use crate::guest::wire::{Entry, EntryEnd, EntryKind, FromGuest};
use std::fs::{self, File};
use std::io::Read;
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};

/// Bytes of a file in one message.
const PIECE: usize = 256 * 1024;

/// Sends everything below a folder, sorted by path. Returns how many things could not be
/// sent.
pub fn send(root: &Path, port: &mut File) -> Result<u64, InitError> {
    let mut left_out = 0;
    let mut waiting = vec![root.to_owned()];
    while let Some(path) = waiting.pop() {
        let shown = path.to_string_lossy();
        let about = fs::symlink_metadata(&path).map_err(InitError::of("read", shown.clone()))?;
        if about.is_dir() {
            let mut inside = Vec::new();
            for entry in fs::read_dir(&path).map_err(InitError::of("list", shown.clone()))? {
                inside.push(entry.map_err(InitError::of("list", shown.clone()))?.path());
            }
            inside.sort_by(|a, b| b.cmp(a));
            waiting.extend(inside);
        }
        let relative = path.strip_prefix(root).unwrap_or(&path);
        let Some(relative) = relative.to_str() else {
            left_out += 1;
            continue;
        };
        if relative.is_empty() {
            continue;
        }
        let kind = if about.is_dir() {
            EntryKind::Folder
        } else if about.is_file() {
            EntryKind::File
        } else if let Some(target) = link_target(&path) {
            EntryKind::Link(target)
        } else {
            left_out += 1;
            continue;
        };
        let is_file = kind == EntryKind::File;
        let entry = Entry {
            path: relative.to_owned(),
            mode: about.permissions().mode() & 0o7777,
            kind,
        };
        say(port, &FromGuest::Entry(entry))?;
        if is_file {
            send_bytes(&path, port)?;
        }
    }
    Ok(left_out)
}

fn link_target(path: &PathBuf) -> Option<String> {
    fs::read_link(path).ok()?.to_str().map(str::to_owned)
}

fn send_bytes(path: &Path, port: &mut File) -> Result<(), InitError> {
    let reading = || InitError::of("read", path.to_string_lossy());
    let mut file = File::open(path).map_err(reading())?;
    let mut length = 0;
    let mut crc32 = crc32fast::Hasher::new();
    let mut piece = vec![0; PIECE];
    loop {
        let read = file.read(&mut piece).map_err(reading())?;
        if read == 0 {
            break;
        }
        let bytes = &piece[..read];
        crc32.update(bytes);
        length += read as u64;
        say(port, &FromGuest::Data(bytes.to_vec()))?;
    }
    let crc32 = crc32.finalize();
    say(port, &FromGuest::EntryEnd(EntryEnd { length, crc32 }))
}
