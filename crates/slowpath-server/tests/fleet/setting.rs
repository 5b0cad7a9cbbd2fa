// SPDX-License-Identifier: Apache-2.0
//! A server in a temporary directory, an intake that only remembers, a clock.

use crate::client::{Client, Credentials};
use slowpath_http::sessions::SessionLimits;
use slowpath_model::WallMicros;
use slowpath_server::ca::{Ca, system_random};
use slowpath_server::clock::Clock;
use slowpath_server::intake::{Delivery, Intake, IntakeCounts, PositionsReply, Receipt, Reply};
use slowpath_server::journal::Journal;
use slowpath_server::refusals::Reason;
use slowpath_server::server::{LIMITS, Options, Server};
use slowpath_server::state::StateDirectory;
use slowpath_ship::batch::{Encoder, Gap, GapReason, Header, Items, Prefix, SentClock};
use slowpath_ship::identity::{HostName, Token};
use std::collections::HashMap;
use std::sync::atomic::{AtomicBool, AtomicI64, Ordering};
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};
use tempfile::TempDir;

/// A test waits this long only before it fails.
pub const PATIENCE: Duration = Duration::from_secs(60);
pub const DAY_US: i64 = 86_400_000_000;

/// What the server took, by host and segment.
#[derive(Default)]
pub struct Remembering {
    pub taken: Mutex<Vec<(String, String, u64)>>,
    offsets: Mutex<HashMap<(String, String), (u64, Prefix)>>,
    /// Answers that are given instead.
    pub scripted: Mutex<Vec<Receipt>>,
    /// While this is set, batches of more bytes wait in `held`.
    pub holds: AtomicBool,
    pub held: Mutex<Vec<(Reply, Receipt)>>,
}

/// What a held batch has more of, bytes of the stream.
const HELD: u64 = 1_000;

impl Intake for Remembering {
    fn submit(&self, delivery: Delivery, reply: Reply) {
        if let Some(receipt) = self.scripted.lock().unwrap().pop() {
            return reply(receipt);
        }
        let segment = delivery.batch.header.segment.clone();
        let host = delivery.host.to_string();
        let mut pieces = delivery.batch.pieces();
        while pieces.next().is_some() {}
        let at = (delivery.batch.end(), pieces.prefix());
        self.taken
            .lock()
            .unwrap()
            .push((host.clone(), segment.clone(), at.0));
        self.offsets.lock().unwrap().insert((host, segment), at);
        let receipt = Receipt::Flushed {
            offset: at.0,
            crc: at.1,
        };
        if at.0 > HELD && self.holds.load(Ordering::SeqCst) {
            return self.held.lock().unwrap().push((reply, receipt));
        }
        reply(receipt);
    }

    fn positions(&self, host: &HostName, ids: Vec<String>, reply: PositionsReply) {
        let offsets = self.offsets.lock().unwrap();
        let known = |id: String| offsets.get(&(host.to_string(), id)).copied();
        reply(
            ids.into_iter()
                .map(|id| known(id).unwrap_or_default())
                .collect(),
        );
    }

    fn counts(&self) -> IntakeCounts {
        IntakeCounts::default()
    }
}

/// Lines for the operator.
#[derive(Default)]
pub struct Lines(pub Mutex<Vec<String>>);

impl Journal for Lines {
    fn say(&self, text: &str) {
        self.0.lock().unwrap().push(text.to_owned());
    }

    fn warn(&self, text: &str) {
        self.0.lock().unwrap().push(text.to_owned());
    }
}

/// A server that runs.
pub struct Fleet {
    pub server: Option<Server>,
    pub folder: TempDir,
    pub intake: Arc<Remembering>,
    pub journal: Arc<Lines>,
    now: Arc<AtomicI64>,
    limits: SessionLimits,
}

impl Fleet {
    pub fn new() -> Self {
        Fleet::with(LIMITS)
    }

    pub fn with(limits: SessionLimits) -> Self {
        let folder = tempfile::tempdir().unwrap();
        let now = Arc::new(AtomicI64::new(1_795_000_000_000_000));
        let directory = StateDirectory::open(folder.path()).unwrap();
        let names = ["localhost".to_owned(), "127.0.0.1".to_owned()];
        let begun = WallMicros(now.load(Ordering::SeqCst));
        Ca::init(&directory, &names, begun, system_random()).unwrap();
        drop(directory);
        let mut fleet = Fleet {
            folder,
            server: None,
            intake: Arc::default(),
            journal: Arc::default(),
            now,
            limits,
        };
        fleet.start();
        fleet
    }

