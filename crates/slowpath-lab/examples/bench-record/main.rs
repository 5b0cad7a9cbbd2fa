// SPDX-License-Identifier: Apache-2.0
//! What recording takes: bytes beside the compressed capture of the same packets, in the laboratory ([`bytes`]); processor time and throughput of
//! the recorders on this machine's own kernel ([`cost`], as root). The last line is JSON; what could not be measured is `null` there, and why stands before.
//!
//! ```text
//! bench-record [bytes|cost]
//! ```
//!
//! `cpu_percent_64k`, `cpu_percent_mtu` and `throughput_loss_percent` are of the light recorder, which may run always.

mod bytes;
mod cost;
mod load;

use cost::{Cost, Costs, Which};
use serde_json::json;
use std::error::Error;

fn main() -> Result<(), Box<dyn Error>> {
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    let arguments: Vec<&str> = arguments.iter().map(String::as_str).collect();
    let (bytes, cost) = match arguments[..] {
        [] => (true, true),
        ["bytes"] => (true, false),
        ["cost"] => (false, true),
        [load::SERVE, connections] => return Ok(load::serve(connections.parse()?)?),
        [load::SEND, port, seconds, connections, rate] => {
            let (port, connections) = (port.parse()?, connections.parse()?);
            let (seconds, rate) = (seconds.parse()?, rate.parse()?);
            return Ok(load::send(port, seconds, connections, rate)?);
        }
        _ => return Err("usage: bench-record [bytes|cost]".into()),
    };
    let bytes = if bytes {
        bytes::measure()
            .map_err(|error| println!("could not measure the recording's bytes: {error}"))
            .ok()
    } else {
        None
    };
    let (light, exact) = if cost {
        (cost::measure(Which::Light), cost::measure(Which::Exact))
    } else {
        (None, None)
    };
    let all = |of: fn(&Costs) -> Cost| light.as_ref().map(of);
    let large = all(|costs| costs.large);
    let (small, many, answers) = (
        all(|costs| costs.small),
        all(|costs| costs.many),
        all(|costs| costs.answers),
    );
    let percent = |cost: Option<Cost>| cost.map(|cost| cost.cpu_percent);
    let difference = |cost: Option<Cost>| cost.map(|cost| cost.difference_percent);
    let lost = [large, small, many, answers].map(|cost| cost.map(|cost| cost.lost));
    let last = json!({
        "cpu_percent_64k": percent(large),
        "cpu_percent_mtu": percent(small),
        "bytes_per_packet": bytes.as_ref().map(|worst| worst.per_packet),
        "ratio_to_compressed_headers": bytes.as_ref().map(|worst| worst.ratio),
        "throughput_loss_percent": large.map(|cost| cost.loss_percent),
        "ratio_before_shrinking": bytes.as_ref().map(|worst| worst.exact_ratio),
        "throughput_loss_percent_mtu": small.map(|cost| cost.loss_percent),
        "cpu_percent_64k_many": percent(many),
        "cpu_percent_web_search": percent(answers),
        "more_cpu_percent_64k": difference(large),
        "more_cpu_percent_mtu": difference(small),
        "more_cpu_percent_web_search": difference(answers),
        "events_lost": lost.iter().copied().sum::<Option<u64>>(),
        "exact_recorder_cpu_percent_64k": exact.as_ref().map(|costs| costs.large.cpu_percent),
        "exact_recorder_cpu_percent_mtu": exact.as_ref().map(|costs| costs.small.cpu_percent),
    });
    println!("{last}");
    Ok(())
}
