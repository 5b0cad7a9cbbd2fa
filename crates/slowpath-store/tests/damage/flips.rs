// SPDX-License-Identifier: Apache-2.0
//! Bits that flip on the disk: in whatever file and wherever in it, a reader names the file, gives
//! no row that was not written, and does not panic.

use crate::log::{Contents, files, killed_in_its_second_hour, read};
use crate::records::Random;
use std::collections::BTreeSet;
use std::fs;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicUsize, Ordering};

/// Flips in each file: eight kinds of files make 720.
const FLIPS: u64 = 90;
/// For `make soak`.
const MANY_FLIPS: u64 = 2_000;
/// Another seed, and for `make soak` the one of a run that failed.
const SEED: &str = "SLOWPATH_FLIPS_SEED";

static PANICS: AtomicUsize = AtomicUsize::new(0);

/// A file, and what is read of the log without it.
struct Target {
    path: PathBuf,
    bytes: Vec<u8>,
    without: Contents,
}

/// A log with a file of each kind.
fn log(dir: &Path) -> Vec<Target> {
    let spool = killed_in_its_second_hour(dir);
    let mut other = fs::read(&spool).unwrap();
    other[30] ^= 1; // in the header
    fs::write(spool.with_file_name("other.spool.unreadable"), other).unwrap();
    let mut paths = files(dir, ".parquet");
    assert_eq!(paths.len(), 6, "a file of each table");
    paths.push(spool.clone());
    paths.push(spool.with_file_name("other.spool.unreadable"));
    let targets = paths.into_iter().map(|path| {
        let bytes = fs::read(&path).unwrap();
        fs::remove_file(&path).unwrap();
        let without = read(dir);
        fs::write(&path, &bytes).unwrap();
        Target {
            path,
            bytes,
            without,
        }
    });
    targets.collect()
}

/// What is wrong with what is said of a file one of whose bits flipped.
fn complaint(target: &Target, whole: &Contents, found: &Contents) -> Option<&'static str> {
    let is_spool = target.path.extension() == Some("spool".as_ref());
    let is_aside = target.path.extension() == Some("unreadable".as_ref());
    let said = found.said_of(&target.path);
    let anew = |line: &&&String| is_aside || !whole.lines.contains(line);
    if said.iter().filter(anew).count() == 0 {
        return Some("nothing is said of the file");
    }
    if !is_spool && found.rows != target.without.rows {
        return Some("the file is not left out");
    }
    let written = |(table, rows): (&&str, &Vec<String>)| {
        let whole: BTreeSet<&String> = whole.rows[*table].iter().collect();
        let distinct: BTreeSet<&String> = rows.iter().collect();
        distinct.len() == rows.len() && distinct.is_subset(&whole)
    };
    // Of a connection whose latest summary is lost, an earlier one is read.
    let mut tables = found
        .rows
        .iter()
        .filter(|(table, _)| **table != "connections");
    (!tables.all(written)).then_some("a row was not written")
}

fn flip(target: &Target, bit: u64, dir: &Path) -> Contents {
    let mut bytes = target.bytes.clone();
    bytes[(bit / 8) as usize] ^= 1 << (bit % 8);
    fs::write(&target.path, bytes).unwrap();
    let found = read(dir);
    fs::write(&target.path, &target.bytes).unwrap();
    found
}

fn survive(flips: u64, seed: u64) {
    let seed = std::env::var(SEED).map_or(seed, |seed| seed.parse().unwrap());
    println!("{SEED}={seed}");
    let dir = tempfile::tempdir().unwrap();
    let targets = log(dir.path());
    let whole = read(dir.path());
    let hook = std::panic::take_hook();
    std::panic::set_hook(Box::new(move |panic| {
        PANICS.fetch_add(1, Ordering::Relaxed);
        hook(panic);
    }));
    let mut random = Random(seed);
    let mut unsaid = Vec::new();
    for target in &targets {
        for _ in 0..flips {
            let bit = random.below(8 * target.bytes.len() as u64);
            let found = flip(target, bit, dir.path());
            if let Some(complaint) = complaint(target, &whole, &found) {
                let name = target.path.file_name().unwrap();
                unsaid.push(format!("{complaint}: bit {bit} of {}", name.display()));
            }
        }
    }
    let panics = PANICS.load(Ordering::Relaxed);
    let flips = flips * targets.len() as u64;
    println!(
        "{{\"flips\": {flips}, \"unsaid_flips\": {}, \"panics\": {panics}}}",
        unsaid.len()
    );
    assert_eq!((unsaid, panics), (Vec::new(), 0));
}

#[test]
fn a_bit_that_flips_anywhere_is_said() {
    survive(FLIPS, 0x51d0_77e2);
}

#[test]
#[ignore = "soak: 16,000 flips take minutes"]
fn many_bits_that_flip_anywhere_are_said() {
    let now = std::time::SystemTime::now().duration_since(std::time::UNIX_EPOCH);
    survive(MANY_FLIPS, now.unwrap().as_nanos() as u64);
}

/// The magic, the block of checksums and the length of the footer, of which random bits meet few.
#[test]
fn a_bit_that_flips_in_the_checksums_themselves_is_said() {
    let dir = tempfile::tempdir().unwrap();
    let targets = log(dir.path());
    let whole = read(dir.path());
    let target = targets.iter().find(|target| {
        let name = target.path.file_name().unwrap().to_str().unwrap();
        name.starts_with("coverage-")
    });
    let target = target.unwrap();
    let length = target.bytes.len();
    let footer: [u8; 4] = target.bytes[length - 8..length - 4].try_into().unwrap();
    let block = length - 8 - u32::from_le_bytes(footer) as usize - 16;
    assert_eq!(&target.bytes[block..block + 8], b"slowcrc1");
    for byte in (0..4).chain(block..block + 16).chain(length - 8..length) {
        for bit in 0..8 {
            let found = flip(target, 8 * byte as u64 + bit, dir.path());
            assert_eq!(complaint(target, &whole, &found), None, "byte {byte}");
        }
    }
}
