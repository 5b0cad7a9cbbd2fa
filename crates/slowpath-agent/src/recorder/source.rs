// SPDX-License-Identifier: Apache-2.0
//! Where events come from: the kernel, or a test.

use slowpath_observe::bpf::Programs;
use slowpath_recorder::handlers;
use slowpath_recorder::packets::LightRecorder;
use slowpath_recorder::ring::Joins;
use slowpath_recorder::{light, stock};
use slowpath_recording::{Origin, RecorderKind};
use std::time::{SystemTime, UNIX_EPOCH};

/// A recorder.
pub trait EventSource {
    /// The events since the last time.
    ///
    /// # Errors
    /// What the kernel says; nothing more comes then.
    fn take(&mut self) -> Result<Vec<u8>, String>;
    /// Events that were lost so far.
    fn lost(&self) -> u64;
    /// Sockets that were not recorded, because there were too many.
    fn refused(&self) -> u64 {
        0
    }
    /// Sockets that were not recorded, because they speak IPv6 and this recorder does not know it.
    fn ipv6(&self) -> u64 {
        0
    }
    /// Those of one socket, by its key in the events; none: it is not recorded.
    fn lost_of(&self, socket: u64) -> Option<u32>;
    /// Records a socket no longer.
    fn forget(&mut self, socket: u64);
}

/// A recorder that is under way.
pub struct OpenRecorder {
    /// The recorder.
    pub source: Box<dyn EventSource>,
    /// What makes runs of its events.
    pub joins: Box<dyn Joins>,
    /// Where it records.
    pub origin: Origin,
    /// What runs in the kernel for it.
    pub programs: Programs,
}

impl EventSource for handlers::Recorder {
    fn take(&mut self) -> Result<Vec<u8>, String> {
        handlers::Recorder::take(self).map_err(|error| format!("{error:#}"))
    }

    fn lost(&self) -> u64 {
        self.losses().total()
    }

    fn refused(&self) -> u64 {
        handlers::Recorder::unrecorded(self)
    }

    fn lost_of(&self, socket: u64) -> Option<u32> {
        handlers::Recorder::lost_of(self, socket)
    }

    fn forget(&mut self, socket: u64) {
        handlers::Recorder::forget(self, socket);
    }
}

impl EventSource for LightRecorder {
    fn take(&mut self) -> Result<Vec<u8>, String> {
        LightRecorder::take(self).map_err(|error| format!("{error:#}"))
    }

    fn lost(&self) -> u64 {
        self.losses().total()
    }

    fn ipv6(&self) -> u64 {
        LightRecorder::ipv6(self)
    }

    fn lost_of(&self, _: u64) -> Option<u32> {
        None
    }

    // Its programs look sockets up in their own storage: nothing to take out.
    fn forget(&mut self, _: u64) {}
}

/// The best recorder that this kernel allows, of connections that are opened from now on to or from one of these ports; none: all.
///
/// # Errors
/// Why there is none.
pub fn kernel(ports: &[u16]) -> Result<OpenRecorder, String> {
    // It leaves slow start early unless the user has changed that.
    let hystart = std::fs::read_to_string("/sys/module/tcp_cubic/parameters/hystart");
    let hystart = hystart.map_or(true, |value| value.trim() != "0");
    let release = std::fs::read_to_string("/proc/sys/kernel/osrelease").unwrap_or_default();
    let now = SystemTime::now().duration_since(UNIX_EPOCH);
    let now = now.map_or(0, |since| since.as_nanos() as i64);
    let (source, joins, programs, kind): (Box<dyn EventSource>, Box<dyn Joins>, _, _) =
        match handlers::Recorder::open(ports) {
            Ok(recorder) => {
                let programs = recorder.programs();
                let joins = Box::new(stock::Live::new(hystart));
                (Box::new(recorder), joins, programs, RecorderKind::Bpf)
            }
            Err(refused) => {
                // What is missing for this one is missing for both.
                let recorder = LightRecorder::open(ports).map_err(|_| refused.to_string())?;
                let programs = recorder.programs();
                let joins = Box::new(light::Live::new(hystart));
                (
                    Box::new(recorder),
                    joins,
                    programs,
                    RecorderKind::Tracepoints,
                )
            }
        };
    Ok(OpenRecorder {
        source,
        joins,
        programs,
        origin: Origin {
            kernel: release.trim().to_owned(),
            // Connections say it.
            hz: 0,
            epoch: now - slowpath_observe::monotonic().0 as i64,
            recorder: kind,
        },
    })
}
