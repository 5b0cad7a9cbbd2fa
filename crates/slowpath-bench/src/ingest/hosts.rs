// SPDX-License-Identifier: Apache-2.0
//! What each host ships: records of the store's volume workload, encoded by the log's own writer and
//! made into batches before the bench.

use super::host::{Host, Rates};
use super::workload::{Random, coverage};
use slowpath_model::WallMicros;
use slowpath_ship::batch::{Encoder, Header, Items, Prefix, SentClock};
use slowpath_store::spool::{self, RawRecord, SPOOL_VERSION};
use slowpath_store::{HostIdentity, LogWriter, Options, Retention, SCHEMA_VERSION};
use std::error::Error;
use std::fs::{self, File};
use std::os::unix::fs::FileExt as _;
use std::time::Duration;

/// Rows that a host logs a second.
pub(super) const ROWS: f64 = 5.5;
/// How often a host ships what is new, drawn ± 50 %.
const INTERVAL: f64 = 5.0;
/// Connections of a host: with one problem in a hundred polls of 500 ms they log 5.3 intervals a
/// second.
const CONNECTIONS: u64 = 265;
const COVERAGE_EVERY: i64 = 10_000_000;
/// The most bytes of items in a batch of what waited.
const LARGEST: usize = 1 << 20;
/// Rows of an hour.
const HOUR_ROWS: u64 = (ROWS * 3_600.0) as u64;
const HOUR: i64 = 3_600_000_000;
/// The boot id that the writer leaves out of records; a host's header has its own.
const BOOT: u128 = 0x5f3c_9a01_77e2_4bd1_8c55_3e01_9f2b_6d70;

/// A batch as it travels.
#[derive(Debug)]
pub(super) struct Batch {
    pub body: Vec<u8>,
    pub rows: u64,
    /// When it is sent, from the start of all agents.
    pub due: Duration,
    /// Where it ends in its segment, and the running CRC there.
    pub end: u64,
    pub prefix: Prefix,
    /// Length and CRC of its items.
    pub items: (u32, u32),
}

/// A segment, all of its batches in order.
#[derive(Debug)]
pub(super) struct Segment {
    pub id: String,
    pub batches: Vec<Batch>,
}

/// What a host has to ship.
#[derive(Debug)]
pub(super) struct Stock {
    /// What it logs meanwhile.
    pub live: Segment,
    /// Hours that wait, oldest first.
    pub waiting: Vec<Segment>,
}

/// How much is made for a host.
#[derive(Clone, Copy, Debug)]
pub(super) struct Amount {
    /// How long it is live.
    pub live: Duration,
    /// Hours that wait.
    pub hours: u64,
}

/// Makes what hosts ship.
pub(super) struct Maker {
    log: LogWriter,
    file: File,
    /// Bytes of the spool that were read.
    read: u64,
    encoder: Encoder,
    _scratch: tempfile::TempDir,
}

/// A host under way.
struct Life {
    name: String,
    boot_id: u128,
    run: u128,
    number: u64,
    host: Host,
    now: WallMicros,
    covered: WallMicros,
    segment: u32,
}

impl Maker {
    pub(super) fn new() -> Result<Self, Box<dyn Error>> {
        let scratch = tempfile::tempdir()?;
        let host = HostIdentity {
            host: "load".to_owned(),
            boot_id: BOOT,
        };
        let options = Options {
            segment_bytes: u64::MAX,
            // A quarter of it bounds a segment.
            retention: Retention {
                max_bytes: u64::MAX,
                max_age: None,
            },
            buffer_bytes: 256 << 20,
            sync_every: None,
            ship: true,
            ..Options::default()
        };
        let mut log = LogWriter::open(scratch.path(), host, options)?;
        // With its first record the spool is there.
        let mut random = Random(1);
        log.coverage(&coverage(&mut random, WallMicros(0), 1, 1));
        sync(&mut log)?;
        let spool = fs::read_dir(scratch.path().join("spool"))?
            .next()
            .ok_or("the log has no spool")??
            .path();
        let file = File::open(spool)?;
        let read = file.metadata()?.len();
        Ok(Maker {
            log,
            file,
            read,
            encoder: Encoder::new()?,
            _scratch: scratch,
        })
    }

