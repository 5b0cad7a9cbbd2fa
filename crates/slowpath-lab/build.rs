// SPDX-License-Identifier: Apache-2.0
//! Writes down the types that the laboratory kernel's driver shares with Rust, and checks that its headers name
//! the digest of what they look like now.

use slowpath_layout::compile::{Clang, Tables, out_dir};
use std::fs;

const DRIVER: &str = "../../lab/kernel/driver";
const LAYOUT: &str = "src/virtual_time/layout";

fn main() {
    for folder in [DRIVER, LAYOUT] {
        println!("cargo::rerun-if-changed={folder}");
    }
    if let Err(error) = write_tables() {
        panic!("{error}");
    }
}

fn write_tables() -> Result<(), String> {
    let clang = Clang::in_build_script().include(LAYOUT).include(DRIVER);
    let object = out_dir().join("mirrored.o");
    clang.compile(format!("{LAYOUT}/mirrored.c").as_ref(), &object)?;
    let mut tables = Tables::default();
    let bytes = fs::read(&object).map_err(|error| error.to_string())?;
    tables.add(&bytes)?;
    let plan = format!("{DRIVER}/plan.h");
    let plan = fs::read_to_string(&plan).map_err(|error| format!("reading {plan}: {error}"))?;
    let value = |name: &str| {
        let line = plan.lines().find_map(|line| line.strip_prefix(name))?;
        Some(line.trim().to_owned())
    };
    let digest = format!("{:#010x}u", tables.digest());
    if value("#define LAB_LAYOUT ").as_deref() != Some(&digest) {
        return Err(format!(
            "lab/kernel/driver: the structs have changed: set LAB_LAYOUT in plan.h to {digest}, and LAB_VERSION to one more"
        ));
    }
    let version = value("#define LAB_VERSION ").ok_or("plan.h has no LAB_VERSION")?;
    let text = format!(
        "{}pub const LAB_VERSION: u32 = {version};\npub const LAB_LAYOUT: u32 = {};\n",
        tables.rust(),
        tables.digest()
    );
    fs::write(out_dir().join("layouts.rs"), text).map_err(|error| error.to_string())
}
