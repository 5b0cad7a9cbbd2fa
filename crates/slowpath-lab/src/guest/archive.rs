// SPDX-License-Identifier: Apache-2.0
//! The guest's files, and the archive that its kernel unpacks them from.
//!
//! What enters: paths in the guest and what stands there. What leaves: a cpio archive in the
//! "newc" format (Linux, Documentation/driver-api/early-userspace/buffer-format.rst).
//! What is promised: the same contents give the same bytes (sorted by path, no times, no
//! owners); folders that a path needs come by themselves.

use super::GuestError;
use std::collections::BTreeMap;
use std::fs::File;
use std::io::{self, Read, Write};
use std::path::{Path, PathBuf};

/// In a merged-/usr system the left is a link to the right.
const MERGED: [(&str, &str); 4] = [
    ("bin", "usr/bin"),
    ("lib", "usr/lib"),
    ("lib64", "usr/lib64"),
    ("sbin", "usr/sbin"),
];

/// Type bits of a mode (`include/uapi/linux/stat.h`).
const FOLDER: u32 = 0o040_000;
const FILE: u32 = 0o100_000;
const LINK: u32 = 0o120_000;
const CHARACTER_DEVICE: u32 = 0o020_000;

/// Where a file's bytes are.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Content {
    /// Here.
    Bytes(Vec<u8>),
    /// In a file of this machine, of this length.
    Host(PathBuf, u64),
}

impl Content {
    fn length(&self) -> u64 {
        match self {
            Content::Bytes(bytes) => bytes.len() as u64,
            Content::Host(_, length) => *length,
        }
    }
}

#[derive(Clone, Debug, PartialEq, Eq)]
enum Node {
    Folder,
    File { mode: u32, content: Content },
    Link(String),
    CharacterDevice { major: u32, minor: u32 },
}

/// The guest's files.
#[derive(Clone, Debug)]
pub struct Archive {
    // Keys are relative, without a leading slash, and never lead through a link of MERGED.
    nodes: BTreeMap<String, Node>,
}

impl Default for Archive {
    fn default() -> Self {
        let mut archive = Archive {
            nodes: BTreeMap::new(),
        };
        for (link, target) in MERGED {
            archive.insert(target.to_owned(), Node::Folder);
            archive.insert(link.to_owned(), Node::Link(target.to_owned()));
        }
        archive
    }
}

impl Archive {
    /// A folder.
    ///
    /// # Errors
    /// The path is not absolute, or leads upwards.
    pub fn folder(&mut self, path: &str) -> Result<(), GuestError> {
        let key = key(path)?;
        if !matches!(self.nodes.get(&key), Some(Node::Link(_))) {
            self.insert(key, Node::Folder);
        }
        Ok(())
    }

    /// A file. What stood there before is replaced.
    ///
    /// # Errors
    /// As [`Archive::folder`].
    pub fn file(&mut self, path: &str, mode: u32, content: Content) -> Result<(), GuestError> {
        let mode = mode & 0o7777;
        self.insert(key(path)?, Node::File { mode, content });
        Ok(())
    }

    /// A symbolic link.
    ///
    /// # Errors
    /// As [`Archive::folder`].
    pub fn link(&mut self, path: &str, target: &str) -> Result<(), GuestError> {
        self.insert(key(path)?, Node::Link(target.to_owned()));
        Ok(())
    }

    /// A character device.
    ///
    /// # Errors
    /// As [`Archive::folder`].
    pub fn character_device(
        &mut self,
        path: &str,
        major: u32,
        minor: u32,
    ) -> Result<(), GuestError> {
        self.insert(key(path)?, Node::CharacterDevice { major, minor });
        Ok(())
    }

    /// Whether something stands at a path.
    pub fn has(&self, path: &str) -> bool {
        key(path).is_ok_and(|key| self.nodes.contains_key(&key))
    }

    fn insert(&mut self, key: String, node: Node) {
        for (at, _) in key.match_indices('/') {
            self.nodes
                .entry(key[..at].to_owned())
                .or_insert(Node::Folder);
        }
        self.nodes.insert(key, node);
    }

