// SPDX-License-Identifier: Apache-2.0
//! A server for the client's tests: TLS by rustls, HTTP by hand, all of it in memory.

use rcgen::string::Ia5String;
use rcgen::{BasicConstraints, CertificateParams, CertificateSigningRequestParams, IsCa, Issuer};
use rcgen::{KeyPair, PublicKeyData, SanType};
use rustls::pki_types::{CertificateDer, PrivateKeyDer};
use rustls::server::WebPkiClientVerifier;
use rustls::{
    RootCertStore, ServerConfig, ServerConnection, StreamOwned, SupportedProtocolVersion,
};
use serde_json::json;
use slowpath_ship::answers::{self, Flushed, Refusal, RefusalKind, SegmentsRequest, ServerState};
use slowpath_ship::batch::{Content, Prefix, Reader};
use slowpath_ship::identity::{HostName, Sha256, Token, bundle_hash, san_uri};
use std::collections::BTreeMap;
use std::io::{BufRead, BufReader, Read, Write};
use std::net::{TcpListener, TcpStream};
use std::sync::{Arc, Condvar, Mutex, MutexGuard};
use std::time::{Duration, SystemTime};

pub const WAIT: Duration = Duration::from_secs(60);

/// A CA of the test.
pub struct Ca {
    pub pem: String,
    pub der: Vec<u8>,
    issuer: Issuer<'static, KeyPair>,
}

impl Ca {
    pub fn new() -> Self {
        let key = KeyPair::generate().unwrap();
        let mut params = CertificateParams::default();
        params.is_ca = IsCa::Ca(BasicConstraints::Unconstrained);
        let certificate = params.self_signed(&key).unwrap();
        Ca {
            pem: certificate.pem(),
            der: certificate.der().to_vec(),
            issuer: Issuer::new(params, key),
        }
    }

    /// A certificate for a host, from a request, valid from so many seconds ago for so long.
    fn certify(&self, csr: &str, host: &HostName, ago: u64, life: u64) -> String {
        let mut csr = CertificateSigningRequestParams::from_pem(csr).unwrap();
        let uri = SanType::URI(Ia5String::try_from(san_uri(host)).unwrap());
        assert_eq!(csr.params.subject_alt_names, [uri]);
        let from = SystemTime::now() - Duration::from_secs(ago);
        csr.params.not_before = from.into();
        csr.params.not_after = (from + Duration::from_secs(life)).into();
        csr.signed_by(&self.issuer).unwrap().pem()
    }
}

/// What the server has of a segment.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Flush {
    pub offset: u64,
    pub crc: Prefix,
    pub records: Vec<Vec<u8>>,
    pub boot_id: u128,
    pub ended: bool,
}

#[derive(Default)]
pub struct State {
    pub segments: BTreeMap<String, Flush>,
    pub start: u32,
    pub bundle: String,
    /// What every batch is refused with.
    pub refuse: Option<RefusalKind>,
    /// Requests by path.
    pub requests: BTreeMap<String, u32>,
    pub connections: u32,
    /// Age and life of the certificates that are made, seconds.
    pub age: u64,
    pub life: u64,
    /// Answers to batches and to joins that get lost.
    pub lose_answers: u32,
    pub lose_joins: u32,
    /// The public keys of all requests for certificates.
    pub keys: Vec<Vec<u8>>,
}

pub struct Server {
    pub address: String,
    pub ca: Ca,
    pub state: Arc<(Mutex<State>, Condvar)>,
}

