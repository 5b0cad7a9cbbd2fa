// SPDX-License-Identifier: Apache-2.0
//! MESH.toml.

use crate::schedule::Slots;
use serde::Deserialize;
use std::collections::BTreeSet;
use std::net::SocketAddr;
use std::path::{Path, PathBuf};
use std::time::Duration;

/// The most peers: each takes a thread and two sessions' sockets.
const MOST_PEERS: usize = 200;

/// The most octets of the file.
const MOST_OCTETS: u64 = 1 << 20;

/// The most packets of a stretch.
const MOST_PACKETS: f64 = 1_000_000.0;

/// Why a file is no mesh.
#[derive(Debug, thiserror::Error)]
pub enum MeshError {
    /// It cannot be read.
    #[error("cannot read {file}: {source}")]
    Read {
        /// Which.
        file: PathBuf,
        /// Why.
        source: std::io::Error,
    },
    /// It is no TOML, or has keys that mean nothing.
    #[error("{file}: {source}")]
    Toml {
        /// Which.
        file: PathBuf,
        /// Why.
        source: Box<toml::de::Error>,
    },
    /// It says something impossible.
    #[error("{file}: {what}")]
    Impossible {
        /// Which.
        file: PathBuf,
        /// What.
        what: String,
    },
}

/// A mesh.
#[derive(Clone, Debug, Deserialize)]
#[serde(rename_all = "kebab-case", deny_unknown_fields)]
pub struct MeshFile {
    /// Where metrics are served.
    pub listen: Option<SocketAddr>,
    /// How long a stretch is.
    #[serde(default = "minute", deserialize_with = "duration")]
    pub stretch: Duration,
    /// Each peer.
    pub peer: Vec<MeshPeer>,
}

/// A peer.
#[derive(Clone, Debug, Deserialize)]
#[serde(rename_all = "kebab-case", deny_unknown_fields)]
pub struct MeshPeer {
    /// Its name, a label of its metrics.
    pub name: String,
    /// A host, or HOST:PORT.
    pub address: String,
    /// `owamp`, `twamp`, `twamp-light` or `stamp`.
    #[serde(default = "owamp")]
    pub protocol: String,
    /// The schedule.
    #[serde(default = "tenth", deserialize_with = "slots")]
    pub interval: Slots,
    /// Octets of padding.
    #[serde(default)]
    pub padding: u16,
    /// A packet that takes longer is lost, s.
    #[serde(default = "ten")]
    pub timeout: f64,
    /// DSCP of the packets.
    #[serde(default)]
    pub dscp: u8,
    /// The name of the key.
    pub user: Option<String>,
    /// The file with the keys.
    pub keys: Option<PathBuf>,
}

fn minute() -> Duration {
    Duration::from_secs(60)
}

fn owamp() -> String {
    "owamp".to_owned()
}

fn tenth() -> Slots {
    "0.1e".parse().expect("a schedule")
}

fn ten() -> f64 {
    10.0
}

fn duration<'de, D: serde::Deserializer<'de>>(from: D) -> Result<Duration, D::Error> {
    let text = String::deserialize(from)?;
    humantime::parse_duration(&text).map_err(serde::de::Error::custom)
}

fn slots<'de, D: serde::Deserializer<'de>>(from: D) -> Result<Slots, D::Error> {
    let text = String::deserialize(from)?;
    text.parse().map_err(serde::de::Error::custom)
}

impl MeshFile {
    /// Reads one.
    ///
    /// # Errors
    /// See [`MeshError`].
    pub fn load(file: &Path) -> Result<Self, MeshError> {
        let bytes = slowpath_files::read(file, MOST_OCTETS).map_err(|source| MeshError::Read {
            file: file.to_owned(),
            source,
        })?;
        Self::parse(&String::from_utf8_lossy(&bytes), file)
    }

    /// Reads the text of `file`.
    ///
    /// # Errors
    /// See [`MeshError`].
    pub fn parse(text: &str, file: &Path) -> Result<Self, MeshError> {
        let mesh: MeshFile = toml::from_str(text).map_err(|source| MeshError::Toml {
            file: file.to_owned(),
            source: Box::new(source),
        })?;
        match mesh.impossible() {
            None => Ok(mesh),
            Some(what) => Err(MeshError::Impossible {
                file: file.to_owned(),
                what,
            }),
        }
    }

    fn impossible(&self) -> Option<String> {
        let hour = Duration::from_secs(3_600);
        if self.stretch < Duration::from_secs(1) || self.stretch > hour {
            return Some("stretch: write 1s to 1h".to_owned());
        }
        if self.peer.is_empty() || self.peer.len() > MOST_PEERS {
            return Some(format!("[[peer]]: write 1 to {MOST_PEERS} of them"));
        }
        let mut names = BTreeSet::new();
        self.peer.iter().find_map(|peer| {
            let name = &peer.name;
            let wrong = |what: &str| Some(format!("peer \"{name}\": {what}"));
            if !names.insert(name) {
                return wrong("there are two of this name");
            }
            if !["owamp", "twamp", "twamp-light", "stamp"].contains(&peer.protocol.as_str()) {
                return wrong("protocol: write owamp, twamp, twamp-light or stamp");
            }
            if !(0.001..=3_600.0).contains(&peer.timeout) {
                return wrong("timeout: write 0.001 to 3600 s");
            }
            if peer.dscp > 63 {
                return wrong("dscp: write a number below 64");
            }
            if peer.padding > 65_000 {
                return wrong("padding: write at most 65000");
            }
            if peer.user.is_some() != peer.keys.is_some() {
                return wrong("user and keys need each other");
            }
            let mean = peer.interval.mean().as_duration().as_secs_f64();
            let packets = self.stretch.as_secs_f64() / mean.max(1e-9);
            (packets > MOST_PACKETS).then(|| {
                format!("peer \"{name}\": interval: more than a million packets a stretch")
            })
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn parse(text: &str) -> Result<MeshFile, String> {
        MeshFile::parse(text, Path::new("m.toml")).map_err(|error| error.to_string())
    }

    #[test]
    fn a_peer_needs_a_name_and_an_address_only() {
        let mesh = parse("[[peer]]\nname = \"b\"\naddress = \"192.0.2.1\"\n").expect("a mesh");
        assert_eq!((mesh.stretch, mesh.listen), (Duration::from_secs(60), None));
        let peer = &mesh.peer[0];
        assert_eq!(
            (peer.protocol.as_str(), peer.timeout, peer.padding),
            ("owamp", 10.0, 0)
        );
        assert_eq!(peer.interval, "0.1e".parse().expect("a schedule"));
    }

    #[test]
    fn what_is_impossible_is_named_with_its_peer() {
        let peer = "[[peer]]\nname = \"b\"\naddress = \"b\"\n";
        for (text, named) in [
            (format!("{peer}{peer}"), "two of this name"),
            (format!("{peer}protocol = \"ping\"\n"), "owamp, twamp"),
            (format!("{peer}timout = 3.0\n"), "timout"),
            (format!("{peer}interval = \"0f\"\n"), "million"),
            (format!("{peer}user = \"u\"\n"), "need each other"),
            (format!("stretch = \"2h\"\n{peer}"), "1s to 1h"),
            ("peer = []\n".to_owned(), "1 to 200"),
        ] {
            let error = parse(&text).expect_err(named);
            assert!(
                error.contains(named) && error.starts_with("m.toml"),
                "{error}"
            );
        }
    }
}
