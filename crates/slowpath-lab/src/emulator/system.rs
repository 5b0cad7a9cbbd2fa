// SPDX-License-Identifier: Apache-2.0
//! The system calls: namespaces, interfaces, clocks.

use std::fs::{File, OpenOptions};
use std::io;
use std::net::{Ipv4Addr, Ipv6Addr};
use std::os::fd::{AsRawFd, FromRawFd, OwnedFd};
use std::os::unix::fs::OpenOptionsExt;

/// The result of a call that returns -1 and sets `errno`.
pub(super) fn checked(result: libc::c_int) -> io::Result<libc::c_int> {
    match result {
        -1 => Err(io::Error::last_os_error()),
        result => Ok(result),
    }
}

/// Moves the calling thread into a new network namespace, and gives its file.
pub(super) fn new_network_namespace() -> io::Result<File> {
    // SAFETY: unshare takes flags; a network namespace is the thread's own matter.
    checked(unsafe { libc::unshare(libc::CLONE_NEWNET) })?;
    File::open("/proc/thread-self/ns/net")
}

/// Moves the calling thread into the namespace that a file stands for.
pub(super) fn enter(namespace: &File, kind: libc::c_int) -> io::Result<()> {
    // SAFETY: setns takes integers.
    checked(unsafe { libc::setns(namespace.as_raw_fd(), kind) }).map(drop)
}

/// Makes a TUN device in the calling thread's network namespace: packets without framing.
pub(super) fn open_tun(name: &str) -> io::Result<File> {
    let file = OpenOptions::new()
        .read(true)
        .write(true)
        .custom_flags(libc::O_NONBLOCK)
        .open("/dev/net/tun")?;
    let mut request = interface_request(name);
    request.ifr_ifru.ifru_flags = (libc::IFF_TUN | libc::IFF_NO_PI) as libc::c_short;
    // SAFETY: TUNSETIFF reads and writes one ifreq, which outlives the call.
    checked(unsafe { libc::ioctl(file.as_raw_fd(), libc::TUNSETIFF as _, &raw mut request) })?;
    Ok(file)
}

/// An interface request with that name, cut to the kernel's 15 bytes.
fn interface_request(name: &str) -> libc::ifreq {
    // SAFETY: ifreq is plain data for which all zeroes are valid.
    let mut request: libc::ifreq = unsafe { std::mem::zeroed() };
    let room = request.ifr_name.len() - 1;
    for (to, from) in request.ifr_name[..room].iter_mut().zip(name.bytes()) {
        *to = from as libc::c_char;
    }
    request
}

/// A socket to ask the calling thread's network namespace by.
fn control_socket(family: libc::c_int) -> io::Result<OwnedFd> {
    // SAFETY: socket takes integers.
    let fd = checked(unsafe { libc::socket(family, libc::SOCK_DGRAM | libc::SOCK_CLOEXEC, 0) })?;
    // SAFETY: the descriptor was just opened and nothing else owns it.
    Ok(unsafe { OwnedFd::from_raw_fd(fd) })
}

fn ask<T>(socket: &OwnedFd, request: libc::c_ulong, argument: &mut T) -> io::Result<()> {
    let argument = std::ptr::from_mut(argument);
    // SAFETY: every caller passes the structure that its request reads or writes, which
    // outlives the call.
    checked(unsafe { libc::ioctl(socket.as_raw_fd(), request as _, argument) }).map(drop)
}

/// An interface of the calling thread's network namespace.
pub(super) struct Interface<'a> {
    pub name: &'a str,
}

