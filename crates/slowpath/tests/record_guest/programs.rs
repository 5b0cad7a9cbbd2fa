// SPDX-License-Identifier: Apache-2.0
//! What programs do with sockets besides sending and receiving: in the guest, each kind some times. One program is both ends: it runs in the namespace of
//! the client and of the server at once.

use socket2::{Domain, Protocol, SockAddr, SockRef, Socket, Type};
use std::fs::File;
use std::io::{ErrorKind, Read, Write};
use std::net::{Shutdown, SocketAddr};
use std::os::fd::AsRawFd;
use std::sync::{Arc, Barrier};
use std::time::Duration;

/// What a connection is for; the client says so by its first byte.
pub const KINDS: [&str; 11] = [
    "options", "before", "waiting", "file", "reset", "limits", "halves", "both", "late", "fast",
    "refused",
];
/// The kinds that no replay can do, and why.
pub const REFUSED: [(&str, &str); 2] = [("refused", "SO_TIMESTAMPING"), ("fast", "TCP_FASTOPEN")];
/// Connections to a listener that has room for [`AT_ONCE`] and one more, and accepts none before some packets were turned away: three times as many.
pub const LATE: usize = 3 * AT_ONCE;
/// Fewer than it has room for: Linux answers those by SYN cookies that come while it has no room for others.
const AT_ONCE: usize = 3;
const TURNED_AWAY: u64 = 5;
/// Options that are set while connections are open, by level and name (include/uapi/linux/tcp.h, asm-generic/socket.h): what the functions below set.
pub const SET: [(u16, u16); 10] = [
    (6, 1),
    (6, 3),
    (6, 10),
    (6, 12),
    (6, 13),
    (6, 25),
    (1, 18),
    (1, 32),
    (1, 33),
    (1, 47),
];

fn set(socket: &Socket, level: i32, name: i32, value: u32) {
    let length = size_of::<u32>() as libc::socklen_t;
    let value = std::ptr::from_ref(&value).cast();
    // SAFETY: the value is there, and so long.
    let done = unsafe { libc::setsockopt(socket.as_raw_fd(), level, name, value, length) };
    assert_eq!(done, 0, "{name}: {}", std::io::Error::last_os_error());
}

fn wait(socket: &Socket, events: libc::c_short) {
    let mut one = libc::pollfd {
        fd: socket.as_raw_fd(),
        events,
        revents: 0,
    };
    // SAFETY: it is one.
    let ready = unsafe { libc::poll(&raw mut one, 1, 10_000) };
    assert_eq!(ready, 1, "nothing for ten seconds");
}

fn fresh() -> Socket {
    Socket::new(Domain::IPV4, Type::STREAM, Some(Protocol::TCP)).expect("a socket")
}

fn open(socket: Socket, address: SocketAddr, kind: &str) -> Socket {
    socket.connect(&SockAddr::from(address)).expect("connects");
    say(&socket, kind);
    socket
}

fn say(mut socket: &Socket, kind: &str) {
    let place = KINDS.iter().position(|it| *it == kind).expect("a kind");
    socket.write_all(&[place as u8]).expect("sends");
}

/// All of it as long as there is room, then a poll.
fn push(mut socket: &Socket, bytes: usize) {
    let data = vec![0; 50_000];
    let mut left = bytes;
    while left > 0 {
        match socket.write(&data[..left.min(data.len())]) {
            Ok(sent) => left -= sent,
            Err(error) if error.kind() == ErrorKind::WouldBlock => wait(socket, libc::POLLOUT),
            Err(error) => panic!("{error}"),
        }
    }
}

fn drain(mut socket: &Socket) -> usize {
    let (mut buffer, mut all) = (vec![0; 30_000], 0);
    while let Ok(read @ 1..) = socket.read(&mut buffer) {
        all += read;
    }
    all
}

fn options(address: SocketAddr) {
    let mut socket = open(fresh(), address, "options");
    socket.set_tcp_nodelay(true).expect("sets");
    for _ in 0..4 {
        socket.write_all(&[0; 100]).expect("sends");
    }
    socket.set_tcp_nodelay(false).expect("sets");
    socket.set_tcp_cork(true).expect("sets");
    for _ in 0..4 {
        socket.write_all(&[0; 700]).expect("sends");
    }
    socket.set_tcp_cork(false).expect("sets");
    socket.set_send_buffer_size(30_000).expect("sets");
    socket.set_tcp_notsent_lowat(20_000).expect("sets");
    socket.write_all(&[0; 60_000]).expect("sends");
    socket.set_tcp_congestion(b"reno").expect("sets");
    set(
        &socket,
        libc::SOL_SOCKET,
        libc::SO_MAX_PACING_RATE,
        4_000_000,
    );
    socket.write_all(&[0; 100_000]).expect("sends");
    socket.shutdown(Shutdown::Write).expect("shuts");
    drain(&socket);
}

