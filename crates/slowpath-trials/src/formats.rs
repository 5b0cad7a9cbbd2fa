// SPDX-License-Identifier: Apache-2.0
//! Every format that comes from outside: valid inputs to start from, and what must hold of any
//! input. The fuzz targets' own, and of texts and Parquet files what those lack.

use crate::damaged_log;
use crate::samples::{CONFIGURATION, OWNERS, in_repository};
use slowpath_agent::service::configuration;
use slowpath_agent::service::{Age, LogPlace, PollInterval, Ports, Size};
use slowpath_agent::{Budget, CommandLines, OwnerLabels, Rules, redacted};
use slowpath_export::push::Endpoint;
use slowpath_model::{Owner, Process};
use slowpath_netsim::workload::SizeDistribution;
use slowpath_observe::listeners::parse_netstat;
use slowpath_views::filter::{Filter, Names};
use slowpath_views::target::Target;
use std::cell::RefCell;
use std::fs;
use std::net::IpAddr;
use std::ops::RangeInclusive;
use std::path::PathBuf;

macro_rules! targets {
    ($($name:ident $path:literal,)*) => {
        $(
            #[allow(unused_attributes)]
            #[path = $path]
            pub(crate) mod $name;
        )*
    };
}
targets! {
    capture "../../../fuzz/targets/capture.rs",
    mlab_line "../../../fuzz/targets/mlab_line.rs",
    netlink "../../../fuzz/targets/netlink.rs",
    plan "../../../fuzz/targets/plan.rs",
    recording "../../../fuzz/targets/recording.rs",
    scenario "../../../fuzz/targets/scenario.rs",
    spool "../../../fuzz/targets/spool.rs",
    switch "../../../fuzz/targets/switch.rs",
    tcp_info "../../../fuzz/targets/tcp_info.rs",
}

/// What makes a mutated file's checksums right again.
pub(crate) type Repair = fn(&mut [u8]);

/// A format of inputs.
#[derive(Clone, Copy)]
pub(crate) struct Format {
    pub(crate) name: &'static str,
    /// Of a thousand inputs, so many: those whose reading takes long are fewer.
    pub(crate) share: u64,
    pub(crate) starts: fn() -> Vec<Vec<u8>>,
    /// Panics if it does not hold.
    pub(crate) check: fn(&[u8]),
    pub(crate) repair: Option<Repair>,
}

const fn format(
    name: &'static str,
    share: u64,
    starts: fn() -> Vec<Vec<u8>>,
    check: fn(&[u8]),
) -> Format {
    Format {
        name,
        share,
        starts,
        check,
        repair: None,
    }
}

const fn repaired(format: Format, repair: Repair) -> Format {
    Format {
        repair: Some(repair),
        ..format
    }
}

/// All of them; the shares come to 1,000.
pub(crate) const FORMATS: [Format; 19] = [
    format("tcp_info", 200, tcp_info::starts, tcp_info::survive),
    format("netlink", 150, netlink::starts, netlink::survive),
    format("series of m-lab", 40, mlab_line::starts, mlab_line::survive),
    format("plan", 40, plan::starts, plan::survive),
    format("capture", 12, capture::starts, capture::survive),
    format("scenario", 6, scenario::starts, scenario::survive),
    format("switch", 3, switch::starts, switch::survive),
    repaired(
        format("recording", 8, recording::starts, recording::survive),
        sums::recording,
    ),
    repaired(
        format("spool", 16, spool::starts, spool::survive),
        sums::spool,
    ),
    repaired(
        format("Parquet file", 3, parquet_starts, parquet),
        sums::parquet,
    ),
    format("filter", 140, || texts(&FILTERS), filter),
    format(
        "packet filter",
        100,
        || texts(&PACKET_FILTERS),
        packet_filter,
    ),
    format("target", 60, || texts(&TARGETS), target),
    format("value of a setting", 100, || texts(&VALUES), values),
    format(
        "configuration",
        22,
        || texts(&[CONFIGURATION, OWNERS]),
        tables,
    ),
    format("rules of owners", 20, || texts(&[OWNERS]), rules),
    format("flow sizes", 20, flow_sizes_starts, flow_sizes),
    format("/proc/net/netstat", 20, || texts(&[NETSTAT]), netstat),
    format("command line", 40, || texts(&COMMAND_LINES), command_line),
];