impl Server {
    pub fn start(version: &'static SupportedProtocolVersion) -> Arc<Self> {
        let ca = Ca::new();
        let key = KeyPair::generate().unwrap();
        let own = CertificateParams::new(vec!["localhost".to_owned()]).unwrap();
        let own = own.signed_by(&key, &ca.issuer).unwrap();
        let mut roots = RootCertStore::empty();
        roots.add(CertificateDer::from(ca.der.clone())).unwrap();
        let provider = Arc::new(rustls::crypto::ring::default_provider());
        let clients =
            WebPkiClientVerifier::builder_with_provider(Arc::new(roots), provider.clone())
                .allow_unauthenticated()
                .build()
                .unwrap();
        let key = PrivateKeyDer::try_from(key.serialize_der()).unwrap();
        let config = ServerConfig::builder_with_provider(provider)
            .with_protocol_versions(&[version])
            .unwrap()
            .with_client_cert_verifier(clients)
            .with_single_cert(vec![own.der().clone()], key)
            .unwrap();
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let state = State {
            bundle: ca.pem.clone(),
            life: 30 * 86_400,
            ..State::default()
        };
        let server = Arc::new(Server {
            address: format!("localhost:{}", listener.local_addr().unwrap().port()),
            ca,
            state: Arc::new((Mutex::new(state), Condvar::new())),
        });
        let accepting = Arc::clone(&server);
        let config = Arc::new(config);
        std::thread::spawn(move || {
            for stream in listener.incoming() {
                let server = Arc::clone(&accepting);
                let config = Arc::clone(&config);
                std::thread::spawn(move || server.serve(stream.unwrap(), config));
            }
        });
        server
    }

    pub fn token(&self, host: &str) -> Token {
        Token {
            host: host.parse().unwrap(),
            id: 1,
            secret: [7; 16],
            fingerprint: Sha256::of(&self.ca.der),
        }
    }

    pub fn lock(&self) -> MutexGuard<'_, State> {
        self.state.0.lock().unwrap()
    }

    /// Waits until something of the state is so.
    pub fn wait_until(&self, what: &str, is_so: impl Fn(&State) -> bool) {
        let state = self.lock();
        let waited = self
            .state
            .1
            .wait_timeout_while(state, WAIT, |state| !is_so(state));
        let (state, timeout) = waited.unwrap();
        assert!(!timeout.timed_out(), "never {what}: {:?}", state.requests);
    }

    fn serve(&self, stream: TcpStream, config: Arc<ServerConfig>) {
        let tls = ServerConnection::new(config).unwrap();
        let mut stream = BufReader::new(StreamOwned::new(tls, stream));
        self.lock().connections += 1;
        loop {
            let mut length = 0;
            let mut first = String::new();
            let mut line = String::new();
            loop {
                line.clear();
                match stream.read_line(&mut line) {
                    Ok(0) | Err(_) => return,
                    Ok(_) => {}
                }
                if first.is_empty() {
                    first.clone_from(&line);
                }
                let lower = line.to_ascii_lowercase();
                if let Some(value) = lower.strip_prefix("content-length:") {
                    length = value.trim().parse().unwrap();
                }
                if line == "\r\n" {
                    break;
                }
            }
            let mut body = vec![0; length];
            stream.read_exact(&mut body).unwrap();
            let path = first.split(' ').nth(1).unwrap().to_owned();
            let named = stream.get_ref().conn.peer_certificates().is_some();
            let Some((status, answer)) = self.answer(&path, &body, named) else {
                return;
            };
            let answer = answer.to_string();
            let head = format!(
                "HTTP/1.1 {status} X\r\ncontent-length: {}\r\n\r\n",
                answer.len()
            );
            let out = stream.get_mut();
            if out.write_all((head + &answer).as_bytes()).is_err() {
                return;
            }
        }
    }

    fn answer(&self, path: &str, body: &[u8], named: bool) -> Option<(u16, serde_json::Value)> {
        let mut state = self.lock();
        *state.requests.entry(path.to_owned()).or_default() += 1;
        let answer = match path {
            answers::CA => (200, json!({"bundle": state.bundle})),
            answers::JOIN | answers::RENEW => self.certificate(&mut state, path, body, named),
            _ if !named => refusal(Refusal::new(RefusalKind::Certificate, "who?")),
            answers::SEGMENTS => segments(&state, body),
            answers::BATCH => batch(&mut state, body),
            _ => (404, json!({})),
        };
        self.state.1.notify_all();
        let lost = match path {
            answers::BATCH => &mut state.lose_answers,
            answers::JOIN => &mut state.lose_joins,
            _ => return Some(answer),
        };
        if *lost > 0 {
            *lost -= 1;
            return None;
        }
        Some(answer)
    }

    fn certificate(
        &self,
        state: &mut State,
        path: &str,
        body: &[u8],
        named: bool,
    ) -> (u16, serde_json::Value) {
        let asked: serde_json::Value = serde_json::from_slice(body).unwrap();
        let host = match path {
            answers::JOIN => {
                let token: Token = asked["token"].as_str().unwrap().parse().unwrap();
                assert_eq!(token.secret, [7; 16]);
                token.host
            }
            _ => {
                assert!(named, "a renewal shows the old certificate");
                "web-17".parse().unwrap()
            }
        };
        let csr = asked["csr"].as_str().unwrap();
        let key = CertificateSigningRequestParams::from_pem(csr)
            .unwrap()
            .public_key;
        state.keys.push(key.der_bytes().to_vec());
        let certificate = self.ca.certify(csr, &host, state.age, state.life);
        let answer = answers::CertificateAnswer {
            certificate,
            bundle: state.bundle.clone(),
            state: of(state),
        };
        (200, serde_json::to_value(answer).unwrap())
    }
}

