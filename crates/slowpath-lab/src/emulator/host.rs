// SPDX-License-Identifier: Apache-2.0
//! A host of an emulated network: made, entered, given what to run.

use super::address::Addressee;
use super::error::LabError;
use super::holder::{CLONE_NEWTIME, Holder, time_namespace};
use super::system::{self, Interface};
use slowpath_netsim::scenario::HostSetup;
use std::fs::{self, File};
use std::io;
use std::net::{Ipv4Addr, Ipv6Addr};
use std::os::fd::AsRawFd;
use std::os::unix::fs::MetadataExt;
use std::os::unix::process::CommandExt;
use std::process::{Child, Command};
use std::sync::Arc;

/// The interface of every host.
pub const INTERFACE: &str = "eth0";

/// Ethernet's.
const MTU: u32 = 1500;

/// Packets that an interface holds for the emulator while that is busy: 60 ms at 200 Mbit/s.
/// When they are too many the kernel drops, and the report says it.
const QUEUE: i32 = 1000;

/// Sysctls of every host, and why. A scenario may set others on top.
pub const PINNED_SYSCTLS: &[(&str, &str, &str)] = &[
    (
        "net.ipv4.tcp_no_metrics_save",
        "1",
        "one connection must not start the next one",
    ),
    (
        "net.ipv4.conf.all.rp_filter",
        "0",
        "routes may be asymmetric",
    ),
    (
        "net.ipv4.conf.default.rp_filter",
        "0",
        "routes may be asymmetric",
    ),
    (
        "net.ipv4.ping_group_range",
        "0 2147483647",
        "ping without privileges",
    ),
    (
        "net.ipv6.conf.default.accept_ra",
        "0",
        "no router advertises itself",
    ),
    (
        "net.ipv6.conf.default.router_solicitations",
        "0",
        "no router answers",
    ),
    (
        "net.ipv6.conf.default.accept_dad",
        "0",
        "addresses are given out once; usable at once",
    ),
    (
        "net.ipv6.conf.default.addr_gen_mode",
        "1",
        "no link-local address, so no multicast",
    ),
];

/// Sysctls that a kernel without IPv6 does not have, and one whose groups a user namespace
/// does not have: hosts do without.
fn is_dispensable(sysctl: &str) -> bool {
    sysctl.starts_with("net.ipv6.") || sysctl == "net.ipv4.ping_group_range"
}

/// What a host's interface is like, where the scenario says so.
#[derive(Clone, Copy, Debug)]
pub(super) struct Link {
    /// Time to live of a new packet.
    pub ttl: Option<u8>,
    /// The longest packet.
    pub mtu: Option<u32>,
}

/// A host.
#[derive(Debug)]
pub struct Host {
    name: String,
    number: u32,
    network: File,
    time: Option<File>,
    holder: Arc<Holder>,
}

impl Host {
    /// Makes the namespace with its interface up; gives also the emulator's end of that.
    pub(super) fn make(
        name: &str,
        number: u32,
        setup: &HostSetup,
        link: Link,
        holder: &Arc<Holder>,
    ) -> Result<(Self, File), LabError> {
        let (network, interface) = std::thread::scope(|scope| {
            let made = scope.spawn(|| build(name, number, setup, link)).join();
            made.unwrap_or_else(|panic| std::panic::resume_unwind(panic))
        })?;
        let time = match setup.clock {
            0 => None,
            ahead => {
                let host = name.to_owned();
                Some(time_namespace(ahead).map_err(|source| LabError::Clock { host, source })?)
            }
        };
        let host = Host {
            name: name.to_owned(),
            number,
            network,
            time,
            holder: Arc::clone(holder),
        };
        Ok((host, interface))
    }

    /// Its name in the scenario.
    pub fn name(&self) -> &str {
        &self.name
    }

    /// Its IPv4 address.
    pub fn ipv4(&self) -> Ipv4Addr {
        Addressee::Host(self.number).v4()
    }

    /// Its IPv6 address.
    pub fn ipv6(&self) -> Ipv6Addr {
        Addressee::Host(self.number).v6()
    }

    /// The inode number of its network namespace.
    ///
    /// # Errors
    /// The namespace's file cannot be examined.
    pub fn inode(&self) -> io::Result<u64> {
        Ok(self.network.metadata()?.ino())
    }

