// SPDX-License-Identifier: Apache-2.0
//! Probes: UDP datagrams that a router quotes back. Each is known by its UDP checksum, which every router quotes and the ports of
//! a flow leave free (the idea of Paris traceroute: Augustin et al., IMC 2006), so that all take one way through load
//! balancers.

use crate::icmp::parse::checksum;
use crate::icmp::{ErrorKind, IcmpMessage};
use std::net::{IpAddr, SocketAddr};

/// Octets of a small probe's UDP payload: with IPv4 60 octets in all, with IPv6 80.
pub const PAYLOAD: usize = 32;
/// UDP's header (RFC 768).
pub const UDP_HEADER: usize = 8;
/// IP's header by family (RFC 791 without options, RFC 8200).
pub const V4_HEADER: usize = 20;
/// As above.
pub const V6_HEADER: usize = 40;
/// What payloads begin with, so that an operator who captures them finds their source.
const MARK: &[u8; 13] = b"slowpath neck";

/// Numbers of probes are 1 to this one: 0 and 0xffff are the same to a checksum.
pub const MOST_PROBES: u16 = 0xfffe;

/// Octets of IP of a datagram.
#[must_use]
pub fn ip_octets(v4: bool, payload: usize) -> usize {
    payload + UDP_HEADER + if v4 { V4_HEADER } else { V6_HEADER }
}

/// What load packets are shorter than the probes of their train, octets: by it they are known.
pub const LOAD_SHORTER: usize = 4;

/// The flow of a measurement.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Flow {
    /// This host's address and port.
    pub local: SocketAddr,
    /// The peer's.
    pub peer: SocketAddr,
}

/// What an ICMP message says of a probe.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ProbeAnswer {
    /// An answer to a probe.
    Answered {
        /// Its number.
        number: u16,
        /// The error; `None`: an echo reply of the peer.
        error: Option<ErrorKind>,
    },
    /// A packet of the flow is too big for a link.
    TooBig {
        /// What fits, octets, as the router says.
        mtu: Option<u32>,
    },
}

impl Flow {
    /// The payload of a probe, at least [`PAYLOAD`] octets long and even: its UDP checksum is the number.
    #[must_use]
    pub fn payload(&self, number: u16, length: usize) -> Vec<u8> {
        let length = length.next_multiple_of(2).max(PAYLOAD);
        let mut payload = vec![0; length];
        payload[..MARK.len()].copy_from_slice(MARK);
        payload[MARK.len() + 1..MARK.len() + 3].copy_from_slice(&number.to_be_bytes());
        // One's complement arithmetic (RFC 1071): the last word makes up for all others.
        let without = u32::from(!self.sum(&payload));
        let wanted = u32::from(!number);
        let balance = (wanted + 0xffff - without % 0xffff) % 0xffff;
        payload[length - 2..].copy_from_slice(&(balance as u16).to_be_bytes());
        payload
    }

    /// The UDP checksum of a payload (RFC 768, RFC 8200 section 8.1).
    fn sum(&self, payload: &[u8]) -> u16 {
        let length = (UDP_HEADER + payload.len()) as u16;
        let mut pseudo = Vec::with_capacity(48 + payload.len());
        for address in [self.local.ip(), self.peer.ip()] {
            match address {
                IpAddr::V4(v4) => pseudo.extend(v4.octets()),
                IpAddr::V6(v6) => pseudo.extend(v6.octets()),
            }
        }
        // UDP is protocol 17; the length counts in the pseudo header and in UDP's own.
        for word in [17, length, self.local.port(), self.peer.port(), length] {
            pseudo.extend(word.to_be_bytes());
        }
        pseudo.extend(payload);
        checksum(&pseudo, 0)
    }

