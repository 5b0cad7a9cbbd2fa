// SPDX-License-Identifier: Apache-2.0
//! Who gets in, and as whom.

use crate::client::{Client, Credentials, refused, request};
use crate::setting::{DAY_US, Fleet, batch};
use rcgen::{
    BasicConstraints, CertificateParams, DistinguishedName, DnType, ExtendedKeyUsagePurpose, IsCa,
    Issuer, KeyPair, SanType,
};
use slowpath_server::refusals::Reason;
use slowpath_ship::answers::RefusalKind;

/// A certificate for `host` by an issuer that the server does not know, or that is no CA.
fn forged(host: &str, issuer: &Issuer<'_, KeyPair>, bundle: String) -> Credentials {
    let key = KeyPair::generate().unwrap();
    let mut params = CertificateParams::default();
    let uri = format!("slowpath:host/{host}");
    params.subject_alt_names = vec![SanType::URI(uri.as_str().try_into().unwrap())];
    params.extended_key_usages = vec![ExtendedKeyUsagePurpose::ClientAuth];
    // Of a moment that no revocation is later than.
    params.serial_number = Some(vec![0x7f; 16].into());
    let certificate = params.signed_by(&key, issuer).unwrap();
    Credentials {
        certificate: certificate.pem(),
        key: key.serialize_pem(),
        bundle,
    }
}

/// The common name of the server's CA.
fn name_of_ca(bundle: &str) -> String {
    use rustls::pki_types::CertificateDer;
    use rustls::pki_types::pem::PemObject;
    let der = CertificateDer::from_pem_slice(bundle.as_bytes()).unwrap();
    let (_, read) = x509_parser::parse_x509_certificate(&der).unwrap();
    let mut names = read.subject().iter_common_name();
    names.next().unwrap().as_str().unwrap().to_owned()
}

#[test]
fn a_host_that_joined_ships_under_its_name() {
    let fleet = Fleet::new();
    let mut client = fleet.connect(&fleet.join("web-1"));
    for segment in ["a", "b"] {
        let answer = client.ship(&batch(segment));
        assert_eq!(answer.status, 200, "{}", answer.text());
        let answer = answer.json();
        assert_eq!(answer["offset"], 100);
        assert_eq!(answer["received_us"], fleet.now().0);
        for key in ["crc", "sent_us", "server", "start", "ca"] {
            assert!(!answer[key].is_null(), "{key}");
        }
    }
    let taken = fleet.intake.taken.lock().unwrap();
    let expected = ["a", "b"].map(|id| ("web-1".to_owned(), id.to_owned(), 100));
    assert_eq!(*taken, expected);
}

#[test]
fn without_a_certificate_only_the_ca_and_joining_can_be_asked() {
    let fleet = Fleet::new();
    let address = fleet.server().address();
    let bundle = fleet.bundle();
    let mut client = Client::anonymous(address, &bundle, fleet.now());
    let csr = request(&KeyPair::generate().unwrap(), None);
    assert_eq!(
        client.ship(&batch("a")).refusal(),
        refused(403, "certificate")
    );
    assert_eq!(client.renew(&csr).refusal(), refused(403, "certificate"));
    let segments = serde_json::json!({"segments": []});
    let answer = client.post_json("/v1/segments", &segments);
    assert_eq!(answer.refusal(), refused(403, "certificate"));
    for path in ["/", "/v1/batch", "/metrics", "/healthz", "/v1/../v1/batch"] {
        let status = client.get(path).status;
        assert!(matches!(status, 404 | 405), "{path}: {status}");
    }
    assert_eq!(client.get("/v1/ca").status, 200);
    assert_eq!(fleet.taken(), 0);
}

#[test]
fn a_certificate_of_a_foreign_ca_does_not_get_in() {
    let fleet = Fleet::new();
    let mine = fleet.join("web-1");
    let mut undisturbed = fleet.connect(&mine);
    let key = KeyPair::generate().unwrap();
    let mut params = CertificateParams::default();
    params.is_ca = IsCa::Ca(BasicConstraints::Unconstrained);
    // It even has the name of ours.
    let mut name = DistinguishedName::new();
    name.push(DnType::CommonName, name_of_ca(&mine.bundle));
    params.distinguished_name = name;
    let issuer = Issuer::new(params, key);
    let credentials = forged("web-1", &issuer, mine.bundle.clone());
    assert!(fleet.connect(&credentials).try_ship(&batch("a")).is_err());
    fleet.was_refused(Reason::Certificate, 1);
    assert_eq!(undisturbed.ship(&batch("b")).status, 200);
    assert_eq!(fleet.taken(), 1);
}

