// SPDX-License-Identifier: Apache-2.0
//! Reads the wall clock for the views, which take the time as an argument.

use slowpath_model::WallMicros;
use std::time::SystemTime;

/// The wall clock now.
pub fn now() -> WallMicros {
    let since = SystemTime::now()
        .duration_since(SystemTime::UNIX_EPOCH)
        .unwrap_or_default();
    WallMicros(since.as_micros() as i64)
}
