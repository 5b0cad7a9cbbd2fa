// SPDX-License-Identifier: Apache-2.0
//! Captures written again: tshark and capinfos see the same packets, and the comments.

use slowpath_trace::read::{Input, Inputs, open};
use slowpath_trace::write::{Comments, Written, copy};
use std::io::Read;
use std::path::{Path, PathBuf};
use std::process::Command;

fn shared(name: &str) -> Option<PathBuf> {
    let folder = PathBuf::from(env!("CARGO_MANIFEST_DIR")).join("../../../shared/captures");
    let path = folder.join(name);
    if !path.exists() {
        println!("SKIPPED {name}: shared/captures is not here");
        return None;
    }
    Some(path)
}

/// The output of a program; `None`: it is not installed.
fn output(program: &str, arguments: &[&str]) -> Option<String> {
    match Command::new(program).args(arguments).output() {
        Ok(output) => Some(String::from_utf8_lossy(&output.stdout).into_owned()),
        Err(error) => {
            println!("SKIPPED {program}: {error}");
            None
        }
    }
}

fn write(captures: &[&Path], out: &Path, comments: &Comments, wanted: fn(u64) -> bool) -> Written {
    let inputs = captures
        .iter()
        .map(|p| Input::File((*p).to_owned()))
        .collect();
    let inputs = Inputs::new(inputs).expect("they open");
    let mut file = std::fs::File::create(out).expect("the folder is ours");
    copy(inputs, wanted, comments, &mut file).expect("it is written")
}

/// Every packet: number, time, lengths, interface, link, bytes.
fn packets(path: &Path) -> Vec<(i64, u32, u32, Vec<u8>)> {
    let mut capture = open(path).expect("it opens");
    let mut all = Vec::new();
    while let Some(p) = capture.next().expect("it reads") {
        all.push((
            p.time().0,
            p.wire_length(),
            p.interface(),
            p.data().to_vec(),
        ));
    }
    assert_eq!(capture.notes().clock_went_back, 0);
    all
}

fn some_comments() -> Comments {
    let one = vec!["first finding".to_owned()];
    let two = vec!["second: \"quoted\"".to_owned(), "third \u{e9}".to_owned()];
    Comments::from([(2, one), (5, two)])
}

#[test]
fn packets_stay_as_they_were() {
    let folder = tempfile::tempdir().expect("a folder");
    for name in [
        "packets/http_espn.pcapng",
        "packets/tcp_dupack.pcapng",
        "tcptrace/psc.fddi.dmp.gz",
        "tcptrace/discard.solaris.dmp.gz",
        "tcptrace/linux_cooked_socket.dmp.gz",
    ] {
        let Some(capture) = shared(name) else { return };
        let out = folder.path().join("out.pcapng");
        let written = write(&[&capture], &out, &some_comments(), |_| true);
        assert_eq!(written.commented, 2, "{name}");
        assert_eq!(packets(&capture), packets(&out), "{name}");
        assert_eq!(written.packets, packets(&out).len() as u64);
    }
}

/// A stream may give few bytes at a time; what is written is the same.
#[test]
fn a_stream_is_copied_as_a_file_is() {
    struct Drops(std::io::Cursor<Vec<u8>>);
    impl Read for Drops {
        fn read(&mut self, buffer: &mut [u8]) -> std::io::Result<usize> {
            let most = buffer.len().min(3);
            self.0.read(&mut buffer[..most])
        }
    }
    let folder = tempfile::tempdir().expect("a folder");
    for name in ["packets/tcp_dupack.pcapng", "tcptrace/psc.fddi.dmp.gz"] {
        let Some(capture) = shared(name) else { return };
        let out = folder.path().join("out.pcapng");
        let expected = write(&[&capture], &out, &some_comments(), |_| true);
        let expected = (expected, std::fs::read(&out).expect("it was written"));
        let bytes = std::fs::read(&capture).expect("it reads");
        let whole: Box<dyn Read + Send> = Box::new(std::io::Cursor::new(bytes.clone()));
        let slow: Box<dyn Read + Send> = Box::new(Drops(std::io::Cursor::new(bytes)));
        for stream in [whole, slow] {
            let inputs = Inputs::new(vec![Input::Stream("memory".to_owned(), stream)]);
            let mut copied = Vec::new();
            let inputs = inputs.expect("a stream opens");
            let written = copy(inputs, |_| true, &some_comments(), &mut copied);
            assert_eq!(
                (written.expect("it is written"), copied),
                expected,
                "{name}"
            );
        }
    }
}

