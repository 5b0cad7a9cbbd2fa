// SPDX-License-Identifier: Apache-2.0
//! What a replay of a recording can claim.

use crate::{Origin, RecorderKind};

/// How a recorded connection is replayed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ReplayKind {
    /// Every run was recorded, and a replay checks each.
    Exact,
    /// The same, on another version of Linux than replays run on: a replay differs where these do.
    OtherKernel,
    /// By tracepoints only: a replay is compared with what was observed.
    Inferred,
    /// One end, which a replay needs the other machine's recording for.
    OneSided,
}

impl ReplayKind {
    /// Of a recording made there, of one end or both; `laboratory` is the version of Linux that replays run on.
    pub fn of(origin: &Origin, one_sided: bool, laboratory: &str) -> Self {
        let inferred = origin.recorder == RecorderKind::Tracepoints;
        if one_sided {
            ReplayKind::OneSided
        } else if inferred {
            ReplayKind::Inferred
        } else if series(&origin.kernel) == series(laboratory) {
            ReplayKind::Exact
        } else {
            ReplayKind::OtherKernel
        }
    }

    /// Its name in files and JSON.
    pub fn name(self) -> &'static str {
        match self {
            ReplayKind::Exact => "exact",
            ReplayKind::OtherKernel => "other_kernel",
            ReplayKind::Inferred => "inferred",
            ReplayKind::OneSided => "one_sided",
        }
    }
}

/// The first two numbers of a release: 6.12 of 6.12.117+deb12-cloud-amd64. What is mended within a series leaves TCP as it is; where it does not, a
/// replay notices.
fn series(release: &str) -> Vec<&str> {
    let end = release.find(|c: char| !c.is_ascii_digit() && c != '.');
    let version = &release[..end.unwrap_or(release.len())];
    version.split('.').take(2).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_the_version_that_replays_run_on_is_exact() {
        let kind = |kernel: &str, recorder: RecorderKind, one_sided| {
            let origin = Origin {
                kernel: kernel.to_owned(),
                recorder,
                ..Origin::default()
            };
            ReplayKind::of(&origin, one_sided, "6.12").name()
        };
        let bpf = RecorderKind::Bpf;
        assert_eq!(kind("6.12.48+deb13-amd64", bpf.clone(), false), "exact");
        assert_eq!(kind("6.12-rc3", RecorderKind::Laboratory, false), "exact");
        assert_eq!(kind("6.1.0-37-amd64", bpf.clone(), false), "other_kernel");
        assert_eq!(kind("6.120.1", bpf.clone(), false), "other_kernel");
        assert_eq!(kind("", bpf.clone(), false), "other_kernel");
        assert_eq!(kind("6.1.0", RecorderKind::Tracepoints, false), "inferred");
        assert_eq!(kind("6.12.48", bpf, true), "one_sided");
    }
}
