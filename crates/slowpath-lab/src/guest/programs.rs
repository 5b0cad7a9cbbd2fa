// SPDX-License-Identifier: Apache-2.0
//! Programs of this machine taken into the guest, with every library that they load.
//!
//! What enters: a name or a file. What leaves: the program and the libraries in an
//! [`Archive`], each at the path that it has here, and the folders that the guest's loader
//! has to look in. What is promised: a library that cannot be found is an error that names
//! it; programs opened at run time (dlopen) are not found.

use super::archive::{Archive, Content};
use super::{GuestError, elf};
use std::collections::BTreeSet;
use std::fs;
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};

/// Where the guest looks for programs, and this machine besides its own PATH.
pub const PATH: &str = "/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin";

/// Where glibc's loader looks by default (Debian's first, then Fedora's).
const LIBRARY_FOLDERS: [&str; 6] = [
    "/lib/x86_64-linux-gnu",
    "/usr/lib/x86_64-linux-gnu",
    "/lib64",
    "/usr/lib64",
    "/lib",
    "/usr/lib",
];

/// Files that programs read and no library list names; taken where they exist.
const DATA: [(&str, &[&str]); 2] = [
    // Distributions of netem's jitter.
    ("tc", &["/usr/lib/tc", "/usr/share/tc"]),
    ("ip", &["/etc/iproute2", "/usr/share/iproute2"]),
];

/// How a file is taken.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Form {
    /// Byte for byte.
    Whole,
    /// Without what is never loaded.
    Trimmed,
}

/// Takes programs along.
#[derive(Debug)]
pub struct Programs {
    path: Vec<PathBuf>,
    library_folders: Vec<PathBuf>,
    taken: BTreeSet<PathBuf>,
    extra_folders: BTreeSet<String>,
}

impl Default for Programs {
    fn default() -> Self {
        let own = std::env::var_os("PATH").unwrap_or_default();
        let path = std::env::split_paths(&own)
            .chain(std::env::split_paths(PATH))
            .collect();
        Programs {
            path,
            library_folders: library_folders(),
            taken: BTreeSet::new(),
            extra_folders: BTreeSet::new(),
        }
    }
}

impl Programs {
    /// Takes a program of this machine by its name (or path), with what it needs, to where
    /// it stands here. Returns its path in the guest.
    ///
    /// # Errors
    /// It, or a library of it, is missing or unreadable.
    pub fn take(&mut self, archive: &mut Archive, name: &str) -> Result<String, GuestError> {
        let found = if name.contains('/') {
            Path::new(name).is_file().then(|| PathBuf::from(name))
        } else {
            self.path
                .iter()
                .map(|folder| folder.join(name))
                .find(|path| is_program(path))
        };
        let found = found.ok_or_else(|| GuestError::ProgramMissing {
            name: name.to_owned(),
        })?;
        let at = guest_path(&found)?;
        self.add(archive, &found, &at, Form::Trimmed)?;
        let base = at.rsplit('/').next().unwrap_or(&at).to_owned();
        let direct = format!("/usr/bin/{base}");
        if !PATH
            .split(':')
            .any(|folder| at == format!("{folder}/{base}"))
            && !archive.has(&direct)
        {
            archive.link(&direct, &at)?;
        }
        for (_, files) in DATA.iter().filter(|(program, _)| *program == base) {
            for file in files.iter().filter(|file| Path::new(file).exists()) {
                self.copy(archive, Path::new(file), file)?;
            }
        }
        Ok(at)
    }

    /// Takes a program of this machine to a path in the guest, with what it needs.
    ///
    /// # Errors
    /// As [`Programs::take`].
    pub fn take_to(
        &mut self,
        archive: &mut Archive,
        from: &Path,
        to: &str,
    ) -> Result<(), GuestError> {
        self.add(archive, from, to, Form::Trimmed)
    }

    /// Copies a file or a folder byte for byte; with the libraries and interpreters of the
    /// programs in it.
    ///
    /// # Errors
    /// Something is unreadable, or missing.
    pub fn copy(&mut self, archive: &mut Archive, from: &Path, to: &str) -> Result<(), GuestError> {
        let about = fs::metadata(from).map_err(GuestError::file("read", from))?;
        if !about.is_dir() {
            return self.add(archive, from, to, Form::Whole);
        }
        archive.folder(to)?;
        for entry in fs::read_dir(from).map_err(GuestError::file("list", from))? {
            let entry = entry.map_err(GuestError::file("list", from))?;
            let name = entry.file_name();
            let name = name.to_str().ok_or_else(|| GuestError::NotText {
                text: name.to_string_lossy().into_owned(),
            })?;
            let to = format!("{}/{name}", to.trim_end_matches('/'));
            match entry.file_type().map_err(GuestError::file("read", from))? {
                kind if kind.is_symlink() => {
                    let path = entry.path();
                    let target = fs::read_link(&path).map_err(GuestError::file("read", path))?;
                    archive.link(&to, &target.to_string_lossy())?;
                }
                kind if kind.is_dir() || kind.is_file() => {
                    self.copy(archive, &entry.path(), &to)?
                }
                _ => {}
            }
        }
        Ok(())
    }

    /// Folders with libraries that the guest's loader does not know by itself.
    pub fn extra_folders(&self) -> impl Iterator<Item = &str> {
        self.extra_folders.iter().map(String::as_str)
    }

