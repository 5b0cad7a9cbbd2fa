// SPDX-License-Identifier: Apache-2.0
//! A BPF program that does nothing, once a packet: the run time that the kernel measures for it is what measuring costs.
//!
//! What leaves is one number, to be subtracted from the measured time of each run of another program ([`crate::bpf::enable_statistics`]).

use crate::bpf::Programs;
use crate::probes::object;
use libbpf_rs::{Link, Object, ObjectBuilder};

/// It runs until it is dropped.
pub struct Empty {
    object: Object,
    _link: Vec<Link>,
}

impl std::fmt::Debug for Empty {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Empty").finish_non_exhaustive()
    }
}

impl Empty {
    /// Attaches it to the tracepoint `tcp_probe`, where TCP begins with a packet.
    ///
    /// # Errors
    /// If the kernel does not allow it.
    pub fn open() -> Result<Empty, libbpf_rs::Error> {
        let object = ObjectBuilder::default()
            .name("empty")?
            .open_memory(object!("empty"))?
            .load()?;
        let links = object.progs_mut().map(|program| program.attach());
        let links = links.collect::<Result<_, _>>()?;
        Ok(Empty {
            object,
            _link: links,
        })
    }

    /// Measured time of a run, in nanoseconds; `None` if it did not run, or the kernel did not measure.
    pub fn nanos_per_run(&self) -> Option<f64> {
        let costs = Programs::of(&self.object).costs("empty");
        let cost = costs.first().filter(|cost| cost.runs > 0)?;
        Some(cost.nanos as f64 / cost.runs as f64)
    }
}
