// SPDX-License-Identifier: Apache-2.0
//! Which certificates no longer count.

use super::identity::Identity;
use crate::state::{self, StateError};
use slowpath_model::WallMicros;
use slowpath_ship::identity::HostName;
use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::sync::{PoisonError, RwLock};

/// Per host until when its certificates were revoked: those issued up to then do not count. A host
/// that is invited again gets certificates that were issued later.
#[derive(Debug)]
pub struct Revocations {
    path: PathBuf,
    until: RwLock<BTreeMap<String, i64>>,
}

impl Revocations {
    pub(crate) fn load(directory: &Path) -> Result<Self, StateError> {
        let path = directory.join("revoked.json");
        let until = state::read_json(&path)?.unwrap_or_default();
        Ok(Revocations {
            path,
            until: RwLock::new(until),
        })
    }

    /// Revokes what `host` has; on the disk when this returns.
    ///
    /// # Errors
    /// [`StateError::Write`]; nothing is revoked then.
    pub fn revoke(&self, host: &HostName, now: WallMicros) -> Result<(), StateError> {
        let mut until = self.until.write().unwrap_or_else(PoisonError::into_inner);
        let mut changed = until.clone();
        let entry = changed.entry(host.to_string()).or_default();
        *entry = now.0.max(*entry);
        state::write_json(&self.path, &changed)?;
        *until = changed;
        Ok(())
    }

    /// Whether the certificate was revoked.
    pub fn is_revoked(&self, identity: &Identity) -> bool {
        self.revoked_until(&identity.host)
            .is_some_and(|until| identity.issued <= until)
    }

    /// Until when certificates of `host` were revoked; later ones count, also after a clock was set
    /// back.
    pub(crate) fn revoked_until(&self, host: &HostName) -> Option<WallMicros> {
        let until = self.until.read().unwrap_or_else(PoisonError::into_inner);
        until.get(host.as_str()).copied().map(WallMicros)
    }
}
