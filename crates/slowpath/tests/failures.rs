// SPDX-License-Identifier: Apache-2.0
//! Failures that `why` and `watch` count, beside what packets and the kernel's counters say.
//!
//! Connections that are refused, unanswered, unreachable and reset, each kind to a port of its own and a drawn number of
//! them; others that end early and cost nothing. What is expected comes from a capture (flags and payload of each
//! connection) and from `/proc/net/snmp` and `netstat` of the namespaces.

use serde_json::Value;
use slowpath_cli::machine::Machine;
use slowpath_cli::options::{CommandLinesArg, Observing, TierArg};
use slowpath_model::{MonoNanos, Tier, WallMicros};
use slowpath_testbed::{
    Capture, Counters, LinkOptions, Need, Side, Testbed, attempts, missing_requirements,
};
use slowpath_views::json;
use slowpath_views::source::{PollReport, Source};
use slowpath_views::watch::{NewVerdicts, WatchSummary};
use slowpath_views::why::{Collector, Target};
use std::collections::BTreeMap;
use std::io::{BufRead, BufReader, Write};
use std::net::IpAddr;
use std::process::{Child, ChildStdin, ChildStdout, Command, Stdio};
use std::time::{Duration, SystemTime};

const TEST: &str = "failures_are_those_that_packets_and_counters_show";
const PEERS: &str = include_str!("failures/peers.py");

/// Where nothing answers, where ICMP answers, what this host drops itself, and where no process listens.
const DROPPED: u16 = 17_101;
const REJECTED: u16 = 17_102;
const KEPT_IN: u16 = 17_103;
const CLOSED: u16 = 17_104;

/// One side of the connections of one kind.
struct Peers {
    child: Child,
    input: ChildStdin,
    output: BufReader<ChildStdout>,
}

impl Peers {
    fn start(testbed: &Testbed, side: Side, arguments: &[&str]) -> Self {
        let mut command = testbed.namespace(side).command("python3").expect("enters");
        command.args(["-c", PEERS]).args(arguments);
        command.stdin(Stdio::piped()).stdout(Stdio::piped());
        let mut child = command.spawn().expect("python3 starts");
        let input = child.stdin.take().expect("is a pipe");
        let output = child.stdout.take().expect("is a pipe");
        Peers {
            child,
            input,
            output: BufReader::new(output),
        }
    }

    fn line(&mut self) -> String {
        let mut line = String::new();
        self.output.read_line(&mut line).expect("is text");
        line.trim().to_owned()
    }

    fn done(&mut self) {
        assert_eq!(self.line(), "done");
    }

    fn end(mut self) {
        drop(self.input);
        assert!(self.child.wait().expect("ends").success());
    }
}

/// Numbers of 2 to 9 connections.
struct Drawn(u64);

impl Drawn {
    fn next(&mut self) -> u64 {
        // Numerical Recipes' linear congruential generator; its high bits.
        self.0 = self
            .0
            .wrapping_mul(1_664_525)
            .wrapping_add(1_013_904_223)
            .wrapping_add(self.0 >> 33);
        2 + (self.0 >> 20) % 8
    }
}

/// What `why` and `watch` observe.
struct Observers {
    machine: Machine,
    collectors: Vec<Collector>,
    summary: WatchSummary,
    shown: NewVerdicts,
    ours: [u32; 2],
}

impl Observers {
    fn start(targets: &[&Target], ours: [u32; 2]) -> Option<Self> {
        let observing = Observing {
            interval: Duration::from_millis(200),
            tier: TierArg::Auto,
            cpu_budget: None,
            owners: None,
            log_command_lines: CommandLinesArg::Program,
        };
        let machine = Machine::start(&observing, None, 0).ok()?;
        if machine.capabilities().tier != Tier::Bpf {
            return None;
        }
        let mut observers = Observers {
            machine,
            collectors: targets.iter().map(|t| Collector::at(t)).collect(),
            summary: WatchSummary::default(),
            shown: NewVerdicts::default(),
            ours,
        };
        observers.poll();
        Some(observers)
    }

