// SPDX-License-Identifier: Apache-2.0
//! Recordings of two machines, as a user gives them: joined, or a clear reason why not and no file.

mod command;

use command::{slowpath, text};
use serde_json::Value;
use slowpath_recording::{
    End, Handler, Moment, OneSided, Origin, Packet, Recording, Run, decode, encode,
};
use std::collections::BTreeMap;
use std::path::{Path, PathBuf};

fn run(at: u64, handler: Handler) -> Run {
    Run {
        at: Moment(at),
        jiffies: 7,
        handler,
        outcomes: Vec::new(),
        check: Some(1),
    }
}

fn packet(number: u32) -> Handler {
    Handler::Packet {
        number,
        marked: false,
        backlog: false,
        merged: 1,
        truesize: 768,
    }
}

/// A handshake (RFC 9293, 3.5): SYN, SYN-ACK, ACK. The accepting end's clock is a second ahead, each way takes a millisecond.
fn ends(initial: [u32; 2]) -> [OneSided; 2] {
    let [a, b] = initial;
    let sent = |run, id, begins, length, mark| Packet {
        run,
        id,
        begins,
        length,
        mark,
    };
    let syn = sent(0, 70, a, 1, 0);
    let answer = sent(0, 0, b, 1, 9);
    let ack = sent(1, 71, a.wrapping_add(1), 0, 0);
    let second = 1_000_000_000;
    let runs = [
        vec![run(0, Handler::Connect), run(2_000_000, packet(0))],
        vec![
            run(second + 1_000_000, packet(0)),
            run(second + 3_000_000, packet(1)),
        ],
    ];
    let packets = [
        (vec![syn, ack], vec![answer]),
        (vec![answer], vec![syn, ack]),
    ];
    let mut side = 0;
    runs.map(|runs| {
        let (sent, came) = packets[side].clone();
        side += 1;
        OneSided {
            addresses: [([10, 0, 0, 1], 4_000).into(), ([10, 0, 0, 2], 80).into()],
            side: side - 1,
            initial: initial.map(Some),
            sysctls: BTreeMap::new(),
            socket: BTreeMap::new(),
            mtu: 1_500,
            end: End {
                runs,
                digest: 1,
                ..End::default()
            },
            sent,
            came: came.into_iter().map(|it| Packet { run: 0, ..it }).collect(),
        }
    })
}

fn write(folder: &Path, name: &str, end: OneSided) -> PathBuf {
    let recording = Recording {
        origin: Origin {
            kernel: "6.12.117".to_owned(),
            hz: 250,
            epoch: 0,
            recorder: "bpf".into(),
        },
        connections: Vec::new(),
        one_sided: vec![end],
    };
    let path = folder.join(name);
    std::fs::write(&path, encode(&recording).expect("short")).expect("writes");
    path
}

/// Both outputs.
fn said(arguments: &[&str]) -> (Option<i32>, String, String) {
    let output = slowpath(arguments);
    (
        output.status.code(),
        text(&output.stdout),
        text(&output.stderr),
    )
}

#[test]
fn two_recordings_become_one() {
    let folder = tempfile::tempdir().expect("a folder");
    let [client, server] = ends([5, 900]);
    write(folder.path(), "client.rec", client);
    write(folder.path(), "server.rec", server);
    let both = folder.path().join("both.joined");
    let [from, to] = [folder.path(), &both].map(|path| path.to_str().expect("text"));
    // The folder stands for the recordings in it.
    let (code, out, err) = said(&[
        "recording",
        "join",
        from,
        "--out",
        to,
        "--json",
        "--exit-code",
    ]);
    assert_eq!(code, Some(0), "{out} {err}");
    let answer: Value = serde_json::from_str(&out).expect("JSON");
    assert_eq!(
        (&answer["joined"], &answer["alone"]),
        (&1.into(), &Value::Array(Vec::new()))
    );
    let joined = decode(&std::fs::read(&both).expect("reads")).expect("a recording");
    let connection = &joined.connections[0];
    let numbers = connection.ends.iter().flat_map(|end| &end.runs);
    let numbers: Vec<u32> = numbers
        .filter_map(|run| match run.handler {
            Handler::Packet { number, .. } => Some(number),
            _ => None,
        })
        .collect();
    assert_eq!(numbers, [0, 0, 1]);
    let joint = connection.joint.expect("joined");
    assert_eq!(
        (joint.clocks[1].offset, joint.within),
        (-1_000_000_000, Some(1_000_000))
    );
    let (code, out, _) = said(&["recording", "info", to, "--json"]);
    let answer: Value = serde_json::from_str(&out).expect("JSON");
    assert_eq!(
        (code, &answer["joined"], &answer["ends_alone"]),
        (Some(0), &1.into(), &0.into())
    );
}

#[test]
fn ends_of_different_connections_are_refused_by_name() {
    let folder = tempfile::tempdir().expect("a folder");
    let [client, server] = ends([5, 900]);
    let [_, other] = ends([5, 901]);
    let one = write(folder.path(), "one.rec", client);
    let two = write(folder.path(), "two.rec", server);
    let foreign = write(folder.path(), "foreign.rec", other);
    let cut = folder.path().join("cut.rec");
    let whole = std::fs::read(&two).expect("reads");
    std::fs::write(&cut, &whole[..whole.len() - 5]).expect("writes");
    let out = folder.path().join("both.joined");
    let name = |path: &PathBuf| path.to_str().expect("text").to_owned();
    for (files, words) in [
        (
            vec![&one],
            vec!["client of 10.0.0.1:4000", "machine of the server is needed"],
        ),
        (
            vec![&one, &foreign],
            vec!["foreign.rec has the other end's addresses", "proxy"],
        ),
        (
            vec![&one, &one, &two],
            vec!["more than once", "give each recording once"],
        ),
        (
            vec![&one, &cut],
            vec!["server is not replayable after event"],
        ),
    ] {
        let files: Vec<String> = files.into_iter().map(name).collect();
        let files: Vec<&str> = files.iter().map(String::as_str).collect();
        let target = name(&out);
        for arguments in [
            [&["replay"], &files[..]].concat(),
            [&["explain"], &files[..]].concat(),
            [&["recording", "join", "--out", &target], &files[..]].concat(),
        ] {
            let (code, said, err) = said(&arguments);
            assert_eq!((code, said.as_str()), (Some(1), ""), "{arguments:?}: {err}");
            for words in &words {
                assert!(err.contains(words), "{arguments:?}, {words}: {err}");
            }
        }
        assert!(!out.exists(), "nothing was written");
    }
}