#[test]
fn a_host_cannot_make_a_certificate_of_another_name_out_of_its_own() {
    let fleet = Fleet::new();
    let mine = fleet.join("web-1");
    let key = KeyPair::from_pem(&mine.key).unwrap();
    let issuer = Issuer::from_ca_cert_pem(&mine.certificate, key).unwrap();
    let mut stolen = forged("web-2", &issuer, mine.bundle.clone());
    assert!(fleet.connect(&stolen).try_ship(&batch("a")).is_err());
    // Nor with its own certificate between.
    stolen.certificate += &mine.certificate;
    assert!(fleet.connect(&stolen).try_ship(&batch("a")).is_err());
    fleet.was_refused(Reason::Certificate, 2);
    assert_eq!(fleet.taken(), 0);
}

#[test]
fn a_signing_request_for_another_host_is_refused() {
    let fleet = Fleet::new();
    let mine = fleet.join("web-1");
    let key = KeyPair::generate().unwrap();
    let other = request(&key, Some("slowpath:host/web-2"));
    let answer = fleet.connect(&mine).renew(&other);
    assert_eq!(answer.refusal(), refused(403, "name"));
    let token = fleet.invite("web-3");
    let mut client = Client::anonymous(fleet.server().address(), &mine.bundle, fleet.now());
    assert_eq!(client.join(&token, &other).refusal(), refused(403, "name"));
    let foreign = request(&key, Some("https://example.org/web-3"));
    assert_eq!(
        client.join(&token, &foreign).refusal(),
        refused(403, "name")
    );
    assert_eq!(client.join(&token, &request(&key, None)).status, 200);
}

#[test]
fn a_token_that_was_used_or_has_expired_is_refused() {
    let fleet = Fleet::new();
    let bundle = fleet.bundle();
    let address = fleet.server().address();
    let mut client = Client::anonymous(address, &bundle, fleet.now());
    let first = request(&KeyPair::generate().unwrap(), None);
    let second = request(&KeyPair::generate().unwrap(), None);
    let used = fleet.invite("web-1");
    assert_eq!(client.join(&used, &first).status, 200);
    assert_eq!(client.join(&used, &second).refusal(), refused(403, "used"));
    // The first may not have got its answer.
    assert_eq!(client.join(&used, &first).status, 200);
    let expired = fleet.invite("web-2");
    fleet.pass(DAY_US);
    let answer = client.join(&expired, &second);
    assert_eq!(answer.refusal(), refused(403, "token-expired"));
    let mut guessed = fleet.invite("web-3");
    guessed.secret = [0; 16];
    let answer = client.join(&guessed, &second);
    assert_eq!(answer.refusal(), refused(403, "token"));
    let nonsense = serde_json::json!({"token": "sp1.nonsense", "csr": second});
    let answer = client.post_json("/v1/join", &nonsense);
    assert_eq!(answer.refusal(), refused(403, "token"));
}

#[test]
fn an_expired_certificate_renews_and_does_nothing_else() {
    let fleet = Fleet::new();
    let mut mine = fleet.join("web-1");
    let mut open = fleet.connect(&mine);
    assert_eq!(open.ship(&batch("a")).status, 200);
    fleet.pass(31 * DAY_US);
    // A connection that was open before is no way around it.
    assert_eq!(open.ship(&batch("b")).refusal(), refused(403, "expired"));
    let mut client = fleet.connect(&mine);
    assert_eq!(client.ship(&batch("b")).refusal(), refused(403, "expired"));
    let key = KeyPair::generate().unwrap();
    let answer = client.renew(&request(&key, None));
    assert_eq!(answer.status, 200, "{}", answer.text());
    mine.certificate = answer.json()["certificate"].as_str().unwrap().to_owned();
    mine.key = key.serialize_pem();
    assert_eq!(fleet.connect(&mine).ship(&batch("b")).status, 200);
    assert_eq!(fleet.taken(), 2);
}

#[test]
fn a_certificate_that_expired_long_ago_does_not_get_in() {
    let fleet = Fleet::new();
    let mine = fleet.join("web-1");
    fleet.pass((30 + 91) * DAY_US);
    let csr = request(&KeyPair::generate().unwrap(), None);
    // The server's own has expired as well: it was not awake to renew it.
    let mut client = fleet.connect(&mine);
    let body = serde_json::json!({ "csr": csr }).to_string();
    let answer = client.post("/v1/renew", "application/json", body.as_bytes());
    assert!(answer.is_err());
}