    fn poll(&mut self) -> MonoNanos {
        let report: PollReport = self.machine.poll().expect("polls");
        for collector in &mut self.collectors {
            collector.polled(&self.machine, &report, WallMicros(0));
        }
        let source = &self.machine;
        for live in source.recently_closed().chain(source.connections()) {
            let Some(verdict) = live.latest else { continue };
            let ours = self.ours.contains(&live.snapshot.id.netns);
            if ours && self.shown.show(live, verdict).is_some() {
                self.summary.add(live, verdict);
            }
        }
        self.summary.join(source, &report);
        report.at
    }

    /// The outputs of `why` for each target, and of `watch`.
    fn output(self) -> (Vec<Value>, Value) {
        let Observers {
            machine,
            collectors,
            summary,
            ..
        } = self;
        let answer = |collector: Collector| {
            let answer = collector.answer(Default::default()).expect("was met");
            json::value(&answer.output(&machine, WallMicros(0)))
        };
        let answers = collectors.into_iter().map(answer).collect();
        let summed = summary.output(machine.capabilities(), &machine.losses(), WallMicros(0));
        (answers, json::value(&summed))
    }
}

/// Counts by failure, peer and command.
type Failures = BTreeMap<(String, String, String), u64>;

/// `failures` of an output, of the clients only.
fn failures(output: &Value) -> Failures {
    let entries = output["failures"].as_array().expect("is a list");
    let text = |value: &Value| value.as_str().unwrap_or_default().to_owned();
    let entry = |entry: &Value| {
        let command = text(&entry["process"]["command"]);
        let key = (text(&entry["failure"]), text(&entry["peer"]), command);
        (key, entry["connections"].as_u64().expect("is a number"))
    };
    let ours = |(key, _): &((String, String, String), u64)| key.2.starts_with("sp-c-");
    entries.iter().map(entry).filter(ours).collect()
}

/// Connections that servers reset, whichever process held them.
fn reset_by_servers(output: &Value, clients: IpAddr) -> u64 {
    let entries = output["failures"].as_array().expect("is a list").iter();
    let theirs =
        entries.filter(|e| e["failure"] == "reset_here" && e["peer"] == clients.to_string());
    theirs.filter_map(|e| e["connections"].as_u64()).sum()
}

/// What packets show of one connection.
#[derive(Default)]
struct Flow {
    syns: u64,
    answered: bool,
    /// RST from the server, from the client.
    resets: [bool; 2],
    /// The server sent payload.
    answer: bool,
    /// The server's window scale; where the client's data ends, and where the server lets it end.
    scale: u8,
    sent: u32,
    edge: u32,
}

/// The connections of a capture of Ethernet frames with IPv4, by client's and server's port; SYNs name the client.
fn flows(pcap: &[u8]) -> BTreeMap<(u16, u16), Flow> {
    let mut flows: BTreeMap<(u16, u16), Flow> = BTreeMap::new();
    let mut rest = &pcap[24..];
    while rest.len() >= 16 {
        let length = u32::from_le_bytes(rest[8..12].try_into().expect("is four bytes")) as usize;
        let frame = &rest[16..16 + length];
        rest = &rest[16 + length..];
        let (ip, tcp) = (&frame[14..], 14 + usize::from(frame[14] & 15) * 4);
        if frame[12..14] != [8, 0] || ip[9] != 6 {
            continue;
        }
        let tcp = &frame[tcp..];
        let word = |at: usize| u16::from_be_bytes([tcp[at], tcp[at + 1]]);
        let number = |at| u32::from(word(at)) << 16 | u32::from(word(at + 2));
        let (from, to, flags) = (word(0), word(2), tcp[13]);
        let (syn, rst, ack) = (flags & 2 != 0, flags & 4 != 0, flags & 16 != 0);
        let total = usize::from(u16::from_be_bytes([ip[2], ip[3]]));
        let payload = total - usize::from(ip[0] & 15) * 4 - usize::from(tcp[12] >> 4) * 4;
        if syn && !ack {
            flows.entry((from, to)).or_default().syns += 1;
        } else if let Some(flow) = flows.get_mut(&(from, to)) {
            flow.resets[1] |= rst;
            flow.sent = number(4).wrapping_add(payload as u32);
        } else if let Some(flow) = flows.get_mut(&(to, from)) {
            flow.answered |= syn;
            flow.resets[0] |= rst;
            flow.answer |= payload > 0;
            if syn {
                flow.scale = window_scale(&tcp[20..usize::from(tcp[12] >> 4) * 4]);
            } else if !rst {
                flow.edge = number(8).wrapping_add(u32::from(word(14)) << flow.scale);
            }
        }
    }
    flows
}

