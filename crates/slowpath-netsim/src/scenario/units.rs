// SPDX-License-Identifier: Apache-2.0
//! Quantities as the field writes them: `10 us`, `1.5 Gbit/s`, `2 MB`, `100 packets`.
//!
//! Decimal prefixes are powers of 1,000, also of bytes; `KiB` and its like are powers of
//! 1,024. Numbers are read exactly: what is not a whole number of picoseconds, bits a second
//! or bytes is an error, not rounded.

/// What is wrong with a quantity.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum UnitError {
    /// It does not begin with a number.
    #[error("a number and a unit are wanted, as in '{0}'")]
    NoNumber(&'static str),
    /// No unit, or none that is known.
    #[error("the unit is one of {}", .0.join(", "))]
    Unit(Vec<&'static str>),
    /// Finer than the grain.
    #[error("not a whole number of {0}")]
    NotWhole(&'static str),
    /// Does not fit.
    #[error("too large")]
    TooLarge,
}

/// A dimension: its units in grains.
pub(super) struct Dimension {
    pub(super) example: &'static str,
    grain: &'static str,
    units: &'static [(&'static str, u64)],
}

/// In picoseconds.
pub(super) const TIME: Dimension = Dimension {
    example: "10 us",
    grain: "picoseconds",
    units: &[
        ("s", 1_000_000_000_000),
        ("ms", 1_000_000_000),
        ("us", 1_000_000),
        ("ns", 1_000),
        ("ps", 1),
        ("\u{b5}s", 1_000_000),
        ("min", 60_000_000_000_000),
    ],
};

/// In bits a second.
pub(super) const RATE: Dimension = Dimension {
    example: "1 Gbit/s",
    grain: "bits a second",
    units: &[
        ("bit/s", 1),
        ("kbit/s", 1_000),
        ("Mbit/s", 1_000_000),
        ("Gbit/s", 1_000_000_000),
        ("Tbit/s", 1_000_000_000_000),
    ],
};

/// In bytes.
pub(super) const SIZE: Dimension = Dimension {
    example: "20 kB",
    grain: "bytes",
    units: &[
        ("B", 1),
        ("kB", 1_000),
        ("MB", 1_000_000),
        ("GB", 1_000_000_000),
        ("TB", 1_000_000_000_000),
        ("KiB", 1 << 10),
        ("MiB", 1 << 20),
        ("GiB", 1 << 30),
        ("bytes", 1),
    ],
};

/// In packets.
pub(super) const PACKETS: Dimension = Dimension {
    example: "100 packets",
    grain: "packets",
    units: &[("packets", 1), ("packet", 1)],
};

/// Events a second, in millionths.
pub(super) const FREQUENCY: Dimension = Dimension {
    example: "300 /s",
    grain: "millionths a second",
    units: &[
        ("/s", 1_000_000),
        ("/ms", 1_000_000_000),
        ("k/s", 1_000_000_000),
    ],
};

/// A share, in millionths.
pub(super) const SHARE: Dimension = Dimension {
    example: "30 %",
    grain: "millionths",
    units: &[("%", 10_000)],
};

/// A share in parts of 10^9.
pub(super) const PARTS: Dimension = Dimension {
    example: "0.1 %",
    grain: "parts of 10^9",
    units: &[("%", 10_000_000), ("", 1_000_000_000)],
};

impl Dimension {
    /// Whether the text ends in one of the units.
    pub fn fits(&self, text: &str) -> bool {
        split(text).is_some_and(|(_, _, unit)| self.units.iter().any(|(name, _)| *name == unit))
    }

    /// The quantity in grains.
    pub fn read(&self, text: &str) -> Result<u64, UnitError> {
        let (digits, decimals, unit) = split(text).ok_or(UnitError::NoNumber(self.example))?;
        let Some((_, grains)) = self.units.iter().find(|(name, _)| *name == unit) else {
            return Err(UnitError::Unit(
                self.units.iter().map(|(name, _)| *name).collect(),
            ));
        };
        let number: u128 = digits.parse().map_err(|_| UnitError::TooLarge)?;
        let scaled = number
            .checked_mul(u128::from(*grains))
            .ok_or(UnitError::TooLarge)?;
        let divisor = 10u128
            .checked_pow(decimals)
            .ok_or(UnitError::NotWhole(self.grain))?;
        if scaled % divisor != 0 {
            return Err(UnitError::NotWhole(self.grain));
        }
        u64::try_from(scaled / divisor).map_err(|_| UnitError::TooLarge)
    }
}

/// All digits, how many of them are decimals, and what stands behind.
fn split(text: &str) -> Option<(String, u32, &str)> {
    let text = text.trim();
    let end = text
        .find(|c: char| !c.is_ascii_digit() && c != '.')
        .unwrap_or(text.len());
    let (number, unit) = text.split_at(end);
    let (whole, decimals) = number.split_once('.').unwrap_or((number, ""));
    let is_number = !whole.is_empty() && !decimals.contains('.') && !number.ends_with('.');
    let digits = format!("{whole}{}", decimals.trim_end_matches('0'));
    let count = decimals.trim_end_matches('0').len();
    is_number.then_some((digits, count as u32, unit.trim()))
}

/// A fraction: `1/2`, `2`, `0.25`, exactly.
pub(super) fn fraction(text: &str) -> Option<(u32, u32)> {
    if let Some((above, below)) = text.split_once('/') {
        return Some((above.trim().parse().ok()?, below.trim().parse().ok()?));
    }
    let (digits, decimals, unit) = split(text)?;
    let below = 10u32.checked_pow(decimals)?;
    (unit.is_empty()).then_some((digits.parse().ok()?, below))
}
