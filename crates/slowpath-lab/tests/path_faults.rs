// SPDX-License-Identifier: Apache-2.0
//! What lines do to packets by length, rate and marks, and how routers answer, as this machine's
//! kernel observes it.

mod emulated;

use emulated::{PATIENCE, PORT, header_is_correct, packet, raw, row, to, udp, up};
use slowpath_lab::emulator::{Host, Lab, LineReport, Report};
use slowpath_switch::fabric::{Action, Condition};
use socket2::{Domain, Protocol, Socket, Type};
use std::io::{self, Read, Write};
use std::net::{Ipv4Addr, Ipv6Addr, SocketAddr, TcpListener, TcpStream, UdpSocket};
use std::os::fd::AsRawFd;
use std::time::{Duration, Instant, SystemTime, UNIX_EPOCH};

/// Where datagrams of IPv6 go: a socket of its own.
const PORT6: u16 = PORT + 1;

const LINK: &str = "rate = \"1 Gbit/s\", delay = \"1 ms\"";

fn set_option(socket: &impl AsRawFd, level: i32, name: i32, value: i32) {
    let length = size_of::<i32>() as libc::socklen_t;
    // SAFETY: the option is an int, which outlives the call.
    let result = unsafe {
        libc::setsockopt(
            socket.as_raw_fd(),
            level,
            name,
            (&raw const value).cast(),
            length,
        )
    };
    assert_eq!(result, 0, "{}", io::Error::last_os_error());
}

fn option(socket: &impl AsRawFd, level: i32, name: i32) -> i32 {
    let mut value = 0i32;
    let mut length = size_of::<i32>() as libc::socklen_t;
    // SAFETY: the option is an int, and both outlive the call.
    let result = unsafe {
        libc::getsockopt(
            socket.as_raw_fd(),
            level,
            name,
            (&raw mut value).cast(),
            &raw mut length,
        )
    };
    assert_eq!(result, 0, "{}", io::Error::last_os_error());
    value
}

/// A control message: level, type, data.
type Control = (i32, i32, Vec<u8>);

/// A packet and the control messages that came with it.
fn receive(socket: &impl AsRawFd) -> (Vec<u8>, Vec<Control>) {
    let mut data = vec![0u8; 2048];
    let mut control = [0u64; 64];
    let mut part = libc::iovec {
        iov_base: data.as_mut_ptr().cast(),
        iov_len: data.len(),
    };
    // SAFETY: msghdr is plain data for which all zeroes are valid.
    let mut message: libc::msghdr = unsafe { std::mem::zeroed() };
    message.msg_iov = &raw mut part;
    message.msg_iovlen = 1;
    message.msg_control = control.as_mut_ptr().cast();
    message.msg_controllen = size_of_val(&control) as _;
    // SAFETY: the message's parts outlive the call and have the lengths that it names.
    let length = unsafe { libc::recvmsg(socket.as_raw_fd(), &raw mut message, 0) };
    let length =
        usize::try_from(length).unwrap_or_else(|_| panic!("{}", io::Error::last_os_error()));
    data.truncate(length);
    let mut found = Vec::new();
    // SAFETY: the kernel filled the control buffer, and the macros stay inside it.
    unsafe {
        let mut header = libc::CMSG_FIRSTHDR(&raw const message);
        while !header.is_null() {
            let before = libc::CMSG_LEN(0) as usize;
            let length = (*header).cmsg_len as usize - before;
            let bytes = std::slice::from_raw_parts(libc::CMSG_DATA(header), length).to_vec();
            found.push(((*header).cmsg_level, (*header).cmsg_type, bytes));
            header = libc::CMSG_NXTHDR(&raw const message, header);
        }
    }
    (data, found)
}

fn udp6(host: &Host) -> UdpSocket {
    let bound = host.run(|| UdpSocket::bind((Ipv6Addr::UNSPECIFIED, PORT6)));
    let socket = bound.expect("enters").expect("binds");
    socket.set_read_timeout(Some(PATIENCE)).expect("sets");
    socket
}

