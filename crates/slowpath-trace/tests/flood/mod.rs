// SPDX-License-Identifier: Apache-2.0
//! A flood of SYNs as a capture, made while it is read.
#![allow(dead_code, reason = "each test uses a part")]

use std::io::Read;

/// The nanoseconds from one SYN to the next.
const GAP: u64 = 10_000;

/// A pcap file of SYNs, each from another address, to port 443 of one server.
pub struct Flood {
    count: u32,
    made: u32,
    buffer: Vec<u8>,
    at: usize,
}

impl Flood {
    pub fn new(count: u32) -> Self {
        let mut buffer = Vec::new();
        for word in [0xa1b2_3c4d_u32, 0x0004_0002, 0, 0, 65_535, 1] {
            buffer.extend(word.to_le_bytes());
        }
        Flood {
            count,
            made: 0,
            buffer,
            at: 0,
        }
    }

    fn record(&mut self) {
        let time = u64::from(self.made) * GAP;
        let frame = syn(self.made);
        let length = frame.len() as u32;
        self.buffer.clear();
        let seconds = 1_700_000_000 + (time / 1_000_000_000) as u32;
        let nanos = (time % 1_000_000_000) as u32;
        for word in [seconds, nanos, length, length] {
            self.buffer.extend(word.to_le_bytes());
        }
        self.buffer.extend(frame);
        self.made += 1;
    }
}

impl Read for Flood {
    fn read(&mut self, bytes: &mut [u8]) -> std::io::Result<usize> {
        let mut filled = 0;
        while filled < bytes.len() {
            if self.at == self.buffer.len() {
                if self.made == self.count {
                    break;
                }
                self.record();
                self.at = 0;
            }
            let count = (bytes.len() - filled).min(self.buffer.len() - self.at);
            bytes[filled..filled + count].copy_from_slice(&self.buffer[self.at..][..count]);
            self.at += count;
            filled += count;
        }
        Ok(filled)
    }
}

/// The n-th SYN of a flood, from its own address, with the options of Linux's SYNs.
pub fn syn(n: u32) -> Vec<u8> {
    let [_, a, b, c] = n.to_be_bytes();
    let mut frame = vec![2, 0, 0, 0, 0, 2, 2, 0, 0, 0, 0, 1, 8, 0];
    frame.extend([0x45, 0, 0, 60, 0x12, 0x34, 0x40, 0, 64, 6, 0, 0]);
    frame.extend([10, a, b, c, 192, 0, 2, 1]);
    frame.extend([40_000u16.to_be_bytes(), 443u16.to_be_bytes()].concat());
    frame.extend(n.wrapping_mul(0x9e37_79b9).to_be_bytes());
    frame.extend([0, 0, 0, 0, 0xa0, 2, 0xff, 0xff, 0, 0, 0, 0]);
    // MSS 1460, SACK permitted, timestamps, window scale 7.
    frame.extend([2, 4, 5, 0xb4, 4, 2, 8, 10]);
    frame.extend(n.to_be_bytes());
    frame.extend([0, 0, 0, 0, 1, 3, 3, 7]);
    frame
}