impl Interface<'_> {
    /// Brings it up.
    pub fn up(&self) -> io::Result<()> {
        let socket = control_socket(libc::AF_INET)?;
        let mut request = interface_request(self.name);
        ask(&socket, libc::SIOCGIFFLAGS as _, &mut request)?;
        // SAFETY: the kernel just wrote the flags.
        let flags = unsafe { request.ifr_ifru.ifru_flags };
        request.ifr_ifru.ifru_flags = flags | libc::IFF_UP as libc::c_short;
        ask(&socket, libc::SIOCSIFFLAGS as _, &mut request)
    }

    /// Sets its largest packet, and how many packets it holds for us.
    pub fn size(&self, mtu: i32, queue: i32) -> io::Result<()> {
        let socket = control_socket(libc::AF_INET)?;
        let mut request = interface_request(self.name);
        request.ifr_ifru.ifru_mtu = mtu;
        ask(&socket, libc::SIOCSIFMTU as _, &mut request)?;
        let mut request = interface_request(self.name);
        request.ifr_ifru.ifru_metric = queue;
        match ask(&socket, libc::SIOCSIFTXQLEN as _, &mut request) {
            // A user namespace's root may not: the device's 500 packets stay.
            Err(error) if error.kind() == io::ErrorKind::PermissionDenied => Ok(()),
            result => result,
        }
    }

    /// Gives it an address of its own, and sends everything through it.
    pub fn address4(&self, address: Ipv4Addr) -> io::Result<()> {
        let socket = control_socket(libc::AF_INET)?;
        for (command, address) in [
            (libc::SIOCSIFADDR, address),
            (libc::SIOCSIFNETMASK, Ipv4Addr::BROADCAST),
        ] {
            let mut request = interface_request(self.name);
            request.ifr_ifru.ifru_addr = plain(inet(address));
            ask(&socket, command as _, &mut request)?;
        }
        // SAFETY: rtentry is plain data for which all zeroes are valid.
        let mut route: libc::rtentry = unsafe { std::mem::zeroed() };
        route.rt_dst = plain(inet(Ipv4Addr::UNSPECIFIED));
        route.rt_genmask = plain(inet(Ipv4Addr::UNSPECIFIED));
        route.rt_flags = libc::RTF_UP;
        let mut name = interface_request(self.name).ifr_name;
        route.rt_dev = name.as_mut_ptr();
        ask(&socket, libc::SIOCADDRT as _, &mut route)
    }

    /// The same for IPv6.
    pub fn address6(&self, address: Ipv6Addr) -> io::Result<()> {
        let socket = control_socket(libc::AF_INET6)?;
        let mut request = interface_request(self.name);
        ask(&socket, libc::SIOCGIFINDEX as _, &mut request)?;
        // SAFETY: the kernel just wrote the index.
        let index = unsafe { request.ifr_ifru.ifru_ifindex };
        let address = libc::in6_addr {
            s6_addr: address.octets(),
        };
        let mut request = libc::in6_ifreq {
            ifr6_addr: address,
            ifr6_prefixlen: 128,
            ifr6_ifindex: index,
        };
        ask(&socket, libc::SIOCSIFADDR as _, &mut request)?;
        let any = libc::in6_addr { s6_addr: [0; 16] };
        let mut route = Route6 {
            destination: any,
            source: any,
            gateway: any,
            kind: 0,
            destination_length: 0,
            source_length: 0,
            metric: 1,
            info: 0,
            flags: u32::from(libc::RTF_UP),
            index,
        };
        ask(&socket, libc::SIOCADDRT as _, &mut route)
    }
}

/// `struct in6_rtmsg` of include/uapi/linux/ipv6_route.h.
#[repr(C)]
struct Route6 {
    destination: libc::in6_addr,
    source: libc::in6_addr,
    gateway: libc::in6_addr,
    kind: u32,
    destination_length: u16,
    source_length: u16,
    metric: u32,
    info: libc::c_ulong,
    flags: u32,
    index: libc::c_int,
}

fn inet(address: Ipv4Addr) -> libc::sockaddr_in {
    // SAFETY: sockaddr_in is plain data for which all zeroes are valid.
    let mut inet: libc::sockaddr_in = unsafe { std::mem::zeroed() };
    inet.sin_family = libc::AF_INET as libc::sa_family_t;
    inet.sin_addr.s_addr = u32::from_ne_bytes(address.octets());
    inet
}

fn plain(inet: libc::sockaddr_in) -> libc::sockaddr {
    // SAFETY: both are plain data of 16 bytes.
    unsafe { std::mem::transmute::<libc::sockaddr_in, libc::sockaddr>(inet) }
}

/// Nanoseconds of CLOCK_MONOTONIC.
pub(super) fn monotonic() -> u64 {
    // SAFETY: timespec is plain data for which all zeroes are valid.
    let mut now: libc::timespec = unsafe { std::mem::zeroed() };
    // SAFETY: the clock exists in every Linux, and the kernel writes one timespec.
    unsafe { libc::clock_gettime(libc::CLOCK_MONOTONIC, &raw mut now) };
    now.tv_sec as u64 * 1_000_000_000 + now.tv_nsec as u64
}

/// What the calling thread could get of the scheduler.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Urgency {
    /// Real-time scheduling.
    pub real_time: bool,
}

/// Makes the calling thread wake on time as far as it may: no timer slack, and real-time
/// scheduling at the lowest priority.
pub(super) fn hurry() -> Urgency {
    // SAFETY: prctl with PR_SET_TIMERSLACK takes integers.
    unsafe { libc::prctl(libc::PR_SET_TIMERSLACK, 1usize) };
    // The kernel's struct sched_param.
    let priority: libc::c_int = 1;
    // SAFETY: 0 is the calling thread, and the parameter outlives the call. musl's function of
    // that name only says ENOSYS.
    let result = unsafe {
        let policy = libc::SCHED_FIFO | libc::SCHED_RESET_ON_FORK;
        libc::syscall(libc::SYS_sched_setscheduler, 0, policy, &raw const priority)
    };
    Urgency {
        real_time: result == 0,
    }
}
