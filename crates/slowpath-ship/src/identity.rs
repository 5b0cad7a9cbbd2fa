// SPDX-License-Identifier: Apache-2.0
//! Who a host is: its name in a certificate, and the token that invites it.

pub use slowpath_model::HostName;

use std::fmt;
use std::str::FromStr;

/// What a host's name in a certificate begins with: a SAN of type URI (RFC 5280 section 4.2.1.6).
const URI: &str = "slowpath:host/";

/// The name of a host in its certificate.
pub fn san_uri(host: &HostName) -> String {
    format!("{URI}{host}")
}

/// The host that a SAN of type URI names; `None` if it names none.
pub fn host_of_san_uri(uri: &str) -> Option<HostName> {
    uri.strip_prefix(URI)?.parse().ok()
}

/// A SHA-256 digest.
#[derive(Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct Sha256(pub [u8; 32]);

impl Sha256 {
    /// The digest of `bytes`.
    pub fn of(bytes: &[u8]) -> Self {
        let digest = ring::digest::digest(&ring::digest::SHA256, bytes);
        let mut sha256 = [0; 32];
        sha256.copy_from_slice(digest.as_ref());
        Sha256(sha256)
    }
}

impl fmt::Display for Sha256 {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&hex(&self.0))
    }
}

impl fmt::Debug for Sha256 {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Display::fmt(self, f)
    }
}

impl FromStr for Sha256 {
    type Err = TokenError;

    fn from_str(text: &str) -> Result<Self, TokenError> {
        unhex(text).map(Sha256).ok_or(TokenError)
    }
}

/// The hash of a bundle of CA certificates, each in DER: SHA-256 of their SHA-256 digests, sorted,
/// so that their order does not matter.
pub fn bundle_hash<'a>(certificates: impl IntoIterator<Item = &'a [u8]>) -> Sha256 {
    let mut digests: Vec<Sha256> = certificates.into_iter().map(Sha256::of).collect();
    digests.sort_unstable();
    Sha256::of(&digests.iter().flat_map(|d| d.0).collect::<Vec<u8>>())
}

/// An invitation of one host, as `slowpath server invite` prints it:
/// `sp1.HOST.ID.SECRET.FINGERPRINT`.
#[derive(Clone, PartialEq, Eq)]
pub struct Token {
    /// The host that is invited.
    pub host: HostName,
    /// Which invitation it is; no secret.
    pub id: u64,
    /// 128 random bits, of which the server has the digest only.
    pub secret: [u8; 16],
    /// SHA-256 of the certificate, in DER, of the CA that signed the server's own.
    pub fingerprint: Sha256,
}

const VERSION: &str = "sp1";

/// A text that is no token; it is not shown, because most of it may be a secret.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error(
    "this is no token: it has the form sp1.HOST.ID.SECRET.FINGERPRINT, all of what \
     'slowpath server invite HOST' printed"
)]
pub struct TokenError;

impl Token {
    /// What the server keeps of the secret.
    pub fn secret_digest(&self) -> Sha256 {
        Sha256::of(&self.secret)
    }
}

impl fmt::Display for Token {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Token {
            host,
            id,
            secret,
            fingerprint,
        } = self;
        write!(
            f,
            "{VERSION}.{host}.{id:016x}.{}.{fingerprint}",
            hex(secret)
        )
    }
}

/// Without the secret.
impl fmt::Debug for Token {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Token")
            .field("host", &self.host)
            .field("id", &self.id)
            .finish_non_exhaustive()
    }
}

impl FromStr for Token {
    type Err = TokenError;

    fn from_str(text: &str) -> Result<Self, TokenError> {
        let parse = || {
            let rest = text.trim().strip_prefix(VERSION)?.strip_prefix('.')?;
            // A host's name may have dots.
            let mut parts = rest.rsplitn(4, '.');
            let fingerprint = Sha256(unhex(parts.next()?)?);
            let secret = unhex(parts.next()?)?;
            let id = u64::from_be_bytes(unhex(parts.next()?)?);
            let host = parts.next()?.parse().ok()?;
            Some(Token {
                host,
                id,
                secret,
                fingerprint,
            })
        };
        parse().ok_or(TokenError)
    }
}

fn hex(bytes: &[u8]) -> String {
    bytes.iter().map(|byte| format!("{byte:02x}")).collect()
}

fn unhex<const N: usize>(text: &str) -> Option<[u8; N]> {
    let digits = text.as_bytes();
    if digits.len() != 2 * N {
        return None;
    }
    let mut bytes = [0; N];
    for (byte, pair) in bytes.iter_mut().zip(digits.chunks(2)) {
        let value = |digit: u8| char::from(digit).to_digit(16);
        *byte = (value(pair[0])? << 4 | value(pair[1])?) as u8;
    }
    Some(bytes)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn token() -> Token {
        Token {
            host: "web-17.example.org".parse().unwrap(),
            id: 0x0123,
            secret: *b"0123456789abcdef",
            fingerprint: Sha256::of(b"a certificate"),
        }
    }

    #[test]
    fn a_printed_token_is_read_back() {
        let printed = token().to_string();
        let begins = "sp1.web-17.example.org.0000000000000123.30313233343536373839616263646566.";
        assert!(printed.starts_with(begins), "{printed}");
        assert_eq!(printed.parse(), Ok(token()));
        assert_eq!(format!(" {printed}\n").parse(), Ok(token()));
    }

    #[test]
    fn a_cut_off_or_foreign_token_is_refused() {
        let printed = token().to_string();
        for length in 0..printed.len() {
            assert_eq!(
                printed[..length].parse::<Token>(),
                Err(TokenError),
                "{length}"
            );
        }
        for wrong in [
            printed.replace("sp1.", "sp2."),
            printed.replace("web-17.example.org.", "../etc."),
            printed.replace(".0000", ".+000"),
            printed.replace(".0000", ".\u{e9}00"),
        ] {
            assert_eq!(wrong.parse::<Token>(), Err(TokenError), "{wrong}");
        }
    }

    #[test]
    fn no_log_line_shows_the_secret() {
        assert!(!format!("{:?}", token()).contains("3031323334"));
        assert!(!TokenError.to_string().contains("3031323334"));
    }

    #[test]
    fn a_certificate_names_a_host_that_a_path_can_have() {
        let host: HostName = "web-17".parse().unwrap();
        assert_eq!(host_of_san_uri(&san_uri(&host)), Some(host));
        for wrong in [
            "web-17",
            "slowpath:host/",
            "slowpath:host/a/b",
            "spiffe://a/b",
        ] {
            assert_eq!(host_of_san_uri(wrong), None);
        }
    }

    #[test]
    fn the_order_of_a_bundle_does_not_change_its_hash() {
        let (a, b): (&[u8], &[u8]) = (b"a", b"b");
        assert_eq!(bundle_hash([a, b]), bundle_hash([b, a]));
        assert_ne!(bundle_hash([a]), bundle_hash([a, b]));
    }
}