fn before(address: SocketAddr) {
    let socket = fresh();
    socket.set_tcp_mss(700).expect("sets");
    socket.set_send_buffer_size(25_000).expect("sets");
    socket.set_recv_buffer_size(40_000).expect("sets");
    socket.set_tcp_nodelay(true).expect("sets");
    socket.set_tcp_congestion(b"reno").expect("sets");
    let mut socket = open(socket, address, "before");
    for _ in 0..20 {
        socket.write_all(&[0; 3_000]).expect("sends");
    }
    socket.shutdown(Shutdown::Write).expect("shuts");
    drain(&socket);
}

fn waiting(address: SocketAddr) {
    let socket = fresh();
    socket.set_nonblocking(true).expect("sets");
    let begun = socket.connect(&SockAddr::from(address));
    assert!(begun.is_err_and(|it| it.raw_os_error() == Some(libc::EINPROGRESS)));
    wait(&socket, libc::POLLOUT);
    say(&socket, "waiting");
    push(&socket, 400_000);
    socket.shutdown(Shutdown::Write).expect("shuts");
    socket.set_nonblocking(false).expect("sets");
    drain(&socket);
}

fn limits(address: SocketAddr) {
    let mut socket = open(fresh(), address, "limits");
    let limit = Some(Duration::from_millis(60));
    socket.set_read_timeout(limit).expect("sets");
    let late = socket.read(&mut [0]);
    assert!(late.is_err_and(|it| it.kind() == ErrorKind::WouldBlock));
    socket.write_all(&[0; 5_000]).expect("sends");
    socket.shutdown(Shutdown::Write).expect("shuts");
    socket.set_read_timeout(None).expect("sets");
    drain(&socket);
}

/// Two at once, by one task.
fn both(address: SocketAddr) {
    let sockets = [(); 2].map(|()| open(fresh(), address, "both"));
    for round in 1..30 {
        for mut socket in &sockets {
            socket.write_all(&vec![0; 700 * round]).expect("sends");
        }
    }
    for socket in &sockets {
        socket.shutdown(Shutdown::Write).expect("shuts");
        drain(socket);
    }
}

/// With what it says in the SYN.
fn fast(address: SocketAddr) {
    let socket = fresh();
    let place = KINDS.iter().position(|it| *it == "fast").expect("a kind");
    let address = SockAddr::from(address);
    let sent = socket.send_to_with_flags(&[place as u8], &address, libc::MSG_FASTOPEN);
    assert_eq!(sent.expect("sends"), 1);
    socket.shutdown(Shutdown::Write).expect("shuts");
    drain(&socket);
}

fn late(address: SocketAddr, connected: &Barrier) {
    let mut socket = open(fresh(), address, "late");
    connected.wait();
    socket.write_all(&[0; 5_000]).expect("sends");
    socket.shutdown(Shutdown::Write).expect("shuts");
    assert_eq!(drain(&socket), 30_000);
}

/// Of the second ones the listener does not take the last packet of the handshake, of the third ones not the first one.
fn all_late(address: SocketAddr) {
    let mut all = Vec::new();
    for _ in 0..LATE / AT_ONCE {
        let connected = Arc::new(Barrier::new(AT_ONCE + 1));
        all.extend((0..AT_ONCE).map(|_| {
            let connected = Arc::clone(&connected);
            std::thread::spawn(move || late(address, &connected))
        }));
        connected.wait();
    }
    for one in all {
        one.join().expect("ends well");
    }
}

/// Connections for which the listeners of this namespace had no room (`ListenOverflows` of proc(5), `net/netstat`).
fn turned_away() -> u64 {
    let text = std::fs::read_to_string("/proc/self/net/netstat").expect("is there");
    let mut lines = text.lines().filter(|line| line.starts_with("TcpExt:"));
    let [names, values] = [(); 2].map(|()| lines.next().expect("two lines").split(' '));
    let mut both = names.zip(values);
    let found = both.find(|(name, _)| *name == "ListenOverflows");
    found.and_then(|(_, value)| value.parse().ok()).expect("it")
}

