// SPDX-License-Identifier: Apache-2.0
//! Joining a server and shipping to it over real TLS.

mod server;

use server::{Ca, Server, State, WAIT};
use slowpath_model::{Coverage, Micros, WallMicros};
use slowpath_ship::answers::{self, RefusalKind};
use slowpath_ship::batch::Prefix;
use slowpath_ship::client::{Connection, Failure, Trust};
use slowpath_ship::identity::Sha256;
use slowpath_ship::keys::{EnrolmentError, Identity, join};
use slowpath_ship::shipper::{DEFAULT_LIMIT, Shipper, ShipperOptions};
use slowpath_store::spool::{Payload, RawRecord, Record};
use slowpath_store::{HostIdentity, LogWriter, Options};
use std::collections::BTreeSet;
use std::os::unix::fs::PermissionsExt as _;
use std::path::Path;
use std::sync::{Arc, Mutex};
use std::time::Duration;

const BOOT: u128 = 0x5f3c_9a01_0000_0000_0000_0000_0000_0007;

fn server() -> Arc<Server> {
    Server::start(&rustls::version::TLS13)
}

fn log(dir: &Path) -> LogWriter {
    let host = HostIdentity {
        host: "web-17".to_owned(),
        boot_id: BOOT,
    };
    let options = Options {
        ship: true,
        batch_age: Duration::from_millis(5),
        ..Options::default()
    };
    LogWriter::open(dir, host, options).unwrap()
}

/// Logs coverage with these numbers of polls, at a time that begins a new segment each hour.
fn write(log: &mut LogWriter, numbers: std::ops::Range<u64>, hour: i64) {
    let end = WallMicros(hour * 3_600_000_000);
    log.tick(end);
    for polls in numbers {
        log.coverage(&Coverage {
            end,
            duration: Micros(1_000_000),
            polls,
            ..Coverage::default()
        });
    }
    assert!(log.sync());
}

/// The numbers of polls that the server has; none twice.
fn polls(state: &State) -> BTreeSet<u64> {
    let mut found = BTreeSet::new();
    for segment in state.segments.values() {
        for record in &segment.records {
            let record = RawRecord::at_start(record).unwrap();
            match record.decode(segment.boot_id) {
                Payload::Record(Record::Coverage(coverage)) => {
                    assert!(found.insert(coverage.polls), "{} twice", coverage.polls);
                }
                other => panic!("not logged: {other:?}"),
            }
        }
    }
    found
}

fn numbers(range: std::ops::Range<u64>) -> BTreeSet<u64> {
    range.collect()
}

struct Agent {
    dir: tempfile::TempDir,
    lines: Arc<Mutex<Vec<String>>>,
}

impl Agent {
    fn joined(server: &Server) -> Self {
        let dir = tempfile::tempdir().unwrap();
        let address = server.address.parse().unwrap();
        join(
            &dir.path().join("identity"),
            &address,
            &server.token("web-17"),
        )
        .unwrap();
        Agent {
            dir,
            lines: Arc::default(),
        }
    }

    fn log_dir(&self) -> std::path::PathBuf {
        self.dir.path().join("log")
    }

    fn ship(&self) -> Shipper {
        let options = ShipperOptions {
            log: self.log_dir(),
            identity: self.dir.path().join("identity"),
            server: None,
            limit: DEFAULT_LIMIT,
            interval: Duration::from_millis(20),
        };
        let lines = Arc::clone(&self.lines);
        let journal = Box::new(move |_, line: &str| lines.lock().unwrap().push(line.to_owned()));
        Shipper::start(options, journal).unwrap()
    }
}

