// SPDX-License-Identifier: Apache-2.0
//! Numbers out of bytes, little-endian, each checked and named.

use super::{ReadError, malformed};

/// Bytes yet to be read; every read checks first.
pub(super) struct Fields<'a> {
    bytes: &'a [u8],
    at: usize,
}

impl<'a> Fields<'a> {
    pub(super) fn new(bytes: &'a [u8]) -> Self {
        Fields { bytes, at: 0 }
    }

    /// Where the next field begins.
    pub(super) fn at(&self) -> usize {
        self.at
    }

    pub(super) fn is_empty(&self) -> bool {
        self.at == self.bytes.len()
    }

    pub(super) fn take(
        &mut self,
        length: usize,
        field: &'static str,
    ) -> Result<&'a [u8], ReadError> {
        let taken = self.bytes[self.at..]
            .get(..length)
            .ok_or_else(|| malformed(field, "the bytes end before or in it"))?;
        self.at += length;
        Ok(taken)
    }

    pub(super) fn array<const N: usize>(
        &mut self,
        field: &'static str,
    ) -> Result<[u8; N], ReadError> {
        let mut array = [0; N];
        array.copy_from_slice(self.take(N, field)?);
        Ok(array)
    }

    /// A text behind its length of two bytes.
    pub(super) fn text(&mut self, field: &'static str, most: usize) -> Result<&'a str, ReadError> {
        let length = usize::from(self.u16(field)?);
        if length > most {
            return Err(malformed(field, "it is over the limit"));
        }
        std::str::from_utf8(self.take(length, field)?)
            .map_err(|_| malformed(field, "it is no text"))
    }
}

macro_rules! numbers {
    ($($number:ident)*) => {
        impl Fields<'_> {
            $(pub(super) fn $number(&mut self, field: &'static str) -> Result<$number, ReadError> {
                Ok($number::from_le_bytes(self.array(field)?))
            })*
        }
    };
}

numbers!(u8 u16 u32 u64 u128 i64);
