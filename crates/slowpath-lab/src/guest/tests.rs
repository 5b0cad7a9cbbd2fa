// SPDX-License-Identifier: Apache-2.0
//! What needs no guest: archives, programs, results, and conversations with guests that are
//! played by a test.

use super::archive::{Archive, Content};
use super::conversation::{Ending, Lines, Patience, converse};
use super::elf;
use super::results::Receiver;
use super::wire::{
    Done, Entry, EntryEnd, EntryKind, Frames, FromGuest, Hello, Status, ToGuest, VERSION,
};
use super::{GuestError, Stream};
use proptest::prelude::*;
use std::fs;
use std::io::{Read, Write};
use std::os::unix::fs::PermissionsExt;
use std::os::unix::net::UnixStream;
use std::path::Path;
use std::process::Command;
use std::time::Duration;

fn written(archive: &Archive) -> Vec<u8> {
    let mut bytes = Vec::new();
    let length = archive.write(&mut bytes).expect("writes");
    assert_eq!(length, bytes.len() as u64);
    bytes
}

/// Name, mode and content of each entry, read as the kernel's documentation says
/// (buffer-format.rst): 13 fields of 8 hexadecimal digits, name and content padded to 4.
fn entries(mut bytes: &[u8]) -> Vec<(String, u32, Vec<u8>)> {
    let mut found = Vec::new();
    loop {
        assert_eq!(&bytes[..6], b"070701");
        let field = |n: usize| {
            let digits = std::str::from_utf8(&bytes[6 + 8 * n..14 + 8 * n]).expect("digits");
            usize::from_str_radix(digits, 16).expect("hexadecimal")
        };
        let (mode, size, name_size) = (field(1) as u32, field(6), field(11));
        let name = String::from_utf8(bytes[110..109 + name_size].to_vec()).expect("a name");
        assert_eq!(bytes[109 + name_size], 0);
        let content = (110 + name_size).next_multiple_of(4);
        if name == "TRAILER!!!" {
            return found;
        }
        found.push((name, mode, bytes[content..content + size].to_vec()));
        bytes = &bytes[(content + size).next_multiple_of(4)..];
    }
}

#[test]
fn an_archive_says_what_stands_where() {
    let mut archive = Archive::default();
    let bytes = |text: &str| Content::Bytes(text.into());
    archive
        .file("/bin/tool", 0o755, bytes("tool"))
        .expect("a path");
    archive
        .file("/etc/deep/er/file", 0o640, bytes("12345"))
        .expect("a path");
    archive.link("/sbin/other", "/bin/tool").expect("a path");
    archive
        .character_device("/dev/console", 5, 1)
        .expect("a path");
    let found = entries(&written(&archive));
    let names: Vec<&str> = found.iter().map(|(name, ..)| name.as_str()).collect();
    let mut sorted = names.clone();
    sorted.sort_unstable();
    assert_eq!(names, sorted, "folders stand before what is in them");
    let of = |name: &str| {
        let entry = found.iter().find(|(found, ..)| found == name);
        let (_, mode, content) = entry.unwrap_or_else(|| panic!("no {name} in {names:?}"));
        (*mode, String::from_utf8_lossy(content).into_owned())
    };
    assert_eq!(of("usr/bin/tool"), (0o100_755, "tool".to_owned()));
    assert_eq!(of("bin"), (0o120_777, "usr/bin".to_owned()));
    assert_eq!(of("etc/deep/er/file"), (0o100_640, "12345".to_owned()));
    assert_eq!(of("etc/deep"), (0o040_755, String::new()));
    assert_eq!(of("usr/sbin/other"), (0o120_777, "/bin/tool".to_owned()));
    assert_eq!(of("dev/console").0, 0o020_600);
    assert!(archive.has("/bin/tool") && archive.has("/usr/bin/tool"));
    assert_eq!(written(&archive), written(&archive.clone()));
    for path in ["relative", "/", "/a/../b", "/a\0b", ""] {
        let error = archive.folder(path).expect_err(path);
        assert!(matches!(error, GuestError::GuestPath { .. }), "{error}");
    }
}

