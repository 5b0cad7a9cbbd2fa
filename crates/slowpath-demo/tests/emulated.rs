// SPDX-License-Identifier: Apache-2.0
//! Scenarios of the live verdicts over emulated networks: whole paths with routers, rates,
//! delays and chosen losses instead of a pair of devices. What is expected comes from what
//! the emulator did to the packets.

use rustix::net::sockopt::set_tcp_quickack;
use slowpath_agent::{Agent, Config};
use slowpath_diagnose::{Thresholds, Totals};
use slowpath_lab::emulator::{Drops, Lab, LabError, Options, Report};
use slowpath_model::{FourTuple, Problem};
use slowpath_netsim::scenario::{Scenario, Substrate};
use slowpath_switch::fabric::Action;
use slowpath_testbed::{Need, PINNED_SYSCTLS, attempts, missing_requirements};
use socket2::{Domain, Socket, Type};
use std::fmt::Write as _;
use std::io::{Read, Write};
use std::net::{SocketAddr, TcpListener, TcpStream};
use std::process::Command;
use std::sync::mpsc::{RecvTimeoutError, channel};
use std::time::{Duration, Instant};

/// How long a scenario lasts that does not end by itself.
const LENGTH: Duration = Duration::from_secs(3);

/// After which a blocked call looks whether it is time to end.
const SOON: Duration = Duration::from_millis(100);

/// A tail loss probe is sent after twice the RTT, however long a busy machine keeps the ACK
/// waiting: without losses there must be none to count.
const NO_PROBES: &str =
    "[[host.group]]\nhosts = [\"*\"]\nsysctls = { \"net.ipv4.tcp_early_retrans\" = 0 }\n";

/// Two hosts and two routers: `a -- near -- far -- b`. Rate and delay hold for the link
/// between the routers, the others have 1 Gbit/s and no delay.
fn path(middle: &str, more: &str) -> String {
    let mut sysctls = String::new();
    for (name, value, _) in PINNED_SYSCTLS {
        writeln!(sysctls, "\"{name}\" = \"{value}\"").expect("memory");
    }
    format!(
        "[topology]\nkind = \"custom\"\nhosts = [\"a\", \"b\"]\nswitches = [\"near\", \"far\"]\n\
         links = {{ rate = \"1 Gbit/s\", delay = \"0 s\" }}\n\
         link = [{{ ends = [\"a\", \"near\"] }}, {{ ends = [\"near\", \"far\"], {middle} }}, \
         {{ ends = [\"far\", \"b\"] }}]\n\
         [switch]\nbuffer = \"300 kB\"\n[host.sysctls]\n{sysctls}{more}"
    )
}

/// A connection over a network that is up, its opening end at host a.
struct Pair {
    opened: TcpStream,
    accepted: TcpStream,
    tuple: FourTuple,
}

fn connect(lab: &Lab, receive_buffer: Option<usize>) -> Pair {
    let (a, b) = (&lab.hosts()[0], &lab.hosts()[1]);
    let listen = || {
        let socket = Socket::new(Domain::IPV4, Type::STREAM, None)?;
        if let Some(bytes) = receive_buffer {
            socket.set_recv_buffer_size(bytes)?;
        }
        socket.bind(&SocketAddr::from((b.ipv4(), 0)).into())?;
        socket.listen(1)?;
        std::io::Result::Ok(TcpListener::from(socket))
    };
    let listener = b.run(listen).expect("enters").expect("listens");
    let to = listener.local_addr().expect("is bound");
    let opened = a
        .run(|| TcpStream::connect(to))
        .expect("enters")
        .expect("connects");
    let (accepted, _) = listener.accept().expect("accepts");
    let tuple = FourTuple::new(opened.local_addr().expect("is bound"), to);
    Pair {
        opened,
        accepted,
        tuple,
    }
}

/// What the agent found, and what the network did.
struct EmulatedRun {
    dominating: Problem,
    totals: Totals,
    retransmitted: u64,
    report: Report,
}

impl EmulatedRun {
    fn events(&self, problem: Problem) -> u64 {
        self.totals.problem_events[problem as usize]
    }
}

