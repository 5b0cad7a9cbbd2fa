// SPDX-License-Identifier: Apache-2.0
//! Both sides of what the probes share with Rust.

use super::{ALL, connection};
use slowpath_layout::compile::Clang;
use slowpath_layout::mutate::{Change, marked, try_all};
use slowpath_layout::{Struct, btf};
use std::fs;
use std::path::Path;

fn copy(from: &Path, to: &Path) {
    fs::create_dir_all(to).unwrap();
    for entry in fs::read_dir(from).unwrap() {
        let entry = entry.unwrap();
        let to = to.join(entry.file_name());
        if entry.path().is_dir() {
            copy(&entry.path(), &to);
        } else {
            fs::copy(entry.path(), to).unwrap();
        }
    }
}

/// The probe whose folder a file is in, or for shared headers one that includes it.
fn source_of(file: &Path) -> &Path {
    if file.ends_with("connection.bpf.h") {
        Path::new("seed/mod.bpf.c")
    } else {
        file
    }
}

#[test]
fn a_mirrored_struct_that_differs_is_refused() {
    let folder = tempfile::tempdir().unwrap();
    let root = folder.path();
    copy(
        &Path::new(env!("CARGO_MANIFEST_DIR")).join("src/probes"),
        root,
    );
    let clang = Clang::new().include(env!("SLOWPATH_BPF_INCLUDE")).quiet();
    let object = root.join("mutated.o");
    let mut mirrors: Vec<&[Struct<'_>]> = vec![&connection::MIRRORS];
    mirrors.extend(ALL.iter().map(|probe| probe.mirrors));
    for file in [
        "connection.bpf.h",
        "calls/mod.bpf.c",
        "listener/mod.bpf.c",
        "owner/mod.bpf.c",
    ] {
        let file = Path::new(file);
        let source = root.join(source_of(file));
        let text = fs::read_to_string(root.join(file)).unwrap();
        let trial = try_all(&root.join(file), &marked(&text), || {
            clang.compile(&source, &object)?;
            let object = fs::read(&object).map_err(|error| error.to_string())?;
            btf::check(&object, &mirrors).map_err(|error| error.to_string())
        });
        let trial = trial.unwrap();
        assert!(trial.accepted.is_empty(), "{}: {trial:?}", file.display());
        for change in [Change::Swap, Change::Size, Change::Sign] {
            let refused = trial.refused.iter().any(|(_, refused)| *refused == change);
            assert!(refused, "{}: no {change:?} tried", file.display());
        }
    }
}

#[test]
fn every_probe_passes_the_comparison_before_it_is_loaded() {
    for probe in ALL {
        btf::check(probe.object, &[&connection::MIRRORS, probe.mirrors]).unwrap();
    }
}

#[test]
fn every_mirror_of_a_probe_stands_in_its_object() {
    for probe in ALL {
        let all = btf::mirrored(probe.object).unwrap_or_default();
        for mirror in probe.mirrors {
            let found = all.iter().any(|it| match it {
                btf::Mirrored::Struct(it) => it.get().name == mirror.name,
                btf::Mirrored::Enum { .. } => false,
            });
            assert!(found, "{}: {}", probe.name, mirror.name);
        }
    }
}
