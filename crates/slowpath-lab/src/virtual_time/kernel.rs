// SPDX-License-Identifier: Apache-2.0
//! Where laboratory kernels are.

use super::wire::VERSION;
use std::path::{Path, PathBuf};

/// Names a kernel instead of the one in the cache.
const VARIABLE: &str = "SLOWPATH_LAB_KERNEL";
/// The Debian source package's version that is built unless another is asked for.
pub const SOURCE: &str = "6.12";
/// Timer ticks a second unless others are asked for: Debian's kernels have them.
pub const HZ: u32 = 250;

/// A laboratory kernel that is there.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Kernel {
    /// The program.
    pub path: PathBuf,
    /// Its ticks a second.
    pub hz: u32,
}

/// There is no such kernel.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error(
    "there is no laboratory kernel at {}; `make lab-kernel{}` in slowpath's source builds it \
     (Debian's package linux-source-{source_version}, three minutes)",
    path.display(),
    arguments
)]
pub struct MissingKernel {
    /// Where it should be.
    pub path: PathBuf,
    /// The arguments of `make` besides its target.
    arguments: String,
    source_version: String,
}

/// Where what is kept between runs lies.
fn cache() -> PathBuf {
    let home = || Some(PathBuf::from(std::env::var_os("HOME")?).join(".cache"));
    let cache = std::env::var_os("XDG_CACHE_HOME").map(PathBuf::from);
    let cache = cache.filter(|path| path.is_absolute()).or_else(home);
    cache
        .unwrap_or_else(|| PathBuf::from("/var/cache"))
        .join("slowpath/lab")
}

/// The version in a release as `uname -r` says it: 6.12.117 of 6.12.117+deb12-cloud-amd64.
pub fn version(release: &str) -> &str {
    let end = release.find(|c: char| !c.is_ascii_digit() && c != '.');
    &release[..end.unwrap_or(release.len())]
}

impl Kernel {
    /// The kernel made from that source with that tick: the one that the environment names,
    /// or the one that `make lab-kernel` left.
    ///
    /// # Errors
    /// It is not there.
    pub fn find(source: &str, hz: u32) -> Result<Self, MissingKernel> {
        let path = match std::env::var_os(VARIABLE) {
            Some(path) => PathBuf::from(path),
            None => cache().join(format!("linux-{source}-hz{hz}-v{VERSION}")),
        };
        Self::at(&path, source, hz)
    }

    /// The version of Linux that it is built from, as it says itself. `None`: it does not run.
    pub fn version(&self) -> Option<String> {
        let output = std::process::Command::new(&self.path)
            .arg("--version")
            .output();
        let said = String::from_utf8(output.ok()?.stdout).ok()?;
        Some(version(said.trim()).to_owned())
    }

    fn at(path: &Path, source: &str, hz: u32) -> Result<Self, MissingKernel> {
        if path.is_file() {
            return Ok(Kernel {
                path: path.to_owned(),
                hz,
            });
        }
        let mut arguments = String::new();
        if hz != HZ {
            arguments += &format!(" LAB_HZ={hz}");
        }
        Err(MissingKernel {
            path: path.to_owned(),
            arguments,
            source_version: source.to_owned(),
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_release_begins_with_its_version() {
        for (release, wanted) in [
            ("6.12.117+deb12-cloud-amd64", "6.12.117"),
            ("6.12.117-slowpath", "6.12.117"),
            ("6.18.5", "6.18.5"),
            ("", ""),
        ] {
            assert_eq!(version(release), wanted);
        }
    }

    #[test]
    fn a_missing_kernel_says_how_to_get_it() {
        let missing = Kernel::at(Path::new("/nowhere/linux"), SOURCE, 1000).unwrap_err();
        let text = missing.to_string();
        assert!(text.contains("/nowhere/linux"), "{text}");
        assert!(text.contains("`make lab-kernel LAB_HZ=1000`"), "{text}");
        let usual = Kernel::at(Path::new("/nowhere/linux"), SOURCE, HZ).unwrap_err();
        assert!(usual.to_string().contains("`make lab-kernel`"));
    }
}