    /// Starts the server (again).
    pub fn start(&mut self) {
        self.server = None;
        let directory = Arc::new(StateDirectory::open(self.folder.path()).unwrap());
        let options = Options {
            listen: "127.0.0.1:0".parse().unwrap(),
            metrics: Some("127.0.0.1:0".parse().unwrap()),
            limits: self.limits,
            clock: self.clock(),
            random: system_random(),
            journal: self.journal.clone(),
        };
        let server = Server::start(directory, self.intake.clone(), options).unwrap();
        self.server = Some(server);
    }

    pub fn server(&self) -> &Server {
        self.server.as_ref().unwrap()
    }

    pub fn clock(&self) -> Clock {
        let now = self.now.clone();
        Clock::new(move || WallMicros(now.load(Ordering::SeqCst)))
    }

    /// Time goes by.
    pub fn pass(&self, us: i64) {
        self.now.fetch_add(us, Ordering::SeqCst);
    }

    pub fn now(&self) -> WallMicros {
        WallMicros(self.now.load(Ordering::SeqCst))
    }

    pub fn bundle(&self) -> String {
        let mut client = Client::unverified(self.server().address());
        let answer = client.get("/v1/ca");
        assert_eq!(answer.status, 200);
        answer.json()["bundle"].as_str().unwrap().to_owned()
    }

    pub fn invite(&self, host: &str) -> Token {
        let token = slowpath_server::command::invite(self.folder.path(), host, &self.clock());
        token.unwrap().parse().unwrap()
    }

    /// A host that joined.
    pub fn join(&self, host: &str) -> Credentials {
        let token = self.invite(host);
        let bundle = self.bundle();
        let mut client = Client::anonymous(self.server().address(), &bundle, self.now());
        let key = rcgen::KeyPair::generate().unwrap();
        let answer = client.join(&token, &crate::client::request(&key, None));
        assert_eq!(answer.status, 200, "{}", answer.text());
        let certificate = answer.json()["certificate"].as_str().unwrap().to_owned();
        Credentials {
            certificate,
            key: key.serialize_pem(),
            bundle,
        }
    }

    /// A connection of a host.
    pub fn connect(&self, credentials: &Credentials) -> Client {
        Client::host(self.server().address(), credentials, self.now())
    }

    /// Waits until this number was refused for this reason: a client may have its answer before.
    pub fn was_refused(&self, reason: Reason, count: u64) {
        wait_until(|| self.server().refusals().of(reason) >= count);
        assert_eq!(self.server().refusals().of(reason), count);
    }

    pub fn taken(&self) -> usize {
        self.intake.taken.lock().unwrap().len()
    }
}

pub fn header(segment: &str, offset: u64) -> Header {
    Header {
        framing: 1,
        schema: 1,
        last: false,
        run: 7,
        number: 1,
        boot_id: 0xb007,
        clock: SentClock {
            sent: WallMicros(0),
            state: 0,
            max_error_us: None,
        },
        clock_offset: None,
        offset,
        prefix: Prefix::default(),
        segment: segment.to_owned(),
        items_length: 0,
        items_crc: 0,
    }
}

/// A batch of one gap.
pub fn batch(segment: &str) -> Vec<u8> {
    batch_of(segment, 1)
}

/// A batch of so many gaps.
pub fn batch_of(segment: &str, gaps: u32) -> Vec<u8> {
    let mut items = Items::default();
    for _ in 0..gaps {
        items.push_gap(Gap {
            length: 100,
            reason: GapReason::Dropped,
            records: None,
        });
    }
    let mut encoder = Encoder::new().unwrap();
    encoder.encode(&header(segment, 0), &items).unwrap()
}

/// Waits for something that happens soon.
pub fn wait_until(mut is_so: impl FnMut() -> bool) {
    let end = Instant::now() + PATIENCE;
    while !is_so() {
        assert!(Instant::now() < end, "it did not happen");
        std::thread::sleep(Duration::from_millis(2));
    }
}
