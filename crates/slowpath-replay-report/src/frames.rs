// SPDX-License-Identifier: Apache-2.0
//! The frames of written captures. A packet's number counts what its end sent, from 0; a frame's number counts the packets of a file, from 1, as
//! Wireshark and tshark do (`frame.number`).

use crate::end_name;
use crate::output::NamedPacketOutput;
use slowpath_replay::relabel::Packet;
use std::collections::BTreeMap;

/// Frames that are named one by one.
const SHOWN: usize = 6;
/// How to get frames, where no capture is written.
pub const HINT: &str = "packets are numbered from 0, by the end that sent them; --out DIR writes them as captures and gives their frames";

/// Which frame each packet is in the capture of the end that sent it.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Frames {
    /// By connection and end.
    sent: BTreeMap<(usize, u8), Vec<u64>>,
}

impl Frames {
    /// Whether no capture was written.
    pub fn is_empty(&self) -> bool {
        self.sent.is_empty()
    }

    /// Takes in the capture of an end, whose packets are in the order of the file and have the connections' numbers.
    pub(crate) fn add(&mut self, end: u8, packets: &[Packet]) {
        for (packet, frame) in packets.iter().zip(1..) {
            if packet.end == end {
                let key = (packet.connection, end);
                self.sent.entry(key).or_default().push(frame);
            }
        }
    }

    /// The frame of an end's packet, from 1.
    pub fn of(&self, connection: usize, end: u8, packet: usize) -> Option<u64> {
        self.sent.get(&(connection, end))?.get(packet).copied()
    }

    /// `frame 3 of client.pcapng`; nothing without a capture.
    pub(crate) fn name(&self, connection: usize, end: u8, packets: &[usize]) -> Option<String> {
        let frames = packets.iter();
        let frames = frames.filter_map(|packet| self.of(connection, end, *packet));
        let frames: Vec<String> = frames.map(|frame| frame.to_string()).collect();
        let word = match frames.len() {
            0 => return None,
            1 => "frame",
            _ => "frames",
        };
        let mut text = frames[..frames.len().min(SHOWN)].join(", ");
        if frames.len() > SHOWN {
            text += &format!(" and {} more", frames.len() - SHOWN);
        }
        Some(format!("{word} {text} of {}.pcapng", end_name(end)))
    }

    /// A packet as JSON objects name it.
    pub(crate) fn json(&self, connection: usize, end: u8, packet: usize) -> NamedPacketOutput {
        NamedPacketOutput {
            end: end_name(end),
            packet,
            frame: self.of(connection, end, packet),
        }
    }
}
