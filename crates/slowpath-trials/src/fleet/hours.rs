// SPDX-License-Identifier: Apache-2.0
//! Sixty hours of a server's clock: hosts ship, also what is late, hours are published, closed and
//! compacted, the log is opened again, and DuckDB counts the rows of its tables once a second.

use super::Trial;
use super::engine::{Counts, Engine};
use crate::records::{self, BOOT};
use slowpath_model::{ConnectionId, FourTuple, Micros, MonoNanos, WallMicros};
use slowpath_server::clock::Clock;
use slowpath_server::intake::{Delivery, Intake as _, Receipt};
use slowpath_server::journal::Journal;
use slowpath_server::log::{FleetLog, Retention};
use slowpath_ship::batch::{Batch, ClockOffset, Header, Items, Prefix, SentClock};
use slowpath_store::spool::{self, RawRecord, Record, SPOOL_VERSION, encode_header};
use slowpath_store::tables::{OpenFile, encode_record};
use slowpath_store::{HostIdentity, SCHEMA_VERSION};
use std::error::Error;
use std::net::{IpAddr, Ipv4Addr, SocketAddr};
use std::path::{Path, PathBuf};
use std::sync::mpsc::channel;
use std::sync::{Arc, Mutex, PoisonError};
use std::thread::sleep;
use std::time::{Duration, Instant, SystemTime, UNIX_EPOCH};

const HOUR: u64 = 3_600_000_000;
/// Hours of the server's clock; an hour is compacted for good 25 h after its end.
const HOURS: u64 = 60;
/// The hosts, in pairs that have connections with each other.
const HOSTS: u64 = 12;
/// Connections that a host states in a batch, each an interval and a summary.
const CONNECTIONS: u64 = 4;
/// Batches of a segment.
const BATCHES: u64 = 60;
/// Between two batches of a host.
const STEP: Duration = Duration::from_secs(1);
/// The log is opened again so often in the whole time.
const OPENED: u32 = 12;
/// How long the last rows may take to become tables: an intake file ends by the server's clock.
const LAST: Duration = Duration::from_secs(600);
/// The id of the server in the names of its files.
const SERVER: &str = "hours";

/// Ships for so long, and counts meanwhile.
pub(super) fn run(trial: &mut Trial<'_>, length: Duration) -> Result<(), Box<dyn Error>> {
    let scratch = tempfile::tempdir()?;
    let mut engine = match Engine::start(scratch.path(), &QUERIES)? {
        Ok(engine) => engine,
        Err(reason) => {
            trial.tally.skip(&format!("counts by DuckDB: {reason}"));
            return Ok(());
        }
    };
    let mut feed = Feed::new(scratch.path(), length, trial.seed)?;
    let began = Instant::now();
    for step in 1.. {
        if began.elapsed() >= length {
            break;
        }
        if began.elapsed() >= length * feed.opened / OPENED {
            feed.open()?;
        }
        feed.ship()?;
        engine.check(trial.tally)?;
        sleep((STEP * step).saturating_sub(began.elapsed()));
    }
    // Ends of the last hours are made when those have closed.
    let rows = feed.accepted();
    let accepted = Counts::from([("intervals", rows), ("connections", rows)]);
    let end = Instant::now() + LAST;
    while !engine.has(&accepted) && Instant::now() < end {
        feed.tick();
        engine.check(trial.tally)?;
        sleep(Duration::from_millis(200));
    }
    engine.end(&accepted, trial.tally)?;
    let journal = feed.journal.0.lock();
    for line in journal.unwrap_or_else(PoisonError::into_inner).iter() {
        trial.tally.find(format!("counts by DuckDB: {line}"));
    }
    trial.tally.rows += 2 * rows;
    if !is_compacted(&scratch.path().join("tables"))? {
        trial
            .tally
            .find("counts by DuckDB: nothing was compacted".to_owned());
    }
    Ok(())
}

/// Tables, and what no two of their rows have in common.
const QUERIES: [(&str, &str); 3] = [
    ("intervals", "connection_id"),
    ("connections", "connection_id"),
    ("ends", "(a_connection_id, b_connection_id)"),
];

