// SPDX-License-Identifier: Apache-2.0
//! A C program against the header and the static library without the standard library.

use slowpath_switch::fabric::ffi::FabricEvent;
use slowpath_switch::fabric::{Counts, End, Impairment, LineCounters, Node, Pick, Plan, Route};
use slowpath_switch::ffi::{CLimit, Config, Event, Leaving, Port, QueuedAt};
use slowpath_switch::{
    Counters, Depth, Destination, Header, Limit, PortConfig, PortId, PortKind, Rate, Span,
    SwitchConfig,
};
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
    layout!("fabric_event", FabricEvent, "packet" => packet, "depth" => depth,
        "kind" => kind, "cause" => cause, "node" => node, "flags" => flags, "port" => port,
        "to" => to, "hops" => hops);
    layout!("fabric_counts", Counts, "inside" => inside);
    layout!("fabric_line", LineCounters, "late" => late);
    layout
}

/// What tests/c/fabric.c expects.
fn plan_of_two_hosts() -> Plan {
    let port = PortConfig {
        kind: PortKind::Host,
        rate: Rate::from_bits_per_second(1_000_000_000).expect("in bounds"),
        propagation: Span::from_micros(5),
        limit: Limit::packets(100),
        marking: None,
    };
    let link = |host, port| {
        [(Node::Host(host), 0), (Node::Switch(0), port)].map(|(node, port)| End {
            node,
            port: PortId(port),
        })
    };
    let loss = Pick {
        numbers: vec![(2, 2)],
        ..Pick::default()
    };
    Plan {
        hosts: vec![port; 2],
        switches: vec![SwitchConfig::new(vec![port; 2], 1, 0)],
        links: vec![link(0, 0), link(1, 1)],
        routes: vec![Route {
            switch: 0,
            destination: Destination(1),
            ports: vec![PortId(1)],
        }],
        impairments: vec![(
            0,
            Impairment {
                loss,
                ..Impairment::default()
            },
        )],
        ..Plan::new(1)
    }
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
        .arg(root.join("tests/c/fabric.c"))
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
    let plan = scratch.join("plan");
    std::fs::write(&plan, plan_of_two_hosts().encode()).expect("writes");
    let output = Command::new(&program)
        .arg(&plan)
        .output()
        .expect("it was just built");
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
