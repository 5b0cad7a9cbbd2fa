// SPDX-License-Identifier: Apache-2.0
//! What the applications of a run do: who listens, connects, sends and reads, and what accounts they leave.

use super::BACKLOG;
use crate::app::{self, End, Log, monotonic};
use crate::plan::{PathSettings, Plan, Relay};
use crate::relay::{Part, Player};
use crate::truth::listener::Accepted;
use crate::{RunError, listener_load, network};
use slowpath_lab::emulator::{Host, Lab};
use slowpath_model::FourTuple;
use slowpath_switch::fabric::Action;
use std::io::ErrorKind;
use std::net::{IpAddr, SocketAddr, TcpListener, TcpStream};
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;
/// A connection that was used.
pub(super) struct Used {
    pub(super) opened: FourTuple,
    /// The host that opened it, 0 or 1.
    pub(super) opener: usize,
    pub(super) from: u64,
    pub(super) logs: [Log; 2],
}

/// What the applications leave.
#[derive(Default)]
pub(super) struct Done {
    pub(super) used: Vec<Used>,
    pub(super) accepted: Vec<Accepted>,
    pub(super) relayed: Option<Relayed>,
    /// See [`Outcome::players`](super::Outcome::players).
    pub(super) players: Option<[u32; 2]>,
    /// Held until the agent has looked once more.
    _open: Vec<Box<dyn std::any::Any>>,
}

/// The runs of the plan's applications.
pub(super) fn applications(
    lab: &Lab,
    listener: &TcpListener,
    plan: &Plan,
    ask: &dyn Fn(SocketAddr),
) -> Result<Done, RunError> {
    let mut done = Done::default();
    if plan.relay.is_none() {
        ask(listener
            .local_addr()
            .map_err(RunError::io("use a listener"))?);
    }
    if let Some(load) = &plan.listener_load {
        let loaded = listener_load::run_clients(lab, listener, plan, load)?;
        done.accepted.clone_from(&loaded.accepted);
        done._open.push(Box::new(loaded));
        return Ok(done);
    }
    if let Some(through) = &plan.relay {
        return relay(lab, plan, through, ask);
    }
    if plan.path.closed_ms > 0 {
        lab.apply(&Action::Up(network::middle(lab), false));
    }
    for _ in 0..plan.connections {
        // The last one stays open until the agent has looked at it once more.
        done._open.clear();
        let (connection, accepted, sockets) = connection(lab, listener, plan)?;
        done.used.push(connection);
        done.accepted.push(accepted);
        done._open.push(Box::new(sockets));
    }
    Ok(done)
}

/// a sends to a process at b, which passes it on to another process at a.
fn relay(
    lab: &Lab,
    plan: &Plan,
    through: &Relay,
    ask: &dyn Fn(SocketAddr),
) -> Result<Done, RunError> {
    let [a, b] = [&lab.hosts()[0], &lab.hosts()[1]];
    let there = address(a, &plan.path);
    let last = Part::last(there, &plan.tcp, through.receive_buffer, plan.pace);
    let last = Player::start(a, &last)?;
    let here = address(b, &plan.path);
    let part = Part::relay(here, last.listens, &plan.tcp, through.send_buffer);
    let relay = Player::start(b, &part)?;
    ask(relay.listens);
    let broken = RunError::io("use a connection");
    let from = monotonic();
    let opened = connect(a, relay.listens, plan).map_err(RunError::io("connect"))?;
    let tuple = FourTuple::new(opened.local_addr().map_err(&broken)?, relay.listens);
    let stop = AtomicBool::new(false);
    let mut client = End::new(opened, false, &stop).map_err(&broken)?;
    let driven = std::thread::scope(|scope| {
        let driving = scope.spawn(|| app::client(&mut client, plan));
        std::thread::sleep(Duration::from_millis(plan.length_ms));
        stop.store(true, Ordering::Relaxed);
        driving
            .join()
            .unwrap_or_else(|panic| std::panic::resume_unwind(panic))
    });
    driven.map_err(&broken)?;
    let (socket, log) = client.finish();
    Ok(Done {
        players: Some([relay.pid(), last.pid()]),
        relayed: Some(Relayed {
            opened: tuple,
            from,
            log,
            relay,
            last,
        }),
        _open: vec![Box::new(socket)],
        ..Done::default()
    })
}

/// Processes that pass data on, which play until the agent has looked once more.
pub(super) struct Relayed {
    opened: FourTuple,
    from: u64,
    log: Log,
    relay: Player,
    last: Player,
}

impl Relayed {
    /// Has them end; gives the two connections.
    pub(super) fn finish(mut self) -> Result<[Used; 2], RunError> {
        let lost = |_| RunError::Agent("a process lost an account".to_owned());
        let [incoming, outgoing]: [_; 2] = self.relay.stop()?.try_into().map_err(lost)?;
        let [end]: [_; 1] = self.last.stop()?.try_into().map_err(lost)?;
        Ok([
            Used {
                opened: self.opened,
                opener: 0,
                from: self.from,
                logs: [self.log, incoming.2],
            },
            Used {
                opened: FourTuple::new(outgoing.0, outgoing.1),
                opener: 1,
                from: self.from,
                logs: [outgoing.2, end.2],
            },
        ])
    }
}

fn address(host: &Host, path: &PathSettings) -> IpAddr {
    match path.v6 {
        true => host.ipv6().into(),
        false => host.ipv4().into(),
    }
}

pub(super) fn listen(b: &Host, plan: &Plan) -> Result<TcpListener, RunError> {
    let address = address(b, &plan.path);
    let listen = || {
        let socket = network::socket(address, &plan.tcp)?;
        if let Some(bytes) = plan.tcp.receive_buffer {
            socket.set_recv_buffer_size(bytes as usize)?;
        }
        socket.bind(&SocketAddr::new(address, 0).into())?;
        let backlog = plan
            .listener_load
            .as_ref()
            .map_or(BACKLOG, |load| load.backlog);
        socket.listen(backlog as i32)?;
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
        let socket = network::socket(to.ip(), &plan.tcp)?;
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
) -> Result<(Used, Accepted, [TcpStream; 2]), RunError> {
    let broken = RunError::io("use a connection");
    let to = listener.local_addr().map_err(&broken)?;
    let from = monotonic();
    let opened = std::thread::scope(|scope| {
        let connecting = scope.spawn(|| connect(&lab.hosts()[0], to, plan));
        if plan.path.closed_ms > 0 {
            std::thread::sleep(Duration::from_millis(plan.path.closed_ms));
            lab.apply(&Action::Up(network::middle(lab), true));
        }
        connecting
            .join()
            .unwrap_or_else(|panic| std::panic::resume_unwind(panic))
    });
    let opened = opened.map_err(RunError::io("connect"))?;
    let (accepted, peer) = listener.accept().map_err(RunError::io("accept"))?;
    let taken = Accepted {
        at: monotonic(),
        peer,
    };
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
        opener: 0,
        from,
        logs: [ours, theirs],
    };
    Ok((used, taken, [opened, accepted]))
}

/// Waits for the end of the run, and cuts the path when the plan says so.
fn inject(lab: &Lab, plan: &Plan) {
    let began = monotonic();
    let wait_until = |ms: u64| {
        let left = (began + ms * 1_000_000).saturating_sub(monotonic());
        std::thread::sleep(Duration::from_nanos(left));
    };
    let link = network::middle(lab);
    for &(at, length) in &plan.path.cuts_ms {
        wait_until(at);
        lab.apply(&Action::Up(link, false));
        wait_until(at + length);
        lab.apply(&Action::Up(link, true));
    }
    wait_until(plan.length_ms);
}
