// SPDX-License-Identifier: Apache-2.0
//! Checksums of a whole Parquet file, in sixteen bytes before its footer, where the format allows
//! what no offset points to.
//!
//! | bytes | |
//! |---|---|
//! | 8 | mark `slowcrc1` |
//! | 4 | CRC-32 (IEEE 802.3) of all bytes before the mark |
//! | 4 | CRC-32 of the mark, the checksum above, and all bytes after these sixteen |
//!
//! The second covers the footer, its length and the magic at the end: whoever only needs the
//! metadata of a file reads its end. A file with [`KEY`] in its metadata has them; so a bit that
//! flips in the mark does not make it a file of a version that wrote none.
//!
//! The format's own checksums are of pages. They leave out page headers, dictionaries' lengths
//! and the footer, where a flipped bit changes rows just as well
//! (`docs/decisions/0043-hardening.md`).

use std::fs::File;
use std::io;
use std::os::unix::fs::FileExt as _;

/// Key of a file's metadata: it has checksums, of this kind.
pub(crate) const KEY: &str = "slowpath.checksums";
/// What the metadata states.
pub(crate) const KIND: &str = "crc32";

const MARK: [u8; 8] = *b"slowcrc1";
const BLOCK: usize = 16;
/// Length of the footer and the format's magic, at the end of every Parquet file.
const END: u64 = 8;
/// Bytes that are read at once.
const READ: usize = 1 << 16;

/// The checksum of what comes before the block of checksums.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Body {
    length: u64,
    checksum: u32,
}

/// Where the footer begins; `None` if the file is too short to have one.
fn footer(file: &File, length: u64) -> io::Result<Option<u64>> {
    let Some(end) = length.checked_sub(END) else {
        return Ok(None);
    };
    let mut bytes = [0; 4];
    file.read_exact_at(&mut bytes, end)?;
    Ok(end.checked_sub(u64::from(u32::from_le_bytes(bytes))))
}

fn checksum_until(file: &File, length: u64) -> io::Result<u32> {
    let nothing = Body {
        length: 0,
        checksum: 0,
    };
    checksum_after(nothing, file, length)
}

/// The checksum up to `length` of a file whose beginning has a known one.
fn checksum_after(known: Body, file: &File, length: u64) -> io::Result<u32> {
    let mut crc = crc32fast::Hasher::new_with_initial(known.checksum);
    let mut buffer = vec![0; READ];
    let mut at = known.length;
    while at < length {
        let piece = usize::try_from(length - at).unwrap_or(READ).min(READ);
        file.read_exact_at(&mut buffer[..piece], at)?;
        crc.update(&buffer[..piece]);
        at += piece as u64;
    }
    Ok(crc.finalize())
}

/// Puts the checksums into a file that was written whole; it must be open for reading, too.
pub(crate) fn seal(file: &File) -> io::Result<()> {
    seal_after(file, None)
}

/// The same of a file that begins with bytes of which the checksum is known.
pub(crate) fn seal_after(file: &File, known: Option<Body>) -> io::Result<()> {
    let length = file.metadata()?.len();
    let Some(footer) = footer(file, length)? else {
        return Err(io::ErrorKind::InvalidData.into());
    };
    let mut end = vec![0; usize::try_from(length - footer).unwrap_or(0)];
    file.read_exact_at(&mut end, footer)?;
    let mut bytes = MARK.to_vec();
    let body = match known {
        Some(known) => checksum_after(known, file, footer)?,
        None => checksum_until(file, footer)?,
    };
    bytes.extend(body.to_le_bytes());
    let mut crc = crc32fast::Hasher::new();
    crc.update(&bytes);
    crc.update(&end);
    bytes.extend(crc.finalize().to_le_bytes());
    bytes.extend(end);
    file.write_all_at(&bytes, footer)
}

/// Checks the end of a file; gives what its body must be, `None` for a file without checksums.
///
/// # Errors
/// The file cannot be read, or ([`io::ErrorKind::InvalidData`]) its end is damaged.
pub(crate) fn check_end(file: &File) -> io::Result<Option<Body>> {
    let length = file.metadata()?.len();
    let Some(block) = footer(file, length)?.and_then(|at| at.checked_sub(BLOCK as u64)) else {
        return Ok(None);
    };
    let mut bytes = [0; BLOCK];
    file.read_exact_at(&mut bytes, block)?;
    let (sealed, own) = bytes.split_at(BLOCK - 4);
    let Some(checksum) = sealed.strip_prefix(&MARK) else {
        return Ok(None);
    };
    let from = block + BLOCK as u64;
    let mut end = vec![0; usize::try_from(length - from).unwrap_or(0)];
    file.read_exact_at(&mut end, from)?;
    let mut crc = crc32fast::Hasher::new();
    crc.update(sealed);
    crc.update(&end);
    if crc.finalize().to_le_bytes() != own {
        return Err(damaged());
    }
    Ok(Some(Body {
        length: block,
        checksum: number(checksum),
    }))
}

impl Body {
    /// Checks it.
    ///
    /// # Errors
    /// As [`check_end`].
    pub(crate) fn check(self, file: &File) -> io::Result<()> {
        match checksum_until(file, self.length)? == self.checksum {
            true => Ok(()),
            false => Err(damaged()),
        }
    }
}

fn number(bytes: &[u8]) -> u32 {
    bytes.try_into().map_or(0, u32::from_le_bytes)
}

fn damaged() -> io::Error {
    io::Error::new(
        io::ErrorKind::InvalidData,
        "it is damaged, its checksum is wrong",
    )
}
