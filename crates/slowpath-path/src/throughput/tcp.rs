// SPDX-License-Identifier: Apache-2.0
//! TCP sockets: options, and the kernel's statistics.

use crate::requests::message::StreamOptions;
use rustix::net::sockopt;
use slowpath_model::TcpStats;
use slowpath_model::tcp_info::{KNOWN_LENGTH, SocketQueues, TcpInfo};
use socket2::{Domain, Protocol, SockAddr, SockRef, Socket, Type};
use std::io;
use std::net::{IpAddr, SocketAddr, TcpStream};
use std::os::fd::AsRawFd;
use std::time::Duration;

/// How long a connection may take to open.
const CONNECT: Duration = Duration::from_secs(10);

/// Why a socket could not be made as asked.
#[derive(Debug, thiserror::Error)]
pub enum SocketError {
    /// There is no such congestion control.
    #[error(
        "this host has no congestion control {0:?}: it has those of net.ipv4.tcp_available_congestion_control"
    )]
    NoSuchCongestion(String),
    /// The kernel refuses an option.
    #[error("cannot set {option}: {source}")]
    Option {
        /// Which.
        option: &'static str,
        /// Why.
        source: io::Error,
    },
    /// It does not connect.
    #[error("cannot connect: {0}")]
    Connect(io::Error),
}

fn refused(option: &'static str) -> impl FnOnce(io::Error) -> SocketError {
    move |source| SocketError::Option { option, source }
}

/// Sets what was asked for.
///
/// # Errors
/// The kernel refuses one.
pub fn set_options(socket: SockRef<'_>, options: &StreamOptions) -> Result<(), SocketError> {
    if let Some(name) = &options.congestion {
        socket
            .set_tcp_congestion(name.as_bytes())
            .map_err(|source| match source.raw_os_error() {
                Some(libc::ENOENT) => SocketError::NoSuchCongestion(name.clone()),
                _ => refused("the congestion control (TCP_CONGESTION)")(source),
            })?;
    }
    if let Some(octets) = options.send_buffer {
        socket
            .set_send_buffer_size(octets as usize)
            .map_err(refused("the send buffer (SO_SNDBUF)"))?;
    }
    if let Some(octets) = options.receive_buffer {
        socket
            .set_recv_buffer_size(octets as usize)
            .map_err(refused("the receive buffer (SO_RCVBUF)"))?;
    }
    if let Some(octets) = options.mss {
        socket
            .set_tcp_mss(octets)
            .map_err(refused("the segment size (TCP_MAXSEG)"))?;
    }
    if let Some(rate) = options.pace {
        set_pacing(&socket, rate).map_err(refused("the pace (SO_MAX_PACING_RATE)"))?;
    }
    Ok(())
}

fn set_pacing(socket: &SockRef<'_>, rate: u64) -> io::Result<()> {
    // SAFETY: the option is a live u64 of the length given (Linux 4.20 takes 8 octets).
    let result = unsafe {
        libc::setsockopt(
            socket.as_raw_fd(),
            libc::SOL_SOCKET,
            libc::SO_MAX_PACING_RATE,
            std::ptr::from_ref(&rate).cast(),
            size_of::<u64>() as libc::socklen_t,
        )
    };
    if result == 0 {
        Ok(())
    } else {
        Err(io::Error::last_os_error())
    }
}

/// Connects with options: those of buffers and segments count from the handshake on.
///
/// # Errors
/// The kernel refuses an option, or the connection does not open.
pub fn connect(
    peer: SocketAddr,
    local: Option<IpAddr>,
    options: &StreamOptions,
) -> Result<TcpStream, SocketError> {
    let socket = Socket::new(Domain::for_address(peer), Type::STREAM, Some(Protocol::TCP))
        .map_err(SocketError::Connect)?;
    set_options(SockRef::from(&socket), options)?;
    if let Some(local) = local {
        let from = SockAddr::from(SocketAddr::new(local, 0));
        socket.bind(&from).map_err(refused("the source address"))?;
    }
    socket
        .connect_timeout(&peer.into(), CONNECT)
        .map_err(SocketError::Connect)?;
    Ok(socket.into())
}

/// The congestion control of a connection.
#[must_use]
pub fn congestion(stream: &TcpStream) -> Option<String> {
    let name = SockRef::from(stream).tcp_congestion().ok()?;
    let name: Vec<u8> = name.into_iter().take_while(|octet| *octet != 0).collect();
    String::from_utf8(name).ok()
}

/// The kernel's statistics of a connection; `None` where it gives none, or fewer than Linux 4.6.
#[must_use]
pub fn stats(stream: &TcpStream) -> Option<TcpStats> {
    let mut octets = [0u8; KNOWN_LENGTH];
    let mut length = KNOWN_LENGTH as libc::socklen_t;
    // SAFETY: the buffer lives through the call and has the length given; the kernel writes no more and gives the length it
    // wrote.
    let result = unsafe {
        libc::getsockopt(
            stream.as_raw_fd(),
            libc::IPPROTO_TCP,
            libc::TCP_INFO,
            octets.as_mut_ptr().cast(),
            &mut length,
        )
    };
    if result != 0 {
        return None;
    }
    let info = TcpInfo::read(octets.get(..length as usize)?).ok()?;
    let queue = |request| {
        let mut value: libc::c_int = 0;
        // SAFETY: both requests write one int.
        let result = unsafe { libc::ioctl(stream.as_raw_fd(), request, &mut value) };
        (result == 0)
            .then_some(value)
            .and_then(|value| u32::try_from(value).ok())
    };
    let mut stats = info.stats(SocketQueues {
        send: queue(libc::TIOCOUTQ).unwrap_or(0),
        receive: queue(libc::FIONREAD).unwrap_or(0),
        memory: None,
    });
    // sk_sndbuf and sk_rcvbuf: what these options read (socket(7)).
    stats.send_buffer = sockopt::socket_send_buffer_size(stream)
        .ok()
        .and_then(|n| u32::try_from(n).ok());
    stats.receive_buffer = sockopt::socket_recv_buffer_size(stream)
        .ok()
        .and_then(|n| u32::try_from(n).ok());
    Some(stats)
}

/// Ends a connection at once: what is still in its buffers is dropped, and does not fill the path after the test.
pub fn abort(stream: &TcpStream) {
    // A socket that refuses is closed in the usual way.
    let _ = SockRef::from(stream).set_linger(Some(Duration::ZERO));
}
