// SPDX-License-Identifier: Apache-2.0
//! The ring of AF_PACKET (Documentation/networking/packet_mmap.rst, linux/if_packet.h).

use super::{LiveError, Request};
use crate::filter::Program;
use crate::frame::Link;
use std::ffi::CString;
use std::io;
use std::os::fd::{AsRawFd, FromRawFd, OwnedFd};
use std::ptr::NonNull;
use std::sync::atomic::{AtomicU32, Ordering};
use std::time::Duration;

/// A block is handed over when it is full, or after this time.
const PATIENCE: Duration = Duration::from_millis(50);
/// How long one wait for a block lasts at most.
const WAIT_MS: i32 = 100;
const BLOCK: usize = 1 << 20;

/// ARP hardware types (linux/if_arp.h).
const ETHERNET: u16 = 1;
const LOOPBACK: u16 = 772;
/// Those whose frames begin with IP: PPP over L2TP and the like say raw IP, tunnels, TUN.
const IP_ONLY: [u16; 5] = [519, 65534, 768, 769, 776];

/// Frames reach a socket of protocol 0 only after it is bound.
const ALL: u16 = libc::ETH_P_ALL as u16;

/// A frame in a block.
pub(super) struct Frame<'a> {
    pub(super) seconds: u32,
    pub(super) nanoseconds: u32,
    /// Of the frame on the wire, `head` and tag included.
    pub(super) wire_length: u32,
    /// What comes before it, for captures of all interfaces.
    pub(super) head: &'a [u8],
    pub(super) data: &'a [u8],
    /// The VLAN tag that Linux took out of it.
    pub(super) tag: Option<[u8; 4]>,
}

pub(super) struct Ring {
    socket: OwnedFd,
    memory: NonNull<u8>,
    blocks: usize,
    next: usize,
    link: Link,
    filters: bool,
}

// SAFETY: only the ring owns the mapping, which may be read from any thread.
unsafe impl Send for Ring {}

impl Ring {
    pub(super) fn open(request: &Request) -> Result<Self, LiveError> {
        let failed = |operation| {
            move |source| LiveError {
                operation,
                interface: request.interface.clone(),
                source,
            }
        };
        let (index, link, loopback) = interface(&request.interface).map_err(failed("capture"))?;
        let kind = match link {
            Link::Sll => libc::SOCK_DGRAM,
            _ => libc::SOCK_RAW,
        };
        // SAFETY: socket takes integers; a descriptor that it returns is ours.
        let socket = unsafe { libc::socket(libc::AF_PACKET, kind | libc::SOCK_CLOEXEC, 0) };
        let socket = checked(socket).map_err(failed("open a packet socket"))?;
        // SAFETY: as above.
        let socket = unsafe { OwnedFd::from_raw_fd(socket) };
        if loopback {
            // Its frames come twice otherwise, and fill the ring twice. Before Linux 4.20 there
            // is no such option; then `frame` leaves the second out.
            let _ = set(&socket, libc::PACKET_IGNORE_OUTGOING, &1i32);
        }
        let filters = attach(&socket, request, link).map_err(failed("attach the filter"))?;
        let version = libc::tpacket_versions::TPACKET_V3 as i32;
        set(&socket, libc::PACKET_VERSION, &version).map_err(failed("use TPACKET_V3"))?;
        let blocks = (request.buffer / BLOCK).clamp(2, 4096);
        // Frame size and number must fit the blocks; frames of any size up to a block's come.
        let frame = 2048;
        let ring = libc::tpacket_req3 {
            tp_block_size: BLOCK as u32,
            tp_block_nr: blocks as u32,
            tp_frame_size: frame,
            tp_frame_nr: BLOCK as u32 / frame * blocks as u32,
            tp_retire_blk_tov: PATIENCE.as_millis() as u32,
            tp_sizeof_priv: 0,
            tp_feature_req_word: 0,
        };
        set(&socket, libc::PACKET_RX_RING, &ring).map_err(failed("make the ring"))?;
        // SAFETY: maps the socket's ring at an address of the kernel's choice.
        let memory = unsafe {
            libc::mmap(
                std::ptr::null_mut(),
                blocks * BLOCK,
                libc::PROT_READ | libc::PROT_WRITE,
                libc::MAP_SHARED,
                socket.as_raw_fd(),
                0,
            )
        };
        let memory = match NonNull::new(memory.cast::<u8>()) {
            Some(memory) if memory.as_ptr().cast() != libc::MAP_FAILED => memory,
            _ => return Err(failed("map the ring")(io::Error::last_os_error())),
        };
        let ring = Ring {
            socket,
            memory,
            blocks,
            next: 0,
            link,
            filters,
        };
        ring.begin(index, request).map_err(failed("listen"))?;
        Ok(ring)
    }

