// SPDX-License-Identifier: Apache-2.0
//! Chosen losses: which segments are dropped, and which were.

use crate::{Namespace, TestbedError};
use libbpf_rs::{
    MapCore, MapFlags, Object, ObjectBuilder, PrintLevel, TC_INGRESS, TcHook, set_print,
};
use serde::{Deserialize, Serialize};
use slowpath_layout::{Mirror, Struct, btf, mirror};
use slowpath_model::MonoNanos;
use std::collections::BTreeMap;
use std::ffi::CString;
use std::io;
use std::net::{Ipv6Addr, SocketAddr};
use std::os::fd::AsFd;
use zerocopy::{FromBytes, IntoBytes};

#[repr(align(8))]
struct Aligned<T: ?Sized>(T);

static PROGRAM: &Aligned<[u8]> = &Aligned(*include_bytes!(concat!(env!("OUT_DIR"), "/drop.bpf.o")));

/// The C side of what is mirrored, from the object's BTF.
mod layouts {
    include!(concat!(env!("OUT_DIR"), "/layouts.rs"));
}

mirror! {
    /// `struct rule` of `bpf/drop.bpf.c`.
    struct RawRule = layouts::RULE {
        port: u32,
        every: u32,
        first: u32,
        limit: u32,
        transmissions: u32,
        message_bytes: u32,
        blackout: u32,
    }

    /// `struct flow_key`.
    struct RawFlow = layouts::FLOW_KEY {
        source: [u8; 16],
        destination: [u8; 16],
        source_port: u16,
        destination_port: u16,
    }

    /// `struct entry`: a segment that was dropped.
    struct RawEntry = layouts::ENTRY {
        time_ns: u64,
        flow: RawFlow,
        sequence: u32,
        offset: u32,
        length: u32,
        ordinal: u32,
        transmission: u32,
    }

    /// `struct totals`.
    struct RawTotals = layouts::TOTALS {
        originals: u64,
        retransmissions: u64,
        dropped: u64,
        dropped_without_data: u64,
        unrecorded: u64,
    }
}

const MIRRORS: [Struct<'static>; 4] = [
    RawRule::LAYOUT,
    RawFlow::LAYOUT,
    RawEntry::LAYOUT,
    RawTotals::LAYOUT,
];

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
        btf::check(&PROGRAM.0, &[&MIRRORS])
            .map_err(|error| bpf("load")(io::Error::other(error).into()))?;
        // Not what it only notes: a section that it does not load.
        set_print(Some((PrintLevel::Warn, |_, line| eprint!("{line}"))));
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
        let raw: RawTotals = self.read("totals", 0)?;
        Ok(DropTotals {
            originals: raw.originals,
            retransmissions: raw.retransmissions,
            dropped: raw.dropped,
            dropped_without_data: raw.dropped_without_data,
            unrecorded: raw.unrecorded,
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
            .map(|i| Ok(segment(&self.read("drop_log", i)?)))
            .collect()
    }

    fn write_rule(&self, blackout: bool) -> Result<(), TestbedError> {
        let rule = &self.rule;
        let raw = RawRule {
            port: u32::from(rule.port.unwrap_or(0)),
            every: rule.every.unwrap_or(0),
            first: rule.first,
            limit: rule.limit.unwrap_or(0),
            transmissions: rule.transmissions,
            message_bytes: rule.message_bytes.unwrap_or(0),
            blackout: u32::from(blackout),
        };
        self.map("rules")
            .update(&0u32.to_ne_bytes(), raw.as_bytes(), MapFlags::ANY)
            .map_err(bpf("set"))
    }

    fn map(&self, name: &str) -> libbpf_rs::Map<'_> {
        self.object
            .maps()
            .find(|map| map.name() == name)
            .expect("the program has the maps named here")
    }

    fn read<T: FromBytes>(&self, map: &str, index: u32) -> Result<T, TestbedError> {
        let value = self
            .map(map)
            .lookup(&index.to_ne_bytes(), MapFlags::ANY)
            .map_err(bpf("read"))?;
        let value = value.expect("an array has every index below its size");
        T::read_from_bytes(&value).map_err(|_| {
            let error = io::Error::from(io::ErrorKind::InvalidData);
            bpf("read")(error.into())
        })
    }
}

fn bpf(operation: &'static str) -> impl Fn(libbpf_rs::Error) -> TestbedError {
    move |source| TestbedError::Bpf { operation, source }
}

fn segment(raw: &RawEntry) -> DroppedSegment {
    let end = |octets: [u8; 16], port| SocketAddr::new(Ipv6Addr::from(octets).to_canonical(), port);
    DroppedSegment {
        at: MonoNanos(raw.time_ns),
        from: end(raw.flow.source, raw.flow.source_port),
        to: end(raw.flow.destination, raw.flow.destination_port),
        sequence: raw.sequence,
        offset: raw.offset,
        length: raw.length,
        ordinal: raw.ordinal,
        transmission: raw.transmission,
    }
}

#[cfg(test)]
mod tests {
    use super::MIRRORS;
    use slowpath_layout::btf;
    use slowpath_layout::compile::Clang;
    use slowpath_layout::mutate::{marked, try_all};
    use std::fs;
    use std::path::Path;

    #[test]
    fn a_mirrored_struct_that_differs_is_refused() {
        let folder = tempfile::tempdir().unwrap();
        let (source, object) = (
            folder.path().join("drop.bpf.c"),
            folder.path().join("drop.o"),
        );
        let program = Path::new(env!("CARGO_MANIFEST_DIR")).join("src/bpf/drop.bpf.c");
        fs::copy(program, &source).unwrap();
        let clang = Clang::new().include(env!("SLOWPATH_BPF_INCLUDE")).quiet();
        let structs = marked(&fs::read_to_string(&source).unwrap());
        let trial = try_all(&source, &structs, || {
            clang.compile(&source, &object)?;
            let object = fs::read(&object).map_err(|error| error.to_string())?;
            btf::check(&object, &[&MIRRORS]).map_err(|error| error.to_string())
        });
        let trial = trial.unwrap();
        assert!(trial.accepted.is_empty(), "{trial:?}");
        assert_eq!(trial.refused.len(), 3 * MIRRORS.len());
    }
}
