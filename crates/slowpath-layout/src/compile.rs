// SPDX-License-Identifier: Apache-2.0
//! For build scripts: BPF programs compiled with clang, and their mirrored types written down as
//! Rust.

use crate::btf::{self, Mirrored};
use crate::{Kind, Struct};
use std::collections::BTreeMap;
use std::ffi::OsString;
use std::fmt::Write as _;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::{env, fs};

/// Clang, as all of the project's BPF is compiled with.
#[derive(Clone, Debug)]
pub struct Clang {
    program: OsString,
    includes: Vec<PathBuf>,
    target: Option<&'static str>,
    quiet: bool,
}

impl Clang {
    /// For a build script, which is run again when `CLANG` names another one.
    ///
    /// # Panics
    /// If BPF cannot be compiled for the architecture.
    pub fn in_build_script() -> Self {
        println!("cargo::rerun-if-env-changed=CLANG");
        let mut clang = Clang::new();
        clang.target = Some(match env::var("CARGO_CFG_TARGET_ARCH").as_deref() {
            Ok("x86_64") => "x86",
            Ok("aarch64") => "arm64",
            Ok("riscv64") => "riscv",
            Ok("s390x") => "s390",
            Ok("powerpc64") => "powerpc",
            other => panic!("no BPF programs for target architecture {other:?}"),
        });
        // libbpf-sys exports its headers, which match the loader.
        clang
            .includes
            .extend(env::var_os("DEP_BPF_INCLUDE").map(PathBuf::from));
        clang
    }

    /// The program in `CLANG`, or `clang`.
    pub fn new() -> Self {
        Clang {
            program: env::var_os("CLANG").unwrap_or_else(|| "clang".into()),
            includes: Vec::new(),
            target: None,
            quiet: false,
        }
    }

    /// Looks for headers there, too.
    #[must_use]
    pub fn include(mut self, folder: impl Into<PathBuf>) -> Self {
        self.includes.push(folder.into());
        self
    }

    /// For source that is wrong on purpose: clang says nothing.
    #[must_use]
    pub fn quiet(mut self) -> Self {
        self.quiet = true;
        self
    }

    /// Compiles a file.
    ///
    /// # Errors
    /// What went wrong, in words.
    pub fn compile(&self, source: &Path, object: &Path) -> Result<(), String> {
        let mut command = Command::new(&self.program);
        command.args(["-target", "bpf", "-mcpu=v3", "-O2", "-g"]);
        command.args(["-Wall", "-Werror"]);
        if self.quiet {
            command.stderr(std::process::Stdio::null());
        }
        if let Some(target) = self.target {
            command.arg(format!("-D__TARGET_ARCH_{target}"));
        }
        // No path of this machine in what the objects say about their lines.
        command.arg("-fdebug-compilation-dir=.");
        for folder in &self.includes {
            command.arg(format!("-ffile-prefix-map={}=include", folder.display()));
            command.arg("-I").arg(folder);
        }
        command.arg("-c").arg(source).arg("-o").arg(object);
        match command.status() {
            Ok(status) if status.success() => Ok(()),
            Ok(status) => Err(format!(
                "compiling {} with clang: {status}",
                source.display()
            )),
            Err(error) => Err(format!(
                "compiling {}: cannot run {}: {error}; install the Debian package clang, or set CLANG",
                source.display(),
                self.program.display()
            )),
        }
    }
}

impl Default for Clang {
    fn default() -> Self {
        Clang::new()
    }
}

/// The mirrored types of several objects, each once.
#[derive(Clone, Debug, Default)]
pub struct Tables {
    /// Rust constants by C's name.
    structs: BTreeMap<String, String>,
    enums: BTreeMap<String, String>,
    /// What they look like, for the digest.
    shapes: BTreeMap<String, String>,
}

impl Tables {
    /// Adds those of an object; one without any adds none.
    ///
    /// # Errors
    /// If they cannot be read, or differ from what another object has under the same name.
    pub fn add(&mut self, object: &[u8]) -> Result<(), String> {
        let all = match btf::mirrored(object) {
            Err(btf::BtfError::NoSection(_)) => return Ok(()),
            all => all.map_err(|error| error.to_string())?,
        };
        for it in all {
            let (tables, name, text) = match &it {
                Mirrored::Struct(it) => (&mut self.structs, it.get().name, of_struct(&it.get())),
                Mirrored::Enum { name, values } => (&mut self.enums, *name, of_enum(name, values)),
            };
            self.shapes.insert(name.to_owned(), format!("{it:?}"));
            let before = tables.insert(name.to_owned(), text.clone());
            if before.is_some_and(|before| before != text) {
                return Err(format!("{name} is not the same in all objects"));
            }
        }
        Ok(())
    }

    /// Rust: a constant for each struct, a module for each enumeration.
    pub fn rust(&self) -> String {
        self.structs
            .values()
            .chain(self.enums.values())
            .map(String::as_str)
            .collect()
    }

    /// A number that differs where a struct or enumeration does (FNV-1a).
    pub fn digest(&self) -> u32 {
        let bytes = self.shapes.values().flat_map(|shape| shape.bytes());
        bytes.fold(0x811c_9dc5, |digest: u32, byte| {
            (digest ^ u32::from(byte)).wrapping_mul(0x0100_0193)
        })
    }

    /// Writes [`Tables::rust`] to a file of the build script's folder.
    ///
    /// # Errors
    /// If it cannot be written.
    pub fn write(&self, file: &Path) -> Result<(), String> {
        fs::write(file, self.rust()).map_err(|error| format!("writing {}: {error}", file.display()))
    }
}

/// The build script's folder (`OUT_DIR`).
///
/// # Panics
/// Outside build scripts.
pub fn out_dir() -> PathBuf {
    env::var_os("OUT_DIR").expect("cargo sets OUT_DIR").into()
}

fn of_struct(it: &Struct<'_>) -> String {
    let mut text = format!(
        "pub const {}: ::slowpath_layout::Struct<'static> = ::slowpath_layout::Struct {{\n    name: {:?},\n    size: {},\n    fields: &[\n",
        it.name.to_uppercase(),
        it.name,
        it.size
    );
    for field in it.fields {
        let kind = match field.shape.kind {
            Kind::Unsigned => "Unsigned".to_owned(),
            Kind::Signed => "Signed".to_owned(),
            Kind::Struct(name) => format!("Struct({name:?})"),
        };
        // Writing to a String does not fail.
        let _ = writeln!(
            text,
            "        ::slowpath_layout::Field {{ name: {:?}, offset: {}, shape: ::slowpath_layout::Shape {{ kind: ::slowpath_layout::Kind::{kind}, size: {}, count: {} }} }},",
            field.name, field.offset, field.shape.size, field.shape.count
        );
    }
    text + "    ],\n};\n"
}

fn of_enum(name: &str, values: &[(&str, i64)]) -> String {
    let signed = values.iter().any(|(_, value)| *value < 0);
    let kind = if signed { "i32" } else { "u32" };
    let mut text = format!("pub mod {name} {{\n");
    for (name, value) in values {
        // Writing to a String does not fail.
        let _ = writeln!(text, "    pub const {name}: {kind} = {value};");
    }
    let _ = writeln!(text, "    pub const COUNT: usize = {};\n}}", values.len());
    text
}