/// Whether the file of the oldest hour is one row group.
fn is_compacted(tables: &Path) -> Result<bool, Box<dyn Error>> {
    let first = |folder: &Path, begins: &str| -> Result<PathBuf, Box<dyn Error>> {
        let entries = std::fs::read_dir(folder)?;
        let paths = entries.map(|entry| entry.map(|entry| entry.path()));
        let mut paths = paths.collect::<Result<Vec<_>, _>>()?;
        paths.retain(|path| {
            let name = path.file_name().unwrap_or_default();
            name.to_string_lossy().starts_with(begins)
        });
        let first = paths.into_iter().min();
        first.ok_or_else(|| format!("{}: no {begins}", folder.display()).into())
    };
    let hour = first(&first(tables, "date=")?, "hour=")?;
    let file = OpenFile::open(&first(&hour, "intervals-")?)?;
    Ok(file.reader().groups().len() == 1)
}

/// What the server says.
#[derive(Default)]
struct Lines(Mutex<Vec<String>>);

impl Journal for Lines {
    fn say(&self, _: &str) {}

    fn warn(&self, text: &str) {
        let mut lines = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        lines.push(text.to_owned());
    }
}

/// A server's log, and hosts that ship to it.
struct Feed {
    directory: PathBuf,
    clock: Clock,
    journal: Arc<Lines>,
    log: Option<FleetLog>,
    /// How often it was opened.
    opened: u32,
    random: records::Random,
    /// Connections so far, of which two hosts have an end each.
    connections: u64,
    hosts: Vec<Host>,
}

/// A host's segment.
struct Host {
    name: String,
    address: Ipv4Addr,
    segment: u64,
    batches: u64,
    offset: u64,
    prefix: Prefix,
}

impl Feed {
    fn new(directory: &Path, length: Duration, seed: u64) -> Result<Self, Box<dyn Error>> {
        let now = SystemTime::now().duration_since(UNIX_EPOCH)?.as_micros() as u64;
        let (began, first) = (Instant::now(), now - HOURS * HOUR);
        let speed = (HOURS * HOUR) as f64 / length.as_micros() as f64;
        let clock = Clock::new(move || {
            let passed = began.elapsed().as_micros() as f64 * speed;
            WallMicros((first + passed as u64) as i64)
        });
        let hosts = (0..HOSTS).map(|number| Host {
            name: format!("host-{number}"),
            address: Ipv4Addr::new(10, 80, 0, 1 + number as u8),
            segment: 0,
            batches: 0,
            offset: 0,
            prefix: Prefix::default(),
        });
        let mut feed = Feed {
            directory: directory.to_owned(),
            clock,
            journal: Arc::default(),
            log: None,
            opened: 0,
            random: records::Random(seed),
            connections: 0,
            hosts: hosts.collect(),
        };
        feed.open()?;
        Ok(feed)
    }

    /// Opens the log, again if it is open: what it did not publish is done by the next.
    fn open(&mut self) -> Result<(), Box<dyn Error>> {
        self.log = None;
        let shared = (self.clock.clone(), self.journal.clone() as Arc<dyn Journal>);
        let log = FleetLog::open(&self.directory, SERVER, Retention::default(), None, shared)?;
        self.log = Some(log);
        self.opened += 1;
        Ok(())
    }

    fn tick(&self) {
        if let Some(log) = &self.log {
            log.tick(self.clock.now());
        }
    }

    /// A batch of each host.
    fn ship(&mut self) -> Result<(), Box<dyn Error>> {
        self.tick();
        let now = self.clock.now();
        for pair in 0..self.hosts.len() / 2 {
            // Some come up to a day late.
            let late = match self.random.below(20) {
                0 => self.random.below(24 * HOUR),
                _ => 0,
            };
            let end = now - Micros(late + self.random.below(1_000_000));
            let numbers = self.connections..self.connections + CONNECTIONS;
            for host in [2 * pair, 2 * pair + 1] {
                self.ship_of(host, numbers.clone(), end)?;
            }
            self.connections += CONNECTIONS;
        }
        Ok(())
    }

