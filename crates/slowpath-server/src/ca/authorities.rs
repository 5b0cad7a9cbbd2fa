// SPDX-License-Identifier: Apache-2.0
//! The CAs that are trusted, the one that signs, and the server's own certificate.

use super::certificate::{self, HOST_LIFE_US, SERVER_LIFE_US};
use crate::clock::DAY_US;
use crate::state::{self, StateError};
use rcgen::{Issuer, KeyPair, PublicKey};
use rustls::pki_types::pem::PemObject;
use rustls::pki_types::{CertificateDer, PrivateKeyDer};
use serde::{Deserialize, Serialize};
use slowpath_model::WallMicros;
use slowpath_ship::identity::{HostName, Sha256, bundle_hash};
use std::path::{Path, PathBuf};

/// How long an expired certificate may still renew.
pub const RENEWABLE_US: i64 = 90 * DAY_US;

/// `ca/ca.json`: what commits every change.
#[derive(Clone, Debug, Serialize, Deserialize)]
struct Record {
    names: Vec<String>,
    issuer: u32,
    next: Option<u32>,
    authorities: Vec<Member>,
}

#[derive(Clone, Debug, Serialize, Deserialize)]
struct Member {
    number: u32,
    /// Since when it signs no more.
    retired_us: Option<i64>,
}

/// The CAs of a state directory.
pub struct Authorities {
    folder: PathBuf,
    record: Record,
    /// As in the record.
    certificates: Vec<CertificateDer<'static>>,
    issuer: Issuer<'static, KeyPair>,
    server: ServerCertificate,
}

impl std::fmt::Debug for Authorities {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Authorities")
            .field("record", &self.record)
            .finish_non_exhaustive()
    }
}

/// The server's certificate and key.
struct ServerCertificate {
    certificate: CertificateDer<'static>,
    key: PrivateKeyDer<'static>,
    expires: WallMicros,
}

impl Authorities {
    /// Makes the first CA and the server's certificate for these names.
    ///
    /// # Errors
    /// There is a CA already; a name is none; the state cannot be written.
    pub fn init(directory: &Path, names: &[String], now: WallMicros) -> Result<Self, StateError> {
        let folder = directory.join("ca");
        if state::read(&record_path(&folder))?.is_some() {
            return Err(StateError::Exists {
                directory: directory.to_owned(),
            });
        }
        state::create_folder(&folder)?;
        make(&folder, 1, now)?;
        let record = Record {
            names: names.to_vec(),
            issuer: 1,
            next: None,
            authorities: vec![Member {
                number: 1,
                retired_us: None,
            }],
        };
        let issuer = read_issuer(&folder, 1)?;
        write_server(&folder, names, &issuer, now)?;
        state::write_json(&record_path(&folder), &record)?;
        Authorities::load(directory)
    }

    /// Reads what [`Authorities::init`] and its successors made.
    ///
    /// # Errors
    /// It is not there, or damaged.
    pub fn load(directory: &Path) -> Result<Self, StateError> {
        let folder = directory.join("ca");
        let path = record_path(&folder);
        let record: Record = state::read_json(&path)?.ok_or_else(|| StateError::Missing {
            directory: directory.to_owned(),
        })?;
        let mut certificates = Vec::new();
        for member in &record.authorities {
            certificates.push(read_certificate(&certificate_path(&folder, member.number))?);
        }
        let issuer = read_issuer(&folder, record.issuer)?;
        let server = read_server(&folder)?;
        Ok(Authorities {
            folder,
            record,
            certificates,
            issuer,
            server,
        })
    }

    /// A certificate for a host's key, PEM.
    ///
    /// # Errors
    /// The key cannot be used.
    pub fn sign(
        &self,
        key: &PublicKey,
        host: &HostName,
        issued: WallMicros,
        random: [u8; 8],
    ) -> Result<String, StateError> {
        let signed = certificate::of_host(key, host, &self.issuer, issued, random);
        let signed = signed.map_err(StateError::certificate("sign a host's certificate"))?;
        Ok(signed.pem())
    }

