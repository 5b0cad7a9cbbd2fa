// SPDX-License-Identifier: Apache-2.0
//! The mirrored types of a compiled object, from its BTF (Documentation/bpf/btf.rst): those
//! to which a variable in the section `mirrored` points.
//!
//! The object is taken for anything: each length is checked before it is used.

use crate::{Field, Kind, Shape, Struct};

/// The section that C's `MIRRORED` puts its variables into.
pub const SECTION: &str = "mirrored";

/// `BTF_MAGIC` (include/uapi/linux/btf.h).
const MAGIC: u16 = 0xeb9f;

/// Typedefs and qualifiers that may lie upon each other.
const MOST_NESTED: usize = 32;

/// Why an object's mirrored types cannot be read.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum BtfError {
    /// It is no 64-bit ELF object of this machine's byte order, or is cut off.
    NoObject,
    /// It has no section of that name.
    NoSection(&'static str),
    /// Its BTF contradicts itself, or is cut off.
    Damaged,
    /// A mirrored type has what no mirror can have: a pointer, a union, a bit-field.
    Unfit {
        /// The struct.
        structure: String,
        /// Its field.
        field: String,
    },
    /// Bytes of a mirrored struct have no name.
    Padding {
        /// The struct.
        structure: String,
        /// The offset of the first such byte.
        offset: u32,
    },
}

impl std::fmt::Display for BtfError {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            BtfError::NoObject => write!(f, "no ELF object"),
            BtfError::NoSection(name) => write!(f, "the object has no section {name}"),
            BtfError::Damaged => write!(f, "the object's BTF is damaged"),
            BtfError::Unfit { structure, field } => write!(
                f,
                "struct {structure}, field {field}: a pointer, union or bit-field cannot be mirrored"
            ),
            BtfError::Padding { structure, offset } => {
                write!(
                    f,
                    "struct {structure}: the byte at offset {offset} has no name"
                )
            }
        }
    }
}

impl std::error::Error for BtfError {}

/// A mirrored type, as C has it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Mirrored<'a> {
    /// A struct.
    Struct(OwnedStruct<'a>),
    /// An enumeration.
    Enum {
        /// Its name.
        name: &'a str,
        /// Names and values.
        values: Vec<(&'a str, i64)>,
    },
}

/// A [`Struct`] that has its fields.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct OwnedStruct<'a> {
    name: &'a str,
    size: u32,
    fields: Vec<Field<'a>>,
}

impl OwnedStruct<'_> {
    /// The struct, to be compared.
    pub fn get(&self) -> Struct<'_> {
        Struct {
            name: self.name,
            size: self.size,
            fields: &self.fields,
        }
    }
}

/// The mirrored types of an object file, in the order in which C marks them.
///
/// # Errors
/// If the object has none, or one that cannot be mirrored.
pub fn mirrored(object: &[u8]) -> Result<Vec<Mirrored<'_>>, BtfError> {
    let bytes = section(object, ".BTF")?.ok_or(BtfError::NoSection(".BTF"))?;
    let types = Types::read(bytes).ok_or(BtfError::Damaged)?;
    let marked = types.marked().ok_or(BtfError::NoSection(SECTION))?;
    marked
        .iter()
        .map(|id| types.mirrored(*id))
        .collect::<Result<_, _>>()
}

/// Why an object is not loaded: its types are not Rust's.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum LayoutError {
    /// Its mirrored types cannot be read.
    Btf(BtfError),
    /// Both sides of a struct differ: the struct, the field and what.
    Differs(String),
    /// Rust has no mirror of a struct of that name.
    NoMirror(String),
}

impl std::fmt::Display for LayoutError {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            LayoutError::Btf(error) => error.fmt(f),
            LayoutError::Differs(text) => f.write_str(text),
            LayoutError::NoMirror(name) => write!(f, "struct {name} has no mirror in Rust"),
        }
    }
}

impl std::error::Error for LayoutError {}

