// SPDX-License-Identifier: Apache-2.0
//! What recording takes: bytes beside the compressed capture of the same packets, in the laboratory ([`bytes`]); processor time and throughput of
//! the recorders on this machine's own kernel ([`cost`], as root). The last line is JSON; what could not be measured is `null` there, and why stands before.
//!
//! ```text
//! bench-record [bytes|cost|turns|exact]
//! ```
//!
//! `cpu_percent_64k`, `cpu_percent_mtu` and `throughput_loss_percent` are of the light recorder, which may run always. They are the upper end of the interval of 95 % of what
//! a connection takes more, and sends less, while the programs are attached ([`turns`], `..._turns`: lower end, median, upper end), if that is narrow enough. Otherwise they are
//! what the kernel charges to the programs and what reading takes (`..._statistics`), and the medians of rounds with and without (`..._rounds`), between which a connection over
//! loopback is three times as fast or slow by itself ([`cost`]). What the kernel charges has its own readings of the clock in it (`empty_program_nanos` a run), and no trampolines;
//! `booked_percent_64k_turns` and `booked_percent_mtu_turns` are what it charges in the connection of the turns, without what it charges to an empty program, and with it.

mod bytes;
mod cost;
mod load;
mod namespace;
mod recorders;
mod turns;

use bytes::Worst;
use cost::{Cost, Costs};
use recorders::RecorderKind;
use serde_json::{Value, json};
use std::error::Error;
use turns::Turns;

const LARGE: &str = "segments of 64 KiB";
const SMALL: &str = "packets of 1,500 bytes";

fn main() -> Result<(), Box<dyn Error>> {
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    let arguments: Vec<&str> = arguments.iter().map(String::as_str).collect();
    let (bytes, cost, turns) = match arguments[..] {
        [] => (true, true, true),
        ["bytes"] => (true, false, false),
        ["cost"] => (false, true, false),
        // Where it can be loaded: that takes long in a guest.
        ["exact"] => {
            cost::measure(RecorderKind::Exact);
            return Ok(());
        }
        ["turns"] => (false, false, true),
        [load::SERVE, connections] => return Ok(load::serve(connections.parse()?)?),
        [load::SEND, port, seconds, connections, rate] => {
            let (port, connections) = (port.parse()?, connections.parse()?);
            let (seconds, rate) = (seconds.parse()?, rate.parse()?);
            return Ok(load::send(port, seconds, connections, rate)?);
        }
        _ => return Err("usage: bench-record [bytes|cost|turns|exact]".into()),
    };
    let measured = Measured::new(bytes, cost, turns);
    println!("{}", measured.json());
    Ok(())
}

/// What was measured; `None`: it could not be, or was not asked for.
struct Measured {
    bytes: Option<Worst>,
    light: Option<Costs>,
    exact: Option<Costs>,
    large_turns: Option<Turns>,
    small_turns: Option<Turns>,
    large_exact: Option<Turns>,
    small_exact: Option<Turns>,
}

impl Measured {
    fn new(bytes: bool, cost: bool, turns: bool) -> Measured {
        let bytes = if bytes {
            bytes::measure()
                .map_err(|error| println!("could not measure the recording's bytes: {error}"))
                .ok()
        } else {
            None
        };
        let (light, exact) = if cost {
            (
                cost::measure(RecorderKind::Light),
                cost::measure(RecorderKind::Exact),
            )
        } else {
            (None, None)
        };
        let turned = |which, settings: &[&str]| {
            let what = if settings.is_empty() { LARGE } else { SMALL };
            turns
                .then(|| turns::measure(which, what, settings))
                .flatten()
        };
        let (large_turns, small_turns) = (
            turned(RecorderKind::Light, &[]),
            turned(RecorderKind::Light, &cost::PACKETS),
        );
        // Of the other one only where it can be loaded.
        let other = |settings: &[&str]| match &exact {
            Some(_) => turned(RecorderKind::Exact, settings),
            None => None,
        };
        let (large_exact, small_exact) = (other(&[]), other(&cost::PACKETS));
        Measured {
            bytes,
            light,
            exact,
            large_turns,
            small_turns,
            large_exact,
            small_exact,
        }
    }

