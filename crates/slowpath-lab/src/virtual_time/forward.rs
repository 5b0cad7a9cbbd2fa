// SPDX-License-Identifier: Apache-2.0
//! The packet path in a process inside, for comparison: what
//! [`PacketPath::Process`](super::PacketPath) starts as the kernel's first process.
//!
//! It reads packets from the driver's file, holds the same switch model as the driver does
//! otherwise, and writes them back at their time: `lab/kernel/driver/process.c`.

use super::wire::{MAGIC, RawPacketHead, RawPlan, Reader};
use slowpath_switch::fabric::{Delivered, Dropped, Fabric, Plan, Sink};
use slowpath_switch::{Header, Time};
use std::fs::{File, OpenOptions};
use std::io::{self, ErrorKind, Read, Write};
use std::os::fd::AsRawFd;
use std::os::unix::fs::OpenOptionsExt;
use std::path::Path;
use zerocopy::IntoBytes;

/// The longest IP packet behind its head.
const ROOM: usize = size_of::<RawPacketHead>() + 65_535;

/// Bytes of packets that are inside, by handle.
#[derive(Default)]
struct Carried {
    packets: Vec<Vec<u8>>,
    free: Vec<usize>,
}

impl Carried {
    fn insert(&mut self, bytes: &[u8]) -> u64 {
        if let Some(at) = self.free.pop() {
            self.packets[at].clear();
            self.packets[at].extend_from_slice(bytes);
            return at as u64;
        }
        self.packets.push(bytes.to_vec());
        (self.packets.len() - 1) as u64
    }
}

/// What has arrived and not been written yet.
struct Out {
    carried: Carried,
    arrived: Vec<Header>,
}

impl Sink for Out {
    fn delivered(&mut self, _: Time, delivered: Delivered) {
        self.arrived.push(delivered.packet);
    }
    fn dropped(&mut self, _: Time, dropped: Dropped) {
        self.carried.free.push(dropped.packet.handle as usize);
    }
}

/// Forwards packets for ever: the kernel ends the run.
///
/// # Errors
/// A file is not there or is not what it should be.
pub fn forward(plan: &Path) -> io::Result<()> {
    let bytes = std::fs::read(plan)?;
    let invalid = || io::Error::from(ErrorKind::InvalidData);
    let network = network_of(&bytes).ok_or_else(invalid)?;
    let network = Plan::decode(network).map_err(|_| invalid())?;
    let mut fabric = Fabric::new(&network).map_err(|_| invalid())?;
    mount_proc()?;
    let mut file = OpenOptions::new()
        .read(true)
        .write(true)
        .custom_flags(libc::O_NONBLOCK)
        .open("/proc/slowpath-lab")?;
    let mut out = Out {
        carried: Carried::default(),
        arrived: Vec::new(),
    };
    let mut buffer = vec![0; ROOM];
    loop {
        let mut now = clock();
        loop {
            match file.read(&mut buffer) {
                Ok(length) => {
                    let (host, mut header) = head(&buffer[..length]).ok_or_else(invalid)?;
                    header.handle = out.carried.insert(&buffer[..length]);
                    fabric.send(now, host, header, &mut out);
                }
                Err(error) if error.kind() == ErrorKind::WouldBlock => break,
                Err(error) => return Err(error),
            }
        }
        if fabric.next_event().is_some_and(|next| next <= now) {
            fabric.advance(now, &mut out);
        }
        if !out.arrived.is_empty() {
            for packet in std::mem::take(&mut out.arrived) {
                let bytes = &mut out.carried.packets[packet.handle as usize];
                write_head(bytes, &packet).ok_or_else(invalid)?;
                file.write_all(bytes)?;
                out.carried.free.push(packet.handle as usize);
            }
            // They may have been answered.
            continue;
        }
        now = clock();
        let wait = fabric
            .next_event()
            .map(|next| next.0.saturating_sub(now.0).div_ceil(1000));
        wait_for(&file, wait);
    }
}

/// The network's plan, at the end of the file.
fn network_of(bytes: &[u8]) -> Option<&[u8]> {
    let plan: RawPlan = Reader(bytes).get()?;
    if plan.magic != MAGIC {
        return None;
    }
    bytes.get(bytes.len().checked_sub(plan.fabric as usize)?..)
}

fn head(bytes: &[u8]) -> Option<(u32, Header)> {
    let head: RawPacketHead = Reader(bytes).get()?;
    let header = Header {
        handle: head.handle,
        flow: head.flow,
        bytes: head.bytes,
        destination: head.destination,
        class: head.class_,
        ttl: head.ttl,
        ecn: head.ecn,
        tag: head.tag,
    };
    Some((head.host, header))
}

/// What the driver reads of a head: destination, time to live, mark. `None` if the bytes hold none.
fn write_head(bytes: &mut [u8], packet: &Header) -> Option<()> {
    let mut head: RawPacketHead = Reader(bytes).get()?;
    head.destination = packet.destination;
    head.ttl = packet.ttl;
    head.ecn = packet.ecn;
    head.write_to_prefix(bytes).ok()
}

fn mount_proc() -> io::Result<()> {
    // SAFETY: a system call with two constant strings; no data.
    let result = unsafe {
        libc::mount(
            c"proc".as_ptr(),
            c"/proc".as_ptr(),
            c"proc".as_ptr(),
            0,
            std::ptr::null(),
        )
    };
    // SAFETY: a system call without pointers. Wake-ups are to be on time.
    unsafe { libc::prctl(libc::PR_SET_TIMERSLACK, 1) };
    if result == 0 {
        Ok(())
    } else {
        Err(io::Error::last_os_error())
    }
}

fn clock() -> Time {
    let mut time = libc::timespec {
        tv_sec: 0,
        tv_nsec: 0,
    };
    // SAFETY: the structure is valid for the call. This clock is always there.
    unsafe { libc::clock_gettime(libc::CLOCK_MONOTONIC, &raw mut time) };
    Time::from_nanos(time.tv_sec as u64 * 1_000_000_000 + time.tv_nsec as u64)
}

/// Until there is something to read, or so many nanoseconds.
fn wait_for(file: &File, nanoseconds: Option<u64>) {
    let mut one = libc::pollfd {
        fd: file.as_raw_fd(),
        events: libc::POLLIN,
        revents: 0,
    };
    let time = nanoseconds.map(|ns| libc::timespec {
        tv_sec: (ns / 1_000_000_000) as _,
        tv_nsec: (ns % 1_000_000_000) as libc::c_long,
    });
    let pointer = time.as_ref().map_or(std::ptr::null(), std::ptr::from_ref);
    // SAFETY: one entry, and a time that is null or valid for the call; no signal mask.
    unsafe { libc::ppoll(&raw mut one, 1, pointer, std::ptr::null()) };
}
