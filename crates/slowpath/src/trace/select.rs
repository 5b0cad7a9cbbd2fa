// SPDX-License-Identifier: Apache-2.0
//! Which connection is meant.

use slowpath_trace::segment::Endpoint;
use std::fmt;
use std::net::SocketAddr;
use std::str::FromStr;

/// A connection by its number, or by its ends.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Which {
    /// The n-th of the capture, from 1.
    Number(u64),
    /// Between these ends, whoever opened it.
    Ends(Endpoint, Endpoint),
}

impl Which {
    /// Whether that is the connection.
    pub fn is(self, number: u64, client: Endpoint, server: Endpoint) -> bool {
        match self {
            Which::Number(n) => n == number,
            Which::Ends(a, b) => (a, b) == (client, server) || (a, b) == (server, client),
        }
    }
}

impl FromStr for Which {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        const WRONG: &str = "write a number from the list, or both ends as A:PORT-B:PORT";
        if let Ok(number) = text.parse() {
            return match number {
                0 => Err("connections are numbered from 1".to_owned()),
                number => Ok(Which::Number(number)),
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
        Ok(Which::Ends(end(a)?, end(b)?))
    }
}

impl fmt::Display for Which {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Which::Number(number) => write!(f, "connection {number}"),
            Which::Ends(a, b) => write!(f, "connection {}-{}", end(*a), end(*b)),
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
        let which: Which = "10.0.0.1:80-[2001:db8::1]:443".parse().unwrap();
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
        assert!(which.is(9, a, b) && which.is(9, b, a) && !which.is(9, a, a));
        assert_eq!(
            which.to_string(),
            "connection 10.0.0.1:80-[2001:db8::1]:443"
        );
        assert!(Which::Number(2).is(2, a, b));
        for wrong in ["", "0", "-1", "10.0.0.1-10.0.0.2", "x:1-y:2"] {
            assert!(wrong.parse::<Which>().is_err(), "{wrong}");
        }
    }
}
