// SPDX-License-Identifier: Apache-2.0
//! The commands that are system calls.

use crate::ring::{self, Executor};
use std::io;
use std::net::SocketAddrV4;
use std::sync::mpsc::channel;

/// `IPPROTO_MPTCP` (include/uapi/linux/in.h).
const MPTCP: i32 = 262;

/// One command.
pub enum Call {
    Connect(i32, SocketAddrV4),
    Listen(i32, SocketAddrV4),
    Accept(i32),
    /// Accepts if a connection waits; -1 if none does.
    AcceptWaiting(i32),
    RingConnect(SocketAddrV4, Executor),
    /// Accepts into a descriptor, or if `true` into a file of the ring's only.
    RingAccept(i32, bool),
    /// A ring keeps the socket; the descriptor is closed.
    RingKeep(i32),
    /// The local port.
    Port(i32),
    /// Has the kernel encrypt what is sent (kTLS).
    Tls(i32),
    /// Turns to another network namespace.
    Enter(String),
    /// Turns to another user.
    User(u32),
    Close(i32),
    Dup(i32),
    Pair,
    Pass(i32, i32),
    Receive(i32),
    Write(i32),
    Read(i32),
    SetSid,
    Rename(String),
    /// A thread of that name connects, and ends if `true`.
    ThreadConnect(String, SocketAddrV4, bool),
    /// A thread keeps the descriptor in a table of its own; here it is closed.
    ThreadHold(i32),
    JoinCgroup(String),
}

/// The result of a system call, or its error.
pub fn check(result: i64) -> io::Result<i64> {
    if result < 0 {
        Err(io::Error::last_os_error())
    } else {
        Ok(result)
    }
}

fn meaningless() -> io::Error {
    io::Error::new(io::ErrorKind::InvalidInput, "means nothing")
}

impl Call {
    pub fn parse(words: &[&str]) -> io::Result<Self> {
        fn of<T: std::str::FromStr>(word: &str) -> io::Result<T> {
            word.parse().map_err(|_| meaningless())
        }
        Ok(match words {
            ["connect", to] => Call::Connect(0, of(to)?),
            ["connect-mptcp", to] => Call::Connect(MPTCP, of(to)?),
            ["listen", at] => Call::Listen(0, of(at)?),
            ["listen-mptcp", at] => Call::Listen(MPTCP, of(at)?),
            ["accept", fd] => Call::Accept(of(fd)?),
            ["accept-waiting", fd] => Call::AcceptWaiting(of(fd)?),
            ["ring-connect", to, by] => {
                Call::RingConnect(of(to)?, Executor::parse(by).ok_or_else(meaningless)?)
            }
            ["ring-accept", fd] => Call::RingAccept(of(fd)?, false),
            ["ring-accept-fixed", fd] => Call::RingAccept(of(fd)?, true),
            ["ring-keep", fd] => Call::RingKeep(of(fd)?),
            ["port", fd] => Call::Port(of(fd)?),
            ["tls", fd] => Call::Tls(of(fd)?),
            ["enter", namespace] => Call::Enter((*namespace).to_owned()),
            ["user", id] => Call::User(of(id)?),
            ["close", fd] => Call::Close(of(fd)?),
            ["dup", fd] => Call::Dup(of(fd)?),
            ["pair"] => Call::Pair,
            ["pass", through, fd] => Call::Pass(of(through)?, of(fd)?),
            ["receive", from] => Call::Receive(of(from)?),
            ["write", fd] => Call::Write(of(fd)?),
            ["read", fd] => Call::Read(of(fd)?),
            ["setsid"] => Call::SetSid,
            ["rename", name] => Call::Rename((*name).to_owned()),
            ["thread-connect", name, to] => Call::ThreadConnect((*name).to_owned(), of(to)?, false),
            ["thread-connect-end", name, to] => {
                Call::ThreadConnect((*name).to_owned(), of(to)?, true)
            }
            ["thread-hold", fd] => Call::ThreadHold(of(fd)?),
            ["join", cgroup] => Call::JoinCgroup((*cgroup).to_owned()),
            _ => return Err(meaningless()),
        })
    }

