// SPDX-License-Identifier: Apache-2.0
//! Structs that kernel-side C and Rust share: proven to be the same, not trusted to be.
//!
//! What enters: C compiled for BPF with `-g`, whose BTF names every field. What leaves: a table
//! of constants for each struct that C marks `MIRRORED`, written by build scripts
//! ([`compile`]); [`mirror!`], which declares the Rust side of such a struct and does not
//! compile unless both sides have the same fields in the same order with the same offsets,
//! sizes, signs and counts; and [`btf::check`], with which a loader compares the object that it
//! is about to load once more.
//!
//! What is promised: no byte of a mirrored struct is without a name on either side; damaged BTF
//! is an error, never a panic. What it never does: load programs, or read the kernel's own types.
//!
//! Not compared: the order of an array's dimensions, and what a field means.

pub mod btf;
pub mod compile;
pub mod mutate;

/// A struct as one side has it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Struct<'a> {
    /// Its name in C.
    pub name: &'a str,
    /// Bytes.
    pub size: u32,
    /// In the order of their offsets.
    pub fields: &'a [Field<'a>],
}

/// A field of a struct.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Field<'a> {
    /// Its name, the same on both sides.
    pub name: &'a str,
    /// Bytes from the struct's beginning.
    pub offset: u32,
    /// What it holds.
    pub shape: Shape<'a>,
}

/// What a field holds: one element, or an array of several.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Shape<'a> {
    /// What an element is.
    pub kind: Kind<'a>,
    /// Bytes of an element.
    pub size: u32,
    /// Elements, of all dimensions.
    pub count: u32,
}

/// What an element is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Kind<'a> {
    /// A number without a sign; C's `char`, which holds text.
    Unsigned,
    /// A number with a sign.
    Signed,
    /// A struct of that name, which is mirrored itself.
    Struct(&'a str),
}

/// Where two sides of a struct differ first.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Difference<'a> {
    /// The struct's name in C.
    pub structure: &'a str,
    /// Rust's field; empty: it is the struct as such.
    pub field: &'a str,
    /// What differs.
    pub what: &'static str,
}

impl std::fmt::Display for Difference<'_> {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "struct {}", self.structure)?;
        if !self.field.is_empty() {
            write!(f, ", field {}", self.field)?;
        }
        write!(f, ": {} in C and in Rust", self.what)
    }
}

impl<'a> Struct<'a> {
    /// The first difference between this side, C's, and Rust's.
    pub const fn difference<'b>(&self, rust: &Struct<'b>) -> Option<Difference<'b>> {
        let mut i = 0;
        while i < rust.fields.len() {
            let ours = &rust.fields[i];
            let what = if i < self.fields.len() {
                self.fields[i].difference(ours)
            } else {
                Some("not the same number of fields")
            };
            if let Some(what) = what {
                return Some(Difference {
                    structure: rust.name,
                    field: ours.name,
                    what,
                });
            }
            i += 1;
        }
        let what = if self.fields.len() != rust.fields.len() {
            "not the same number of fields"
        } else if self.size != rust.size {
            "not the same size"
        } else {
            return None;
        };
        Some(Difference {
            structure: rust.name,
            field: "",
            what,
        })
    }

    /// Refuses to compile where Rust's side differs.
    ///
    /// # Panics
    /// If it does; with the struct, the field and what differs.
    pub const fn require(&self, rust: &Struct<'_>) {
        if let Some(it) = self.difference(rust) {
            let text = Text::new()
                .with("struct ")
                .with(it.structure)
                .with(", field ")
                .with(it.field)
                .with(": ")
                .with(it.what)
                .with(" in C and in Rust");
            panic!("{}", text.as_str());
        }
    }
}

