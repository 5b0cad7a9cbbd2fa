// SPDX-License-Identifier: Apache-2.0
//! Packet captures of a link, by tcpdump.

use crate::netns::run_in;
use crate::{Family, Side, Testbed, TestbedError};
use std::fs::File;
use std::io::{self, BufRead, BufReader, Read};
use std::net::{SocketAddr, UdpSocket};
use std::path::{Path, PathBuf};
use std::process::{Child, ChildStderr, Stdio};
use std::time::{Duration, Instant};

/// Discard (RFC 863): no process answers there.
const MARKER_PORT: u16 = 9;

/// Bytes kept of each packet: all headers, no more than a little payload.
const SNAP_LENGTH: &str = "160";

/// A running capture of TCP packets. Dropping it ends it, perhaps incomplete.
#[derive(Debug)]
pub struct Capture {
    child: Child,
    errors: BufReader<ChildStderr>,
    file: PathBuf,
    namespace: File,
    marker_to: SocketAddr,
}

/// What tcpdump says of a capture.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct CaptureSummary {
    /// Packets in the file; the last one is this program's marker, not TCP.
    pub captured: u64,
    /// Packets the kernel could not hand over; the capture is complete if 0.
    pub lost: u64,
}

impl Capture {
    /// Captures what passes one end of the link with that number into `file`, from the return of this
    /// function on. At the sender's end, [`Side::A`], it sees all that is sent, what is
    /// dropped later included.
    ///
    /// # Errors
    /// tcpdump is missing or refuses.
    pub fn start(
        testbed: &Testbed,
        side: Side,
        link: usize,
        file: &Path,
    ) -> Result<Self, TestbedError> {
        let namespace = testbed.namespace(side);
        let link = testbed.link(link);
        let other = match side {
            Side::A => link.b_address(Family::Ipv4),
            Side::B => link.a_address(Family::Ipv4),
        };
        let mut child = namespace
            .command("tcpdump")?
            .args(["-i", link.interface(), "-n", "-U", "-Z", "root"])
            .args(["-s", SNAP_LENGTH, "-B", "16384", "--immediate-mode", "-w"])
            .arg(file)
            .arg(format!("tcp or udp dst port {MARKER_PORT}"))
            .stdin(Stdio::null())
            .stdout(Stdio::null())
            .stderr(Stdio::piped())
            .spawn()
            .map_err(|source| match source.kind() {
                io::ErrorKind::NotFound => TestbedError::ToolMissing {
                    program: "tcpdump".to_owned(),
                    package: "tcpdump",
                },
                _ => TestbedError::io("run", "tcpdump")(source),
            })?;
        let Some(errors) = child.stderr.take() else {
            unreachable!("it was asked for as a pipe");
        };
        let mut capture = Capture {
            child,
            errors: BufReader::new(errors),
            file: file.to_owned(),
            namespace: namespace.file()?,
            marker_to: SocketAddr::new(other, MARKER_PORT),
        };
        let mut said = String::new();
        loop {
            let before = said.len();
            let n = capture
                .errors
                .read_line(&mut said)
                .map_err(TestbedError::io("read from", "tcpdump"))?;
            if n == 0 {
                return Err(TestbedError::Tool {
                    command: format!("tcpdump -i {}", link.interface()),
                    stderr: said.trim().to_owned(),
                });
            }
            if said[before..].contains("listening on") {
                return Ok(capture);
            }
        }
    }

    /// Waits until all that passed before is in the file, and ends the capture.
    ///
    /// # Errors
    /// The marker sent to find the end does not come through in 10 s, or tcpdump does not
    /// say what it captured.
    pub fn stop(mut self) -> Result<CaptureSummary, TestbedError> {
        let marker = format!("slowpath-testbed marker {}", self.child.id());
        let to = self.marker_to;
        let send = || UdpSocket::bind("0.0.0.0:0")?.send_to(marker.as_bytes(), to);
        run_in(&self.namespace, "of a capture", send)?
            .map_err(TestbedError::io("send the marker to", to.to_string()))?;
        let patience = Instant::now() + Duration::from_secs(10);
        while !self.ends_with(marker.as_bytes())? {
            if Instant::now() > patience {
                return Err(TestbedError::Tool {
                    command: "tcpdump".to_owned(),
                    stderr: "the marker is not in the capture after 10 s".to_owned(),
                });
            }
            std::thread::sleep(Duration::from_millis(2));
        }
        // SAFETY: kill takes integers; the child has not been waited for, so the number
        // is still its own.
        unsafe { libc::kill(self.child.id() as i32, libc::SIGINT) };
        let mut said = String::new();
        self.errors
            .read_to_string(&mut said)
            .and_then(|_| self.child.wait())
            .map_err(TestbedError::io("wait for", "tcpdump"))?;
        let number = |what: &str| {
            let line = said.lines().find(|line| line.ends_with(what))?;
            line.split_whitespace().next()?.parse().ok()
        };
        match (number("captured"), number("dropped by kernel")) {
            (Some(captured), Some(lost)) => Ok(CaptureSummary { captured, lost }),
            _ => Err(TestbedError::Oracle {
                program: "tcpdump",
                reason: said,
            }),
        }
    }

    fn ends_with(&self, marker: &[u8]) -> Result<bool, TestbedError> {
        let bytes = std::fs::read(&self.file)
            .map_err(TestbedError::io("read", self.file.to_string_lossy()))?;
        let tail = bytes.len().saturating_sub(4096);
        Ok(bytes[tail..].windows(marker.len()).any(|w| w == marker))
    }
}

impl Drop for Capture {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}