fn routers(lab: &Lab) -> Vec<Ipv4Addr> {
    lab.routers().map(|(_, address, _)| address).collect()
}

/// Sends an empty echo request with that number.
fn ping(socket: &Socket, to: Ipv4Addr, number: u8) {
    // RFC 1071 over the four words.
    let sum = 0x0800 + 0x0101 + u16::from(number);
    let [high, low] = (!sum).to_be_bytes();
    let request = [8, 0, high, low, 1, 1, 0, number];
    let to = SocketAddr::from((to, 0)).into();
    socket.send_to(&request, &to).expect("sends");
}

fn line<'a>(report: &'a Report, from: &str, to: &str) -> &'a LineReport {
    let mut lines = report.lines.iter();
    let found = lines.find(|line| (&*line.from, &*line.to) == (from, to));
    found.expect("something happened there")
}

fn assert_sum(report: &Report) {
    let drops = report.dropped;
    let dropped = drops.buffer_full
        + drops.ttl_expired
        + drops.no_route
        + drops.lost
        + drops.link_down
        + drops.too_many
        + drops.too_long
        + drops.policed;
    assert_eq!(
        report.sent + report.copies + report.fragments,
        report.delivered + report.fragmented + report.inside + dropped,
        "{report:?}"
    );
}

/// Waits until nothing is on its way any more.
fn settled(lab: &Lab) -> Report {
    let began = Instant::now();
    loop {
        let report = lab.report();
        if report.inside == 0 {
            assert_sum(&report);
            return report;
        }
        assert!(began.elapsed() < PATIENCE, "{report:?}");
        std::thread::yield_now();
    }
}

#[test]
fn a_router_says_the_mtu_of_the_next_line_and_the_kernel_believes_it() {
    let more = "[[line]]\non = \"r2 -> r3\"\nmtu = 1400\n";
    let Some(lab) = up("path MTU", &row(3, LINK, more)) else {
        return;
    };
    let (a, b) = (&lab.hosts()[0], &lab.hosts()[1]);
    let icmp = raw(a, Protocol::ICMPV4);
    let (sender, receiver) = (udp(a), udp(b));
    sender.connect(to(b)).expect("connects");
    set_option(
        &sender,
        libc::IPPROTO_IP,
        libc::IP_MTU_DISCOVER,
        libc::IP_PMTUDISC_DO,
    );
    // 1,401 bytes with the headers of IP (RFC 791) and UDP (RFC 768): one too many.
    sender.send(&[7; 1373]).expect("no one knows yet");
    let answer = packet(&icmp);
    assert!(header_is_correct(&answer));
    assert_eq!(answer[12..16], routers(&lab)[1].octets());
    // RFC 1191 section 4: type 3, code 4, and the next-hop MTU in the last two of these.
    assert_eq!(answer[20..22], [3, 4]);
    assert_eq!(answer[24..28], [0, 0, 5, 120]);
    // The packet as it came to the second router, after one hop.
    assert!(header_is_correct(&answer[28..]));
    assert_eq!(answer[28 + 2..28 + 4], 1401u16.to_be_bytes());
    assert_eq!(answer[28 + 8], 64 - 1);
    // The socket has the error, the kernel the MTU.
    let error = sender.recv(&mut [0; 10]).expect_err("an error comes first");
    assert_eq!(error.raw_os_error(), Some(libc::EMSGSIZE));
    assert_eq!(option(&sender, libc::IPPROTO_IP, libc::IP_MTU), 1400);
    let error = sender.send(&[7; 1373]).expect_err("too long now");
    assert_eq!(error.raw_os_error(), Some(libc::EMSGSIZE));
    sender.send(&[7; 1372]).expect("sends");
    assert_eq!(receiver.recv(&mut [0; 2000]).expect("arrives"), 1372);

    // RFC 4443 section 3.2, RFC 8201: type 2, code 0.
    let (sender, receiver) = (udp6(a), udp6(b));
    let open = || Socket::new(Domain::IPV6, Type::RAW, Some(Protocol::ICMPV6));
    let icmp = a.run(open).expect("enters").expect("opens");
    icmp.set_read_timeout(Some(PATIENCE)).expect("sets");
    sender.connect((b.ipv6(), PORT6)).expect("connects");
    let discover = libc::IPV6_PMTUDISC_DO;
    set_option(
        &sender,
        libc::IPPROTO_IPV6,
        libc::IPV6_MTU_DISCOVER,
        discover,
    );
    sender.send(&[7; 1353]).expect("no one knows yet");
    let answer = packet(&icmp);
    assert_eq!(answer[..2], [2, 0]);
    assert_eq!(answer[4..8], [0, 0, 5, 120]);
    let error = sender.recv(&mut [0; 10]).expect_err("an error comes first");
    assert_eq!(error.raw_os_error(), Some(libc::EMSGSIZE));
    assert_eq!(option(&sender, libc::IPPROTO_IPV6, libc::IPV6_MTU), 1400);
    sender.send(&[7; 1352]).expect("sends");
    assert_eq!(receiver.recv(&mut [0; 2000]).expect("arrives"), 1352);

    let report = settled(&lab);
    assert_eq!((report.dropped.too_long, report.fragments), (2, 0));
    assert_eq!(line(&report, "r2", "r3").too_long, 2);
    assert_eq!(report.routers.len(), 1);
    assert_eq!(
        (&*report.routers[0].name, report.routers[0].icmp_sent),
        ("r2", 2)
    );
}