impl Field<'_> {
    const fn difference(&self, rust: &Field<'_>) -> Option<&'static str> {
        if !same(self.name, rust.name) {
            Some("another field stands there")
        } else if self.offset != rust.offset {
            Some("not the same offset")
        } else if self.shape.size != rust.shape.size {
            Some("not the same size")
        } else if self.shape.count != rust.shape.count {
            Some("not the same number of elements")
        } else {
            match (self.shape.kind, rust.shape.kind) {
                (Kind::Unsigned, Kind::Unsigned) | (Kind::Signed, Kind::Signed) => None,
                (Kind::Struct(a), Kind::Struct(b)) if same(a, b) => None,
                (Kind::Struct(_), _) | (_, Kind::Struct(_)) => Some("not the same struct"),
                _ => Some("not the same sign"),
            }
        }
    }
}

const fn same(a: &str, b: &str) -> bool {
    let (a, b) = (a.as_bytes(), b.as_bytes());
    let mut i = 0;
    while i < a.len() && i < b.len() && a[i] == b[i] {
        i += 1;
    }
    i == a.len() && i == b.len()
}

/// A message joined from its parts while constants are evaluated; what does not fit is left out.
struct Text {
    bytes: [u8; 256],
    used: usize,
}

impl Text {
    const fn new() -> Self {
        Text {
            bytes: [0; 256],
            used: 0,
        }
    }

    const fn with(mut self, part: &str) -> Self {
        let part = part.as_bytes();
        let mut i = 0;
        while i < part.len() && self.used < self.bytes.len() {
            self.bytes[self.used] = part[i];
            self.used += 1;
            i += 1;
        }
        self
    }

    const fn as_str(&self) -> &str {
        match std::str::from_utf8(self.bytes.split_at(self.used).0) {
            Ok(text) => text,
            Err(_) => "two sides of a struct differ",
        }
    }
}

/// Types that fields of mirrored structs may have.
pub trait Plain {
    /// What such a field holds.
    const SHAPE: Shape<'static>;
}

macro_rules! numbers {
    ($kind:ident: $($type:ty)*) => {$(
        impl Plain for $type {
            const SHAPE: Shape<'static> =
                Shape { kind: Kind::$kind, size: size_of::<$type>() as u32, count: 1 };
        }
    )*};
}
numbers!(Unsigned: u8 u16 u32 u64);
numbers!(Signed: i8 i16 i32 i64);

impl<T: Plain, const N: usize> Plain for [T; N] {
    const SHAPE: Shape<'static> = Shape {
        count: N as u32 * T::SHAPE.count,
        ..T::SHAPE
    };
}

/// A Rust struct that has a twin in C: what [`mirror!`] declares.
pub trait Mirror: Plain {
    /// Rust's side.
    const LAYOUT: Struct<'static>;
}