fn texts(of: &[&str]) -> Vec<Vec<u8>> {
    of.iter().map(|text| text.as_bytes().to_vec()).collect()
}

/// No name can be looked up.
struct NoNames;

impl Names for NoNames {
    fn port(&self, service: &str) -> Option<u16> {
        (service == "https").then_some(443)
    }

    fn addresses(&self, _: &str) -> Vec<IpAddr> {
        Vec::new()
    }

    fn ephemeral_ports(&self) -> RangeInclusive<u16> {
        32_768..=60_999
    }
}

const FILTERS: [&str; 6] = [
    "state established and ( dport = :443 or sport = :https )",
    "dst 10.0.0.0/8 and not src [fd00::1]:80",
    "dport >= :1024 and dport <= :2048 exclude time-wait",
    "process nginx and problem = Timeout",
    "state connected ( unit = \"a b.service\" or container = x )",
    "dport = :5432 & ! src 127.0.0.1 | dst = 192.0.2.1:80",
];

/// What was read says what it is.
fn filter(bytes: &[u8]) {
    let text = String::from_utf8_lossy(bytes);
    match Filter::parse(&text, &NoNames) {
        Ok(filter) => drop((filter.to_string(), filter.notes().map(str::len))),
        Err(error) => assert!(!error.to_string().is_empty()),
    }
}

const PACKET_FILTERS: [&str; 6] = [
    "tcp port 80 and (((ip[2:2] - ((ip[0]&0xf)<<2)) - ((tcp[12]&0xf0)>>2)) != 0)",
    "host 10.0.0.1 or net 192.168.0.0/16",
    "not vlan 7 and ip6 and portrange 1-1023",
    "tcp[tcpflags] & (tcp-syn|tcp-fin) != 0",
    "ether host 02:00:00:00:00:01 and greater 100",
    "src net 10.0.0.0 mask 255.0.0.0 and dst port 443",
];

fn packet_filter(bytes: &[u8]) {
    let text = String::from_utf8_lossy(bytes);
    if let Err(error) = text.parse::<slowpath_trace::filter::Filter>() {
        assert!(!error.to_string().is_empty());
    }
}

const TARGETS: [&str; 5] = [
    "1234",
    "nginx",
    "10.0.0.1:443",
    "[2001:db8::1]:https",
    ":80",
];

fn target(bytes: &[u8]) {
    let text = String::from_utf8_lossy(bytes);
    if let Err(error) = Target::parse(&text, &NoNames) {
        assert!(!error.to_string().is_empty());
    }
}

const VALUES: [&str; 12] = [
    "500ms",
    "1h 30m",
    "2GiB",
    "1,2",
    "80,443",
    "unit,port",
    "none",
    "/var/lib/slowpath",
    "http://127.0.0.1:4318",
    "https://collector.example:443/v1?token=1",
    "18446744073709551615TiB",
    "0.5,99",
];

/// A value that is taken is the same when it is read again as it is written.
fn values(bytes: &[u8]) {
    fn same<T: std::str::FromStr + std::fmt::Display + PartialEq>(text: &str) {
        if let Ok(value) = text.parse::<T>() {
            let again = value.to_string().parse::<T>();
            assert!(again.is_ok_and(|again| again == value), "{text:?}");
        }
    }
    let text = String::from_utf8_lossy(bytes);
    same::<PollInterval>(&text);
    same::<Age>(&text);
    same::<Size>(&text);
    same::<Ports>(&text);
    same::<LogPlace>(&text);
    let _ = text.parse::<Budget>();
    let _ = text.parse::<OwnerLabels>();
    let _ = text.parse::<Endpoint>();
}

