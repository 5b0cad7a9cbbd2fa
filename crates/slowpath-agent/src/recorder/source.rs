// SPDX-License-Identifier: Apache-2.0
//! Where events come from: the kernel, or a test.

use slowpath_observe::bpf::Programs;
use slowpath_observe::handlers;
use slowpath_replay::recording::Origin;
use slowpath_replay::ring::Joins;
use slowpath_replay::stock::Live;
use std::time::{SystemTime, UNIX_EPOCH};

/// A recorder.
pub trait Source {
    /// The events since the last time.
    ///
    /// # Errors
    /// What the kernel says; nothing more comes then.
    fn take(&mut self) -> Result<Vec<u8>, String>;
    /// Events that were lost so far.
    fn lost(&self) -> u64;
    /// Sockets that were not recorded, because there were too many.
    fn unseen(&self) -> u64 {
        0
    }
    /// Those of one socket, by its key in the events; none: it is not recorded.
    fn lost_of(&self, socket: u64) -> Option<u32>;
    /// Records a socket no longer.
    fn forget(&mut self, socket: u64);
}

/// A recorder that is under way.
pub struct Opened {
    /// The recorder.
    pub source: Box<dyn Source>,
    /// What makes runs of its events.
    pub joins: Box<dyn Joins>,
    /// Where it records.
    pub origin: Origin,
    /// What runs in the kernel for it.
    pub programs: Programs,
}

impl Source for handlers::Recorder {
    fn take(&mut self) -> Result<Vec<u8>, String> {
        handlers::Recorder::take(self).map_err(|error| format!("{error:#}"))
    }

    fn lost(&self) -> u64 {
        self.losses().total()
    }

    fn unseen(&self) -> u64 {
        handlers::Recorder::unseen(self)
    }

    fn lost_of(&self, socket: u64) -> Option<u32> {
        handlers::Recorder::lost_of(self, socket)
    }

    fn forget(&mut self, socket: u64) {
        handlers::Recorder::forget(self, socket);
    }
}

/// The best recorder that this kernel allows, of connections that are opened from now on to or from one of these ports; none: all.
///
/// # Errors
/// Why there is none.
pub fn kernel(ports: &[u16]) -> Result<Opened, String> {
    let recorder = handlers::Recorder::open(ports).map_err(|error| error.to_string())?;
    // It leaves slow start early unless somebody has changed that.
    let hystart = std::fs::read_to_string("/sys/module/tcp_cubic/parameters/hystart");
    let hystart = hystart.map_or(true, |value| value.trim() != "0");
    let release = std::fs::read_to_string("/proc/sys/kernel/osrelease").unwrap_or_default();
    let now = SystemTime::now().duration_since(UNIX_EPOCH);
    let now = now.map_or(0, |since| since.as_nanos() as i64);
    let programs = recorder.programs();
    Ok(Opened {
        programs,
        source: Box::new(recorder),
        joins: Box::new(Live::new(hystart)),
        origin: Origin {
            kernel: release.trim().to_owned(),
            // Connections say it.
            hz: 0,
            epoch: now - slowpath_observe::monotonic().0 as i64,
            recorder: "bpf".to_owned(),
        },
    })
}
