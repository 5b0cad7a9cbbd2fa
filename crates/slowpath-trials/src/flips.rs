// SPDX-License-Identifier: Apache-2.0
//! Single bits that flip in files of every kind, which the real commands then read.

use crate::Tally;
use crate::agent::{Ended, arguments};
use crate::damaged_log;
use crate::records::{HOUR, MIDNIGHT};
use crate::samples::{CONFIGURATION, OWNERS, in_repository};
use serde_json::Value;
use slowpath_switch::Random;
use std::collections::BTreeSet;
use std::error::Error;
use std::fs;
use std::io::{self, Read as _, Write as _};
use std::path::{Path, PathBuf};
use std::time::{SystemTime, UNIX_EPOCH};

/// The tables that `export` prints.
const TABLES: [&str; 4] = ["intervals", "connections", "coverage", "listeners"];

/// What a kind of file promises of a flipped bit.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Promise {
    /// All of it is checksummed: a command names it, whatever bit it is.
    Named,
    /// What is read is what it was, or the command names the file.
    Checked,
    /// The format has no redundancy: the command reads it, or names it.
    Plain,
}

/// A file and the commands that read it.
struct Target {
    kind: String,
    path: PathBuf,
    bytes: Vec<u8>,
    promise: Promise,
    commands: Vec<Vec<String>>,
    /// What each of them wrote while the file was intact.
    intact: Vec<Ended>,
}

struct Reader<'a> {
    program: &'a Path,
    scratch: &'a Path,
}

pub(crate) fn run(
    program: &Path,
    flips: u64,
    seed: u64,
    tally: &mut Tally,
) -> Result<(), Box<dyn Error>> {
    let scratch = tempfile::tempdir()?;
    let reader = Reader {
        program,
        scratch: scratch.path(),
    };
    let mut targets = reader.log(tally)?;
    targets.extend(reader.captures(tally)?);
    targets.extend(reader.others(tally)?);
    let each = flips.div_ceil(targets.len() as u64);
    let mut random = Random::stream(seed, 0xf11b5);
    for target in &targets {
        let before = tally.unsaid_flips;
        for _ in 0..each {
            let bit = random.next_u64() % (8 * target.bytes.len() as u64);
            reader.flip(target, bit, tally)?;
        }
        let unsaid = tally.unsaid_flips - before;
        println!("{}: {each} flips, {unsaid} unsaid", target.kind);
    }
    Ok(())
}

