// SPDX-License-Identifier: Apache-2.0
//! Both sides of what the laboratory kernel's driver shares with Rust.

use super::wire::*;
use slowpath_layout::compile::Clang;
use slowpath_layout::mutate::{Change, marked, try_all};
use slowpath_layout::{Mirror, Struct, btf};
use std::fs;
use std::path::Path;

const MIRRORS: [Struct<'static>; 17] = [
    RawPlan::LAYOUT,
    RawKind::LAYOUT,
    RawConnection::LAYOUT,
    RawFlow::LAYOUT,
    RawWatch::LAYOUT,
    RawResult::LAYOUT,
    RawEvent::LAYOUT,
    RawPacketHead::LAYOUT,
    RawSeries::LAYOUT,
    RawSummary::LAYOUT,
    RawRun::LAYOUT,
    RawRecording::LAYOUT,
    RawScript::LAYOUT,
    RawScriptEnd::LAYOUT,
    RawReplayed::LAYOUT,
    RawDone::LAYOUT,
    RawProbe::LAYOUT,
];

#[test]
fn a_mirrored_struct_that_differs_is_refused() {
    let crate_folder = Path::new(env!("CARGO_MANIFEST_DIR"));
    let folder = tempfile::tempdir().unwrap();
    let root = folder.path();
    let headers = ["plan.h", "script.h"];
    for header in headers {
        let driver = crate_folder.join("../../lab/kernel/driver");
        fs::copy(driver.join(header), root.join(header)).unwrap();
    }
    let layout = crate_folder.join("src/virtual_time/layout");
    let (source, object) = (root.join("mirrored.c"), root.join("mirrored.o"));
    fs::copy(layout.join("mirrored.c"), &source).unwrap();
    let clang = Clang::new().include(layout).include(root).quiet();
    let structs = marked(&fs::read_to_string(&source).unwrap());
    assert_eq!(structs.len(), MIRRORS.len());
    for header in headers {
        let trial = try_all(&root.join(header), &structs, || {
            clang.compile(&source, &object)?;
            let object = fs::read(&object).map_err(|error| error.to_string())?;
            btf::check(&object, &[&MIRRORS]).map_err(|error| error.to_string())
        });
        let trial = trial.unwrap();
        assert!(trial.accepted.is_empty(), "{header}: {trial:?}");
        for change in [Change::Swap, Change::Size, Change::Sign] {
            let refused = trial.refused.iter().any(|(_, refused)| *refused == change);
            assert!(refused, "{header}: no {change:?} tried");
        }
    }
}
