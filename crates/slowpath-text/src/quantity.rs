// SPDX-License-Identifier: Apache-2.0
//! Quantities with their units.

use slowpath_model::{Micros, WallMicros};
use std::time::{Duration, SystemTime};

/// A share as a percentage; a share that is not zero never reads `0%`, one that is not the
/// whole never `100%`.
pub fn percent(share: f64) -> String {
    let p = share * 100.0;
    if p <= 0.0 {
        "0%".to_owned()
    } else if p < 1.0 {
        "<1%".to_owned()
    } else if p > 99.0 && p < 100.0 {
        ">99%".to_owned()
    } else {
        format!("{p:.0}%")
    }
}

/// A quantity with a decimal prefix: `0`, `850`, `12.3k`, `4.20M`.
fn scaled(value: f64) -> String {
    const PREFIXES: [&str; 6] = ["", "k", "M", "G", "T", "P"];
    let (mut value, mut prefix) = (value.max(0.0), 0);
    // 999.5 would print as 1000.
    while value >= 999.5 && prefix + 1 < PREFIXES.len() {
        value /= 1000.0;
        prefix += 1;
    }
    let digits = match value {
        _ if prefix == 0 => 0,
        v if v >= 99.95 => 0,
        v if v >= 9.995 => 1,
        _ => 2,
    };
    format!("{value:.digits$}{}", PREFIXES[prefix])
}

/// Bytes with a binary prefix, as the classifier's advice writes them: `850 B`, `12.1 KiB`.
pub fn bytes(count: u64) -> String {
    const PREFIXES: [&str; 5] = ["KiB", "MiB", "GiB", "TiB", "PiB"];
    if count < 1024 {
        return format!("{count} B");
    }
    let (mut value, mut prefix) = (count as f64 / 1024.0, 0);
    // 1023.95 would print as 1024.0.
    while value >= 1023.95 && prefix + 1 < PREFIXES.len() {
        value /= 1024.0;
        prefix += 1;
    }
    format!("{value:.1} {}", PREFIXES[prefix])
}

/// A rate in bits a second, the unit of links: `12.3Mbit/s`.
pub fn bit_rate(bytes_per_second: f64) -> String {
    format!("{}bit/s", scaled(bytes_per_second * 8.0))
}

/// A count with a decimal prefix.
pub fn count(value: u64) -> String {
    scaled(value as f64)
}

/// `1 connection`, `2 connections`.
pub fn plural(count: u64, noun: &str) -> String {
    let ending = match (count, noun) {
        (1, _) => "",
        (_, noun) if noun.ends_with("ss") || noun.ends_with("ch") => "es",
        _ => "s",
    };
    format!("{count} {noun}{ending}")
}

/// A duration, or `-` for none.
pub fn time(value: Option<Micros>) -> String {
    value.map_or_else(|| "-".to_owned(), |t| t.to_string())
}

/// A moment as RFC 3339 in UTC with microseconds.
pub fn wall(time: WallMicros) -> String {
    let since = Duration::from_micros(time.0.max(0) as u64);
    humantime::format_rfc3339_micros(SystemTime::UNIX_EPOCH + since).to_string()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn numbers_have_three_digits_and_a_unit() {
        for (value, text) in [
            (0, "0"),
            (999, "999"),
            (1_000, "1.00k"),
            (12_345, "12.3k"),
            (99_960, "100k"),
            (999_499, "999k"),
            (999_500, "1.00M"),
        ] {
            assert_eq!(count(value), text, "{value}");
        }
        for (value, text) in [
            (1023, "1023 B"),
            (1024, "1.0 KiB"),
            (65_536, "64.0 KiB"),
            (1_048_575, "1.0 MiB"),
            (1 << 30, "1.0 GiB"),
        ] {
            assert_eq!(bytes(value), text, "{value}");
        }
        assert_eq!(bit_rate(125_000_000.0), "1.00Gbit/s");
    }

    #[test]
    fn a_percentage_never_rounds_something_to_nothing() {
        for (share, text) in [
            (0.0, "0%"),
            (0.001, "<1%"),
            (0.634, "63%"),
            (0.995, ">99%"),
            (1.0, "100%"),
        ] {
            assert_eq!(percent(share), text);
        }
    }
}
