// SPDX-License-Identifier: Apache-2.0
//! Alters a recording in many ways, replays every altered one, and counts those that are exact all the same: `docs/decisions/0021-record-and-replay.md` has the table. `wild`: nothing but
//! numbers that an attacker may write.
//!
//! ```text
//! alterations RECORDING COUNT SEED [wild]
//! ```

mod kinds;

use kinds::{Kind, Random};
use slowpath_lab::virtual_time::{Kernel, SOURCE};
use slowpath_recording::{Connection, Recording, decode, encode};
use slowpath_replay::{ReplayError, ReplayOptions, ReplayResult, batches, replay};
use std::collections::BTreeMap;
use std::error::Error;
use std::path::Path;

/// Altered connections in one kernel.
const AT_ONCE: usize = 500;

/// What came of an alteration.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
enum Fate {
    /// It is no recording of a kernel, or of none that there is.
    Refused,
    /// A replay says that it is another.
    Diverged,
    /// The file does not keep it: what is read is what was.
    NotKept,
    /// The replay says that it is exact.
    Unnoticed,
}

struct Altered {
    kind: Kind,
    connection: Connection,
    of: usize,
}

fn main() -> Result<(), Box<dyn Error>> {
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    let [file, count, seed, wild @ ..] = arguments.as_slice() else {
        return Err("see the file's first lines".into());
    };
    let whole = decode(&std::fs::read(file)?)?;
    let kernel = Kernel::find(SOURCE, whole.origin.hz)?;
    let folder = std::env::temp_dir().join(format!("alterations.{}", std::process::id()));
    let replayable = exact_unaltered(&kernel, &whole, &folder)?;
    println!(
        "{} of {} connections are exact unaltered",
        replayable.len(),
        whole.connections.len()
    );
    let mut random = Random(seed.parse()?);
    let mut altered: Vec<Altered> = Vec::new();
    while altered.len() < count.parse()? {
        let of = replayable[random.below(replayable.len())];
        let connection = &whole.connections[of];
        let some = match wild {
            [] => kinds::some(connection, &mut random),
            _ => kinds::wild(connection, &mut random).into_iter().collect(),
        };
        altered.extend(some.into_iter().map(|(kind, connection)| Altered {
            kind,
            connection,
            of,
        }));
    }
    let mut tally = Tally::default();
    for part in altered.chunks(AT_ONCE) {
        let recording = Recording {
            origin: whole.origin.clone(),
            connections: part.iter().map(|it| it.connection.clone()).collect(),
            one_sided: Vec::new(),
        };
        for from_file in [false, true] {
            let recording = match from_file {
                false => recording.clone(),
                true => decode(&encode(&recording)?)?,
            };
            let (fates, reasons) = fates_of(&kernel, &recording, &whole, part, &folder)?;
            tally.add(part, &fates, from_file);
            for (reason, count) in reasons {
                println!("kernel: {reason}: {count}");
            }
        }
    }
    tally.print();
    Ok(())
}

/// The connections whose replay is exact as they are.
fn exact_unaltered(
    kernel: &Kernel,
    whole: &Recording,
    folder: &Path,
) -> Result<Vec<usize>, Box<dyn Error>> {
    let there =
        (0..whole.connections.len()).filter(|it| whole.connections[*it].replayable().is_ok());
    let there: Vec<usize> = there.collect();
    let (fates, _) = fates(kernel, whole, &there, folder)?;
    let exact = there
        .iter()
        .zip(&fates)
        .filter(|(_, fate)| **fate == Fate::Unnoticed);
    Ok(exact.map(|(place, _)| *place).collect())
}

