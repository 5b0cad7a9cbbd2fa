// SPDX-License-Identifier: Apache-2.0
//! Compiles the drop program with clang; the crate embeds the object.

use std::env;
use std::path::PathBuf;
use std::process::Command;

const SOURCE: &str = "src/bpf/drop.bpf.c";

fn main() {
    println!("cargo::rerun-if-changed={SOURCE}");
    println!("cargo::rerun-if-env-changed=CLANG");
    let out = PathBuf::from(env::var_os("OUT_DIR").expect("cargo sets OUT_DIR"));
    let include = env::var_os("DEP_BPF_INCLUDE").expect("libbpf-sys exports its headers");
    let clang = env::var_os("CLANG").unwrap_or_else(|| "clang".into());
    let status = Command::new(&clang)
        .args([
            "-target", "bpf", "-mcpu=v3", "-O2", "-g", "-Wall", "-Werror",
        ])
        .arg("-I")
        .arg(include)
        .arg("-c")
        .arg(SOURCE)
        .arg("-o")
        .arg(out.join("drop.bpf.o"))
        .status();
    match status {
        Ok(status) if status.success() => {}
        Ok(status) => panic!("compiling {SOURCE} with clang: {status}"),
        Err(error) => panic!(
            "compiling {SOURCE}: cannot run {}: {error}; install the Debian package clang, or set CLANG",
            clang.display()
        ),
    }
}
