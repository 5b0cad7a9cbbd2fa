// SPDX-License-Identifier: Apache-2.0
//! The bare counting program that events are compared with.

use libbpf_rs::{Link, Object, ObjectBuilder};
use std::os::fd::{AsFd, AsRawFd};

#[repr(C, align(8))]
struct Aligned<T: ?Sized>(T);

static OBJECT: &Aligned<[u8]> = &Aligned(*include_bytes!(concat!(env!("OUT_DIR"), "/bare.bpf.o")));

/// The program, attached to the tracepoints of calls and segments.
pub struct Bare {
    object: Object,
    _links: Vec<Link>,
}

impl Bare {
    /// Loads and attaches it.
    ///
    /// # Errors
    /// What libbpf says.
    pub fn attach() -> Result<Self, libbpf_rs::Error> {
        let object = ObjectBuilder::default().open_memory(&OBJECT.0)?.load()?;
        let links = object
            .progs_mut()
            .map(|p| p.attach())
            .collect::<Result<_, _>>()?;
        Ok(Bare {
            object,
            _links: links,
        })
    }

    /// Runs and nanoseconds of the programs whose name begins with `prefix`.
    pub fn cost(&self, prefix: &str) -> (u64, u64) {
        self.object
            .progs()
            .filter(|p| p.name().to_string_lossy().starts_with(prefix))
            .fold((0, 0), |(runs, nanos), p| {
                let mut info = libbpf_rs::libbpf_sys::bpf_prog_info::default();
                let mut length = size_of_val(&info) as u32;
                // SAFETY: `info` is plain data of `length` bytes, which the call fills.
                unsafe {
                    libbpf_rs::libbpf_sys::bpf_obj_get_info_by_fd(
                        p.as_fd().as_raw_fd(),
                        (&raw mut info).cast(),
                        &mut length,
                    )
                };
                (runs + info.run_cnt, nanos + info.run_time_ns)
            })
    }
}
