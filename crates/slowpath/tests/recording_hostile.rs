// SPDX-License-Identifier: Apache-2.0
//! What is given to the commands that read recordings and is none, or would not fit into memory: named, with a way out, before memory is taken.

use slowpath_recording::{Recording, encode};
use std::path::Path;
use std::process::{Command, Stdio};

/// KiB of addresses that a command may have. A file of 10 GiB does not fit, nor does what a device gives without end.
const ROOM: u32 = 2_000_000;

const COMMANDS: [&[&str]; 6] = [
    &["replay"],
    &["explain"],
    &["recording", "info"],
    &["recording", "dump"],
    &["recording", "join", "--out", "/dev/null"],
    &["recording", "shrink"],
];

/// What each of the commands says of the file; each fails, and none for lack of memory.
fn refusals(file: &Path) -> Vec<String> {
    let refusal = |command: &&[&str]| {
        let script = format!("ulimit -v {ROOM} && exec \"$0\" \"$@\"");
        let mut started = Command::new("sh");
        started.args(["-c", &script, env!("CARGO_BIN_EXE_slowpath")]);
        started.args(*command).arg(file);
        if command.contains(&"shrink") {
            started.arg("/dev/null");
        }
        let output = started.stdin(Stdio::null()).output().expect("a shell");
        let said = String::from_utf8_lossy(&output.stderr).into_owned();
        assert_eq!(output.status.code(), Some(1), "{command:?}: {said}");
        assert!(said.contains(&file.display().to_string()), "{said}");
        assert!(!said.contains("emory"), "{command:?}: {said}");
        said
    };
    COMMANDS.iter().map(refusal).collect()
}

#[test]
fn a_device_without_end_is_no_recording() {
    for said in refusals(Path::new("/dev/zero")) {
        assert!(said.contains("it is not a slowpath recording"), "{said}");
    }
}

#[test]
fn a_file_larger_than_any_recording_is_not_read() {
    let folder = tempfile::tempdir().expect("a folder");
    let file = folder.path().join("large.rec");
    let mut recording = Recording::default();
    recording.origin.hz = 250;
    std::fs::write(&file, encode(&recording).expect("short")).expect("writes");
    let opened = std::fs::OpenOptions::new().write(true).open(&file);
    // A hole.
    let grown = opened.expect("it is there").set_len(10 << 30);
    grown.expect("a file system with holes");
    for said in refusals(&file) {
        assert!(said.contains("larger than 1073741824 bytes"), "{said}");
    }
}

/// A recording is recognised by its first bytes, not its name.
#[test]
fn other_formats_are_named_with_what_reads_them() {
    let folder = tempfile::tempdir().expect("a folder");
    // The magic numbers of pcap, pcapng, gzip and zstd.
    let files: [(&[u8], &str); 4] = [
        (
            b"\xd4\xc3\xb2\xa1\x02\x00\x04\x00\0\0\0\0",
            "slowpath trace reads those",
        ),
        (
            b"\x0a\x0d\x0d\x0a\x1c\0\0\0\x4d\x3c\x2b\x1a",
            "slowpath trace reads those",
        ),
        (b"\x1f\x8b\x08\0\0\0\0\0\0\x03", "gunzip it first"),
        (b"\x28\xb5\x2f\xfd\x24\0\x01\0\0", "unzstd it first"),
    ];
    for (bytes, wanted) in files {
        let file = folder.path().join("other.rec");
        std::fs::write(&file, bytes).expect("writes");
        for said in refusals(&file) {
            assert!(said.contains(wanted), "{said}");
        }
    }
}