#[test]
fn what_may_be_fragmented_is_and_the_host_reassembles_it() {
    let more = "[[line]]\non = \"r2 -> r3\"\nmtu = 1400\n[[line]]\non = \"r3 -> b\"\nmtu = 600\n";
    let Some(lab) = up("fragments", &row(3, LINK, more)) else {
        return;
    };
    let (a, b) = (&lab.hosts()[0], &lab.hosts()[1]);
    let (sender, receiver) = (udp(a), udp(b));
    let arriving = emulated::packets(b);
    set_option(
        &sender,
        libc::IPPROTO_IP,
        libc::IP_MTU_DISCOVER,
        libc::IP_PMTUDISC_DONT,
    );
    let payload: Vec<u8> = (0..1472u32).map(|at| (at * at % 251) as u8).collect();
    sender.send_to(&payload, to(b)).expect("sends");
    let mut arrived = vec![0; 2000];
    let length = receiver.recv(&mut arrived).expect("arrives");
    assert_eq!(arrived[..length], payload);
    // 1,480 bytes behind the IP header. 1,380 fit into 1,400, of which 1,376 are whole units of
    // eight; 104 are left. 580 fit into 600, of which 576 are whole units: 1,376 are 576, 576, 224.
    let fragments: Vec<(usize, u16)> = (0..4)
        .map(|_| packet(&arriving))
        .inspect(|packet| assert!(header_is_correct(packet)))
        .inspect(|packet| assert_eq!(packet[8], 64 - 3))
        .map(|packet| (packet.len(), u16::from_be_bytes([packet[6], packet[7]])))
        .collect();
    // RFC 791: more fragments is 0x2000, offsets count units of eight bytes.
    let more = 0x2000;
    let expected = [(596, more), (596, more | 72), (244, more | 144), (124, 172)];
    assert_eq!(fragments, expected);

    // A router's own echo reply as well: 28 bytes of headers, 1,472 of data.
    let icmp = raw(b, Protocol::ICMPV4);
    let mut request = vec![8, 0, 0, 0, 1, 1, 0, 1];
    request.resize(8 + 1472, 0);
    let sum: u16 = !(0x0800 + 0x0101 + 1);
    request[2..4].copy_from_slice(&sum.to_be_bytes());
    let destination = SocketAddr::from((routers(&lab)[2], 0)).into();
    icmp.send_to(&request, &destination).expect("sends");
    let reply = packet(&icmp);
    assert_eq!((reply.len(), reply[20]), (1500, 0));

    let report = settled(&lab);
    // Once at r2, once of the first fragment at r3, and the reply: 576, 576, 328 there.
    assert_eq!((report.fragmented, report.fragments), (3, 2 + 3 + 3));
    let last = line(&report, "r3", "b");
    assert_eq!(
        (last.fragmented, last.fragments, last.packets),
        (2, 6, 4 + 3)
    );
    assert_eq!(report.dropped.too_long, 0);
}