    pub fn run(self) -> io::Result<i64> {
        match self {
            Call::Connect(protocol, to) => connect(protocol, to),
            Call::Listen(protocol, at) => listen(protocol, at),
            Call::Accept(fd) => accept(fd),
            Call::AcceptWaiting(fd) => accept_waiting(fd),
            Call::RingConnect(to, by) => {
                let fd = socket(0)?;
                ring::connect(fd, &address(to), by)?;
                Ok(fd.into())
            }
            Call::RingAccept(fd, fixed) => ring::accept(fd, fixed),
            Call::RingKeep(fd) => ring::keep(fd),
            Call::Port(fd) => port(fd),
            Call::Tls(fd) => option(fd, (libc::SOL_TCP, libc::TCP_ULP), b"tls"),
            Call::Enter(path) => {
                use std::os::fd::AsRawFd;
                let namespace = std::fs::File::open(path)?;
                // SAFETY: takes numbers.
                check(unsafe { libc::setns(namespace.as_raw_fd(), libc::CLONE_NEWNET) }.into())
            }
            // SAFETY: takes numbers.
            Call::User(id) => check(unsafe { libc::setresuid(id, id, id) }.into()),
            // SAFETY: the actor's own descriptor numbers.
            Call::Close(fd) => check(unsafe { libc::close(fd) }.into()),
            // SAFETY: as above.
            Call::Dup(fd) => check(unsafe { libc::dup(fd) }.into()),
            Call::Pair => {
                let mut pair = [0; 2];
                let kind = libc::SOCK_SEQPACKET;
                // SAFETY: `pair` has room for two.
                let made = unsafe { libc::socketpair(libc::AF_UNIX, kind, 0, pair.as_mut_ptr()) };
                check(made.into())?;
                Ok(i64::from(pair[0]) * 1_000 + i64::from(pair[1]))
            }
            Call::Pass(through, fd) => pass(through, fd),
            Call::Receive(from) => receive(from),
            // SAFETY: one byte from a buffer of one.
            Call::Write(fd) => check(unsafe { libc::write(fd, [7_u8].as_ptr().cast(), 1) } as i64),
            Call::Read(fd) => {
                let mut byte = [0_u8];
                // SAFETY: one byte into a buffer of one.
                check(unsafe { libc::read(fd, byte.as_mut_ptr().cast(), 1) } as i64)
            }
            // SAFETY: takes nothing.
            Call::SetSid => check(unsafe { libc::setsid() }.into()),
            Call::Rename(name) => rename(&name),
            Call::ThreadConnect(name, to, end) => in_thread(end, move || {
                rename(&name)?;
                connect(0, to)
            }),
            Call::ThreadHold(fd) => {
                in_thread(false, || {
                    // SAFETY: gives this thread a table of its own.
                    check(unsafe { libc::unshare(libc::CLONE_FILES) }.into())
                })?;
                // SAFETY: the thread has its own copy.
                check(unsafe { libc::close(fd) }.into())
            }
            Call::JoinCgroup(cgroup) => {
                std::fs::write(format!("{cgroup}/cgroup.procs"), "0").map(|()| 0)
            }
        }
    }
}

fn rename(name: &str) -> io::Result<i64> {
    let name = std::ffi::CString::new(name).map_err(|_| meaningless())?;
    // SAFETY: a string that ends with NUL.
    check(unsafe { libc::prctl(libc::PR_SET_NAME, name.as_ptr()) }.into())
}

/// Runs it in a thread that then ends, or stays for ever.
fn in_thread(
    end: bool,
    work: impl FnOnce() -> io::Result<i64> + Send + 'static,
) -> io::Result<i64> {
    let (done, result) = channel();
    let thread = std::thread::spawn(move || {
        // The actor waits for it.
        let _ = done.send(work());
        if !end {
            loop {
                std::thread::park();
            }
        }
    });
    let result = result.recv().map_err(io::Error::other)?;
    if end {
        let _ = thread.join();
    }
    result
}

fn address(of: SocketAddrV4) -> libc::sockaddr_in {
    libc::sockaddr_in {
        sin_family: libc::AF_INET as libc::sa_family_t,
        sin_port: of.port().to_be(),
        sin_addr: libc::in_addr {
            s_addr: u32::from(*of.ip()).to_be(),
        },
        sin_zero: [0; 8],
    }
}

fn socket(protocol: i32) -> io::Result<i32> {
    // SAFETY: takes numbers. Not close-on-exec: what is inherited is the point.
    check(unsafe { libc::socket(libc::AF_INET, libc::SOCK_STREAM, protocol) }.into())
        .map(|fd| fd as i32)
}