/// Brings the network up, lets `work` use a connection over it while an agent polls, and
/// gives what that says of the sender; `None`, with the reason, where that is impossible.
fn watch(
    what: &str,
    text: &str,
    receive_buffer: Option<usize>,
    work: impl FnOnce(&Lab, &TcpStream, &TcpStream) + Send,
) -> Option<EmulatedRun> {
    let files = |_: &str| Err(std::io::ErrorKind::NotFound.into());
    let scenario = Scenario::parse_for(text, &files, Substrate::Emulator).expect("possible");
    let lab = match Lab::up(&scenario, &Options::default()) {
        Ok(lab) => lab,
        Err(error @ (LabError::NotPermitted | LabError::NoTun(_))) => {
            println!("SKIPPED {what}: {error}");
            return None;
        }
        Err(error) => panic!("{error}"),
    };
    let config = Config {
        interval: Duration::from_millis(200),
        seed: Some(1),
        ..Config::default()
    };
    let mut agent = match Agent::start(config) {
        Ok(agent) => agent,
        Err(error) => {
            println!("SKIPPED {what}: {error}");
            return None;
        }
    };
    let pair = connect(&lab, receive_buffer);
    agent.poll().expect("polls");
    std::thread::scope(|scope| {
        let (done, ended) = channel::<()>();
        let (lab, pair) = (&lab, &pair);
        let working = scope.spawn(move || {
            work(lab, &pair.opened, &pair.accepted);
            drop(done);
        });
        while ended.recv_timeout(agent.until_next_poll()) == Err(RecvTimeoutError::Timeout) {
            agent.poll().expect("polls");
        }
        if let Err(panic) = working.join() {
            std::panic::resume_unwind(panic);
        }
    });
    agent.poll().expect("polls");
    // Inode numbers of namespaces are 32 bits wide.
    let netns = lab.hosts()[0].inode().expect("is there") as u32;
    let live = agent
        .connections()
        .find(|c| c.snapshot.id.netns == netns && c.snapshot.tuple == pair.tuple)
        .expect("it is live");
    let found = EmulatedRun {
        dominating: live.totals.dominating(&Thresholds::default()),
        totals: live.totals,
        retransmitted: live.snapshot.stats.retransmitted,
        report: lab.down(),
    };
    println!("{what}: {:?} {:?}", found.dominating, found.totals);
    Some(found)
}

fn check(what: &str, body: impl Fn()) {
    if let Some(reason) = missing_requirements(&[Need::Namespaces]) {
        println!("SKIPPED {what}: {reason}");
        return;
    }
    attempts(what, body);
}

/// Writes `bytes` at one end while the other reads them, and waits until it has.
fn transfer(mut from: &TcpStream, mut to: &TcpStream, bytes: usize) {
    std::thread::scope(|scope| {
        scope.spawn(move || from.write_all(&vec![7; bytes]).expect("writes"));
        let mut left = vec![0; bytes];
        to.read_exact(&mut left).expect("reads");
    });
}

/// Writes as fast as it can; a write that does not end in time is tried again.
fn write_while_it_lasts(mut to: &TcpStream, began: Instant) {
    while began.elapsed() < LENGTH {
        let _ = to.write(&[7; 65_536]);
    }
}

#[test]
fn chosen_losses_are_fast_retransmissions() {
    check("emulated fast-retransmit", || {
        // As in scenarios/fast-retransmit.toml, of which a comment says why every loss has a
        // recovery of its own.
        let loss = "[[line]]\non = \"a -> near\"\n\
                    loss = { every = 40, first = 20, at-least = \"1000 B\" }\n";
        let text = path("rate = \"5 Mbit/s\", delay = \"5 ms\"", loss);
        let work = |_: &Lab, a: &TcpStream, b: &TcpStream| transfer(a, b, 1_800_000);
        let Some(found) = watch("emulated fast-retransmit", &text, None, work) else {
            return;
        };
        assert_eq!(found.dominating, Problem::FastRetransmit);
        let lost = found.report.dropped.lost;
        // 1,800,000 bytes are 1,244 segments, and each lost one is sent again: the last of
        // the chosen is the 1,260th.
        assert_eq!(lost, (1_260 - 20) / 40 + 1);
        assert_eq!(found.events(Problem::FastRetransmit), lost);
        assert_eq!(found.retransmitted, lost);
        assert_eq!(found.events(Problem::Timeout), 0);
    });
}

#[test]
fn a_link_that_goes_down_makes_timeouts() {
    check("emulated timeout", || {
        let text = path("rate = \"100 Mbit/s\", delay = \"2 ms\"", "");
        let work = |lab: &Lab, mut a: &TcpStream, mut b: &TcpStream| {
            let link = lab.line("near", "far").expect("there") / 2;
            let mut message = [0; 7000];
            for _ in 0..2 {
                for _ in 0..10 {
                    a.write_all(&message).expect("writes");
                    b.read_exact(&mut message).expect("reads");
                    // The answer acknowledges it all: what is lost next is one message, and
                    // no acknowledgement, which would make the timer look spurious (F-RTO).
                    b.write_all(&[1]).expect("writes");
                    a.read_exact(&mut message[..1]).expect("reads");
                }
                assert!(lab.apply(&Action::Up(link, false)));
                a.write_all(&message).expect("writes");
                // Longer than a probe and the first two expiries, 200 and 400 ms one after the other.
                std::thread::sleep(Duration::from_secs(1));
                assert!(lab.apply(&Action::Up(link, true)));
                b.read_exact(&mut message).expect("reads");
            }
            // The last acknowledgement.
            transfer(b, a, 100);
        };
        let Some(found) = watch("emulated timeout", &text, None, work) else {
            return;
        };
        assert_eq!(found.dominating, Problem::Timeout);
        // The timer expires more than once each time.
        let (events, cut) = (
            found.events(Problem::Timeout),
            found.report.dropped.link_down,
        );
        assert!(events >= 4 && cut >= 10, "{events} {cut}");
        assert_eq!(found.events(Problem::FastRetransmit), 0);
    });
}

