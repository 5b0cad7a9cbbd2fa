// SPDX-License-Identifier: Apache-2.0
//! As much of protobuf's wire format as the message needs ("Encoding", protobuf.dev).

/// Wire types.
const VARINT: u32 = 0;
const FIXED64: u32 = 1;
const LENGTH: u32 = 2;
const FIXED32: u32 = 5;

/// A message being written.
#[derive(Debug, Default)]
pub(super) struct Message {
    bytes: Vec<u8>,
}

impl Message {
    pub(super) fn into_bytes(self) -> Vec<u8> {
        self.bytes
    }

    fn varint(&mut self, mut value: u64) {
        while value >= 0x80 {
            self.bytes.push(value as u8 | 0x80);
            value >>= 7;
        }
        self.bytes.push(value as u8);
    }

    fn tag(&mut self, field: u32, wire_type: u32) {
        self.varint(u64::from(field << 3 | wire_type));
    }

    /// A number or an enum's value; the default, 0, is not written.
    pub(super) fn number(&mut self, field: u32, value: u64) {
        if value != 0 {
            self.tag(field, VARINT);
            self.varint(value);
        }
    }

    /// Eight bytes: fixed64, sfixed64, or a double's bits; 0 is written, because fields of a
    /// `oneof` need it.
    pub(super) fn fixed(&mut self, field: u32, value: u64) {
        self.tag(field, FIXED64);
        self.bytes.extend(value.to_le_bytes());
    }

    /// Many times eight bytes.
    pub(super) fn packed(&mut self, field: u32, values: impl ExactSizeIterator<Item = u64>) {
        self.tag(field, LENGTH);
        self.varint(values.len() as u64 * 8);
        for value in values {
            self.bytes.extend(value.to_le_bytes());
        }
    }

    pub(super) fn text(&mut self, field: u32, text: &str) {
        self.tag(field, LENGTH);
        self.varint(text.len() as u64);
        self.bytes.extend(text.as_bytes());
    }

    /// A message within this one.
    pub(super) fn message(&mut self, field: u32, fill: impl FnOnce(&mut Message)) {
        let mut inner = Message::default();
        fill(&mut inner);
        self.tag(field, LENGTH);
        self.varint(inner.bytes.len() as u64);
        self.bytes.append(&mut inner.bytes);
    }
}

/// The value of a field, as far as anybody here asks for it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Field<'a> {
    Number(u64),
    Bytes(&'a [u8]),
}

/// The fields of a message, up to the first place that is none.
pub(super) fn fields(mut bytes: &[u8]) -> impl Iterator<Item = (u64, Field<'_>)> {
    std::iter::from_fn(move || {
        let tag = take_varint(&mut bytes)?;
        let field = match (tag & 7) as u32 {
            VARINT => Field::Number(take_varint(&mut bytes)?),
            FIXED64 => Field::Bytes(take(&mut bytes, 8)?),
            LENGTH => {
                let length = usize::try_from(take_varint(&mut bytes)?).ok()?;
                Field::Bytes(take(&mut bytes, length)?)
            }
            FIXED32 => Field::Bytes(take(&mut bytes, 4)?),
            _ => return None,
        };
        Some((tag >> 3, field))
    })
}

fn take<'a>(bytes: &mut &'a [u8], length: usize) -> Option<&'a [u8]> {
    let (taken, rest) = bytes.split_at_checked(length)?;
    *bytes = rest;
    Some(taken)
}

fn take_varint(bytes: &mut &[u8]) -> Option<u64> {
    let mut value = 0;
    for shift in (0..64).step_by(7) {
        let byte = take(bytes, 1)?[0];
        value |= u64::from(byte & 0x7f) << shift;
        if byte & 0x80 == 0 {
            return Some(value);
        }
    }
    None
}

/// Text, whatever the bytes are.
pub(super) fn text_of(bytes: &[u8]) -> String {
    String::from_utf8_lossy(bytes).into_owned()
}