#[test]
fn a_host_joins_ships_what_it_logs_and_stays_on_one_connection() {
    let server = server();
    let agent = Agent::joined(&server);
    let identity = agent.dir.path().join("identity");
    let mode = |path: &Path| path.metadata().unwrap().permissions().mode() & 0o777;
    assert_eq!(mode(&identity), 0o700);
    assert_eq!(mode(&identity.join("identity.pem")), 0o600);
    assert!(!identity.join("joining-key.pem").exists());
    let before = server.lock().connections;

    let mut log = log(&agent.log_dir());
    write(&mut log, 0..100, 1);
    let shipper = agent.ship();
    server.wait_until("first hour", |state| polls(state) == numbers(0..100));
    write(&mut log, 100..200, 2);
    server.wait_until("second hour", |state| polls(state) == numbers(0..200));
    assert_eq!(log.close().last_error, None);
    server.wait_until("both ended", |state| {
        state.segments.len() == 2 && state.segments.values().all(|s| s.ended)
    });
    let status = shipper.stop();
    assert_eq!((status.queue.waiting_bytes, status.last_error), (0, None));
    assert_eq!(status.host, "web-17");
    assert!((29.0..=30.0).contains(&status.certificate_days));
    // One clock here: the offset is within its error.
    let offset = status.clock_offset.unwrap();
    assert!(offset.offset_us.unsigned_abs() <= u64::from(offset.error_us) + 1);
    assert_eq!(server.lock().connections, before + 1);
    assert_eq!(*agent.lines.lock().unwrap(), [] as [String; 0]);
}

#[test]
fn a_lost_answer_and_a_restored_server_lose_and_double_nothing() {
    let server = server();
    let agent = Agent::joined(&server);
    let mut log = log(&agent.log_dir());
    server.lock().lose_answers = 2;
    write(&mut log, 0..50, 1);
    let shipper = agent.ship();
    server.wait_until("first", |state| {
        polls(state) == numbers(0..50) && state.lose_answers == 0
    });
    let older = server.lock().segments.clone();
    write(&mut log, 50..120, 2);
    server.wait_until("second", |state| polls(state) == numbers(0..120));
    {
        let mut state = server.lock();
        state.segments = older;
        state.start += 1;
    }
    write(&mut log, 120..130, 3);
    server.wait_until("all again", |state| polls(state) == numbers(0..130));
    shipper.stop();
    log.close();
}

#[test]
fn what_waited_over_a_restart_of_the_agent_is_shipped() {
    let server = server();
    let agent = Agent::joined(&server);
    // Offline for three hours, with a restart in between.
    let mut first = log(&agent.log_dir());
    write(&mut first, 0..40, 1);
    write(&mut first, 40..80, 2);
    first.close();
    let mut second = log(&agent.log_dir());
    write(&mut second, 80..90, 3);
    let shipper = agent.ship();
    server.wait_until("all", |state| polls(state) == numbers(0..90));
    shipper.stop();
    second.close();
}

#[test]
fn a_join_whose_answer_was_lost_asks_again_with_the_same_key() {
    let server = server();
    server.lock().lose_joins = 1;
    let dir = tempfile::tempdir().unwrap();
    let address = server.address.parse().unwrap();
    let token = server.token("web-17");
    let error = join(dir.path(), &address, &token).unwrap_err();
    assert!(matches!(error, EnrolmentError::Refused { .. }), "{error}");
    assert!(!Identity::exists(dir.path()));
    join(dir.path(), &address, &token).unwrap();
    let keys = server.lock().keys.clone();
    assert_eq!(keys.len(), 2);
    assert_eq!(keys[0], keys[1]);
}

#[test]
fn a_server_with_another_fingerprint_gets_no_token() {
    let server = server();
    let dir = tempfile::tempdir().unwrap();
    let address = server.address.parse().unwrap();
    let mut token = server.token("web-17");
    token.fingerprint = Sha256::of(b"another CA");
    let error = join(dir.path(), &address, &token).unwrap_err();
    assert!(
        matches!(error, EnrolmentError::OtherServer { .. }),
        "{error}"
    );
    assert_eq!(server.lock().requests.get(answers::JOIN), None);
    assert!(!Identity::exists(dir.path()));
}

#[test]
fn a_server_of_another_ca_and_one_that_speaks_only_tls_1_2_get_nothing() {
    let server = server();
    let agent = Agent::joined(&server);
    let identity = Identity::read(&agent.dir.path().join("identity")).unwrap();
    let foreign = [Ca::new().der];
    let address = server.address.parse().unwrap();
    let trust = Trust::Mutual(&foreign, &identity.pair);
    let answer = Connection::new(&address, trust).unwrap().batch(b"");
    assert!(matches!(answer, Err(Failure::NoAnswer(_))), "{answer:?}");

    let old = Server::start(&rustls::version::TLS12);
    let bundle = [old.ca.der.clone()];
    let address = old.address.parse().unwrap();
    let trust = Trust::Mutual(&bundle, &identity.pair);
    let answer = Connection::new(&address, trust).unwrap().batch(b"");
    assert!(matches!(answer, Err(Failure::NoAnswer(_))), "{answer:?}");
    assert!(old.lock().requests.is_empty());
}

