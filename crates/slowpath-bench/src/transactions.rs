// SPDX-License-Identifier: Apache-2.0
//! Request/response over loopback: a child process echoes, this one asks.

use std::io::{self, BufRead, BufReader, Read, Write};
use std::net::{SocketAddr, TcpListener, TcpStream};
use std::os::fd::AsRawFd;
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

/// First argument of the echoing child.
pub const ARGUMENT: &str = "echo-child";

/// Bytes of a request and of a response.
const SIZE: usize = 64;

/// Connections to an echoing child.
pub struct Transactions {
    child: Child,
    connections: Vec<TcpStream>,
}

/// Keeps the calling thread on processor `cpu`, or sets it free.
pub fn pin(cpu: Option<usize>) -> io::Result<()> {
    let mut set = rustix::thread::CpuSet::new();
    match cpu {
        Some(cpu) => set.set(cpu),
        None => (0..rustix::thread::CpuSet::MAX_CPU).for_each(|c| set.set(c)),
    }
    Ok(rustix::thread::sched_setaffinity(None, &set)?)
}

impl Transactions {
    /// Starts a child and opens `connections` to it; with `pinned`, both processes stay on
    /// one processor.
    ///
    /// # Errors
    /// If the child or its connections cannot be had.
    pub fn start(connections: usize, pinned: bool) -> io::Result<Self> {
        pin(pinned.then_some(1))?; // the child inherits it
        let mut child = Command::new(std::env::current_exe()?)
            .arg(ARGUMENT)
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .spawn()?;
        let mut line = String::new();
        let stdout = child.stdout.as_mut().ok_or(io::ErrorKind::BrokenPipe)?;
        BufReader::new(stdout).read_line(&mut line)?;
        let address: SocketAddr = line
            .trim()
            .parse()
            .map_err(|_| io::Error::from(io::ErrorKind::InvalidData))?;
        let connections = (0..connections)
            .map(|_| {
                let stream = TcpStream::connect(address)?;
                stream.set_nodelay(true)?;
                Ok(stream)
            })
            .collect::<io::Result<_>>()?;
        Ok(Transactions { child, connections })
    }

    /// Transactions a second over `duration`, round robin over the connections.
    ///
    /// # Errors
    /// If a connection breaks.
    pub fn run(&mut self, duration: Duration) -> io::Result<f64> {
        let mut buffer = [1u8; SIZE];
        let began = Instant::now();
        let mut done = 0u64;
        while began.elapsed() < duration {
            for connection in &mut self.connections {
                connection.write_all(&buffer)?;
                connection.read_exact(&mut buffer)?;
                done += 1;
            }
        }
        Ok(done as f64 / began.elapsed().as_secs_f64())
    }
}

impl Drop for Transactions {
    fn drop(&mut self) {
        self.connections.clear();
        drop(self.child.stdin.take());
        let _ = self.child.kill();
        let _ = self.child.wait();
        let _ = pin(None);
    }
}

/// The child's part: echoes on every connection until it is ended.
///
/// # Errors
/// If it cannot listen or poll.
pub fn child() -> io::Result<()> {
    let listener = TcpListener::bind("127.0.0.1:0")?;
    println!("{}", listener.local_addr()?);
    io::stdout().flush()?;
    listener.set_nonblocking(true)?;
    // SAFETY: plain system calls on descriptors that live as long as the loop.
    let epoll = unsafe { libc::epoll_create1(libc::EPOLL_CLOEXEC) };
    let watch = |fd: i32| {
        let mut event = libc::epoll_event {
            events: libc::EPOLLIN as u32,
            u64: fd as u64,
        };
        // SAFETY: as above.
        unsafe { libc::epoll_ctl(epoll, libc::EPOLL_CTL_ADD, fd, &mut event) };
    };
    watch(listener.as_raw_fd());
    let mut streams: Vec<Option<TcpStream>> = Vec::new();
    let mut buffer = [0u8; SIZE];
    loop {
        let mut events = [libc::epoll_event { events: 0, u64: 0 }; 64];
        // SAFETY: as above.
        let n = unsafe { libc::epoll_wait(epoll, events.as_mut_ptr(), 64, -1) };
        for event in events.iter().take(n.max(0) as usize) {
            let fd = event.u64 as usize;
            if fd == listener.as_raw_fd() as usize {
                while let Ok((stream, _)) = listener.accept() {
                    stream.set_nodelay(true)?;
                    let fd = stream.as_raw_fd();
                    watch(fd);
                    streams.resize_with(streams.len().max(fd as usize + 1), || None);
                    streams[fd as usize] = Some(stream);
                }
            } else if let Some(Some(stream)) = streams.get_mut(fd) {
                match stream.read(&mut buffer) {
                    Ok(n) if n > 0 => stream.write_all(&buffer[..n])?,
                    _ => streams[fd] = None,
                }
            }
        }
    }
}
