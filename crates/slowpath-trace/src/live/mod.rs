// SPDX-License-Identifier: Apache-2.0
//! Packets from an interface, through AF_PACKET's ring (TPACKET_V3, Linux 3.2).
//!
//! What enters: an interface's name, or `any`, and a [`Filter`]. What leaves: a capture like any
//! other, as an [`Input`] that ends on request, and [`Counters`] of what the kernel
//! took and lost. Needs CAP_NET_RAW.

mod ring;

use crate::filter::Filter;
use crate::frame::Link;
use crate::read::Input;
use ring::{Frame, Ring};
use std::io::{self, Read};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};

/// Why there is no capture.
#[derive(Debug, thiserror::Error)]
#[error("cannot {operation} on {interface}: {source}")]
pub struct LiveError {
    /// What was tried.
    pub operation: &'static str,
    /// Where.
    pub interface: String,
    /// Why not.
    pub source: io::Error,
}

/// What is captured.
#[derive(Clone, Debug)]
pub struct Request {
    /// The interface; `any`: all.
    pub interface: String,
    /// Bytes of a frame at most.
    pub snap_length: u32,
    /// Which frames.
    pub filter: Option<Filter>,
    /// Frames for others too.
    pub promiscuous: bool,
    /// Bytes of the ring, about.
    pub buffer: usize,
}

impl Request {
    /// The headers of everything on an interface.
    #[must_use]
    pub fn new(interface: impl Into<String>) -> Self {
        Request {
            interface: interface.into(),
            snap_length: 256,
            filter: None,
            promiscuous: false,
            buffer: 32 << 20,
        }
    }
}

/// What the kernel took and lost.
#[derive(Debug, Default)]
pub struct Counters {
    received: AtomicU64,
    dropped: AtomicU64,
}

impl Counters {
    /// Frames that passed the filter, those dropped included.
    #[must_use]
    pub fn received(&self) -> u64 {
        self.received.load(Ordering::Relaxed)
    }

    /// Frames dropped because the ring was full.
    #[must_use]
    pub fn dropped(&self) -> u64 {
        self.dropped.load(Ordering::Relaxed)
    }
}

/// Begins a capture. It goes on until `stop` is true, observed within about 100 ms; what the ring
/// then holds still comes.
///
/// # Errors
/// There is no such interface, it is of a kind that is not decoded, or the kernel refuses.
pub fn capture(
    request: &Request,
    stop: Arc<AtomicBool>,
) -> Result<(Input, Arc<Counters>), LiveError> {
    let ring = Ring::open(request)?;
    let counters = Arc::new(Counters::default());
    let name = format!("interface {}", request.interface);
    let live = Live {
        pending: file_header(ring.link(), request.snap_length),
        at: 0,
        filter: request.filter.clone().filter(|_| !ring.filters()),
        ring,
        stop,
        counters: Arc::clone(&counters),
    };
    Ok((Input::Stream(name, Box::new(live)), counters))
}

/// The ring's frames as a pcap stream with nanoseconds.
struct Live {
    ring: Ring,
    /// What the kernel does not filter.
    filter: Option<Filter>,
    stop: Arc<AtomicBool>,
    counters: Arc<Counters>,
    pending: Vec<u8>,
    at: usize,
}

fn file_header(link: Link, snap_length: u32) -> Vec<u8> {
    let number: u32 = match link {
        Link::Sll => 113,
        Link::Raw => 101,
        _ => 1,
    };
    let words = [0xa1b2_3c4d, 4 << 16 | 2, 0, 0, snap_length, number];
    words
        .iter()
        .flat_map(|word: &u32| word.to_le_bytes())
        .collect()
}

impl Live {
    /// The next block's frames; `false`: the end.
    fn refill(&mut self) -> io::Result<bool> {
        self.pending.clear();
        self.at = 0;
        let link = self.ring.link();
        while self.pending.is_empty() {
            let stopping = self.stop.load(Ordering::Relaxed);
            let (filter, pending) = (&self.filter, &mut self.pending);
            let came = self.ring.next_block(|frame| {
                let begin = pending.len();
                record(frame, pending);
                let wire = frame.wire_length;
                let unwanted = |f: &Filter| !f.matches(link, &pending[begin + 16..], wire);
                if filter.as_ref().is_some_and(unwanted) {
                    pending.truncate(begin);
                }
            })?;
            let (received, dropped) = self.ring.statistics();
            self.counters
                .received
                .fetch_add(received, Ordering::Relaxed);
            self.counters.dropped.fetch_add(dropped, Ordering::Relaxed);
            if stopping && !came {
                return Ok(false);
            }
        }
        Ok(true)
    }
}

/// Appends a record with its frame.
fn record(frame: &Frame<'_>, into: &mut Vec<u8>) {
    let captured = frame.head.len() + frame.data.len() + frame.tag.map_or(0, |_| 4);
    let words = [
        frame.seconds,
        frame.nanoseconds,
        captured as u32,
        frame.wire_length.max(captured as u32),
    ];
    into.extend(words.iter().flat_map(|word| word.to_le_bytes()));
    into.extend_from_slice(frame.head);
    match frame.tag.zip(frame.data.split_at_checked(12)) {
        Some((tag, (addresses, rest))) => {
            into.extend_from_slice(addresses);
            into.extend_from_slice(&tag);
            into.extend_from_slice(rest);
        }
        None => into.extend_from_slice(frame.data),
    }
}

impl Read for Live {
    fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        if self.at == self.pending.len() && !self.refill()? {
            return Ok(0);
        }
        let rest = &self.pending[self.at..];
        let count = rest.len().min(buffer.len());
        buffer[..count].copy_from_slice(&rest[..count]);
        self.at += count;
        Ok(count)
    }
}
