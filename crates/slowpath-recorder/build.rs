// SPDX-License-Identifier: Apache-2.0
//! Compiles every `src/probes/*/mod.bpf.c` with clang into an object of its own, which the crate embeds, and writes down the types that it
//! shares with Rust. The headers of the kernel's structures are slowpath-observe's; libbpf's come with libbpf-sys, so that they match the loader.

use slowpath_layout::compile::{Clang, Tables, out_dir};
use std::path::Path;
use std::{env, fs};

fn main() {
    println!("cargo::rerun-if-changed=src/probes");
    let kernel =
        env::var("DEP_SLOWPATH_PROBES_INCLUDE").expect("slowpath-observe exports its headers");
    println!("cargo::rerun-if-changed={kernel}");
    // For the test that compiles mutated headers.
    let libbpf = env::var("DEP_BPF_INCLUDE").expect("libbpf-sys exports its headers");
    println!("cargo::rustc-env=SLOWPATH_BPF_INCLUDE={libbpf}");
    println!("cargo::rustc-env=SLOWPATH_PROBES_INCLUDE={kernel}");
    let clang = Clang::in_build_script().include(kernel);
    for probe in ["handlers", "packets"] {
        if let Err(error) = compile(&clang, probe, &out_dir()) {
            panic!("{probe}: {error}");
        }
    }
}

fn compile(clang: &Clang, probe: &str, out: &Path) -> Result<(), String> {
    let source = Path::new("src/probes").join(probe).join("mod.bpf.c");
    let object = out.join(probe).with_extension("bpf.o");
    clang.compile(&source, &object)?;
    let bytes = fs::read(&object).map_err(|error| error.to_string())?;
    let mut tables = Tables::default();
    tables.add(&bytes)?;
    tables.write(&out.join(probe).with_extension("rs"))
}
