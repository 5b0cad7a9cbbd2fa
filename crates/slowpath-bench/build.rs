// SPDX-License-Identifier: Apache-2.0
//! Compiles the bare counting program that events are compared with.

use std::path::PathBuf;
use std::process::Command;

fn main() {
    println!("cargo::rerun-if-changed=src/bare.bpf.c");
    let out = PathBuf::from(std::env::var_os("OUT_DIR").expect("cargo sets OUT_DIR"));
    let clang = std::env::var_os("CLANG").unwrap_or_else(|| "clang".into());
    let status = Command::new(clang)
        .args([
            "-target", "bpf", "-mcpu=v3", "-O2", "-g", "-Wall", "-Werror",
        ])
        .args(["-c", "src/bare.bpf.c", "-o"])
        .arg(out.join("bare.bpf.o"))
        .status()
        .expect("clang runs: install the Debian package clang, or set CLANG");
    assert!(status.success(), "compiling src/bare.bpf.c: {status}");
}
