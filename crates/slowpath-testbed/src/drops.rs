// SPDX-License-Identifier: Apache-2.0
//! Chosen losses: which segments are dropped, and which were.

use crate::{Namespace, TestbedError};
use libbpf_rs::{MapCore, MapFlags, Object, ObjectBuilder, TC_INGRESS, TcHook};
use serde::{Deserialize, Serialize};
use slowpath_model::MonoNanos;
use std::collections::BTreeMap;
use std::ffi::CString;
use std::net::{Ipv6Addr, SocketAddr};
use std::os::fd::AsFd;

#[repr(align(8))]
struct Aligned<T: ?Sized>(T);

static PROGRAM: &Aligned<[u8]> = &Aligned(*include_bytes!(concat!(env!("OUT_DIR"), "/drop.bpf.o")));

/// Which segments with payload are dropped. Segments are numbered from 1 in each
/// direction of each connection, in the order of their sequence numbers; a retransmission
/// has its original's number.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct DropRule {
    /// Source or destination port of the segments; `None`: any.
    pub port: Option<u16>,
    /// Every so-manieth from `first` on; `None`: only those in `ordinals`.
    pub every: Option<u32>,
    /// The first of `every`; default 1.
    pub first: u32,
    /// How many of `every` at most, for each connection.
    pub limit: Option<u32>,
    /// How many transmissions are dropped of each segment chosen by `every`; default 1.
    pub transmissions: u32,
    /// If set, `every` and `first` count messages of that many bytes, and each chosen
    /// message loses its last segment.
    pub message_bytes: Option<u32>,
    /// Segments chosen one by one: how many transmissions of each are dropped.
    #[serde(skip)]
    pub ordinals: BTreeMap<u32, u32>,
}

impl Default for DropRule {
    fn default() -> Self {
        DropRule {
            port: None,
            every: None,
            first: 1,
            limit: None,
            transmissions: 1,
            message_bytes: None,
            ordinals: BTreeMap::new(),
        }
    }
}

/// One dropped transmission of a segment with payload.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct DroppedSegment {
    /// When.
    pub at: MonoNanos,
    /// The connection's sending end; IPv4 as IPv4.
    pub from: SocketAddr,
    /// The connection's receiving end; IPv4 as IPv4.
    pub to: SocketAddr,
    /// TCP sequence number.
    pub sequence: u32,
    /// Position of its first byte in the stream, modulo 2^32.
    pub offset: u32,
    /// Payload bytes.
    pub length: u32,
    /// The segment's number, from 1; 0 if it was first dropped as a retransmission.
    pub ordinal: u32,
    /// Which dropped transmission of that segment: 1 is the first. For segments chosen
    /// by a [`DropRule`] that is the original.
    pub transmission: u32,
}

/// What the drop program saw.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct DropTotals {
    /// Segments with payload sent for the first time.
    pub originals: u64,
    /// Segments with payload sent again.
    pub retransmissions: u64,
    /// Segments with payload dropped.
    pub dropped: u64,
    /// Packets without payload dropped (during a blackout).
    pub dropped_without_data: u64,
    /// Packets it could not follow because its tables were full.
    pub unrecorded: u64,
}

/// The drop program at one interface's ingress. It stays there until the interface goes.
pub struct Dropper {
    object: Object,
    rule: DropRule,
}

impl std::fmt::Debug for Dropper {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Dropper").field("rule", &self.rule).finish()
    }
}

impl Dropper {
    /// Starts dropping what arrives at `interface` of `namespace`. Put it at the
    /// receiver's end; one an interface.
    ///
    /// # Errors
    /// There is no such interface, or the program cannot be loaded or attached.
    pub fn attach(
        namespace: &Namespace,
        interface: &str,
        rule: DropRule,
    ) -> Result<Self, TestbedError> {
        let object = ObjectBuilder::default()
            .open_memory(&PROGRAM.0)
            .and_then(|open| open.load())
            .map_err(bpf("load"))?;
        let dropper = Dropper { object, rule };
        dropper.write_rule(false)?;
        for (ordinal, transmissions) in &dropper.rule.ordinals {
            dropper
                .map("ordinals")
                .update(
                    &ordinal.to_ne_bytes(),
                    &transmissions.to_ne_bytes(),
                    MapFlags::ANY,
                )
                .map_err(bpf("set"))?;
        }
        let program = dropper
            .object
            .progs()
            .next()
            .expect("the object has one program");
        let fd = program.as_fd();
        let name = CString::new(interface).unwrap_or_default();
        namespace
            .run(|| {
                // SAFETY: the name is NUL-terminated and outlives the call.
                let index = unsafe { libc::if_nametoindex(name.as_ptr()) };
                let mut hook = TcHook::new(fd);
                hook.ifindex(index as i32)
                    .attach_point(TC_INGRESS)
                    .replace(true)
                    .handle(1)
                    .priority(1);
                hook.create().and_then(|mut hook| hook.attach()).map(|_| ())
            })?
            .map_err(bpf("attach"))?;
        Ok(dropper)
    }

