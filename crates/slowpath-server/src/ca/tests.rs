// SPDX-License-Identifier: Apache-2.0
//! Invitations, certificates and CAs over time.

use super::*;
use crate::clock::DAY_US;
use rcgen::{CertificateParams, KeyPair, PKCS_ED25519, SanType};
use rustls::pki_types::CertificateDer;
use rustls::pki_types::pem::PemObject;
use slowpath_ship::identity::san_uri;
use std::os::unix::fs::PermissionsExt;
use tempfile::TempDir;

const NOW: WallMicros = WallMicros(1_795_000_000_000_000);

fn later(us: i64) -> WallMicros {
    WallMicros(NOW.0 + us)
}

fn ca() -> (TempDir, Ca) {
    let folder = tempfile::tempdir().unwrap();
    let directory = StateDirectory::open(&folder.path().join("server")).unwrap();
    let names = ["server.example.org".to_owned(), "192.0.2.1".to_owned()];
    let ca = Ca::init(&directory, &names, NOW, system_random()).unwrap();
    (folder, ca)
}

fn host(name: &str) -> HostName {
    name.parse().unwrap()
}

fn request_of(key: &KeyPair, uri: Option<&str>) -> String {
    let mut params = CertificateParams::default();
    if let Some(uri) = uri {
        params.subject_alt_names = vec![SanType::URI(uri.try_into().unwrap())];
    }
    params.serialize_request(key).unwrap().pem().unwrap()
}

fn identity(pem: &str) -> Identity {
    let der = CertificateDer::from_pem_slice(pem.as_bytes()).unwrap();
    Identity::of(&der).unwrap()
}

#[test]
fn an_invited_host_gets_a_certificate_for_its_name() {
    let (_folder, mut ca) = ca();
    let token = ca.invite(host("web-1"), NOW).unwrap();
    let key = KeyPair::generate().unwrap();
    for uri in [None, Some("slowpath:host/web-1")] {
        let signed = ca.join(&token, &request_of(&key, uri), NOW).unwrap();
        let identity = identity(&signed);
        assert_eq!(identity.host, host("web-1"));
        assert_eq!(identity.issued, NOW);
        assert_eq!(identity.expires, later(HOST_LIFE_US));
    }
}

#[test]
fn a_request_for_another_host_is_refused_and_uses_up_nothing() {
    let (_folder, mut ca) = ca();
    let token = ca.invite(host("web-1"), NOW).unwrap();
    let key = KeyPair::generate().unwrap();
    let other = request_of(&key, Some(&san_uri(&host("web-2"))));
    let refused = ca.join(&token, &other, NOW).unwrap_err();
    assert!(matches!(refused, IssueError::Request(RequestError::Name)));
    let refused = ca.renew(&host("web-1"), &other, NOW).unwrap_err();
    assert!(matches!(refused, IssueError::Request(RequestError::Name)));
    let another = KeyPair::generate().unwrap();
    ca.join(&token, &request_of(&another, None), NOW).unwrap();
}

#[test]
fn a_token_serves_one_key_only() {
    let (_folder, mut ca) = ca();
    let token = ca.invite(host("web-1"), NOW).unwrap();
    let first = request_of(&KeyPair::generate().unwrap(), None);
    let second = request_of(&KeyPair::generate().unwrap(), None);
    ca.join(&token, &first, NOW).unwrap();
    let refused = ca.join(&token, &second, NOW).unwrap_err();
    let used = IssueError::Invitation(InvitationError::Used);
    assert_eq!(refused.to_string(), used.to_string());
    // The answer may have been lost: until the token expires the same key may ask again.
    ca.join(&token, &first, later(INVITATION_LIFE_US - 1))
        .unwrap();
    let refused = ca
        .join(&token, &first, later(INVITATION_LIFE_US))
        .unwrap_err();
    assert!(matches!(
        refused,
        IssueError::Invitation(InvitationError::Expired)
    ));
}

#[test]
fn an_expired_or_foreign_token_is_refused() {
    let (_folder, mut ca) = ca();
    let token = ca.invite(host("web-1"), NOW).unwrap();
    let request = request_of(&KeyPair::generate().unwrap(), None);
    let refused = ca.join(&token, &request, later(INVITATION_LIFE_US));
    assert!(matches!(
        refused,
        Err(IssueError::Invitation(InvitationError::Expired))
    ));
    for wrong in [
        Token {
            secret: [1; 16],
            ..token.clone()
        },
        Token {
            id: token.id ^ 1,
            ..token.clone()
        },
        Token {
            host: host("web-2"),
            ..token.clone()
        },
    ] {
        let refused = ca.join(&wrong, &request, NOW);
        assert!(matches!(
            refused,
            Err(IssueError::Invitation(InvitationError::Unknown))
        ));
    }
}

