// SPDX-License-Identifier: Apache-2.0
//! The network of a run: two hosts, two routers, a bottleneck between these.

use crate::RunError;
use crate::plan::{ListenerLoad, Loss, PathSettings, Plan, Tcp};
use slowpath_lab::emulator::{Host, INTERFACE, Lab, Options};
use slowpath_netsim::scenario::{Scenario, Substrate};
use slowpath_testbed::PINNED_SYSCTLS;
use socket2::{Domain, Socket, Type};
use std::fmt::Write as _;
use std::net::{IpAddr, SocketAddr};
use std::process::{Child, Command, Stdio};
use std::time::Duration;

/// A packet may be so late: half of what the verdicts allow a queue (MaxQueuingDelay, 10 ms).
/// One of a hundred may be later.
const BOUND: Duration = Duration::from_millis(5);

/// Brings it up; `seed` is for what is lost at random.
pub(crate) fn up(plan: &Plan, seed: u64) -> Result<Lab, RunError> {
    let path = &plan.path;
    let text = scenario(path, plan.listener_load.as_ref(), seed);
    let files = |_: &str| Err(std::io::ErrorKind::NotFound.into());
    let scenario = Scenario::parse_for(&text, &files, Substrate::Emulator)
        .map_err(|error| RunError::Scenario(format!("{error}: {text}")))?;
    let lab = Lab::up(&scenario, &Options { bound: BOUND })?;
    card(&lab, path)?;
    Ok(lab)
}

/// A process that lives on a host, as on every host that is one: its namespace is found by it.
pub(crate) struct Resident(Child);

impl Resident {
    pub(crate) fn of(host: &Host) -> Result<Self, RunError> {
        let mut command = Command::new("sleep");
        command.arg("3600").stdin(Stdio::null());
        let child = host.spawn(&mut command);
        child
            .map(Resident)
            .map_err(RunError::io("run a program of coreutils"))
    }
}

impl Drop for Resident {
    fn drop(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

/// A network card at four times the path's rate: it holds segments for the moment that their
/// transmission takes. A TUN device takes them at once; TCP's small queues then do not work,
/// nor does the kernel's clock of the send buffer (docs/decisions/0006-testbed.md).
fn card(lab: &Lab, path: &PathSettings) -> Result<(), RunError> {
    let rate = format!("{}kbit", path.rate_kbit * CARD);
    for host in lab.hosts() {
        let limits = ["rate", &rate, "burst", "3100", "limit", "3000000"];
        let queue = ["qdisc", "add", "dev", INTERFACE, "root", "tbf"];
        tool(host, "tc", queue.iter().chain(&limits))?;
        if path.single {
            let segments = ["link", "set", "dev", INTERFACE, "gso_max_segs", "1"];
            tool(host, "ip", segments.iter())?;
        }
    }
    Ok(())
}

/// How much faster than the path a card is.
const CARD: u64 = 4;

/// How long a card takes for a segment, nanoseconds.
pub(crate) fn card_ns(path: &PathSettings, segment: u64) -> u64 {
    // Headers of IPv6 and TCP with timestamps; kbit/s into nanoseconds a bit.
    (segment + 72) * 8 * 1_000_000 / (path.rate_kbit * CARD).max(1)
}

fn tool<'a>(
    host: &Host,
    program: &'static str,
    arguments: impl Iterator<Item = &'a &'a str>,
) -> Result<(), RunError> {
    let mut command = Command::new(program);
    command.args(arguments).stdin(Stdio::null());
    let status = host
        .spawn(&mut command)
        .and_then(|mut child| child.wait())
        .map_err(RunError::io("run a program of iproute2"))?;
    match status.success() {
        true => Ok(()),
        false => Err(RunError::Scenario(format!("{program} refuses {command:?}"))),
    }
}

fn scenario(path: &PathSettings, load: Option<&ListenerLoad>, seed: u64) -> String {
    let mut text = format!(
        "seed = {seed}\n\
         [topology]\nkind = \"custom\"\nhosts = [\"a\", \"b\"]\nswitches = [\"near\", \"far\"]\n\
         links = {{ rate = \"1 Gbit/s\", delay = \"0 s\" }}\n\
         link = [{{ ends = [\"a\", \"near\"] }}, \
         {{ ends = [\"near\", \"far\"], rate = \"{} kbit/s\", delay = \"{} us\" }}, \
         {{ ends = [\"far\", \"b\"] }}]\n\
         [switch]\nbuffer = \"{} B\"\n",
        path.rate_kbit,
        path.rtt_us / 2,
        path.queue_bytes
    );
    if let Some(packets) = path.marking {
        let _ = writeln!(text, "marking = \"{packets} packets\"");
    }
    text += "[host.sysctls]\n";
    for (name, value, _) in PINNED_SYSCTLS {
        let value = match *name {
            "net.ipv4.tcp_ecn" if path.marking.is_some() => "1",
            "net.ipv4.tcp_slow_start_after_idle" if path.keep_window => "0",
            _ => value,
        };
        let _ = writeln!(text, "\"{name}\" = \"{value}\"");
    }
    if let Some(load) = load {
        let _ = writeln!(
            text,
            "\"net.core.somaxconn\" = \"4096\"\n\
             \"net.ipv4.tcp_abort_on_overflow\" = \"0\"\n\
             \"net.ipv4.tcp_synack_retries\" = \"5\"\n\
             \"net.ipv4.tcp_syncookies\" = \"{}\"\n\
             \"net.ipv4.tcp_max_syn_backlog\" = \"{}\"",
            u8::from(load.cookies),
            load.most_half_open
        );
    }
    let mut line = String::new();
    if let Some(loss) = &path.loss {
        let picked = match loss {
            Loss::Every { every, first } => format!("every = {every}, first = {first}"),
            Loss::Random(millionths) => format!("share = {}", share(*millionths)),
            Loss::Runs(runs) => {
                let run = |(first, last): &(u32, u32)| format!("\"{first}-{last}\"");
                let runs: Vec<_> = runs.iter().map(run).collect();
                format!("packets = [{}]", runs.join(", "))
            }
        };
        let _ = writeln!(line, "loss = {{ {picked}, {DATA} }}");
    }
    if let Some((millionths, by)) = path.late {
        let share = share(millionths);
        let _ = writeln!(
            line,
            "reordering = {{ share = {share}, by = \"{by} us\", {DATA} }}"
        );
    }
    if !line.is_empty() {
        let _ = write!(text, "[[line]]\non = \"a -> near\"\n{line}");
    }
    text
}

/// Longer than any header: data only.
const DATA: &str = "at-least = \"140 B\"";

fn share(millionths: u32) -> f64 {
    f64::from(millionths) / 1e6
}

/// A socket of that address's family, with the plan's options.
pub(crate) fn socket(address: IpAddr, tcp: &Tcp) -> std::io::Result<Socket> {
    let domain = Domain::for_address(SocketAddr::new(address, 0));
    let socket = Socket::new(domain, Type::STREAM, None)?;
    socket.set_tcp_congestion(tcp.control.as_bytes())?;
    socket.set_tcp_nodelay(tcp.nodelay)?;
    Ok(socket)
}

/// The number of the link between the routers.
pub(crate) fn middle(lab: &Lab) -> u32 {
    // A link's two lines follow each other.
    lab.line("near", "far").map_or(0, |line| line / 2)
}

/// The line on which what b sends comes to a.
pub(crate) fn far_to_near(lab: &Lab) -> Option<u32> {
    lab.line("far", "near")
}