#[test]
fn a_program_needs_what_its_loader_loads_and_runs_without_the_rest() {
    let me = std::env::current_exe().expect("this program has a path");
    let bytes = fs::read(&me).expect("reads");
    let needs = elf::needs(&bytes).expect("is a program");
    // ldd asks the loader itself.
    let ldd = Command::new("ldd").arg(&me).output().expect("runs");
    let ldd = String::from_utf8_lossy(&ldd.stdout).into_owned();
    for library in &needs.libraries {
        assert!(ldd.contains(library.as_str()), "{library} {ldd}");
    }
    assert!(
        needs.libraries.iter().any(|name| name == "libc.so.6"),
        "{needs:?}"
    );
    let interpreter = needs.interpreter.clone().expect("it is dynamic");
    assert!(ldd.contains(&interpreter), "{interpreter} {ldd}");
    let length = bytes.len();
    let trimmed = elf::trimmed(bytes, &needs);
    assert!(trimmed.len() < length, "{} {length}", trimmed.len());
    let folder = tempfile::tempdir().expect("a folder");
    let copy = folder.path().join("copy");
    fs::write(&copy, trimmed).expect("writes");
    fs::set_permissions(&copy, fs::Permissions::from_mode(0o755)).expect("sets");
    let mut run = Command::new(&copy).arg("--list").output();
    // A child that another test is just starting holds the copy open until it is replaced.
    while matches!(&run, Err(e) if e.kind() == std::io::ErrorKind::ExecutableFileBusy) {
        std::thread::yield_now();
        run = Command::new(&copy).arg("--list").output();
    }
    let listed = run.expect("runs").stdout;
    assert!(String::from_utf8_lossy(&listed).contains("a_program_needs_what"));
}

fn entry(path: &str, kind: EntryKind) -> Entry {
    Entry {
        path: path.to_owned(),
        mode: 0o644,
        kind,
    }
}

#[test]
fn results_stay_within_their_folder() {
    let folder = tempfile::tempdir().expect("a folder");
    let out = folder.path().join("out");
    let mut receiver = Receiver::new(&out).expect("makes it");
    std::os::unix::fs::symlink(folder.path(), out.join("way")).expect("links");
    for path in ["../x", "/x", "a/../../x", "", ".", "way/x"] {
        for kind in [EntryKind::File, EntryKind::Folder] {
            let error = receiver.entry(entry(path, kind)).expect_err(path);
            assert!(
                matches!(error, GuestError::Result { .. }),
                "{path}: {error}"
            );
        }
    }
    std::os::unix::fs::symlink(folder.path().join("x"), out.join("last")).expect("links");
    let error = receiver.entry(entry("last", EntryKind::File));
    assert!(matches!(error, Err(GuestError::Result { .. })), "{error:?}");
    // Links of the guest's own are made last.
    let link = EntryKind::Link("..".to_owned());
    receiver.entry(entry("up", link)).expect("is kept");
    receiver
        .entry(entry("up/x", EntryKind::File))
        .expect_err("no such folder yet");
    receiver.finish(0).expect("links");
    assert_eq!(
        fs::read_link(out.join("up")).expect("is there"),
        Path::new("..")
    );
    assert!(!folder.path().join("x").exists());
}

#[test]
fn a_result_that_changed_on_the_way_is_an_error() {
    let folder = tempfile::tempdir().expect("a folder");
    // CRC-32 of "123456789": the check value of the CRC catalogues.
    let whole = EntryEnd {
        length: 9,
        crc32: 0xcbf4_3926,
    };
    let receive = |bytes: &[u8], end| {
        let mut receiver = Receiver::new(folder.path())?;
        receiver.entry(entry("file", EntryKind::File))?;
        receiver.data(bytes)?;
        receiver.end(end)?;
        receiver.finish(2)
    };
    let results = receive(b"123456789", whole).expect("is whole");
    assert_eq!((results.files, results.bytes, results.left_out), (1, 9, 2));
    receive(b"123456780", whole).expect_err("another byte");
    receive(b"12345678", whole).expect_err("one byte less");
    let mut receiver = Receiver::new(folder.path()).expect("makes it");
    receiver.data(b"x").expect_err("bytes of nothing");
    receiver.end(whole).expect_err("the end of nothing");
    receiver
        .entry(entry("file", EntryKind::File))
        .expect("begins");
    receiver.finish(0).expect_err("amid a file");
}