#[test]
fn a_black_hole_says_nothing_and_mtu_probing_gets_through_it() {
    let more = "[host]\nsysctls = { \"net.ipv4.tcp_mtu_probing\" = 1 }\n\
                [[line]]\non = \"r2 -> r3\"\nmtu = 1400\nmtu-icmp = false\n";
    let Some(lab) = up("a black hole", &row(3, LINK, more)) else {
        return;
    };
    let (a, b) = (&lab.hosts()[0], &lab.hosts()[1]);
    let icmp = raw(a, Protocol::ICMPV4);
    let sender = udp(a);
    set_option(
        &sender,
        libc::IPPROTO_IP,
        libc::IP_MTU_DISCOVER,
        libc::IP_PMTUDISC_DO,
    );
    sender.send_to(&[7; 1373], to(b)).expect("sends");
    // The router answers when it is asked later: so it has not answered before.
    ping(&icmp, routers(&lab)[1], 1);
    let answer = packet(&icmp);
    assert_eq!(answer[12..16], routers(&lab)[1].octets());
    assert_eq!((answer[20], answer[27]), (0, 1));
    assert_eq!(lab.report().dropped.too_long, 1);

    let listener = b.run(|| TcpListener::bind((b.ipv4(), PORT)));
    let listener = listener.expect("enters").expect("listens");
    let stream = a.run(|| TcpStream::connect((b.ipv4(), PORT)));
    let mut stream = stream.expect("enters").expect("connects");
    let (mut accepted, _) = listener.accept().expect("accepts");
    accepted.set_read_timeout(Some(6 * PATIENCE)).expect("sets");
    let total = std::thread::scope(|scope| {
        scope.spawn(move || stream.write_all(&[7; 200_000]).expect("writes"));
        let mut data = Vec::new();
        accepted.read_to_end(&mut data).expect("reads");
        data.len()
    });
    assert_eq!(total, 200_000);
    let report = settled(&lab);
    assert!(report.dropped.too_long > 1, "{report:?}");
}

#[test]
fn a_hosts_own_line_gives_its_interface_the_mtu() {
    let more = "[[line]]\non = \"a <-> r1\"\nmtu = 1300\n";
    let Some(lab) = up("a host's MTU", &row(1, LINK, more)) else {
        return;
    };
    let (a, b) = (&lab.hosts()[0], &lab.hosts()[1]);
    let (left, right) = (udp(a), udp(b));
    left.connect(to(b)).expect("connects");
    right.connect(to(a)).expect("connects");
    let discover = libc::IP_PMTUDISC_DO;
    for socket in [&left, &right] {
        set_option(socket, libc::IPPROTO_IP, libc::IP_MTU_DISCOVER, discover);
    }
    assert_eq!(option(&left, libc::IPPROTO_IP, libc::IP_MTU), 1300);
    let error = left.send(&[7; 1273]).expect_err("too long");
    assert_eq!(error.raw_os_error(), Some(libc::EMSGSIZE));
    // On the way back the router is at the near end.
    right.send(&[7; 1273]).expect("no one knows yet");
    let error = right.recv(&mut [0; 10]).expect_err("an error comes");
    assert_eq!(error.raw_os_error(), Some(libc::EMSGSIZE));
    assert_eq!(option(&right, libc::IPPROTO_IP, libc::IP_MTU), 1300);
    assert_eq!(settled(&lab).dropped.too_long, 1);
}