    /// Makes the next CA, which is trusted from now on and signs after [`Authorities::switch`].
    /// Returns whether there was none yet.
    ///
    /// # Errors
    /// The state cannot be written.
    pub fn roll(&mut self, now: WallMicros) -> Result<bool, StateError> {
        if self.record.next.is_some() {
            return Ok(false);
        }
        let last = self.record.authorities.iter().map(|m| m.number).max();
        let number = last.unwrap_or(0) + 1;
        let certificate = make(&self.folder, number, now)?;
        let mut record = self.record.clone();
        record.next = Some(number);
        record.authorities.push(Member {
            number,
            retired_us: None,
        });
        self.commit(record)?;
        self.certificates.push(certificate);
        Ok(true)
    }

    /// The next CA signs from now on, and signs the server's certificate. Returns whether there
    /// is one.
    ///
    /// # Errors
    /// The state cannot be read or written.
    pub fn switch(&mut self, now: WallMicros) -> Result<bool, StateError> {
        let Some(next) = self.record.next else {
            return Ok(false);
        };
        let issuer = read_issuer(&self.folder, next)?;
        // Both are trusted: whether the next step is reached or not, this one holds.
        self.server = write_server(&self.folder, &self.record.names, &issuer, now)?;
        let mut record = self.record.clone();
        for member in &mut record.authorities {
            if member.number == record.issuer {
                member.retired_us = Some(now.0);
            }
        }
        record.issuer = next;
        record.next = None;
        self.commit(record)?;
        self.issuer = issuer;
        Ok(true)
    }

    /// Forgets the CAs of which no certificate counts any more: what they signed last has expired,
    /// and can be renewed no more. Returns whether there was one.
    ///
    /// # Errors
    /// The state cannot be written.
    pub fn forget_retired(&mut self, now: WallMicros) -> Result<bool, StateError> {
        let is_over = |member: &Member| {
            member
                .retired_us
                .is_some_and(|since| now.0 > since.saturating_add(HOST_LIFE_US + RENEWABLE_US))
        };
        let mut record = self.record.clone();
        record.authorities.retain(|member| !is_over(member));
        if record.authorities.len() == self.record.authorities.len() {
            return Ok(false);
        }
        let gone: Vec<u32> = self
            .record
            .authorities
            .iter()
            .filter(|member| is_over(member))
            .map(|member| member.number)
            .collect();
        let all = self.record.authorities.iter().zip(&self.certificates);
        let certificates = all
            .filter(|(member, _)| !is_over(member))
            .map(|(_, certificate)| certificate.clone())
            .collect();
        self.commit(record)?;
        self.certificates = certificates;
        for number in gone {
            state::remove(&key_path(&self.folder, number))?;
            state::remove(&certificate_path(&self.folder, number))?;
        }
        Ok(true)
    }

    /// Makes the server's certificate anew when two thirds of its life are over. Returns whether
    /// it did.
    ///
    /// # Errors
    /// The state cannot be written.
    pub fn renew_server(&mut self, now: WallMicros) -> Result<bool, StateError> {
        if now.0 < self.server.expires.0 - SERVER_LIFE_US / 3 {
            return Ok(false);
        }
        self.server = write_server(&self.folder, &self.record.names, &self.issuer, now)?;
        Ok(true)
    }

    /// The certificates of the CAs that are trusted, that of the signing one first.
    pub fn bundle(&self) -> Vec<&CertificateDer<'static>> {
        let signs = |member: &Member| member.number == self.record.issuer;
        let all = || self.record.authorities.iter().zip(&self.certificates);
        let first = all().filter(|(member, _)| signs(member));
        let others = all().filter(|(member, _)| !signs(member));
        first
            .chain(others)
            .map(|(_, certificate)| certificate)
            .collect()
    }

    /// [`Authorities::bundle`] as PEM.
    pub fn bundle_pem(&self) -> String {
        let bundle = self.bundle();
        bundle.into_iter().map(|it| pem_of(it)).collect()
    }

    /// The hash of [`Authorities::bundle`].
    pub fn bundle_hash(&self) -> Sha256 {
        bundle_hash(self.certificates.iter().map(|it| &it[..]))
    }

    /// The digest of the certificate of the CA that signs, which tokens carry.
    pub fn fingerprint(&self) -> Sha256 {
        Sha256::of(self.bundle()[0])
    }

    /// The server's certificate and its key.
    pub fn server(&self) -> (CertificateDer<'static>, PrivateKeyDer<'static>) {
        let ServerCertificate {
            certificate, key, ..
        } = &self.server;
        (certificate.clone(), key.clone_key())
    }

    /// Until when the server's certificate holds.
    pub fn server_expires(&self) -> WallMicros {
        self.server.expires
    }

    /// Whether a next CA waits until hosts have it.
    pub fn has_next(&self) -> bool {
        self.record.next.is_some()
    }

    /// The names that the server's certificate has.
    pub fn names(&self) -> &[String] {
        &self.record.names
    }

    fn commit(&mut self, record: Record) -> Result<(), StateError> {
        state::write_json(&record_path(&self.folder), &record)?;
        self.record = record;
        Ok(())
    }
}