impl Reader<'_> {
    fn target(
        &self,
        path: PathBuf,
        promise: Promise,
        commands: Vec<Vec<String>>,
        tally: &mut Tally,
    ) -> Result<Target, Box<dyn Error>> {
        let intact = commands
            .iter()
            .map(|command| Ended::of(self.program, command, self.scratch, tally))
            .collect::<io::Result<Vec<_>>>()?;
        let name = path.file_name().unwrap_or_default().to_string_lossy();
        let target = Target {
            kind: name.into_owned(),
            bytes: fs::read(&path)?,
            path,
            promise,
            commands,
            intact,
        };
        let mut named = target.intact.iter().flat_map(|ended| target.named(ended));
        // A spool of a killed run is named, and so is one that was set aside.
        if promise != Promise::Named && named.next().is_some() {
            tally.find(format!(
                "intact, {} is named: {:?}",
                target.kind, target.intact
            ));
        }
        Ok(target)
    }

    /// A file of each table, a spool, and one that was set aside.
    fn log(&self, tally: &mut Tally) -> Result<Vec<Target>, Box<dyn Error>> {
        let log = self.scratch.join("log");
        fs::create_dir(&log)?;
        let now = SystemTime::now().duration_since(UNIX_EPOCH)?.as_micros() as i64;
        let hour = (now - MIDNIGHT).div_euclid(HOUR) - 3;
        let mut writer = damaged_log::open(&log);
        damaged_log::write(&mut writer, 1, hour);
        writer.close();
        let tables = damaged_log::files(&log, ".parquet");
        let mut writer = damaged_log::open(&log);
        damaged_log::write(&mut writer, 2, hour + 1);
        writer.sync();
        let [spool] = <[PathBuf; 1]>::try_from(damaged_log::files(&log, ".spool"))
            .map_err(|found| format!("one spool, not {found:?}"))?;
        let bytes = fs::read(&spool)?;
        writer.close();
        for path in damaged_log::files(&log, ".parquet") {
            if !tables.contains(&path) {
                fs::remove_file(path)?;
            }
        }
        let mut aside = bytes.clone();
        aside[30] ^= 1; // in the header
        fs::write(&spool, bytes)?;
        let unreadable = spool.with_file_name("other.spool.unreadable");
        fs::write(&unreadable, aside)?;
        let text = log.to_str().ok_or("a path without a name")?;
        let mut commands = vec![arguments(&[
            "report", "--json", "--since", "1d", "--log", text,
        ])];
        commands.extend(TABLES.map(|table| {
            arguments(&[
                "export", "--table", table, "--format", "jsonl", "--since", "1d", "--log", text,
            ])
        }));
        let paths = tables.into_iter().chain([spool, unreadable]);
        paths
            .map(|path| self.target(path, Promise::Named, commands.clone(), tally))
            .collect()
    }

    /// A capture as pcap in gzip, as pcap, as pcapng.
    fn captures(&self, tally: &mut Tally) -> Result<Vec<Target>, Box<dyn Error>> {
        let packed = fs::read(in_repository("captures/one-loss-20ms.pcap.gz"))?;
        let mut plain = Vec::new();
        flate2::read::MultiGzDecoder::new(&packed[..]).read_to_end(&mut plain)?;
        // The beginning is enough, and quicker.
        plain.truncate(24 << 10);
        let mut gzip = flate2::write::GzEncoder::new(Vec::new(), flate2::Compression::default());
        gzip.write_all(&plain)?;
        let [zipped, pcap, pcapng] =
            ["trials.pcap.gz", "trials.pcap", "trials.pcapng"].map(|name| self.scratch.join(name));
        fs::write(&zipped, gzip.finish()?)?;
        fs::write(&pcap, plain)?;
        let texts = [&pcap, &pcapng].map(|path| path.to_string_lossy().into_owned());
        let annotate = arguments(&["trace", &texts[0], "--annotate", &texts[1]]);
        Ended::of(self.program, &annotate, self.scratch, tally)?;
        let all = [
            (zipped, Promise::Checked),
            (pcap, Promise::Plain),
            (pcapng, Promise::Plain),
        ];
        let targets = all.map(|(path, promise)| {
            let command = arguments(&["trace", &path.to_string_lossy(), "--json"]);
            self.target(path, promise, vec![command], tally)
        });
        targets.into_iter().collect()
    }

    /// Recordings, configuration, rules of owners, a topology, a series of `tcp_info`.
    fn others(&self, tally: &mut Tally) -> Result<Vec<Target>, Box<dyn Error>> {
        let place = |name: &str| self.scratch.join(name);
        let text = |path: &Path| path.to_string_lossy().into_owned();
        let recording = place("trials.rec");
        fs::copy(
            in_repository("crates/slowpath-replay/tests/data/light.rec"),
            &recording,
        )?;
        let dump = arguments(&["recording", "dump", &text(&recording)]);
        let info = arguments(&["recording", "info", &text(&recording)]);
        let mut targets =
            vec![self.target(recording, Promise::Checked, vec![dump, info], tally)?];
        let configuration = place("agent.toml");
        fs::write(&configuration, CONFIGURATION)?;
        let check = arguments(&["agent", "--check", "--config", &text(&configuration)]);
        let owners = place("owners.toml");
        fs::write(&owners, OWNERS)?;
        let rules = arguments(&["agent", "--check", "--owners", &text(&owners)]);
        let topology = place("topology.toml");
        fs::copy(in_repository("scenarios/sim/dumbbell.toml"), &topology)?;
        let captures = place("captures");
        fs::create_dir(&captures)?;
        let queues = arguments(&["queues", &text(&captures), "--topology", &text(&topology)]);
        let series = place("series.jsonl");
        let starts = crate::formats::mlab_line::starts();
        fs::write(&series, &starts[2])?;
        let imported = arguments(&["report", "--json", "--tcp-info", &text(&series)]);
        for (path, command) in [
            (configuration, check),
            (owners, rules),
            (topology, queues),
            (series, imported),
        ] {
            targets.push(self.target(path, Promise::Plain, vec![command], tally)?);
        }
        Ok(targets)
    }

    fn flip(&self, target: &Target, bit: u64, tally: &mut Tally) -> Result<(), Box<dyn Error>> {
        let mut bytes = target.bytes.clone();
        bytes[(bit / 8) as usize] ^= 1 << (bit % 8);
        fs::write(&target.path, bytes)?;
        tally.flips += 1;
        let ended = (target.commands.iter())
            .map(|command| Ended::of(self.program, command, self.scratch, tally))
            .collect::<io::Result<Vec<_>>>()?;
        fs::write(&target.path, &target.bytes)?;
        if let Some(complaint) = target.complaint(&ended) {
            tally.unsaid_flips += 1;
            tally.find(format!("bit {bit} of {}: {complaint}", target.kind));
        }
        Ok(())
    }
}