/// The window scale option (RFC 7323 section 2.2) among a segment's options; 0 without one.
fn window_scale(mut options: &[u8]) -> u8 {
    loop {
        match *options {
            [3, 3, scale, ..] => return scale,
            [1, ref rest @ ..] => options = rest,
            [kind, length, ..] if kind != 0 && length >= 2 && options.len() > length.into() => {
                options = &options[length.into()..];
            }
            _ => return 0,
        }
    }
}

/// A full segment over Ethernet: the client, which never pauses, waits where the window has no room for it.
const SEGMENT: i32 = 1_448;

/// How each connection failed, by the server's port, as far as TCP's packets show it.
fn shown(flows: &BTreeMap<(u16, u16), Flow>) -> BTreeMap<(&'static str, u16), u64> {
    let mut counts = BTreeMap::new();
    for ((_, port), flow) in flows {
        let closed = (flow.edge.wrapping_sub(flow.sent) as i32) < SEGMENT;
        let kind = match (flow.answered, flow.resets) {
            (false, [true, _]) => "refused",
            // ICMP is not in the capture: the counters have it. A message that arrives within the call of connect(2)
            // is a soft error, and the SYN is sent again (tcp_v4_err).
            (false, _) if *port == REJECTED => "unreachable",
            (false, _) if flow.syns > 1 => "unanswered",
            (false, _) => "sent once",
            (true, [_, true]) => "aborted",
            (true, [true, _]) if closed => "reset with data undelivered",
            (true, [true, _]) if !flow.answer => "reset before an answer",
            (true, [true, _]) => "reset after an answer",
            (true, _) => "closed",
        };
        *counts.entry((kind, *port)).or_default() += 1;
    }
    counts
}

fn nft(testbed: &Testbed, side: Side, rules: &str) -> bool {
    let command = testbed.namespace(side).command("nft");
    let run = |mut command: Command| command.arg(rules).status().map(|s| s.success());
    matches!(command.map(run), Ok(Ok(true)))
}

/// Drops and rejections; `None` where nftables is missing.
fn firewalls(testbed: &Testbed) -> Option<()> {
    let rules = |hook: &str, rules: String| {
        format!(
            "add table ip f; add chain ip f c {{ type filter hook {hook} priority 0; }}; {rules}"
        )
    };
    let drop = |port: u16| format!("add rule ip f c tcp dport {port} drop;");
    let reject =
        format!("add rule ip f c tcp dport {REJECTED} reject with icmp type host-unreachable;");
    let there = nft(testbed, Side::B, &rules("input", drop(DROPPED) + &reject));
    (there && nft(testbed, Side::A, &rules("output", drop(KEPT_IN)))).then_some(())
}

