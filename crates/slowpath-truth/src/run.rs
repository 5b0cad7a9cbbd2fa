// SPDX-License-Identifier: Apache-2.0
//! One run: a plan carried out while the agent watches.

use crate::app::{self, End, Log, Span, monotonic, realtime};
use crate::capture::Capture;
use crate::packet::{Packet, packets};
use crate::plan::{Path, Plan, Tcp};
use crate::stream::{Captured, Stream};
use crate::truth::{Truth, truths};
use crate::watch::{Seen, Watcher};
use crate::{RunError, counters, network};
use slowpath_lab::emulator::{Host, Lab};
use slowpath_model::{FourTuple, Problem};
use slowpath_switch::fabric::Action;
use socket2::{Domain, Socket, Type};
use std::collections::BTreeMap;
use std::io::ErrorKind;
use std::net::{IpAddr, SocketAddr, TcpListener, TcpStream};
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

/// By how much the clock of captures may drift from the one of calls in a run, nanoseconds.
const CLOCK_DRIFT: u64 = 200_000;

/// One end of a connection, found and true.
#[derive(Clone, Debug)]
pub struct Judged {
    /// Whether it is the end that opened it.
    pub opened: bool,
    /// Whether it sent data.
    pub sends: bool,
    /// What the agent said.
    pub seen: Seen,
    /// What was the case.
    pub truths: Vec<(Problem, Truth)>,
}

impl Judged {
    /// Whether the agent found the problem: any finding in any interval. `SenderAppLimited`
    /// is found where nothing else is.
    pub fn found(&self, problem: Problem) -> bool {
        let totals = &self.seen.totals;
        let has = |p: Problem| {
            totals.problem_time[p as usize].0 > 0 || totals.problem_events[p as usize] > 0
        };
        match problem {
            Problem::SenderAppLimited => !Problem::ALL.into_iter().any(|p| p != problem && has(p)),
            other => has(other),
        }
    }
}

/// What a run gave.
#[derive(Debug)]
pub struct Outcome {
    /// Both ends of every connection.
    pub ends: Vec<Judged>,
    /// The captures at a and b, as pcap files.
    pub captures: [Vec<u8>; 2],
    /// The kernels' own accounts at a and b, which no truth comes from.
    pub counters: [BTreeMap<String, u64>; 2],
}

/// A connection that was used.
struct Used {
    opened: FourTuple,
    from: u64,
    logs: [Log; 2],
}

/// Carries a plan out.
///
/// # Errors
/// See [`RunError`]; after [`RunError::Disturbed`] another attempt is worth while.
pub fn run(plan: &Plan, seed: u64, watcher: &Watcher) -> Result<Outcome, RunError> {
    let lab = network::up(&plan.path, seed)?;
    let (a, b) = (&lab.hosts()[0], &lab.hosts()[1]);
    let namespaces = [netns(a)?, netns(b)?];
    watcher.register(namespaces);
    let captures = [Capture::start(a)?, Capture::start(b)?];
    let offset = realtime() - monotonic();
    let listener = listen(b, plan)?;
    let mut used = Vec::new();
    let mut open = Vec::new();
    if plan.path.closed_ms > 0 {
        lab.apply(&Action::Up(middle(&lab), false));
    }
    for _ in 0..plan.connections {
        // The last one stays open until the agent has looked at it once more.
        open.clear();
        let (connection, sockets) = connection(&lab, &listener, plan)?;
        used.push(connection);
        open.extend(sockets);
    }
    let seen = watcher.collect(namespaces)?;
    let counters = [counters::read(a), counters::read(b)];
    let drift = (realtime() - monotonic()).abs_diff(offset);
    let [near, far] = captures.map(Capture::finish);
    let captures = [near?, far?];
    drop(open);
    if let Some(complaint) = lab.down().complaint() {
        return Err(RunError::Disturbed(complaint));
    }
    if drift > CLOCK_DRIFT {
        let why = format!("the clocks drifted by {} us", drift / 1000);
        return Err(RunError::Disturbed(why));
    }
    let read = |pcap: &[u8]| -> Vec<Packet> {
        let (mut packets, _) = packets(pcap);
        for packet in &mut packets {
            packet.at = packet.at.saturating_sub(offset);
        }
        packets
    };
    let wires = [read(&captures[0]), read(&captures[1])];
    let mut ends = Vec::new();
    for connection in &used {
        for side in 0..2 {
            ends.extend(judge(plan, connection, side, namespaces, &wires, &seen));
        }
    }
    if ends.len() < 2 * used.len() {
        return Err(RunError::Agent(format!(
            "it saw {} of {} ends",
            ends.len(),
            2 * used.len()
        )));
    }
    Ok(Outcome {
        ends,
        captures,
        counters,
    })
}

fn judge(
    plan: &Plan,
    connection: &Used,
    side: usize,
    namespaces: [u32; 2],
    wires: &[Vec<Packet>; 2],
    seen: &[Seen],
) -> Option<Judged> {
    let tuple = match side {
        0 => connection.opened,
        _ => connection.opened.reversed(),
    };
    let found = |s: &&Seen| s.netns == namespaces[side] && s.tuple == tuple;
    let seen = seen.iter().find(found)?;
    let over = Span {
        from: connection.from,
        to: seen.to,
    };
    let direction = |from: usize, sender, receiver| {
        let captured = Captured {
            near: &wires[from],
            far: &wires[1 - from],
            sender,
            receiver,
        };
        let logs = &connection.logs;
        let mut stream = Stream::new(&captured, &logs[from], &logs[1 - from], over)?;
        // Both ends keep to the smaller MSS; timestamps take 12 bytes of it.
        stream.mss = u64::from(plan.tcp.mss) - 12;
        stream.nodelay = plan.tcp.nodelay;
        stream.card_ns = network::card_ns(&plan.path, stream.mss);
        Some(stream)
    };
    let ours = direction(side, tuple.local, tuple.remote)?;
    let theirs = direction(1 - side, tuple.remote, tuple.local)?;
    Some(Judged {
        opened: side == 0,
        sends: !ours.sent.is_empty(),
        seen: seen.clone(),
        truths: truths(&ours, &theirs),
    })
}