    /// Writes the archive. Returns its length.
    ///
    /// # Errors
    /// A file of this machine cannot be read, changed its length, or is longer than 4 GiB;
    /// `out` refuses.
    pub fn write(&self, out: impl Write) -> Result<u64, GuestError> {
        let mut out = Counted { out, length: 0 };
        for (number, (path, node)) in self.nodes.iter().enumerate() {
            let mut entry = Header {
                inode: number as u32 + 1,
                name: path,
                ..Header::default()
            };
            match node {
                Node::Folder => {
                    entry.mode = FOLDER | 0o755;
                    entry.write(&mut out, 0).map_err(refused)?;
                }
                Node::Link(target) => {
                    entry.mode = LINK | 0o777;
                    entry
                        .write(&mut out, target.len() as u64)
                        .and_then(|()| out.write_all(target.as_bytes()))
                        .map_err(refused)?;
                }
                Node::CharacterDevice { major, minor } => {
                    entry.mode = CHARACTER_DEVICE | 0o600;
                    (entry.major, entry.minor) = (*major, *minor);
                    entry.write(&mut out, 0).map_err(refused)?;
                }
                Node::File { mode, content } => {
                    entry.mode = FILE | mode;
                    entry.write(&mut out, content.length()).map_err(refused)?;
                    match content {
                        Content::Bytes(bytes) => out.write_all(bytes).map_err(refused)?,
                        Content::Host(path, length) => copy(path, *length, &mut out)?,
                    }
                }
            }
            out.pad().map_err(refused)?;
        }
        let trailer = Header {
            name: "TRAILER!!!",
            ..Header::default()
        };
        trailer.write(&mut out, 0).map_err(refused)?;
        Ok(out.length)
    }
}

fn refused(source: io::Error) -> GuestError {
    GuestError::System {
        operation: "write the guest's files",
        source,
    }
}

fn copy(path: &Path, length: u64, out: &mut impl Write) -> Result<(), GuestError> {
    let reading = GuestError::file("read", path);
    let file = match File::open(path) {
        Ok(file) => file,
        Err(error) => return Err(reading(error)),
    };
    // One byte more than promised reveals a file that grew.
    match io::copy(&mut file.take(length + 1), out) {
        Ok(copied) if copied == length => Ok(()),
        Ok(_) => Err(reading(io::Error::other("its length changed meanwhile"))),
        Err(error) => Err(reading(error)),
    }
}

/// A path of the guest as the archive spells it.
fn key(path: &str) -> Result<String, GuestError> {
    let refuse = |reason| {
        Err(GuestError::GuestPath {
            path: path.to_owned(),
            reason,
        })
    };
    let Some(relative) = path.strip_prefix('/') else {
        return refuse("it does not begin with a slash");
    };
    if path.contains('\0') {
        return refuse("it holds a zero byte");
    }
    let parts: Vec<&str> = relative.split('/').filter(|p| !p.is_empty()).collect();
    if parts.iter().any(|part| matches!(*part, "." | "..")) {
        return refuse("it holds . or ..");
    }
    let Some((first, rest)) = parts.split_first() else {
        return refuse("it is the root");
    };
    let merged = MERGED.iter().find(|(link, _)| link == first);
    let mut key = match merged {
        Some((_, target)) if !rest.is_empty() => (*target).to_owned(),
        _ => (*first).to_owned(),
    };
    for part in rest {
        key.push('/');
        key.push_str(part);
    }
    Ok(key)
}

#[derive(Default)]
struct Header<'a> {
    inode: u32,
    mode: u32,
    major: u32,
    minor: u32,
    name: &'a str,
}

impl Header<'_> {
    fn write(&self, out: &mut Counted<impl Write>, length: u64) -> io::Result<()> {
        let too_long = |_| io::Error::other(format!("{} is longer than 4 GiB", self.name));
        let length = u32::try_from(length).map_err(too_long)?;
        // ino mode uid gid nlink mtime filesize maj min rmaj rmin namesize chksum
        let name_length = self.name.len() as u32 + 1;
        let fields = [
            self.inode,
            self.mode,
            0,
            0,
            1,
            0,
            length,
            0,
            0,
            self.major,
            self.minor,
            name_length,
            0,
        ];
        write!(out, "070701")?;
        for field in fields {
            write!(out, "{field:08X}")?;
        }
        write!(out, "{}\0", self.name)?;
        out.pad()
    }
}

struct Counted<W> {
    out: W,
    length: u64,
}

impl<W: Write> Counted<W> {
    fn pad(&mut self) -> io::Result<()> {
        let missing = self.length.wrapping_neg() % 4;
        self.write_all(&[0; 3][..missing as usize])
    }
}

impl<W: Write> Write for Counted<W> {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        let written = self.out.write(bytes)?;
        self.length += written as u64;
        Ok(written)
    }

    fn flush(&mut self) -> io::Result<()> {
        self.out.flush()
    }
}
