// SPDX-License-Identifier: Apache-2.0
//! What recording takes: bytes beside the compressed capture of the same packets, in the laboratory ([`bytes`]); processor time and throughput of
//! the recorder on this machine's own kernel ([`cost`], as root). The last line is JSON; what could not be measured is `null` there.
//!
//! ```text
//! bench-record [bytes|cost]
//! ```

mod bytes;
mod cost;

use serde_json::json;
use std::error::Error;

fn main() -> Result<(), Box<dyn Error>> {
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    let arguments: Vec<&str> = arguments.iter().map(String::as_str).collect();
    let (bytes, cost) = match arguments[..] {
        [] => (true, true),
        ["bytes"] => (true, false),
        ["cost"] => (false, true),
        [cost::SERVE] => return Ok(cost::serve()?),
        [cost::SEND, port, seconds] => return Ok(cost::send(port.parse()?, seconds.parse()?)?),
        _ => return Err("usage: bench-record [bytes|cost]".into()),
    };
    let bytes = if bytes { Some(bytes::measure()?) } else { None };
    let cost = if cost { cost::measure() } else { None };
    let of = |cost: Option<&cost::Cost>| cost.map(|cost| cost.cpu_percent);
    let last = json!({
        "cpu_percent_64k": of(cost.as_ref().map(|[large, _]| large)),
        "cpu_percent_mtu": of(cost.as_ref().map(|[_, small]| small)),
        "bytes_per_packet": bytes.as_ref().map(|worst| worst.per_packet),
        "ratio_to_compressed_headers": bytes.as_ref().map(|worst| worst.ratio),
        "throughput_loss_percent": cost.as_ref().map(|[large, _]| large.loss_percent),
        "ratio_before_shrinking": bytes.as_ref().map(|worst| worst.exact_ratio),
        "throughput_loss_percent_mtu": cost.as_ref().map(|[_, small]| small.loss_percent),
        "events_lost": cost.as_ref().map(|[large, small]| large.lost + small.lost),
    });
    println!("{last}");
    Ok(())
}