    /// Intervals that the log accepted, and as many summaries.
    fn accepted(&self) -> u64 {
        2 * self.connections
    }

    fn ship_of(
        &mut self,
        host: usize,
        numbers: std::ops::Range<u64>,
        end: WallMicros,
    ) -> Result<(), Box<dyn Error>> {
        let peer = self.hosts[host ^ 1].address;
        let mut records = Vec::new();
        for number in numbers {
            records.extend(self.connection((host, peer), number, end));
        }
        let received = self.clock.now();
        let host = &mut self.hosts[host];
        let delivery = Delivery {
            host: host.name.parse()?,
            address: SocketAddr::new(host.address.into(), 40_000),
            batch: host.batch(&records, received)?,
            received,
        };
        let (sender, receiver) = channel();
        let reply = move |receipt| drop(sender.send(receipt));
        let log = self.log.as_ref().ok_or("the log is not open")?;
        log.submit(delivery, Box::new(reply));
        match receiver.recv()? {
            Receipt::Flushed { offset, .. } if offset == host.offset => Ok(()),
            other => Err(format!("{} is answered {other:?}", host.name).into()),
        }
    }

    /// An interval and a summary of a connection between a host and its peer.
    fn connection(
        &mut self,
        (host, peer): (usize, Ipv4Addr),
        number: u64,
        end: WallMicros,
    ) -> [Record; 2] {
        let connection = ConnectionId {
            boot_id: BOOT,
            netns: 1,
            // No other host has it.
            cookie: number * HOSTS + host as u64,
            start: MonoNanos(number),
        };
        let mut interval = self.random.interval(end);
        interval.connection = connection;
        let mut summary = self.random.summary(connection, end);
        let own = IpAddr::from(self.hosts[host].address);
        let lower = own.min(peer.into());
        // The end with the lower address has the lower ports.
        let ports = [1_024 + number % 30_000, 32_000 + number / 30_000];
        let at = |ip: IpAddr| SocketAddr::new(ip, ports[usize::from(ip != lower)] as u16);
        summary.tuple = FourTuple::new(at(own), at(peer.into()));
        summary.real_peer = None;
        summary.first_observed = end - Micros(500_000);
        [
            Record::Problem(Box::new(interval)),
            Record::Summary(Box::new(summary)),
        ]
    }
}

impl Host {
    /// The next batch of its segment, or the first one of the next.
    fn batch(&mut self, records: &[Record], now: WallMicros) -> Result<Batch, Box<dyn Error>> {
        let mut items = Items::default();
        if self.batches.is_multiple_of(BATCHES) {
            self.segment += 1;
            (self.offset, self.prefix) = (0, Prefix::default());
            let header = encode_header(&spool::Header {
                schema_version: SCHEMA_VERSION,
                host: HostIdentity {
                    host: self.name.clone(),
                    boot_id: BOOT,
                },
                segment: self.segment.to_string(),
                begun: now,
            });
            items.push_header(&header);
        }
        self.batches += 1;
        for record in records {
            let mut bytes = Vec::new();
            encode_record(record, BOOT, &mut bytes);
            items.push_record(RawRecord::at_start(&bytes).ok_or("a record is damaged")?);
        }
        let (offset, prefix) = (self.offset, self.prefix);
        for piece in items.pieces(offset, prefix) {
            (self.offset, self.prefix) = (piece.end, piece.prefix);
        }
        let header = Header {
            framing: SPOOL_VERSION,
            schema: SCHEMA_VERSION,
            last: self.batches.is_multiple_of(BATCHES),
            run: 1,
            number: self.batches,
            boot_id: BOOT,
            clock: SentClock {
                sent: now,
                state: 0,
                max_error_us: Some(500),
            },
            clock_offset: Some(ClockOffset {
                offset_us: 0,
                error_us: 100,
            }),
            offset,
            prefix,
            segment: self.segment.to_string(),
            items_length: items.bytes().len() as u32,
            items_crc: 0,
        };
        Ok(Batch { header, items })
    }
}
