// SPDX-License-Identifier: Apache-2.0
//! A route as text: a line a hop, then what was found as sentences.

use super::result::{Ecn, Hop, HopAddress, HopKind, Mark, Marks, Mtu, Route, RouteNote};
use crate::report::text::span;
use std::fmt::Write;

/// Flows that are listed; JSON has all.
const MOST_FLOWS: usize = 16;

/// Changes that are listed.
const MOST_CHANGES: usize = 20;

/// The whole route.
#[must_use]
pub fn route(route: &Route) -> String {
    let mut out = String::new();
    // Writing to a string cannot fail.
    let _ = writeln!(
        out,
        "route to {} ({}) by {}",
        route.peer,
        route.address,
        route.protocol.name()
    );
    for hop in &route.hops {
        write_hop(&mut out, hop, route.loss.is_some_and(|loss| loss.lost == 0));
    }
    for sentence in sentences(route) {
        let _ = writeln!(out, "{sentence}");
    }
    for note in &route.notes {
        let _ = writeln!(out, "note: {}", note_text(note));
    }
    out
}

fn write_hop(out: &mut String, hop: &Hop, lossless: bool) {
    let kind = match hop.kind {
        HopKind::Router => "",
        HopKind::Destination if lossless && hop.answered < hop.sent => {
            "  destination, limits its ICMP errors: no loss"
        }
        HopKind::Destination => "  destination",
        HopKind::Silent => "  answers nothing",
        HopKind::IcmpLimited => "  limits its ICMP messages: no loss",
    };
    if hop.addresses.is_empty() {
        let _ = writeln!(out, "{:>3}  *{kind}", hop.ttl);
        return;
    }
    for (number, address) in hop.addresses.iter().enumerate() {
        let ttl = if number == 0 {
            hop.ttl.to_string()
        } else {
            String::new()
        };
        let _ = writeln!(out, "{ttl:>3}  {}{kind}", address_text(address));
    }
}

fn address_text(address: &HopAddress) -> String {
    let mut text = format!(
        "{:<15}  {}/{} answered",
        address.address.to_string(),
        address.answered,
        address.sent
    );
    if let Some(rtt) = address.rtt_ns {
        let nanos = |nanos: u64| span(i64::try_from(nanos).unwrap_or(i64::MAX));
        let _ = write!(
            text,
            "  {} / {} / {}",
            nanos(rtt.min),
            nanos(rtt.median),
            nanos(rtt.max)
        );
    }
    for label in &address.mpls {
        let _ = write!(text, "  MPLS {}", label.label);
    }
    text
}

fn sentences(route: &Route) -> Vec<String> {
    let mut all = Vec::new();
    if !route.complete {
        all.push(match route.hops.last() {
            Some(hop) => format!(
                "The destination was not reached: nothing answers behind hop {}.",
                hop.ttl
            ),
            None => "Nothing answers: no router, and not the destination.".to_owned(),
        });
    }
    all.extend(ways(route));
    all.extend(loss(route));
    all.extend(route.mtu.as_ref().map(mtu));
    all.extend(marks(route.ecn.as_ref(), "ECN"));
    all.extend(marks(route.dscp.as_ref(), "DSCP"));
    all.extend(changes(route));
    all
}

fn ways(route: &Route) -> Vec<String> {
    let mut all = Vec::new();
    if route.per_packet {
        all.push(
            "A router chooses a way for each packet: the same flow met different addresses."
                .to_owned(),
        );
    } else if route.ways > 1 {
        all.push(format!("Flows take {} different ways.", route.ways));
        all.extend(flows(route));
    }
    if let Some(missed) = route.missed_probability.filter(|_| !route.hops.is_empty()) {
        all.push(format!(
            "That a way was missed is {:.1} % probable at the most.",
            (missed * 1_000.0).ceil() / 10.0
        ));
    }
    all
}

/// Which flows take which way, by the hops that differ.
fn flows(route: &Route) -> Vec<String> {
    let forks: Vec<usize> = route
        .hops
        .iter()
        .enumerate()
        .filter(|(_, hop)| hop.addresses.len() > 1)
        .map(|(index, _)| index)
        .collect();
    let mut ways: std::collections::BTreeMap<String, Vec<u16>> = std::collections::BTreeMap::new();
    for flow in &route.flows {
        let at = |index: &usize| {
            let address = flow.addresses.get(*index).copied().flatten()?;
            Some(address.to_string())
        };
        let way: Option<Vec<String>> = forks.iter().map(at).collect();
        if let Some(way) = way {
            ways.entry(way.join(", "))
                .or_default()
                .push(flow.source_port);
        }
    }
    let line = |(way, mut ports): (String, Vec<u16>)| {
        ports.sort_unstable();
        let more = ports.len().saturating_sub(MOST_FLOWS);
        let ports: Vec<String> = ports.iter().take(MOST_FLOWS).map(u16::to_string).collect();
        let more = if more > 0 {
            format!(" and {more} more")
        } else {
            String::new()
        };
        format!("  by {way}: source ports {}{more}", ports.join(", "))
    };
    ways.into_iter().map(line).collect()
}

