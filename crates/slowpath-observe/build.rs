// SPDX-License-Identifier: Apache-2.0
//! Compiles every `src/probes/*/mod.bpf.c` with clang into an object of its own, which the
//! crate embeds, and writes down the types that they share with Rust.

use slowpath_layout::compile::{Clang, Tables, out_dir};
use std::path::Path;
use std::{env, fs};

fn main() {
    println!("cargo::rerun-if-changed=src/probes");
    let headers = fs::canonicalize("src/probes").expect("src/probes is part of the crate");
    println!("cargo::metadata=include={}", headers.display());
    // For the test that compiles mutated headers.
    let libbpf = env::var("DEP_BPF_INCLUDE").expect("libbpf-sys exports its headers");
    println!("cargo::rustc-env=SLOWPATH_BPF_INCLUDE={libbpf}");
    if let Err(error) = compile(&out_dir()) {
        panic!("{error}");
    }
}

fn compile(out: &Path) -> Result<(), String> {
    let clang = Clang::in_build_script();
    let mut tables = Tables::default();
    let probes = fs::read_dir("src/probes").map_err(|error| error.to_string())?;
    for probe in probes {
        let folder = probe.map_err(|error| error.to_string())?.path();
        let source = folder.join("mod.bpf.c");
        if source.is_file()
            && let Some(name) = folder.file_name()
        {
            let object = out.join(name).with_extension("bpf.o");
            clang.compile(&source, &object)?;
            let bytes = fs::read(&object).map_err(|error| error.to_string())?;
            tables
                .add(&bytes)
                .map_err(|error| format!("{}: {error}", source.display()))?;
        }
    }
    tables.write(&out.join("layouts.rs"))
}