/// An error has a line of the text.
fn tables(bytes: &[u8]) {
    let text = String::from_utf8_lossy(bytes);
    if let Err((line, reason)) = configuration::parse::<serde_json::Value>(&text) {
        assert!((1..=text.lines().count() + 1).contains(&line), "{line}");
        assert!(!reason.is_empty());
    }
}

fn rules(bytes: &[u8]) {
    let text = String::from_utf8_lossy(bytes);
    if let Err(error) = Rules::parse(&text) {
        assert!(!error.to_string().is_empty());
    }
}

fn flow_sizes_starts() -> Vec<Vec<u8>> {
    let sizes = "# size, probability\n0 0\n1000 0.5 # half\n20000 0.9\n1e6 1\n";
    let file = fs::read(in_repository("scenarios/sim/web-search.txt"));
    file.into_iter().chain(texts(&[sizes])).collect()
}

fn flow_sizes(bytes: &[u8]) {
    let text = String::from_utf8_lossy(bytes);
    if let Err(error) = SizeDistribution::parse(&text) {
        assert!(!error.to_string().is_empty());
    }
}

const NETSTAT: &str = "TcpExt: SyncookiesSent ListenOverflows ListenDrops TCPReqQFullDrop\n\
    TcpExt: 0 17 18 3\nIpExt: InNoRoutes InOctets\nIpExt: 0 123456789012\n";

fn netstat(bytes: &[u8]) {
    parse_netstat(&String::from_utf8_lossy(bytes));
}

const COMMAND_LINES: [&str; 5] = [
    "java -Dpassword=x -jar orders.jar --token 'two words'",
    "sh -c 'mysql -u root -psecret && curl -u a:b https://u:p@h/?api_key=1'",
    "env PGPASSWORD=x psql 'host=h password=\\'y z\\''",
    "curl -H 'Authorization: Bearer abc' https://example",
    "a '' 'b'\\''c' \"d\"",
];

fn command_line(bytes: &[u8]) {
    let text = String::from_utf8_lossy(bytes);
    let owner = Owner::of_process(Process {
        pid: 1,
        start: None,
        command: "x".into(),
        executable: None,
        command_line: Some(text.as_ref().into()),
    });
    for keep in [
        CommandLines::Program,
        CommandLines::NoSecrets,
        CommandLines::Full,
    ] {
        let _ = redacted(&owner, keep);
    }
}

/// A log whose files are replaced one by one; each thread has its own.
struct Tables {
    directory: tempfile::TempDir,
    files: Vec<(PathBuf, Vec<u8>)>,
}

thread_local! {
    static LOG: RefCell<Option<Tables>> = const { RefCell::new(None) };
}

fn tables_of_a_log() -> Tables {
    let directory = tempfile::tempdir().expect("a scratch folder");
    let mut writer = damaged_log::open(directory.path());
    damaged_log::write(&mut writer, 1, 0);
    writer.close();
    let files = damaged_log::files(directory.path(), ".parquet");
    let files = files.into_iter().map(|path| {
        let bytes = fs::read(&path).expect("it was written");
        (path, bytes)
    });
    Tables {
        files: files.collect(),
        directory,
    }
}

/// Each table's file, behind a byte with its number.
fn parquet_starts() -> Vec<Vec<u8>> {
    let log = tables_of_a_log();
    let files = log.files.iter().enumerate();
    files
        .map(|(number, (_, bytes))| [&[number as u8], &bytes[..]].concat())
        .collect()
}

/// Whatever one of a log's files holds, all its tables are read.
fn parquet(input: &[u8]) {
    let Some((number, bytes)) = input.split_first() else {
        return;
    };
    LOG.with_borrow_mut(|log| {
        let log = log.get_or_insert_with(tables_of_a_log);
        let (path, intact) = &log.files[usize::from(*number) % log.files.len()];
        fs::write(path, bytes).expect("space for a small file");
        damaged_log::read(log.directory.path());
        fs::write(path, intact).expect("space for a small file");
    });
}

