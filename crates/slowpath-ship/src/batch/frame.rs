// SPDX-License-Identifier: Apache-2.0
//! What of a zstd frame can be refused before anything is decompressed (RFC 8878 section 3.1.1).

use super::{MAX_WINDOW, ReadError, malformed};
use zstd::zstd_safe;

const FIELD: &str = "items";

/// Refuses all but one frame, without a dictionary, with a window of at most [`MAX_WINDOW`] and
/// no other content size than `length`, and with nothing behind it.
pub(super) fn check(bytes: &[u8], length: u32) -> Result<(), ReadError> {
    let window = window(bytes).ok_or_else(|| malformed(FIELD, "no zstd frame begins there"))?;
    if window > MAX_WINDOW {
        return Err(malformed(
            FIELD,
            "the window of the zstd frame is over 2 MiB",
        ));
    }
    if zstd_safe::get_dict_id_from_frame(bytes).is_some() {
        return Err(malformed(FIELD, "the zstd frame wants a dictionary"));
    }
    match zstd_safe::get_frame_content_size(bytes) {
        Ok(None) => {}
        Ok(Some(size)) if size == u64::from(length) => {}
        _ => {
            return Err(malformed(
                FIELD,
                "the zstd frame has another length than stated",
            ));
        }
    }
    match zstd_safe::find_frame_compressed_size(bytes) {
        Ok(size) if size == bytes.len() => Ok(()),
        Ok(_) => Err(malformed(FIELD, "something follows the zstd frame")),
        Err(_) => Err(malformed(FIELD, "the zstd frame is cut off or damaged")),
    }
}

/// The window's size, bytes; of a frame with a single segment its content's (3.1.1.1.2).
fn window(bytes: &[u8]) -> Option<u64> {
    let rest = bytes.strip_prefix(&zstd_safe::MAGICNUMBER.to_le_bytes())?;
    let [descriptor, window, ..] = rest else {
        return None;
    };
    if descriptor & 0x20 != 0 {
        return zstd_safe::get_frame_content_size(bytes).ok()?;
    }
    let base = 1u64 << (10 + (window >> 3));
    Some(base + base / 8 * u64::from(window & 7))
}