#[test]
fn marks_change_on_their_line_and_the_next_router_quotes_them() {
    let more = "[[line]]\non = \"r1 -> r2\"\necn = \"clear\"\n\
                [[line]]\non = \"r2 -> r3\"\ndscp = \"CS1\"\n";
    let Some(lab) = up("marks on lines", &row(3, LINK, more)) else {
        return;
    };
    let (a, b) = (&lab.hosts()[0], &lab.hosts()[1]);
    // EF (46) and ECT(0); CS1 is 8.
    let (sent, cleared, remarked): (i32, i32, i32) = (46 << 2 | 2, 46 << 2, 8 << 2);
    let (sender, receiver) = (udp(a), udp(b));
    set_option(&sender, libc::IPPROTO_IP, libc::IP_TOS, sent);
    set_option(&receiver, libc::IPPROTO_IP, libc::IP_RECVTOS, 1);
    sender.send_to(&[7; 100], to(b)).expect("sends");
    let (data, control) = receive(&receiver);
    assert_eq!(data, [7; 100]);
    assert_eq!(
        control[0],
        (libc::IPPROTO_IP, libc::IP_TOS, vec![remarked as u8])
    );
    let (sender6, receiver6) = (udp6(a), udp6(b));
    set_option(&sender6, libc::IPPROTO_IPV6, libc::IPV6_TCLASS, sent);
    set_option(&receiver6, libc::IPPROTO_IPV6, libc::IPV6_RECVTCLASS, 1);
    sender6
        .send_to(&[7; 100], (b.ipv6(), PORT6))
        .expect("sends");
    let (data, control) = receive(&receiver6);
    assert_eq!(data, [7; 100]);
    let class = remarked.to_ne_bytes().to_vec();
    assert_eq!(control[0], (libc::IPPROTO_IPV6, libc::IPV6_TCLASS, class));
    // What each router quotes: the header as it came there.
    let icmp = raw(a, Protocol::ICMPV4);
    for (ttl, marks) in (1..).zip([sent, cleared, remarked]) {
        sender.set_ttl(ttl).expect("sets");
        sender.send_to(b"where", to(b)).expect("sends");
        let answer = packet(&icmp);
        assert_eq!(answer[20..22], [11, 0]);
        assert!(header_is_correct(&answer[28..]));
        assert_eq!((answer[28 + 1], answer[28 + 8]), (marks as u8, 1));
    }
    // Off again, in mid-run.
    for (from, to, off) in [
        ("r1", "r2", Condition::ClearEcn(false)),
        ("r2", "r3", Condition::Dscp(None)),
    ] {
        let line = lab.line(from, to).expect("there");
        assert!(lab.apply(&Action::Condition(line, off)));
    }
    sender.set_ttl(64).expect("sets");
    sender.send_to(&[8; 100], to(b)).expect("sends");
    let (data, control) = receive(&receiver);
    assert_eq!((data[0], control[0].2[0]), (8, sent as u8));
    let report = settled(&lab);
    // Both datagrams, and the probes that came so far.
    assert_eq!(line(&report, "r1", "r2").ecn_cleared, 4);
    assert_eq!(line(&report, "r2", "r3").dscp_set, 3);
}

#[test]
fn a_policer_passes_its_burst_and_then_its_rate() {
    // 1,250 bytes take 10 ms at 1 Mbit/s. The policer gets half as much, and holds five packets.
    let more = "[[line]]\non = \"a -> r1\"\nrate = \"1 Mbit/s\"\n\
                police = { rate = \"500 kbit/s\", burst = \"6250 B\" }\n";
    let Some(lab) = up("a policer", &row(1, LINK, more)) else {
        return;
    };
    let (sender, receiver) = (udp(&lab.hosts()[0]), udp(&lab.hosts()[1]));
    // All in the host's queue long before the second is due: they start every 10 ms.
    for number in 0..40u8 {
        sender
            .send_to(&[number; 1250 - 28], to(&lab.hosts()[1]))
            .expect("sends");
    }
    // In halves of a packet the bucket begins with 10, gets one in 10 ms and gives two: the
    // n-th, from 0, finds 10 - n. So 0 to 8 pass, and from there on each second one.
    let expected: Vec<u8> = (0..40).filter(|n| *n <= 8 || n % 2 == 0).collect();
    let mut buffer = [0; 2000];
    let arrived: Vec<u8> = expected
        .iter()
        .map(|_| {
            receiver.recv(&mut buffer).expect("arrives in time");
            buffer[0]
        })
        .collect();
    assert_eq!(arrived, expected);
    let report = settled(&lab);
    let policed = 40 - expected.len() as u64;
    assert_eq!(report.dropped.policed, policed);
    let line = line(&report, "a", "r1");
    assert_eq!((line.packets, line.policed), (40, policed));
}

