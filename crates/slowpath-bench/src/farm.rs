// SPDX-License-Identifier: Apache-2.0
//! A farm of loopback connections, held by child processes because one process may not
//! have that many files open. A child is this very program called with [`ARGUMENT`].

use std::io::{self, BufRead, BufReader, Read, Write};
use std::net::{Ipv4Addr, SocketAddr, TcpListener, TcpStream};
use std::process::{Child, ChildStdin, ChildStdout, Command, Stdio};

/// First argument of a child.
pub const ARGUMENT: &str = "farm-child";

/// Last argument of a child in its parent's network namespace, of one in its own.
const HERE: &str = "here";
const SEPARATE: &str = "separate";

/// Pairs of sockets a child holds at most.
const PAIRS: usize = 4_500;

/// Children that hold connections, both ends each.
pub struct Farm {
    children: Vec<(Child, ChildStdin, BufReader<ChildStdout>)>,
    sockets: usize,
}

impl Farm {
    /// Opens `sockets` sockets, rounded up to pairs; returns when all are connected.
    ///
    /// # Errors
    /// If a child cannot be started or ends early.
    pub fn plant(sockets: usize) -> io::Result<Self> {
        let pairs = sockets.div_ceil(2);
        let full = std::iter::repeat_n(PAIRS, pairs / PAIRS);
        Self::of(
            full.chain([pairs % PAIRS].into_iter().filter(|n| *n > 0)),
            HERE,
        )
    }

    /// The same sockets in `busy` network namespaces of their own, as many in each, besides
    /// `empty` namespaces without any.
    ///
    /// # Errors
    /// If a child cannot be started or may not have a namespace.
    pub fn plant_separate(sockets: usize, busy: usize, empty: usize) -> io::Result<Self> {
        let each = sockets.div_ceil(2 * busy);
        let pairs = std::iter::repeat_n(each, busy).chain(std::iter::repeat_n(0, empty));
        Self::of(pairs, SEPARATE)
    }

    fn of(children: impl Iterator<Item = usize>, place: &str) -> io::Result<Self> {
        let mut farm = Farm {
            children: Vec::new(),
            sockets: 0,
        };
        for pairs in children {
            farm.sockets += 2 * pairs;
            let number = farm.children.len().to_string();
            let mut child = Command::new(std::env::current_exe()?)
                .args([ARGUMENT, &pairs.to_string(), &number, place])
                .stdin(Stdio::piped())
                .stdout(Stdio::piped())
                .spawn()?;
            let (Some(stdin), Some(stdout)) = (child.stdin.take(), child.stdout.take()) else {
                return Err(io::ErrorKind::BrokenPipe.into());
            };
            farm.children.push((child, stdin, BufReader::new(stdout)));
        }
        farm.wait()?;
        Ok(farm)
    }

    /// How many sockets there are.
    pub fn sockets(&self) -> usize {
        self.sockets
    }

    /// Has one message go over every second connection, so that half the sockets move
    /// data; returns when it has arrived everywhere.
    ///
    /// # Errors
    /// If a child has ended.
    pub fn move_data(&mut self) -> io::Result<()> {
        for (_, stdin, _) in &mut self.children {
            stdin.write_all(b"m\n")?;
        }
        self.wait()
    }

    fn wait(&mut self) -> io::Result<()> {
        for (_, _, stdout) in &mut self.children {
            let mut line = String::new();
            if stdout.read_line(&mut line)? == 0 {
                return Err(io::ErrorKind::UnexpectedEof.into());
            }
        }
        Ok(())
    }
}

impl Drop for Farm {
    fn drop(&mut self) {
        for (mut child, stdin, _) in self.children.drain(..) {
            drop(stdin); // its end of input is the child's sign to end
            let _ = child.wait();
        }
    }
}

/// The child's part: `farm-child PAIRS NUMBER here|separate`.
///
/// # Errors
/// If its sockets cannot be opened.
pub fn child(pairs: usize, number: u8, place: &str) -> io::Result<()> {
    if place == SEPARATE {
        // SAFETY: changes this process's network namespace only; it has one thread.
        if unsafe { libc::unshare(libc::CLONE_NEWNET) } != 0 {
            return Err(io::Error::last_os_error());
        }
        let up = Command::new("ip")
            .args(["link", "set", "lo", "up"])
            .status()?;
        if !up.success() {
            return Err(io::Error::other(format!("ip link set lo up: {up}")));
        }
    }
    let address = Ipv4Addr::new(127, 77, number, 1);
    let mut connections = Vec::with_capacity(pairs);
    if pairs > 0 {
        let listener = TcpListener::bind(SocketAddr::from((address, 0)))?;
        let port = listener.local_addr()?;
        for _ in 0..pairs {
            let client = TcpStream::connect(port)?;
            let (server, _) = listener.accept()?;
            connections.push((client, server));
        }
    }
    let mut stdout = io::stdout();
    stdout.write_all(b"ready\n")?;
    let mut message = [7u8; 100];
    for line in io::stdin().lock().lines() {
        line?;
        for (client, server) in connections.iter_mut().step_by(2) {
            client.write_all(&message)?;
            server.read_exact(&mut message)?;
        }
        stdout.write_all(b"moved\n")?;
    }
    Ok(())
}