/// Compares every mirrored struct of an object with Rust's side, before it is loaded.
///
/// # Errors
/// At the first struct that differs or has no mirror.
pub fn check(object: &[u8], mirrors: &[&[Struct<'_>]]) -> Result<(), LayoutError> {
    let all = match mirrored(object) {
        Err(BtfError::NoSection(SECTION)) => return Ok(()),
        all => all.map_err(LayoutError::Btf)?,
    };
    for it in &all {
        let Mirrored::Struct(it) = it else { continue };
        let it = it.get();
        let mut mirrors = mirrors.iter().copied().flatten();
        let mirror = mirrors.find(|mirror| mirror.name == it.name);
        let mirror = mirror.ok_or_else(|| LayoutError::NoMirror(it.name.to_owned()))?;
        if let Some(difference) = it.difference(mirror) {
            return Err(LayoutError::Differs(difference.to_string()));
        }
    }
    Ok(())
}

/// The bytes of a section.
fn section<'a>(object: &'a [u8], name: &str) -> Result<Option<&'a [u8]>, BtfError> {
    let file = Bytes(object);
    let all = || {
        let native = if cfg!(target_endian = "little") { 1 } else { 2 };
        let head = object.get(..6)?;
        if head != [0x7f, b'E', b'L', b'F', 2, native] {
            return None;
        }
        let (table, size) = (file.u64(0x28)?, usize::from(file.u16(0x3a)?));
        let (count, names) = (usize::from(file.u16(0x3c)?), usize::from(file.u16(0x3e)?));
        let header = |i: usize| {
            let at = usize::try_from(table).ok()?.checked_add(i * size)?;
            Some(Bytes(object.get(at..at.checked_add(0x40)?)?))
        };
        let content = |header: Bytes<'a>| {
            let at = usize::try_from(header.u64(0x18)?).ok()?;
            object.get(at..at.checked_add(usize::try_from(header.u64(0x20)?).ok()?)?)
        };
        let names = content(header(names)?)?;
        let mut found = None;
        for i in 0..count {
            let header = header(i)?;
            if text(names, header.u32(0)?)? == name {
                found = Some(content(header)?);
            }
        }
        Some(found)
    };
    all().ok_or(BtfError::NoObject)
}

/// The text at an offset, up to its NUL.
fn text(strings: &[u8], at: u32) -> Option<&str> {
    let rest = strings.get(at as usize..)?;
    let end = rest.iter().position(|byte| *byte == 0)?;
    std::str::from_utf8(&rest[..end]).ok()
}

#[derive(Clone, Copy)]
struct Bytes<'a>(&'a [u8]);

impl Bytes<'_> {
    fn array<const N: usize>(&self, at: usize) -> Option<[u8; N]> {
        Some(*self.0.get(at..)?.first_chunk()?)
    }
    fn u16(&self, at: usize) -> Option<u16> {
        self.array(at).map(u16::from_ne_bytes)
    }
    fn u32(&self, at: usize) -> Option<u32> {
        self.array(at).map(u32::from_ne_bytes)
    }
    fn u64(&self, at: usize) -> Option<u64> {
        self.array(at).map(u64::from_ne_bytes)
    }
}

/// `BTF_KIND_*`.
mod kind {
    pub const INT: u32 = 1;
    pub const PTR: u32 = 2;
    pub const ARRAY: u32 = 3;
    pub const STRUCT: u32 = 4;
    pub const UNION: u32 = 5;
    pub const ENUM: u32 = 6;
    pub const TYPEDEF: u32 = 8;
    pub const RESTRICT: u32 = 11;
    pub const FUNC_PROTO: u32 = 13;
    pub const VAR: u32 = 14;
    pub const DATASEC: u32 = 15;
    pub const DECL_TAG: u32 = 17;
    pub const TYPE_TAG: u32 = 18;
    pub const ENUM64: u32 = 19;
}

/// One type: its head, and what follows it.
#[derive(Clone, Copy)]
struct Type<'a> {
    name: &'a str,
    kind: u32,
    count: usize,
    flag: bool,
    /// Bytes, or the type that it refers to.
    size_or_type: u32,
    rest: Bytes<'a>,
}

/// The types by their number, which begins with 1.
struct Types<'a> {
    all: Vec<Type<'a>>,
    strings: &'a [u8],
}

impl<'a> Types<'a> {
    fn read(bytes: &'a [u8]) -> Option<Self> {
        let head = Bytes(bytes);
        if head.u16(0)? != MAGIC {
            return None;
        }
        let word = |at: usize| Some(head.u32(at)? as usize);
        let part = |at: usize, length: usize| {
            let begin = word(4)?.checked_add(at)?;
            bytes.get(begin..begin.checked_add(length)?)
        };
        let mut rest = part(word(8)?, word(12)?)?;
        let strings = part(word(16)?, word(20)?)?;
        let mut all = Vec::new();
        while !rest.is_empty() {
            let head = Bytes(rest);
            let info = head.u32(4)?;
            let (kind, count) = (info >> 24 & 0x1f, (info & 0xffff) as usize);
            let length = match kind {
                kind::INT | kind::VAR | kind::DECL_TAG => 4,
                kind::ARRAY => 12,
                kind::ENUM | kind::FUNC_PROTO => 8 * count,
                kind::STRUCT | kind::UNION | kind::DATASEC | kind::ENUM64 => 12 * count,
                1..=kind::ENUM64 => 0,
                _ => return None,
            };
            all.push(Type {
                name: text(strings, head.u32(0)?)?,
                kind,
                count,
                flag: info >> 31 != 0,
                size_or_type: head.u32(8)?,
                rest: Bytes(rest.get(12..12 + length)?),
            });
            rest = &rest[12 + length..];
        }
        Some(Types { all, strings })
    }