fn of(state: &State) -> ServerState {
    let bundle = slowpath_ship::keys::certificates(&state.bundle).unwrap();
    ServerState {
        server: "s1".to_owned(),
        start: state.start.to_string(),
        ca: bundle_hash(bundle.iter().map(Vec::as_slice)).to_string(),
    }
}

fn refusal(refusal: Refusal) -> (u16, serde_json::Value) {
    let status = refusal.error.status();
    (status, serde_json::to_value(refusal).unwrap())
}

fn segments(state: &State, body: &[u8]) -> (u16, serde_json::Value) {
    let asked: SegmentsRequest = serde_json::from_slice(body).unwrap();
    let segments = asked.segments.into_iter().map(|segment| {
        let there = state.segments.get(&segment.id);
        let (offset, crc) = there.map_or_else(Default::default, |f| (f.offset, f.crc));
        json!({"id": segment.id, "offset": offset, "crc": crc})
    });
    let mut answer = json!({"segments": segments.collect::<Vec<_>>()});
    let own = serde_json::to_value(of(state)).unwrap();
    answer
        .as_object_mut()
        .unwrap()
        .extend(own.as_object().unwrap().clone());
    (200, answer)
}

fn batch(state: &mut State, body: &[u8]) -> (u16, serde_json::Value) {
    let read = Reader::new()
        .unwrap()
        .read(body)
        .expect("a batch that can be read");
    if let Some(kind) = state.refuse {
        return refusal(Refusal::new(kind, "as the test wants it"));
    }
    let own = of(state);
    let there = state
        .segments
        .entry(read.header.segment.clone())
        .or_default();
    let elsewhere = |kind, there: &Flush| {
        let mut body = Refusal::new(kind, "elsewhere");
        body.offset = Some(there.offset);
        body.crc = Some(there.crc);
        refusal(body)
    };
    if read.header.offset > there.offset {
        return elsewhere(RefusalKind::Behind, there);
    }
    if read.end() > there.offset {
        match read.from_offset(there.offset) {
            Some((crc, rest)) if crc == there.crc => {
                for piece in rest.pieces(there.offset, crc) {
                    if let Content::Record(record) = piece.content {
                        there.records.push(record.bytes().to_vec());
                    }
                    there.offset = piece.end;
                    there.crc = piece.prefix;
                }
            }
            _ => return elsewhere(RefusalKind::OtherBytes, there),
        }
    }
    there.boot_id = read.header.boot_id;
    there.ended |= read.header.last;
    let now = slowpath_ship::clock::wall().0;
    let flushed = Flushed {
        offset: there.offset,
        crc: there.crc,
        received_us: now,
        sent_us: now,
        state: own,
    };
    (200, serde_json::to_value(flushed).unwrap())
}
