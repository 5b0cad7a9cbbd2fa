// SPDX-License-Identifier: Apache-2.0
//! What a host without CPU loses is its own loss, never the path's.

mod line;

use line::{Fate, Line, Toward, address, open_server};
use slowpath_path::report::{Note, Reading, of_one_way, text};
use slowpath_path::serve::Serving;
use slowpath_path::session::{TestOptions, measure};
use slowpath_path::time::Span;
use std::fs;
use std::net::SocketAddr;
use std::path::PathBuf;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread;
use std::time::Duration;

/// A control group that gives its threads 5 % of a core; `None` where there is no such controller.
struct Starving(PathBuf);

impl Starving {
    fn new() -> Option<Self> {
        let folder = PathBuf::from(format!("/sys/fs/cgroup/cpu/sp-{}", std::process::id()));
        fs::create_dir(&folder).ok()?;
        let this = Starving(folder);
        fs::write(this.0.join("cpu.cfs_period_us"), "200000").ok()?;
        fs::write(this.0.join("cpu.cfs_quota_us"), "10000").ok()?;
        Some(this)
    }

    /// Puts the calling thread, and those that it starts, into it.
    fn enter(&self) {
        // SAFETY: gettid takes no argument and cannot fail.
        let thread = unsafe { libc::syscall(libc::SYS_gettid) };
        fs::write(self.0.join("tasks"), thread.to_string()).expect("the group takes threads");
    }
}

impl Drop for Starving {
    fn drop(&mut self) {
        let _ = fs::remove_dir(&self.0);
    }
}

#[test]
fn a_starved_receiver_with_a_small_buffer_blames_itself() {
    const NAME: &str = "a_starved_receiver_with_a_small_buffer_blames_itself";
    if let Some(reason) = line::missing() {
        println!("SKIPPED {NAME}: {reason}");
        return;
    }
    let Some(starving) = Starving::new() else {
        println!("SKIPPED {NAME}: no cgroup v1 cpu controller that this process may use");
        return;
    };
    let line = Line::new(Box::new(|_, _| Fate::PASS));
    let bind = SocketAddr::new(address(Line::B4), 861);
    let _serving = line.at(Toward::B, || Serving::start(open_server()).expect("ports"));
    let test = TestOptions {
        packets: 6_000,
        slots: "0.0005f".parse().expect("a schedule"),
        padding: 1_000,
        timeout: Span::from_seconds(4.0).expect("a span"),
        there: false,
        receive_buffer: Some(8_192),
        ..TestOptions::to(bind)
    };
    // What another thread of the group uses is not left for the receiver, however fast the core.
    let ended = AtomicBool::new(false);
    let outcome = line.at(Toward::A, || {
        starving.enter();
        thread::scope(|scope| {
            scope.spawn(|| {
                while !ended.load(Ordering::Relaxed) {
                    std::hint::spin_loop();
                }
            });
            let outcome = measure(&test, &AtomicBool::new(false));
            ended.store(true, Ordering::Relaxed);
            outcome
        })
    });
    let reading = Reading {
        timeout: Duration::from_secs(4),
        ..Reading::default()
    };
    let report = of_one_way(&outcome.expect("a measurement"), &reading);
    let printed = text::report(&report);
    let back = &report.directions[0].summary;
    assert!(
        back.lost_here > 0,
        "8 KiB and 5 % of a core are too little:\n{printed}"
    );
    assert_eq!(back.lost, 0, "{printed}");
    assert!(
        report
            .notes
            .iter()
            .any(|note| matches!(note, Note::BufferFull { .. })),
        "{printed}"
    );
}
