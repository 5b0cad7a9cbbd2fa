// SPDX-License-Identifier: Apache-2.0
//! The settings of a recorded connection, as a laboratory kernel can have them.

use slowpath_lab::virtual_time::recording::{AT_ONCE, HYSTART, READER, RTO_MIN};
use slowpath_lab::virtual_time::sysctls::Own;
use slowpath_lab::virtual_time::tcp::{ALGORITHMS, Kind, Sysctls};
use slowpath_lab::virtual_time::wire::{ACK_AT_ONCE, HANDSHAKE, IPV6};
use slowpath_netsim::tcp::Reading;
use slowpath_recording::{Connection, Settings};
use slowpath_switch::Span;
use std::collections::BTreeMap;
use std::net::SocketAddr;

/// The least that a device of IPv6 has: RFC 8200 section 5.
const IPV6_MTU: u32 = 1280;
/// The value of a setting that a recording lacks.
const NOT_THERE: &str = "not there";

/// A day, in nanoseconds.
const LONG: u64 = 86_400_000_000_000;

type Values = BTreeMap<String, String>;

fn take_reader(text: &str) -> Option<Option<Reading>> {
    if text == AT_ONCE {
        return Some(None);
    }
    let (bytes, every) = text.split_once(" every ")?;
    let every: u64 = every.parse().ok().filter(|ns| (1..=LONG).contains(ns))?;
    Some(Some(Reading {
        bytes: bytes.parse().ok()?,
        every: Span::from_nanos(every),
    }))
}

/// A setting that a laboratory kernel cannot have.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("a laboratory kernel cannot have {name} = '{value}'{}", self.instead())]
pub struct Unknown {
    pub(crate) name: String,
    pub(crate) value: String,
}

impl Unknown {
    fn instead(&self) -> String {
        match self.name.as_str() {
            "congestion" => format!(": it has {}", ALGORITHMS.join(", ")),
            _ => String::new(),
        }
    }
}

/// Takes settings one by one; what is left over is not known.
struct Remaining(Values);

impl Remaining {
    fn text(&mut self, name: &str) -> Result<String, Unknown> {
        self.0.remove(name).ok_or_else(|| Unknown {
            name: name.to_owned(),
            value: NOT_THERE.to_owned(),
        })
    }

    fn number<T: TryFrom<u64>>(&mut self, name: &str, most: u64) -> Result<T, Unknown> {
        let text = self.text(name)?;
        let number = text.parse::<u64>().ok().filter(|number| *number <= most);
        number
            .and_then(|number| T::try_from(number).ok())
            .ok_or_else(|| Unknown {
                name: name.to_owned(),
                value: text,
            })
    }

    fn bit(&mut self, name: &str) -> Result<bool, Unknown> {
        Ok(self.number::<u8>(name, 1)? == 1)
    }

    fn end(self) -> Result<(), Unknown> {
        match self.0.into_iter().next() {
            None => Ok(()),
            Some((name, value)) => Err(Unknown { name, value }),
        }
    }
}

/// Of both sockets, whatever is missing.
fn same(opened: &Values, accepted: &Values) -> Result<(), Unknown> {
    let mut names = opened.keys().chain(accepted.keys());
    match names.find(|name| opened.get(*name) != accepted.get(*name)) {
        None => Ok(()),
        Some(name) => Err(Unknown {
            name: format!("{name} of the accepting end"),
            value: accepted
                .get(name)
                .map_or_else(|| NOT_THERE.to_owned(), Clone::clone),
        }),
    }
}

/// What each end has of its own, and what one kernel has for both: the former stands for the latter but for [`HYSTART`].
pub(crate) fn take_sysctls(settings: &Settings) -> Result<(Sysctls, u8, [Own; 2]), Unknown> {
    let own = |end: usize| {
        let mut from = Remaining(settings.sysctls[end].clone());
        let mtu = settings.mtu[end];
        if !(68..=65_536).contains(&mtu) {
            return Err(Unknown {
                name: "mtu".to_owned(),
                value: mtu.to_string(),
            });
        }
        let hystart = from.bit(HYSTART)?;
        let own = Own::take(&mut from.0, mtu);
        let own = own.map_err(|(name, value)| Unknown { name, value })?;
        from.end()?;
        Ok((own, hystart))
    };
    let ((client, hystart), (server, other)) = (own(0)?, own(1)?);
    if hystart != other {
        return Err(Unknown {
            name: format!("{HYSTART} of the accepting end"),
            value: u8::from(other).to_string(),
        });
    }
    let (sysctls, ttl) = client.shared(hystart);
    Ok((sysctls, ttl, [client, server]))
}

/// Whether a laboratory kernel can have the settings of a connection with these addresses.
///
/// # Errors
/// The first one that it cannot have.
pub fn possible(addresses: [SocketAddr; 2], settings: &Settings) -> Result<(), Unknown> {
    let connection = Connection {
        addresses,
        settings: settings.clone(),
        ends: Default::default(),
        joint: None,
    };
    take_sysctls(settings)?;
    take_kind(&connection).map(|_| ())
}

/// Of one that speaks IPv6.
fn check_ipv6(settings: &Settings) -> Result<(), Unknown> {
    match settings.mtu.iter().find(|mtu| **mtu < IPV6_MTU) {
        None => Ok(()),
        Some(mtu) => Err(Unknown {
            name: "mtu".to_owned(),
            value: format!("{mtu} with IPv6"),
        }),
    }
}

/// What a connection's sockets have.
pub(crate) fn take_kind(connection: &Connection) -> Result<Kind, Unknown> {
    let settings = &connection.settings;
    let ipv6 = connection.addresses[0].is_ipv6();
    if ipv6 {
        check_ipv6(settings)?;
    }
    let mut accepted = settings.socket[1].clone();
    let text = accepted.remove(READER).unwrap_or_default();
    let Some(reading) = take_reader(&text) else {
        return Err(Unknown {
            name: READER.to_owned(),
            value: text,
        });
    };
    let own = accepted.remove(RTO_MIN);
    let own = own.or_else(|| settings.socket[0].get(RTO_MIN).cloned());
    let mut own = Remaining(Values::from_iter(own.map(|own| (RTO_MIN.to_owned(), own))));
    let accepted_rto_min = Span::from_nanos(own.number(RTO_MIN, LONG)?);
    let mut opened = settings.socket[0].clone();
    opened.remove(RTO_MIN);
    same(&opened, &accepted)?;
    let mut from = Remaining(settings.socket[0].clone());
    let algorithm = from.text("congestion")?;
    if !ALGORITHMS.contains(&algorithm.as_str()) {
        return Err(Unknown {
            name: "congestion".to_owned(),
            value: algorithm,
        });
    }
    let kind = Kind {
        algorithm,
        rto_min: Span::from_nanos(from.number(RTO_MIN, LONG)?),
        accepted_rto_min,
        reading,
        rto_initial: Span::from_nanos(from.number("rto_initial_ns", LONG)?),
        initial_window: from.number("initial_window", 1 << 20)?,
        initial_ssthresh: from.number("initial_ssthresh", u64::from(u32::MAX))?,
        receive_window: from.number("receive_window", 1 << 30)?,
        mss: from.number("mss", 65_535)?,
        framing: 0,
        // Connections of a replay are opened as the recording says.
        flags: HANDSHAKE
            | if from.bit("ack_at_once")? {
                ACK_AT_ONCE
            } else {
                0
            }
            | if ipv6 { IPV6 } else { 0 },
    };
    from.end()?;
    Ok(kind)
}