    fn add(
        &mut self,
        archive: &mut Archive,
        from: &Path,
        to: &str,
        form: Form,
    ) -> Result<(), GuestError> {
        let reading = || GuestError::file("read", from);
        let about = fs::metadata(from).map_err(reading())?;
        let mode = about.permissions().mode();
        let bytes = fs::read(from).map_err(reading())?;
        if elf::is_elf(&bytes) {
            let found = elf::needs(&bytes);
            let needs = match (found, form) {
                (Ok(needs), _) => needs,
                // Perhaps no program for here at all: a BPF object, another machine's.
                (Err(_), Form::Whole) => {
                    return archive.file(to, mode, Content::Bytes(bytes));
                }
                (Err(reason), Form::Trimmed) => {
                    let path = from.to_owned();
                    return Err(GuestError::Program { path, reason });
                }
            };
            self.add_needs(archive, from, &needs)?;
            let bytes = match form {
                Form::Whole => bytes,
                Form::Trimmed => elf::trimmed(bytes, &needs),
            };
            return archive.file(to, mode, Content::Bytes(bytes));
        }
        if let Some(interpreter) = interpreter_of_script(&bytes)
            && mode & 0o111 != 0
            && !archive.has(&interpreter)
        {
            // Where the script says, whatever links lead there on this machine.
            self.add(
                archive,
                Path::new(&interpreter),
                &interpreter,
                Form::Trimmed,
            )?;
        }
        archive.file(to, mode, Content::Bytes(bytes))
    }

    fn add_needs(
        &mut self,
        archive: &mut Archive,
        program: &Path,
        needs: &elf::Needs,
    ) -> Result<(), GuestError> {
        if let Some(interpreter) = &needs.interpreter {
            self.add_once(archive, Path::new(interpreter), interpreter)?;
        }
        let origin = program
            .canonicalize()
            .unwrap_or_else(|_| program.to_owned());
        let origin = origin.parent().unwrap_or(Path::new("/"));
        let first: Vec<PathBuf> = needs
            .search
            .iter()
            .filter(|folder| !folder.is_empty())
            .map(|folder| with_origin(folder, origin))
            .collect();
        for library in &needs.libraries {
            let found = if library.contains('/') {
                Some(PathBuf::from(library)).filter(|path| path.is_file())
            } else {
                first
                    .iter()
                    .chain(&self.library_folders)
                    .map(|folder| folder.join(library))
                    .find(|path| path.is_file())
            };
            let found = found.ok_or_else(|| GuestError::LibraryMissing {
                library: library.clone(),
                wanted_by: program.to_owned(),
            })?;
            let to = guest_path(&found)?;
            if let Some((folder, _)) = to.rsplit_once('/')
                && !LIBRARY_FOLDERS.contains(&folder)
            {
                self.extra_folders.insert(folder.to_owned());
            }
            self.add_once(archive, &found, &to)?;
        }
        Ok(())
    }

    fn add_once(&mut self, archive: &mut Archive, from: &Path, to: &str) -> Result<(), GuestError> {
        if self.taken.insert(PathBuf::from(to)) {
            self.add(archive, from, to, Form::Trimmed)?;
        }
        Ok(())
    }
}

fn is_program(path: &Path) -> bool {
    fs::metadata(path).is_ok_and(|about| about.is_file() && about.permissions().mode() & 0o111 != 0)
}

/// Absolute and without links on the way, but with the name that was asked for: a program may
/// go by it.
fn guest_path(path: &Path) -> Result<String, GuestError> {
    let absolute = std::path::absolute(path).map_err(GuestError::file("find", path))?;
    let resolved = match (absolute.parent(), absolute.file_name()) {
        (Some(folder), Some(name)) => folder
            .canonicalize()
            .map_err(GuestError::file("find", path))?
            .join(name),
        _ => absolute,
    };
    resolved
        .into_os_string()
        .into_string()
        .map_err(|text| GuestError::NotText {
            text: text.to_string_lossy().into_owned(),
        })
}

fn with_origin(folder: &str, origin: &Path) -> PathBuf {
    let origin = origin.to_string_lossy();
    folder
        .replace("${ORIGIN}", &origin)
        .replace("$ORIGIN", &origin)
        .into()
}

/// The program after `#!`; of `env NAME` too, since that is found by name anyway.
fn interpreter_of_script(bytes: &[u8]) -> Option<String> {
    let line = bytes
        .strip_prefix(b"#!")?
        .split(|byte| *byte == b'\n')
        .next()?;
    let line = std::str::from_utf8(line).ok()?;
    line.split_whitespace().next().map(str::to_owned)
}

/// What `/etc/ld.so.conf` adds to the loader's own folders.
fn library_folders() -> Vec<PathBuf> {
    let mut folders: Vec<PathBuf> = std::env::var_os("LD_LIBRARY_PATH")
        .iter()
        .flat_map(std::env::split_paths)
        .filter(|folder| folder.is_absolute())
        .collect();
    let mut files = vec![PathBuf::from("/etc/ld.so.conf")];
    if let Ok(listed) = fs::read_dir("/etc/ld.so.conf.d") {
        let mut more: Vec<PathBuf> = listed.flatten().map(|entry| entry.path()).collect();
        more.sort();
        files.extend(more);
    }
    for file in files {
        let text = fs::read_to_string(file).unwrap_or_default();
        let lines = text
            .lines()
            .map(|line| line.split('#').next().unwrap_or("").trim());
        folders.extend(
            lines
                .filter(|line| line.starts_with('/'))
                .map(PathBuf::from),
        );
    }
    folders.extend(LIBRARY_FOLDERS.iter().map(PathBuf::from));
    folders
}
