// SPDX-License-Identifier: Apache-2.0
//! How much delay the emulator adds: TCP at 200 Mbit/s over three routers and 20 ms, captured by
//! tcpdump at both ends. What a packet's delay should be follows from the sender's capture
//! by itself: one queue in front of the first link, then four equal links. The last line is JSON.
//! Needs root and tcpdump.

use slowpath_lab::emulator::{Host, Lab, Options};
use slowpath_netsim::scenario::{Scenario, Substrate};
use socket2::SockRef;
use std::collections::HashMap;
use std::error::Error;
use std::io::{BufRead, BufReader, Read, Write};
use std::net::{TcpListener, TcpStream};
use std::path::Path;
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

const SCENARIO: &str = r#"
[topology]
kind = "custom"
hosts = ["a", "b"]
switches = ["r1", "r2", "r3"]
links = { rate = "500 Mbit/s", delay = "5 ms" }
link = [
  { ends = ["a", "r1"] }, { ends = ["r1", "r2"] }, { ends = ["r2", "r3"] }, { ends = ["r3", "b"] },
]
[switch]
buffer = "1000 packets"
"#;

/// Nanoseconds along all four links, and of a bit at 500 Mbit/s.
const DELAY: f64 = 20e6;
const BIT: f64 = 2.0;
/// Bytes a second.
const RATE: u32 = 25_000_000;
const LENGTH: Duration = Duration::from_secs(10);

/// A packet of a capture: when, how long, and what it is known by.
struct Packet {
    nanos: f64,
    bytes: u32,
    identity: Vec<u8>,
    from_a: bool,
}

fn capture(host: &Host, file: &Path) -> Result<Child, Box<dyn Error>> {
    let mut tcpdump = Command::new("tcpdump");
    tcpdump.args(["-i", "eth0", "-n", "-s", "80", "-B", "65536", "-Z", "root"]);
    tcpdump.args(["--time-stamp-precision", "nano", "-w"]);
    tcpdump.arg(file).arg("tcp").stderr(Stdio::piped());
    let mut child = host.spawn(&mut tcpdump)?;
    let errors = child.stderr.take().ok_or("asked for")?;
    let listening = BufReader::new(errors).lines().map_while(Result::ok);
    let mut listening = listening.filter(|line| line.contains("listening on"));
    listening.next().ok_or("tcpdump does not listen")?;
    Ok(child)
}

fn packets(file: &Path) -> Result<Vec<Packet>, Box<dyn Error>> {
    let bytes = std::fs::read(file)?;
    // The nanosecond format of pcap(5), as this machine writes it.
    let mut rest = bytes.get(24..).ok_or("no capture")?;
    let mut packets = Vec::new();
    while let Some((head, behind)) = rest.split_at_checked(16) {
        let word =
            |at: usize| u32::from_ne_bytes([head[at], head[at + 1], head[at + 2], head[at + 3]]);
        let Some((packet, behind)) = behind.split_at_checked(word(8) as usize) else {
            break;
        };
        rest = behind;
        packets.push(Packet {
            nanos: f64::from(word(0)) * 1e9 + f64::from(word(4)),
            bytes: word(12),
            // The identification, addresses and the TCP header with its time stamps.
            identity: [&packet[4..6], &packet[12..]].concat(),
            from_a: packet[12..16] == [10, 0, 0, 1],
        });
    }
    Ok(packets)
}

/// Delays beyond those of the model in microseconds, sorted, and how many did not arrive.
fn added(sent: &[Packet], received: &[Packet], from_a: bool) -> (Vec<f64>, usize) {
    let mut arrivals: HashMap<&[u8], f64> = HashMap::new();
    for packet in received.iter().filter(|packet| packet.from_a == from_a) {
        arrivals.insert(&packet.identity, packet.nanos);
    }
    let (mut free, mut lost, mut delays) = (0.0f64, 0, Vec::new());
    for packet in sent.iter().filter(|packet| packet.from_a == from_a) {
        let on_line = f64::from(packet.bytes) * 8.0 * BIT;
        let Some(arrival) = arrivals.get(&*packet.identity) else {
            lost += 1;
            continue;
        };
        free = packet.nanos.max(free) + on_line;
        delays.push((arrival - (free + 3.0 * on_line + DELAY)) / 1e3);
    }
    delays.sort_by(f64::total_cmp);
    (delays, lost)
}

