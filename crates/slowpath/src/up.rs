// SPDX-License-Identifier: Apache-2.0
//! Where `slowpath up` keeps its log.

use std::env;
use std::path::PathBuf;

/// The default log directory: `/var/lib/slowpath` for root, else `slowpath` in the user's
/// state directory (XDG Base Directory Specification 0.8: `$XDG_STATE_HOME`, by default
/// `~/.local/state`). `None` for a user without a home.
pub fn default_directory() -> Option<PathBuf> {
    // SAFETY: geteuid takes nothing, touches nothing and cannot fail.
    let root = unsafe { libc::geteuid() } == 0;
    directory(
        root,
        env::var_os("XDG_STATE_HOME").map(PathBuf::from),
        env::var_os("HOME").map(PathBuf::from),
    )
}

fn directory(root: bool, state: Option<PathBuf>, home: Option<PathBuf>) -> Option<PathBuf> {
    if root {
        return Some(PathBuf::from("/var/lib/slowpath"));
    }
    // The specification has relative paths ignored.
    state
        .filter(|p| p.is_absolute())
        .or_else(|| {
            home.filter(|p| p.is_absolute())
                .map(|h| h.join(".local/state"))
        })
        .map(|p| p.join("slowpath"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_log_lies_where_state_belongs() {
        let path = |p: &str| Some(PathBuf::from(p));
        for (root, state, home, expected) in [
            (true, path("/s"), path("/h"), path("/var/lib/slowpath")),
            (false, path("/s"), path("/h"), path("/s/slowpath")),
            (
                false,
                path("relative"),
                path("/h"),
                path("/h/.local/state/slowpath"),
            ),
            (false, None, None, None),
        ] {
            assert_eq!(directory(root, state, home), expected);
        }
    }
}
