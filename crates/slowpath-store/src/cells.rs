// SPDX-License-Identifier: Apache-2.0
//! Records as flat rows of cells: the one description of a table's columns, which the
//! spool's payloads and the Parquet files both follow.

use slowpath_model::{CaState, Micros, MonoNanos, Origin, ProblemSet, TcpState, Tier, WallMicros};

/// One value of one row.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum Cell {
    /// Not known.
    Null,
    /// A number, an enum's number, a flag (0 or 1) or, as its two's complement, a time.
    Int(u64),
    /// A string.
    Text(String),
}

/// How a column is stored.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Kind {
    /// Whole number, stored as it is.
    Exact,
    /// Whole number, rounded to that many significant bits in Parquet.
    Rounded(u8),
    /// Microseconds since 1970-01-01T00:00:00Z.
    Time,
    /// 0 or 1.
    Flag,
    /// Number of a name; a string in Parquet.
    Name(&'static [&'static str]),
    /// A string.
    Text,
}

/// One column of a table.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Column {
    /// Name in Parquet, unit included.
    pub name: &'static str,
    /// Type and rounding.
    pub kind: Kind,
}

/// A value that occupies one or more cells of a row.
pub(crate) trait Flat: Sized {
    /// Appends one cell for each column.
    fn put(&self, row: &mut Vec<Cell>);
    /// Takes as many cells as `put` appends; `None` if they cannot be such a value.
    fn take(row: &mut Row<'_>) -> Option<Self>;
}

/// The columns of a [`Flat`] struct.
pub(crate) trait Columns: Flat {
    /// Appends the description of each column.
    fn columns(into: &mut Vec<Column>);
}

/// The cells of a row, first to last. Past its end everything is null: columns that a later
/// schema appended.
pub(crate) struct Row<'a> {
    cells: &'a [Cell],
}

impl<'a> Row<'a> {
    pub(crate) fn new(cells: &'a [Cell]) -> Self {
        Row { cells }
    }

    pub(crate) fn next(&mut self) -> &'a Cell {
        match self.cells.split_first() {
            Some((first, rest)) => {
                self.cells = rest;
                first
            }
            None => &Cell::Null,
        }
    }

    /// Whether the next `width` cells are all null; skips them if so.
    pub(crate) fn skip_nulls(&mut self, width: usize) -> bool {
        let width = width.min(self.cells.len());
        let null = self.cells[..width].iter().all(|c| *c == Cell::Null);
        if null {
            self.cells = &self.cells[width..];
        }
        null
    }
}

macro_rules! flat_integers {
    ($($type:ty),*) => {$(
        impl Flat for $type {
            fn put(&self, row: &mut Vec<Cell>) {
                row.push(Cell::Int(u64::from(*self)));
            }
            fn take(row: &mut Row<'_>) -> Option<Self> {
                match row.next() {
                    Cell::Int(n) => <$type>::try_from(*n).ok(),
                    _ => None,
                }
            }
        }
    )*};
}
flat_integers!(u16, u64);

impl Flat for bool {
    fn put(&self, row: &mut Vec<Cell>) {
        row.push(Cell::Int(u64::from(*self)));
    }
    fn take(row: &mut Row<'_>) -> Option<Self> {
        match row.next() {
            Cell::Int(0) => Some(false),
            Cell::Int(1) => Some(true),
            _ => None,
        }
    }
}

impl Flat for String {
    fn put(&self, row: &mut Vec<Cell>) {
        row.push(Cell::Text(self.clone()));
    }
    fn take(row: &mut Row<'_>) -> Option<Self> {
        match row.next() {
            Cell::Text(text) => Some(text.clone()),
            _ => None,
        }
    }
}

