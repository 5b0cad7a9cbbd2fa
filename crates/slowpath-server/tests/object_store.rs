// SPDX-License-Identifier: Apache-2.0
//! Two servers write tables into one bucket of s3s-fs, one of them stopped at every step of its work; PyArrow reads each row
//! once. While the store is away the local tables go on, and nothing is lost.
//!
//! Both are installed by `tools/s3/peer.py --install`; `make check-fleet` does that and runs this.
#![cfg(feature = "object-store")]

#[path = "../../slowpath-fleet/tests/agents/mod.rs"]
mod agents;

use agents::{MIDNIGHT, Random, Segment};
use slowpath_fleet::{FleetError, Intake, IntakeOptions, Receipt, Tables};
use slowpath_model::WallMicros;
use slowpath_server::objects::open_with;
use std::net::{IpAddr, SocketAddr, TcpListener, TcpStream};
use std::path::{Path, PathBuf};
use std::process::{Child, Command};
use std::sync::mpsc::channel;
use std::time::{Duration, Instant};

const PEER: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/../../tools/s3/peer.py");
const HOUR: i64 = 3_600_000_000;
const PATIENCE: Duration = Duration::from_secs(60);

/// The store's program, and the interpreter that has PyArrow.
fn peers() -> Result<[PathBuf; 2], String> {
    let output = Command::new("python3").args([PEER, "--which"]).output();
    let output = output.map_err(|error| format!("python3: {error}"))?;
    let said = String::from_utf8_lossy(&output.stdout);
    let mut paths = said.lines().map(PathBuf::from);
    match (output.status.success(), paths.next(), paths.next()) {
        (true, Some(server), Some(python)) => Ok([server, python]),
        _ => Err(String::from_utf8_lossy(&output.stderr).trim().to_owned()),
    }
}

/// A bucket named `fleet`.
struct Bucket {
    program: PathBuf,
    python: PathBuf,
    folder: tempfile::TempDir,
    address: SocketAddr,
    /// Drawn for this run.
    keys: [String; 2],
    child: Option<Child>,
}

impl Bucket {
    fn new([program, python]: [PathBuf; 2]) -> Self {
        let folder = tempfile::tempdir().expect("a directory");
        std::fs::create_dir(folder.path().join("fleet")).expect("a bucket");
        let free = TcpListener::bind("127.0.0.1:0").expect("a port");
        let address = free.local_addr().expect("an address");
        let drawn = folder.path().file_name().expect("a name").to_string_lossy();
        let keys = ["KEY", "SECRET"].map(|kind| format!("{kind}{}", drawn.replace('.', "")));
        Bucket {
            program,
            python,
            folder,
            address,
            keys,
            child: None,
        }
    }

    fn start(&mut self) {
        let mut command = Command::new(&self.program);
        command.args([
            "--host",
            "127.0.0.1",
            "--port",
            &self.address.port().to_string(),
        ]);
        command.args(["--access-key", &self.keys[0], "--secret-key", &self.keys[1]]);
        self.child = Some(
            command
                .arg(self.folder.path())
                .spawn()
                .expect("s3s-fs starts"),
        );
        let begun = Instant::now();
        while TcpStream::connect(self.address).is_err() {
            assert!(begun.elapsed() < PATIENCE, "s3s-fs does not listen");
            std::thread::yield_now();
        }
    }

    fn stop(&mut self) {
        if let Some(mut child) = self.child.take() {
            let _ = child.kill();
            let _ = child.wait();
        }
    }

    fn tables(&self, dir: &Path, server: &str, intake: &Intake) -> Tables {
        let settings = [
            ("AWS_ACCESS_KEY_ID", self.keys[0].clone()),
            ("AWS_SECRET_ACCESS_KEY", self.keys[1].clone()),
            ("AWS_ENDPOINT", format!("http://{}", self.address)),
            ("AWS_ALLOW_HTTP", "true".to_owned()),
            ("AWS_REGION", "us-east-1".to_owned()),
        ];
        let settings = settings.map(|(name, value)| (name.to_owned(), value));
        let store = open_with("s3://fleet/all", settings).expect("a store");
        let mut tables = Tables::open(dir, server, intake, WallMicros(MIDNIGHT)).expect("opens");
        tables.copy_to(store);
        tables
    }