fn record_path(folder: &Path) -> PathBuf {
    folder.join("ca.json")
}

fn certificate_path(folder: &Path, number: u32) -> PathBuf {
    folder.join(format!("{number}.crt"))
}

fn key_path(folder: &Path, number: u32) -> PathBuf {
    folder.join(format!("{number}.key"))
}

/// Makes a CA's key and certificate.
fn make(
    folder: &Path,
    number: u32,
    now: WallMicros,
) -> Result<CertificateDer<'static>, StateError> {
    let key = KeyPair::generate().map_err(StateError::certificate("make a CA's key"))?;
    let certificate = certificate::of_authority(&key, now);
    let certificate = certificate.map_err(StateError::certificate("make a CA's certificate"))?;
    state::write(&key_path(folder, number), key.serialize_pem().as_bytes())?;
    let path = certificate_path(folder, number);
    state::write(&path, certificate.pem().as_bytes())?;
    Ok(certificate.into())
}

fn read_certificate(path: &Path) -> Result<CertificateDer<'static>, StateError> {
    let bytes = state::read(path)?.ok_or_else(|| StateError::damaged(path, "it is missing"))?;
    CertificateDer::from_pem_slice(&bytes)
        .map_err(|_| StateError::damaged(path, "it holds no certificate in PEM"))
}

fn read_issuer(folder: &Path, number: u32) -> Result<Issuer<'static, KeyPair>, StateError> {
    let certificate = read_certificate(&certificate_path(folder, number))?;
    let path = key_path(folder, number);
    let bytes = state::read(&path)?.ok_or_else(|| StateError::damaged(&path, "it is missing"))?;
    let text = String::from_utf8_lossy(&bytes);
    let key = KeyPair::from_pem(&text).map_err(|error| StateError::damaged(&path, error))?;
    Issuer::from_ca_cert_der(&certificate, key).map_err(|error| StateError::damaged(&path, error))
}

/// One file with both, so that one rename replaces both.
fn server_path(folder: &Path) -> PathBuf {
    folder.join("server.pem")
}

fn write_server(
    folder: &Path,
    names: &[String],
    issuer: &Issuer<'static, KeyPair>,
    now: WallMicros,
) -> Result<ServerCertificate, StateError> {
    let key = KeyPair::generate().map_err(StateError::certificate("make the server's key"))?;
    let certificate = certificate::of_server(&key, names, issuer, now);
    let certificate =
        certificate.map_err(StateError::certificate("make the server's certificate"))?;
    let both = certificate.pem() + &key.serialize_pem();
    state::write(&server_path(folder), both.as_bytes())?;
    read_server(folder)
}

fn read_server(folder: &Path) -> Result<ServerCertificate, StateError> {
    let path = server_path(folder);
    let certificate = read_certificate(&path)?;
    let bytes = state::read(&path)?.unwrap_or_default();
    let key = PrivateKeyDer::from_pem_slice(&bytes)
        .map_err(|_| StateError::damaged(&path, "it holds no key in PEM"))?;
    let (_, read) = x509_parser::parse_x509_certificate(&certificate)
        .map_err(|error| StateError::damaged(&path, error))?;
    let expires = WallMicros(read.validity().not_after.timestamp() * 1_000_000);
    Ok(ServerCertificate {
        certificate,
        key,
        expires,
    })
}

fn pem_of(certificate: &CertificateDer<'_>) -> String {
    pem::encode_config(
        &pem::Pem::new("CERTIFICATE", certificate.to_vec()),
        pem::EncodeConfig::new().set_line_ending(pem::LineEnding::LF),
    )
}
