// SPDX-License-Identifier: Apache-2.0
//! The messages, as JSON has them.

use crate::route::TraceOptions;
use serde::{Deserialize, Serialize};
use serde_json::Value;
use std::fmt;

/// Octets that JSON carries in hexadecimal: nonces, proofs, tokens.
#[derive(Clone, Copy, PartialEq, Eq, Hash)]
pub struct Octets<const N: usize>(pub [u8; N]);

impl<const N: usize> fmt::Debug for Octets<N> {
    // Tokens and proofs do not get into messages.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Octets<{N}>")
    }
}

impl<const N: usize> Serialize for Octets<N> {
    fn serialize<S: serde::Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        let digit = |nibble: u8| char::from_digit(nibble.into(), 16).unwrap_or('0');
        let digits = self.0.iter().flat_map(|octet| [octet >> 4, octet & 15]);
        serializer.serialize_str(&digits.map(digit).collect::<String>())
    }
}

impl<'de, const N: usize> Deserialize<'de> for Octets<N> {
    fn deserialize<D: serde::Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        let text = String::deserialize(deserializer)?;
        let wrong = || serde::de::Error::custom(format!("not {N} octets in hexadecimal"));
        if text.len() != 2 * N || !text.bytes().all(|byte| byte.is_ascii_hexdigit()) {
            return Err(wrong());
        }
        let mut octets = [0; N];
        for (octet, digits) in octets.iter_mut().zip(text.as_bytes().chunks(2)) {
            let digits = std::str::from_utf8(digits).map_err(|_| wrong())?;
            *octet = u8::from_str_radix(digits, 16).map_err(|_| wrong())?;
        }
        Ok(Octets(octets))
    }
}

/// What joins a data connection to what was asked.
pub type Token = Octets<16>;

/// The first message of a client.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Opening {
    /// It will ask for something.
    Control {
        /// The client's nonce.
        nonce: Octets<32>,
        /// The name of its key; none in open mode.
        #[serde(default)]
        key: Option<String>,
        /// That it knows the key.
        #[serde(default)]
        proof: Option<Octets<32>>,
    },
    /// It carries data of what was asked on another connection.
    Data {
        /// Of what.
        token: Token,
        /// Which data.
        use_for: DataUse,
    },
}

/// What a data connection is for.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum DataUse {
    /// A stream of a throughput test.
    Stream,
    /// Probes of the round trip, which the server returns.
    Delay,
}

/// The server's answer to an [`Opening`].
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Opened {
    /// Go on; with a key, the proof that the server knows it too.
    Welcome {
        /// The server's proof.
        #[serde(default)]
        proof: Option<Octets<32>>,
    },
    /// Why not; the connection ends.
    Refused {
        /// The reason.
        reason: Refusal,
    },
}

/// Why a server refuses.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Refusal {
    /// It answers only clients with a key, and this one named none, an unknown one, or has another passphrase.
    Key,
    /// No request has that token, or not from this address, or it has all its connections.
    Token,
    /// It does not know the request; it may be older.
    UnknownRequest,
    /// The request is for more than the server's limits allow.
    OverLimit,
    /// Another test of this client, or as many as it runs at a time, is under way.
    Busy,
    /// This client asked for too many within a minute.
    TooOften,
    /// It does not answer this kind of request.
    NotOffered,
    /// The request needs something that this host does not have (a congestion control).
    Unavailable,
    /// The client's data connections did not come, or something failed at the server.
    Failed,
    /// A reason of a newer version.
    #[serde(other)]
    Other,
}

impl fmt::Display for Refusal {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Refusal::Key => {
                "it answers only clients that know one of its keys: name one with -u NAME -k FILE, and compare the files"
            }
            Refusal::Token => "it knows no test with this token",
            Refusal::UnknownRequest => "it does not know this request: update the slowpath there",
            Refusal::OverLimit => "the test is over its limits (`slowpath path serve --help`)",
            Refusal::Busy => "another test is under way there: try again when it is through",
            Refusal::TooOften => "too many tests within a minute: try again in a minute",
            Refusal::NotOffered => {
                "it does not answer this kind of request (`slowpath path serve --help`)"
            }
            Refusal::Unavailable => {
                "its host does not have the congestion control that was asked for"
            }
            Refusal::Failed => "something failed there",
            Refusal::Other => "it has a reason that this slowpath does not know",
        })
    }
}

