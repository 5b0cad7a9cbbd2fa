// SPDX-License-Identifier: Apache-2.0
//! A C program against the header and the static library without the standard library.

use slowpath_switch::ffi::{CLimit, Config, Event, Leaving, Port, QueuedAt};
use slowpath_switch::{Counters, Depth, Header};
use std::collections::BTreeMap;
use std::mem::{offset_of, size_of};
use std::path::{Path, PathBuf};
use std::process::Command;

/// Builds the static library as the header says, in a folder of the test's own.
fn static_library(scratch: &Path) -> PathBuf {
    let output = Command::new(env!("CARGO"))
        .args([
            "rustc",
            "-p",
            "slowpath-switch",
            "--release",
            "--locked",
            "--offline",
        ])
        .args(["--features", "freestanding", "--crate-type", "staticlib"])
        .args(["--config", "profile.release.panic=\"abort\""])
        .args(["--config", "profile.release.lto=\"fat\""])
        .arg("--target-dir")
        .arg(scratch)
        .current_dir(env!("CARGO_MANIFEST_DIR"))
        .env_remove("RUSTFLAGS")
        .env_remove("CARGO_BUILD_TARGET")
        .output()
        .expect("cargo runs");
    assert!(
        output.status.success(),
        "{}",
        String::from_utf8_lossy(&output.stderr)
    );
    scratch.join("release/libslowpath_switch.a")
}

fn rust_layout() -> BTreeMap<String, usize> {
    let mut layout = BTreeMap::new();
    macro_rules! layout {
        ($name:literal, $type:ty, $($c:literal => $field:ident),* $(,)?) => {
            layout.insert(format!("size {}", $name), size_of::<$type>());
            $(layout.insert(format!("field {}.{}", $name, $c), offset_of!($type, $field));)*
        };
    }
    layout!("packet", Header, "handle" => handle, "flow" => flow, "bytes" => bytes,
        "destination" => destination, "class_" => class, "ttl" => ttl, "ecn" => ecn,
        "tag" => tag);
    layout!("limit", CLimit, "packets" => packets);
    layout!("depth", Depth, "packets" => packets);
    layout!("counters", Counters, "detoured" => detoured);
    layout!("port_config", Port, "propagation" => propagation, "limit" => limit,
        "marking" => marking, "kind" => kind);
    layout!("switch_config", Config, "port_count" => port_count, "classes" => classes,
        "flags" => flags, "number" => number, "seed" => seed, "shared" => shared,
        "alpha_numerator" => alpha_numerator, "alpha_denominator" => alpha_denominator);
    layout!("queued", QueuedAt, "port" => port, "flags" => flags, "reason" => reason);
    layout!("departure", Leaving, "start" => start, "finish" => finish,
        "arrival" => arrival, "next" => next);
    layout!("event", Event, "packet" => packet, "depth" => depth, "kind" => kind,
        "reason" => reason, "port" => port, "to" => to);
    layout
}

#[test]
fn a_c_program_sees_the_same_structures_and_the_same_switch() {
    let root = Path::new(env!("CARGO_MANIFEST_DIR"));
    let scratch = Path::new(env!("CARGO_TARGET_TMPDIR")).join("freestanding");
    let library = static_library(&scratch);
    let program = scratch.join("switch");
    let output = Command::new("cc")
        .args([
            "-std=c11",
            "-D_POSIX_C_SOURCE=200809L",
            "-Wall",
            "-Wextra",
            "-Werror",
            "-I",
        ])
        .arg(root.join("include"))
        .arg(root.join("tests/c/switch.c"))
        .arg(&library)
        .arg("-o")
        .arg(&program)
        .output()
        .expect("a C compiler, which Rust links with anyway");
    assert!(
        output.status.success(),
        "{}",
        String::from_utf8_lossy(&output.stderr)
    );
    let output = Command::new(&program).output().expect("it was just built");
    assert!(
        output.status.success(),
        "{}",
        String::from_utf8_lossy(&output.stderr)
    );
    let text = String::from_utf8(output.stdout).expect("plain text");
    let c_layout: BTreeMap<String, usize> = text
        .lines()
        .map(|line| {
            let (name, number) = line.rsplit_once(' ').expect("a name and a number");
            (name.to_owned(), number.parse().expect("a number"))
        })
        .collect();
    assert_eq!(c_layout, rust_layout());
}