fn network() -> Option<Testbed> {
    let mut testbed = Testbed::new("failures").expect("makes namespaces");
    testbed.add_link(&LinkOptions::default()).expect("links");
    let a = testbed.namespace(Side::A);
    a.sysctl("net.ipv4.tcp_syn_retries", "1").expect("is set");
    // Linux 6.5: attempts before the timer backs off.
    let _ = a.sysctl("net.ipv4.tcp_syn_linear_timeouts", "0");
    // Every ICMP message is sent (icmp(7)).
    let b = testbed.namespace(Side::B);
    b.sysctl("net.ipv4.icmp_ratelimit", "0").expect("is set");
    firewalls(&testbed)?;
    Some(testbed)
}

/// How many of each.
struct Numbers {
    refused: u64,
    unanswered: u64,
    unreachable: u64,
    kept_in: u64,
    before_answer: u64,
    undelivered: u64,
    after_answer: u64,
    aborted: u64,
    given_up: u64,
}

impl Numbers {
    fn draw(drawn: &mut Drawn) -> Self {
        Numbers {
            refused: drawn.next(),
            unanswered: drawn.next(),
            unreachable: drawn.next(),
            kept_in: drawn.next(),
            before_answer: drawn.next(),
            undelivered: drawn.next(),
            after_answer: drawn.next(),
            aborted: drawn.next(),
            given_up: drawn.next(),
        }
    }
}

/// The ports that were drawn by the kernel.
struct Ports {
    before_answer: u16,
    undelivered: u16,
    after_answer: u16,
    aborted: u16,
}

/// A network with its clients' view of it.
struct Stage<'a> {
    testbed: &'a Testbed,
    address: IpAddr,
}

impl Stage<'_> {
    fn client(&self, name: &str, kind: &str, count: u64, port: u16) -> Peers {
        let (count, port) = (count.to_string(), port.to_string());
        let address = self.address.to_string();
        let arguments = [name, "client", kind, &count, &address, &port];
        Peers::start(self.testbed, Side::A, &arguments)
    }

    fn server(&self, name: &str, kind: &str, count: u64) -> (Peers, u16) {
        let arguments = [name, "server", kind, &count.to_string()];
        let mut server = Peers::start(self.testbed, Side::B, &arguments);
        let port = server.line().parse().expect("is a port");
        (server, port)
    }

    /// All that is accepted, kind by kind.
    fn accepted(&self, numbers: &Numbers, observers: &mut Observers) -> Ports {
        let mut exchange = |name: &str, kind: &str, client: &str, count: u64| {
            let (mut server, port) = self.server(name, kind, count);
            let mut client = self.client(&name.replace("-s-", "-c-"), client, count, port);
            if matches!(kind, "undelivered" | "after_answer") {
                assert_eq!(client.line(), "ready");
                observers.poll();
                writeln!(server.input, "close").expect("takes it");
            }
            client.done();
            server.done();
            observers.poll();
            client.end();
            server.end();
            port
        };
        Ports {
            before_answer: exchange(
                "sp-s-b",
                "before_answer",
                "before_answer",
                numbers.before_answer,
            ),
            undelivered: exchange("sp-s-u", "undelivered", "undelivered", numbers.undelivered),
            after_answer: exchange(
                "sp-s-a",
                "after_answer",
                "after_answer",
                numbers.after_answer,
            ),
            aborted: exchange("sp-s-x", "aborted", "aborts", numbers.aborted),
        }
    }

    /// All that is never open. Those that wait for a timer are observed by a second observer that comes while they wait;
    /// gives what that one says.
    fn unopened(&self, numbers: &Numbers, observers: &mut Observers, target: &Target) -> Value {
        let mut waiting = [
            self.client("sp-c-drop", "fails", numbers.unanswered, DROPPED),
            self.client("sp-c-keep", "fails", numbers.kept_in, KEPT_IN),
        ];
        let others = [
            self.client("sp-c-ref", "refuses", numbers.refused, CLOSED),
            self.client("sp-c-icmp", "refuses", numbers.unreachable, REJECTED),
            self.client("sp-c-quit", "gives_up", numbers.given_up, DROPPED),
        ];
        let mut late = Observers::start(&[target], observers.ours).expect("starts again");
        for mut other in others {
            other.done();
            observers.poll();
            other.end();
        }
        for client in &mut waiting {
            client.done();
            observers.poll();
            late.poll();
        }
        for client in waiting {
            client.end();
        }
        let (mut answers, _) = late.output();
        answers.remove(0)
    }
}

