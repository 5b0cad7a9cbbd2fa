// SPDX-License-Identifier: Apache-2.0
//! The thread with a recorder that is a script.

use super::requests::KeepRequest;
use super::*;
use slowpath_model::{FourTuple, MonoNanos};
use slowpath_recorder::ring::{Joins, Update};
use slowpath_recorder::stock::NotEvents;
use slowpath_recording::{self as recording, End, Handler, Moment, Origin, Run, Settings};
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

/// Two connections open at once; the first has ended, of the second's socket nothing more is wanted.
#[derive(Default)]
struct Script {
    taken: u64,
    forgotten: Arc<Mutex<Vec<u64>>>,
    fails: bool,
}

impl EventSource for Script {
    fn take(&mut self) -> Result<Vec<u8>, String> {
        self.taken += 1;
        match self.fails && self.taken > 3 {
            true => Err("the kernel has had enough".to_owned()),
            false => Ok(Vec::new()),
        }
    }
    fn lost(&self) -> u64 {
        0
    }
    fn lost_of(&self, _: u64) -> Option<u32> {
        None
    }
    fn forget(&mut self, socket: u64) {
        self.forgotten.lock().unwrap().push(socket);
    }
}

const ADDRESSES: [&str; 2] = ["10.0.0.1:4000", "10.0.0.2:80"];

/// What becomes known, once its gate is open.
struct Joiner(Vec<Update>, Arc<AtomicBool>);

impl Joins for Joiner {
    fn take(&mut self, _: &[u8]) -> Result<u64, NotEvents> {
        Ok(0)
    }
    fn settle(&mut self, _: Moment, _: u64, events: &mut Vec<Update>) {
        if self.1.load(Ordering::Acquire) {
            events.append(&mut self.0);
        }
    }
    fn rest(&self, _: u64) -> Option<[End; 2]> {
        None
    }
    fn bytes(&self, _: u64) -> usize {
        0
    }
    fn forget(&mut self, _: u64) -> Vec<u64> {
        Vec::new()
    }
}

fn run(handler: Handler) -> Run {
    Run {
        at: Moment(1_000_000),
        jiffies: 1,
        handler,
        outcomes: Vec::new(),
        check: Some(1),
    }
}

fn opened(fails: bool, forgotten: Arc<Mutex<Vec<u64>>>, gate: Arc<AtomicBool>) -> OpenRecorder {
    let events = vec![
        Update::Opened {
            number: 1,
            addresses: ADDRESSES.map(|it| it.parse().unwrap()),
            settings: Settings::default(),
            hz: 250,
            at: Moment(1_000_000),
        },
        Update::Runs {
            number: 1,
            end: 0,
            runs: vec![run(Handler::Close)],
        },
        Update::Half {
            socket: 77,
            lives: true,
        },
        Update::Closed {
            number: 1,
            ends: Default::default(),
        },
    ];
    OpenRecorder {
        source: Box::new(Script {
            forgotten,
            fails,
            ..Script::default()
        }),
        joins: Box::new(Joiner(events, gate)),
        programs: Default::default(),
        // The epoch of the recorded clock: 2026-01-02 03:04:05 UTC.
        origin: Origin {
            epoch: 1_767_323_045_000_000_000,
            kernel: "6.12.48+deb13-amd64".to_owned(),
            ..Origin::default()
        },
    }
}

const LABORATORY: Laboratory = Laboratory {
    version: "6.12",
    takes: |_, _| Ok(()),
};

fn start(folder: &std::path::Path, fails: bool) -> (Recorder, Arc<Mutex<Vec<u64>>>) {
    start_gated(folder, fails, Arc::new(AtomicBool::new(true)))
}

/// A recorder of that source that keeps everything.
fn start_opened(
    folder: &std::path::Path,
    open: impl FnOnce() -> Result<OpenRecorder, String> + Send + 'static,
) -> Recorder {
    let options = RecordOptions {
        ring: Options::default(),
        folder: folder.to_owned(),
        folder_bytes: 1 << 20,
        wanted: KeepFilter::new(|_| true),
        laboratory: LABORATORY,
        open: Box::new(open),
    };
    Recorder::start(options, None).unwrap().0
}

