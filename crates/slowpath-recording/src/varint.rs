// SPDX-License-Identifier: Apache-2.0
//! Numbers as LEB128, signed ones zigzag before, and what is made of them: texts, maps, addresses; and how they are taken again from bytes that may be nonsense.

use super::error::Nonsense;
use std::collections::BTreeMap;
use std::net::SocketAddr;

/// Appends a number, seven bits a byte, the lowest first.
pub(super) fn put(out: &mut Vec<u8>, mut value: u64) {
    while value >= 0x80 {
        out.push(value as u8 | 0x80);
        value >>= 7;
    }
    out.push(value as u8);
}

/// Appends a signed number: 0, -1, 1, -2 become 0, 1, 2, 3.
pub(super) fn put_signed(out: &mut Vec<u8>, value: i64) {
    put(out, zigzag(value));
}

/// Appends a text with its length.
pub(super) fn put_text(out: &mut Vec<u8>, text: &str) {
    put(out, text.len() as u64);
    out.extend(text.as_bytes());
}

/// Appends names with their values.
pub(super) fn put_map(map: &BTreeMap<String, String>, out: &mut Vec<u8>) {
    put(out, map.len() as u64);
    for (name, value) in map {
        put_text(out, name);
        put_text(out, value);
    }
}

/// Appends an address with its port.
pub(super) fn put_address(address: &SocketAddr, out: &mut Vec<u8>) {
    match address {
        SocketAddr::V4(v4) => {
            out.push(4);
            out.extend(v4.ip().octets());
        }
        SocketAddr::V6(v6) => {
            out.push(6);
            out.extend(v6.ip().octets());
            put(out, v6.flowinfo().into());
            put(out, v6.scope_id().into());
        }
    }
    put(out, address.port().into());
}

/// Small for values near zero, whichever their sign.
pub(super) fn zigzag(value: i64) -> u64 {
    ((value << 1) ^ (value >> 63)) as u64
}

/// The reverse of [`zigzag`].
pub(super) fn unzigzag(value: u64) -> i64 {
    (value >> 1) as i64 ^ -((value & 1) as i64)
}

/// What is left of some bytes.
#[derive(Clone, Debug, Default)]
pub(super) struct Bytes<'a> {
    left: &'a [u8],
    /// What they are, for errors.
    name: &'static str,
}

impl<'a> Bytes<'a> {
    pub(super) const EMPTY: Bytes<'static> = Bytes {
        left: &[],
        name: "",
    };

    pub(super) fn new(left: &'a [u8], name: &'static str) -> Self {
        Bytes { left, name }
    }

    pub(super) fn len(&self) -> usize {
        self.left.len()
    }

    /// The next `length` bytes.
    pub(super) fn take(&mut self, length: usize) -> Result<&'a [u8], Nonsense> {
        let (taken, left) = self
            .left
            .split_at_checked(length)
            .ok_or(Nonsense::Short { what: self.name })?;
        self.left = left;
        Ok(taken)
    }

    /// All that is left.
    pub(super) fn rest(&mut self) -> &'a [u8] {
        std::mem::take(&mut self.left)
    }

    pub(super) fn byte(&mut self) -> Result<u8, Nonsense> {
        self.array().map(|[byte]| byte)
    }

    pub(super) fn array<const N: usize>(&mut self) -> Result<[u8; N], Nonsense> {
        let (taken, left) = self
            .left
            .split_first_chunk()
            .ok_or(Nonsense::Short { what: self.name })?;
        self.left = left;
        Ok(*taken)
    }

    pub(super) fn number(&mut self) -> Result<u64, Nonsense> {
        let mut value = 0u64;
        for shift in (0..64).step_by(7) {
            let byte = self.byte()?;
            let bits = u64::from(byte & 0x7f);
            if shift == 63 && bits > 1 {
                break;
            }
            value |= bits << shift;
            if byte < 0x80 {
                return Ok(value);
            }
        }
        Err(self.too_large())
    }

    pub(super) fn signed(&mut self) -> Result<i64, Nonsense> {
        self.number().map(unzigzag)
    }

    /// A number that has to fit a smaller type.
    pub(super) fn narrow<T: TryFrom<u64>>(&mut self) -> Result<T, Nonsense> {
        let number = self.number()?;
        T::try_from(number).map_err(|_| self.too_large())
    }

    pub(super) fn text(&mut self) -> Result<String, Nonsense> {
        let length = self.narrow()?;
        let bytes = self.take(length)?;
        match std::str::from_utf8(bytes) {
            Ok(text) => Ok(text.to_owned()),
            Err(_) => Err(Nonsense::Text { what: self.name }),
        }
    }

    /// Nothing may be left.
    pub(super) fn end(&self) -> Result<(), Nonsense> {
        if self.left.is_empty() {
            Ok(())
        } else {
            Err(Nonsense::Left { what: self.name })
        }
    }

    fn too_large(&self) -> Nonsense {
        Nonsense::Large { what: self.name }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn numbers_come_back() {
        let numbers = [0, 1, 127, 128, 16_383, 16_384, u64::MAX - 1, u64::MAX];
        let mut out = Vec::new();
        for number in numbers {
            put(&mut out, number);
        }
        // 7 bits a byte: 1, 1, 1, 2, 2, 3, 10, 10.
        assert_eq!(out.len(), 30);
        let mut bytes = Bytes::new(&out, "numbers");
        for number in numbers {
            assert_eq!(bytes.number(), Ok(number));
        }
        assert_eq!(bytes.end(), Ok(()));
        for value in [0, -1, 1, i64::MIN, i64::MAX] {
            assert_eq!(unzigzag(zigzag(value)), value);
        }
        assert_eq!(zigzag(-2), 3);
    }

    #[test]
    fn what_is_no_number_is_refused() {
        let eleven = [0x80; 11];
        assert!(Bytes::new(&eleven, "it").number().is_err());
        let past = [0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 2];
        assert!(Bytes::new(&past, "it").number().is_err());
        assert!(Bytes::new(&[0x80], "it").number().is_err());
        assert!(Bytes::new(&[0x80, 2], "it").narrow::<u8>().is_err());
    }
}