    /// Drops everything from now on, or goes back to the rule.
    ///
    /// # Errors
    /// The map cannot be written.
    pub fn set_blackout(&self, on: bool) -> Result<(), TestbedError> {
        self.write_rule(on)
    }

    /// What was observed so far.
    ///
    /// # Errors
    /// The map cannot be read.
    pub fn totals(&self) -> Result<DropTotals, TestbedError> {
        let raw = self.read("totals", 0)?;
        let number = |i: usize| u64_at(&raw, i * 8);
        Ok(DropTotals {
            originals: number(0),
            retransmissions: number(1),
            dropped: number(2),
            dropped_without_data: number(3),
            unrecorded: number(4),
        })
    }

    /// The dropped segments so far, oldest first; at most 16,384, see
    /// [`DropTotals::dropped`] for how many there were.
    ///
    /// # Errors
    /// The map cannot be read.
    pub fn dropped(&self) -> Result<Vec<DroppedSegment>, TestbedError> {
        let room = self.map("drop_log").max_entries();
        let count = self.totals()?.dropped.min(room.into()) as u32;
        (0..count)
            .map(|i| Ok(entry(&self.read("drop_log", i)?)))
            .collect()
    }

    fn write_rule(&self, blackout: bool) -> Result<(), TestbedError> {
        let rule = &self.rule;
        let fields = [
            u32::from(rule.port.unwrap_or(0)),
            rule.every.unwrap_or(0),
            rule.first,
            rule.limit.unwrap_or(0),
            rule.transmissions,
            rule.message_bytes.unwrap_or(0),
            u32::from(blackout),
        ];
        let bytes: Vec<u8> = fields.into_iter().flat_map(u32::to_ne_bytes).collect();
        self.map("rules")
            .update(&0u32.to_ne_bytes(), &bytes, MapFlags::ANY)
            .map_err(bpf("set"))
    }

    fn map(&self, name: &str) -> libbpf_rs::Map<'_> {
        self.object
            .maps()
            .find(|map| map.name() == name)
            .expect("the program has the maps named here")
    }

    fn read(&self, map: &str, index: u32) -> Result<Vec<u8>, TestbedError> {
        let value = self
            .map(map)
            .lookup(&index.to_ne_bytes(), MapFlags::ANY)
            .map_err(bpf("read"))?;
        Ok(value.expect("an array has every index below its size"))
    }
}

fn bpf(operation: &'static str) -> impl Fn(libbpf_rs::Error) -> TestbedError {
    move |source| TestbedError::Bpf { operation, source }
}

fn u32_at(raw: &[u8], at: usize) -> u32 {
    u32::from_ne_bytes(std::array::from_fn(|i| raw[at + i]))
}

fn u64_at(raw: &[u8], at: usize) -> u64 {
    u64::from_ne_bytes(std::array::from_fn(|i| raw[at + i]))
}

/// `struct entry` of the program.
fn entry(raw: &[u8]) -> DroppedSegment {
    let end = |address: usize, port: usize| {
        let mut octets = [0; 16];
        octets.copy_from_slice(&raw[address..address + 16]);
        let port = u16::from_ne_bytes([raw[port], raw[port + 1]]);
        SocketAddr::new(Ipv6Addr::from(octets).to_canonical(), port)
    };
    DroppedSegment {
        at: MonoNanos(u64_at(raw, 0)),
        from: end(8, 40),
        to: end(24, 42),
        sequence: u32_at(raw, 44),
        offset: u32_at(raw, 48),
        length: u32_at(raw, 52),
        ordinal: u32_at(raw, 56),
        transmission: u32_at(raw, 60),
    }
}