fn start_gated(
    folder: &std::path::Path,
    fails: bool,
    gate: Arc<AtomicBool>,
) -> (Recorder, Arc<Mutex<Vec<u64>>>) {
    let forgotten = Arc::default();
    let shared = Arc::clone(&forgotten);
    let open = move || Ok(opened(fails, shared, gate));
    (start_opened(folder, open), forgotten)
}

fn wait(mut done: impl FnMut() -> bool) {
    let end = Instant::now() + Duration::from_secs(20);
    while !done() {
        assert!(Instant::now() < end, "it takes too long");
        std::thread::sleep(Duration::from_millis(5));
    }
}

fn ask(local: &str, remote: &str, reasons: Vec<&'static str>) -> KeepRequest {
    KeepRequest {
        tuple: FourTuple::new(local.parse().unwrap(), remote.parse().unwrap()),
        at: MonoNanos(u64::MAX),
        lives: false,
        reasons,
        owner: Some("nginx".to_owned()),
    }
}

#[test]
fn what_is_asked_for_is_a_file_with_its_reasons_and_what_is_not_there_has_one() {
    let place = tempfile::tempdir().unwrap();
    let folder = place.path().join("kept");
    let (recorder, forgotten) = start(&folder, false);
    wait(|| recorder.state().ring_connections == 1);
    wait(|| *forgotten.lock().unwrap() == [77]);
    let [client, server] = ADDRESSES;
    recorder.keep(vec![
        ask(server, client, vec!["Timeout", "FastRetransmit"]),
        ask("10.9.9.9:1", "10.9.9.9:2", vec!["Timeout"]),
    ]);
    let mut kept = Vec::new();
    wait(|| {
        kept.extend(recorder.kept());
        kept.len() == 2
    });
    let reason = kept[0].file.as_ref().unwrap_err();
    assert!(reason.contains("was not recorded"), "{reason}");
    let file = folder.join("20260102T030405.001Z-10.0.0.1.4000-10.0.0.2.80.rec");
    assert_eq!(kept[1].file, Ok(file.clone()));
    assert_eq!(kept[1].owners, [None, Some("nginx".to_owned())]);
    let decoded = recording::decode(&std::fs::read(&file).unwrap()).unwrap();
    assert_eq!(decoded.connections[0].ends[0].runs.len(), 1);
    let description = std::fs::read(file.with_extension("json")).unwrap();
    let description: serde_json::Value = serde_json::from_slice(&description).unwrap();
    assert_eq!(
        description["reasons"],
        serde_json::json!(["Timeout", "FastRetransmit"])
    );
    assert_eq!(description["opened"], "2026-01-02T03:04:05.001000Z");
    assert_eq!(description["replay"], "exact");
    assert_eq!(kept[1].replay, Some(ReplayKind::Exact));
    let state = recorder.state();
    assert_eq!(
        (state.files, state.counts.saved, state.counts.missing),
        (1, 1, 1)
    );
    assert_eq!(state.ring_connections, 0);
    assert!(recorder.finish().0.is_empty());
}

/// Recorders of connections that end, each after one run of its client; those with these handlers and gaps.
fn start_with(
    folder: &std::path::Path,
    kernel: &'static str,
    clients: Vec<(Handler, Option<u64>)>,
) -> Recorder {
    let mut events = Vec::new();
    for (number, (handler, gap)) in (1..).zip(clients) {
        let client = ([10, 0, 0, 1], 4000 + number as u16).into();
        let end = End {
            runs: vec![run(handler)],
            gap,
            ..End::default()
        };
        events.push(Update::Opened {
            number,
            addresses: [client, ADDRESSES[1].parse().unwrap()],
            settings: Settings::default(),
            hz: 250,
            at: Moment(1_000_000),
        });
        events.push(Update::Closed {
            number,
            ends: [end, End::default()],
        });
    }
    let open = move || {
        Ok(OpenRecorder {
            source: Box::new(Script::default()),
            joins: Box::new(Joiner(events, Arc::new(AtomicBool::new(true)))),
            programs: Default::default(),
            origin: Origin {
                kernel: kernel.to_owned(),
                recorder: RecorderKind::Bpf,
                ..Origin::default()
            },
        })
    };
    start_opened(folder, open)
}

