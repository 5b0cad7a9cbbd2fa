// SPDX-License-Identifier: Apache-2.0
//! Who a certificate that was verified is for.

use super::certificate;
use slowpath_model::WallMicros;
use slowpath_ship::identity::{HostName, host_of_san_uri};
use x509_parser::extensions::GeneralName;
use x509_parser::prelude::{FromDer, X509Certificate};

/// A host, by its certificate.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Identity {
    /// Its name.
    pub host: HostName,
    /// When the certificate was issued.
    pub issued: WallMicros,
    /// Until when it holds.
    pub expires: WallMicros,
}

/// A certificate that names no host as ours do.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("the certificate names no host")]
pub struct NoIdentity;

impl Identity {
    /// Reads it from a certificate whose signature the caller verified: exactly one name, of
    /// type URI.
    ///
    /// # Errors
    /// It has another form.
    pub fn of(der: &[u8]) -> Result<Self, NoIdentity> {
        let (rest, certificate) = X509Certificate::from_der(der).map_err(|_| NoIdentity)?;
        if !rest.is_empty() {
            return Err(NoIdentity);
        }
        let names = certificate
            .subject_alternative_name()
            .map_err(|_| NoIdentity)?
            .ok_or(NoIdentity)?;
        let [GeneralName::URI(uri)] = names.value.general_names[..] else {
            return Err(NoIdentity);
        };
        let expires = certificate.validity().not_after.timestamp();
        Ok(Identity {
            host: host_of_san_uri(uri).ok_or(NoIdentity)?,
            issued: certificate::issued(certificate.raw_serial()).ok_or(NoIdentity)?,
            expires: WallMicros(expires.saturating_mul(1_000_000)),
        })
    }
}
