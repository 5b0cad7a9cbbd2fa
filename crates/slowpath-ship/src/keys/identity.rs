// SPDX-License-Identifier: Apache-2.0
//! The directory of a host's identity, mode 0700:
//!
//! ```text
//! identity.pem       the key and its certificate; whole or not there
//! ca.pem             the CAs that the server is verified by
//! server             the server's address
//! joining-key.pem    the key of a join that had no answer yet
//! ```

use super::{CertificateFacts, KeyError, KeyPair, certificates};
use crate::client::ServerAddress;
use crate::identity::{Sha256, bundle_hash};
use std::io;
use std::os::unix::fs::{DirBuilderExt as _, MetadataExt as _, PermissionsExt as _, chown};
use std::path::{Path, PathBuf};

/// The longest file that is read, bytes.
const MOST: u64 = 1 << 20;
const IDENTITY: &str = "identity.pem";
const BUNDLE: &str = "ca.pem";
const SERVER: &str = "server";
const JOINING_KEY: &str = "joining-key.pem";

/// Who this host is to which server.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Identity {
    dir: PathBuf,
    /// The server that was joined.
    pub server: ServerAddress,
    /// The CAs that it is verified by, DER.
    pub bundle: Vec<Vec<u8>>,
    /// The key and its certificate.
    pub pair: KeyPair,
    /// What the certificate says.
    pub facts: CertificateFacts,
}

impl Identity {
    /// Reads an identity.
    ///
    /// # Errors
    /// There is none, or a file of it cannot be read.
    pub fn read(dir: &Path) -> Result<Self, KeyError> {
        let pem = match read(&dir.join(IDENTITY)) {
            Err(KeyError::Io { source, .. }) if source.kind() == io::ErrorKind::NotFound => {
                return Err(KeyError::NotJoined(dir.to_owned()));
            }
            result => result?,
        };
        let pair = KeyPair::from_pem(pem);
        let facts = CertificateFacts::read(&pair.chain()?[0])?;
        let server = read(&dir.join(SERVER))?;
        Ok(Identity {
            server: server
                .trim()
                .parse()
                .map_err(|_| KeyError::Unreadable("server's address"))?,
            bundle: certificates(&read(&dir.join(BUNDLE))?)?,
            dir: dir.to_owned(),
            pair,
            facts,
        })
    }

    /// Whether something was joined there.
    pub fn exists(dir: &Path) -> bool {
        dir.join(IDENTITY).exists()
    }

    /// The directory.
    pub fn dir(&self) -> &Path {
        &self.dir
    }

    /// The hash of its bundle, as servers state theirs.
    pub fn bundle_hash(&self) -> Sha256 {
        bundle_hash(self.bundle.iter().map(Vec::as_slice))
    }

    /// Writes all of it; it counts from the moment that the key's file has its name.
    pub(super) fn write(
        dir: &Path,
        server: &ServerAddress,
        bundle: &str,
        pair: &KeyPair,
    ) -> Result<Self, KeyError> {
        make_dir(dir)?;
        write(&dir.join(SERVER), &format!("{server}\n"))?;
        write(&dir.join(BUNDLE), bundle)?;
        write(&dir.join(IDENTITY), pair.pem())?;
        let joining = dir.join(JOINING_KEY);
        match std::fs::remove_file(&joining) {
            Err(e) if e.kind() != io::ErrorKind::NotFound => Err(io_error("remove", &joining)(e)),
            _ => Identity::read(dir),
        }
    }

    /// Takes another pair for the same host.
    pub(super) fn replace_pair(&mut self, pair: KeyPair) -> Result<(), KeyError> {
        let facts = CertificateFacts::read(&pair.chain()?[0])?;
        write(&self.dir.join(IDENTITY), pair.pem())?;
        (self.pair, self.facts) = (pair, facts);
        Ok(())
    }

    /// Takes another bundle of CAs.
    pub(super) fn replace_bundle(&mut self, bundle: &str) -> Result<(), KeyError> {
        let certificates = certificates(bundle)?;
        write(&self.dir.join(BUNDLE), bundle)?;
        self.bundle = certificates;
        Ok(())
    }
}

/// The key of a join that had no answer, or a new one that is kept for it.
pub(super) fn joining_key(dir: &Path) -> Result<rcgen::KeyPair, KeyError> {
    make_dir(dir)?;
    let path = dir.join(JOINING_KEY);
    if let Ok(pem) = read(&path)
        && let Ok(key) = rcgen::KeyPair::from_pem(&pem)
    {
        return Ok(key);
    }
    let key = super::new_key()?;
    write(&path, &key.serialize_pem())?;
    Ok(key)
}

fn make_dir(dir: &Path) -> Result<(), KeyError> {
    if !dir.is_dir() {
        std::fs::DirBuilder::new()
            .recursive(true)
            .mode(0o700)
            .create(dir)
            .map_err(io_error("create", dir))?;
        give_to_owner_of_parent(dir)?;
    }
    // One that was there may be for others to read.
    std::fs::set_permissions(dir, std::fs::Permissions::from_mode(0o700))
        .map_err(io_error("close to others", dir))
}

fn read(path: &Path) -> Result<String, KeyError> {
    slowpath_files::read_text(path, MOST).map_err(io_error("read", path))
}

/// For the owner only, whole, flushed.
fn write(path: &Path, text: &str) -> Result<(), KeyError> {
    let write = || {
        let mut file = slowpath_files::OutputFile::create(path)?;
        io::Write::write_all(&mut file, text.as_bytes())?;
        file.sync()?;
        file.commit()
    };
    write().map_err(io_error("write", path))?;
    give_to_owner_of_parent(path)
}

/// Root joins, and the service that uses the identity may be another user (systemd's
/// `DynamicUser=`): what root makes belongs to whom the directory around it does.
fn give_to_owner_of_parent(path: &Path) -> Result<(), KeyError> {
    let give = || {
        let own = path.metadata()?;
        let parent = match path.parent() {
            Some(parent) if parent != Path::new("") => parent.metadata()?,
            _ => return Ok(()),
        };
        match (own.uid(), own.gid()) == (parent.uid(), parent.gid()) || own.uid() != 0 {
            true => Ok(()),
            false => chown(path, Some(parent.uid()), Some(parent.gid())),
        }
    };
    give().map_err(io_error("give to the owner of its directory", path))
}

fn io_error(operation: &'static str, path: &Path) -> impl FnOnce(io::Error) -> KeyError + use<> {
    let path = path.to_owned();
    move |source| KeyError::Io {
        operation,
        path,
        source,
    }
}
