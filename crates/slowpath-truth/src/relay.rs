// SPDX-License-Identifier: Apache-2.0
//! Applications in processes of their own: one that passes on what it gets, and the one that
//! gets it in the end. Who owns a connection is part of what is judged, so they cannot be
//! threads of this program.
//!
//! A process is this program again, with [`PLAY`] and what to do. It writes the address on which
//! it listens, plays until a line comes, writes its accounts, and holds its sockets until
//! its input ends.

use crate::RunError;
use crate::app::{End, Log, read};
use crate::plan::{Pace, Tcp};
use serde::{Deserialize, Serialize};
use slowpath_lab::emulator::Host;
use socket2::{Domain, Socket, Type};
use std::io::{self, BufRead, BufReader, Write};
use std::net::{IpAddr, SocketAddr, TcpListener, TcpStream};
use std::process::{Child, ChildStdout, Command, Stdio};
use std::sync::atomic::{AtomicBool, Ordering};

/// The first argument of such a process.
pub const PLAY: &str = "play";

/// What a process does.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct Part {
    listen: IpAddr,
    /// Where it passes on to; reads itself if nowhere.
    to: Option<SocketAddr>,
    control: String,
    mss: u32,
    nodelay: bool,
    send_buffer: Option<u32>,
    receive_buffer: Option<u32>,
    pace: Pace,
}

impl Part {
    /// One that passes on.
    pub fn relay(listen: IpAddr, to: SocketAddr, tcp: &Tcp, send_buffer: Option<u32>) -> Self {
        Part {
            to: Some(to),
            send_buffer,
            ..Part::last(listen, tcp, None, Pace::Quick)
        }
    }

    /// One that reads.
    pub fn last(listen: IpAddr, tcp: &Tcp, receive_buffer: Option<u32>, pace: Pace) -> Self {
        Part {
            listen,
            to: None,
            control: tcp.control.to_owned(),
            mss: tcp.mss,
            nodelay: tcp.nodelay,
            send_buffer: None,
            receive_buffer,
            pace,
        }
    }

    fn socket(&self) -> io::Result<Socket> {
        let domain = Domain::for_address(SocketAddr::new(self.listen, 0));
        let socket = Socket::new(domain, Type::STREAM, None)?;
        socket.set_tcp_congestion(self.control.as_bytes())?;
        socket.set_tcp_nodelay(self.nodelay)?;
        Ok(socket)
    }
}

/// What it leaves: its own address and account for each connection, incoming first.
pub type Accounts = Vec<(SocketAddr, SocketAddr, Log)>;

/// A process that plays.
pub struct Player {
    child: Child,
    output: BufReader<ChildStdout>,
    /// Where it listens.
    pub listens: SocketAddr,
}

impl Player {
    /// Its process id.
    pub fn pid(&self) -> u32 {
        self.child.id()
    }

    /// Starts it on a host.
    ///
    /// # Errors
    /// It does not start.
    pub fn start(host: &Host, part: &Part) -> Result<Self, RunError> {
        let failed = RunError::io("start a process");
        let part = serde_json::to_string(part).map_err(|e| failed(e.into()))?;
        let program = std::env::current_exe().map_err(&failed)?;
        let mut command = Command::new(program);
        command.args([PLAY, &part]);
        command.stdin(Stdio::piped()).stdout(Stdio::piped());
        let mut child = host.spawn(&mut command).map_err(&failed)?;
        let output = child.stdout.take().ok_or(io::ErrorKind::BrokenPipe);
        let mut output = BufReader::new(output.map_err(|kind| failed(kind.into()))?);
        let mut line = String::new();
        let answered = output.read_line(&mut line).map_err(&failed);
        let listens = answered.and_then(|_| {
            let nowhere = |_| RunError::Disturbed("a process does not listen".to_owned());
            line.trim().parse().map_err(nowhere)
        });
        let mut player = Player {
            child,
            output,
            listens: SocketAddr::new(IpAddr::V4(std::net::Ipv4Addr::UNSPECIFIED), 0),
        };
        player.listens = listens?;
        Ok(player)
    }

    /// Has it end, and gives its accounts; its sockets stay open.
    ///
    /// # Errors
    /// It failed.
    pub fn stop(&mut self) -> Result<Accounts, RunError> {
        let failed = RunError::io("stop a process");
        if let Some(input) = &mut self.child.stdin {
            input.write_all(b"stop\n").map_err(&failed)?;
        }
        let mut line = String::new();
        self.output.read_line(&mut line).map_err(&failed)?;
        serde_json::from_str(&line).map_err(|e| failed(e.into()))
    }
}

impl Drop for Player {
    fn drop(&mut self) {
        // Its input ends, so it does; if it does not, it is ended.
        drop(self.child.stdin.take());
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

/// Plays a part: what the program does with [`PLAY`].
///
/// # Errors
/// The system refuses something, or a connection broke.
pub fn play(part: &str) -> io::Result<()> {
    let part: Part = serde_json::from_str(part)?;
    let socket = part.socket()?;
    if let Some(bytes) = part.receive_buffer {
        socket.set_recv_buffer_size(bytes as usize)?;
    }
    socket.bind(&SocketAddr::new(part.listen, 0).into())?;
    socket.listen(4)?;
    let listener = TcpListener::from(socket);
    println!("{}", listener.local_addr()?);
    let (came, peer) = listener.accept()?;
    let ours = came.local_addr()?;
    let stop = AtomicBool::new(false);
    let mut from = End::new(came, false, &stop)?;
    let mut to = match part.to {
        Some(to) => {
            let socket = part.socket()?;
            socket.set_tcp_mss(part.mss)?;
            if let Some(bytes) = part.send_buffer {
                socket.set_send_buffer_size(bytes as usize)?;
            }
            socket.connect(&to.into())?;
            let socket = TcpStream::from(socket);
            let local = socket.local_addr()?;
            Some((local, to, End::new(socket, false, &stop)?))
        }
        None => None,
    };
    let mut lines = io::stdin().lines();
    std::thread::scope(|scope| {
        let playing = scope.spawn(|| match &mut to {
            Some((_, _, to)) => from.relay(to),
            None => read(&mut from, part.pace),
        });
        lines.next();
        stop.store(true, Ordering::Relaxed);
        playing
            .join()
            .unwrap_or_else(|panic| std::panic::resume_unwind(panic))
    })?;
    let (from, log) = from.finish();
    let mut open = vec![from];
    let mut accounts: Accounts = vec![(ours, peer, log)];
    if let Some((local, remote, end)) = to {
        let (socket, log) = end.finish();
        open.push(socket);
        accounts.push((local, remote, log));
    }
    println!("{}", serde_json::to_string(&accounts)?);
    // Until the agent has looked once more.
    while lines.next().is_some() {}
    Ok(())
}
