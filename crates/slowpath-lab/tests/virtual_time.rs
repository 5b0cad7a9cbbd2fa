// SPDX-License-Identifier: Apache-2.0
//! Scenarios run by the laboratory kernel.

use slowpath_lab::virtual_time::{EventKind, HZ, Kernel, Options, Run, RunError, SOURCE, run};
use slowpath_netsim::results::Results;
use slowpath_netsim::scenario::{Scenario, Substrate};
use slowpath_switch::{Span, Time};
use std::path::{Path, PathBuf};
use std::time::Duration;

fn scenario(text: &str) -> Scenario {
    let none = |_: &str| Err(std::io::ErrorKind::NotFound.into());
    Scenario::parse_for(text, &none, Substrate::VirtualTime).expect("a scenario")
}

/// The kernel, or the reason why the test is skipped.
fn kernel(test: &str) -> Option<Kernel> {
    match Kernel::find(SOURCE, HZ) {
        Ok(kernel) => Some(kernel),
        Err(missing) => {
            println!("SKIPPED {test}: {missing}");
            None
        }
    }
}

fn run_with(kernel: &Kernel, scenario: &Scenario, options: &Options, folder: &Path) -> Run {
    run(kernel, scenario, options, folder, &mut |_| {}).expect("a run")
}

fn run_it(kernel: &Kernel, scenario: &Scenario) -> Run {
    let folder = tempfile::tempdir().expect("a folder");
    run_with(kernel, scenario, &Options::default(), folder.path())
}

/// Two hosts, two switches, three links of 1 Gbit/s and 10 us.
fn dumbbell(rest: &str) -> Scenario {
    scenario(&format!(
        r#"
        duration = "5 s"
        [topology]
        kind = "dumbbell"
        left = 1
        right = 1
        [topology.links]
        rate = "1 Gbit/s"
        delay = "10 us"
        [switch]
        {rest}
        "#
    ))
}

/// When the last byte of the first flow was there.
fn completion(results: &Results) -> Span {
    results.flows[0].completion().expect("it is done")
}

#[test]
fn a_transfer_takes_as_long_as_its_links() {
    let Some(kernel) = kernel("a_transfer_takes_as_long_as_its_links") else {
        return;
    };
    let scenario = dumbbell(
        r#"
        buffer = "1000 packets"
        [[workload]]
        kind = "bulk"
        from = ["left-0"]
        to = ["right-0"]
        bytes = "1460 B"
        "#,
    );
    let run = run_it(&kernel, &scenario);
    // One packet of 1,500 bytes over three links, stored and forwarded: 3 (12 + 10) us.
    assert_eq!(completion(&run.results), Span::from_micros(66));
    // SYN, SYN-ACK, ACK of the warm-up, the packet and its acknowledgment, three links each.
    assert_eq!(run.packets, 5);
    assert_eq!(run.results.conservation.hops, 15);
    assert!(run.results.conservation.holds());
}

#[test]
fn a_long_transfer_fills_the_link() {
    let Some(kernel) = kernel("a_long_transfer_fills_the_link") else {
        return;
    };
    let scenario = dumbbell(
        r#"
        buffer = "1000 packets"
        [[workload]]
        kind = "bulk"
        from = ["left-0"]
        to = ["right-0"]
        bytes = "14600000 B"
        "#,
    );
    for algorithm in ["reno", "cubic", "dctcp", "bbr"] {
        let folder = tempfile::tempdir().expect("a folder");
        let options = Options {
            capture: None,
            algorithm: Some(algorithm.to_owned()),
            ..Options::default()
        };
        let run = run_with(&kernel, &scenario, &options, folder.path());
        // 10,000 packets of 12 us are 120 ms on the line. Nothing is faster, and no other flow is in
        // the way.
        let took = completion(&run.results);
        assert!(took > Span::from_millis(120), "{algorithm}: {took:?}");
        assert!(took < Span::from_millis(140), "{algorithm}: {took:?}");
    }
}

#[test]
fn a_full_buffer_drops_and_linux_repairs() {
    let Some(kernel) = kernel("a_full_buffer_drops_and_linux_repairs") else {
        return;
    };
    let scenario = scenario(
        r#"
        duration = "1 s"
        drain = "5 s"
        [topology]
        kind = "custom"
        hosts = ["a", "b", "c", "d", "sink"]
        switches = ["s"]
        link = [
            { ends = ["a", "s"] }, { ends = ["b", "s"] }, { ends = ["c", "s"] },
            { ends = ["d", "s"] }, { ends = ["sink", "s"] },
        ]
        [topology.links]
        rate = "1 Gbit/s"
        delay = "10 us"
        [switch]
        buffer = "20 packets"
        [tcp]
        algorithm = "newreno"
        [[workload]]
        kind = "incast"
        rate = "10 /s"
        arrivals = "periodic"
        count = 5
        degree = 4
        response = "100 kB"
        to = ["sink"]
        "#,
    );
    let run = run_it(&kernel, &scenario);
    let results = &run.results;
    assert_eq!(results.queries.len(), 5);
    assert!(results.queries.iter().all(|query| query.finish.is_some()));
    // Four initial windows of 10 packets come at once; 20 wait and one is on the line.
    let drops = run
        .events
        .iter()
        .filter(|e| matches!(e.kind, EventKind::Dropped(_)));
    let drops = drops.count() as u64;
    assert!(drops >= 40 - 21 - 10, "{drops}");
    assert_eq!(drops, results.conservation.dropped);
    let resent: u32 = results.flows.iter().map(|flow| flow.retransmissions).sum();
    // Each dropped data packet is sent again, and probes may be too.
    assert!(u64::from(resent) >= drops, "{resent} {drops}");
    assert!(results.conservation.holds());
    let ports: u64 = results.ports.iter().map(|port| port.counters.dropped).sum();
    assert_eq!(ports, drops);
}