fn netns(host: &Host) -> Result<u32, RunError> {
    // Inode numbers of namespaces are 32 bits wide.
    let inode = host.inode().map_err(RunError::io("examine a namespace"))?;
    Ok(inode as u32)
}

fn address(host: &Host, path: &Path) -> IpAddr {
    match path.v6 {
        true => host.ipv6().into(),
        false => host.ipv4().into(),
    }
}

fn socket(address: IpAddr, tcp: &Tcp) -> std::io::Result<Socket> {
    let domain = Domain::for_address(SocketAddr::new(address, 0));
    let socket = Socket::new(domain, Type::STREAM, None)?;
    socket.set_tcp_congestion(tcp.control.as_bytes())?;
    socket.set_tcp_nodelay(tcp.nodelay)?;
    Ok(socket)
}

fn listen(b: &Host, plan: &Plan) -> Result<TcpListener, RunError> {
    let address = address(b, &plan.path);
    let listen = || {
        let socket = socket(address, &plan.tcp)?;
        if let Some(bytes) = plan.tcp.receive_buffer {
            socket.set_recv_buffer_size(bytes as usize)?;
        }
        socket.bind(&SocketAddr::new(address, 0).into())?;
        socket.listen(16)?;
        std::io::Result::Ok(TcpListener::from(socket))
    };
    let listener = b.run(listen).map_err(RunError::io("enter a host"))?;
    listener.map_err(|source| match source.kind() {
        // An IPv6 address takes a moment to be usable.
        ErrorKind::AddrNotAvailable => RunError::Disturbed(format!("cannot listen: {source}")),
        _ => RunError::io("listen")(source),
    })
}

fn connect(a: &Host, to: SocketAddr, plan: &Plan) -> std::io::Result<TcpStream> {
    a.run(|| {
        let socket = socket(to.ip(), &plan.tcp)?;
        socket.set_tcp_mss(plan.tcp.mss)?;
        if let Some(bytes) = plan.tcp.send_buffer {
            socket.set_send_buffer_size(bytes as usize)?;
        }
        socket.connect(&to.into())?;
        Ok(TcpStream::from(socket))
    })?
}

/// Opens a connection and uses it for the plan's length; gives its ends, still open.
fn connection(
    lab: &Lab,
    listener: &TcpListener,
    plan: &Plan,
) -> Result<(Used, [TcpStream; 2]), RunError> {
    let broken = RunError::io("use a connection");
    let to = listener.local_addr().map_err(&broken)?;
    let from = monotonic();
    let opened = std::thread::scope(|scope| {
        let connecting = scope.spawn(|| connect(&lab.hosts()[0], to, plan));
        if plan.path.closed_ms > 0 {
            std::thread::sleep(Duration::from_millis(plan.path.closed_ms));
            lab.apply(&Action::Up(middle(lab), true));
        }
        connecting
            .join()
            .unwrap_or_else(|panic| std::panic::resume_unwind(panic))
    });
    let opened = opened.map_err(RunError::io("connect"))?;
    let (accepted, _) = listener.accept().map_err(RunError::io("accept"))?;
    let tuple = FourTuple::new(opened.local_addr().map_err(&broken)?, to);
    let (stop, stop_reading) = (AtomicBool::new(false), AtomicBool::new(false));
    let mut client = End::new(opened, false, &stop).map_err(&broken)?;
    let mut server = End::new(accepted, plan.tcp.delay_acks, &stop_reading).map_err(&broken)?;
    let results = std::thread::scope(|scope| {
        let serving = scope.spawn(|| app::server(&mut server, plan));
        let driving = scope.spawn(|| app::client(&mut client, plan));
        inject(lab, plan);
        stop.store(true, Ordering::Relaxed);
        let join = |thread: std::thread::ScopedJoinHandle<'_, std::io::Result<()>>| {
            thread
                .join()
                .unwrap_or_else(|panic| std::panic::resume_unwind(panic))
        };
        let driven = join(driving);
        // A reader that keeps up reads what is under way, too.
        let rest_us = 200_000 + plan.path.rtt_us + plan.path.queue_us();
        std::thread::sleep(Duration::from_micros(rest_us));
        stop_reading.store(true, Ordering::Relaxed);
        [driven, join(serving)]
    });
    for result in results {
        result.map_err(&broken)?;
    }
    let (opened, ours) = client.finish();
    let (accepted, theirs) = server.finish();
    let used = Used {
        opened: tuple,
        from,
        logs: [ours, theirs],
    };
    Ok((used, [opened, accepted]))
}

/// The number of the link between the routers.
fn middle(lab: &Lab) -> u32 {
    // A link's two lines follow each other.
    lab.line("near", "far").map_or(0, |line| line / 2)
}

/// Waits for the end of the run, and cuts the path when the plan says so.
fn inject(lab: &Lab, plan: &Plan) {
    let began = monotonic();
    let wait_until = |ms: u64| {
        let left = (began + ms * 1_000_000).saturating_sub(monotonic());
        std::thread::sleep(Duration::from_nanos(left));
    };
    let link = middle(lab);
    for &(at, length) in &plan.path.cuts_ms {
        wait_until(at);
        lab.apply(&Action::Up(link, false));
        wait_until(at + length);
        lab.apply(&Action::Up(link, true));
    }
    wait_until(plan.length_ms);
}