macro_rules! flat_by_conversion {
    ($($type:ty, $inner:ty, |$value:ident| $to:expr, |$raw:ident| $from:expr;)*) => {$(
        impl Flat for $type {
            fn put(&self, row: &mut Vec<Cell>) {
                let $value = self;
                let inner: $inner = $to;
                inner.put(row);
            }
            fn take(row: &mut Row<'_>) -> Option<Self> {
                let $raw = <$inner>::take(row)?;
                $from
            }
        }
    )*};
}
flat_by_conversion! {
    // Rounding may have made the largest values larger.
    u32, u64, |v| u64::from(*v), |r| Some(u32::try_from(r).unwrap_or(u32::MAX));
    Micros, u64, |v| v.0, |r| Some(Micros(r));
    MonoNanos, u64, |v| v.0, |r| Some(MonoNanos(r));
    WallMicros, u64, |v| v.0.cast_unsigned(), |r| Some(WallMicros(r.cast_signed()));
    // Bits that this version knows no problem for are dropped.
    ProblemSet, u64, |v| v.bits().into(), |r| Some(ProblemSet::from_bits(r as u32));
    TcpState, u64, |v| *v as u64, |r| TCP_STATES.get(usize::try_from(r).ok()?).copied();
    CaState, u64, |v| *v as u64, |r| CaState::from_kernel(u8::try_from(r).ok()?);
    Origin, u64, |v| *v as u64, |r| ORIGINS.get(usize::try_from(r).ok()?).copied();
    Tier, u64, |v| *v as u64, |r| TIERS.get(usize::try_from(r).ok()?).copied();
}

macro_rules! flat_options {
    ($($type:ty),*) => {$(
        impl Flat for Option<$type> {
            fn put(&self, row: &mut Vec<Cell>) {
                match self {
                    Some(value) => value.put(row),
                    None => row.push(Cell::Null),
                }
            }
            fn take(row: &mut Row<'_>) -> Option<Self> {
                if row.skip_nulls(1) {
                    return Some(None);
                }
                <$type>::take(row).map(Some)
            }
        }
    )*};
}
flat_options!(u32, u64, bool, String, Micros, ProblemSet);

/// Describes a struct's fields as columns, in the struct's own terms: a field left out, or
/// added to the struct later, does not compile. What `without` names is not logged, and read
/// back as its default.
macro_rules! flat_struct {
    ($type:ty $(, without $($left:ident),*)?; $($field:ident => $how:ident($($args:tt)*);)*) => {
        impl $crate::cells::Flat for $type {
            fn put(&self, row: &mut Vec<$crate::cells::Cell>) {
                let Self { $($field,)* $($($left: _),*)? } = self;
                $($crate::cells::Flat::put($field, row);)*
            }
            fn take(row: &mut $crate::cells::Row<'_>) -> Option<Self> {
                Some(Self {
                    $($field: $crate::cells::Flat::take(row)?,)*
                    $($($left: Default::default()),*)?
                })
            }
        }
        impl $crate::cells::Columns for $type {
            fn columns(into: &mut Vec<$crate::cells::Column>) {
                $($crate::cells::flat_struct!(@ into $how($($args)*));)*
            }
        }
    };
    (@ $into:ident one($name:literal, $kind:expr)) => {
        $into.push($crate::cells::Column { name: $name, kind: $kind })
    };
    (@ $into:ident group($group:ty)) => {
        <$group as $crate::cells::Columns>::columns($into)
    };
}
pub(crate) use flat_struct;

/// Makes an optional struct flat: all its cells null when it is absent.
macro_rules! flat_group {
    ($type:ty) => {
        impl $crate::cells::Flat for Option<$type> {
            fn put(&self, row: &mut Vec<$crate::cells::Cell>) {
                match self {
                    Some(value) => $crate::cells::Flat::put(value, row),
                    None => {
                        let width = $crate::cells::columns_of::<$type>().len();
                        row.extend(std::iter::repeat_n($crate::cells::Cell::Null, width));
                    }
                }
            }
            fn take(row: &mut $crate::cells::Row<'_>) -> Option<Self> {
                let width = $crate::cells::columns_of::<$type>().len();
                if row.skip_nulls(width) {
                    return Some(None);
                }
                <$type as $crate::cells::Flat>::take(row).map(Some)
            }
        }
    };
}
pub(crate) use flat_group;

