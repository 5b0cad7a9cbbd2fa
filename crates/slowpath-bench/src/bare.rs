// SPDX-License-Identifier: Apache-2.0
//! The bare counting program that events are compared with.

use libbpf_rs::{Link, Object, ObjectBuilder};
use slowpath_layout::btf;
use std::io;
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
    /// If it shares a struct with Rust, which has no mirror of any; otherwise what libbpf says.
    pub fn attach() -> Result<Self, libbpf_rs::Error> {
        btf::check(&OBJECT.0, &[]).map_err(io::Error::other)?;
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

#[cfg(test)]
mod tests {
    use super::OBJECT;
    use slowpath_layout::btf::{self, LayoutError};
    use slowpath_layout::compile::Clang;
    use std::fs;
    use std::path::Path;

    /// The program's own map is the kernel's affair: it passes as it is, and is refused as soon
    /// as it marks a struct that Rust is to read.
    #[test]
    fn a_shared_struct_without_a_mirror_is_refused() {
        btf::check(&OBJECT.0, &[]).unwrap();
        let program = Path::new(env!("CARGO_MANIFEST_DIR")).join("src/bare.bpf.c");
        let shared = "struct totals {\n\t__u64 sends;\n\t__u64 receives;\n};\n\
            const struct totals *mirrored_totals __attribute__((section(\"mirrored\"), used));\n";
        let folder = tempfile::tempdir().unwrap();
        let source = folder.path().join("bare.bpf.c");
        let object = folder.path().join("bare.bpf.o");
        fs::write(&source, fs::read_to_string(program).unwrap() + shared).unwrap();
        Clang::new().compile(&source, &object).unwrap();
        let refused = btf::check(&fs::read(&object).unwrap(), &[]);
        assert_eq!(refused, Err(LayoutError::NoMirror("totals".into())));
    }
}