#[test]
fn a_router_answers_no_more_often_than_it_may() {
    let more = "[[router]]\non = \"r2\"\nicmp-rate = 5\nicmp-burst = 3\n";
    let Some(lab) = up("ICMP rates", &row(3, LINK, more)) else {
        return;
    };
    let (a, b) = (&lab.hosts()[0], &lab.hosts()[1]);
    let icmp = raw(a, Protocol::ICMPV4);
    let sender = udp(a);
    sender.set_ttl(2).expect("sets");
    let began = Instant::now();
    for _ in 0..200 {
        sender.send_to(b"where", to(b)).expect("sends");
        std::thread::sleep(Duration::from_millis(2));
    }
    // The last probe has been answered or not when the router behind it answers.
    ping(&icmp, routers(&lab)[2], 9);
    let mut answers = 0;
    loop {
        let answer = packet(&icmp);
        if answer[20] == 0 {
            break;
        }
        assert_eq!(answer[12..16], routers(&lab)[1].octets());
        answers += 1;
    }
    let seconds = began.elapsed().as_secs_f64();
    // From the bucket's size and rate. Each probe took 2 ms at least, so it was filled for 0.398 s.
    assert!(answers > 3, "{answers}");
    assert!(
        f64::from(answers) <= 3.0 + 5.0 * seconds,
        "{answers} in {seconds} s"
    );
    let report = settled(&lab);
    let r2 = &report.routers[0];
    assert_eq!((&*r2.name, r2.icmp_sent), ("r2", answers as u64));
    assert_eq!(r2.icmp_suppressed, 200 - answers as u64);
    assert_eq!(report.dropped.ttl_expired, 200);
}

#[test]
fn a_slow_router_answers_after_its_delay() {
    let more = "[[router]]\non = \"r2\"\nicmp-delay = { least = \"20 ms\", most = \"30 ms\" }\n";
    let Some(lab) = up("ICMP delays", &row(3, LINK, more)) else {
        return;
    };
    let (a, b) = (&lab.hosts()[0], &lab.hosts()[1]);
    let icmp = raw(a, Protocol::ICMPV4);
    set_option(&icmp, libc::SOL_SOCKET, libc::SO_TIMESTAMPNS, 1);
    let sender = udp(a);
    sender.set_ttl(2).expect("sets");
    for _ in 0..10 {
        let sent = SystemTime::now().duration_since(UNIX_EPOCH).expect("later");
        sender.send_to(b"where", to(b)).expect("sends");
        let (answer, control) = receive(&icmp);
        assert_eq!(answer[12..16], routers(&lab)[1].octets());
        let (_, kind, stamp) = &control[0];
        assert_eq!(*kind, libc::SCM_TIMESTAMPNS);
        let word = |at: usize| i64::from_ne_bytes(stamp[at..at + 8].try_into().expect("eight"));
        let arrived = Duration::new(word(0) as u64, word(8) as u32);
        // Two links there and back, and the router.
        let least = Duration::from_millis(4 + 20);
        assert!(arrived >= sent + least, "{:?}", arrived - sent);
    }
}