/// The client's side of one kind, some times.
pub fn client(kind: &str, address: &str, times: usize) {
    let address: SocketAddr = address.parse().expect("an address");
    if kind == "late" {
        all_late(address);
        return;
    }
    for _ in 0..times {
        match kind {
            "options" => options(address),
            "before" => before(address),
            "waiting" => waiting(address),
            "limits" => limits(address),
            "both" => both(address),
            "fast" => fast(address),
            "file" => {
                let mut socket = open(fresh(), address, kind);
                let mut ahead = [0; 100];
                socket
                    .recv_with_flags(room(&mut ahead), libc::MSG_PEEK)
                    .expect("looks");
                let mut all = vec![0; 20_000];
                socket
                    .recv_with_flags(room(&mut all), libc::MSG_WAITALL)
                    .expect("reads");
                drain(&socket);
                assert_eq!(socket.read(&mut ahead).expect("reads"), 0);
            }
            "reset" => {
                let socket = open(fresh(), address, kind);
                let mut sender = &socket;
                while sender.write_all(&[0; 10_000]).is_ok() {}
            }
            "halves" => {
                let mut socket = open(fresh(), address, kind);
                socket.write_all(&[0; 9_000]).expect("sends");
                socket.shutdown(Shutdown::Write).expect("shuts");
                assert_eq!(drain(&socket), 50_000);
            }
            "refused" => {
                let mut socket = open(fresh(), address, kind);
                // SOF_TIMESTAMPING_TX_SOFTWARE | SOF_TIMESTAMPING_SOFTWARE
                set(&socket, libc::SOL_SOCKET, libc::SO_TIMESTAMPING, 2 | 16);
                socket.write_all(&[0; 2_000]).expect("sends");
            }
            other => panic!("no kind {other}"),
        }
    }
}

fn room(bytes: &mut [u8]) -> &mut [std::mem::MaybeUninit<u8>] {
    // SAFETY: bytes that are there may be written to, and socket2 writes nothing else.
    unsafe { &mut *(std::ptr::from_mut(bytes) as *mut [std::mem::MaybeUninit<u8>]) }
}

fn serve_one(socket: Socket) {
    let mut kind = [0];
    if (&socket).read_exact(&mut kind).is_err() {
        return;
    }
    match KINDS[usize::from(kind[0])] {
        "options" => {
            socket.set_recv_buffer_size(30_000).expect("sets");
            set(&socket, libc::SOL_SOCKET, libc::SO_RCVLOWAT, 3_000);
            set(&socket, libc::IPPROTO_TCP, libc::TCP_WINDOW_CLAMP, 20_000);
            socket.set_tcp_quickack(true).expect("sets");
            drain(&socket);
        }
        "file" => {
            socket.set_tcp_cork(true).expect("sets");
            (&socket).write_all(&[0; 240]).expect("sends");
            let file = File::open("/proc/self/exe").expect("a file");
            let length = std::num::NonZeroUsize::new(150_000);
            let sent = socket.sendfile(&file, 1_000, length).expect("sends");
            assert_eq!(sent, 150_000);
            socket.set_tcp_cork(false).expect("sets");
        }
        "reset" => {
            std::thread::sleep(Duration::from_millis(50));
            socket.set_linger(Some(Duration::ZERO)).expect("sets");
        }
        "waiting" => {
            socket.set_nonblocking(true).expect("sets");
            let mut buffer = vec![0; 20_000];
            loop {
                match (&socket).read(&mut buffer) {
                    Ok(0) => break,
                    Ok(_) => {}
                    Err(_) => wait(&socket, libc::POLLIN),
                }
            }
            push(&socket, 100_000);
        }
        "halves" => {
            drain(&socket);
            (&socket).write_all(&[0; 50_000]).expect("sends");
        }
        _ => {
            drain(&socket);
            (&socket).write_all(&[0; 30_000]).expect("sends");
        }
    }
}

/// The server's side, of `connections`. With `options` the listener has options that its children get from it; with `late` see [`LATE`].
pub fn serve(address: &str, connections: usize, how: &str) {
    let listener = fresh();
    let address: SocketAddr = address.parse().expect("an address");
    listener.bind(&SockAddr::from(address)).expect("binds");
    if how == "options" {
        listener.set_recv_buffer_size(20_000).expect("sets");
        listener.set_tcp_nodelay(true).expect("sets");
        listener.set_tcp_mss(900).expect("sets");
        listener.set_keepalive(true).expect("sets");
        let listener = SockRef::from(&listener);
        listener.set_tcp_congestion(b"cubic").expect("sets");
    }
    // Linux lets one more wait.
    let room = if how == "late" { AT_ONCE as i32 } else { 20 };
    listener.listen(room).expect("listens");
    println!("ready");
    while how == "late" && turned_away() < TURNED_AWAY {
        std::thread::sleep(Duration::from_millis(5));
    }
    let threads: Vec<_> = (0..connections)
        .map(|_| listener.accept().expect("a connection").0)
        .map(|socket| std::thread::spawn(move || serve_one(socket)))
        .collect();
    for thread in threads {
        let _ = thread.join();
    }
}
