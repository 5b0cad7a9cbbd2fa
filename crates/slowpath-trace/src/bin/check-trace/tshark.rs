// SPDX-License-Identifier: Apache-2.0
//! tshark's `tcp.analysis` flags, frame by frame.

use slowpath_trace::tcp::wireshark::Flag;
use std::collections::{BTreeMap, BTreeSet};
use std::path::Path;
use std::process::Command;

/// TCP's header without options.
const HEADER: u32 = 20;

/// Flags of the frames that have any, as tshark names them.
pub type Flagged = BTreeMap<u64, Vec<Flag>>;

/// What tshark says of a capture.
#[derive(Default)]
pub struct TsharkOutput {
    /// The flagged frames.
    pub flagged: Flagged,
    /// All frames with TCP, but for those whose header is none: shorter than TCP's.
    pub frames: u64,
    /// Frames with IP in IP: tunnels, and ICMP errors that quote a segment.
    pub inside: BTreeSet<u64>,
}

/// Runs tshark's two-pass analysis. `Ok(None)`: it is not installed.
pub fn run(capture: &Path) -> Result<Option<TsharkOutput>, String> {
    let mut command = Command::new("tshark");
    command.args(["-n", "-2", "-r"]).arg(capture);
    // Reassembly of what TCP carries changes nothing in the analysis and costs time.
    command.args(["-o", "tcp.desegment_tcp_streams:FALSE"]);
    command.args(["-Y", "tcp", "-T", "fields", "-E", "occurrence=f"]);
    command.args(["-e", "frame.number", "-e", "frame.protocols"]);
    command.args(["-e", "tcp.hdr_len"]);
    for flag in Flag::ALL {
        command.args(["-e", &format!("tcp.analysis.{}", flag.name())]);
    }
    let output = match command.output() {
        Ok(output) => output,
        Err(error) if error.kind() == std::io::ErrorKind::NotFound => return Ok(None),
        Err(error) => return Err(format!("tshark: {error}")),
    };
    let text = String::from_utf8_lossy(&output.stdout);
    let mut said = TsharkOutput::default();
    for line in text.lines() {
        let mut fields = line.split('\t');
        let frame = fields.next().and_then(|f| f.parse::<u64>().ok());
        let (Some(frame), Some(protocols)) = (frame, fields.next()) else {
            return Err(format!("tshark's line {line:?}"));
        };
        let header = fields.next().and_then(|f| f.parse::<u32>().ok());
        if header.is_some_and(|length| length < HEADER) {
            continue;
        }
        said.frames += 1;
        let layers = protocols.split(':');
        if layers.filter(|p| matches!(*p, "ip" | "ipv6")).count() > 1 {
            said.inside.insert(frame);
        }
        let flags: Vec<Flag> = Flag::ALL
            .into_iter()
            .zip(fields)
            .filter(|(_, field)| !field.is_empty())
            .map(|(flag, _)| flag)
            .collect();
        if !flags.is_empty() {
            said.flagged.insert(frame, flags);
        }
    }
    Ok(Some(said))
}