fn hello() -> FromGuest {
    FromGuest::Hello(Hello {
        version: VERSION,
        release: "6.12".to_owned(),
        uptime_ms: 1,
    })
}

fn done(status: Status) -> FromGuest {
    FromGuest::Done(Done {
        status,
        left_out: 0,
    })
}

const LONG: Duration = Duration::from_secs(60);
const SHORT: Duration = Duration::from_millis(50);

fn patience() -> Patience {
    Patience {
        boot: LONG,
        silence: LONG,
        command: None,
        stop: LONG,
    }
}

/// A conversation with a guest that `play` plays, and what it said on its outputs.
fn talk(
    patience: Patience,
    play: impl FnOnce(UnixStream, UnixStream) + Send,
) -> (Result<Ending, GuestError>, String) {
    let (talk, their_talk) = UnixStream::pair().expect("a pair");
    let (console, their_console) = UnixStream::pair().expect("a pair");
    let mut said = String::new();
    let ending = std::thread::scope(|scope| {
        scope.spawn(|| play(their_talk, their_console));
        let lines = Lines {
            talk,
            console,
            typed: None,
        };
        converse(lines, patience, None, &mut |stream, bytes| {
            let mark = if stream == Stream::Stdout { "o" } else { "e" };
            said += &format!("{mark}:{} ", String::from_utf8_lossy(bytes));
            Ok(())
        })
    });
    (ending, said)
}

fn say(line: &mut UnixStream, message: &FromGuest) {
    line.write_all(&message.encode()).expect("is heard");
}

#[test]
fn a_guest_that_does_its_work() {
    let (ending, said) = talk(patience(), |mut line, _console| {
        let messages = [
            hello(),
            FromGuest::Stdout(b"one".to_vec()),
            FromGuest::Beat,
            FromGuest::Stderr(b"two".to_vec()),
            done(Status::Exited(3)),
        ];
        // In pieces that end anywhere.
        let bytes: Vec<u8> = messages.iter().flat_map(FromGuest::encode).collect();
        for piece in bytes.chunks(7) {
            line.write_all(piece).expect("is heard");
        }
    });
    assert_eq!(ending.expect("ends well").status, Status::Exited(3));
    assert_eq!(said, "o:one e:two ");
}

#[test]
fn each_way_a_guest_breaks_has_its_own_error() {
    let quiet = |mut line: UnixStream, speaks: bool| {
        if speaks {
            say(&mut line, &hello());
        }
        // Until the other side has given up.
        let _ = line.read(&mut [0]);
    };
    let short_boot = Patience {
        boot: SHORT,
        ..patience()
    };
    let (ending, _) = talk(short_boot, |line, _console| quiet(line, false));
    assert!(
        matches!(ending, Err(GuestError::NotBooted { .. })),
        "{ending:?}"
    );

    let short_silence = Patience {
        silence: SHORT,
        ..patience()
    };
    let (ending, _) = talk(short_silence, |line, _console| quiet(line, true));
    assert!(matches!(ending, Err(GuestError::Hung { .. })), "{ending:?}");

    let (ending, _) = talk(patience(), |mut line, _console| say(&mut line, &hello()));
    assert!(
        matches!(ending, Err(GuestError::Ended { .. })),
        "{ending:?}"
    );

    let (ending, _) = talk(patience(), |line, mut console| {
        drop(line);
        console
            .write_all(b"Oops: 0\r\nKernel panic - not syncing: for a test\r\n")
            .expect("is heard");
    });
    let error = ending.expect_err("a panic").to_string();
    assert!(
        error.starts_with("the guest's kernel panicked: for a test;"),
        "{error}"
    );
    assert!(error.contains("\n  Oops: 0\n"), "{error}");

    let (ending, _) = talk(patience(), |mut line, _console| {
        say(&mut line, &FromGuest::Trouble("no".to_owned()));
    });
    assert!(
        matches!(ending, Err(GuestError::Inside { .. })),
        "{ending:?}"
    );

    for wrong in [done(Status::Exited(0)), FromGuest::Beat] {
        let (ending, _) = talk(patience(), |mut line, _console| say(&mut line, &wrong));
        assert!(matches!(ending, Err(GuestError::Wire(_))), "{ending:?}");
    }
    let (ending, _) = talk(patience(), |mut line, _console| {
        line.write_all(&[77, 0, 0, 0, 0]).expect("is heard");
    });
    assert!(matches!(ending, Err(GuestError::Wire(_))), "{ending:?}");
}