/// What became of each altered connection of a recording, and why kernels failed.
fn fates_of(
    kernel: &Kernel,
    recording: &Recording,
    whole: &Recording,
    part: &[Altered],
    folder: &Path,
) -> Result<Fates, Box<dyn Error>> {
    let valid = |place: &usize| {
        let one = Recording {
            origin: recording.origin.clone(),
            connections: vec![recording.connections[*place].clone()],
            one_sided: Vec::new(),
        };
        one.validate().is_ok() && recording.connections[*place].replayable().is_ok()
    };
    let chosen: Vec<usize> = (0..part.len()).filter(valid).collect();
    let (found, reasons) = fates(kernel, recording, &chosen, folder)?;
    let mut all = vec![Fate::Refused; part.len()];
    for (place, fate) in chosen.iter().zip(found) {
        let kept = recording.connections[*place] != whole.connections[part[*place].of];
        all[*place] = match fate {
            Fate::Unnoticed if !kept => Fate::NotKept,
            fate => fate,
        };
    }
    Ok((all, reasons))
}

/// How often each alteration had which fate, from memory and from a file.
#[derive(Default)]
struct Tally {
    table: BTreeMap<String, BTreeMap<(bool, Fate), usize>>,
    /// How often an alteration was reported as unnoticed.
    reported: BTreeMap<String, usize>,
}

impl Tally {
    fn add(&mut self, part: &[Altered], fates: &[Fate], from_file: bool) {
        for (number, (it, fate)) in part.iter().zip(fates).enumerate() {
            let name = it.kind.name();
            *self
                .table
                .entry(name.clone())
                .or_default()
                .entry((from_file, *fate))
                .or_default() += 1;
            let times = self.reported.entry(name).or_default();
            if *fate == Fate::Unnoticed && *times < 6 {
                *times += 1;
                println!(
                    "unnoticed (file: {from_file}): {:?} of connection {} ({number})",
                    it.kind, it.of
                );
            }
        }
    }

    fn print(&self) {
        println!(
            "{:60} {:>6} {:>6} {:>6} {:>6} | file {:>6} {:>6} {:>6} {:>6}",
            "alteration", "refus", "diverg", "same", "UNNOT", "refus", "diverg", "same", "UNNOT"
        );
        for (name, fates) in &self.table {
            let of = |file: bool, fate: Fate| fates.get(&(file, fate)).copied().unwrap_or(0);
            let row = |file: bool| {
                let row = [
                    Fate::Refused,
                    Fate::Diverged,
                    Fate::NotKept,
                    Fate::Unnoticed,
                ];
                row.map(|fate| format!("{:>6}", of(file, fate))).join(" ")
            };
            println!("{name:60} {} | file {}", row(false), row(true));
        }
    }
}

/// What became of some, and why kernels failed, how often.
type Fates = (Vec<Fate>, BTreeMap<String, usize>);

/// What a replay says of the chosen ones; `Unnoticed`: exact. And why kernels failed.
fn fates(
    kernel: &Kernel,
    recording: &Recording,
    chosen: &[usize],
    folder: &Path,
) -> Result<Fates, Box<dyn Error>> {
    let mut found: BTreeMap<usize, Fate> = BTreeMap::new();
    let mut reasons: BTreeMap<String, usize> = BTreeMap::new();
    let mut left: Vec<Vec<usize>> = batches(recording, chosen, 1);
    while let Some(batch) = left.pop() {
        let _ = std::fs::remove_dir_all(folder);
        std::fs::create_dir_all(folder)?;
        let options = ReplayOptions {
            capture: None,
            ..ReplayOptions::default()
        };
        match replay(kernel, recording, &batch, &options, folder, &mut |_| {}) {
            Ok(replayed) => {
                let fate = |it: &ReplayResult| match it.difference {
                    None => Fate::Unnoticed,
                    Some(_) => Fate::Diverged,
                };
                found.extend(batch.iter().copied().zip(replayed.results.iter().map(fate)));
            }
            Err(error) if batch.len() == 1 => {
                if let ReplayError::Run(error) = &error {
                    *reasons.entry(error.to_string()).or_default() += 1;
                    println!(
                        "kernel: {error}: {:?}",
                        recording.connections[batch[0]].settings
                    );
                }
                found.insert(batch[0], Fate::Refused);
            }
            Err(_) => {
                let half = batch.len() / 2;
                left.push(batch[..half].to_vec());
                left.push(batch[half..].to_vec());
            }
        }
    }
    std::fs::remove_dir_all(folder)?;
    Ok((chosen.iter().map(|place| found[place]).collect(), reasons))
}
