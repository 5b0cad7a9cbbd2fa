// SPDX-License-Identifier: Apache-2.0
//! Paths that lose packets in one way each: does `path loss` name it?

use crate::chain::Chain;
use crate::network::{Failure, Network};
use crate::random::Draw;

const KIND: u64 = 2;

/// Of each signature.
pub const RUNS_EACH: usize = 4;

/// What is planted, by the names in JSON.
pub const SIGNATURES: [&str; 7] = [
    "no_loss",
    "bit_errors",
    "shallow_buffer",
    "policer",
    "congestion",
    "random",
    "periodic",
];

/// How a trial ended: right, wrong, or `cannot_tell`.
pub struct Outcome {
    pub right: Option<bool>,
    pub text: String,
}

/// The line that loses is r1 to r2, or back.
fn line(back: bool, keys: &str) -> String {
    let on = if back { "r2 -> r1" } else { "r1 -> r2" };
    format!("[[line]]\non = \"{on}\"\n{keys}\n")
}

/// What is planted, and in words.
struct Planted {
    chain: Chain,
    /// Cross traffic: Mbit/s while it is on, and how long it is on and off, ms.
    cross: Option<(f64, (f64, f64))>,
    text: String,
}

fn planted(signature: &str, back: bool, draw: &mut Draw) -> Planted {
    let mut chain = Chain::new((0..3).map(|_| draw.by_factor(200.0, 8000.0)).collect());
    chain.rates = vec![1000.0, 500.0, 1000.0];
    let mut cross = None;
    let text = match signature {
        "no_loss" => "nothing is lost".to_owned(),
        "bit_errors" => {
            // Of a full packet of 12,000 bits 1 to 5 % is lost.
            let rate = draw.by_factor(0.01, 0.05) / 12_000.0;
            chain.more = line(back, &format!("bit-errors = \"{rate:.3e}\""));
            format!("{rate:.1e} a bit")
        }
        "shallow_buffer" => {
            let packets = draw.whole(6, 16);
            let rate = draw.by_factor(30.0, 90.0);
            chain.rates[1] = rate;
            chain.buffer = format!("{packets} packets");
            format!("{packets} packets before {rate:.0} Mbit/s")
        }
        "policer" => {
            let rate = draw.by_factor(5.0, 30.0);
            let burst = draw.by_factor(15.0, 60.0);
            let keys = format!(
                "police = {{ rate = \"{rate:.2} Mbit/s\", burst = \"{:.0} B\" }}",
                burst * 1e3
            );
            chain.more = line(back, &keys);
            format!("{rate:.1} Mbit/s, {burst:.0} kB")
        }
        "congestion" => {
            let rate = draw.between(40.0, 90.0);
            chain.rates[1] = rate;
            let buffer = draw.whole(60, 150);
            chain.buffer = format!("{buffer} packets");
            chain.crossed = Some(2);
            let over = rate * draw.between(1.1, 1.5);
            cross = Some((over, (200.0, 300.0)));
            format!("{over:.0} Mbit/s at times over {rate:.0}, {buffer} packets")
        }
        "random" => {
            let share = draw.by_factor(0.5, 4.0);
            chain.more = line(back, &format!("loss = \"{share:.3} %\""));
            format!("{share:.2} %")
        }
        _ => {
            let every = draw.whole(25, 150);
            chain.more = line(back, &format!("loss = {{ every = {every} }}"));
            format!("every {every}th packet")
        }
    };
    Planted { chain, cross, text }
}

/// Runs one trial.
pub fn run(number: usize, seed: u64) -> Result<Outcome, Failure> {
    let signature = SIGNATURES[number % SIGNATURES.len()];
    let mut draw = Draw::new(seed, KIND, number);
    // Cross traffic and buffers: of the way there.
    let one_way = ["shallow_buffer", "congestion"].contains(&signature);
    let back = !one_way && draw.coin();
    let planted = planted(signature, back, &mut draw);
    let mut network = Network::up(&planted.chain.text())?;
    network.serve()?;
    if let Some((rate, pause)) = planted.cross {
        network.cross(rate, Some(pause), draw)?;
    }
    let json = network.measure(&["loss", "@b", "--json"])?;
    let way = if back { "back" } else { "there" };
    let directions = json["directions"].as_array().cloned().unwrap_or_default();
    let direction = directions
        .into_iter()
        .find(|direction| direction["way"] == way);
    let direction =
        direction.ok_or_else(|| format!("{signature} {number}: nothing about the way {way}"))?;
    let found = direction["signature"]
        .as_str()
        .unwrap_or("nothing")
        .to_owned();
    let right = match found.as_str() {
        "cannot_tell" => None,
        found => Some(found == signature),
    };
    let text = format!(
        "{signature} {number} {way} ({}): {found}, p = {}, {}, estimate {}{}",
        planted.text,
        direction["p_value"],
        direction["test"],
        direction["estimate"],
        network
            .complaint()
            .map_or(String::new(), |why| format!(" ({why})")),
    );
    Ok(Outcome { right, text })
}
