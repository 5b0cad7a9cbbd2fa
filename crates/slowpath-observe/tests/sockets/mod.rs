// SPDX-License-Identifier: Apache-2.0
//! Real sockets for the tests of the tiers, each test in a network namespace of its own.

use std::io;
use std::mem::MaybeUninit;
use std::net::{TcpListener, TcpStream};
use std::os::fd::AsRawFd;

/// Runs `body` on a thread in a fresh network namespace with its loopback up.
pub fn in_fresh_namespace(test: &str, body: impl FnOnce() + Send) {
    let outcome = std::thread::scope(|scope| {
        scope
            .spawn(|| {
                if let Err(error) = enter_namespace() {
                    println!("SKIPPED {test}: no network namespace: {error}");
                    return;
                }
                body();
            })
            .join()
    });
    if let Err(panic) = outcome {
        std::panic::resume_unwind(panic);
    }
}

/// Puts this thread into a fresh network namespace and brings its loopback up.
pub fn enter_namespace() -> io::Result<()> {
    // SAFETY: unshare has no memory arguments; it changes this thread only.
    if unsafe { libc::unshare(libc::CLONE_NEWNET) } != 0 {
        return Err(io::Error::last_os_error());
    }
    bring_up_loopback()
}

/// Brings up the loopback of this thread's namespace.
pub fn bring_up_loopback() -> io::Result<()> {
    let any = std::net::UdpSocket::bind("0.0.0.0:0")?;
    // SAFETY: ifreq is plain data.
    let mut request: libc::ifreq = unsafe { MaybeUninit::zeroed().assume_init() };
    request.ifr_name[0] = b'l' as libc::c_char;
    request.ifr_name[1] = b'o' as libc::c_char;
    request.ifr_ifru.ifru_flags = (libc::IFF_UP | libc::IFF_RUNNING) as i16;
    // SAFETY: SIOCSIFFLAGS reads an ifreq, which `request` is.
    if unsafe { libc::ioctl(any.as_raw_fd(), libc::SIOCSIFFLAGS, &request) } != 0 {
        return Err(io::Error::last_os_error());
    }
    Ok(())
}

/// getsockopt of a plain value; shorter answers leave the rest zero.
pub fn option<T>(socket: &TcpStream, level: i32, name: i32) -> T {
    let mut value = MaybeUninit::<T>::zeroed();
    let mut length = size_of::<T>() as libc::socklen_t;
    // SAFETY: the kernel writes at most `length` bytes to `value`; every T used here is
    // plain data for which zero is a value.
    unsafe {
        let done = libc::getsockopt(
            socket.as_raw_fd(),
            level,
            name,
            value.as_mut_ptr().cast(),
            &mut length,
        );
        assert_eq!(done, 0, "getsockopt: {}", io::Error::last_os_error());
        value.assume_init()
    }
}

/// The kernel's cookie of a socket.
pub fn cookie(socket: &TcpStream) -> u64 {
    option(socket, libc::SOL_SOCKET, libc::SO_COOKIE)
}

/// A connection to a listener on `listen` through `connect`: the end that opened it and the
/// one that accepted it.
pub fn pair(listen: &str, connect: &str) -> (TcpStream, TcpStream) {
    let listener = TcpListener::bind(listen).unwrap();
    let port = listener.local_addr().unwrap().port();
    let client = TcpStream::connect(format!("{connect}:{port}")).unwrap();
    let (server, _) = listener.accept().unwrap();
    (client, server)
}

/// The peer's stack has acknowledged everything that `socket` sent.
pub fn wait_until_acknowledged(socket: &TcpStream) {
    loop {
        let mut queued: libc::c_int = 0;
        // SAFETY: SIOCOUTQ writes one int.
        unsafe { libc::ioctl(socket.as_raw_fd(), 0x5411, &mut queued) };
        if queued == 0 {
            return;
        }
        std::thread::yield_now();
    }
}