#[test]
fn a_certificate_past_half_of_its_life_is_renewed_with_a_new_key() {
    let server = server();
    server.lock().age = 20 * 86_400;
    let agent = Agent::joined(&server);
    server.lock().age = 0;
    let dir = agent.dir.path().join("identity");
    let old = Identity::read(&dir).unwrap();
    let mut log = log(&agent.log_dir());
    write(&mut log, 0..5, 1);
    let shipper = agent.ship();
    server.wait_until("renewed and shipped", |state| polls(state) == numbers(0..5));
    shipper.stop();
    let new = Identity::read(&dir).unwrap();
    assert_ne!(old.facts.public_key, new.facts.public_key);
    assert!(new.facts.valid.1 > old.facts.valid.1);
    assert_eq!(server.lock().requests[answers::RENEW], 1);
    let lines = agent.lines.lock().unwrap();
    assert!(
        lines[0].starts_with("renewed this host's certificate"),
        "{lines:?}"
    );
    log.close();
}

#[test]
fn another_bundle_of_cas_is_fetched_without_a_restart() {
    let server = server();
    let agent = Agent::joined(&server);
    let mut log = log(&agent.log_dir());
    write(&mut log, 0..5, 1);
    let shipper = agent.ship();
    server.wait_until("first", |state| polls(state) == numbers(0..5));
    let next = Ca::new();
    let asked = server.lock().requests[answers::CA];
    server.lock().bundle += &next.pem;
    write(&mut log, 5..10, 1);
    server.wait_until("fetched", |state| state.requests[answers::CA] > asked);
    write(&mut log, 10..15, 1);
    server.wait_until("goes on", |state| polls(state) == numbers(0..15));
    shipper.stop();
    let identity = Identity::read(&agent.dir.path().join("identity")).unwrap();
    assert_eq!(identity.bundle, [server.ca.der.clone(), next.der]);
    log.close();
}

#[test]
fn a_revoked_host_keeps_what_it_has_and_says_so_until_it_joins_again() {
    let server = server();
    let agent = Agent::joined(&server);
    let mut log = log(&agent.log_dir());
    server.lock().refuse = Some(RefusalKind::Revoked);
    write(&mut log, 0..5, 1);
    let shipper = agent.ship();
    server.wait_until("refused", |state| {
        state.requests.contains_key(answers::BATCH)
    });
    let began = std::time::Instant::now();
    while shipper.status().stopped.is_none() {
        assert!(began.elapsed() < WAIT);
        std::thread::yield_now();
    }
    assert!(shipper.status().queue.waiting_bytes > 0);
    server.lock().refuse = None;
    let dir = agent.dir.path().join("identity");
    join(
        &dir,
        &server.address.parse().unwrap(),
        &server.token("web-17"),
    )
    .unwrap();
    server.wait_until("shipped", |state| polls(state) == numbers(0..5));
    let status = shipper.stop();
    assert_eq!(status.stopped, None);
    let lines = agent.lines.lock().unwrap();
    assert!(lines[0].contains("403"), "{lines:?}");
    log.close();
}

#[test]
fn a_server_with_other_bytes_is_named_and_later_segments_go_on() {
    let server = server();
    let agent = Agent::joined(&server);
    let mut log = log(&agent.log_dir());
    write(&mut log, 0..5, 1);
    let shipper = agent.ship();
    server.wait_until("first", |state| polls(state) == numbers(0..5));
    let foreign = {
        let mut state = server.lock();
        let (id, first) = state.segments.iter_mut().next().unwrap();
        first.crc = Prefix(first.crc.0 ^ 1);
        id.clone()
    };
    write(&mut log, 5..10, 1);
    write(&mut log, 10..15, 2);
    server.wait_until("next segment", |state| {
        let there = polls(state);
        (10..15).all(|number| there.contains(&number))
    });
    let status = shipper.stop();
    assert_eq!(status.queue.conflicts, [foreign]);
    log.close();
}
