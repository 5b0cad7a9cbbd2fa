// SPDX-License-Identifier: Apache-2.0
//! Selects one connection of a capture, by number or by its ends.

use crate::segment::Endpoint;
use std::fmt;
use std::net::SocketAddr;
use std::str::FromStr;

/// A connection by its number, or by its ends.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ConnectionSelector {
    /// The n-th of the capture, counted from 1.
    Number(u64),
    /// The one between these ends, in either order.
    Ends(Endpoint, Endpoint),
}

impl ConnectionSelector {
    /// The number, if it is one.
    pub fn number(self) -> Option<u64> {
        match self {
            ConnectionSelector::Number(number) => Some(number),
            ConnectionSelector::Ends(..) => None,
        }
    }

    /// Whether it selects this connection.
    pub fn selects(self, number: u64, client: Endpoint, server: Endpoint) -> bool {
        match self {
            ConnectionSelector::Number(n) => n == number,
            ConnectionSelector::Ends(a, b) => {
                (a, b) == (client, server) || (a, b) == (server, client)
            }
        }
    }
}

impl FromStr for ConnectionSelector {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        const WRONG: &str = "write a number from the list, or both ends as A:PORT-B:PORT";
        if let Ok(number) = text.parse() {
            return match number {
                0 => Err("connections are ranked from 1".to_owned()),
                number => Ok(ConnectionSelector::Number(number)),
            };
        }
        let (a, b) = text.split_once('-').ok_or(WRONG)?;
        let end = |text: &str| {
            let address: SocketAddr = text.trim().parse().map_err(|_| WRONG.to_owned())?;
            Ok::<_, String>(Endpoint {
                address: address.ip().to_canonical(),
                port: address.port(),
            })
        };
        Ok(ConnectionSelector::Ends(end(a)?, end(b)?))
    }
}

impl fmt::Display for ConnectionSelector {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            ConnectionSelector::Number(number) => write!(f, "connection {number}"),
            ConnectionSelector::Ends(a, b) => write!(f, "connection {}-{}", end(*a), end(*b)),
        }
    }
}

/// Address and port, IPv6 in brackets.
pub fn end(end: Endpoint) -> String {
    SocketAddr::new(end.address, end.port).to_string()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ends_fit_either_way_round() {
        let which: ConnectionSelector = "10.0.0.1:80-[2001:db8::1]:443".parse().unwrap();
        let at = |text: &str| match text.parse().unwrap() {
            SocketAddr::V4(a) => Endpoint {
                address: (*a.ip()).into(),
                port: a.port(),
            },
            SocketAddr::V6(a) => Endpoint {
                address: (*a.ip()).into(),
                port: a.port(),
            },
        };
        let (a, b) = (at("10.0.0.1:80"), at("[2001:db8::1]:443"));
        assert!(which.selects(9, a, b) && which.selects(9, b, a) && !which.selects(9, a, a));
        assert_eq!(
            which.to_string(),
            "connection 10.0.0.1:80-[2001:db8::1]:443"
        );
        assert!(ConnectionSelector::Number(2).selects(2, a, b));
        for wrong in ["", "0", "-1", "10.0.0.1-10.0.0.2", "x:1-y:2"] {
            assert!(wrong.parse::<ConnectionSelector>().is_err(), "{wrong}");
        }
    }
}
