// SPDX-License-Identifier: Apache-2.0
//! A farm of loopback connections, held by child processes because one process may not
//! have that many files open. A child is this very program called with [`ARGUMENT`].

use std::io::{self, BufRead, BufReader, Read, Write};
use std::net::{Ipv4Addr, SocketAddr, TcpListener, TcpStream};
use std::process::{Child, ChildStdin, ChildStdout, Command, Stdio};

/// First argument of a child.
pub const ARGUMENT: &str = "farm-child";

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
        let mut left = sockets.div_ceil(2);
        let mut farm = Farm {
            children: Vec::new(),
            sockets: left * 2,
        };
        while left > 0 {
            let pairs = left.min(PAIRS);
            left -= pairs;
            let mut child = Command::new(std::env::current_exe()?)
                .args([
                    ARGUMENT,
                    &pairs.to_string(),
                    &farm.children.len().to_string(),
                ])
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

/// The child's part: `farm-child PAIRS NUMBER`.
///
/// # Errors
/// If its sockets cannot be opened.
pub fn child(pairs: usize, number: u8) -> io::Result<()> {
    let address = Ipv4Addr::new(127, 77, number, 1);
    let listener = TcpListener::bind(SocketAddr::from((address, 0)))?;
    let port = listener.local_addr()?;
    let mut connections = Vec::with_capacity(pairs);
    for _ in 0..pairs {
        let client = TcpStream::connect(port)?;
        let (server, _) = listener.accept()?;
        connections.push((client, server));
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
