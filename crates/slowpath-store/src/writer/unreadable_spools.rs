// SPDX-License-Identifier: Apache-2.0
//! Spools that an earlier run set aside and this version can read: after a downgrade and the
//! way back, what the newer version had not converted is still there.

use crate::{StoreError, layout, spool};
use std::ffi::OsStr;
use std::fs;
use std::path::Path;

/// Gives every `SEGMENT.spool.unreadable` whose header this version understands its name
/// back, so that it is read and converted. The others stay as they are.
pub(super) fn take_back(dir: &Path) -> Result<(), StoreError> {
    let spools = layout::spool_dir(dir);
    for aside in layout::entries(&spools)? {
        if aside.extension() != Some(OsStr::new("unreadable")) {
            continue;
        }
        let spool = aside.with_extension("");
        // A file that cannot be read now stays where it is: nothing is lost by it.
        let readable = fs::read(&aside).is_ok_and(|bytes| spool::parse(&bytes).is_ok());
        if readable && !spool.exists() {
            fs::rename(&aside, &spool).map_err(StoreError::io("take back the spool", &aside))?;
        }
    }
    Ok(())
}
