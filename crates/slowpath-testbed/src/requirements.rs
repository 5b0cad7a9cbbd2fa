// SPDX-License-Identifier: Apache-2.0
//! What the machine must have.

use std::path::Path;

/// Something a test may need.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Need {
    /// Root with network namespaces, and `ip` and `tc`.
    Namespaces,
    /// `tcpdump`.
    Capture,
    /// `tcptrace`.
    Tcptrace,
    /// `tshark`.
    Tshark,
}

/// The first of `needs` that this machine lacks, in words for a `SKIPPED` line.
pub fn missing_requirements(needs: &[Need]) -> Option<String> {
    needs.iter().find_map(|need| match need {
        Need::Namespaces => {
            // SAFETY: geteuid takes no argument and cannot fail.
            if unsafe { libc::geteuid() } != 0 {
                return Some("needs root".to_owned());
            }
            lacks("ip", "iproute2").or_else(|| lacks("tc", "iproute2"))
        }
        Need::Capture => lacks("tcpdump", "tcpdump"),
        Need::Tcptrace => lacks("tcptrace", "tcptrace"),
        Need::Tshark => lacks("tshark", "tshark"),
    })
}

fn lacks(program: &str, package: &str) -> Option<String> {
    let path = std::env::var_os("PATH").unwrap_or_default();
    let found = std::env::split_paths(&path)
        .chain([Path::new("/usr/sbin").into(), Path::new("/sbin").into()])
        .any(|dir| dir.join(program).is_file());
    (!found).then(|| format!("{program} is not installed (Debian package {package})"))
}
