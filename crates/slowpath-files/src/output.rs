// SPDX-License-Identifier: Apache-2.0
//! Files that are written whole or not at all.

use rustix::fs::{self, Access, AtFlags, CWD, FileType, Mode, OFlags, RawMode, Stat};
use rustix::io::Errno;
use std::ffi::{OsStr, OsString};
use std::fs::{DirBuilder, File};
use std::io::{self, BufWriter, ErrorKind, Write};
use std::os::fd::{AsFd, AsRawFd, OwnedFd};
use std::os::unix::ffi::OsStringExt;
use std::os::unix::fs::DirBuilderExt;
use std::path::{Path, PathBuf};

/// The mode of a new file: for its owner only.
const MODE: RawMode = 0o600;
/// The mode of a new folder.
const FOLDER_MODE: u32 = 0o700;
/// As many symbolic links are followed as the kernel follows (`MAXSYMLINKS`, linux/namei.h).
const MOST_LINKS: usize = 40;
/// The most drafts that processes with one number may have left behind.
const MOST_DRAFTS: u32 = 1000;

/// A file that gets its name when it is whole ([`OutputFile::commit`]); dropped before, it
/// leaves nothing. A device or pipe is written to at once.
#[derive(Debug)]
pub struct OutputFile {
    file: File,
    /// `None`: a device or a pipe.
    draft: Option<Draft>,
}

/// Where a file gets its name.
#[derive(Debug)]
struct Draft {
    folder: OwnedFd,
    name: OsString,
    /// What it is called until then, where the file system has no files without a name, or
    /// while it takes the place of another file.
    passing: Option<OsString>,
}

impl OutputFile {
    /// Begins a file that is to be called `path`, or opens the device or pipe of that name.
    ///
    /// # Errors
    /// It cannot be created, or a folder or someone else's symbolic link has that name.
    pub fn create(path: &Path) -> io::Result<Self> {
        let target = Target::of(path)?;
        let (path, replaced) = match target {
            Target::Open(path, flags) => return OutputFile::open(&path, flags),
            Target::Replace(path, replaced) => (path, replaced),
        };
        let name = path.file_name().ok_or(ErrorKind::IsADirectory)?.to_owned();
        let folder = folder_of(&path);
        let flags = OFlags::PATH | OFlags::DIRECTORY | OFlags::CLOEXEC;
        let folder = fs::openat(CWD, folder, flags, Mode::empty())?;
        if replaced.is_some() {
            // A rename would not ask. Without flags: filters of system calls refuse faccessat2(2).
            fs::accessat(&folder, &name, Access::WRITE_OK, AtFlags::empty())?;
        }
        let (file, passing) = draft(&folder)?;
        let kept = replaced.filter(|it| it.st_uid == rustix::process::geteuid().as_raw());
        if let Some(replaced) = kept {
            // Permissions only: no set-user-ID.
            fs::fchmod(&file, Mode::from_raw_mode(replaced.st_mode & 0o777))?;
        }
        let draft = Draft {
            folder,
            name,
            passing,
        };
        Ok(OutputFile {
            file,
            draft: Some(draft),
        })
    }

    fn open(path: &Path, more: OFlags) -> io::Result<Self> {
        let flags = OFlags::WRONLY | OFlags::NOCTTY | OFlags::CLOEXEC | more;
        let file = File::from(fs::open(path, flags, Mode::empty())?);
        Ok(OutputFile { file, draft: None })
    }

    /// Another handle of the file, for a writer that keeps one.
    ///
    /// # Errors
    /// The process has too many open files.
    pub fn handle(&self) -> io::Result<File> {
        self.file.try_clone()
    }

    /// Waits until what was written is on the disk; a device or pipe has none.
    ///
    /// # Errors
    /// It cannot be written there.
    pub fn sync(&self) -> io::Result<()> {
        match self.draft {
            Some(_) => self.file.sync_all(),
            None => Ok(()),
        }
    }

    /// Gives the file its name; what had that name is gone.
    ///
    /// # Errors
    /// The file system refuses, or something else than a file has got the name meanwhile.
    pub fn commit(mut self) -> io::Result<()> {
        match &mut self.draft {
            Some(draft) => draft.commit(&self.file),
            None => Ok(()),
        }
    }
}

impl Write for OutputFile {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        self.file.write(bytes)
    }

    fn flush(&mut self) -> io::Result<()> {
        self.file.flush()
    }
}

