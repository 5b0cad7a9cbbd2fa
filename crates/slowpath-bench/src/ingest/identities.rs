// SPDX-License-Identifier: Apache-2.0
//! Certificates of many hosts, issued by the server's own CA while the server does not run.

use rcgen::string::Ia5String;
use rcgen::{CertificateParams, KeyPair, PKCS_ECDSA_P256_SHA256, SanType};
use serde::{Deserialize, Serialize};
use slowpath_server::ca::{Ca, system_random};
use slowpath_server::clock::Clock;
use slowpath_server::state::StateDirectory;
use slowpath_ship::identity::{HostName, san_uri};
use std::error::Error;
use std::path::Path;

/// What a process of agents is started with.
#[derive(Debug, Serialize, Deserialize)]
pub(super) struct Identities {
    /// The CAs that the server is verified by, PEM.
    pub bundle: String,
    /// The hosts.
    pub hosts: Vec<Identity>,
}

/// A host's name, key and certificate.
#[derive(Debug, Serialize, Deserialize)]
pub(super) struct Identity {
    pub host: String,
    /// PEM.
    pub key: String,
    /// PEM.
    pub certificate: String,
}

/// Issues certificates for hosts `load-00000` and so on, in as many parts.
///
/// # Errors
/// The directory holds no server, or one runs in it.
pub(super) fn issue(
    directory: &Path,
    hosts: usize,
    parts: usize,
) -> Result<Vec<Identities>, Box<dyn Error>> {
    let state = StateDirectory::open(directory)?;
    let mut ca = Ca::load(&state, system_random())?;
    let now = Clock::system().now();
    let bundle = ca.authorities.bundle_pem();
    let mut issued = Vec::with_capacity(hosts);
    for number in 0..hosts {
        let host: HostName = format!("load-{number:05}").parse()?;
        let key = KeyPair::generate_for(&PKCS_ECDSA_P256_SHA256)?;
        let mut params = CertificateParams::default();
        params.subject_alt_names = vec![SanType::URI(Ia5String::try_from(san_uri(&host))?)];
        let request = params.serialize_request(&key)?.pem()?;
        issued.push(Identity {
            certificate: ca.renew(&host, &request, now)?,
            key: key.serialize_pem(),
            host: host.to_string(),
        });
    }
    let mut of_parts = Vec::new();
    while !issued.is_empty() {
        let rest = parts - of_parts.len();
        let hosts = issued.drain(..issued.len().div_ceil(rest)).collect();
        of_parts.push(Identities {
            bundle: bundle.clone(),
            hosts,
        });
    }
    Ok(of_parts)
}
