// SPDX-License-Identifier: Apache-2.0
//! Compressed captures, by their first bytes: gzip (RFC 1952) and Zstandard (RFC 8878), each
//! of any number of members or frames. A thread of its own decompresses.

use std::io::{self, BufReader, Read};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::mpsc::{Receiver, sync_channel};

const GZIP: [u8; 3] = [0x1f, 0x8b, 8];
const ZSTD: [u8; 4] = [0x28, 0xb5, 0x2f, 0xfd];

/// Bytes handed over at once, and how many such chunks may wait.
const CHUNK: usize = 256 << 10;
const CHUNKS: usize = 8;

/// How an input is compressed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Compression {
    None,
    Gzip,
    Zstd,
}

/// Enough bytes to decide.
pub(super) const MAGIC: usize = 4;

impl Compression {
    pub(super) fn of(begins: &[u8]) -> Self {
        if begins.starts_with(&GZIP) {
            Compression::Gzip
        } else if begins.starts_with(&ZSTD) || is_skippable(begins) {
            Compression::Zstd
        } else {
            Compression::None
        }
    }
}

/// A skippable frame, as parallel compressors write them first: 0x184D2A50 to 0x184D2A5F.
fn is_skippable(begins: &[u8]) -> bool {
    matches!(begins, [0x50..=0x5f, 0x2a, 0x4d, 0x18, ..])
}

/// What came of decompression so far; read it after the end.
#[derive(Clone, Debug, Default)]
pub(super) struct Condition {
    broken: Arc<AtomicBool>,
    large_window: Arc<AtomicBool>,
}

impl Condition {
    /// Whether the data were damaged or ended early.
    pub(super) fn broken(&self) -> bool {
        self.broken.load(Ordering::Acquire)
    }

    /// Whether zstd's decoder refused them because they need more memory than it takes.
    pub(super) fn needs_large_window(&self) -> bool {
        self.large_window.load(Ordering::Acquire)
    }

    fn failed(&self, error: &io::Error) {
        // The text of ZSTD_error_frameParameter_windowTooLarge (zstd's lib/common/error_private.c): its number
        // does not come through.
        let large = error.to_string().contains("too much memory");
        self.large_window.store(large, Ordering::Release);
        self.broken.store(true, Ordering::Release);
    }
}

/// Counts what passes.
pub(super) struct Counting<R> {
    pub(super) inner: R,
    pub(super) count: Arc<AtomicU64>,
}

impl<R: Read> Read for Counting<R> {
    fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        let read = self.inner.read(buffer)?;
        self.count.fetch_add(read as u64, Ordering::Relaxed);
        Ok(read)
    }
}

/// The decompressed bytes. Damage ends them; it is not an error, what came before counts.
pub(super) fn decompress(
    compression: Compression,
    input: impl Read + Send + 'static,
    condition: Condition,
) -> io::Result<Box<dyn Read + Send>> {
    if compression == Compression::None {
        return Ok(Box::new(input));
    }
    let input = BufReader::with_capacity(CHUNK, input);
    let decoder: Box<dyn Read + Send> = match compression {
        Compression::Gzip => Box::new(flate2::bufread::MultiGzDecoder::new(input)),
        _ => Box::new(zstd::stream::read::Decoder::with_buffer(input)?),
    };
    let (sender, receiver) = sync_channel(CHUNKS);
    std::thread::Builder::new()
        .name("decompress".to_owned())
        .spawn(move || {
            let mut decoder = decoder;
            loop {
                let mut chunk = Vec::with_capacity(CHUNK);
                let read = (&mut decoder).take(CHUNK as u64).read_to_end(&mut chunk);
                let ended = match read {
                    Ok(read) => read == 0,
                    Err(error) => {
                        condition.failed(&error);
                        true
                    }
                };
                if !chunk.is_empty() && sender.send(chunk).is_err() || ended {
                    return;
                }
            }
        })?;
    Ok(Box::new(Chunks {
        receiver,
        chunk: Vec::new(),
        at: 0,
    }))
}

struct Chunks {
    receiver: Receiver<Vec<u8>>,
    chunk: Vec<u8>,
    at: usize,
}

impl Read for Chunks {
    fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        if self.at == self.chunk.len() {
            // The sender is gone: the end.
            self.chunk = self.receiver.recv().unwrap_or_default();
            self.at = 0;
        }
        let rest = &self.chunk[self.at..];
        let count = rest.len().min(buffer.len());
        buffer[..count].copy_from_slice(&rest[..count]);
        self.at += count;
        Ok(count)
    }
}