/// The files of a folder and what is in them.
fn files(folder: &Path) -> Vec<(String, Vec<u8>)> {
    let mut files: Vec<_> = std::fs::read_dir(folder)
        .expect("a folder")
        .map(|entry| {
            let path = entry.expect("an entry").path();
            let name = path
                .file_name()
                .expect("a name")
                .to_string_lossy()
                .into_owned();
            (name, std::fs::read(&path).expect("a file"))
        })
        .collect();
    files.sort();
    files
}

const FAT_TREE: &str = include_str!("../../../scenarios/lab/fat-tree.toml");

#[test]
fn a_thousand_flows_twice_are_the_same_to_the_byte() {
    let Some(kernel) = kernel("a_thousand_flows_twice_are_the_same_to_the_byte") else {
        return;
    };
    let scenario = scenario(FAT_TREE);
    let runs = [0, 1].map(|_| {
        let folder = tempfile::tempdir().expect("a folder");
        let run = run_with(&kernel, &scenario, &Options::default(), folder.path());
        (run, files(folder.path()))
    });
    let [(first, captures), (second, again)] = &runs;
    let flows = &first.results.flows;
    assert!(flows.len() >= 1000, "{}", flows.len());
    assert!(flows.iter().all(|flow| flow.finish.is_some()));
    // Nothing but a capture for each host.
    assert_eq!(captures.len(), 16);
    for (a, b) in captures.iter().zip(again) {
        assert_eq!(a.0, b.0);
        assert!(a.1 == b.1, "{} differs", a.0);
    }
    assert_eq!(flows, &second.results.flows);
    assert_eq!(first.events, second.events);
    assert_eq!(first.series, second.series);
    // Marks are what DCTCP goes by.
    assert!(
        first
            .events
            .iter()
            .any(|event| event.kind == EventKind::Marked)
    );
    let conservation = &first.results.conservation;
    assert!(conservation.holds(), "{conservation}");
    assert_eq!(conservation.in_network, 0);
    // Every packet is in two captures, unless it was dropped.
    let captured: usize = captures.iter().map(|(_, bytes)| records(bytes)).sum();
    let all = conservation.sent + conservation.delivered;
    assert_eq!(captured as u64, all);
    // Another seed is another run.
    let other = Scenario {
        seed: 8,
        ..scenario
    };
    let other = run_it(&kernel, &other);
    assert_ne!(&other.results.flows, flows);
}

/// How many packets a capture of nanoseconds (magic 0xa1b23c4d) holds.
fn records(pcap: &[u8]) -> usize {
    assert_eq!(pcap[..4], 0xa1b2_3c4d_u32.to_le_bytes());
    let mut rest = &pcap[24..];
    let mut count = 0;
    while !rest.is_empty() {
        let kept = u32::from_le_bytes([rest[8], rest[9], rest[10], rest[11]]) as usize;
        rest = &rest[16 + kept..];
        count += 1;
    }
    count
}

#[test]
fn the_series_of_a_sender_follows_its_connection() {
    let Some(kernel) = kernel("the_series_of_a_sender_follows_its_connection") else {
        return;
    };
    let scenario = dumbbell(
        r#"
        buffer = "1000 packets"
        [[workload]]
        kind = "bulk"
        from = ["left-0"]
        to = ["right-0"]
        bytes = "1460000 B"
        "#,
    );
    let folder = tempfile::tempdir().expect("a folder");
    let options = Options {
        info_every: Some(Span::from_millis(1)),
        ..Options::default()
    };
    let run = run_with(&kernel, &scenario, &options, folder.path());
    // 1,000 packets of 12 us: 12 ms on the line, and slow start before.
    let times: Vec<Time> = run.series.iter().map(|one| one.at).collect();
    assert!(times.len() >= 12, "{times:?}");
    assert!(
        times
            .windows(2)
            .all(|pair| pair[1] - pair[0] == Span::from_millis(1))
    );
    // tcpi_snd_cwnd begins with RFC 6928's ten and never shrinks without a loss.
    let windows: Vec<u32> = run.series.iter().filter_map(|one| one.field(80)).collect();
    assert_eq!(windows[0], 10);
    assert!(
        windows.windows(2).all(|pair| pair[0] <= pair[1]),
        "{windows:?}"
    );
    // tcpi_snd_mss
    assert!(run.series.iter().all(|one| one.field(16) == Some(1460)));
}