/// What a client says after the opening.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Command {
    /// Asks for something: a [`Request`], read when its kind is known.
    Ask {
        /// The request.
        request: Value,
    },
    /// Everything is in place.
    Start {},
    /// It is to end now.
    Stop {},
}

impl Command {
    /// Asks.
    #[must_use]
    pub fn ask(request: &Request) -> Self {
        Command::Ask {
            // Of plain numbers and texts: it always becomes JSON.
            request: serde_json::to_value(request).unwrap_or(Value::Null),
        }
    }
}

/// What can be asked for. A server that does not know one says so ([`Refusal::UnknownRequest`]).
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Request {
    /// Move octets by TCP, as fast as it goes.
    Throughput(ThroughputRequest),
    /// Trace the route to the requester's own address, by UDP. `Answer::Finished` has a [`crate::route::Route`].
    Route(TraceOptions),
}

/// Which end sends.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Direction {
    /// The client.
    There,
    /// The server.
    Back,
}

/// A test of TCP's throughput.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct ThroughputRequest {
    /// Which end sends.
    pub direction: Direction,
    /// TCP connections.
    pub streams: u16,
    /// What counts, milliseconds.
    pub length_ms: u64,
    /// What passes before that, milliseconds.
    pub warm_up_ms: u64,
    /// The server's socket options.
    #[serde(default)]
    pub options: StreamOptions,
}

/// Options of the sockets of one end.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
pub struct StreamOptions {
    /// Congestion control (TCP_CONGESTION); none: the host's own.
    pub congestion: Option<String>,
    /// SO_SNDBUF, octets.
    pub send_buffer: Option<u32>,
    /// SO_RCVBUF, octets.
    pub receive_buffer: Option<u32>,
    /// TCP_MAXSEG, octets.
    pub mss: Option<u32>,
    /// SO_MAX_PACING_RATE of one stream, octets a second.
    pub pace: Option<u64>,
}

/// What a server says after the opening.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Answer {
    /// The request can be served; data connections bring this token.
    Accepted {
        /// The token.
        token: Token,
    },
    /// It cannot.
    Refused {
        /// Why.
        reason: Refusal,
    },
    /// It has begun.
    Started {},
    /// It is through: the result, as the request defines it.
    Finished {
        /// The result.
        result: Value,
    },
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn octets_are_hexadecimal_of_exactly_their_length() {
        let token: Token =
            serde_json::from_str("\"000102030405060708090a0b0c0d0eFF\"").expect("16");
        assert_eq!(token.0[..3], [0, 1, 2]);
        assert_eq!(token.0[15], 255);
        let text = serde_json::to_string(&token).expect("text");
        assert_eq!(text, "\"000102030405060708090a0b0c0d0eff\"");
        for wrong in [
            "\"00\"",
            "\"+00102030405060708090a0b0c0d0e0f\"",
            "7",
            "null",
        ] {
            assert!(serde_json::from_str::<Token>(wrong).is_err(), "{wrong}");
        }
    }

    #[test]
    fn a_refusal_of_a_newer_version_is_still_a_refusal() {
        let answer: Answer =
            serde_json::from_str("{\"refused\":{\"reason\":\"moon_phase\"}}").expect("read");
        let reason = Refusal::Other;
        assert_eq!(answer, Answer::Refused { reason });
    }

    proptest! {
        #[test]
        fn any_text_is_read_or_refused(text in ".{0,200}") {
            let _ = serde_json::from_str::<Opening>(&text);
            let _ = serde_json::from_str::<Command>(&text);
            let _ = serde_json::from_str::<Answer>(&text);
        }
    }
}
