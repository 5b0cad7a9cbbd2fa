// SPDX-License-Identifier: Apache-2.0
//! Socket options.

use slowpath_testbed::workload::{DriveOptions, ServeOptions};
use socket2::{Domain, Protocol, Socket, Type};
use std::io;
use std::net::{IpAddr, Ipv6Addr, SocketAddr, TcpListener, TcpStream};
use std::os::fd::AsRawFd;
use std::time::Duration;

fn tcp(address: &SocketAddr) -> io::Result<Socket> {
    let domain = Domain::for_address(*address);
    Socket::new(domain, Type::STREAM, Some(Protocol::TCP))
}

/// Sets an integer option.
pub fn set(socket: &impl AsRawFd, level: i32, name: i32, value: i32) -> io::Result<()> {
    // SAFETY: the kernel reads four bytes, the size of the integer pointed to.
    let result = unsafe {
        libc::setsockopt(
            socket.as_raw_fd(),
            level,
            name,
            (&raw const value).cast(),
            size_of::<i32>() as libc::socklen_t,
        )
    };
    match result {
        0 => Ok(()),
        _ => Err(io::Error::last_os_error()),
    }
}

/// Lets the receiver delay its acknowledgements until something else resets it.
pub fn delay_acks(socket: &impl AsRawFd) -> io::Result<()> {
    set(socket, libc::IPPROTO_TCP, libc::TCP_QUICKACK, 0)
}

pub fn listen(options: &ServeOptions) -> io::Result<TcpListener> {
    let any = IpAddr::V6(Ipv6Addr::UNSPECIFIED);
    let address = SocketAddr::new(options.bind.unwrap_or(any), options.port);
    let socket = tcp(&address)?;
    if address.is_ipv6() {
        socket.set_only_v6(false)?;
    }
    socket.set_reuse_address(true)?;
    if let Some(bytes) = options.rcvbuf {
        // SO_RCVBUFFORCE is not held by net.core.rmem_max. Accepted sockets inherit it.
        set(
            &socket,
            libc::SOL_SOCKET,
            libc::SO_RCVBUFFORCE,
            bytes as i32,
        )?;
    }
    let cc = options.cc.as_deref().unwrap_or("cubic");
    socket.set_tcp_congestion(cc.as_bytes())?;
    socket.set_tcp_nodelay(options.nodelay)?;
    socket.bind(&address.into())?;
    socket.listen(4096)?;
    Ok(socket.into())
}

pub fn connect(options: &DriveOptions, source_port: Option<u16>) -> io::Result<TcpStream> {
    let socket = tcp(&options.connect)?;
    if let Some(bytes) = options.sndbuf {
        set(
            &socket,
            libc::SOL_SOCKET,
            libc::SO_SNDBUFFORCE,
            bytes as i32,
        )?;
    }
    let cc = options.cc.as_deref().unwrap_or("cubic");
    socket.set_tcp_congestion(cc.as_bytes())?;
    socket.set_tcp_nodelay(options.nodelay)?;
    if options.bind.is_some() || source_port.is_some() {
        socket.set_reuse_address(true)?;
        let any = match options.connect {
            SocketAddr::V4(_) => IpAddr::from([0, 0, 0, 0]),
            SocketAddr::V6(_) => IpAddr::V6(Ipv6Addr::UNSPECIFIED),
        };
        let from = SocketAddr::new(options.bind.unwrap_or(any), source_port.unwrap_or(0));
        socket.bind(&from.into())?;
    }
    socket.connect(&options.connect.into())?;
    Ok(socket.into())
}

/// Makes closing the connection reset it.
pub fn reset_on_close(stream: &TcpStream) -> io::Result<()> {
    socket2::SockRef::from(stream).set_linger(Some(Duration::ZERO))
}
