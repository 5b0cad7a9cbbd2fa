// SPDX-License-Identifier: Apache-2.0
//! File systems and the loopback device.

use super::{InitError, RESULTS};
use rustix::io::Errno;
use rustix::mount::{MountFlags, mount};
use rustix::net::{
    AddressFamily, RecvFlags, SendFlags, SocketFlags, SocketType, netlink, recv, sendto,
    socket_with,
};
use std::fs;
use std::io;

/// What, where, with which options; in this order.
const MOUNTS: [(&str, &str, &str); 12] = [
    ("proc", "/proc", ""),
    ("sysfs", "/sys", ""),
    ("devtmpfs", "/dev", ""),
    ("devpts", "/dev/pts", "mode=620,ptmxmode=666"),
    ("tmpfs", "/dev/shm", "mode=1777"),
    ("tmpfs", "/run", "mode=755"),
    ("tmpfs", "/tmp", "mode=1777"),
    ("cgroup2", "/sys/fs/cgroup", ""),
    ("bpf", "/sys/fs/bpf", "mode=700"),
    ("debugfs", "/sys/kernel/debug", ""),
    ("tracefs", "/sys/kernel/tracing", ""),
    ("securityfs", "/sys/kernel/security", ""),
];

/// Mounts what programs expect. What this kernel does not have is left out.
pub fn mount_all() -> Result<(), InitError> {
    for (kind, place, options) in MOUNTS {
        // Below /proc and /sys the kernel makes the folders: one that is missing means that
        // there is nothing to mount.
        if fs::create_dir_all(place).is_err() {
            continue;
        }
        let options = std::ffi::CString::new(options).unwrap_or_default();
        let flags = MountFlags::NOSUID;
        match mount(kind, place, kind, flags, options.as_c_str()) {
            Ok(()) | Err(Errno::BUSY | Errno::NODEV) => {}
            Err(error) => return Err(InitError::of("mount", place)(error)),
        }
    }
    for folder in [RESULTS, "/root"] {
        fs::create_dir_all(folder).map_err(InitError::of("make", folder))?;
    }
    // What udev would do.
    for (name, target) in [
        ("fd", "/proc/self/fd"),
        ("stdin", "/proc/self/fd/0"),
        ("stdout", "/proc/self/fd/1"),
        ("stderr", "/proc/self/fd/2"),
    ] {
        // Some kernels' devtmpfs has them.
        let _ = std::os::unix::fs::symlink(target, format!("/dev/{name}"));
    }
    rustix::system::sethostname(b"guest").map_err(InitError::of("name", "this machine"))
}

/// An RTM_NEWLINK that raises IFF_UP on the first device, which is `lo` in every new kernel
/// (netlink(7), rtnetlink(7)).
pub fn bring_up_loopback() -> Result<(), InitError> {
    const RTM_NEWLINK: u16 = 16;
    const NLM_F_REQUEST_AND_ACK: u16 = 1 | 4;
    const IFF_UP: u32 = 1;
    const LOOPBACK: i32 = 1;
    const HEADER: usize = 16;
    let mut request = Vec::with_capacity(32);
    request.extend(32_u32.to_ne_bytes());
    request.extend(RTM_NEWLINK.to_ne_bytes());
    request.extend(NLM_F_REQUEST_AND_ACK.to_ne_bytes());
    // Sequence and port: no matter.
    request.extend([0; 8]);
    // ifinfomsg: family, padding, type, index, flags, which flags.
    request.extend([0; 4]);
    request.extend(LOOPBACK.to_ne_bytes());
    request.extend(IFF_UP.to_ne_bytes());
    request.extend(IFF_UP.to_ne_bytes());
    let ask = || -> io::Result<i32> {
        let socket = socket_with(
            AddressFamily::NETLINK,
            SocketType::RAW,
            SocketFlags::CLOEXEC,
            None,
        )?;
        let kernel = netlink::SocketAddrNetlink::new(0, 0);
        sendto(&socket, &request, SendFlags::empty(), &kernel)?;
        let mut answer = [0_u8; 512];
        let (length, _) = recv(&socket, &mut answer, RecvFlags::empty())?;
        // nlmsgerr: the error, negative, or 0.
        match answer[..length].get(HEADER..HEADER + 4) {
            Some(&[a, b, c, d]) => Ok(i32::from_ne_bytes([a, b, c, d])),
            _ => Err(io::Error::from(io::ErrorKind::UnexpectedEof)),
        }
    };
    let answer = ask().and_then(|error| match error {
        0 => Ok(()),
        error => Err(io::Error::from_raw_os_error(-error)),
    });
    answer.map_err(InitError::of("bring up", "lo"))
}