#[test]
fn a_revocation_closes_what_is_open_and_refuses_what_comes() {
    let fleet = Fleet::new();
    let revoked = fleet.join("web-1");
    let other = fleet.join("web-2");
    let mut open = fleet.connect(&revoked);
    let mut undisturbed = fleet.connect(&other);
    assert_eq!(open.ship(&batch("a")).status, 200);
    assert_eq!(undisturbed.ship(&batch("a")).status, 200);
    fleet.pass(1);
    let said = slowpath_server::command::revoke(fleet.folder.path(), "web-1", &fleet.clock());
    assert!(said.unwrap().contains("1 connection"));
    // Closed without a word, and not for want of one: nothing was asked.
    let _ = open.end();
    assert!(open.try_ship(&batch("b")).is_err());
    assert!(fleet.connect(&revoked).try_ship(&batch("b")).is_err());
    fleet.was_refused(Reason::Revoked, 1);
    assert_eq!(undisturbed.ship(&batch("b")).status, 200);
    assert_eq!(fleet.taken(), 3);
    // Invited anew it is back, also where not a microsecond has passed.
    let back = fleet.join("web-1");
    assert_eq!(fleet.connect(&back).ship(&batch("b")).status, 200);
}

#[test]
fn a_token_from_before_a_revocation_lets_no_one_back_in() {
    let fleet = Fleet::new();
    let bundle = fleet.bundle();
    let mut client = Client::anonymous(fleet.server().address(), &bundle, fleet.now());
    let csr = request(&KeyPair::generate().unwrap(), None);
    let used = fleet.invite("web-1");
    let unused = fleet.invite("web-1");
    assert_eq!(client.join(&used, &csr).status, 200);
    slowpath_server::command::revoke(fleet.folder.path(), "web-1", &fleet.clock()).unwrap();
    fleet.pass(1);
    for token in [&used, &unused] {
        let answer = client.join(token, &csr);
        assert_eq!(answer.refusal(), refused(403, "revoked"));
    }
    assert_eq!(client.join(&fleet.invite("web-1"), &csr).status, 200);
}

#[test]
fn a_revocation_outlives_the_server() {
    let mut fleet = Fleet::new();
    let revoked = fleet.join("web-1");
    fleet.server = None;
    slowpath_server::command::revoke(fleet.folder.path(), "web-1", &fleet.clock()).unwrap();
    fleet.start();
    assert!(fleet.connect(&revoked).try_ship(&batch("a")).is_err());
    fleet.was_refused(Reason::Revoked, 1);
}

#[test]
fn two_cas_overlap_without_a_restart() {
    let fleet = Fleet::new();
    let mut mine = fleet.join("web-1");
    let mut open = fleet.connect(&mine);
    let before = open.ship(&batch("a")).json()["ca"].clone();
    slowpath_server::command::roll(fleet.folder.path(), false, &fleet.clock()).unwrap();
    // The answer says that there is another bundle, which the agent fetches.
    assert_ne!(open.ship(&batch("b")).json()["ca"], before);
    mine.bundle = open.get("/v1/ca").json()["bundle"]
        .as_str()
        .unwrap()
        .to_owned();
    assert_eq!(mine.bundle.matches("BEGIN CERTIFICATE").count(), 2);
    slowpath_server::command::roll(fleet.folder.path(), true, &fleet.clock()).unwrap();
    // The old certificate, by the new server's.
    let mut client = fleet.connect(&mine);
    assert_eq!(client.ship(&batch("c")).status, 200);
    let key = KeyPair::generate().unwrap();
    let answer = client.renew(&request(&key, None));
    mine.certificate = answer.json()["certificate"].as_str().unwrap().to_owned();
    mine.key = key.serialize_pem();
    assert_eq!(fleet.connect(&mine).ship(&batch("d")).status, 200);
    // Who has the old bundle only does not take the server any more.
    let old = fleet.join("web-2");
    assert_eq!(old.bundle.matches("BEGIN CERTIFICATE").count(), 2);
    assert_eq!(open.ship(&batch("e")).status, 200);
}

#[test]
fn a_clone_is_named_with_both_addresses() {
    let fleet = Fleet::new();
    let mine = fleet.join("web-1");
    let mut client = fleet.connect(&mine);
    assert_eq!(client.ship(&batch("a")).status, 200);
    let clone = slowpath_server::intake::Receipt::Clone;
    fleet.intake.scripted.lock().unwrap().push(clone);
    let answer = client.ship(&batch("a"));
    assert_eq!(answer.refusal(), refused(409, "clone"));
    let lines = fleet.journal.0.lock().unwrap().join("\n");
    assert!(
        lines.contains("two machines ship as web-1: 127.0.0.1"),
        "{lines}"
    );
    let status = fleet.server().status();
    assert_eq!(status.hosts["web-1"].record.clones.len(), 1);
    let count = Reason::Answered(RefusalKind::Clone);
    fleet.was_refused(count, 1);
}
