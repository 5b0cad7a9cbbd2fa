// SPDX-License-Identifier: Apache-2.0
//! Draws paths with a known kind of loss, has them emulated, and counts how often `slowpath path loss` is right.
//!
//! `cargo run -p slowpath-path --example loss-signatures -- --seed 1 --runs 28` (root). The last line is
//! JSON: seed, signature_runs, signature_right, signature_wrong, signature_open (`cannot_tell`).

use slowpath_lab::emulator::{Lab, Options};
use slowpath_netsim::scenario::{Scenario, Substrate};
use slowpath_path::control::Modes;
use slowpath_path::report::Way;
use slowpath_path::serve::{Policy, ServeOptions, Serving};
use slowpath_path::signature::{LossOptions, LossProtocol, LossReport, Signature, measure_loss};
use slowpath_path::socket::WallClock;
use std::net::{SocketAddr, UdpSocket};
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

/// SplitMix64.
struct Draw(u64);

impl Draw {
    fn next(&mut self) -> f64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut z = self.0;
        z = (z ^ (z >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        ((z ^ (z >> 31)) >> 11) as f64 / (1u64 << 53) as f64
    }

    fn between(&mut self, low: f64, high: f64) -> f64 {
        low + self.next() * (high - low)
    }

    /// As likely between 1 and 10 as between 10 and 100.
    fn logarithmic(&mut self, low: f64, high: f64) -> f64 {
        (self.between(low.ln(), high.ln())).exp()
    }
}

/// A path and what is wrong with it on the way there.
struct Drawn {
    truth: Signature,
    text: String,
    /// Bit/s that another host sends in bursts.
    cross: Option<f64>,
    what: String,
}

const KINDS: usize = 7;

fn draw(kind: usize, draw: &mut Draw) -> Drawn {
    let delay = draw.between(1.0, 20.0);
    let mut rate = draw.between(60.0, 200.0);
    let mut buffer = 1_000.0_f64;
    let (mut impairment, mut cross) = (String::new(), None);
    let (truth, what) = match kind {
        0 => (Signature::NoLoss, String::new()),
        1 => {
            let share = draw.logarithmic(0.2, 4.0);
            impairment = format!("loss = \"{share:.2} %\"");
            (Signature::Random, impairment.clone())
        }
        2 => {
            let every = draw.logarithmic(12.0, 600.0) as u32;
            impairment = format!("loss = {{ every = {every} }}");
            (Signature::Periodic, impairment.clone())
        }
        3 => {
            rate = draw.between(10.0, 100.0);
            buffer = draw.between(6.0, 28.0).round();
            (
                Signature::ShallowBuffer,
                format!("{buffer} packets at {rate:.0} Mbit/s"),
            )
        }
        4 => {
            rate = draw.between(15.0, 60.0);
            buffer = draw.between(50.0, 120.0).round();
            cross = Some(rate * draw.between(1.3, 2.0) * 1e6);
            (
                Signature::Congestion,
                format!(
                    "{buffer} packets at {rate:.0} Mbit/s, others {:.0}",
                    cross.unwrap_or(0.0) / 1e6
                ),
            )
        }
        5 => {
            let per_bit = draw.logarithmic(2e-7, 4e-6);
            impairment = format!("bit-errors = \"{per_bit:.2e}\"");
            (Signature::BitErrors, impairment.clone())
        }
        _ => {
            let (limit, burst) = (draw.between(8.0, 45.0), draw.logarithmic(15.0, 120.0));
            impairment =
                format!("police = {{ rate = \"{limit:.1} Mbit/s\", burst = \"{burst:.0} kB\" }}");
            (Signature::Policer, impairment.clone())
        }
    };
    let line = match impairment.is_empty() {
        true => String::new(),
        false => format!("[[line]]\non = \"r1 -> r2\"\n{impairment}\n"),
    };
    let text = format!(
        "[topology]\nkind = \"custom\"\nhosts = [\"a\", \"b\", \"c\"]\nswitches = [\"r1\", \"r2\"]\n\
         links = {{ rate = \"1 Gbit/s\", delay = \"100 us\" }}\n\
         link = [\n  {{ ends = [\"a\", \"r1\"] }},\n  {{ ends = [\"c\", \"r1\"] }},\n\
         {{ ends = [\"r1\", \"r2\"], rate = \"{rate:.1} Mbit/s\", delay = \"{delay:.1} ms\" }},\n\
         {{ ends = [\"r2\", \"b\"] }},\n]\n[switch]\nbuffer = \"{buffer} packets\"\n[host]\nqueue = \"2000 packets\"\n{line}"
    );
    Drawn {
        truth,
        text,
        cross,
        what,
    }
}

/// Sends datagrams at `rate` for about 60 ms, then rests for about 150, until `stop`.
fn send_in_bursts(to: SocketAddr, rate: f64, seed: u64, stop: &AtomicBool) {
    let socket = UdpSocket::bind("0.0.0.0:0").expect("a socket");
    let mut draw = Draw(seed);
    let gap = Duration::from_secs_f64(1_500.0 * 8.0 / rate);
    while !stop.load(Ordering::Relaxed) {
        let end = Instant::now() + Duration::from_secs_f64(draw.between(0.06, 0.12));
        let mut due = Instant::now();
        while Instant::now() < end {
            let _ = socket.send_to(&[0; 1_472], to);
            due += gap;
            std::thread::sleep(due.saturating_duration_since(Instant::now()));
        }
        std::thread::sleep(Duration::from_secs_f64(draw.between(0.05, 0.25)));
    }
}

fn no_file(_: &str) -> std::io::Result<String> {
    Err(std::io::ErrorKind::NotFound.into())
}

fn measure(drawn: &Drawn, seed: u64) -> Result<LossReport, String> {
    let scenario = Scenario::parse_for(&drawn.text, &no_file, Substrate::Emulator)
        .map_err(|e| e.to_string())?;
    let lab = Lab::up(&scenario, &Options::default()).map_err(|e| e.to_string())?;
    let host = |name: &str| lab.host(name).expect("it is in the scenario");
    let (a, b, c) = (host("a"), host("b"), host("c"));
    let peer = SocketAddr::new(b.ipv4().into(), 861);
    let serve = ServeOptions {
        owamp: vec![peer],
        twamp: Vec::new(),
        stamp: Vec::new(),
        requests: Vec::new(),
        modes: Modes::OPEN,
        secrets: Vec::new(),
        policy: Policy {
            allow: vec!["10.0.0.0/8".parse().expect("a range")],
            ..Policy::default()
        },
        once: false,
        clock: WallClock::default(),
    };
    let _serving = b
        .run(|| Serving::start(serve))
        .map_err(|e| e.to_string())?
        .map_err(|e| e.to_string())?;
    let options = LossOptions::new(peer, LossProtocol::OneWay, seed);
    let (stop, sink) = (AtomicBool::new(false), SocketAddr::new(b.ipv4().into(), 9));
    let outcome = std::thread::scope(|scope| {
        if let Some(rate) = drawn.cross {
            let stop = &stop;
            scope.spawn(move || c.run(move || send_in_bursts(sink, rate, seed, stop)));
        }
        let outcome = a.run(|| measure_loss(&options, &AtomicBool::new(false)));
        stop.store(true, Ordering::Relaxed);
        outcome
    });
    let outcome = outcome
        .map_err(|e| e.to_string())?
        .map_err(|e| e.to_string())?;
    let report = lab.down();
    if let Some(complaint) = report.complaint() {
        println!("  the emulator: {complaint}");
    }
    Ok(LossReport::of("b", &outcome))
}

fn argument(name: &str, default: u64) -> u64 {
    let mut arguments = std::env::args()
        .skip_while(|argument| argument != name)
        .skip(1);
    arguments
        .next()
        .and_then(|value| value.parse().ok())
        .unwrap_or(default)
}

fn main() {
    let (seed, runs, only) = (
        argument("--seed", 1),
        argument("--runs", 28),
        argument("--kind", u64::MAX),
    );
    let (mut right, mut wrong, mut open, mut failed, mut false_back) = (0, 0, 0, 0, 0);
    for run in 0..runs {
        let mut numbers = Draw(seed.wrapping_mul(1_000).wrapping_add(run));
        let kind = if only == u64::MAX {
            run as usize % KINDS
        } else {
            only as usize
        };
        let drawn = draw(kind, &mut numbers);
        let report = match measure(&drawn, seed * 1_000 + run) {
            Ok(report) => report,
            Err(error) => {
                println!(
                    "{run} {} {}: FAILED {error}",
                    drawn.truth.name(),
                    drawn.what
                );
                failed += 1;
                continue;
            }
        };
        let of = |way: Way| {
            report
                .directions
                .iter()
                .find(|d| d.way == way)
                .expect("both")
        };
        let (there, back) = (of(Way::There), of(Way::Back));
        let verdict = match there.signature {
            found if found == drawn.truth => {
                right += 1;
                "right"
            }
            Signature::Unclear => {
                open += 1;
                "open"
            }
            _ => {
                wrong += 1;
                "WRONG"
            }
        };
        false_back += u32::from(!matches!(
            back.signature,
            Signature::NoLoss | Signature::Unclear
        ));
        println!(
            "{run} {} ({}): {} {verdict}, share {:.5}, {:?}; back {}",
            drawn.truth.name(),
            drawn.what,
            there.signature.name(),
            there.loss_share,
            there.estimate,
            back.signature.name()
        );
        if verdict != "right" || std::env::args().any(|a| a == "--verbose") {
            println!("{}\n{}", drawn.text, report.text());
        }
    }
    println!(
        "{{\"seed\":{seed},\"signature_runs\":{},\"signature_right\":{right},\"signature_wrong\":{wrong},\"signature_open\":{open},\"failed\":{failed},\"back_wrong\":{false_back}}}",
        runs - failed
    );
}