#[test]
fn tshark_shows_the_comments_and_capinfos_the_same_packets() {
    let folder = tempfile::tempdir().expect("a folder");
    for name in ["packets/tcp_dupack.pcapng", "tcptrace/psc.fddi.dmp.gz"] {
        let Some(capture) = shared(name) else { return };
        let out = folder.path().join("out.pcapng");
        write(&[&capture], &out, &some_comments(), |_| true);
        let file = out.to_str().expect("a temporary path is text");
        let fields = ["-T", "fields", "-e", "frame.number", "-e", "frame.comment"];
        let arguments = [&["-r", file, "-Y", "frame.comment"][..], &fields].concat();
        let Some(said) = output("tshark", &arguments) else {
            return;
        };
        assert_eq!(
            said.trim(),
            "2\tfirst finding\n5\tsecond: \"quoted\",third \u{e9}",
            "{name}"
        );
        // Number, encapsulation, first and last time, data size; not the file's own name and size.
        let original = capture.to_str().expect("it is text");
        let info = |file| output("capinfos", &["-cEaedTmr", file]);
        let (Some(before), Some(after)) = (info(original), info(file)) else {
            return;
        };
        let without_name =
            |text: &str| text.trim().split_once(',').map(|(_, rest)| rest.to_owned());
        assert_eq!(without_name(&before), without_name(&after), "{name}");
        assert!(without_name(&after).is_some(), "{after}");
    }
}

/// Comments of the capture itself stay before ours; a second pass keeps the first one's.
#[test]
fn comments_that_were_there_stay() {
    let Some(capture) = shared("packets/tcp_dupack.pcapng") else {
        return;
    };
    let folder = tempfile::tempdir().expect("a folder");
    let [once, twice] = ["once", "twice"].map(|name| folder.path().join(name));
    write(&[&capture], &once, &some_comments(), |_| true);
    let more = Comments::from([(2, vec!["fourth".to_owned()])]);
    write(&[&once], &twice, &more, |_| true);
    let mut read = open(&twice).expect("it opens");
    while read.next().expect("it reads").is_some() {}
    let texts: Vec<&str> = (read.notes().comments.iter())
        .filter(|c| c.on == slowpath_trace::read::CommentOn::Frame(2))
        .map(|c| c.text.as_str())
        .collect();
    assert_eq!(texts, ["first finding", "fourth"]);
}

#[test]
fn several_captures_become_one() {
    let (Some(a), Some(b)) = (
        shared("packets/tcp_dupack.pcapng"),
        shared("packets/latency1.pcapng"),
    ) else {
        return;
    };
    let folder = tempfile::tempdir().expect("a folder");
    let out = folder.path().join("out.pcapng");
    let written = write(&[&a, &b], &out, &Comments::new(), |_| true);
    assert_eq!(
        written.packets as usize,
        packets(&a).len() + packets(&b).len()
    );
    let bytes = |all: Vec<(i64, u32, u32, Vec<u8>)>| -> Vec<_> {
        all.into_iter()
            .map(|(time, wire, _, data)| (time, wire, data))
            .collect()
    };
    let mut both = bytes(packets(&a));
    both.extend(bytes(packets(&b)));
    both.sort();
    let mut one = bytes(packets(&out));
    one.sort();
    assert_eq!(one, both);
}

#[test]
fn what_is_not_wanted_is_left_out() {
    let Some(capture) = shared("tcptrace/psc.fddi.dmp.gz") else {
        return;
    };
    let folder = tempfile::tempdir().expect("a folder");
    let out = folder.path().join("out.pcapng");
    write(&[&capture], &out, &Comments::new(), |frame| frame % 3 == 0);
    let all = packets(&capture);
    let third: Vec<_> = all.into_iter().skip(2).step_by(3).collect();
    assert_eq!(packets(&out), third);
}

/// A capture cut anywhere gives what was whole, and a capture again.
#[test]
fn a_cut_capture_gives_what_was_whole() {
    let Some(capture) = shared("packets/tcp_dupack.pcapng") else {
        return;
    };
    let bytes = std::fs::read(&capture).expect("it reads");
    let folder = tempfile::tempdir().expect("a folder");
    let [cut, out] = ["cut", "out"].map(|name| folder.path().join(name));
    for length in (200..bytes.len()).step_by(97) {
        std::fs::write(&cut, &bytes[..length]).expect("the folder is ours");
        let written = write(&[&cut], &out, &some_comments(), |_| true);
        assert_eq!(packets(&out), packets(&cut), "{length}");
        assert_eq!(written.packets as usize, packets(&cut).len());
    }
}
