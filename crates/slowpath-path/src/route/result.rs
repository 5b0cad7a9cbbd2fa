// SPDX-License-Identifier: Apache-2.0
//! What a trace comes to. It serialises and comes back, so that one host can ask another for it.

use super::options::Engine;
use serde::{Deserialize, Serialize};
use std::net::IpAddr;

/// The route to a peer.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Route {
    /// The peer as it was named.
    pub peer: String,
    /// Its address.
    pub address: IpAddr,
    /// How it was probed.
    pub protocol: Engine,
    /// What answered at each distance, from 1 on without gaps.
    pub hops: Vec<Hop>,
    /// Which flow took which way.
    pub flows: Vec<FlowWay>,
    /// How many different ways the flows took.
    pub ways: u32,
    /// Some router chooses for each packet: the same flow met different addresses.
    pub per_packet: bool,
    /// How probable it is that some node leads to one more address than was found; null where flows were not varied.
    pub missed_probability: Option<f64>,
    /// Loss that carries on to the destination; null: it answers too little.
    pub loss: Option<Loss>,
    /// The largest packet that arrives; null: not searched for, or it answers too little.
    pub mtu: Option<Mtu>,
    /// Changes of ECN on the way; null: no router's quoted header could be read.
    pub ecn: Option<Marks>,
    /// Changes of DSCP on the way; null as for `ecn`.
    pub dscp: Option<Marks>,
    /// Changes of the way from one round to the next.
    pub changes: Vec<RouteChange>,
    /// The destination was reached.
    pub complete: bool,
    /// What could not be measured, and why.
    pub notes: Vec<RouteNote>,
}

/// What is at one distance.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Hop {
    /// How many routers away, from 1 on.
    pub ttl: u8,
    /// Who answered.
    pub addresses: Vec<HopAddress>,
    /// Probes that expired there, whoever would have answered.
    pub sent: u32,
    /// Those of them that were answered.
    pub answered: u32,
    /// What it is.
    pub kind: HopKind,
}

/// One address of a hop.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct HopAddress {
    /// The address.
    pub address: IpAddr,
    /// Probes of flows that are known to pass here.
    pub sent: u32,
    /// Those that it answered.
    pub answered: u32,
    /// Round trips; null where no time is known.
    pub rtt_ns: Option<RoundTrips>,
    /// MPLS labels with which probes arrived, outermost first (RFC 4950).
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub mpls: Vec<Label>,
    /// Addresses of the next hop to which this one leads.
    pub next: Vec<IpAddr>,
}

/// Round trips, ns.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct RoundTrips {
    /// The shortest.
    pub min: u64,
    /// The one in the middle (nearest rank).
    pub median: u64,
    /// The longest.
    pub max: u64,
}

impl RoundTrips {
    /// Of any number of round trips; `None`: there is none.
    #[must_use]
    pub fn of(mut nanos: Vec<u64>) -> Option<Self> {
        nanos.sort_unstable();
        Some(RoundTrips {
            min: *nanos.first()?,
            median: nanos[(nanos.len() - 1) / 2],
            max: *nanos.last()?,
        })
    }
}

/// An entry of an MPLS label stack (RFC 4950 section 2).
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Label {
    /// The label, 20 bits.
    pub label: u32,
    /// The traffic class, 3 bits.
    pub class: u8,
    /// The time to live.
    pub ttl: u8,
}

/// What a hop is.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum HopKind {
    /// It passes packets on.
    Router,
    /// The peer.
    Destination,
    /// It answers nothing. Where later hops answer that is no loss.
    Silent,
    /// It answers a part of the probes only, while what lies behind it answers more: it limits its ICMP messages,
    /// and loses nothing.
    IcmpLimited,
}

/// One flow's way.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct FlowWay {
    /// Its UDP or TCP source port.
    pub source_port: u16,
    /// Who answered at each distance from 1 on; null: no one, or it was not asked there.
    pub addresses: Vec<Option<IpAddr>>,
}