#[test]
fn what_linux_cannot_do_is_refused_with_its_key() {
    let none = |_: &str| Err(std::io::ErrorKind::NotFound.into());
    let base = |tcp: &str| {
        format!(
            r#"
            duration = "1 s"
            [topology]
            kind = "dumbbell"
            left = 1
            right = 1
            links = {{ rate = "1 Gbit/s", delay = "1 us" }}
            [switch]
            buffer = "100 packets"
            [tcp]
            {tcp}
            [[workload]]
            kind = "bulk"
            from = ["left-0"]
            to = ["right-0"]
            "#
        )
    };
    // By the reader, with the line.
    for (tcp, key) in [
        ("preset = \"rfc-newreno\"", "tcp.preset"),
        ("algorithm = \"fixed\"", "tcp.algorithm"),
        ("slow-start-limit = 2", "tcp.slow-start-limit"),
    ] {
        let error = Scenario::parse_for(&base(tcp), &none, Substrate::VirtualTime);
        let error = error.expect_err(key);
        assert_eq!(error.key, key);
        assert_eq!(error.line, 11, "{error}");
    }
    // By the values, before any kernel is started.
    let kernel = Kernel {
        path: PathBuf::from("/nowhere"),
        hz: 250,
    };
    let scenario = scenario(&base("rto-min = \"1 ms\""));
    let folder = tempfile::tempdir().expect("a folder");
    let refused = run(
        &kernel,
        &scenario,
        &Options::default(),
        folder.path(),
        &mut |_| {},
    );
    let refused = refused.expect_err("1 ms is less than a tick");
    assert!(refused.to_string().contains("tcp.rto-min"), "{refused}");
    assert!(refused.to_string().contains("LAB_HZ=1000"), "{refused}");
}

/// A program instead of a kernel.
fn fake(folder: &Path, script: &str) -> Kernel {
    use std::os::unix::fs::PermissionsExt;
    let path = folder.join("fake");
    std::fs::write(&path, format!("#!/bin/sh\n{script}\n")).expect("written");
    std::fs::set_permissions(&path, std::fs::Permissions::from_mode(0o755)).expect("a mode");
    Kernel { path, hz: 250 }
}

fn any_scenario() -> Scenario {
    dumbbell(
        r#"
        buffer = "1000 packets"
        [[workload]]
        kind = "bulk"
        from = ["left-0"]
        to = ["right-0"]
        bytes = "1 kB"
        "#,
    )
}

#[test]
fn a_kernel_that_dies_is_reported_with_its_last_words() {
    let programs = tempfile::tempdir().expect("a folder");
    let folder = tempfile::tempdir().expect("a folder");
    let kernel = fake(
        programs.path(),
        "echo 'Kernel panic - not syncing: no'; exit 3",
    );
    let died = run(
        &kernel,
        &any_scenario(),
        &Options::default(),
        folder.path(),
        &mut |_| {},
    );
    let Err(RunError::Died { status, lines }) = died else {
        panic!("{died:?}");
    };
    assert!(status.contains('3'), "{status}");
    assert!(lines.contains("not syncing: no"), "{lines}");
}

#[test]
fn a_kernel_that_falls_silent_is_killed_with_all_it_started() {
    let programs = tempfile::tempdir().expect("a folder");
    let folder = tempfile::tempdir().expect("a folder");
    // It leads a session of its own, as the kernel does, and has a child. The child's number
    // is on the console.
    let kernel = fake(
        programs.path(),
        "exec setsid sh -c 'sleep 1000 & echo $! > child; echo waiting; wait'",
    );
    let options = Options {
        patience: Duration::from_millis(500),
        ..Options::default()
    };
    let hung = run(
        &kernel,
        &any_scenario(),
        &options,
        folder.path(),
        &mut |_| {},
    );
    let Err(RunError::Hung { lines, .. }) = hung else {
        panic!("{hung:?}");
    };
    assert!(lines.contains("waiting"), "{lines}");
    let child = std::fs::read_to_string(folder.path().join("child")).expect("a number");
    let stat = format!("/proc/{}/stat", child.trim());
    // Gone, or dead and not buried: only init can do that. A signal is on its way for a moment.
    let state = || {
        std::fs::read_to_string(&stat).map_or('X', |stat| {
            let (_, after) = stat.rsplit_once(')').expect("a state");
            after.trim().chars().next().expect("a state")
        })
    };
    let patience = std::time::Instant::now() + Duration::from_secs(30);
    while !matches!(state(), 'X' | 'Z') && std::time::Instant::now() < patience {
        std::thread::yield_now();
    }
    let state = state();
    assert!(matches!(state, 'X' | 'Z'), "{state}");
}

#[test]
fn a_missing_kernel_does_not_start() {
    let folder = tempfile::tempdir().expect("a folder");
    let kernel = Kernel {
        path: PathBuf::from("/nowhere/linux"),
        hz: 250,
    };
    let missing = run(
        &kernel,
        &any_scenario(),
        &Options::default(),
        folder.path(),
        &mut |_| {},
    );
    let Err(RunError::Start { path, .. }) = missing else {
        panic!("{missing:?}");
    };
    assert_eq!(path, kernel.path);
}