fn grown(before: &Counters, after: &Counters, name: &str) -> u64 {
    let of = |counters: &Counters| counters.get(name).unwrap_or(0);
    (of(after) - of(before)) as u64
}

#[test]
fn failures_are_those_that_packets_and_counters_show() {
    if let Some(reason) = missing_requirements(&[Need::Namespaces, Need::Capture]) {
        println!("SKIPPED {TEST}: {reason}");
        return;
    }
    if Command::new("nft").arg("--version").output().is_err() {
        println!("SKIPPED {TEST}: needs nft (Debian nftables)");
        return;
    }
    attempts(TEST, check);
}

fn check() {
    let Some(testbed) = network() else {
        println!("SKIPPED {TEST}: nftables refuses");
        return;
    };
    let since = SystemTime::now().duration_since(SystemTime::UNIX_EPOCH);
    let seed = since.expect("is after 1970").as_micros() as u64;
    println!("seed {seed}");
    let numbers = Numbers::draw(&mut Drawn(seed));
    let address = testbed.link(0).b_address(Default::default());
    let clients = testbed.link(0).a_address(Default::default());
    let target = |address: IpAddr| Target::Peer {
        text: address.to_string(),
        addresses: vec![address],
        port: None,
    };
    let (servers_of, clients_of) = (target(address), target(clients));
    let inode = |side| testbed.namespace(side).inode().expect("has a number");
    let ours = [inode(Side::A), inode(Side::B)];
    let Some(mut observers) = Observers::start(&[&servers_of, &clients_of], ours) else {
        println!("SKIPPED {TEST}: needs BPF");
        return;
    };
    let folder = tempfile::tempdir().expect("makes a folder");
    let file = folder.path().join("a.pcap");
    let capture = Capture::start(&testbed, Side::A, 0, &file).expect("captures");
    let counters = || [Side::A, Side::B].map(|side| testbed.counters(side).expect("reads"));
    let before = counters();
    let stage = Stage {
        testbed: &testbed,
        address,
    };
    let ports = stage.accepted(&numbers, &mut observers);
    let late = stage.unopened(&numbers, &mut observers, &servers_of);
    let after = counters();
    assert_eq!(capture.stop().expect("stops").lost, 0);
    let flows = flows(&std::fs::read(&file).expect("is there"));
    let counts = shown(&flows);
    println!("{counts:?}");
    packets_show_what_was_done(&numbers, &ports, &counts);
    counters_show_what_was_done(&numbers, &before, &after, &flows);
    let (answers, summary) = observers.output();
    let expected = by_peer(&numbers, &counts, address);
    assert_eq!(failures(&answers[0]), expected, "why {address}");
    assert_eq!(failures(&summary), expected, "watch");
    // Of what a server accepted and reset before its owner was looked for, the process may not be known.
    let reset = numbers.before_answer + numbers.undelivered;
    for output in [&answers[1], &summary] {
        assert_eq!(
            reset_by_servers(output, clients),
            reset,
            "{}",
            output["failures"]
        );
    }
    for output in [&answers[0], &summary, &late] {
        let timeout = &output["problems"]["Timeout"]["events"];
        assert_eq!(timeout.as_u64().unwrap_or(0), 0, "{output}");
    }
    // What waits for a timer was met by the one that came late as well.
    let waited = |name: &str| failures(&late).iter().any(|(key, _)| key.2 == name);
    assert!(waited("sp-c-drop") && waited("sp-c-keep"), "{late}");
}