/// Declares structs that C has, too. `TABLE` is the constant that the build script made of C's
/// side; it does not compile unless both sides agree. The fields are public as the struct is; padding is a field like
/// any other. The struct is plain data: any bytes are a value, and a value is bytes.
///
/// ```text
/// mirror! {
///     /// One socket call.
///     pub(crate) struct CallRecord = layouts::CALL {
///         cookie: u64,
///         at_ns: u64,
///         bytes: u32,
///         direction: u32,
///     }
/// }
/// ```
#[macro_export]
macro_rules! mirror {
    ($(
        $(#[$about:meta])*
        $visible:vis struct $name:ident = $table:path {
            $( $(#[$field_about:meta])* $field:ident: $type:ty ),* $(,)?
        }
    )*) => {$(
        $(#[$about])*
        #[derive(
            Clone, Copy, Debug, ::zerocopy::FromBytes, ::zerocopy::IntoBytes,
            ::zerocopy::Immutable, ::zerocopy::KnownLayout,
        )]
        #[repr(C)]
        $visible struct $name {
            $( $(#[$field_about])* $visible $field: $type, )*
        }

        impl $crate::Plain for $name {
            const SHAPE: $crate::Shape<'static> = $crate::Shape {
                kind: $crate::Kind::Struct($table.name),
                size: size_of::<$name>() as u32,
                count: 1,
            };
        }

        impl $crate::Mirror for $name {
            const LAYOUT: $crate::Struct<'static> = $crate::Struct {
                name: $table.name,
                size: size_of::<$name>() as u32,
                fields: &[$(
                    $crate::Field {
                        name: stringify!($field),
                        offset: ::core::mem::offset_of!($name, $field) as u32,
                        shape: <$type as $crate::Plain>::SHAPE,
                    },
                )*],
            };
        }

        const _: () = $table.require(&<$name as $crate::Mirror>::LAYOUT);
    )*};
}

/// Declares structs that are lists of `u32` on both sides, whose names Rust has as a list: C's fields
/// have to be these, in this order.
///
/// ```text
/// words! {
///     /// What a socket is set to.
///     pub struct Sysctls = layouts::SYSCTLS: [u32; 2] = ["tcp_sack", "tcp_ecn"];
/// }
/// ```
#[macro_export]
macro_rules! words {
    ($(
        $(#[$about:meta])*
        $visible:vis struct $name:ident = $table:path: [u32; $count:expr] = $names:expr;
    )*) => {$(
        $(#[$about])*
        #[derive(
            Clone, Copy, Debug, ::zerocopy::FromBytes, ::zerocopy::IntoBytes,
            ::zerocopy::Immutable, ::zerocopy::KnownLayout,
        )]
        #[repr(transparent)]
        $visible struct $name($visible [u32; $count]);

        impl $crate::Plain for $name {
            const SHAPE: $crate::Shape<'static> = $crate::Shape {
                kind: $crate::Kind::Struct($table.name),
                size: size_of::<$name>() as u32,
                count: 1,
            };
        }

        impl $crate::Mirror for $name {
            const LAYOUT: $crate::Struct<'static> = $crate::Struct {
                name: $table.name,
                size: size_of::<$name>() as u32,
                fields: &$crate::fields_of::<{ $count }>(&$names),
            };
        }

        const _: () = $table.require(&<$name as $crate::Mirror>::LAYOUT);
    )*};
}

/// The fields of a struct of nothing but `u32`, for [`words!`].
pub const fn fields_of<const N: usize>(names: &[&'static str; N]) -> [Field<'static>; N] {
    let mut fields = [Field {
        name: "",
        offset: 0,
        shape: <u32 as Plain>::SHAPE,
    }; N];
    let mut i = 0;
    while i < N {
        fields[i].name = names[i];
        fields[i].offset = 4 * i as u32;
        i += 1;
    }
    fields
}

/// Declares an enumeration that C has, too, its values being C's. `MODULE` is the one that the build
/// script made of it; it does not compile unless Rust names as many of them as C does.
///
/// ```text
/// enumeration! {
///     /// Of what a ring's entry is.
///     pub(crate) enum Piece: u8 = layouts::piece { Opened = OPENED, Packets = PACKETS }
/// }
/// ```
#[macro_export]
macro_rules! enumeration {
    (
        $(#[$about:meta])*
        $visible:vis enum $name:ident: $raw:ident = $tables:ident::$module:ident {
            $( $(#[$value_about:meta])* $value:ident = $c:ident ),* $(,)?
        }
    ) => {
        $(#[$about])*
        #[derive(Clone, Copy, Debug, PartialEq, Eq)]
        #[repr($raw)]
        $visible enum $name {
            $( $(#[$value_about])* $value = $tables::$module::$c as $raw, )*
        }

        impl $name {
            /// The value with that number; `None` if C has none.
            #[allow(dead_code)]
            $visible fn from_raw(raw: $raw) -> Option<Self> {
                $( const $c: $raw = $tables::$module::$c as $raw; )*
                match raw {
                    $( $c => Some($name::$value), )*
                    _ => None,
                }
            }
        }

        const _: () = assert!(
            [$( stringify!($value) ),*].len() == $tables::$module::COUNT,
            concat!("enum ", stringify!($name), ": not the same number of values in C and in Rust"),
        );
    };
}

#[cfg(test)]
mod tests;
