// SPDX-License-Identifier: Apache-2.0
//! The emulator and this machine's kernel: losses exact, routers that answer, marks, routes,
//! clocks, sysctls, and nothing that stays behind.

mod emulated;

use emulated::{PATIENCE, PORT, header_is_correct, packet, packets, raw, row, to, udp, up};
use slowpath_lab::emulator::Lab;
use slowpath_switch::fabric::Action;
use socket2::{Domain, Protocol, Socket, Type};
use std::io::Read;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, TcpListener, TcpStream, UdpSocket};
use std::os::unix::process::ExitStatusExt;
use std::process::{Command, Stdio};
use std::time::{Duration, Instant};

/// The numbers, from 1, of the packets lost on a line of which a share of 10^9 is lost at
/// random: as slowpath_switch::fabric's documentation defines it, written anew.
fn defined_losses(seed: u64, line: u64, parts: u128, packets: u64) -> Vec<u64> {
    const G: u64 = 0x9e37_79b9_7f4a_7c15;
    let mix = |mut z: u64| {
        z = (z ^ (z >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        z ^ (z >> 31)
    };
    let stream = (1u64 << 63) + 256 * line;
    let start = mix(mix(seed.wrapping_add(G)) ^ stream.wrapping_mul(G));
    let lost = |number: &u64| {
        let x = mix(start.wrapping_add(number.wrapping_mul(G)));
        u128::from(x) * 1_000_000_000 < parts << 64
    };
    (1..=packets).filter(lost).collect()
}

/// Sends numbered datagrams of so many bytes, from 1 on, each at its time.
fn send_numbered(socket: &UdpSocket, lab: &Lab, count: u64, bytes: usize, gap: Duration) {
    let to = to(&lab.hosts()[1]);
    let began = Instant::now();
    let mut payload = vec![0; bytes];
    for number in 1..=count {
        let due = gap * u32::try_from(number).expect("few");
        while began.elapsed() < due {
            std::thread::sleep(due.saturating_sub(began.elapsed()));
        }
        payload[..8].copy_from_slice(&number.to_be_bytes());
        socket.send_to(&payload, to).expect("sends");
    }
}

/// The numbers that arrive, up to and with the last.
fn receive_numbered(socket: &Socket, last: u64) -> Vec<u64> {
    let mut numbers = Vec::new();
    while numbers.last() != Some(&last) {
        let packet = packet(socket);
        // IPv4 without options, UDP.
        if packet[20..24] == [PORT.to_be_bytes(), PORT.to_be_bytes()].concat() {
            numbers.push(u64::from_be_bytes(
                packet[28..36].try_into().expect("eight"),
            ));
        }
    }
    numbers
}

#[test]
fn a_thousandth_of_ten_thousand_packets_a_second_is_lost_as_defined() {
    const COUNT: u64 = 30_000;
    let loss = "[[line]]\non = \"r2 -> r3\"\nloss = { share = \"0.1 %\", at-least = \"200 B\" }\n";
    // Link 2 from r2 to r3 is line 4.
    let text = row(3, "rate = \"1 Gbit/s\", delay = \"1 ms\"", loss);
    let text = format!("seed = 20261121\n{text}");
    let Some(lab) = up("0.1 % of 10,000 packets a second", &text) else {
        return;
    };
    let lost = defined_losses(20_261_121, 4, 1_000_000, COUNT);
    assert!(
        !lost.is_empty() && lost.last() != Some(&COUNT),
        "a bad seed for this test"
    );
    let (sender, receiver) = (udp(&lab.hosts()[0]), raw(&lab.hosts()[1], Protocol::UDP));
    let arrived = std::thread::scope(|scope| {
        let receiving = scope.spawn(|| receive_numbered(&receiver, COUNT));
        send_numbered(&sender, &lab, COUNT, 500, Duration::from_micros(100));
        receiving.join().expect("receives")
    });
    let expected: Vec<u64> = (1..=COUNT)
        .filter(|number| !lost.contains(number))
        .collect();
    assert_eq!(arrived, expected);
    let report = lab.down();
    assert_eq!(report.dropped.lost, lost.len() as u64);
    assert_eq!(
        report.sent + report.copies,
        report.delivered + report.inside + lost.len() as u64
    );
}

#[test]
fn chosen_packets_of_a_tcp_connection_are_lost_and_no_others() {
    let more = "[[line]]\non = \"r1 -> r2\"\nloss = { packets = [5, \"40-42\", 100], at-least = \"1000 B\" }\n";
    let test = "chosen losses of TCP";
    let Some(lab) = up(
        test,
        &row(2, "rate = \"50 Mbit/s\", delay = \"2 ms\"", more),
    ) else {
        return;
    };
    let (a, b) = (&lab.hosts()[0], &lab.hosts()[1]);
    // Both ends see every TCP packet by a socket of their own, independent of the emulator:
    // a raw socket at the receiver, a packet socket at the sender.
    let (sent, received) = (packets(a), raw(b, Protocol::TCP));
    let listener = b
        .run(|| TcpListener::bind((b.ipv4(), PORT)))
        .expect("enters")
        .expect("listens");
    let stream = a
        .run(|| TcpStream::connect((b.ipv4(), PORT)))
        .expect("enters")
        .expect("connects");
    let (mut accepted, _) = listener.accept().expect("accepts");
    let total = std::thread::scope(|scope| {
        scope.spawn(move || {
            let mut stream = stream;
            std::io::Write::write_all(&mut stream, &vec![7; 1_000_000]).expect("writes");
        });
        let mut data = Vec::new();
        accepted.read_to_end(&mut data).expect("reads");
        data.len()
    });
    assert_eq!(total, 1_000_000);
    // Everything has arrived and been acknowledged; what is in the sockets is complete.
    for socket in [&sent, &received] {
        socket.set_nonblocking(true).expect("sets");
    }
    let big = |packet: &Vec<u8>| packet.len() >= 1000 && packet[12..16] == a.ipv4().octets();
    let identity = |packet: Vec<u8>| (packet[4..6].to_vec(), packet[24..28].to_vec());
    let sent: Vec<_> = drained(&sent)
        .into_iter()
        .filter(big)
        .map(identity)
        .collect();
    let received: Vec<_> = drained(&received)
        .into_iter()
        .filter(big)
        .map(identity)
        .collect();
    let missing: Vec<usize> = (1..)
        .zip(&sent)
        .filter(|(_, packet)| !received.contains(packet))
        .map(|(number, _)| number)
        .collect();
    assert_eq!(missing, [5, 40, 41, 42, 100]);
    assert_eq!(received.len(), sent.len() - missing.len());
    let line = |report: &slowpath_lab::emulator::Report| {
        let line = report
            .lines
            .iter()
            .find(|line| (&*line.from, &*line.to) == ("r1", "r2"));
        line.expect("it carried the data").lost
    };
    assert_eq!(line(&lab.down()), 5);
}

fn drained(mut socket: &Socket) -> Vec<Vec<u8>> {
    let mut packets = Vec::new();
    let mut buffer = [0; 2048];
    while let Ok(length) = socket.read(&mut buffer) {
        packets.push(buffer[..length].to_vec());
    }
    packets
}

#[test]
fn routers_say_where_a_packet_ended_and_answer_pings() {
    let Some(lab) = up(
        "routers answer",
        &row(3, "rate = \"1 Gbit/s\", delay = \"1 ms\"", ""),
    ) else {
        return;
    };
    let (a, b) = (&lab.hosts()[0], &lab.hosts()[1]);
    let routers: Vec<(Ipv4Addr, Ipv6Addr)> = lab.routers().map(|(_, v4, v6)| (v4, v6)).collect();
    let icmp = raw(a, Protocol::ICMPV4);
    let probe = udp(a);
    for (ttl, (router, _)) in (1..).zip(&routers) {
        probe.set_ttl(ttl).expect("sets");
        probe.send_to(b"where", (b.ipv4(), 33_434)).expect("sends");
        let answer = packet(&icmp);
        assert!(header_is_correct(&answer));
        assert_eq!(answer[12..16], router.octets());
        // RFC 792: time exceeded in transit, and behind 8 bytes the packet it is about.
        assert_eq!(answer[20..22], [11, 0]);
        assert_eq!(answer[28 + 16..28 + 20], b.ipv4().octets());
        assert_eq!(answer[28 + 28..], *b"where");
    }
    // The host itself says that no socket listens there.
    probe.set_ttl(4).expect("sets");
    probe.send_to(b"where", (b.ipv4(), 33_434)).expect("sends");
    let answer = packet(&icmp);
    assert_eq!(
        (&answer[12..16], &answer[20..22]),
        (&b.ipv4().octets()[..], &[3, 3][..])
    );
    // Three routers back.
    assert_eq!(answer[8], 64 - 3);
    // A router that is pinged; an address that no host has.
    let ping = [8, 0, 0xf7 - 0x23, 0xfd - 0x45, 0x23, 0x45, 0, 2];
    let destination = |to: Ipv4Addr| std::net::SocketAddr::from((to, 0)).into();
    icmp.send_to(&ping, &destination(routers[1].0))
        .expect("sends");
    let answer = packet(&icmp);
    assert_eq!(
        (&answer[12..16], answer[8]),
        (&routers[1].0.octets()[..], 64 - 1)
    );
    assert_eq!(
        (&answer[20..22], &answer[24..28]),
        (&[0, 0][..], &ping[4..])
    );
    probe.set_ttl(64).expect("sets");
    probe
        .send_to(b"who", (Ipv4Addr::new(10, 0, 9, 9), 9))
        .expect("sends");
    let answer = packet(&icmp);
    assert_eq!(
        (&answer[12..16], &answer[20..22]),
        (&routers[0].0.octets()[..], &[3, 0][..])
    );

    // IPv6: RFC 4443, time exceeded is 3. A raw socket there has no IP header.
    let open = || Socket::new(Domain::IPV6, Type::RAW, Some(Protocol::ICMPV6));
    let icmp6 = a.run(open).expect("enters").expect("opens");
    icmp6.set_read_timeout(Some(PATIENCE)).expect("sets");
    let probe = a
        .run(|| UdpSocket::bind((Ipv6Addr::UNSPECIFIED, 0)))
        .expect("enters")
        .expect("binds");
    let probe = Socket::from(probe);
    for (hops, (_, router)) in (1..).zip(&routers) {
        probe.set_unicast_hops_v6(hops).expect("sets");
        let to = std::net::SocketAddr::from((b.ipv6(), 33_434));
        probe.send_to(b"where", &to.into()).expect("sends");
        let mut buffer = [std::mem::MaybeUninit::uninit(); 2048];
        let (length, from) = icmp6.recv_from(&mut buffer).expect("arrives in time");
        let from = from.as_socket().map(|address| address.ip());
        assert_eq!(from, Some(IpAddr::V6(*router)));
        assert_eq!(length, 8 + 40 + 8 + 5);
    }
    let report = lab.down();
    assert_eq!(report.dropped.ttl_expired, 6);
    assert_eq!(report.dropped.no_route, 1);
}

#[test]
fn queues_mark_what_may_be_marked() {
    // 120 ms for a packet of 1,500 bytes: the whole burst is in the queue before the second
    // has left.
    let more = "marking = \"3 packets\"\n[[line]]\non = \"r1 -> b\"\nrate = \"100 kbit/s\"\n";
    let Some(lab) = up(
        "marks",
        &row(1, "rate = \"1 Gbit/s\", delay = \"1 ms\"", more),
    ) else {
        return;
    };
    let (sender, receiver) = (udp(&lab.hosts()[0]), raw(&lab.hosts()[1], Protocol::UDP));
    let sender = Socket::from(sender);
    let mut payload = [0; 1472];
    for (number, ecn) in (1..=10).zip([2u32, 2, 2, 2, 2, 0, 2, 1, 2, 2]) {
        // ECT(0), ECT(1) or not capable (RFC 3168 section 5), with a DSCP that has to stay.
        sender.set_tos_v4(0b1011_1000 | ecn).expect("sets");
        payload[0] = number;
        let to = to(&lab.hosts()[1]);
        sender.send_to(&payload, &to.into()).expect("sends");
    }
    let observed: Vec<(u8, u8)> = (0..10)
        .map(|_| packet(&receiver))
        .inspect(|packet| assert!(header_is_correct(packet)))
        .map(|packet| (packet[28], packet[1]))
        .collect();
    // The n-th finds n - 2 waiting, as the first is on the line: marks from the fifth on.
    let tos = [2, 2, 2, 2, 3, 0, 3, 3, 3, 3].map(|ecn| 0b1011_1000 | ecn);
    let expected: Vec<(u8, u8)> = (1..=10).zip(tos).collect();
    assert_eq!(observed, expected);
    assert_eq!(lab.down().marked, 5);
}

#[test]
fn ways_there_and_back_differ_and_change() {
    let text = r#"
        [topology]
        kind = "custom"
        hosts = ["a", "b"]
        switches = ["s", "t", "u"]
        links = { rate = "1 Gbit/s", delay = "1 ms" }
        link = [
            { ends = ["a", "s"] }, { ends = ["b", "t"] },
            { ends = ["s", "t"] }, { ends = ["s", "u"] }, { ends = ["u", "t"] },
        ]
        [switch]
        buffer = "100 packets"
        [[route]]
        on = "t"
        to = ["a"]
        via = ["u"]
    "#;
    let Some(lab) = up("asymmetric routes", text) else {
        return;
    };
    let (a, b) = (&lab.hosts()[0], &lab.hosts()[1]);
    let ends = [(a, b), (b, a)].map(|(from, there)| (udp(from), raw(there, Protocol::UDP), there));
    let hops = || {
        ends.each_ref().map(|(sender, receiver, there)| {
            sender.send_to(&[0; 8], to(there)).expect("sends");
            64 - packet(receiver)[8]
        })
    };
    assert_eq!(hops(), [2, 3]);
    // The direct link fails, and routers do not notice; then it is up again.
    let line = lab.line("s", "t").expect("there");
    assert!(lab.apply(&Action::Up(line / 2, false)));
    ends[0].0.send_to(&[0; 8], to(b)).expect("sends");
    while lab.report().dropped.link_down < 1 {
        std::thread::yield_now();
    }
    assert!(lab.apply(&Action::Up(line / 2, true)));
    assert_eq!(hops(), [2, 3]);
    assert!(!lab.apply(&Action::Up(99, true)));
    assert_eq!(lab.line("a", "t"), None);
}

#[test]
fn copies_come_twice_and_damage_is_noticed() {
    let more = "[[line]]\non = \"a -> r1\"\nduplication = { packets = [2] }\n\
                [[line]]\non = \"r1 -> b\"\ncorruption = { packets = [5] }\n\
                reordering = { packets = [1], by = \"300 ms\" }\n";
    let Some(lab) = up(
        "copies",
        &row(1, "rate = \"1 Gbit/s\", delay = \"1 ms\"", more),
    ) else {
        return;
    };
    let (sender, receiver) = (udp(&lab.hosts()[0]), udp(&lab.hosts()[1]));
    for number in 1..=5u8 {
        sender
            .send_to(&[number; 100], to(&lab.hosts()[1]))
            .expect("sends");
    }
    // The fifth packet of the second line is the fourth that was sent: UDP's checksum (RFC
    // 768) keeps it from the program. The first comes 300 ms late.
    let mut buffer = [0; 200];
    let arrived: Vec<u8> = (0..5)
        .map(|_| {
            receiver.recv(&mut buffer).expect("arrives in time");
            buffer[0]
        })
        .collect();
    assert_eq!(arrived, [2, 2, 3, 5, 1]);
    let report = lab.down();
    assert_eq!((report.sent, report.copies, report.delivered), (5, 1, 6));
}

#[test]
fn hosts_have_sysctls_and_clocks_of_their_own() {
    let more = "[host]\nttl = 37\nsysctls = { \"net.ipv4.tcp_fin_timeout\" = 7 }\n\
                [[host.group]]\nhosts = [\"b\"]\nclock = \"+1000 s\"\n\
                sysctls = { \"net.ipv4.tcp_fin_timeout\" = 8 }\n";
    let text = row(1, "rate = \"1 Gbit/s\", delay = \"1 ms\"", more);
    if !std::path::Path::new("/proc/self/ns/time").exists() {
        println!("SKIPPED clocks: no time namespaces");
        return;
    }
    let Some(lab) = up("clocks", &text) else {
        return;
    };
    let read = |host: usize, file: &str| {
        let mut command = Command::new("cat");
        let child = lab.hosts()[host].spawn(command.arg(file).stdout(Stdio::piped()));
        let output = child.expect("starts").wait_with_output().expect("ends");
        String::from_utf8(output.stdout).expect("text")
    };
    let timeout = "/proc/sys/net/ipv4/tcp_fin_timeout";
    assert_eq!([read(0, timeout), read(1, timeout)], ["7\n", "8\n"]);
    assert_eq!(read(0, "/proc/sys/net/ipv4/ip_default_ttl"), "37\n");
    let uptime = |host| {
        let text = read(host, "/proc/uptime");
        let seconds = text
            .split(' ')
            .next()
            .and_then(|word| word.parse::<f64>().ok());
        seconds.expect("a number")
    };
    let (a, b) = (uptime(0), uptime(1));
    // In hundredths, and read one after the other.
    assert!((999.0..1100.0).contains(&(b - a)), "{a} {b}");
}

#[test]
fn whatever_runs_in_a_host_ends_with_the_network() {
    let Some(lab) = up("ends", &row(1, "rate = \"1 Gbit/s\", delay = \"1 ms\"", "")) else {
        return;
    };
    // A child that leaves its session and its parent, as daemons do.
    let script = "setsid sh -c 'echo ready; exec sleep 1000' & wait";
    let mut command = Command::new("sh");
    command.args(["-c", script]).stdout(Stdio::piped());
    let mut child = lab.hosts()[0].spawn(&mut command).expect("starts");
    let mut out = child.stdout.take().expect("asked for");
    let mut ready = [0; 6];
    out.read_exact(&mut ready).expect("says so");
    drop(lab);
    // Killed, and no process holds the pipe any more.
    assert_eq!(child.wait().expect("ends").signal(), Some(libc::SIGKILL));
    assert_eq!(out.read(&mut ready).expect("closed"), 0);
}

#[test]
fn an_emulation_that_was_late_says_so() {
    let text = row(1, "rate = \"1 Gbit/s\", delay = \"1 ms\"", "");
    let files = |_: &str| Err(std::io::ErrorKind::NotFound.into());
    let substrate = slowpath_netsim::scenario::Substrate::Emulator;
    let scenario = slowpath_netsim::scenario::Scenario::parse_for(&text, &files, substrate);
    let options = slowpath_lab::emulator::Options {
        bound: Duration::ZERO,
    };
    let Ok(lab) = Lab::up(&scenario.expect("possible"), &options) else {
        println!("SKIPPED lateness: no network can be brought up");
        return;
    };
    let (sender, receiver) = (udp(&lab.hosts()[0]), udp(&lab.hosts()[1]));
    for _ in 0..100 {
        sender
            .send_to(&[0; 100], to(&lab.hosts()[1]))
            .expect("sends");
        receiver.recv(&mut [0; 200]).expect("arrives in time");
    }
    let report = lab.down();
    let late = report
        .complaint()
        .expect("no machine wakes within a microsecond");
    assert!(late.contains("late"), "{late}");
}