    fn get(&self, id: u32) -> Option<&Type<'a>> {
        self.all.get((id as usize).checked_sub(1)?)
    }

    /// The type behind typedefs and qualifiers.
    fn behind(&self, mut id: u32) -> Option<&Type<'a>> {
        for _ in 0..MOST_NESTED {
            let it = self.get(id)?;
            match it.kind {
                kind::TYPEDEF..=kind::RESTRICT | kind::TYPE_TAG => id = it.size_or_type,
                _ => return Some(it),
            }
        }
        None
    }

    /// The variables in the section.
    fn marked(&self) -> Option<Vec<u32>> {
        let section = |it: &&Type<'_>| it.kind == kind::DATASEC && it.name == SECTION;
        let section = self.all.iter().find(section)?;
        (0..section.count)
            .map(|i| section.rest.u32(12 * i))
            .collect()
    }

    fn mirrored(&self, variable: u32) -> Result<Mirrored<'a>, BtfError> {
        let pointee = || {
            let variable = self.get(variable).filter(|it| it.kind == kind::VAR)?;
            let pointer = self.behind(variable.size_or_type)?;
            (pointer.kind == kind::PTR).then_some(())?;
            self.behind(pointer.size_or_type)
        };
        let it = pointee().ok_or(BtfError::Damaged)?;
        match it.kind {
            kind::STRUCT => self.structure(it).map(Mirrored::Struct),
            kind::ENUM => {
                let value = |i: usize| {
                    let name = text(self.strings, it.rest.u32(8 * i)?)?;
                    let value = it.rest.u32(8 * i + 4)?;
                    let value = if it.flag {
                        i64::from(value as i32)
                    } else {
                        i64::from(value)
                    };
                    Some((name, value))
                };
                let values: Option<_> = (0..it.count).map(value).collect();
                Ok(Mirrored::Enum {
                    name: it.name,
                    values: values.ok_or(BtfError::Damaged)?,
                })
            }
            _ => Err(BtfError::Unfit {
                structure: it.name.to_owned(),
                field: String::new(),
            }),
        }
    }

    fn structure(&self, it: &Type<'a>) -> Result<OwnedStruct<'a>, BtfError> {
        let mut fields = Vec::new();
        let mut end = 0;
        let padding = |offset| BtfError::Padding {
            structure: it.name.to_owned(),
            offset,
        };
        for i in 0..it.count {
            let member = || {
                let name = text(self.strings, it.rest.u32(12 * i)?)?;
                Some((name, it.rest.u32(12 * i + 4)?, it.rest.u32(12 * i + 8)?))
            };
            let (name, id, bits) = member().ok_or(BtfError::Damaged)?;
            let shape = self.shape(id).filter(|_| !it.flag && bits % 8 == 0);
            let shape = shape.ok_or_else(|| BtfError::Unfit {
                structure: it.name.to_owned(),
                field: name.to_owned(),
            })?;
            let offset = bits / 8;
            if offset != end {
                return Err(padding(end));
            }
            let length = shape.size.checked_mul(shape.count);
            let length = length.and_then(|length| offset.checked_add(length));
            end = length.ok_or(BtfError::Damaged)?;
            fields.push(Field {
                name,
                offset,
                shape,
            });
        }
        if end != it.size_or_type {
            return Err(padding(end));
        }
        Ok(OwnedStruct {
            name: it.name,
            size: it.size_or_type,
            fields,
        })
    }

    fn shape(&self, id: u32) -> Option<Shape<'a>> {
        let mut it = self.behind(id)?;
        let mut count = 1u32;
        for _ in 0..MOST_NESTED {
            if it.kind != kind::ARRAY {
                break;
            }
            count = count.checked_mul(it.rest.u32(8)?)?;
            it = self.behind(it.rest.u32(0)?)?;
        }
        let kind = match it.kind {
            // BTF_INT_SIGNED; `char` is text.
            kind::INT if it.rest.u32(0)? >> 24 & 1 != 0 && it.name != "char" => Kind::Signed,
            kind::ENUM if it.flag => Kind::Signed,
            kind::INT | kind::ENUM => Kind::Unsigned,
            kind::STRUCT => Kind::Struct(it.name),
            _ => return None,
        };
        Some(Shape {
            kind,
            size: it.size_or_type,
            count,
        })
    }
}