/// Loss on the way to the destination, or on its way back.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Loss {
    /// Probes to the destination.
    pub sent: u32,
    /// Those without an answer.
    pub lost: u32,
    /// The first hop behind the last one that shows clearly less loss; null: no loss, or no hop can be named.
    pub from_hop: Option<u8>,
}

/// The path MTU.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Mtu {
    /// Octets of the largest IP packet that reached the destination.
    pub bytes: u32,
    /// ICMP reported it (RFC 1191, RFC 8201), or nothing was too large; false: larger ones vanish without a word.
    pub icmp: bool,
    /// Where larger ones vanish.
    pub black_hole: Option<BlackHole>,
    /// Who reported the smallest MTU.
    pub reported_by: Option<IpAddr>,
}

/// Where packets of full size vanish without a word.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct BlackHole {
    /// The first hop that answers small packets and no large ones: they vanish on the link to it. Null: each hop that
    /// answers at all answers large packets.
    pub hop: Option<u8>,
    /// Octets of the packets that vanish.
    pub bytes: u32,
}

/// What became of a field of the IP header.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Marks {
    /// As it was sent.
    pub sent: Mark,
    /// Each change, in the order of the way.
    pub changes: Vec<MarkChange>,
    /// How many hops quoted it.
    pub quoted: u32,
}

/// A change of the field: on the link before the first hop that quotes the new value.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct MarkChange {
    /// The hop that quoted it.
    pub hop: u8,
    /// Its address.
    pub address: IpAddr,
    /// The value before.
    pub from: Mark,
    /// The value that it quoted.
    pub to: Mark,
}

/// A value of ECN (RFC 3168 section 5) or DSCP (RFC 2474).
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case", untagged)]
pub enum Mark {
    /// ECN.
    Ecn(Ecn),
    /// DSCP, below 64.
    Dscp(u8),
}

/// The ECN field.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Ecn {
    /// 00.
    NotEct,
    /// 01.
    Ect1,
    /// 10.
    Ect0,
    /// 11: congestion experienced.
    Ce,
}

impl Ecn {
    /// The two low bits of the octet that was called TOS.
    #[must_use]
    pub fn of(tos: u8) -> Self {
        match tos & 3 {
            0 => Ecn::NotEct,
            1 => Ecn::Ect1,
            2 => Ecn::Ect0,
            _ => Ecn::Ce,
        }
    }

    /// Its bits.
    #[must_use]
    pub fn bits(self) -> u8 {
        match self {
            Ecn::NotEct => 0,
            Ecn::Ect1 => 1,
            Ecn::Ect0 => 2,
            Ecn::Ce => 3,
        }
    }
}

/// The way of some flows changed.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct RouteChange {
    /// When the new way was first observed, ns after the trace began.
    pub at_ns: u64,
    /// Not before this, ns after the trace began: the old way was still observed.
    pub after_ns: u64,
    /// The first hop that differs.
    pub hop: u8,
    /// Who answered there before.
    pub from: IpAddr,
    /// Who answers there now.
    pub to: IpAddr,
    /// How many of the flows that were repeated went over.
    pub flows: u32,
}

/// What could not be measured, and why.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case", tag = "note")]
pub enum RouteNote {
    /// Quoted IPv4 headers can be read with CAP_NET_RAW only.
    QuotesNeedRaw,
    /// The destination answers no echo request: neither loss nor MTU can be measured at it.
    NoEcho,
    /// This host may send no echo requests: neither loss nor MTU were measured.
    EchoNotPermitted,
    /// Time or flows ran out before the stopping rule was satisfied.
    NotAllWays,
    /// A router refuses to pass packets on to the peer: no way there, or a filter.
    Refused {
        /// Its distance.
        hop: u8,
        /// Its address.
        address: IpAddr,
    },
    /// Large echo replies vanish on the way back, while large packets arrive.
    LargeRepliesVanish,
}