    /// Rows of the coverage tables and how many distinct ones there are, as PyArrow reads them.
    fn count(&self) -> (u64, u64) {
        let endpoint = self.address.to_string();
        let output = Command::new(&self.python)
            .args([
                PEER,
                "count",
                &endpoint,
                "fleet/all/tables",
                "coverage",
                "polls",
            ])
            .env("AWS_ACCESS_KEY_ID", &self.keys[0])
            .env("AWS_SECRET_ACCESS_KEY", &self.keys[1])
            .output()
            .expect("python runs");
        assert!(
            output.status.success(),
            "{}",
            String::from_utf8_lossy(&output.stderr)
        );
        let said = String::from_utf8_lossy(&output.stdout).into_owned();
        let mut numbers = said
            .split_whitespace()
            .map(|n| n.parse().expect("a number"));
        (
            numbers.next().expect("rows"),
            numbers.next().expect("distinct ones"),
        )
    }
}

impl Drop for Bucket {
    fn drop(&mut self) {
        self.stop();
    }
}

fn ship(random: &mut Random, next: &mut u64, intake: &Intake, host: &str) {
    let now = MIDNIGHT + 10 * HOUR;
    let mut segment = Segment::new(&format!("{host}-{next}"));
    for _ in 0..1 + random.below(50) {
        segment.push_numbered(*next, now - random.below(2 * HOUR as u64) as i64);
        *next += 1;
    }
    segment.ended = true;
    let (sender, receiver) = channel();
    let origin = (host, IpAddr::from([10, 0, 0, 1]));
    let batch = segment.rest(1, 0);
    intake.submit(origin, batch, WallMicros(now), move |receipt| {
        drop(sender.send(receipt));
    });
    assert!(matches!(receiver.recv(), Ok(Receipt::Flushed(_))));
    let (sender, receiver) = channel();
    intake.end_file(move || {
        let _ = sender.send(());
    });
    receiver.recv().expect("the file ends");
}

fn publish_all(tables: &mut Tables, intake: &Intake) {
    let begun = Instant::now();
    while intake.unpublished() > 0 {
        tables.publish().expect("local tables are written");
        assert!(
            begun.elapsed() < PATIENCE,
            "the store does not get everything"
        );
        std::thread::yield_now();
    }
}

#[test]
fn each_row_of_two_servers_is_in_the_bucket_once() {
    const NAME: &str = "each_row_of_two_servers_is_in_the_bucket_once";
    let mut bucket = match peers() {
        Ok(peers) => Bucket::new(peers),
        Err(reason) => {
            println!("SKIPPED {NAME}: {reason}");
            return;
        }
    };
    bucket.start();
    let dirs = [(); 2].map(|()| tempfile::tempdir().expect("a directory"));
    let (mut random, mut next, mut stops) = (Random(3), 0, 0);
    for _ in 0..3 {
        for (dir, server) in dirs.iter().zip(["s1", "s2"]) {
            let intake = Intake::open(dir.path(), IntakeOptions::default()).expect("opens");
            ship(&mut random, &mut next, &intake, &format!("web-{server}"));
            for stop in 0.. {
                let mut tables = bucket.tables(dir.path(), server, &intake);
                let mut left = stop;
                tables.stop_before(move |_| {
                    left -= 1;
                    left < 0
                });
                match tables.publish() {
                    Ok(_) => break,
                    Err(FleetError::Stopped(_)) => stops += 1,
                    Err(error) => panic!("{error}"),
                }
            }
        }
        assert_eq!(bucket.count(), (next, next));
    }
    assert!(stops > 20, "{stops}");
    // The store goes away in the middle, and comes back.
    let intake = Intake::open(dirs[0].path(), IntakeOptions::default()).expect("opens");
    let mut tables = bucket.tables(dirs[0].path(), "s1", &intake);
    bucket.stop();
    ship(&mut random, &mut next, &intake, "web-s1");
    let published = tables.publish().expect("local tables are written");
    assert!(
        published.store_error.is_some() && published.records > 0,
        "{published:?}"
    );
    bucket.start();
    publish_all(&mut tables, &intake);
    assert_eq!(bucket.count(), (next, next));
}
