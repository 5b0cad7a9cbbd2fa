// SPDX-License-Identifier: Apache-2.0
//! Records as flat rows of cells: the one description of a table's columns, which the
//! spool's payloads and the Parquet files both follow.

use crate::column::Column;
use slowpath_model::{
    CaState, ClockState, Micros, MonoNanos, Origin, ProblemSet, TcpState, Tier, WallMicros,
};

/// One value of one row.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum CellValue {
    /// Not known.
    Null,
    /// A number, an enum's number, a flag (0 or 1) or, as its two's complement, a time.
    Int(u64),
    /// A string.
    Text(String),
}

/// A value that occupies one or more cells of a row.
pub(crate) trait Flat: Sized {
    /// Appends one cell for each column.
    fn put(&self, row: &mut Vec<CellValue>);
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
    cells: &'a [CellValue],
}

impl<'a> Row<'a> {
    pub(crate) fn new(cells: &'a [CellValue]) -> Self {
        Row { cells }
    }

    pub(crate) fn next(&mut self) -> &'a CellValue {
        match self.cells.split_first() {
            Some((first, rest)) => {
                self.cells = rest;
                first
            }
            None => &CellValue::Null,
        }
    }

    /// Whether the next `width` cells are all null; skips them if so.
    pub(crate) fn skip_nulls(&mut self, width: usize) -> bool {
        let width = width.min(self.cells.len());
        let null = self.cells[..width].iter().all(|c| *c == CellValue::Null);
        if null {
            self.cells = &self.cells[width..];
        }
        null
    }
}

macro_rules! flat_integers {
    ($($type:ty),*) => {$(
        impl Flat for $type {
            fn put(&self, row: &mut Vec<CellValue>) {
                row.push(CellValue::Int(u64::from(*self)));
            }
            fn take(row: &mut Row<'_>) -> Option<Self> {
                match row.next() {
                    CellValue::Int(n) => <$type>::try_from(*n).ok(),
                    _ => None,
                }
            }
        }
    )*};
}
flat_integers!(u16, u64);

impl Flat for bool {
    fn put(&self, row: &mut Vec<CellValue>) {
        row.push(CellValue::Int(u64::from(*self)));
    }
    fn take(row: &mut Row<'_>) -> Option<Self> {
        match row.next() {
            CellValue::Int(0) => Some(false),
            CellValue::Int(1) => Some(true),
            _ => None,
        }
    }
}

impl Flat for String {
    fn put(&self, row: &mut Vec<CellValue>) {
        row.push(CellValue::Text(self.clone()));
    }
    fn take(row: &mut Row<'_>) -> Option<Self> {
        match row.next() {
            CellValue::Text(text) => Some(text.clone()),
            _ => None,
        }
    }
}

macro_rules! flat_by_conversion {
    ($($type:ty, $inner:ty, |$value:ident| $to:expr, |$raw:ident| $from:expr;)*) => {$(
        impl Flat for $type {
            fn put(&self, row: &mut Vec<CellValue>) {
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
    ClockState, u64, |v| *v as u64, |r| ClockState::from_kernel(i32::try_from(r).ok()?);
}

macro_rules! flat_options {
    ($($type:ty),*) => {$(
        impl Flat for Option<$type> {
            fn put(&self, row: &mut Vec<CellValue>) {
                match self {
                    Some(value) => value.put(row),
                    None => row.push(CellValue::Null),
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
    ($type:ty $(, without $($left:ident),*)?;
     $($field:ident => $how:ident($($args:tt)*) $(.$with:ident($($with_args:tt)*))*;)*) => {
        impl $crate::cells::Flat for $type {
            fn put(&self, row: &mut Vec<$crate::cells::CellValue>) {
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
            fn columns(into: &mut Vec<$crate::column::Column>) {
                $($crate::cells::flat_struct!(@ into $type, $field, $how($($args)*) $(.$with($($with_args)*))*);)*
            }
        }
    };
    (@ $into:ident $type:ty, $field:ident, group($group:ty)) => {
        <$group as $crate::cells::Columns>::columns($into)
    };
    (@ $into:ident $type:ty, $field:ident, $how:ident($($args:tt)*) $(.$with:ident($($with_args:tt)*))*) => {
        $into.push(
            $crate::column::$how($($args)*)
                $(.$with($($with_args)*))*
                .of(concat!(stringify!($type), "::", stringify!($field))),
        )
    };
}
pub(crate) use flat_struct;

/// How many columns a type has. Counted once: rows ask it by the hundred thousand.
macro_rules! width {
    ($type:ty) => {{
        static WIDTH: std::sync::LazyLock<usize> =
            std::sync::LazyLock::new(|| $crate::cells::columns_of::<$type>().len());
        *WIDTH
    }};
}
pub(crate) use width;

/// Makes an optional struct flat: all its cells null when it is absent.
macro_rules! flat_group {
    ($type:ty) => {
        impl $crate::cells::Flat for Option<$type> {
            fn put(&self, row: &mut Vec<$crate::cells::CellValue>) {
                match self {
                    Some(value) => $crate::cells::Flat::put(value, row),
                    None => {
                        row.extend(std::iter::repeat_n(
                            $crate::cells::CellValue::Null,
                            $crate::cells::width!($type),
                        ));
                    }
                }
            }
            fn take(row: &mut $crate::cells::Row<'_>) -> Option<Self> {
                if row.skip_nulls($crate::cells::width!($type)) {
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

#[cfg(test)]
mod tests {
    use super::*;

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
        for (i, state) in ClockState::ALL.into_iter().enumerate() {
            assert_eq!(state as usize, i);
        }
        assert_eq!(TCP_STATES.len(), TCP_STATE_NAMES.len());
        assert_eq!(ORIGINS.len(), ORIGIN_NAMES.len());
        assert_eq!(TIERS.len(), TIER_NAMES.len());
        assert_eq!(CaState::Loss as usize + 1, CA_STATE_NAMES.len());
    }
}
