// SPDX-License-Identifier: Apache-2.0
//! Cgroups by their path and, for processes that have ended, by the number that the kernel
//! gave them.

use super::cgroup_path;
use crate::host::Host;
use rustc_hash::FxHashMap;
use slowpath_model::{Cgroup, CgroupSource};
use std::sync::Arc;

/// Cgroups that are remembered; beyond, they are looked up again.
const MAX_REMEMBERED: usize = 4_096;

/// Every cgroup met, each once.
#[derive(Debug, Default)]
pub(crate) struct Cgroups {
    by_path: FxHashMap<(String, CgroupSource), Arc<Cgroup>>,
    /// Paths by number: the inode number of the directory (`kernfs_node.id`).
    numbers: FxHashMap<u64, String>,
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
    /// is the root, which names nothing.
    pub(crate) fn by_number(
        &mut self,
        number: u64,
        source: CgroupSource,
        host: &mut dyn Host,
    ) -> Option<Arc<Cgroup>> {
        if number == 0 {
            return None;
        }
        if !self.numbers.contains_key(&number) && !std::mem::replace(&mut self.walked, true) {
            self.numbers = host.cgroup_paths();
        }
        let path = self.numbers.get(&number)?.clone();
        (path != "/").then(|| self.by_path(&path, source))
    }
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
        let host = &mut crate::scripted_agent::NoHost;
        assert_eq!(cgroups.by_number(0, CgroupSource::Process, host), None);
        assert_eq!(
            cgroups.by_number(u64::MAX, CgroupSource::Process, host),
            None
        );
    }
}
