// SPDX-License-Identifier: Apache-2.0
//! Both sides of what the recorders' programs share with Rust.

use crate::{light, stock};
use slowpath_layout::btf;
use slowpath_layout::compile::Clang;
use slowpath_layout::mutate::{Change, marked, try_all};
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

#[test]
fn a_mirrored_struct_that_differs_is_refused() {
    let folder = tempfile::tempdir().unwrap();
    let root = folder.path();
    copy(
        &Path::new(env!("CARGO_MANIFEST_DIR")).join("src/probes"),
        root,
    );
    let clang = Clang::new().include(env!("SLOWPATH_BPF_INCLUDE"));
    let clang = clang.include(env!("SLOWPATH_PROBES_INCLUDE")).quiet();
    let (source, object) = (root.join("mutated.bpf.c"), root.join("mutated.o"));
    for (header, changes) in [
        ("handlers/state.bpf.h", 3),
        ("handlers/event.bpf.h", 3),
        ("handlers/ring.bpf.h", 3),
        ("packets/block.bpf.h", 3),
        ("ports.bpf.h", 3),
    ] {
        // Only the headers: the programs' code has nothing to do with it.
        let include = match header {
            "packets/block.bpf.h" => header,
            _ => "handlers/ring.bpf.h",
        };
        fs::write(&source, format!("#include \"{include}\"\n")).unwrap();
        let mirrors = match header {
            "packets/block.bpf.h" => [&light::wire::MIRRORS[..], &stock::wire::MIRRORS[..]],
            _ => [&stock::wire::MIRRORS[..], &[]],
        };
        let text = fs::read_to_string(root.join(header)).unwrap();
        let trial = try_all(&root.join(header), &marked(&text), || {
            clang.compile(&source, &object)?;
            let object = fs::read(&object).map_err(|error| error.to_string())?;
            btf::check(&object, &mirrors).map_err(|error| error.to_string())
        });
        let trial = trial.unwrap();
        assert!(trial.accepted.is_empty(), "{header}: {trial:?}");
        let tried = [Change::Swap, Change::Size, Change::Sign];
        let tried = tried
            .iter()
            .filter(|change| trial.refused.iter().any(|(_, it)| it == *change));
        assert_eq!(tried.count(), changes, "{header}: {trial:?}");
    }
}