/// Checksums made right, so that mutations get to what lies behind them. From the formats'
/// descriptions, not from the code that writes them.
mod sums {
    fn crc(pieces: &[&[u8]]) -> [u8; 4] {
        let mut crc = crc32fast::Hasher::new();
        pieces.iter().for_each(|piece| crc.update(piece));
        crc.finalize().to_le_bytes()
    }

    fn number<const N: usize>(bytes: &[u8], at: usize) -> usize {
        let number = bytes.get(at..at + N).unwrap_or_default();
        let little = number.iter().rev();
        little.fold(0, |sum, byte| sum << 8 | usize::from(*byte))
    }

    /// Each record of a spool, and its header (`slowpath_store::spool`).
    pub(super) fn spool(file: &mut [u8]) {
        let mut at = 16 + number::<4>(file, 12).min(1_024);
        if at + 4 > file.len() {
            return;
        }
        let sum = crc(&[&file[..at]]);
        file[at..at + 4].copy_from_slice(&sum);
        at += 4;
        while at + 9 <= file.len() {
            let end = at + 9 + number::<2>(file, at + 2);
            if file[at..at + 2] != [0xb7, 0x1e] || end > file.len() {
                at += 1;
                continue;
            }
            let sum = crc(&[
                &file[at + 8..at + 9],
                &file[at + 2..at + 4],
                &file[at + 9..end],
            ]);
            file[at + 4..at + 8].copy_from_slice(&sum);
            at = end;
        }
    }

    /// Each frame of a recording, and its header (`docs/reference/recording-format.md`).
    pub(super) fn recording(file: &mut [u8]) {
        let mut at = 12 + number::<2>(file, 10);
        if at + 4 > file.len() {
            return;
        }
        let header = crc(&[&file[..at]]);
        file[at..at + 4].copy_from_slice(&header);
        at += 4;
        while at + 15 <= file.len() {
            let end = at + 15 + number::<4>(file, at + 7);
            if file[at..at + 2] != [0xb7, 0x2d] || end > file.len() {
                at += 1;
                continue;
            }
            let sum = crc(&[&header, &file[at + 2..at + 11], &file[at + 15..end]]);
            file[at + 11..at + 15].copy_from_slice(&sum);
            at = end;
        }
    }

    /// The two of a Parquet file, behind the number of its table (`slowpath_store`'s checksum).
    pub(super) fn parquet(input: &mut [u8]) {
        let Some((_, file)) = input.split_first_mut() else {
            return;
        };
        let length = file.len();
        let footer = match length.checked_sub(8) {
            Some(end) => end.checked_sub(number::<4>(file, end)),
            None => None,
        };
        let Some(block) = footer.and_then(|footer| footer.checked_sub(16)) else {
            return;
        };
        file[block..block + 8].copy_from_slice(b"slowcrc1");
        let body = crc(&[&file[..block]]);
        file[block + 8..block + 12].copy_from_slice(&body);
        let end = crc(&[&file[block..block + 12], &file[block + 16..]]);
        file[block + 12..block + 16].copy_from_slice(&end);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn shares_come_to_a_thousand() {
        assert_eq!(
            FORMATS.iter().map(|format| format.share).sum::<u64>(),
            1_000
        );
    }

    /// Each repair leaves an intact file as it is: it knows the format.
    #[test]
    fn an_intact_file_has_the_checksums_that_a_repair_gives_it() {
        for format in &FORMATS {
            let Some(repair) = format.repair else {
                continue;
            };
            for start in (format.starts)() {
                let mut bytes = start.clone();
                repair(&mut bytes);
                assert!(bytes == start, "{}", format.name);
            }
        }
    }
}
