// SPDX-License-Identifier: Apache-2.0
//! A run of many clients and one listener.

use crate::RunError;
use crate::app::monotonic;
use crate::network::{far_to_near, socket};
use crate::plan::{ListenerLoad, Plan};
use crate::truth::listener::Accepted;
use slowpath_lab::emulator::{Host, Lab};
use slowpath_switch::fabric::{Action, Impairment, Pick, Share};
use socket2::Socket;
use std::io::{self, ErrorKind};
use std::net::{SocketAddr, TcpListener, TcpStream};
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

/// How long the agent may take until it has looked at every listener once more: it rests a
/// hundred times as long as a look takes it, and here it finds its way to many namespaces.
const ROUNDS: Duration = Duration::from_secs(6);

/// What a run leaves: the connections that the application accepted, and the sockets of both
/// sides, still open.
pub(crate) struct LoadedListener {
    pub(crate) accepted: Vec<Accepted>,
    _accepted: Vec<TcpStream>,
    _clients: Vec<Socket>,
}

/// Has the clients connect, and the application accept them as the plan says.
pub(crate) fn run_clients(
    lab: &Lab,
    listener: &TcpListener,
    plan: &Plan,
    load: &ListenerLoad,
) -> Result<LoadedListener, RunError> {
    let broken = RunError::io("use a listener");
    listener.set_nonblocking(true).map_err(&broken)?;
    let to = listener.local_addr().map_err(&broken)?;
    let mute = |is: bool| {
        if let Some(line) = far_to_near(lab).filter(|_| load.mute_ms > 0) {
            let lost = Pick {
                share: if is { Share::ALL } else { Share::NONE },
                ..Pick::default()
            };
            let impairment = Impairment {
                loss: lost,
                ..Impairment::default()
            };
            lab.apply(&Action::Impair(line, Box::new(impairment)));
        }
    };
    let over = AtomicBool::new(false);
    mute(true);
    let began = monotonic();
    let until = |ms: u64| {
        let left = (began + ms * 1_000_000).saturating_sub(monotonic());
        std::thread::sleep(Duration::from_nanos(left));
    };
    let (clients, served) = std::thread::scope(|scope| {
        let serving = scope.spawn(|| {
            until(load.idle_ms);
            serve(listener, load, &over)
        });
        let connecting = scope.spawn(|| connect_all(&lab.hosts()[0], to, plan, load));
        until(load.mute_ms);
        mute(false);
        until(plan.length_ms);
        over.store(true, Ordering::Relaxed);
        let clients = connecting
            .join()
            .unwrap_or_else(|panic| std::panic::resume_unwind(panic));
        let served = serving
            .join()
            .unwrap_or_else(|panic| std::panic::resume_unwind(panic));
        (clients, served)
    });
    let (accepted, sockets) = served.map_err(&broken)?;
    let clients = clients.map_err(RunError::io("connect"))?;
    std::thread::sleep(ROUNDS);
    Ok(LoadedListener {
        accepted,
        _accepted: sockets,
        _clients: clients,
    })
}

/// Begins connections, without waiting for any.
fn connect_all(
    a: &Host,
    to: SocketAddr,
    plan: &Plan,
    load: &ListenerLoad,
) -> io::Result<Vec<Socket>> {
    let mut clients = Vec::new();
    for _ in 0..load.clients {
        let begin = || {
            let socket = socket(to.ip(), &plan.tcp)?;
            socket.set_nonblocking(true)?;
            match socket.connect(&to.into()) {
                Err(e) if e.raw_os_error() != Some(IN_PROGRESS) => Err(e),
                _ => Ok(socket),
            }
        };
        clients.push(a.run(begin)??);
        std::thread::sleep(Duration::from_micros(load.gap_us));
    }
    Ok(clients)
}

const IN_PROGRESS: i32 = rustix::io::Errno::INPROGRESS.raw_os_error();

/// Accepts with pauses, and in the end all that is there.
fn serve(
    listener: &TcpListener,
    load: &ListenerLoad,
    over: &AtomicBool,
) -> io::Result<(Vec<Accepted>, Vec<TcpStream>)> {
    let (mut accepted, mut sockets) = (Vec::new(), Vec::new());
    loop {
        let last = over.load(Ordering::Relaxed);
        match listener.accept() {
            Ok((socket, peer)) => {
                let at = monotonic();
                accepted.push(Accepted { at, peer });
                sockets.push(socket);
                if !last {
                    std::thread::sleep(Duration::from_micros(load.pause_us));
                }
            }
            Err(error) if error.kind() == ErrorKind::WouldBlock => {
                if last {
                    return Ok((accepted, sockets));
                }
                std::thread::sleep(Duration::from_millis(1));
            }
            Err(error) => return Err(error),
        }
    }
}
