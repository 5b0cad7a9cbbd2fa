// SPDX-License-Identifier: Apache-2.0
//! What the fleet's server reads of clients that it does not know yet: certificates, signing
//! requests, tokens.
#![no_main]

use libfuzzer_sys::fuzz_target;
use slowpath_server::ca::{Identity, SigningRequest};
use slowpath_ship::answers::{JoinRequest, RenewRequest, SegmentsRequest};
use slowpath_ship::identity::{HostName, Token, san_uri};

fuzz_target!(
    init: slowpath_fuzz::write_seeds(seeds),
    |data: &[u8]| {
        if let Ok(identity) = Identity::of(data) {
            // Whatever names it, the name can be part of a path.
            assert!(identity.host.as_str().parse::<HostName>().is_ok());
            assert!(identity.issued.0 >= 0);
        }
        let Ok(text) = std::str::from_utf8(data) else { return };
        let host: HostName = "web-1".parse().expect("a name");
        if let Ok(request) = SigningRequest::read(text) {
            let _ = request.key_for(&host);
            let _ = request.key_digest();
        }
        if let Ok(token) = text.parse::<Token>() {
            assert_eq!(token.to_string().parse(), Ok(token));
        }
        let _ = serde_json::from_str::<JoinRequest>(text);
        let _ = serde_json::from_str::<RenewRequest>(text);
        let _ = serde_json::from_str::<SegmentsRequest>(text);
    }
);

/// A certificate, a signing request, a token.
fn seeds() -> Vec<Vec<u8>> {
    let host: HostName = "web-1".parse().expect("a name");
    let key = rcgen::KeyPair::generate().expect("a key");
    let mut params = rcgen::CertificateParams::default();
    let uri = san_uri(&host).as_str().try_into().expect("a URI");
    params.subject_alt_names = vec![rcgen::SanType::URI(uri)];
    params.serial_number = Some(vec![7; 14].into());
    let certificate = params.self_signed(&key).expect("a certificate");
    // A request has no serial number (RFC 2986 section 4.1).
    params.serial_number = None;
    let request = params.serialize_request(&key).expect("a request");
    let token = Token {
        host,
        id: 1,
        secret: [7; 16],
        fingerprint: slowpath_ship::identity::Sha256([9; 32]),
    };
    let join = JoinRequest {
        token: token.to_string(),
        csr: request.pem().expect("PEM"),
    };
    vec![
        certificate.der().to_vec(),
        request.pem().expect("PEM").into_bytes(),
        token.to_string().into_bytes(),
        serde_json::to_vec(&join).expect("JSON"),
    ]
}