#[test]
fn a_silent_router_is_silent_while_later_ones_answer() {
    let more =
        "[[router]]\non = \"*\"\nicmp-delay = \"1 ms\"\n[[router]]\non = \"r2\"\nsilent = true\n";
    let Some(lab) = up("a silent router", &row(3, LINK, more)) else {
        return;
    };
    let (a, b) = (&lab.hosts()[0], &lab.hosts()[1]);
    let icmp = raw(a, Protocol::ICMPV4);
    let sender = udp(a);
    ping(&icmp, routers(&lab)[1], 1);
    let answers = [1, 2, 3].map(|ttl| {
        sender.set_ttl(ttl).expect("sets");
        sender.send_to(b"where", to(b)).expect("sends");
        (ttl != 2).then(|| {
            let answer = packet(&icmp);
            assert_eq!(answer[20..22], [11, 0]);
            Ipv4Addr::new(answer[12], answer[13], answer[14], answer[15])
        })
    });
    let expected = routers(&lab);
    assert_eq!(answers, [Some(expected[0]), None, Some(expected[2])]);
    let report = settled(&lab);
    let r2 = report.routers.iter().find(|router| router.name == "r2");
    let r2 = r2.expect("it was asked");
    assert_eq!((r2.icmp_sent, r2.icmp_suppressed), (0, 2));
}

#[test]
fn the_scenario_with_faults_has_each_where_it_says() {
    let text = include_str!("../../../scenarios/lab/path-faults.toml");
    let Some(lab) = up("path-faults.toml", text) else {
        return;
    };
    let (a, b) = (&lab.hosts()[0], &lab.hosts()[1]);
    let icmp = raw(a, Protocol::ICMPV4);
    let (sender, receiver) = (udp(a), udp(b));
    // EF and ECT(0), then without ECN behind r1, then CS1 behind r3. r2 does not answer.
    let (sent, cleared, remarked) = (46 << 2 | 2, 46 << 2, 8 << 2);
    set_option(&sender, libc::IPPROTO_IP, libc::IP_TOS, sent);
    let quoted = [sent, 0, cleared, remarked, remarked, remarked];
    for ((ttl, marks), router) in (1..).zip(quoted).zip(routers(&lab)) {
        sender.set_ttl(ttl).expect("sets");
        sender.send_to(b"where", to(b)).expect("sends");
        if marks != 0 {
            let answer = packet(&icmp);
            assert_eq!(answer[12..16], router.octets());
            assert_eq!((answer[20], i32::from(answer[28 + 1])), (11, marks));
        }
    }
    sender.set_ttl(64).expect("sets");
    let discover = libc::IP_PMTUDISC_PROBE;
    set_option(&sender, libc::IPPROTO_IP, libc::IP_MTU_DISCOVER, discover);
    sender.send_to(&[7; 1373], to(b)).expect("sends");
    let answer = packet(&icmp);
    assert_eq!(answer[12..16], routers(&lab)[3].octets());
    assert_eq!(
        (&answer[20..22], &answer[26..28]),
        (&[3, 4][..], &[5, 120][..])
    );
    // 1,250 bytes take 0.1 ms, in which the bucket gets 250: of 30,000 in it 29 packets are
    // taken at least, and no more than come while all are on their way.
    let began = Instant::now();
    for _ in 0..100 {
        sender.send_to(&[7; 1250 - 28], to(b)).expect("sends");
    }
    let policed = |report: &Report| line(report, "r5", "r6").policed;
    // With the probe that r6 answered.
    let report = loop {
        let report = settled(&lab);
        if line(&report, "r5", "r6").packets == 101 {
            break report;
        }
        assert!(began.elapsed() < PATIENCE, "{report:?}");
    };
    let passed = 100 - policed(&report);
    let bound = 30_000.0 + 2_500_000.0 * began.elapsed().as_secs_f64();
    assert!(passed >= 29 && passed as f64 * 1250.0 <= bound, "{passed}");
    for _ in 0..passed {
        assert_eq!(receiver.recv(&mut [0; 2000]).expect("arrives"), 1250 - 28);
    }
    let silent = report.routers.iter().find(|router| router.name == "r2");
    assert_eq!(silent.expect("it was asked").icmp_suppressed, 1);
}
