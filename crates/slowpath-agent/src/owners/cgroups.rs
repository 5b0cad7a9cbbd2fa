// SPDX-License-Identifier: Apache-2.0
//! Cgroups by their path and, for processes that have ended, by the number that the kernel
//! gave them.

use super::cgroup_path;
use rustc_hash::FxHashMap;
use slowpath_model::{Cgroup, CgroupSource};
use std::fs;
use std::os::unix::fs::DirEntryExt;
use std::path::PathBuf;
use std::sync::Arc;

/// Cgroups that are remembered; beyond, they are looked up again.
const MAX_REMEMBERED: usize = 4_096;

/// Directories that one walk over the hierarchy meets at most.
const MAX_WALK: usize = 65_536;

/// Every cgroup met, each once.
#[derive(Debug, Default)]
pub(crate) struct Cgroups {
    by_path: FxHashMap<(String, CgroupSource), Arc<Cgroup>>,
    /// Paths by number: the inode number of the directory (`kernfs_node.id`).
    numbers: FxHashMap<u64, String>,
    mount: Option<Option<PathBuf>>,
    /// Whether the hierarchy was walked in this round already.
    walked: bool,
}

impl Cgroups {
    /// A number that is not known may be looked for again.
    pub(crate) fn begin_round(&mut self) {
        self.walked = false;
    }

    /// The cgroup with that path.
    pub(crate) fn by_path(&mut self, path: &str, source: CgroupSource) -> Arc<Cgroup> {
        let key = (path.to_owned(), source);
        if let Some(known) = self.by_path.get(&key) {
            return Arc::clone(known);
        }
        if self.by_path.len() >= MAX_REMEMBERED {
            self.by_path.clear();
        }
        let cgroup = Arc::new(cgroup_path::cgroup(path, source));
        self.by_path.insert(key, Arc::clone(&cgroup));
        cgroup
    }

    /// The cgroup with that number in the unified hierarchy; `None` if it is gone, or if it
    /// is the root, which tells nothing.
    pub(crate) fn by_number(&mut self, number: u64, source: CgroupSource) -> Option<Arc<Cgroup>> {
        if number == 0 {
            return None;
        }
        if !self.numbers.contains_key(&number) && !std::mem::replace(&mut self.walked, true) {
            self.walk();
        }
        let path = self.numbers.get(&number)?.clone();
        (path != "/").then(|| self.by_path(&path, source))
    }

    fn walk(&mut self) {
        let mount = self.mount.get_or_insert_with(unified_mount);
        let Some(mount) = mount.clone() else { return };
        self.numbers.clear();
        if let Ok(root) = fs::metadata(&mount) {
            use std::os::unix::fs::MetadataExt;
            self.numbers.insert(root.ino(), "/".to_owned());
        }
        let mut pending = vec![(mount, String::new())];
        while let Some((directory, path)) = pending.pop() {
            // A cgroup may go while it is walked.
            for entry in fs::read_dir(directory).into_iter().flatten().flatten() {
                if self.numbers.len() >= MAX_WALK {
                    return;
                }
                if entry.file_type().is_ok_and(|t| t.is_dir()) {
                    let below = format!("{path}/{}", entry.file_name().to_string_lossy());
                    self.numbers.insert(entry.ino(), below.clone());
                    pending.push((entry.path(), below));
                }
            }
        }
    }
}

/// Where the unified hierarchy is mounted (`proc_pid_mountinfo(5)`).
fn unified_mount() -> Option<PathBuf> {
    let text = fs::read_to_string("/proc/self/mountinfo").ok()?;
    text.lines().find_map(|line| {
        let (fields, kind) = line.split_once(" - ")?;
        let path = fields.split(' ').nth(4)?;
        kind.starts_with("cgroup2 ").then(|| path.into())
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn cgroups_are_remembered_once() {
        let mut cgroups = Cgroups::default();
        let first = cgroups.by_path("/a.service", CgroupSource::Process);
        assert!(Arc::ptr_eq(
            &first,
            &cgroups.by_path("/a.service", CgroupSource::Process)
        ));
        assert_eq!(first.unit.as_deref(), Some("a.service"));
        assert_eq!(cgroups.by_number(0, CgroupSource::Process), None);
        assert_eq!(cgroups.by_number(u64::MAX, CgroupSource::Process), None);
    }
}
