// SPDX-License-Identifier: Apache-2.0
//! Compiles the bare counting program that events are compared with.

use slowpath_layout::compile::{Clang, out_dir};

const SOURCE: &str = "src/bare.bpf.c";

fn main() {
    println!("cargo::rerun-if-changed={SOURCE}");
    let object = out_dir().join("bare.bpf.o");
    if let Err(error) = Clang::in_build_script().compile(SOURCE.as_ref(), &object) {
        panic!("{error}");
    }
}