    /// What a host ships; its rows end before `now`.
    pub(super) fn stock(
        &mut self,
        name: &str,
        seed: u64,
        amount: Amount,
        now: WallMicros,
    ) -> Result<Stock, Box<dyn Error>> {
        let hours = amount.hours as i64;
        // The workload's pace differs from the stated one by some percent.
        let began =
            WallMicros(now.0 - amount.live.as_micros() as i64 * 5 / 4 - hours * HOUR * 5 / 4);
        let mut life = Life::new(name, seed, began);
        let mut waiting = Vec::new();
        for _ in 0..amount.hours {
            let records = self.records(&mut life, HOUR_ROWS)?;
            waiting.push(self.hour(&mut life, &records)?);
        }
        let rows = (amount.live.as_secs_f64() * ROWS) as u64;
        let records = self.records(&mut life, rows)?;
        let live = self.live(&mut life, &records, amount.live)?;
        Ok(Stock { live, waiting })
    }

    /// The next records of a host, as they stand in the spool.
    fn records(&mut self, life: &mut Life, rows: u64) -> Result<Vec<Vec<u8>>, Box<dyn Error>> {
        life.segment += 1;
        let mut logged = 0;
        while logged < rows {
            logged += life.poll(&mut self.log);
        }
        sync(&mut self.log)?;
        let mut bytes = vec![0; (self.file.metadata()?.len() - self.read) as usize];
        self.file.read_exact_at(&mut bytes, self.read)?;
        self.read += bytes.len() as u64;
        let mut records = Vec::with_capacity(logged as usize);
        let mut rest = &bytes[..];
        while let Some(record) = RawRecord::at_start(rest) {
            records.push(record.bytes().to_vec());
            rest = &rest[record.bytes().len()..];
        }
        if records.len() as u64 != logged || !rest.is_empty() {
            return Err(format!("{} records in the spool, not {logged}", records.len()).into());
        }
        Ok(records)
    }

    /// A segment that ended, in the largest batches.
    fn hour(&mut self, life: &mut Life, records: &[Vec<u8>]) -> Result<Segment, Box<dyn Error>> {
        let mut cutter = Cutter::new(life);
        let mut from = 0;
        while from < records.len() {
            let mut bytes = 0;
            let fits = records[from..].iter().take_while(|record| {
                bytes += record.len();
                bytes < LARGEST
            });
            let until = from + fits.count().max(1);
            let is_last = until == records.len();
            cutter.cut(self, life, &records[from..until], (Duration::ZERO, is_last))?;
            from = until;
        }
        Ok(cutter.segment)
    }

    /// A segment that grows, in batches of some seconds each.
    fn live(
        &mut self,
        life: &mut Life,
        records: &[Vec<u8>],
        length: Duration,
    ) -> Result<Segment, Box<dyn Error>> {
        let mut cutter = Cutter::new(life);
        let mut due = INTERVAL * fraction(&mut life.host.random);
        let mut from = 0;
        while due < length.as_secs_f64() {
            let until = ((due * ROWS) as usize).min(records.len());
            if until > from {
                let due = Duration::from_secs_f64(due);
                cutter.cut(self, life, &records[from..until], (due, false))?;
                from = until;
            }
            due += INTERVAL * (0.5 + fraction(&mut life.host.random));
        }
        Ok(cutter.segment)
    }
}

/// Cuts a segment into batches.
struct Cutter {
    segment: Segment,
    header: Vec<u8>,
    offset: u64,
    prefix: Prefix,
}

impl Cutter {
    fn new(life: &Life) -> Self {
        let id = format!("{:x}-{}", life.run, life.segment);
        let header = spool::encode_header(&spool::Header {
            schema_version: SCHEMA_VERSION,
            host: HostIdentity {
                host: life.name.clone(),
                boot_id: life.boot_id,
            },
            segment: id.clone(),
            begun: life.now,
        });
        Cutter {
            segment: Segment {
                id,
                batches: Vec::new(),
            },
            header,
            offset: 0,
            prefix: Prefix::default(),
        }
    }