    /// What a message says of this flow's probes, whose payloads have one of the lengths; `None`: it is about something
    /// else. Identifiers of echo requests are the local port.
    #[must_use]
    pub fn answer(
        &self,
        from: IpAddr,
        message: &IcmpMessage<'_>,
        lengths: [usize; 2],
    ) -> Option<ProbeAnswer> {
        let error = match message {
            IcmpMessage::EchoReply(reply) => {
                let ours = reply.identifier == self.local.port() && from == self.peer.ip();
                return ours.then_some(ProbeAnswer::Answered {
                    number: reply.sequence,
                    error: None,
                });
            }
            IcmpMessage::Error(error) => error,
        };
        if error.quoted.destination != self.peer.ip() {
            return None;
        }
        let number = if let Some((identifier, sequence)) = error.quoted.echo_request() {
            (identifier == self.local.port()).then_some(sequence)?
        } else {
            let udp = error.quoted.udp()?;
            if (udp.source_port, udp.destination_port) != (self.local.port(), self.peer.port()) {
                return None;
            }
            if let ErrorKind::TooBig { mtu } = error.kind {
                return Some(ProbeAnswer::TooBig { mtu });
            }
            // Others of the flow are the load.
            let is_probe = lengths
                .map(|it| it + UDP_HEADER)
                .contains(&usize::from(udp.length));
            is_probe.then_some(udp.checksum)?
        };
        Some(ProbeAnswer::Answered {
            number,
            error: Some(error.kind),
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::icmp::{EchoReply, IcmpError, Quoted};
    use proptest::prelude::*;

    const LENGTHS: [usize; 2] = [32, 1_372];

    fn flow(v4: bool) -> Flow {
        let address = |text: &str| text.parse().expect("an address");
        match v4 {
            true => Flow {
                local: address("192.0.2.1:40000"),
                peer: address("198.51.100.9:33434"),
            },
            false => Flow {
                local: address("[2001:db8::1]:40000"),
                peer: address("[2001:db8::9]:33434"),
            },
        }
    }

    /// A UDP datagram whose checksum the definition gives: the sum of all is all ones.
    fn sums_up(flow: &Flow, payload: &[u8], checksum: u16) -> bool {
        let mut words: Vec<u32> = Vec::new();
        let mut octets = |octets: &[u8]| {
            words.extend(
                octets
                    .chunks(2)
                    .map(|pair| u32::from(pair[0]) << 8 | u32::from(pair[1])),
            );
        };
        for address in [flow.local.ip(), flow.peer.ip()] {
            match address {
                IpAddr::V4(v4) => octets(&v4.octets()),
                IpAddr::V6(v6) => octets(&v6.octets()),
            }
        }
        octets(payload);
        let length = payload.len() as u32 + 8;
        words.extend([17, length, 40_000, 33_434, length, u32::from(checksum)]);
        words.iter().sum::<u32>() % 0xffff == 0
    }

    fn time_exceeded(flow: &Flow, transport: &[u8]) -> Option<ProbeAnswer> {
        let quoted = Quoted {
            source: flow.local.ip(),
            destination: flow.peer.ip(),
            protocol: 17,
            ttl: 1,
            traffic_class: 0,
            length: 60,
            identification: None,
            dont_fragment: true,
            transport,
        };
        let kind = ErrorKind::TimeExceeded;
        let router = "192.0.2.254".parse().expect("an address");
        flow.answer(
            router,
            &IcmpMessage::Error(IcmpError { kind, quoted }),
            LENGTHS,
        )
    }

    fn udp_header(ports: (u16, u16), length: u16, checksum: u16) -> Vec<u8> {
        let words = [ports.0, ports.1, length, checksum];
        words.iter().flat_map(|word| word.to_be_bytes()).collect()
    }

    #[test]
    fn a_probe_is_known_by_eight_quoted_octets() {
        let flow = flow(true);
        let header = udp_header((40_000, 33_434), 40, 777);
        let answered = ProbeAnswer::Answered {
            number: 777,
            error: Some(ErrorKind::TimeExceeded),
        };
        assert_eq!(time_exceeded(&flow, &header), Some(answered));
        let header = udp_header((40_000, 33_434), 1_380, 777);
        assert_eq!(time_exceeded(&flow, &header), Some(answered));
    }

    #[test]
    fn answers_to_load_to_other_flows_and_from_others_are_nothing() {
        let flow = flow(true);
        for (ports, length) in [
            ((40_000, 33_434), 1_376),
            ((40_001, 33_434), 40),
            ((40_000, 33_435), 40),
        ] {
            assert_eq!(time_exceeded(&flow, &udp_header(ports, length, 777)), None);
        }
        assert_eq!(time_exceeded(&flow, &[0; 7]), None);
        let reply = |identifier| {
            IcmpMessage::EchoReply(EchoReply {
                identifier,
                sequence: 5,
            })
        };
        let stranger = "203.0.113.1".parse().expect("an address");
        assert_eq!(flow.answer(stranger, &reply(40_000), LENGTHS), None);
        assert_eq!(flow.answer(flow.peer.ip(), &reply(40_001), LENGTHS), None);
        let answered = ProbeAnswer::Answered {
            number: 5,
            error: None,
        };
        assert_eq!(
            flow.answer(flow.peer.ip(), &reply(40_000), LENGTHS),
            Some(answered)
        );
    }

    proptest! {
        #[test]
        fn a_probes_checksum_is_its_number(number in 1..=MOST_PROBES, length in 0usize..9_000, v4: bool) {
            let flow = flow(v4);
            let payload = flow.payload(number, length);
            prop_assert!((length.max(PAYLOAD)..length.max(PAYLOAD) + 2).contains(&payload.len()));
            prop_assert_eq!(flow.sum(&payload), number);
            prop_assert!(sums_up(&flow, &payload, number));
        }
    }
}
