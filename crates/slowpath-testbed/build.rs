// SPDX-License-Identifier: Apache-2.0
//! Compiles the drop program with clang; the crate embeds the object. Writes down the types that it shares with Rust.

use slowpath_layout::compile::{Clang, Tables, out_dir};
use std::env;

const SOURCE: &str = "src/bpf/drop.bpf.c";

fn main() {
    println!("cargo::rerun-if-changed={SOURCE}");
    // For the test that compiles a mutated program.
    let libbpf = env::var("DEP_BPF_INCLUDE").expect("libbpf-sys exports its headers");
    println!("cargo::rustc-env=SLOWPATH_BPF_INCLUDE={libbpf}");
    if let Err(error) = compile() {
        panic!("{error}");
    }
}

fn compile() -> Result<(), String> {
    let object = out_dir().join("drop.bpf.o");
    Clang::in_build_script().compile(SOURCE.as_ref(), &object)?;
    let mut tables = Tables::default();
    let bytes = std::fs::read(&object).map_err(|error| error.to_string())?;
    tables.add(&bytes)?;
    tables.write(&out_dir().join("layouts.rs"))
}
