// SPDX-License-Identifier: Apache-2.0
//! Where a server is.

use std::fmt;
use std::str::FromStr;

/// The port of a server that states none.
pub const DEFAULT_PORT: u16 = 7443;

/// A server's host and port.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ServerAddress {
    /// A name, an IPv4 address, or an IPv6 address in brackets.
    host: String,
    port: u16,
}

impl ServerAddress {
    /// The URL of a path there.
    pub(super) fn url(&self, path: &str) -> String {
        format!("https://{self}{path}")
    }
}

impl fmt::Display for ServerAddress {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}:{}", self.host, self.port)
    }
}

impl FromStr for ServerAddress {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        let wrong = || {
            format!(
                "a server is HOST, HOST:PORT or [IPV6]:PORT (port {DEFAULT_PORT} unless stated), \
                 not {text:?}"
            )
        };
        let rest = text.strip_prefix("https://").unwrap_or(text);
        let rest = rest.strip_suffix('/').unwrap_or(rest);
        let (host, port) = match rest.rsplit_once(':') {
            Some((host, port)) if !port.ends_with(']') => {
                (host, port.parse().map_err(|_| wrong())?)
            }
            _ => (rest, DEFAULT_PORT),
        };
        let is_v6 = host
            .strip_prefix('[')
            .and_then(|h| h.strip_suffix(']'))
            .is_some_and(|h| h.parse::<std::net::Ipv6Addr>().is_ok());
        let of_name = |b: u8| b.is_ascii_alphanumeric() || matches!(b, b'.' | b'-' | b'_');
        let is_name = !host.is_empty() && host.len() <= 253 && host.bytes().all(of_name);
        if port == 0 || !(is_v6 || is_name) {
            return Err(wrong());
        }
        Ok(ServerAddress {
            host: host.to_owned(),
            port,
        })
    }
}

/// Which server an agent ships to.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub enum ServerChoice {
    /// The one that was joined, if one was.
    #[default]
    Joined,
    /// None, whatever was joined.
    None,
    /// The one that was joined, which is now here.
    At(ServerAddress),
}

impl fmt::Display for ServerChoice {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            ServerChoice::Joined => f.write_str("joined"),
            ServerChoice::None => f.write_str("none"),
            ServerChoice::At(address) => address.fmt(f),
        }
    }
}

impl FromStr for ServerChoice {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        match text {
            "joined" => Ok(ServerChoice::Joined),
            "none" => Ok(ServerChoice::None),
            address => address.parse().map(ServerChoice::At),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_server_is_a_host_and_perhaps_a_port() {
        for (text, printed) in [
            ("fleet.example", "fleet.example:7443"),
            ("fleet.example:443", "fleet.example:443"),
            ("https://fleet.example:443/", "fleet.example:443"),
            ("10.0.0.1", "10.0.0.1:7443"),
            ("[2001:db8::1]", "[2001:db8::1]:7443"),
            ("[2001:db8::1]:443", "[2001:db8::1]:443"),
        ] {
            let address: ServerAddress = text.parse().unwrap();
            assert_eq!(address.to_string(), printed);
        }
        for wrong in [
            "",
            ":443",
            "a b",
            "a:0",
            "a:x",
            "http://a",
            "a/b",
            "2001:db8::1",
            "[::1",
        ] {
            assert!(wrong.parse::<ServerAddress>().is_err(), "{wrong}");
        }
    }
}