impl Target {
    /// What is wrong with what the commands made of the file with its flipped bit.
    fn complaint(&self, ended: &[Ended]) -> Option<&'static str> {
        let each = || self.intact.iter().zip(ended);
        let differs = |(intact, ended): (&Ended, &Ended)| lines(&ended.out) != lines(&intact.out);
        match self.promise {
            Promise::Named if !each().any(|both| self.is_named(both)) => {
                Some("no command names it")
            }
            // A report states the time.
            Promise::Named => each()
                .skip(1)
                .any(|both| differs(both) && !self.is_named(both))
                .then_some("rows differ, and nothing is said"),
            Promise::Checked => each()
                .any(|both| differs(both) && !self.is_named(both) && !states_damage(&both.1.out))
                .then_some("what is read differs, and nothing is said"),
            Promise::Plain => each()
                .any(|both| {
                    let (intact, ended) = both;
                    !ended.succeeded() && !self.is_named(both) && ended.err != intact.err
                })
                .then_some("a command fails without naming it"),
        }
    }

    /// Whether a line names the file that did not when it was intact; or, of one that was set aside,
    /// whether any does.
    fn is_named(&self, (intact, ended): (&Ended, &Ended)) -> bool {
        let named = self.named(ended);
        let is_aside = self.kind.ends_with(".unreadable");
        !named.is_subset(&self.named(intact)) || is_aside && !named.is_empty()
    }

    /// Lines with the file's name: of standard error, and what a report could not read.
    fn named(&self, ended: &Ended) -> BTreeSet<String> {
        let report: Value = match self.promise {
            Promise::Named => serde_json::from_str(&ended.out).unwrap_or_default(),
            _ => Value::Null,
        };
        let unread = report["unread"].as_array().into_iter().flatten();
        let unread = unread.filter_map(|line| line.as_str().map(str::to_owned));
        let lines = ended.err.lines().map(str::to_owned).chain(unread);
        lines.filter(|line| line.contains(&self.kind)).collect()
    }
}

/// What `recording info` and `trace --json` state of a file that is not whole.
fn states_damage(out: &str) -> bool {
    out.contains("it is not whole") || out.contains("\"complete\":false")
}

/// The lines, in an order of their own.
fn lines(text: &str) -> Vec<&str> {
    let mut lines: Vec<&str> = text.lines().collect();
    lines.sort_unstable();
    lines
}
