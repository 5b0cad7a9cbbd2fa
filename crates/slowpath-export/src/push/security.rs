// SPDX-License-Identifier: Apache-2.0
//! TLS for pushes: rustls with ring, and the certificates of the authorities to trust.

use std::io;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use ureq::tls::{Certificate, PemItem, RootCerts, TlsConfig, TlsProvider, parse_pem};

/// Why a collector cannot be reached safely.
#[derive(Debug, thiserror::Error)]
pub enum SecurityError {
    /// The file cannot be read.
    #[error("cannot read the certificates in {}: {source}", file.display())]
    Read {
        /// Which.
        file: PathBuf,
        /// What the system says.
        source: io::Error,
    },
    /// It holds none.
    #[error("{} holds no certificate: it must be PEM text, with BEGIN CERTIFICATE in it", .0.display())]
    NoCertificate(PathBuf),
    /// The machine trusts no one.
    #[error(
        "no certificates of authorities on this machine: install the package ca-certificates, \
         or name a file in $OTEL_EXPORTER_OTLP_CERTIFICATE"
    )]
    NoAuthorities,
}

/// Who is trusted: whom the certificates in `file` name, else whom the machine trusts.
pub(super) fn configure(file: Option<&Path>) -> Result<TlsConfig, SecurityError> {
    let roots = match file {
        Some(file) => named(file)?,
        None => of_machine()?,
    };
    let provider = rustls::crypto::ring::default_provider();
    Ok(TlsConfig::builder()
        .provider(TlsProvider::Rustls)
        .root_certs(RootCerts::new_with_certs(&roots))
        .unversioned_rustls_crypto_provider(Arc::new(provider))
        .build())
}

/// The most that is read of a file of certificates: those of all authorities have less than 1 MiB.
const MOST: u64 = 16 << 20;

fn named(file: &Path) -> Result<Vec<Certificate<'static>>, SecurityError> {
    let pem = slowpath_files::read(file, MOST).map_err(|source| SecurityError::Read {
        file: file.to_owned(),
        source,
    })?;
    let certificates: Vec<_> = parse_pem(&pem)
        .filter_map(|item| match item {
            Ok(PemItem::Certificate(certificate)) => Some(certificate),
            _ => None,
        })
        .collect();
    if certificates.is_empty() {
        return Err(SecurityError::NoCertificate(file.to_owned()));
    }
    Ok(certificates)
}

/// The authorities that the machine trusts, from where its distribution keeps them or
/// `$SSL_CERT_FILE` and `$SSL_CERT_DIR` say.
fn of_machine() -> Result<Vec<Certificate<'static>>, SecurityError> {
    let found = rustls_native_certs::load_native_certs().certs;
    if found.is_empty() {
        return Err(SecurityError::NoAuthorities);
    }
    let owned = found.iter().map(|c| Certificate::from_der(c).to_owned());
    Ok(owned.collect())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_file_without_certificates_is_named() {
        let directory = tempfile::tempdir().unwrap();
        let file = directory.path().join("ca.pem");
        let said = |file: &Path| configure(Some(file)).unwrap_err().to_string();
        assert!(said(&file).contains("ca.pem: No such file"));
        std::fs::write(&file, "nothing").unwrap();
        assert!(said(&file).contains("ca.pem holds no certificate"));
    }
}
