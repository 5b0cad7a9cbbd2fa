// SPDX-License-Identifier: Apache-2.0
//! The process that a target means.

use slowpath_views::target::Target;
use std::fs;

/// A process that is meant; the lowest id of several.
pub fn of(target: &Target) -> Option<u32> {
    if !matches!(target, Target::Pid(_) | Target::Name { .. }) {
        return None;
    }
    let entries = fs::read_dir("/proc").ok()?;
    let meant = |entry: fs::DirEntry| {
        let pid = entry.file_name().to_str()?.parse().ok()?;
        let command = fs::read_to_string(entry.path().join("comm")).ok()?;
        target.fits_process(pid, command.trim_end()).then_some(pid)
    };
    entries.filter_map(|entry| meant(entry.ok()?)).min()
}