impl Draft {
    fn commit(&mut self, file: &File) -> io::Result<()> {
        if self.passing.is_none() {
            match link(file, &self.folder, &self.name) {
                Err(Errno::EXIST) => {}
                other => return Ok(other?),
            }
            self.passing = Some(new_name(|name| link(file, &self.folder, name))?.0);
        }
        let stat = fs::statat(&self.folder, &self.name, AtFlags::SYMLINK_NOFOLLOW);
        match stat {
            Ok(stat) if kind(&stat) != FileType::RegularFile => {
                return Err(io::Error::new(
                    ErrorKind::AlreadyExists,
                    "something that is no file has got this name meanwhile",
                ));
            }
            Ok(_) | Err(Errno::NOENT) => {}
            Err(error) => return Err(error.into()),
        }
        if let Some(passing) = &self.passing {
            fs::renameat(&self.folder, passing, &self.folder, &self.name)?;
            self.passing = None;
        }
        Ok(())
    }
}

impl Drop for Draft {
    fn drop(&mut self) {
        if let Some(passing) = &self.passing {
            // If that fails too, nothing is left to try.
            let _ = fs::unlinkat(&self.folder, passing, AtFlags::empty());
        }
    }
}

/// What a path leads to.
enum Target {
    /// Something that is opened and written to.
    Open(PathBuf, OFlags),
    /// A file that is to be there, and the one that is there.
    Replace(PathBuf, Option<Stat>),
}

impl Target {
    fn of(path: &Path) -> io::Result<Target> {
        let mut path = path.to_owned();
        for _ in 0..MOST_LINKS {
            let stat = match fs::lstat(&path) {
                Ok(stat) => stat,
                Err(Errno::NOENT) => return Ok(Target::Replace(path, None)),
                Err(error) => return Err(error.into()),
            };
            match kind(&stat) {
                FileType::RegularFile => return Ok(Target::Replace(path, Some(stat))),
                FileType::Directory => return Err(ErrorKind::IsADirectory.into()),
                // Not one that takes its place between here and there.
                FileType::Symlink if is_of_another(&stat) => {
                    return Err(io::Error::new(
                        ErrorKind::PermissionDenied,
                        "it is a symbolic link of another user; name the file itself",
                    ));
                }
                FileType::Symlink if is_in_proc(&path) => {
                    // /dev/stdout: a descriptor of this process, not a path.
                    return Ok(Target::Open(path, OFlags::empty()));
                }
                FileType::Symlink => {
                    let to = fs::readlink(&path, Vec::new())?;
                    let to = PathBuf::from(OsString::from_vec(to.into_bytes()));
                    path = folder_of(&path).join(to);
                }
                _ => return Ok(Target::Open(path, OFlags::NOFOLLOW)),
            }
        }
        Err(Errno::LOOP.into())
    }
}

fn kind(stat: &Stat) -> FileType {
    FileType::from_raw_mode(stat.st_mode)
}

/// Neither this user's nor root's: the rule of `fs.protected_symlinks`, everywhere.
fn is_of_another(stat: &Stat) -> bool {
    stat.st_uid != 0 && stat.st_uid != rustix::process::geteuid().as_raw()
}

fn is_in_proc(path: &Path) -> bool {
    fs::statfs(folder_of(path)).is_ok_and(|it| it.f_type == fs::PROC_SUPER_MAGIC)
}

fn folder_of(path: &Path) -> &Path {
    match path.parent() {
        Some(folder) if folder != Path::new("") => folder,
        _ => Path::new("."),
    }
}

/// A new file in the folder: without a name, which a kill leaves nothing of, or with one that
/// no file had.
fn draft(folder: &OwnedFd) -> io::Result<(File, Option<OsString>)> {
    let flags = OFlags::WRONLY | OFlags::CLOEXEC;
    let mode = Mode::from_raw_mode(MODE);
    match fs::openat(folder, ".", flags | OFlags::TMPFILE, mode) {
        Ok(file) if std::fs::symlink_metadata(in_proc(&file)).is_ok() => {
            return Ok((file.into(), None));
        }
        // Without /proc it could never get a name.
        Ok(_) => {}
        // Kernels and file systems that have none (open(2)).
        Err(Errno::OPNOTSUPP | Errno::ISDIR | Errno::INVAL | Errno::NOENT) => {}
        Err(error) => return Err(error.into()),
    }
    let flags = flags | OFlags::CREATE | OFlags::EXCL | OFlags::NOFOLLOW;
    let (name, file) = new_name(|name| fs::openat(folder, name, flags, mode))?;
    Ok((file.into(), Some(name)))
}

/// Tries names until one is free.
fn new_name<T>(mut create: impl FnMut(&OsStr) -> Result<T, Errno>) -> io::Result<(OsString, T)> {
    for attempt in 0..MOST_DRAFTS {
        let name = format!(".slowpath-{}-{attempt}.draft", std::process::id());
        match create(OsStr::new(&name)) {
            Ok(made) => return Ok((name.into(), made)),
            Err(Errno::EXIST) => {}
            Err(error) => return Err(error.into()),
        }
    }
    Err(Errno::EXIST.into())
}

fn in_proc(file: &impl AsFd) -> String {
    format!("/proc/self/fd/{}", file.as_fd().as_raw_fd())
}