fn main() -> Result<(), Box<dyn Error>> {
    let files = |_: &str| Err(std::io::ErrorKind::NotFound.into());
    let scenario = Scenario::parse_for(SCENARIO, &files, Substrate::Emulator)?;
    let lab = Lab::up(&scenario, &Options::default())?;
    let (a, b) = (&lab.hosts()[0], &lab.hosts()[1]);
    let folder = tempfile::tempdir()?;
    let captures = [folder.path().join("a.pcap"), folder.path().join("b.pcap")];
    let mut tcpdumps = [capture(a, &captures[0])?, capture(b, &captures[1])?];
    let listener = b.run(|| TcpListener::bind((b.ipv4(), 0)))??;
    let to = listener.local_addr()?;
    let mut opened = a.run(|| TcpStream::connect(to))??;
    let (mut accepted, _) = listener.accept()?;
    SockRef::from(&opened).set_tcp_congestion(b"cubic")?;
    let pace: *const u32 = &RATE;
    // SAFETY: the option is one integer of 32 bits, which lives as long as the program.
    unsafe {
        let (fd, length) = (std::os::fd::AsRawFd::as_raw_fd(&opened), 4);
        libc::setsockopt(
            fd,
            libc::SOL_SOCKET,
            libc::SO_MAX_PACING_RATE,
            pace.cast(),
            length,
        );
    }
    let began = Instant::now();
    let bytes =
        std::thread::scope(|scope| {
            scope.spawn(move || {
                while began.elapsed() < LENGTH && opened.write_all(&[7; 65_536]).is_ok() {}
            });
            let (mut all, mut buffer) = (0, vec![0; 1 << 20]);
            while let Ok(length @ 1..) = accepted.read(&mut buffer) {
                all += length;
            }
            all
        });
    let seconds = began.elapsed().as_secs_f64();
    let report = lab.report();
    for tcpdump in &mut tcpdumps {
        // SAFETY: kill takes integers; the child has not been waited for.
        unsafe { libc::kill(tcpdump.id() as i32, libc::SIGINT) };
        tcpdump.wait()?;
    }
    let [sent, received] = [packets(&captures[0])?, packets(&captures[1])?];
    let mut results = serde_json::Map::new();
    let mut hold = report.complaint().is_none();
    for (name, ends, from_a) in [
        ("data", [&sent, &received], true),
        ("acknowledgements", [&received, &sent], false),
    ] {
        let (delays, lost) = added(ends[0], ends[1], from_a);
        let rank = |share: f64| delays[((delays.len() - 1) as f64 * share) as usize];
        let (median, p99) = (rank(0.5), rank(0.99));
        println!(
            "{name}: {} packets, {lost} lost; added delay {median:.0} us median, {p99:.0} us 99 %",
            delays.len()
        );
        hold &= median.abs() <= 200.0 && p99 <= 2_000.0;
        results.insert(format!("{name}_median_us"), median.round().into());
        results.insert(format!("{name}_p99_us"), p99.round().into());
    }
    let mbit = bytes as f64 * 8.0 / seconds / 1e6;
    results.insert("mbit_per_second".to_owned(), mbit.round().into());
    results.insert(
        "lateness".to_owned(),
        serde_json::to_value(report.lateness)?,
    );
    results.insert("holds".to_owned(), hold.into());
    println!("{}", serde_json::Value::Object(results));
    Ok(())
}
