// SPDX-License-Identifier: Apache-2.0
//! Both sides compared: a struct compiled by clang, and every way to differ from it.

use crate::btf::{BtfError, Mirrored, mirrored};
use crate::compile::{Clang, Tables};
use crate::mutate::{Change, mutations};
use crate::{Field, Kind, Plain, Shape, Struct};

const HEADER: &str = "typedef unsigned int u32;\n\
    typedef unsigned long long u64;\n\
    typedef int s32;\n\
    typedef signed long long s64;\n\
    #define MIRRORED(type, name) const type *name __attribute__((section(\"mirrored\"), used))\n\
    struct inner {\n\
    \tu32 a;\n\
    \ts32 b;\n\
    };\n\
    struct outer {\n\
    \tu64 first;\n\
    \tu64 second;\n\
    \tu32 third;\n\
    \tchar name[4];\n\
    \tstruct inner pair[2];\n\
    };\n\
    enum colour { RED = 1, GREEN = 4 };\n\
    MIRRORED(struct outer, one);\n\
    MIRRORED(enum colour, two);\n";

const fn field<'a>(name: &'a str, offset: u32, kind: Kind<'a>, size: u32, count: u32) -> Field<'a> {
    let shape = Shape { kind, size, count };
    Field {
        name,
        offset,
        shape,
    }
}

/// What the C standard and the ABI make of `struct outer`.
const OUTER: Struct<'_> = Struct {
    name: "outer",
    size: 40,
    fields: &[
        field("first", 0, Kind::Unsigned, 8, 1),
        field("second", 8, Kind::Unsigned, 8, 1),
        field("third", 16, Kind::Unsigned, 4, 1),
        field("name", 20, Kind::Unsigned, 1, 4),
        field("pair", 24, Kind::Struct("inner"), 8, 2),
    ],
};

fn compiled(text: &str) -> Vec<u8> {
    let folder = tempfile::tempdir().unwrap();
    let (source, object) = (folder.path().join("x.c"), folder.path().join("x.o"));
    std::fs::write(&source, text).unwrap();
    Clang::new().compile(&source, &object).unwrap();
    std::fs::read(&object).unwrap()
}

#[test]
fn clang_and_rust_agree_on_a_struct() {
    let object = compiled(HEADER);
    let all = mirrored(&object).unwrap();
    let [Mirrored::Struct(outer), colour] = &all[..] else {
        panic!("{all:?}");
    };
    assert_eq!(outer.get(), OUTER);
    assert_eq!(outer.get().difference(&OUTER), None);
    let values = vec![("RED", 1), ("GREEN", 4)];
    assert_eq!(
        *colour,
        Mirrored::Enum {
            name: "colour",
            values
        }
    );
}

#[test]
fn each_mutation_of_a_header_is_refused_by_the_field() {
    let expected = [
        (Change::Swap, "struct outer, field first: another field"),
        // A narrower first field leaves a hole.
        (
            Change::Size,
            "struct outer: the byte at offset 4 has no name",
        ),
        (Change::Sign, "struct outer, field first: not the same sign"),
    ];
    let all = mutations(HEADER, "outer");
    assert_eq!(all.len(), expected.len());
    for (mutation, (change, begin)) in all.into_iter().zip(expected) {
        assert_eq!(mutation.change, change);
        let object = compiled(&mutation.text);
        let said = match mirrored(&object) {
            Err(error) => error.to_string(),
            Ok(all) => match &all[0] {
                Mirrored::Struct(outer) => outer.get().difference(&OUTER).unwrap().to_string(),
                other => panic!("{other:?}"),
            },
        };
        assert!(said.starts_with(begin), "{said}");
    }
}

#[test]
fn a_field_too_many_or_too_few_is_a_difference() {
    let fewer = Struct {
        fields: &OUTER.fields[..3],
        ..OUTER
    };
    assert!(OUTER.difference(&fewer).is_some());
    assert!(fewer.difference(&OUTER).is_some());
    let larger = Struct { size: 48, ..OUTER };
    assert!(OUTER.difference(&larger).is_some());
}

#[test]
fn padding_pointers_and_bit_fields_are_refused() {
    for (changed, padding) in [
        ("struct outer {\n\tu32 early;", true),
        ("struct outer {\n\tvoid *early;", false),
        ("struct outer {\n\tu64 early: 3, late: 61;", false),
    ] {
        let text = HEADER.replace("struct outer {", changed);
        match mirrored(&compiled(&text)) {
            Err(BtfError::Padding { structure, offset }) => {
                assert!(padding && structure == "outer" && offset == 4);
            }
            Err(BtfError::Unfit { structure, field }) => {
                assert!(!padding && structure == "outer" && field == "early");
            }
            other => panic!("{other:?}"),
        }
    }
}

#[test]
fn arrays_of_arrays_count_all_elements() {
    assert_eq!(<[[i16; 3]; 5]>::SHAPE.count, 15);
    assert_eq!(<[[i16; 3]; 5]>::SHAPE.size, 2);
}

#[test]
fn the_digest_changes_with_a_field() {
    let mut digests = Vec::new();
    let others = [
        HEADER.replace("second", "other"),
        HEADER.replace("GREEN = 4", "GREEN = 5"),
    ];
    for text in std::iter::once(HEADER.to_owned()).chain(others) {
        let mut tables = Tables::default();
        tables.add(&compiled(&text)).unwrap();
        digests.push(tables.digest());
    }
    digests.sort_unstable();
    digests.dedup();
    assert_eq!(digests.len(), 3);
}

#[test]
fn damaged_objects_are_errors() {
    let object = compiled(HEADER);
    for length in 0..object.len() {
        assert!(mirrored(&object[..length]).is_err(), "cut at {length}");
    }
    // Every byte wrong once: whatever comes out, nothing panics.
    let mut wrong = object.clone();
    for at in 0..object.len() {
        for bits in [1, 0x80, 0xff] {
            wrong[at] = object[at] ^ bits;
            let _ = mirrored(&wrong);
        }
        wrong[at] = object[at];
    }
}
