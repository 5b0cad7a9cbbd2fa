// SPDX-License-Identifier: Apache-2.0
//! Series of one connection each, as M-Lab's `tcp-info` saves them: JSON lines in zstd, the
//! kernel's own bytes in base64. `slowpath report --tcp-info` reads them, as M-Lab's tools do.
//!
//! A file is `YYYY/MM/DD/UUID.00000.jsonl.zst`; its first line is
//! `{"Timestamp", "Metadata": {"UUID", "Sequence", "StartTime"}}`, every other one
//! `{"Timestamp", "RawIDM", "Attributes"}`, the attributes at the place of their number.
//! A poll that finds nothing changed but the ages of the last segments leaves no line.

use base64::Engine;
use base64::engine::general_purpose::STANDARD;
use serde_json::{Value, json};
use std::collections::HashMap;
use std::io;
use std::path::{Path, PathBuf};

/// Text of one connection that waits to be written.
const MAX_WAITING: usize = 16 << 10;

/// Text of all connections that waits; past that all is written.
const MAX_ALL_WAITING: usize = 32 << 20;

/// Connections followed at once; further ones are counted.
const MAX_CONNECTIONS: usize = 262_144;

/// Attributes' numbers end below that (`INET_DIAG_MAX`, linux/inet_diag.h, is 22 in 6.18).
const MAX_ATTRIBUTES: u16 = 64;

/// `INET_DIAG_INFO`.
const INFO: u16 = 2;

/// `tcpi_last_data_sent` to `tcpi_last_ack_recv` (linux/tcp.h): they age by themselves.
const AGES: std::ops::Range<usize> = 44..60;

/// The first line of a series.
pub fn metadata_line(uuid: &str, start: &str) -> String {
    json!({
        "Timestamp": "0001-01-01T00:00:00Z",
        "Metadata": {"UUID": uuid, "Sequence": 0, "StartTime": start},
    })
    .to_string()
}

/// The line of one look at `time` (RFC 3339): `struct inet_diag_msg` and the attributes with
/// their numbers.
pub fn row_line(time: &str, message: &[u8], attributes: &[(u16, &[u8])]) -> String {
    // M-Lab's tool has the place of number 0 always.
    let mut places = vec![Value::Null];
    for (number, value) in attributes {
        if *number < MAX_ATTRIBUTES {
            let place = usize::from(*number);
            if places.len() <= place {
                places.resize(place + 1, Value::Null);
            }
            places[place] = json!(STANDARD.encode(value));
        }
    }
    json!({
        "Timestamp": time,
        "RawIDM": STANDARD.encode(message),
        "Attributes": places,
    })
    .to_string()
}

#[derive(Debug)]
struct Series {
    file: PathBuf,
    waiting: String,
    /// What was last written of it, without what ages.
    last: Vec<u8>,
    look: u64,
}

/// Saves series.
#[derive(Debug)]
pub struct Recorder {
    directory: PathBuf,
    /// What stands before `_unsafe_` and the cookie in a UUID.
    host: String,
    series: HashMap<u64, Series>,
    look: u64,
    waiting: usize,
    /// Files begun.
    pub files: u64,
    /// Lines written or waiting.
    pub lines: u64,
    /// Sightings of connections beyond those that can be followed.
    pub left_out: u64,
}

impl Recorder {
    /// Into `directory`; `host` and the time of its boot in seconds since 1970 name it.
    pub fn new(directory: &Path, host: &str, boot: u64) -> Self {
        Recorder {
            directory: directory.to_owned(),
            host: format!("{host}_{boot}"),
            series: HashMap::new(),
            look: 0,
            waiting: 0,
            files: 0,
            lines: 0,
            left_out: 0,
        }
    }

    /// A connection at `time` (RFC 3339 in UTC).
    ///
    /// # Errors
    /// When its file cannot be written.
    pub fn see(
        &mut self,
        time: &str,
        cookie: u64,
        message: &[u8],
        attributes: &[(u16, &[u8])],
    ) -> io::Result<()> {
        if !self.series.contains_key(&cookie) {
            if self.series.len() >= MAX_CONNECTIONS {
                self.left_out += 1;
                return Ok(());
            }
            let uuid = format!("{}_unsafe_{cookie:016X}", self.host);
            // RFC 3339 begins with YYYY-MM-DD.
            let day = time.get(..10).unwrap_or("0000-00-00").replace('-', "/");
            let waiting = metadata_line(&uuid, time) + "\n";
            self.waiting += waiting.len();
            self.files += 1;
            let series = Series {
                file: self
                    .directory
                    .join(day)
                    .join(format!("{uuid}.00000.jsonl.zst")),
                waiting,
                last: Vec::new(),
                look: 0,
            };
            self.series.insert(cookie, series);
        }
        let Some(series) = self.series.get_mut(&cookie) else {
            return Ok(());
        };
        series.look = self.look;
        let now = lasting(message, attributes);
        if now == series.last {
            return Ok(());
        }
        series.last = now;
        let before = series.waiting.len();
        series.waiting += &row_line(time, message, attributes);
        series.waiting.push('\n');
        self.waiting += series.waiting.len() - before;
        self.lines += 1;
        if series.waiting.len() >= MAX_WAITING {
            self.waiting -= series.waiting.len();
            series.write()?;
        }
        if self.waiting >= MAX_ALL_WAITING {
            self.write_all()?;
        }
        Ok(())
    }

    /// A look is over: what it did not see has closed.
    ///
    /// # Errors
    /// When a file cannot be written.
    pub fn looked(&mut self) -> io::Result<()> {
        let mut done = Ok(());
        let (look, waiting) = (self.look, &mut self.waiting);
        self.series.retain(|_, series| {
            if series.look == look {
                return true;
            }
            *waiting -= series.waiting.len();
            if let Err(error) = series.write() {
                done = Err(error);
            }
            false
        });
        self.look += 1;
        done
    }

    /// Writes what waits.
    ///
    /// # Errors
    /// When a file cannot be written.
    pub fn write_all(&mut self) -> io::Result<()> {
        for series in self.series.values_mut() {
            self.waiting -= series.waiting.len();
            series.write()?;
        }
        Ok(())
    }
}

impl Series {
    /// Appends what waits as one more zstd frame (RFC 8878 section 3.1: frames in a row are
    /// the data in a row).
    fn write(&mut self) -> io::Result<()> {
        let text = std::mem::take(&mut self.waiting);
        if text.is_empty() {
            return Ok(());
        }
        if let Some(parent) = self.file.parent() {
            slowpath_files::create_folder(parent)?;
        }
        let frame = zstd::encode_all(text.as_bytes(), 3)?;
        slowpath_files::append(&self.file, &frame)
    }
}

/// What is compared from look to look.
fn lasting(message: &[u8], attributes: &[(u16, &[u8])]) -> Vec<u8> {
    let mut bytes = message.to_vec();
    for (number, value) in attributes {
        let from = bytes.len();
        bytes.extend(*value);
        if *number == INFO
            && let Some(ages) = bytes.get_mut(from + AGES.start..from + AGES.end)
        {
            ages.fill(0);
        }
    }
    bytes
}