    fn cut(
        &mut self,
        maker: &mut Maker,
        life: &mut Life,
        records: &[Vec<u8>],
        (due, last): (Duration, bool),
    ) -> Result<(), Box<dyn Error>> {
        let mut items = Items::default();
        let before = (self.offset, self.prefix);
        if self.offset == 0 {
            items.push_header(&self.header);
            self.prefix = self.prefix.over(&self.header);
        }
        for record in records {
            let raw = RawRecord::at_start(record).ok_or("a record is damaged")?;
            items.push_record(raw);
            self.prefix = self.prefix.over(record);
        }
        self.offset += items.covered();
        life.number += 1;
        let header = Header {
            framing: SPOOL_VERSION,
            schema: SCHEMA_VERSION,
            last,
            run: life.run,
            number: life.number,
            boot_id: life.boot_id,
            clock: SentClock {
                sent: life.now,
                state: 0,
                max_error_us: Some(500),
            },
            clock_offset: None,
            offset: before.0,
            prefix: before.1,
            segment: self.segment.id.clone(),
            items_length: 0,
            items_crc: 0,
        };
        let bytes = items.bytes();
        self.segment.batches.push(Batch {
            items: (bytes.len() as u32, Prefix::default().over(bytes).0),
            body: maker.encoder.encode(&header, &items)?,
            rows: records.len() as u64,
            due,
            end: self.offset,
            prefix: self.prefix,
        });
        Ok(())
    }
}

impl Life {
    fn new(name: &str, seed: u64, began: WallMicros) -> Self {
        let mut random = Random(seed);
        let mut wide = || (fraction(&mut random) * u64::MAX as f64) as u128;
        let (boot_id, run) = (wide() << 64 | wide(), wide() << 64 | wide());
        let rates = Rates {
            connections: CONNECTIONS,
            problems: 0.01,
            turnover: 0.1,
        };
        Life {
            name: name.to_owned(),
            boot_id,
            run,
            number: 0,
            host: Host::new(random, BOOT, began, rates),
            now: began,
            covered: began,
            segment: 0,
        }
    }

    /// One poll; how many records it logged.
    fn poll(&mut self, log: &mut LogWriter) -> u64 {
        let length = self.host.random.exponential(500_000.0) as u64 + 1_000;
        self.now = WallMicros(self.now.0 + length as i64);
        let mut records = self.host.poll(log, self.segment, self.now, length);
        if self.now.0 - self.covered.0 >= COVERAGE_EVERY {
            let stretch = (self.now.0 - self.covered.0) as u64;
            log.coverage(&coverage(
                &mut self.host.random,
                self.now,
                stretch,
                CONNECTIONS,
            ));
            self.covered = self.now;
            records += 1;
        }
        records
    }
}

/// Uniform in (0, 1].
fn fraction(random: &mut Random) -> f64 {
    (-random.exponential(1.0)).exp()
}

fn sync(log: &mut LogWriter) -> Result<(), Box<dyn Error>> {
    match log.sync() && log.status().records_dropped == 0 {
        true => Ok(()),
        false => Err(format!("the log cannot be written: {:?}", log.status()).into()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use slowpath_ship::batch::Reader;

    #[test]
    fn batches_of_a_host_follow_one_another_and_have_its_rows() {
        let mut maker = Maker::new().unwrap();
        let amount = Amount {
            live: Duration::from_secs(60),
            hours: 1,
        };
        let now = WallMicros(1_795_219_200_000_000);
        let stock = maker.stock("load-1", 7, amount, now).unwrap();
        let again = Maker::new()
            .unwrap()
            .stock("load-1", 7, amount, now)
            .unwrap();
        let mut reader = Reader::new().unwrap();
        let mut check = |segment: &Segment| {
            let (mut end, mut prefix, mut rows) = (0, Prefix::default(), 0);
            for batch in &segment.batches {
                let read = reader.read(&batch.body).unwrap();
                assert_eq!((read.header.offset, read.header.prefix), (end, prefix));
                assert_eq!(
                    batch.items,
                    (read.header.items_length, read.header.items_crc)
                );
                (end, prefix) = (batch.end, batch.prefix);
                assert_eq!(read.end(), end);
                rows += batch.rows;
            }
            rows
        };
        let live = check(&stock.live);
        // The last batch leaves within 7.5 s of the end.
        assert!(
            (51.0 * ROWS..=60.0 * ROWS).contains(&(live as f64)),
            "{live}"
        );
        assert!(check(&stock.waiting[0]) >= HOUR_ROWS);
        let bodies = |stock: &Stock| {
            let batches = stock.live.batches.iter();
            batches.map(|batch| batch.body.clone()).collect::<Vec<_>>()
        };
        assert_eq!(bodies(&stock), bodies(&again));
    }
}