    fn begin(&self, index: u32, request: &Request) -> io::Result<()> {
        if request.promiscuous && index != 0 {
            let member = libc::packet_mreq {
                mr_ifindex: index as i32,
                mr_type: libc::PACKET_MR_PROMISC as u16,
                mr_alen: 0,
                mr_address: [0; 8],
            };
            set(&self.socket, libc::PACKET_ADD_MEMBERSHIP, &member)?;
        }
        // SAFETY: a structure of integers, for which zero is a value.
        let mut address: libc::sockaddr_ll = unsafe { std::mem::zeroed() };
        address.sll_family = libc::AF_PACKET as u16;
        address.sll_protocol = ALL.to_be();
        address.sll_ifindex = index as i32;
        // SAFETY: the address is a sockaddr_ll of that size.
        let bound = unsafe {
            libc::bind(
                self.socket.as_raw_fd(),
                (&raw const address).cast(),
                size_of_val(&address) as u32,
            )
        };
        checked(bound).map(drop)
    }

    pub(super) fn link(&self) -> Link {
        self.link
    }

    /// Whether the kernel applies the filter.
    pub(super) fn filters(&self) -> bool {
        self.filters
    }

    /// Waits for a block, shows its frames, gives it back. `false`: none came in 100 ms.
    pub(super) fn next_block(&mut self, mut each: impl FnMut(&Frame<'_>)) -> io::Result<bool> {
        // SAFETY: block `next` lies in the mapping, and is aligned for its descriptor.
        let block = unsafe { self.memory.add(self.next * BLOCK) };
        let descriptor = block.cast::<libc::tpacket_block_desc>().as_ptr();
        // SAFETY: the status is a word that the kernel writes too: it is looked at as an atomic.
        let status = unsafe { AtomicU32::from_ptr(&raw mut (*descriptor).hdr.bh1.block_status) };
        let ready = || status.load(Ordering::Acquire) & libc::TP_STATUS_USER != 0;
        if !ready() {
            let mut wait = libc::pollfd {
                fd: self.socket.as_raw_fd(),
                events: libc::POLLIN | libc::POLLERR,
                revents: 0,
            };
            // SAFETY: one pollfd.
            let polled = unsafe { libc::poll(&raw mut wait, 1, WAIT_MS) };
            match checked(polled) {
                Err(error) if error.kind() != io::ErrorKind::Interrupted => return Err(error),
                _ => {}
            }
            if wait.revents & libc::POLLERR != 0 {
                self.pending_error()?;
            }
            if !ready() {
                return Ok(false);
            }
        }
        // SAFETY: the block is ours until its status is given back; the slice ends before that.
        let bytes = unsafe { std::slice::from_raw_parts(block.as_ptr(), BLOCK) };
        // SAFETY: as above; the union's only member.
        let header = unsafe { (*descriptor).hdr.bh1 };
        let mut at = header.offset_to_first_pkt as usize;
        for _ in 0..header.num_pkts {
            let Some(next) = self.frame(bytes, at, &mut each) else {
                break;
            };
            if next == 0 {
                break;
            }
            at += next;
        }
        status.store(libc::TP_STATUS_KERNEL, Ordering::Release);
        self.next = (self.next + 1) % self.blocks;
        Ok(true)
    }

    /// What is wrong with the socket: its interface went down or away.
    fn pending_error(&self) -> io::Result<()> {
        let mut number = 0i32;
        let mut size = size_of_val(&number) as u32;
        // SAFETY: an integer of that size.
        let got = unsafe {
            libc::getsockopt(
                self.socket.as_raw_fd(),
                libc::SOL_SOCKET,
                libc::SO_ERROR,
                (&raw mut number).cast(),
                &raw mut size,
            )
        };
        checked(got)?;
        // An interface that is down may come up again.
        match number {
            0 | libc::ENETDOWN => Ok(()),
            number => Err(io::Error::from_raw_os_error(number)),
        }
    }

    /// Shows the frame whose header is at `at`; where the next one is, from there.
    fn frame(&self, block: &[u8], at: usize, each: &mut impl FnMut(&Frame<'_>)) -> Option<usize> {
        const HEADER: usize = size_of::<libc::tpacket3_hdr>();
        let header = block.get(at..at + HEADER)?;
        // SAFETY: that many bytes are there; the structure is integers.
        let header: libc::tpacket3_hdr =
            unsafe { std::ptr::read_unaligned(header.as_ptr().cast()) };
        let next = header.tp_next_offset as usize;
        let from = at + HEADER.next_multiple_of(16);
        let address = block.get(from..from + size_of::<libc::sockaddr_ll>())?;
        // SAFETY: as above.
        let address: libc::sockaddr_ll =
            unsafe { std::ptr::read_unaligned(address.as_ptr().cast()) };
        // What a loopback interface sends it receives too.
        let twice = address.sll_hatype == LOOPBACK && address.sll_pkttype == libc::PACKET_OUTGOING;
        if twice {
            return Some(next);
        }
        let begin = at + usize::from(header.tp_mac);
        let data = block.get(begin..begin + header.tp_snaplen as usize)?;
        let head = if self.link == Link::Sll {
            cooked(&address)
        } else {
            [0; 16]
        };
        let head = if self.link == Link::Sll {
            &head[..]
        } else {
            &[]
        };
        let valid = header.tp_status & libc::TP_STATUS_VLAN_VALID != 0;
        let tag = (valid && self.link == Link::Ethernet).then(|| {
            let reported = header.tp_status & libc::TP_STATUS_VLAN_TPID_VALID != 0;
            let kind = if reported {
                header.hv1.tp_vlan_tpid
            } else {
                0x8100
            };
            let [a, b] = kind.to_be_bytes();
            let [c, d] = (header.hv1.tp_vlan_tci as u16).to_be_bytes();
            [a, b, c, d]
        });
        each(&Frame {
            seconds: header.tp_sec,
            nanoseconds: header.tp_nsec,
            wire_length: header.tp_len + head.len() as u32 + tag.map_or(0, |_| 4),
            head,
            data,
            tag,
        });
        Some(next)
    }

    /// Frames taken and dropped since the last call.
    pub(super) fn statistics(&self) -> (u64, u64) {
        // SAFETY: a structure of integers, for which zero is a value.
        let mut statistics: libc::tpacket_stats_v3 = unsafe { std::mem::zeroed() };
        let mut size = size_of_val(&statistics) as u32;
        // SAFETY: the kernel writes that much at most.
        let got = unsafe {
            libc::getsockopt(
                self.socket.as_raw_fd(),
                libc::SOL_PACKET,
                libc::PACKET_STATISTICS,
                (&raw mut statistics).cast(),
                &raw mut size,
            )
        };
        match checked(got) {
            Ok(_) => (statistics.tp_packets.into(), statistics.tp_drops.into()),
            Err(_) => (0, 0),
        }
    }
}

impl Drop for Ring {
    fn drop(&mut self) {
        // SAFETY: the mapping is ours and nothing refers to it any more.
        unsafe { libc::munmap(self.memory.as_ptr().cast(), self.blocks * BLOCK) };
    }
}

fn checked(result: i32) -> io::Result<i32> {
    if result < 0 {
        return Err(io::Error::last_os_error());
    }
    Ok(result)
}

fn set<T>(socket: &OwnedFd, option: i32, value: &T) -> io::Result<()> {
    set_at(socket, libc::SOL_PACKET, option, value)
}

fn set_at<T>(socket: &OwnedFd, level: i32, option: i32, value: &T) -> io::Result<()> {
    // SAFETY: the value is of that size.
    let set = unsafe {
        libc::setsockopt(
            socket.as_raw_fd(),
            level,
            option,
            std::ptr::from_ref(value).cast(),
            size_of::<T>() as u32,
        )
    };
    checked(set).map(drop)
}

/// The interface's number and what its frames begin with.
/// Its number, what its frames are, and whether it is a loopback interface.
fn interface(name: &str) -> io::Result<(u32, Link, bool)> {
    if name == "any" {
        return Ok((0, Link::Sll, false));
    }
    let missing = || io::Error::from_raw_os_error(libc::ENODEV);
    let c_name = CString::new(name).map_err(|_| missing())?;
    // SAFETY: a string that ends with NUL.
    let index = unsafe { libc::if_nametoindex(c_name.as_ptr()) };
    if index == 0 {
        return Err(missing());
    }
    let kind = hardware_type(&c_name)?;
    let link = match kind {
        ETHERNET | LOOPBACK => Link::Ethernet,
        kind if IP_ONLY.contains(&kind) => Link::Raw,
        _ => return Err(io::ErrorKind::Unsupported.into()),
    };
    Ok((index, link, kind == LOOPBACK))
}

fn hardware_type(name: &CString) -> io::Result<u16> {
    // Any socket does.
    let socket = std::net::UdpSocket::bind((std::net::Ipv4Addr::UNSPECIFIED, 0))?;
    // SAFETY: a structure of integers, for which zero is a value.
    let mut request: libc::ifreq = unsafe { std::mem::zeroed() };
    let bytes = name.as_bytes_with_nul();
    if bytes.len() > request.ifr_name.len() {
        return Err(io::Error::from_raw_os_error(libc::ENODEV));
    }
    for (to, from) in request.ifr_name.iter_mut().zip(bytes) {
        *to = *from as libc::c_char;
    }
    // SAFETY: the request takes an ifreq with a name that ends with NUL, and fills it in.
    let got = unsafe {
        libc::ioctl(
            socket.as_raw_fd(),
            libc::SIOCGIFHWADDR as _,
            &raw mut request,
        )
    };
    checked(got)?;
    // SAFETY: this is the member that SIOCGIFHWADDR fills in.
    Ok(unsafe { request.ifr_ifru.ifru_hwaddr }.sa_family)
}

/// Attaches the filter, and the snap length, which the kernel takes from what it returns.
/// Tags that the kernel took out of the frame, and cooked headers, are not there for it to see:
/// then the filter is applied later.
fn attach(socket: &OwnedFd, request: &Request, link: Link) -> io::Result<bool> {
    let filter = request.filter.as_ref();
    let usable = filter.filter(|filter| !filter.speaks_of_vlan() && link != Link::Sll);
    let program = usable.map(|filter| filter.program(link));
    let fits = program
        .as_ref()
        .is_some_and(|p| p.instructions().len() <= 4096);
    let all = [libc::sock_filter {
        code: libc::BPF_RET as u16,
        jt: 0,
        jf: 0,
        k: request.snap_length,
    }];
    let mut instructions = match &program {
        Some(program) if fits => translate(program, request.snap_length),
        _ => all.to_vec(),
    };
    let program = libc::sock_fprog {
        len: instructions.len() as u16,
        filter: instructions.as_mut_ptr(),
    };
    set_at(socket, libc::SOL_SOCKET, libc::SO_ATTACH_FILTER, &program)?;
    Ok(fits)
}

fn translate(program: &Program, snap_length: u32) -> Vec<libc::sock_filter> {
    let returns = (libc::BPF_RET | libc::BPF_K) as u16;
    let translated = program.instructions().iter().map(|i| libc::sock_filter {
        code: i.code,
        jt: i.jt,
        jf: i.jf,
        k: if i.code == returns {
            i.k.min(snap_length)
        } else {
            i.k
        },
    });
    translated.collect()
}

/// The header of a cooked capture (LINKTYPE_LINUX_SLL).
fn cooked(address: &libc::sockaddr_ll) -> [u8; 16] {
    let mut header = [0; 16];
    header[..2].copy_from_slice(&u16::from(address.sll_pkttype).to_be_bytes());
    header[2..4].copy_from_slice(&address.sll_hatype.to_be_bytes());
    header[4..6].copy_from_slice(&u16::from(address.sll_halen).to_be_bytes());
    header[6..14].copy_from_slice(&address.sll_addr);
    // It is in network order already.
    header[14..].copy_from_slice(&address.sll_protocol.to_ne_bytes());
    header
}
