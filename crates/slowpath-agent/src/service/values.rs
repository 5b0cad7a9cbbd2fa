// SPDX-License-Identifier: Apache-2.0
//! The values of an agent's settings: the same text in the configuration file and on the
//! command line.

use serde::{Deserialize, Deserializer};
use slowpath_recorder::handlers::MOST_PORTS;
use std::fmt;
use std::path::PathBuf;
use std::str::FromStr;
use std::time::Duration;

/// Reads a value of the file as the command line does (serde's `deserialize_with`).
///
/// # Errors
/// When it is no text, or [`FromStr`] refuses it.
pub fn as_text<'de, D, T>(deserializer: D) -> Result<Option<T>, D::Error>
where
    D: Deserializer<'de>,
    T: FromStr<Err: fmt::Display>,
{
    let text = String::deserialize(deserializer)?;
    text.parse().map(Some).map_err(serde::de::Error::custom)
}

/// A length of time that is not zero, as `500ms` or `1h30m`.
///
/// # Errors
/// What is wrong with it, and how to write it.
pub fn duration(text: &str) -> Result<Duration, String> {
    let duration = humantime::parse_duration(text)
        .map_err(|e| format!("{e}; write a duration as 500ms, 30s, 10m, 2h or 1h30m"))?;
    if duration.is_zero() {
        return Err("must be more than nothing".to_owned());
    }
    Ok(duration)
}

/// Bounds of `--interval`: below, polling costs more than it shows; above, verdicts blur.
const INTERVALS: std::ops::RangeInclusive<Duration> =
    Duration::from_millis(10)..=Duration::from_secs(3600);

/// A time between two polls, from 10 ms to 1 h.
///
/// # Errors
/// What is wrong with it, and how to write it.
pub fn interval(text: &str) -> Result<Duration, String> {
    let duration = duration(text)?;
    if !INTERVALS.contains(&duration) {
        return Err("must be between 10ms and 1h".to_owned());
    }
    Ok(duration)
}

/// Where the log is kept.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum LogPlace {
    /// Nowhere.
    None,
    /// In this directory.
    Directory(PathBuf),
}

impl FromStr for LogPlace {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        match text {
            "" => Err("name a directory, or write none".to_owned()),
            "none" => Ok(LogPlace::None),
            directory => Ok(LogPlace::Directory(directory.into())),
        }
    }
}

impl fmt::Display for LogPlace {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            LogPlace::None => f.write_str("none"),
            LogPlace::Directory(directory) => directory.display().fmt(f),
        }
    }
}

/// Mean time between two polls.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct PollInterval(pub Duration);

impl FromStr for PollInterval {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        interval(text).map(PollInterval)
    }
}

impl fmt::Display for PollInterval {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        humantime::format_duration(self.0).fmt(f)
    }
}

/// A length of time that is not zero.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Age(pub Duration);

impl FromStr for Age {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        duration(text).map(Age)
    }
}

impl fmt::Display for Age {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        humantime::format_duration(self.0).fmt(f)
    }
}

/// A number of bytes that is not zero.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Size(pub u64);

/// Units of sizes: IEC 80000-13 for the binary ones.
const UNITS: [(&str, u64); 9] = [
    ("B", 1),
    ("kB", 1_000),
    ("MB", 1_000_000),
    ("GB", 1_000_000_000),
    ("TB", 1_000_000_000_000),
    ("KiB", 1 << 10),
    ("MiB", 1 << 20),
    ("GiB", 1 << 30),
    ("TiB", 1 << 40),
];

impl FromStr for Size {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        const HINT: &str = "write a size as 500MB, 1GiB or 20GiB";
        let digits = text.bytes().take_while(u8::is_ascii_digit).count();
        let (number, unit) = text.split_at(digits);
        let number: u64 = number.parse().map_err(|_| HINT.to_owned())?;
        let unit = unit.trim_start();
        let factor = UNITS
            .iter()
            .find(|(name, _)| *name == unit)
            .map(|(_, factor)| *factor)
            .ok_or_else(|| HINT.to_owned())?;
        match number.checked_mul(factor) {
            None => Err("too large".to_owned()),
            Some(0) => Err("must be more than nothing".to_owned()),
            Some(bytes) => Ok(Size(bytes)),
        }
    }
}

impl fmt::Display for Size {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let (name, factor) = UNITS
            .iter()
            .filter(|(_, factor)| self.0.is_multiple_of(*factor))
            .max_by_key(|(_, factor)| *factor)
            .unwrap_or(&UNITS[0]);
        write!(f, "{}{name}", self.0 / factor)
    }
}

/// Ports, as in `80,443`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Ports(pub Vec<u16>);

impl FromStr for Ports {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        let port = |text: &str| text.trim().parse::<u16>().ok().filter(|port| *port > 0);
        let ports: Option<Vec<u16>> = text.split(',').map(port).collect();
        match ports {
            None => Err("write ports as 80,443".to_owned()),
            Some(ports) if ports.len() > MOST_PORTS => {
                Err(format!("at most {MOST_PORTS} ports can be recorded"))
            }
            Some(ports) => Ok(Ports(ports)),
        }
    }
}

impl fmt::Display for Ports {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let ports: Vec<String> = self.0.iter().map(u16::to_string).collect();
        f.write_str(&ports.join(","))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn sizes_have_units() {
        for (text, bytes) in [
            ("1GiB", 1_073_741_824),
            ("20 GB", 20_000_000_000),
            ("7B", 7),
            ("1536KiB", 1_572_864),
        ] {
            let size: Size = text.parse().unwrap();
            assert_eq!(size.0, bytes);
            assert_eq!(size.to_string().parse(), Ok(size));
        }
        for wrong in [
            "",
            "1",
            "GiB",
            "0MB",
            "-1MB",
            "1.5GiB",
            "1gib",
            "99999999TiB",
        ] {
            assert!(wrong.parse::<Size>().is_err(), "{wrong}");
        }
    }

    #[test]
    fn no_log_is_a_word() {
        assert_eq!("none".parse(), Ok(LogPlace::None));
        assert_eq!(
            "./none".parse(),
            Ok(LogPlace::Directory(PathBuf::from("./none")))
        );
        assert!("".parse::<LogPlace>().is_err());
    }

    #[test]
    fn ports_are_numbers() {
        assert_eq!("80, 443".parse(), Ok(Ports(vec![80, 443])));
        for wrong in ["", "0", "http", "80,", "65536"] {
            assert!(wrong.parse::<Ports>().is_err(), "{wrong}");
        }
        assert!(["1"; 17].join(",").parse::<Ports>().is_err());
    }
}