const LENGTH: libc::socklen_t = size_of::<libc::sockaddr_in>() as libc::socklen_t;

fn connect(protocol: i32, to: SocketAddrV4) -> io::Result<i64> {
    let fd = socket(protocol)?;
    let to = address(to);
    // SAFETY: an address of that length.
    check(unsafe { libc::connect(fd, (&raw const to).cast(), LENGTH) }.into())?;
    Ok(fd.into())
}

fn accept(listener: i32) -> io::Result<i64> {
    let none = std::ptr::null_mut::<libc::sockaddr>();
    // SAFETY: the peer's address is not asked for.
    check(unsafe { libc::accept(listener, none, none.cast()) }.into())
}

fn accept_waiting(listener: i32) -> io::Result<i64> {
    let mut waiting = libc::pollfd {
        fd: listener,
        events: libc::POLLIN,
        revents: 0,
    };
    // SAFETY: one descriptor.
    match check(unsafe { libc::poll(&raw mut waiting, 1, 0) }.into())? {
        0 => Ok(-1),
        _ => accept(listener),
    }
}

fn port(fd: i32) -> io::Result<i64> {
    let mut at = address(SocketAddrV4::new(0.into(), 0));
    let mut length = LENGTH;
    // SAFETY: room for an address of that length.
    check(unsafe { libc::getsockname(fd, (&raw mut at).cast(), &raw mut length) }.into())?;
    Ok(u16::from_be(at.sin_port).into())
}

fn option(fd: i32, (level, name): (i32, i32), value: &[u8]) -> io::Result<i64> {
    let length = value.len() as libc::socklen_t;
    // SAFETY: a value of that length.
    check(unsafe { libc::setsockopt(fd, level, name, value.as_ptr().cast(), length) }.into())
}

fn listen(protocol: i32, at: SocketAddrV4) -> io::Result<i64> {
    let fd = socket(protocol)?;
    let at = address(at);
    let yes = 1_i32.to_ne_bytes();
    option(fd, (libc::SOL_SOCKET, libc::SO_REUSEPORT), &yes)?;
    // SAFETY: an address of that length.
    unsafe {
        check(libc::bind(fd, (&raw const at).cast(), LENGTH).into())?;
        check(libc::listen(fd, 16).into())?;
    }
    Ok(fd.into())
}

/// A message of one byte with room for one descriptor.
struct Message {
    byte: [u8; 1],
    control: [u64; 4],
}

impl Message {
    fn with<T>(&mut self, work: impl FnOnce(&mut libc::msghdr) -> T) -> T {
        let mut part = libc::iovec {
            iov_base: self.byte.as_mut_ptr().cast(),
            iov_len: 1,
        };
        // SAFETY: all zeros is an empty message header.
        let mut header: libc::msghdr = unsafe { std::mem::zeroed() };
        header.msg_iov = &raw mut part;
        header.msg_iovlen = 1;
        header.msg_control = self.control.as_mut_ptr().cast();
        // SAFETY: CMSG_SPACE only computes.
        header.msg_controllen = unsafe { libc::CMSG_SPACE(4) } as _;
        work(&mut header)
    }
}

fn pass(through: i32, fd: i32) -> io::Result<i64> {
    let mut message = Message {
        byte: [1],
        control: [0; 4],
    };
    message.with(|header| {
        // SAFETY: the control buffer holds one header and one descriptor.
        unsafe {
            let control = libc::CMSG_FIRSTHDR(header);
            (*control).cmsg_level = libc::SOL_SOCKET;
            (*control).cmsg_type = libc::SCM_RIGHTS;
            (*control).cmsg_len = libc::CMSG_LEN(4) as _;
            libc::CMSG_DATA(control).cast::<i32>().write_unaligned(fd);
            check(libc::sendmsg(through, header, 0) as i64)
        }
    })
}

fn receive(from: i32) -> io::Result<i64> {
    let mut message = Message {
        byte: [0],
        control: [0; 4],
    };
    message.with(|header| {
        // SAFETY: the kernel fills the control buffer, whose first header is checked.
        unsafe {
            check(libc::recvmsg(from, header, 0) as i64)?;
            let control = libc::CMSG_FIRSTHDR(header);
            if control.is_null() || (*control).cmsg_type != libc::SCM_RIGHTS {
                return Err(meaningless());
            }
            Ok(libc::CMSG_DATA(control)
                .cast::<i32>()
                .read_unaligned()
                .into())
        }
    })
}