/// The capture has what was done, and nothing else.
fn packets_show_what_was_done(
    numbers: &Numbers,
    ports: &Ports,
    counts: &BTreeMap<(&'static str, u16), u64>,
) {
    let done = [
        (("refused", CLOSED), numbers.refused),
        (("unanswered", DROPPED), numbers.unanswered),
        (("sent once", DROPPED), numbers.given_up),
        (("unreachable", REJECTED), numbers.unreachable),
        (
            ("reset before an answer", ports.before_answer),
            numbers.before_answer,
        ),
        (
            ("reset with data undelivered", ports.undelivered),
            numbers.undelivered,
        ),
        (
            ("reset after an answer", ports.after_answer),
            numbers.after_answer,
        ),
        (("aborted", ports.aborted), numbers.aborted),
    ];
    assert_eq!(*counts, BTreeMap::from(done));
}

/// RFC 4022: tcpAttemptFails, tcpEstabResets. What never left has no packets: the counters have it.
fn counters_show_what_was_done(
    numbers: &Numbers,
    [a, b]: &[Counters; 2],
    [a_after, b_after]: &[Counters; 2],
    flows: &BTreeMap<(u16, u16), Flow>,
) {
    let at_clients = |name| grown(a, a_after, name);
    let at_servers = |name| grown(b, b_after, name);
    // Those that a RST or the timer ended, and of those that ICMP ended as many as it met outside connect(2).
    let ended = numbers.refused + numbers.unanswered + numbers.kept_in;
    let failed = at_clients("Tcp.AttemptFails");
    let expected = ended..=ended + numbers.unreachable;
    assert!(expected.contains(&failed), "{failed} of {expected:?}");
    let resets = numbers.before_answer + numbers.undelivered + numbers.after_answer;
    assert_eq!(at_clients("Tcp.EstabResets"), resets + numbers.aborted);
    // One message for each SYN to that port.
    let rejected = flows.iter().filter(|((_, port), _)| *port == REJECTED);
    let rejected: u64 = rejected.map(|(_, flow)| flow.syns).sum();
    assert_eq!(at_clients("Icmp.InDestUnreachs"), rejected);
    // One for each that left again; the timer of those that never left expired once at least.
    let again: u64 = flows.values().map(|flow| flow.syns - 1).sum();
    let timeouts = at_clients("TcpExt.TCPTimeouts");
    assert!(timeouts >= again + numbers.kept_in, "{timeouts} {again}");
    assert_eq!(
        at_clients("TcpExt.TCPAbortOnTimeout"),
        numbers.unanswered + numbers.kept_in
    );
    // Closed with data unread; with SO_LINGER 0.
    assert_eq!(at_servers("TcpExt.TCPAbortOnClose"), numbers.undelivered);
    let lingering = numbers.before_answer + numbers.after_answer;
    assert_eq!(at_servers("TcpExt.TCPAbortOnData"), lingering);
    assert_eq!(at_servers("TcpExt.ListenOverflows"), 0);
}

/// What `why` must count of the clients' ends.
fn by_peer(
    numbers: &Numbers,
    counts: &BTreeMap<(&'static str, u16), u64>,
    address: IpAddr,
) -> Failures {
    let mut expected = Failures::new();
    for ((kind, port), count) in counts {
        let (failure, command) = match *kind {
            "refused" => ("refused", "sp-c-ref"),
            "unanswered" => ("unanswered", "sp-c-drop"),
            "unreachable" => ("unreachable", "sp-c-icmp"),
            "sent once" => ("abandoned", "sp-c-quit"),
            "reset before an answer" => ("reset_by_peer", "sp-c-b"),
            "reset with data undelivered" => ("reset_by_peer", "sp-c-u"),
            _ => continue,
        };
        let key = (
            failure.to_owned(),
            format!("{address}:{port}"),
            command.to_owned(),
        );
        expected.insert(key, *count);
    }
    let never_left = format!("{address}:{KEPT_IN}");
    let key = ("not_sent".to_owned(), never_left, "sp-c-keep".to_owned());
    expected.insert(key, numbers.kept_in);
    expected
}