    /// The descriptors of its namespaces in this process: network, processes, and, if its
    /// clock is shifted, time.
    pub fn descriptors(&self) -> (i32, i32, Option<i32>) {
        let time = self.time.as_ref().map(AsRawFd::as_raw_fd);
        let processes = self.holder.namespace.as_raw_fd();
        (self.network.as_raw_fd(), processes, time)
    }

    /// Runs `work` on a thread inside its network namespace and waits for it. Clocks and
    /// processes are this process's own.
    ///
    /// # Errors
    /// The namespace cannot be entered. A panic of `work` is passed on.
    pub fn run<T: Send>(&self, work: impl FnOnce() -> T + Send) -> io::Result<T> {
        std::thread::scope(|scope| {
            let inside = scope.spawn(|| {
                system::enter(&self.network, libc::CLONE_NEWNET)?;
                Ok(work())
            });
            inside
                .join()
                .unwrap_or_else(|panic| std::panic::resume_unwind(panic))
        })
    }

    /// Starts a command in it: in its network, with its clock. However it behaves, it ends
    /// with the network.
    ///
    /// # Errors
    /// A namespace cannot be entered, or the command not be started.
    pub fn spawn(&self, command: &mut Command) -> io::Result<Child> {
        if let Some(time) = &self.time {
            let time = time.try_clone()?;
            // SAFETY: setns is async-signal-safe, on a descriptor that the closure owns. A
            // process enters a time namespace only while it has one thread, as here.
            unsafe { command.pre_exec(move || system::enter(&time, CLONE_NEWTIME)) };
        }
        // Of a process namespace only children become members, and a thread that has
        // chosen one makes no threads: one for this purpose.
        self.run(|| {
            system::enter(&self.holder.namespace, libc::CLONE_NEWPID)?;
            command.spawn()
        })?
    }
}

/// On a thread of its own, which afterwards ends.
fn build(name: &str, number: u32, setup: &HostSetup, link: Link) -> Result<(File, File), LabError> {
    let network = system::new_network_namespace().map_err(|source| match source.kind() {
        io::ErrorKind::PermissionDenied => LabError::NotPermitted,
        _ => LabError::system("make a network namespace")(source),
    })?;
    let pinned = PINNED_SYSCTLS
        .iter()
        .map(|(name, value, _)| (*name, *value));
    for (sysctl, value) in pinned {
        match set(name, sysctl, value) {
            Err(_) if is_dispensable(sysctl) => {}
            result => result?,
        }
    }
    let loopback = Interface { name: "lo" };
    loopback
        .up()
        .map_err(LabError::system("bring a loopback interface up"))?;
    let tun = system::open_tun(INTERFACE).map_err(|source| match source.raw_os_error() {
        Some(libc::ENOENT | libc::ENODEV | libc::ENXIO | libc::EACCES | libc::EPERM) => {
            LabError::NoTun(source)
        }
        _ => LabError::system("make a TUN device")(source),
    })?;
    let own = Addressee::Host(number);
    let interface = Interface { name: INTERFACE };
    let set_up = || {
        // At most 1,500, so it fits.
        interface.size(link.mtu.unwrap_or(MTU) as i32, QUEUE)?;
        interface.up()?;
        interface.address4(own.v4())?;
        match interface.address6(own.v6()) {
            // A kernel without IPv6.
            Err(error) if error.raw_os_error() == Some(libc::EAFNOSUPPORT) => Ok(()),
            result => result,
        }
    };
    set_up().map_err(LabError::system("set an interface up"))?;
    if let Some(ttl) = link.ttl {
        set(name, "net.ipv4.ip_default_ttl", &ttl.to_string())?;
        set(
            name,
            &format!("net.ipv6.conf.{INTERFACE}.hop_limit"),
            &ttl.to_string(),
        )?;
    }
    for (sysctl, value) in &setup.sysctls {
        set(name, sysctl, value)?;
    }
    Ok((network, tun))
}

/// Sets a sysctl of the calling thread's network namespace.
fn set(host: &str, name: &str, value: &str) -> Result<(), LabError> {
    let path = format!("/proc/sys/{}", name.replace('.', "/"));
    fs::write(path, value).map_err(|source| LabError::Sysctl {
        host: host.to_owned(),
        name: name.to_owned(),
        value: value.to_owned(),
        source,
    })
}