/// Gives a file without a name one that no other has.
fn link(file: &File, folder: &OwnedFd, name: &OsStr) -> Result<(), Errno> {
    fs::linkat(CWD, in_proc(file), folder, name, AtFlags::SYMLINK_FOLLOW)
}

/// Writes a whole file.
///
/// # Errors
/// See [`OutputFile::create`] and [`OutputFile::commit`]; nothing is left then.
pub fn write(path: &Path, bytes: impl AsRef<[u8]>) -> io::Result<()> {
    let mut file = OutputFile::create(path)?;
    file.write_all(bytes.as_ref())?;
    file.commit()
}

/// Writes a whole file piece by piece.
///
/// # Errors
/// As [`write()`], or what `fill` returns.
pub fn write_with<T, E: From<io::Error>>(
    path: &Path,
    fill: impl FnOnce(&mut BufWriter<OutputFile>) -> Result<T, E>,
) -> Result<T, E> {
    let mut out = BufWriter::new(OutputFile::create(path)?);
    let made = fill(&mut out)?;
    let file = out.into_inner().map_err(io::IntoInnerError::into_error)?;
    file.commit()?;
    Ok(made)
}

/// Why a file cannot be an output, known before any work is done.
#[derive(Debug, thiserror::Error)]
pub enum RefusedOutput {
    /// It is read by the same command.
    #[error("{0} is one of the files that are read; name another file")]
    IsRead(PathBuf),
    /// It is named for two outputs.
    #[error("{0} is named for two outputs; name another file for one of them")]
    Twice(PathBuf),
    /// It cannot be written.
    #[error("cannot write {path}: {error}")]
    Unwritable {
        /// The file.
        path: PathBuf,
        /// Why.
        error: io::Error,
    },
}

impl RefusedOutput {
    /// Whether the command line is to blame, and not the file system.
    pub fn is_usage(&self) -> bool {
        !matches!(self, RefusedOutput::Unwritable { .. })
    }
}

/// Refuses outputs that would overwrite an input or one another, or that cannot be written.
/// Other files are replaced: that is no error. Changes nothing. A folder that is not there yet
/// may be by the time of the output.
///
/// # Errors
/// The first one that is refused.
pub fn refuse(outputs: &[&Path], inputs: &[&Path]) -> Result<(), RefusedOutput> {
    for (number, path) in outputs.iter().enumerate() {
        let same = |other: &&Path| is_same_file(path, other);
        if inputs.iter().any(same) {
            return Err(RefusedOutput::IsRead((*path).to_owned()));
        }
        if outputs[..number].iter().any(|it| it == path || same(it)) && !is_device(path) {
            return Err(RefusedOutput::Twice((*path).to_owned()));
        }
        let begun = match Target::of(path) {
            // Opening a pipe would wake its reader.
            Ok(Target::Open(..)) => continue,
            Ok(Target::Replace(..)) => OutputFile::create(path).map(drop),
            Err(error) => Err(error),
        };
        if let Err(error) = begun
            && error.kind() != ErrorKind::NotFound
        {
            return Err(RefusedOutput::Unwritable {
                path: (*path).to_owned(),
                error,
            });
        }
    }
    Ok(())
}

/// Whether both names lead to one regular file, also by links.
fn is_same_file(one: &Path, other: &Path) -> bool {
    let (Ok(one), Ok(other)) = (fs::stat(one), fs::stat(other)) else {
        return false;
    };
    kind(&one) == FileType::RegularFile && (one.st_dev, one.st_ino) == (other.st_dev, other.st_ino)
}

fn is_device(path: &Path) -> bool {
    matches!(Target::of(path), Ok(Target::Open(..)))
}

/// Adds to the end of a file that is made if it is not there; no symbolic link is followed.
///
/// # Errors
/// It cannot be written.
pub fn append(path: &Path, bytes: &[u8]) -> io::Result<()> {
    let flags = OFlags::WRONLY | OFlags::CREATE | OFlags::APPEND;
    let flags = flags | OFlags::NOFOLLOW | OFlags::CLOEXEC;
    let mut file = File::from(fs::open(path, flags, Mode::from_raw_mode(MODE))?);
    file.write_all(bytes)
}

/// Makes a folder for outputs, and those it lies in, where they are not there.
///
/// # Errors
/// It cannot be made.
pub fn create_folder(path: &Path) -> io::Result<()> {
    let mut builder = DirBuilder::new();
    builder.recursive(true).mode(FOLDER_MODE).create(path)
}

/// Makes a folder that was not there.
///
/// # Errors
/// It cannot be made, or something has that name.
pub fn new_folder(path: &Path) -> io::Result<()> {
    DirBuilder::new().mode(FOLDER_MODE).create(path)
}

#[cfg(test)]
mod tests;