fn loss(route: &Route) -> Option<String> {
    let loss = route.loss?;
    if loss.lost == 0 {
        return Some(format!(
            "The way loses nothing: {} of {} echo requests were answered.",
            loss.sent, loss.sent
        ));
    }
    let where_ = match loss.from_hop {
        Some(hop) => format!(" It begins at hop {hop}, or on the link before it, there or back."),
        None => " Where it begins is not clear.".to_owned(),
    };
    Some(format!(
        "The way loses {} of {} packets ({:.1} %).{where_}",
        loss.lost,
        loss.sent,
        f64::from(loss.lost) * 100.0 / f64::from(loss.sent)
    ))
}

fn mtu(mtu: &Mtu) -> String {
    let mut text = format!("The path MTU is {} octets", mtu.bytes);
    if let Some(router) = mtu.reported_by {
        let _ = write!(text, ", as {router} reports");
    }
    text.push('.');
    if let Some(hole) = mtu.black_hole {
        let place = match hole.hop {
            Some(hop) => format!("before hop {hop}"),
            None => "somewhere".to_owned(),
        };
        let _ = write!(
            text,
            " Black hole: packets of {} octets vanish {place} without an ICMP message.",
            hole.bytes
        );
    }
    text
}

fn marks(marks: Option<&Marks>, field: &str) -> Vec<String> {
    let changes = marks.into_iter().flat_map(|marks| &marks.changes);
    let sentence = |change: &super::result::MarkChange| {
        format!(
            "{field} changes from {} to {} on the link before hop {} ({}).",
            mark(change.from),
            mark(change.to),
            change.hop,
            change.address
        )
    };
    changes.map(sentence).collect()
}

fn mark(mark: Mark) -> String {
    match mark {
        Mark::Dscp(dscp) => dscp.to_string(),
        Mark::Ecn(Ecn::NotEct) => "not ECT".to_owned(),
        Mark::Ecn(Ecn::Ect0) => "ECT(0)".to_owned(),
        Mark::Ecn(Ecn::Ect1) => "ECT(1)".to_owned(),
        Mark::Ecn(Ecn::Ce) => "CE".to_owned(),
    }
}

fn changes(route: &Route) -> Vec<String> {
    let sentence = |change: &super::result::RouteChange| {
        format!(
            "The way changed at hop {} from {} to {}, {} to {} after the start ({} flows).",
            change.hop,
            change.from,
            change.to,
            span(i64::try_from(change.after_ns).unwrap_or(i64::MAX)),
            span(i64::try_from(change.at_ns).unwrap_or(i64::MAX)),
            change.flows
        )
    };
    let mut all: Vec<String> = route
        .changes
        .iter()
        .take(MOST_CHANGES)
        .map(sentence)
        .collect();
    if route.changes.len() > MOST_CHANGES {
        all.push(format!("{} changes in all.", route.changes.len()));
    }
    all
}

fn note_text(note: &RouteNote) -> String {
    let text = match note {
        RouteNote::Refused { hop, address } => {
            return format!(
                "hop {hop} ({address}) refuses to pass packets on to the peer: it has no way there, or a filter forbids it"
            );
        }
        RouteNote::QuotesNeedRaw => {
            "ECN and DSCP were not compared: to read quoted headers takes CAP_NET_RAW (sudo, or `setcap cap_net_raw+ep`)"
        }
        RouteNote::NoEcho => "the destination answers no echo requests: its loss is not known",
        RouteNote::EchoNotPermitted => {
            "this user may send no echo requests: loss was not measured (sysctl net.ipv4.ping_group_range, or CAP_NET_RAW)"
        }
        RouteNote::NotAllWays => "some hops answer too rarely for the stated confidence",
        RouteNote::LargeRepliesVanish => {
            "large echo replies vanish on the way back, while large packets arrive"
        }
    };
    text.to_owned()
}