    fn json(&self) -> Value {
        let (bytes, exact) = (self.bytes.as_ref(), self.exact.as_ref());
        let all = |of: fn(&Costs) -> Cost| self.light.as_ref().map(of);
        let large = all(|costs| costs.large);
        let (small, many, answers) = (
            all(|costs| costs.small),
            all(|costs| costs.many),
            all(|costs| costs.answers),
        );
        let (large_turns, small_turns) = (self.large_turns, self.small_turns);
        let lost = [large, small, many, answers].map(|cost| cost.map(|cost| cost.lost));
        json!({
            "cpu_percent_64k": taken(large, large_turns),
            "cpu_percent_mtu": taken(small, small_turns),
            "bytes_per_packet": bytes.map(|worst| worst.per_packet),
            "ratio_to_compressed_headers": bytes.map(|worst| worst.ratio),
            "throughput_loss_percent": loss(large, large_turns),
            "ratio_before_shrinking": bytes.map(|worst| worst.exact_ratio),
            "throughput_loss_percent_mtu": loss(small, small_turns),
            "throughput_loss_percent_rounds": large.map(|cost| cost.loss_percent),
            "throughput_loss_percent_mtu_rounds": small.map(|cost| cost.loss_percent),
            "throughput_loss_percent_turns": lost_in_turns(large_turns),
            "throughput_loss_percent_mtu_turns": lost_in_turns(small_turns),
            "cpu_percent_64k_statistics": percent(large),
            "cpu_percent_mtu_statistics": percent(small),
            "cpu_percent_64k_turns": interval(large_turns),
            "cpu_percent_mtu_turns": interval(small_turns),
            "control_percent_64k_turns": control(large_turns),
            "control_percent_mtu_turns": control(small_turns),
            "booked_percent_64k_turns": net(large_turns),
            "booked_percent_mtu_turns": net(small_turns),
            "cpu_percent_64k_many": percent(many),
            "cpu_percent_web_search": percent(answers),
            "more_cpu_percent_64k": difference(large),
            "more_cpu_percent_mtu": difference(small),
            "more_cpu_percent_web_search": difference(answers),
            "events_lost": lost.iter().copied().sum::<Option<u64>>(),
            "empty_program_nanos": large_turns.map(|turns| turns.charged.empty_nanos),
            "exact_recorder_cpu_percent_64k": exact.map(|costs| costs.large.cpu_percent),
            "exact_recorder_cpu_percent_mtu": exact.map(|costs| costs.small.cpu_percent),
            "exact_recorder_cpu_percent_64k_turns": interval(self.large_exact),
            "exact_recorder_cpu_percent_mtu_turns": interval(self.small_exact),
        })
    }
}

/// Percent of a core by what the kernel charges.
fn percent(cost: Option<Cost>) -> Option<f64> {
    cost.map(|cost| cost.cpu_percent)
}

/// The upper end of the turns' interval if it is narrow enough, else what the kernel charges.
fn taken(cost: Option<Cost>, turns: Option<Turns>) -> Option<f64> {
    let precise = turns.filter(|turns| turns.cost.is_precise());
    precise.map(|turns| turns.cost.high).or(percent(cost))
}

/// The loss of throughput by turns, else by rounds.
fn loss(cost: Option<Cost>, turns: Option<Turns>) -> Option<f64> {
    let rounds = cost.map(|cost| cost.loss_percent);
    turns.and_then(|turns| turns.lost()).or(rounds)
}

fn ends(it: turns::Estimate) -> [f64; 3] {
    [it.low, it.percent, it.high]
}

fn lost_in_turns(turns: Option<Turns>) -> Option<[[f64; 3]; 2]> {
    turns.map(|turns| [ends(turns.loss), ends(turns.loss_control)])
}

fn interval(turns: Option<Turns>) -> Option<[f64; 3]> {
    turns.map(|turns| ends(turns.cost))
}

fn control(turns: Option<Turns>) -> Option<[f64; 3]> {
    turns.map(|turns| ends(turns.control))
}

fn net(turns: Option<Turns>) -> Option<[f64; 2]> {
    turns.map(|turns| [turns.charged.net_percent, turns.charged.raw_percent])
}

fn difference(cost: Option<Cost>) -> Option<f64> {
    cost.map(|cost| cost.difference_percent)
}