#[test]
fn a_slow_reader_is_the_receiver() {
    check("emulated receiver-window-limited", || {
        let text = path("rate = \"100 Mbit/s\", delay = \"1 ms\"", NO_PROBES);
        let work = |_: &Lab, a: &TcpStream, mut b: &TcpStream| {
            let began = Instant::now();
            a.set_write_timeout(Some(SOON)).expect("sets");
            std::thread::scope(|scope| {
                scope.spawn(move || write_while_it_lasts(a, began));
                // 200 kB/s.
                let mut buffer = [0; 4096];
                while began.elapsed() < LENGTH {
                    b.read_exact(&mut buffer).expect("reads");
                    std::thread::sleep(Duration::from_millis(20));
                }
            });
        };
        let Some(found) = watch(
            "emulated receiver-window-limited",
            &text,
            Some(16_384),
            work,
        ) else {
            return;
        };
        assert_eq!(found.dominating, Problem::ReceiverWindowLimited);
        assert_eq!(found.events(Problem::FastRetransmit), 0);
        assert_eq!(found.events(Problem::Timeout), 0);
    });
}

#[test]
fn two_small_writes_wait_for_a_delayed_acknowledgement() {
    check("emulated delayed-ack", || {
        let text = path("rate = \"100 Mbit/s\", delay = \"1 ms\"", NO_PROBES);
        let work = |_: &Lab, mut a: &TcpStream, mut b: &TcpStream| {
            let began = Instant::now();
            let mut buffer = [0; 208];
            while began.elapsed() < LENGTH {
                // Off before the data comes, and again before it is read: the kernel insists
                // (docs/decisions/0006-testbed.md).
                set_tcp_quickack(b, false).expect("sets");
                a.write_all(&[1; 8]).expect("writes");
                a.write_all(&[2; 200]).expect("writes");
                let mut got = 0;
                while got < buffer.len() {
                    set_tcp_quickack(b, false).expect("sets");
                    got += b.read(&mut buffer[got..]).expect("reads");
                }
                b.write_all(&[3; 100]).expect("writes");
                a.read_exact(&mut buffer[..100]).expect("reads");
            }
        };
        let Some(found) = watch("emulated delayed-ack", &text, None, work) else {
            return;
        };
        assert_eq!(found.dominating, Problem::DelayedAck);
        assert_eq!(found.retransmitted, 0);
    });
}

#[test]
fn an_application_that_pauses_is_the_limit() {
    check("emulated sender-app-limited", || {
        let text = path("rate = \"100 Mbit/s\", delay = \"1 ms\"", NO_PROBES);
        let work = |_: &Lab, a: &TcpStream, b: &TcpStream| {
            let began = Instant::now();
            while began.elapsed() < LENGTH {
                transfer(a, b, 20_000);
                std::thread::sleep(Duration::from_millis(50));
            }
        };
        let Some(found) = watch("emulated sender-app-limited", &text, None, work) else {
            return;
        };
        assert_eq!(found.dominating, Problem::SenderAppLimited);
        assert_eq!(found.retransmitted, 0);
        assert_eq!(found.totals.problem_events.iter().sum::<u64>(), 0);
    });
}

#[test]
fn a_small_send_buffer_is_the_limit_of_a_long_path() {
    check("emulated send-buffer-limited", || {
        let text = path("rate = \"20 Mbit/s\", delay = \"20 ms\"", NO_PROBES);
        let work = |lab: &Lab, a: &TcpStream, mut b: &TcpStream| {
            // A network card holds the last segment back for a moment, as a TUN device does
            // not; without that the kernel never notices the limit (tcp_cwnd_validate).
            let mut tc = Command::new("tc");
            tc.args([
                "qdisc", "add", "dev", "eth0", "root", "tbf", "rate", "20mbit",
            ]);
            tc.args(["burst", "3000", "limit", "300000"]);
            let status = lab.hosts()[0].spawn(&mut tc).expect("starts").wait();
            assert!(status.expect("ends").success());
            let buffer = socket2::SockRef::from(a);
            buffer.set_send_buffer_size(16_384).expect("sets");
            let began = Instant::now();
            a.set_write_timeout(Some(SOON)).expect("sets");
            b.set_read_timeout(Some(SOON)).expect("sets");
            std::thread::scope(|scope| {
                scope.spawn(move || write_while_it_lasts(a, began));
                let mut buffer = vec![0; 65_536];
                while began.elapsed() < LENGTH {
                    // Nothing came in time, or something did: it goes on.
                    let _ = b.read(&mut buffer);
                }
            });
        };
        let Some(found) = watch("emulated send-buffer-limited", &text, None, work) else {
            return;
        };
        assert_eq!(found.dominating, Problem::SendBufferLimited);
        assert_eq!(found.retransmitted, 0);
    });
}

