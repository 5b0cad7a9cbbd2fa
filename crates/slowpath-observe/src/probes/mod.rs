// SPDX-License-Identifier: Apache-2.0
//! The probes: one folder each, with its BPF program (`mod.bpf.c`), the mirrors of its own
//! types, its loader, and what it offers to users of [`BpfTier`](crate::bpf::BpfTier). Each is an
//! object of its own that loads or fails on its own.
//!
//! State per connection that several probes share is in `connection.bpf.h`, its mirror in
//! [`connection`]. To add a probe: a folder, and a line in `probes!` below.

use crate::Feature;
use connection::Sums;
use load::Attaching;
use slowpath_layout::Struct;
use slowpath_model::Problem;
use std::any::Any;

pub(crate) mod connection;
pub(crate) mod load;

/// Declares the probes' folders and [`ALL`], in the order in which they are loaded.
macro_rules! probes {
    ($($name:ident),* $(,)?) => {
        $( pub(crate) mod $name; )*

        /// All probes, in the order in which they are loaded.
        pub(crate) const ALL: [&Probe; [$( stringify!($name) ),*].len()] =
            [$( &$name::PROBE ),*];
    };
}

probes! {
    lifecycle,
    snapshot,
    changes,
    segment,
    recovery,
    calls,
    listener,
    seed,
    seed_held,
    owner,
    in_flight,
}

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
    /// The sums of a connection that are not known without it.
    pub sums: &'static [Sums],
    /// Programs that run within a poll, so that their time is in the poll's.
    pub within_polls: &'static [&'static str],
    /// Programs whose missed runs are losses, and of what.
    pub losses: &'static [(&'static str, Loss)],
    /// The mirrors of its own types, beside those of [`connection`].
    pub mirrors: &'static [Struct<'static>],
    /// The compiled object.
    pub object: &'static [u8],
    /// Attaches its programs, once it is loaded. Gives what it keeps while it runs.
    pub attach: fn(&mut Attaching<'_>) -> Result<Box<dyn Any>, libbpf_rs::Error>,
}

/// What is lost where a program does not run.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Loss {
    /// The end of a connection.
    Close,
    /// A socket call.
    Call,
}

impl Probe {
    /// One that attaches all its programs and offers nothing; the others differ from it.
    pub(crate) const EVENTS: Probe = Probe {
        name: "",
        measures: "",
        since: "",
        required: false,
        serves: &[],
        sums: &[],
        within_polls: &[],
        losses: &[],
        mirrors: &[],
        object: &[],
        attach: |attaching| Ok(Box::new(attaching.attach_all()?)),
    };

    /// The feature that it is, in that state.
    pub(crate) fn feature(&self, state: crate::FeatureState) -> Feature {
        Feature {
            name: self.name,
            measures: self.measures,
            state,
            serves: self.serves.iter().copied().collect(),
        }
    }
}

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

#[cfg(test)]
mod tests;
