// SPDX-License-Identifier: Apache-2.0
//! Owners of sockets where BPF does not tell: `/proc/PID/fd`.

use rustc_hash::FxHashMap;
use slowpath_model::Owner;
use std::fs;

/// The process that holds each socket, by the socket's inode number. Processes whose files
/// this one may not see are left out; of several holders the one with the lowest pid wins.
pub(crate) fn by_inode() -> FxHashMap<u32, Owner> {
    let mut owners: FxHashMap<u32, Owner> = FxHashMap::default();
    for process in fs::read_dir("/proc").into_iter().flatten().flatten() {
        let Some(pid) = process
            .file_name()
            .to_str()
            .and_then(|n| n.parse::<u32>().ok())
        else {
            continue;
        };
        let mut command = None;
        for file in fs::read_dir(process.path().join("fd"))
            .into_iter()
            .flatten()
            .flatten()
        {
            let Some(inode) = fs::read_link(file.path())
                .ok()
                .and_then(|target| socket_inode(target.to_str()?))
            else {
                continue;
            };
            let command = command.get_or_insert_with(|| {
                let name = fs::read_to_string(process.path().join("comm")).unwrap_or_default();
                std::sync::Arc::<str>::from(name.trim_end())
            });
            let owner = Owner::named(pid, command);
            owners
                .entry(inode)
                .and_modify(|o| {
                    if Some(pid) < o.pid() {
                        *o = owner.clone();
                    }
                })
                .or_insert(owner);
        }
    }
    owners
}

/// `socket:[N]` gives N.
fn socket_inode(target: &str) -> Option<u32> {
    target
        .strip_prefix("socket:[")?
        .strip_suffix(']')?
        .parse()
        .ok()
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::net::TcpListener;
    use std::os::unix::fs::MetadataExt;

    #[test]
    fn links_that_are_no_sockets_are_nothing() {
        assert_eq!(socket_inode("socket:[4026531840]"), Some(4_026_531_840));
        for target in [
            "pipe:[3]",
            "socket:[]",
            "socket:[-1]",
            "socket:[3",
            "/dev/null",
        ] {
            assert_eq!(socket_inode(target), None, "{target}");
        }
    }

    #[test]
    fn a_socket_of_this_process_is_its_own() {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let fd = std::os::fd::AsRawFd::as_raw_fd(&listener);
        let inode = fs::metadata(format!("/proc/self/fd/{fd}")).unwrap().ino() as u32;
        assert_eq!(by_inode()[&inode].pid(), Some(std::process::id()));
    }
}
