// SPDX-License-Identifier: Apache-2.0
//! What a trace is asked for. It serialises, so that one host can ask another; what comes from elsewhere is bounded by
//! [`TraceOptions::bounded`].

use super::result::Ecn;
use serde::{Deserialize, Serialize};
use std::net::IpAddr;
use std::time::Duration;

/// With what the way is probed, and what stays the same from packet to packet.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Engine {
    /// UDP; both ports are constant in a flow (Paris traceroute). The only one that needs no privilege, varies flows and
    /// finds the MTU.
    #[default]
    Udp,
    /// UDP as the first traceroute had it: each probe is a flow of its own.
    UdpClassic,
    /// UDP whose probes differ by the IP identification only (Dublin traceroute).
    UdpDublin,
    /// TCP SYN.
    Tcp,
    /// ICMP echo.
    Icmp,
}

/// What is asked of a trace.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct TraceOptions {
    /// With what.
    pub engine: Engine,
    /// Send from this address.
    pub source: Option<IpAddr>,
    /// The destination's port; `None`: 33434 for UDP (traceroute's first), 443 for TCP.
    pub port: Option<u16>,
    /// The most hops.
    pub max_ttl: u8,
    /// How sure it is to be that no way was missed, of the whole route.
    pub confidence: f64,
    /// Rounds after the search for ways.
    pub rounds: u32,
    /// Rounds go on for so long instead, one a second.
    pub repeat_for: Option<Duration>,
    /// Probes a second.
    pub rate: u32,
    /// Echo requests by which the loss is measured; 0: it is not.
    pub loss_probes: u32,
    /// Search for the path MTU.
    pub mtu: bool,
    /// DSCP of the probes whose quoted headers are compared, below 64.
    pub dscp: u8,
    /// ECN of the same.
    pub ecn: Ecn,
    /// Whether such probes are sent.
    pub marks: bool,
}

impl Default for TraceOptions {
    fn default() -> Self {
        TraceOptions {
            engine: Engine::Udp,
            source: None,
            port: None,
            max_ttl: 30,
            confidence: 0.95,
            rounds: 4,
            repeat_for: None,
            rate: 100,
            loss_probes: 100,
            mtu: true,
            dscp: 46,
            ecn: Ecn::Ect0,
            marks: true,
        }
    }
}

impl TraceOptions {
    /// The same within what a trace may cost: for options that come from elsewhere, and for what a user mistypes.
    #[must_use]
    pub fn bounded(self) -> Self {
        let confidence = match self.confidence.is_finite() {
            true => self.confidence.clamp(0.5, 0.9999),
            false => 0.95,
        };
        TraceOptions {
            max_ttl: self.max_ttl.clamp(1, 64),
            confidence,
            rounds: self.rounds.min(3_600),
            repeat_for: self
                .repeat_for
                .map(|length| length.min(Duration::from_secs(86_400))),
            rate: self.rate.clamp(1, 1_000),
            loss_probes: self.loss_probes.min(10_000),
            dscp: self.dscp & 0x3f,
            ..self
        }
    }

    /// The octet that was called TOS, of probes whose quoted headers are compared.
    #[must_use]
    pub fn tos(&self) -> u8 {
        self.dscp << 2 | self.ecn.bits()
    }
}

impl Engine {
    /// As users write it.
    #[must_use]
    pub fn name(self) -> &'static str {
        match self {
            Engine::Udp => "udp",
            Engine::UdpClassic => "udp-classic",
            Engine::UdpDublin => "udp-dublin",
            Engine::Tcp => "tcp",
            Engine::Icmp => "icmp",
        }
    }
}
