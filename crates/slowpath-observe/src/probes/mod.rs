// SPDX-License-Identifier: Apache-2.0
//! The probes: one folder each, with its BPF program (`mod.bpf.c`) and what user space has
//! to know of it. Each is an object of its own that loads or fails on its own; all share
//! the socket storage and the counters of `connection.bpf.h`.

use slowpath_model::Problem;

pub(crate) mod calls;
pub(crate) mod changes;
pub(crate) mod in_flight;
pub(crate) mod lifecycle;
pub(crate) mod listener;
pub(crate) mod owner;
pub(crate) mod recovery;
pub(crate) mod seed;
pub(crate) mod seed_held;
pub(crate) mod segment;
pub(crate) mod snapshot;

/// One probe, before it is loaded.
#[derive(Debug)]
pub(crate) struct Probe {
    /// The feature's name, as users see it.
    pub name: &'static str,
    /// What it measures.
    pub measures: &'static str,
    /// First Linux version that has what it needs.
    pub since: &'static str,
    /// Whether the BPF tier works without it.
    pub required: bool,
    /// Problems that cannot be measured without it.
    pub serves: &'static [Problem],
    /// The compiled object.
    pub object: &'static [u8],
}

/// All probes, in the order in which they are loaded.
pub(crate) const ALL: [&Probe; 11] = [
    &lifecycle::PROBE,
    &snapshot::PROBE,
    &changes::PROBE,
    &segment::PROBE,
    &recovery::PROBE,
    &calls::PROBE,
    &listener::PROBE,
    &seed::PROBE,
    &seed_held::PROBE,
    &owner::PROBE,
    &in_flight::PROBE,
];

/// Bytes aligned as the ELF reader wants them.
#[repr(C, align(8))]
#[derive(Debug)]
pub struct Aligned<T: ?Sized>(pub T);

/// Embeds the object that the crate's build script made of `src/probes/$name/mod.bpf.c`.
#[macro_export]
macro_rules! object {
    ($name:literal) => {{
        static OBJECT: &$crate::Aligned<[u8]> = &$crate::Aligned(*include_bytes!(concat!(
            env!("OUT_DIR"),
            "/",
            $name,
            ".bpf.o"
        )));
        &OBJECT.0
    }};
}
pub(crate) use crate::object;