#[test]
fn what_cannot_be_replayed_is_not_kept_and_has_a_reason() {
    let place = tempfile::tempdir().unwrap();
    // TCP_ULP (include/uapi/linux/tcp.h): TLS in the kernel.
    let ulp = Handler::Option {
        level: 6,
        name: 31,
        value: 0,
    };
    let clients = vec![
        (Handler::Close, None),
        (Handler::Close, Some(1)),
        (ulp, None),
    ];
    let recorder = start_with(place.path(), "6.1.0-37-amd64", clients);
    wait(|| recorder.state().counts.ended == 3);
    for port in [4001, 4002, 4003] {
        recorder.keep(vec![ask(
            &format!("10.0.0.1:{port}"),
            ADDRESSES[1],
            vec!["Timeout"],
        )]);
    }
    let (mut kept, state) = recorder.finish();
    kept.sort_by_key(|it| it.addresses);
    let reason = |place: usize| kept[place].file.clone().unwrap_err();
    // Linux 6.1, where replays run on 6.12.
    assert_eq!(kept[0].replay, Some(ReplayKind::OtherKernel));
    let description = kept[0].file.as_ref().unwrap().with_extension("json");
    let description = std::fs::read(description).unwrap();
    let description: serde_json::Value = serde_json::from_slice(&description).unwrap();
    assert_eq!(description["replay"], "other_kernel");
    assert_eq!(
        reason(1),
        "its client is not replayable after event 1: events are missing there"
    );
    assert_eq!(
        reason(2),
        "its client is not replayable after event 0: TCP_ULP"
    );
    assert_eq!((kept.len(), state.files), (3, 1));
    let counts = state.counts;
    assert_eq!((counts.saved, counts.unreplayable), (1, 2));
}

#[test]
fn a_living_connection_is_kept_once_the_recorder_knows_it() {
    let place = tempfile::tempdir().unwrap();
    let gate = Arc::new(AtomicBool::new(false));
    let (recorder, _) = start_gated(place.path(), false, Arc::clone(&gate));
    let [client, server] = ADDRESSES;
    // Observed by a poll that began before the connection opened.
    recorder.keep(vec![KeepRequest {
        at: MonoNanos(0),
        lives: true,
        ..ask(client, server, vec!["chosen"])
    }]);
    // That one waits is known once a later request was answered.
    recorder.keep(vec![ask("10.9.9.9:1", "10.9.9.9:2", vec!["Timeout"])]);
    let mut kept = Vec::new();
    wait(|| {
        kept.extend(recorder.kept());
        !kept.is_empty()
    });
    assert!(kept[0].file.is_err());
    assert_eq!(kept[0].addresses[0], "10.9.9.9:1".parse().unwrap());
    gate.store(true, Ordering::Release);
    wait(|| {
        kept.extend(recorder.kept());
        kept.len() == 2
    });
    assert!(kept[1].file.is_ok(), "{kept:?}");
    assert_eq!(kept[1].reasons, ["chosen"]);
    let counts = recorder.state().counts;
    assert_eq!((counts.saved, counts.missing), (1, 1));
}

#[test]
fn what_is_held_is_kept_if_all_of_it_is_asked_for_and_the_recorder_ends() {
    let place = tempfile::tempdir().unwrap();
    let (recorder, _) = start(place.path(), false);
    wait(|| recorder.state().ring_connections == 1);
    recorder.keep_all("asked");
    let (kept, state) = recorder.finish();
    assert_eq!((state.counts.saved, state.ring_connections), (1, 0));
    assert_eq!(kept.len(), 1);
    assert_eq!(kept[0].reasons, ["asked"]);
    assert!(kept[0].file.is_ok() && !kept[0].lives);
}

#[test]
fn a_recorder_that_fails_says_so_and_one_that_does_not_start() {
    let place = tempfile::tempdir().unwrap();
    let (recorder, _) = start(place.path(), true);
    wait(|| recorder.state().ended.is_some());
    assert_eq!(recorder.state().ended.unwrap(), "the kernel has had enough");
    drop(recorder);
    let options = RecordOptions {
        ring: Options::default(),
        folder: place.path().to_owned(),
        folder_bytes: 1,
        wanted: KeepFilter::new(|_| true),
        laboratory: LABORATORY,
        open: Box::new(|| Err("not here".to_owned())),
    };
    let error = Recorder::start(options, None).err().unwrap();
    assert_eq!(error.to_string(), "not here");
}
