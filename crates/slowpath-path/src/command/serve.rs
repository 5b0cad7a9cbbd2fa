// SPDX-License-Identifier: Apache-2.0
//! `slowpath path serve`.

use super::arguments::Serve;
use super::{CommandError, keys, owd};
use crate::control::Limits;
use crate::serve::{Policy, ServeOptions, Serving, ThroughputLimits};
use crate::socket::{WallClock, monotonic, sleep_until};
use std::io::Write;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr};
use std::sync::atomic::{AtomicBool, Ordering};

/// Serves until a signal, or with `--once` until a measurement is done.
pub(super) fn run(
    serve: &Serve,
    interrupted: &AtomicBool,
    out: &mut dyn Write,
) -> Result<(), CommandError> {
    let mut serving = Serving::start(options(serve)?)?;
    for (what, addresses) in [
        ("OWAMP", serving.owamp()),
        ("TWAMP", serving.twamp()),
        ("STAMP and TWAMP light", serving.stamp()),
        ("requests (throughput)", serving.requests()),
    ] {
        for address in addresses {
            writeln!(out, "answering {what} on {address}")?;
        }
    }
    out.flush()?;
    while !serving.ended() && sleep_until(monotonic() + 50_000_000, interrupted) {}
    serving.stop();
    let counters = serving.counters();
    let count = |counter: &std::sync::atomic::AtomicU64| counter.load(Ordering::Relaxed);
    writeln!(
        out,
        "{} connections ({} refused, {} failed), {} sessions ({} refused), {} packets reflected ({} dropped)",
        count(&counters.connections),
        count(&counters.refused_connections),
        count(&counters.failed_connections),
        count(&counters.sessions),
        count(&counters.refused_sessions),
        count(&counters.reflected),
        count(&counters.dropped),
    )?;
    Ok(())
}

/// A port of all addresses, where none was given.
fn or_all(given: &[SocketAddr], explicit: bool, port: u16) -> Vec<SocketAddr> {
    if explicit {
        return given.to_vec();
    }
    let all: [IpAddr; 2] = [Ipv4Addr::UNSPECIFIED.into(), Ipv6Addr::UNSPECIFIED.into()];
    // A kernel without IPv6 serves IPv4.
    let usable = all
        .into_iter()
        .filter(|address| address.is_ipv4() || std::path::Path::new("/proc/net/if_inet6").exists());
    usable
        .map(|address| SocketAddr::new(address, port))
        .collect()
}

fn options(serve: &Serve) -> Result<ServeOptions, CommandError> {
    let secrets = match &serve.key {
        Some(file) => keys::of_file(file).map_err(|source| CommandError::Keys {
            file: file.clone(),
            source,
        })?,
        None => Vec::new(),
    };
    let defaults = Policy::default();
    // Who names one port wants that one only.
    let explicit = [
        &serve.listen,
        &serve.listen_twamp,
        &serve.listen_stamp,
        &serve.listen_requests,
    ]
    .iter()
    .any(|given| !given.is_empty());
    Ok(ServeOptions {
        owamp: or_all(&serve.listen, explicit, 861),
        twamp: or_all(&serve.listen_twamp, explicit, 862),
        stamp: or_all(&serve.listen_stamp, explicit, 862),
        requests: or_all(&serve.listen_requests, explicit, crate::requests::PORT),
        modes: owd::modes(&serve.modes)?,
        secrets,
        policy: Policy {
            allow: if serve.allow.is_empty() {
                defaults.allow
            } else {
                serve.allow.clone()
            },
            limits: Limits {
                padding: serve.max_padding,
                packets: serve.max_packets,
                ..defaults.limits
            },
            rate: serve.max_rate,
            ports: serve.ports,
            connections_of_peer: serve.max_sessions,
            throughput: ThroughputLimits {
                seconds: serve.max_throughput_seconds,
                ..defaults.throughput
            },
            ..defaults
        },
        once: serve.once,
        clock: WallClock::default(),
    })
}
