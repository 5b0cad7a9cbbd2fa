// SPDX-License-Identifier: Apache-2.0
//! A capture of everything that passes a host's interface, kept in memory.

use crate::RunError;
use slowpath_lab::emulator::{Host, INTERFACE};
use slowpath_trace::live::{Counters, Request, capture};
use slowpath_trace::read::Input;
use std::io::{self, Read};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread::JoinHandle;

/// Bytes of the kernel's ring: two seconds at 16,000 packets a second.
const RING: usize = 8 << 20;

/// Bytes kept of each packet: IPv6, and TCP with all its options.
const SNAP_LENGTH: u32 = 120;

/// A running capture.
pub struct Capture {
    stop: Arc<AtomicBool>,
    counters: Arc<Counters>,
    reader: Option<JoinHandle<io::Result<Vec<u8>>>>,
}

impl Capture {
    /// Captures what passes the interface of `host` from now on.
    ///
    /// # Errors
    /// The kernel refuses.
    pub fn start(host: &Host) -> Result<Self, RunError> {
        let stop = Arc::new(AtomicBool::new(false));
        let mut request = Request::new(INTERFACE);
        request.buffer = RING;
        request.snap_length = SNAP_LENGTH;
        let opened = host
            .run(|| capture(&request, Arc::clone(&stop)))
            .map_err(RunError::io("enter a host"))?;
        let (input, counters) = opened.map_err(|e| RunError::Capture(e.to_string()))?;
        let Input::Stream(_, mut stream) = input else {
            return Err(RunError::Capture("it is no stream".to_owned()));
        };
        let reader = std::thread::Builder::new()
            .name("capture".to_owned())
            .spawn(move || {
                let mut bytes = Vec::new();
                stream.read_to_end(&mut bytes)?;
                Ok(bytes)
            })
            .map_err(RunError::io("start a thread"))?;
        Ok(Capture {
            stop,
            counters,
            reader: Some(reader),
        })
    }

    /// Ends it, and gives it as a pcap file.
    ///
    /// # Errors
    /// It could not be read, or the kernel dropped packets.
    pub fn finish(mut self) -> Result<Vec<u8>, RunError> {
        let bytes = self.end().map_err(RunError::io("read a capture"))?;
        match self.counters.dropped() {
            0 => Ok(bytes),
            lost => Err(RunError::Disturbed(format!(
                "a capture lost {lost} packets"
            ))),
        }
    }

    fn end(&mut self) -> io::Result<Vec<u8>> {
        self.stop.store(true, Ordering::Relaxed);
        match self.reader.take().map(JoinHandle::join) {
            Some(Ok(bytes)) => bytes,
            _ => Err(io::ErrorKind::BrokenPipe.into()),
        }
    }
}

impl Drop for Capture {
    fn drop(&mut self) {
        let _ = self.end();
    }
}