#[test]
fn the_state_has_no_secret_and_is_for_its_owner_only() {
    let (folder, mut ca) = ca();
    let token = ca.invite(host("web-1"), NOW).unwrap();
    let directory = folder.path().join("server");
    let mode = |path: &std::path::Path| path.metadata().unwrap().permissions().mode() & 0o777;
    assert_eq!(mode(&directory), 0o700);
    for name in ["ca/1.key", "ca/server.pem", "ca/ca.json"] {
        assert_eq!(mode(&directory.join(name)), 0o600, "{name}");
    }
    let kept = directory.join(format!("invites/{:016x}.json", token.id));
    let text = std::fs::read_to_string(kept).unwrap();
    let printed = token.to_string();
    let secret = printed.split('.').nth(3).unwrap();
    assert_eq!(secret.len(), 32);
    assert!(!text.contains(secret));
}

#[test]
fn a_revocation_is_of_what_was_issued_before() {
    let (folder, mut ca) = ca();
    let key = KeyPair::generate().unwrap();
    let request = request_of(&key, None);
    let before = identity(&ca.renew(&host("web-1"), &request, NOW).unwrap());
    let other = identity(&ca.renew(&host("web-2"), &request, NOW).unwrap());
    assert!(!ca.revocations().is_revoked(&before));
    ca.revocations().revoke(&host("web-1"), later(5)).unwrap();
    // Also where the clock was set back meanwhile.
    let after = identity(&ca.renew(&host("web-1"), &request, NOW).unwrap());
    let revocations = Revocations::load(&folder.path().join("server")).unwrap();
    for revocations in [&*ca.revocations(), &revocations] {
        assert!(revocations.is_revoked(&before));
        assert!(!revocations.is_revoked(&after));
        assert!(!revocations.is_revoked(&other));
    }
}

#[test]
fn two_cas_overlap_until_what_the_old_one_signed_is_over() {
    let (folder, mut ca) = ca();
    let first = ca.authorities.fingerprint();
    let authorities = &mut ca.authorities;
    assert!(!authorities.switch(NOW).unwrap());
    assert!(authorities.roll(NOW).unwrap());
    assert!(!authorities.roll(NOW).unwrap());
    assert_eq!(authorities.fingerprint(), first);
    assert_eq!(authorities.bundle().len(), 2);
    let both = authorities.bundle_hash();
    let server = authorities.server().0;
    assert!(authorities.switch(later(DAY_US)).unwrap());
    assert_ne!(authorities.fingerprint(), first);
    assert_ne!(authorities.server().0, server);
    assert_eq!(authorities.bundle_hash(), both);
    let over = DAY_US + HOST_LIFE_US + RENEWABLE_US;
    assert!(!authorities.forget_retired(later(over)).unwrap());
    assert!(authorities.forget_retired(later(over + 1)).unwrap());
    let read = Authorities::load(&folder.path().join("server")).unwrap();
    assert_eq!(read.fingerprint(), authorities.fingerprint());
    assert_eq!(read.bundle(), authorities.bundle());
    assert_eq!(read.bundle().len(), 1);
}

#[test]
fn the_server_renews_its_certificate_at_two_thirds_of_its_life() {
    let (_folder, mut ca) = ca();
    let authorities = &mut ca.authorities;
    assert_eq!(authorities.server_expires(), later(SERVER_LIFE_US));
    let due = SERVER_LIFE_US / 3 * 2;
    assert!(!authorities.renew_server(later(due - DAY_US)).unwrap());
    assert!(authorities.renew_server(later(due)).unwrap());
    assert_eq!(authorities.server_expires(), later(due + SERVER_LIFE_US));
}

#[test]
fn a_request_that_is_none_or_with_another_kind_of_key_is_refused() {
    let key = KeyPair::generate_for(&PKCS_ED25519).unwrap();
    let refused = SigningRequest::read(&request_of(&key, None));
    assert_eq!(refused.unwrap_err(), RequestError::Key);
    let key = KeyPair::generate().unwrap();
    let whole = request_of(&key, None);
    let changed = whole.replacen('A', "B", 1);
    for text in ["", "nonsense", &whole[..whole.len() / 2], &changed] {
        let refused = SigningRequest::read(text);
        assert_eq!(refused.unwrap_err(), RequestError::Malformed, "{text}");
    }
}

#[test]
fn a_second_process_does_not_get_the_state() {
    let folder = tempfile::tempdir().unwrap();
    let first = StateDirectory::open(folder.path()).unwrap();
    let second = StateDirectory::open(folder.path());
    assert!(matches!(second, Err(StateError::Locked { .. })));
    drop(first);
    StateDirectory::open(folder.path()).unwrap();
}

#[test]
fn a_directory_without_a_server_says_how_to_make_one() {
    let folder = tempfile::tempdir().unwrap();
    let directory = StateDirectory::open(folder.path()).unwrap();
    let missing = Ca::load(&directory, system_random()).unwrap_err();
    assert!(missing.to_string().contains("slowpath server init"));
    Ca::init(&directory, &[], NOW, system_random()).unwrap();
    let again = Ca::init(&directory, &[], NOW, system_random()).unwrap_err();
    assert!(matches!(again, StateError::Exists { .. }));
}