/// The columns of `T`.
pub(crate) fn columns_of<T: Columns>() -> Vec<Column> {
    let mut columns = Vec::new();
    T::columns(&mut columns);
    columns
}

const TCP_STATES: [TcpState; 12] = {
    use TcpState::*;
    [
        Established,
        SynSent,
        SynReceived,
        FinWait1,
        FinWait2,
        TimeWait,
        Close,
        CloseWait,
        LastAck,
        Listen,
        Closing,
        NewSynReceived,
    ]
};
const ORIGINS: [Origin; 3] = [Origin::Opened, Origin::Accepted, Origin::Unknown];
const TIERS: [Tier; 3] = [Tier::Bpf, Tier::InetDiag, Tier::Imported];

/// Names of [`TcpState`], in its order.
pub(crate) const TCP_STATE_NAMES: &[&str] = &[
    "established",
    "syn_sent",
    "syn_received",
    "fin_wait_1",
    "fin_wait_2",
    "time_wait",
    "close",
    "close_wait",
    "last_ack",
    "listen",
    "closing",
    "new_syn_received",
];
/// Names of [`CaState`], in its order.
pub(crate) const CA_STATE_NAMES: &[&str] = &["open", "disorder", "cwr", "recovery", "loss"];
/// Names of [`Origin`], in its order.
pub(crate) const ORIGIN_NAMES: &[&str] = &["opened", "accepted", "unknown"];
/// Names of [`Tier`], in its order.
pub(crate) const TIER_NAMES: &[&str] = &["bpf", "inet_diag", "imported"];

/// `value` with only its `bits` most significant bits kept, rounded to the nearest such
/// number (halves up). The relative error is at most 2^-bits; numbers below 2^bits stay.
pub(crate) fn round(value: u64, bits: u8) -> u64 {
    let width = 64 - value.leading_zeros();
    let Some(drop) = width.checked_sub(u32::from(bits)).filter(|d| *d > 0) else {
        return value;
    };
    let half = 1 << (drop - 1);
    match value.checked_add(half) {
        Some(sum) => sum >> drop << drop,
        None => value >> drop << drop,
    }
}

/// `value` with only its `bits` most significant bits kept, rounded down.
pub(crate) fn round_down(value: u64, bits: u8) -> u64 {
    let width = 64 - value.leading_zeros();
    let drop = width.saturating_sub(u32::from(bits));
    value >> drop << drop
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn enums_keep_their_numbers() {
        for (i, state) in TCP_STATES.into_iter().enumerate() {
            assert_eq!(state as usize, i);
        }
        for (i, origin) in ORIGINS.into_iter().enumerate() {
            assert_eq!(origin as usize, i);
        }
        for (i, tier) in TIERS.into_iter().enumerate() {
            assert_eq!(tier as usize, i);
        }
        assert_eq!(TCP_STATES.len(), TCP_STATE_NAMES.len());
        assert_eq!(ORIGINS.len(), ORIGIN_NAMES.len());
        assert_eq!(TIERS.len(), TIER_NAMES.len());
        assert_eq!(CaState::Loss as usize + 1, CA_STATE_NAMES.len());
    }

    proptest! {
        #[test]
        fn rounding_errs_by_at_most_its_share(value: u64, bits in 2u8..12) {
            let near = round(value, bits);
            let down = round_down(value, bits);
            let most = value as f64 / f64::from(1u32 << bits);
            // Only where rounding up would leave 64 bits is the error that of rounding down.
            if value.checked_add(value >> (bits - 1)).is_some() {
                prop_assert!(near.abs_diff(value) as f64 <= most * (1.0 + 1e-9));
            }
            prop_assert!(down <= value && (value - down) as f64 <= 2.0 * most * (1.0 + 1e-9));
            prop_assert_eq!(round(near, bits), near, "rounding again changes nothing");
            if value < 1 << bits {
                prop_assert_eq!(near, value);
            }
        }
    }
}
