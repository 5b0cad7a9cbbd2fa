// SPDX-License-Identifier: Apache-2.0
//! The files between here and the laboratory kernel: twin of `lab/kernel/driver/plan.h`,
//! which says what each field means. Little-endian.

/// `SPLSPLAB`.
pub const MAGIC: u64 = 0x4241_4c50_534c_5053;
/// Raised with every change of these files.
pub const VERSION: u32 = 12;
/// Not a time.
pub const NEVER: u64 = u64::MAX;

/// Captures are written.
pub const CAPTURE: u32 = 1;
/// Drops, marks and detours are written one by one.
pub const EVENTS: u32 = 2;
/// Packets pass a process inside.
pub const THROUGH_PROCESS: u32 = 4;
/// Runs of handlers are recorded.
pub const RECORD: u32 = 8;
/// A script is replayed.
pub const REPLAY: u32 = 16;
/// The state after each run is written.
pub const PROBE: u32 = 32;
/// The script is of a stock kernel, whose calls wait and which has queues.
pub const FOLLOW: u32 = 64;
/// Something about the connections is not as it was.
pub const WHAT_IF: u32 = 128;
/// What each run left is written.
pub const REPORT: u32 = 256;
/// With [`PROBE`]: further variables of the socket.
pub const PROBE_MORE: u32 = 512;

/// Of a kind: the connection is opened by a handshake when it begins.
pub const HANDSHAKE: u32 = 1;
/// Of a kind: no delayed acknowledgments.
pub const ACK_AT_ONCE: u32 = 2;
/// Of a kind: the connection speaks IPv6.
pub const IPV6: u32 = 4;

/// In a node's number: a switch.
pub const SWITCH: u32 = 1 << 31;

/// Something of a fixed layout, written field by field.
#[derive(Debug, Default)]
pub struct Writer(pub Vec<u8>);

impl Writer {
    /// Bytes.
    pub fn u8s(&mut self, values: &[u8]) {
        self.0.extend_from_slice(values);
    }
    /// One number.
    pub fn u16(&mut self, value: u16) {
        self.u8s(&value.to_le_bytes());
    }
    /// Numbers.
    pub fn u32s<const N: usize>(&mut self, values: [u32; N]) {
        for value in values {
            self.u8s(&value.to_le_bytes());
        }
    }
    /// Numbers.
    pub fn u64s<const N: usize>(&mut self, values: [u64; N]) {
        for value in values {
            self.u8s(&value.to_le_bytes());
        }
    }
}

/// Reads field by field; `None` where the bytes end.
#[derive(Clone, Copy, Debug)]
pub struct Reader<'a>(pub &'a [u8]);

impl<'a> Reader<'a> {
    /// So many bytes.
    pub fn bytes(&mut self, count: usize) -> Option<&'a [u8]> {
        let (head, rest) = self.0.split_at_checked(count)?;
        self.0 = rest;
        Some(head)
    }
    fn array<const N: usize>(&mut self) -> Option<[u8; N]> {
        let (head, rest) = self.0.split_first_chunk()?;
        self.0 = rest;
        Some(*head)
    }
    /// One number.
    pub fn u8(&mut self) -> Option<u8> {
        self.array().map(u8::from_le_bytes)
    }
    /// One number.
    pub fn u16(&mut self) -> Option<u16> {
        self.array().map(u16::from_le_bytes)
    }
    /// One number.
    pub fn u32(&mut self) -> Option<u32> {
        self.array().map(u32::from_le_bytes)
    }
    /// One number.
    pub fn u64(&mut self) -> Option<u64> {
        self.array().map(u64::from_le_bytes)
    }
    /// One number.
    pub fn i64(&mut self) -> Option<i64> {
        self.array().map(i64::from_le_bytes)
    }
    /// Whether all has been read.
    pub fn is_empty(&self) -> bool {
        self.0.is_empty()
    }
}