/// A sysctl that differs from what all hosts have.
fn sysctl(name: &str, value: u32) -> String {
    format!("[[host.group]]\nhosts = [\"*\"]\nsysctls = {{ \"net.ipv4.{name}\" = {value} }}\n")
}

#[test]
fn a_queue_that_marks_is_congestion_without_losses() {
    check("emulated ecn-marked", || {
        let middle = "rate = \"20 Mbit/s\", delay = \"5 ms\", marking = \"20 packets\"";
        let text = path(middle, &sysctl("tcp_ecn", 1));
        let work = |_: &Lab, a: &TcpStream, b: &TcpStream| transfer(a, b, 5_000_000);
        let Some(found) = watch("emulated ecn-marked", &text, None, work) else {
            return;
        };
        assert_eq!(found.dominating, Problem::EcnMarked);
        // The receiver echoes a mark until the sender has answered it (RFC 3168 section
        // 6.1.3): at least one segment for each reduction, and all of them were marked first.
        assert!(found.report.marked > 0);
        assert!(found.events(Problem::EcnMarked) > 0);
        assert_eq!(found.report.dropped, Drops::default());
        assert_eq!(found.events(Problem::FastRetransmit), 0);
        assert_eq!(found.events(Problem::Reordering), 0);
    });
}

#[test]
fn segments_that_overtake_each_other_are_no_losses() {
    check("emulated reordering", || {
        let late = "[[line]]\non = \"a -> near\"\n\
                    reordering = { every = 60, first = 40, at-least = \"1000 B\", by = \"4 ms\" }\n";
        // Room for all of it: slow start overshoots without a loss.
        let middle = "rate = \"20 Mbit/s\", delay = \"5 ms\", buffer = \"6 MB\"";
        let text = path(middle, late);
        let work = |_: &Lab, a: &TcpStream, b: &TcpStream| transfer(a, b, 5_000_000);
        let Some(found) = watch("emulated reordering", &text, None, work) else {
            return;
        };
        // The kernel counts each late segment once: the others had arrived when it did.
        let late: u64 = found.report.lines.iter().map(|l| l.late).sum();
        let events = found.events(Problem::Reordering);
        assert!(
            late > 0 && events <= late && 2 * events > late,
            "{events} {late}"
        );
        assert_eq!(found.dominating, Problem::Reordering);
        // Nothing was lost: whatever was retransmitted had been taken for lost.
        assert_eq!(found.report.dropped, Drops::default());
        assert_eq!(found.events(Problem::Timeout), 0);
        let time = |p: Problem| found.totals.problem_time[p as usize];
        assert!(time(Problem::Reordering) >= time(Problem::FastRetransmit));
    });
}

/// Idle times between transfers, longer than a retransmission timeout.
const IDLE: Duration = Duration::from_millis(500);

#[test]
fn a_window_kept_over_an_idle_time_bursts() {
    check("emulated idle-burst", || {
        let middle = "rate = \"20 Mbit/s\", delay = \"10 ms\", buffer = \"60 kB\"";
        let work = |_: &Lab, a: &TcpStream, b: &TcpStream| {
            for _ in 0..8 {
                transfer(a, b, 400_000);
                std::thread::sleep(IDLE);
            }
        };
        // 110 kB fit into path and queue, so a window that filled both is more than the queue
        // holds; written at once, it is lost there.
        let text = path(middle, &sysctl("tcp_slow_start_after_idle", 0));
        let Some(kept) = watch("emulated idle-burst", &text, None, work) else {
            return;
        };
        let bursts = kept.events(Problem::IdleBurst);
        assert!(
            bursts > 0 && kept.report.dropped.buffer_full > 0,
            "{bursts}"
        );
        let losses = kept.events(Problem::FastRetransmit) + kept.events(Problem::Timeout);
        assert!(bursts <= losses, "{bursts} {losses}");

        // The control: the window begins anew, with ten segments.
        let text = path(middle, "");
        let Some(anew) = watch("emulated idle-burst, control", &text, None, work) else {
            return;
        };
        assert_eq!(anew.events(Problem::IdleBurst), 0);
    });
}
