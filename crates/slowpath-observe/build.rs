// SPDX-License-Identifier: Apache-2.0
//! Compiles every `src/probes/*/mod.bpf.c` with clang into an object of its own, which the
//! crate embeds. The headers come with libbpf-sys, so that they match the loader.

use std::path::{Path, PathBuf};
use std::process::Command;
use std::{env, fs};

fn main() {
    println!("cargo::rerun-if-changed=src/probes");
    println!("cargo::rerun-if-env-changed=CLANG");
    let headers = fs::canonicalize("src/probes").expect("src/probes is part of the crate");
    println!("cargo::metadata=include={}", headers.display());
    let out = PathBuf::from(env::var_os("OUT_DIR").expect("cargo sets OUT_DIR"));
    let include = env::var_os("DEP_BPF_INCLUDE").expect("libbpf-sys exports its headers");
    let clang = env::var_os("CLANG").unwrap_or_else(|| "clang".into());
    let target = match env::var("CARGO_CFG_TARGET_ARCH").as_deref() {
        Ok("x86_64") => "x86",
        Ok("aarch64") => "arm64",
        Ok("riscv64") => "riscv",
        Ok("s390x") => "s390",
        Ok("powerpc64") => "powerpc",
        other => panic!("no BPF probes for target architecture {other:?}"),
    };
    let probes = fs::read_dir("src/probes").expect("src/probes is part of the crate");
    for probe in probes {
        let folder = probe.expect("src/probes can be read").path();
        let source = folder.join("mod.bpf.c");
        if source.is_file() {
            let object = out
                .join(folder.file_name().expect("a folder has a name"))
                .with_extension("bpf.o");
            compile(&clang, &source, &object, Path::new(&include), target);
        }
    }
}

fn compile(clang: &std::ffi::OsStr, source: &Path, object: &Path, include: &Path, target: &str) {
    let status = Command::new(clang)
        .args([
            "-target", "bpf", "-mcpu=v3", "-O2", "-g", "-Wall", "-Werror",
        ])
        .arg(format!("-D__TARGET_ARCH_{target}"))
        // No path of this machine in what the objects say about their lines.
        .arg("-fdebug-compilation-dir=.")
        .arg(format!("-ffile-prefix-map={}=include", include.display()))
        .arg("-I")
        .arg(include)
        .arg("-c")
        .arg(source)
        .arg("-o")
        .arg(object)
        .status();
    match status {
        Ok(status) if status.success() => {}
        Ok(status) => panic!("compiling {} with clang: {status}", source.display()),
        Err(error) => panic!(
            "compiling {}: cannot run {}: {error}; install the Debian package clang, or set CLANG",
            source.display(),
            clang.display()
        ),
    }
}