#[test]
fn a_command_without_end_is_stopped() {
    let short = Patience {
        command: Some(SHORT),
        ..patience()
    };
    let (ending, said) = talk(short, |mut line, _console| {
        say(&mut line, &hello());
        let mut frames = Frames::default();
        let mut bytes = [0; 64];
        let asked = loop {
            let length = line.read(&mut bytes).expect("reads");
            frames.push(&bytes[..length]);
            if let Some(frame) = frames.next_frame().expect("a frame") {
                break ToGuest::decode(frame).expect("a message");
            }
        };
        assert_eq!(asked, ToGuest::Stop);
        say(&mut line, &FromGuest::Stdout(b"last".to_vec()));
        say(&mut line, &done(Status::Signalled(15)));
    });
    assert!(
        matches!(ending, Err(GuestError::TimedOut { .. })),
        "{ending:?}"
    );
    assert_eq!(said, "o:last ");
}

#[test]
fn one_number_for_every_end() {
    assert_eq!(Status::Exited(7).code(), 7);
    // 128 + n, as shells do (POSIX leaves only "greater than 128").
    assert_eq!(Status::Signalled(9).code(), 137);
    assert!(Status::Exited(0).success() && !Status::Signalled(1).success());
}

proptest! {
    #[test]
    fn any_bytes_are_a_program_or_a_reason(bytes: Vec<u8>, cut in 0_usize..4096) {
        let _ = elf::needs(&bytes);
        let me = fs::read("/proc/self/exe").expect("reads");
        let mut header = me[..cut].to_vec();
        if let Some(byte) = header.get_mut(bytes.len() % 512) {
            *byte ^= 0x55;
        }
        let _ = elf::needs(&header);
    }

    #[test]
    fn any_bytes_are_messages_or_an_error(bytes: Vec<u8>, piece in 1_usize..32) {
        let mut frames = Frames::default();
        'all: for piece in bytes.chunks(piece) {
            frames.push(piece);
            loop {
                match frames.next_frame() {
                    Ok(Some(frame)) => {
                        let _ = FromGuest::decode(frame.clone());
                        let _ = ToGuest::decode(frame);
                    }
                    Ok(None) => break,
                    Err(_) => break 'all,
                }
            }
        }
    }

    #[test]
    fn messages_arrive_as_they_were_sent(
        payloads in proptest::collection::vec(any::<Vec<u8>>(), 0..8),
        piece in 1_usize..64,
    ) {
        let sent: Vec<FromGuest> = payloads
            .into_iter()
            .enumerate()
            .map(|(n, bytes)| match n % 5 {
                0 => FromGuest::Stdout(bytes),
                1 => FromGuest::Data(bytes),
                2 => FromGuest::Entry(entry(&String::from_utf8_lossy(&bytes), EntryKind::Folder)),
                3 => FromGuest::EntryEnd(EntryEnd { length: n as u64, crc32: n as u32 }),
                _ => hello(),
            })
            .collect();
        let bytes: Vec<u8> = sent.iter().flat_map(FromGuest::encode).collect();
        let mut frames = Frames::default();
        let mut got = Vec::new();
        for piece in bytes.chunks(piece) {
            frames.push(piece);
            while let Some(frame) = frames.next_frame().expect("a frame") {
                got.push(FromGuest::decode(frame).expect("a message"));
            }
        }
        prop_assert_eq!(got, sent);
    }
}
