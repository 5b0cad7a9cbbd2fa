// SPDX-License-Identifier: Apache-2.0
//! Why messages were slow, and what a changed setting would have done.

#[cfg(test)]
use schemars::JsonSchema;
use serde::Serialize;
use std::collections::BTreeMap;

/// Why messages were slow.
#[derive(Serialize)]
#[cfg_attr(test, derive(JsonSchema))]
pub(crate) struct ExplanationOutput {
    /// Messages of each category.
    pub categories: BTreeMap<&'static str, u64>,
    /// Each connection.
    pub connections: Vec<ExplainedOutput>,
}

/// A connection's messages.
#[derive(Serialize)]
#[cfg_attr(test, derive(JsonSchema))]
pub(crate) struct ExplainedOutput {
    /// Its number.
    pub connection: usize,
    /// Address and port of the end that connected.
    pub client: String,
    /// Address and port of the end that accepted.
    pub server: String,
    /// Its messages, if they can be explained.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub messages: Option<Vec<MessageOutput>>,
    /// Why they cannot.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub error: Option<String>,
}

/// A message.
#[derive(Serialize)]
#[cfg_attr(test, derive(JsonSchema))]
pub(crate) struct MessageOutput {
    /// The end that sent it.
    pub end: &'static str,
    /// Its number among that end's, from 0.
    pub message: usize,
    /// Its place in the end's bytes.
    pub first_byte: u64,
    /// Its size.
    pub bytes: u64,
    /// When it was written, by the recording's clock.
    pub begun_ns: u64,
    /// How long it took; null: it did not end.
    pub milliseconds: Option<f64>,
    /// What it would take by itself on the path; null: not known.
    pub alone_milliseconds: Option<f64>,
    /// The one as a multiple of the other.
    pub slowdown: Option<f64>,
    /// Why it was slow.
    pub category: &'static str,
    /// Bytes that were retransmitted.
    pub bytes_sent_again: u64,
    /// What it waited for.
    pub waits: Vec<WaitOutput>,
}

/// A wait of a message.
#[derive(Serialize)]
#[cfg_attr(test, derive(JsonSchema))]
pub(crate) struct WaitOutput {
    /// What it waited for.
    #[serde(rename = "for")]
    pub waited_for: &'static str,
    /// From when on, by the recording's clock.
    pub from_ns: u64,
    /// How long.
    pub milliseconds: f64,
    /// The run that ended it.
    pub run: usize,
    /// The first packet that this run sent; null: none.
    pub packet: Option<NamedPacketOutput>,
    /// It was longer than expected.
    pub late: bool,
    /// Whether a replay without the cause goes on earlier; null: not tried.
    pub confirmed: Option<bool>,
    /// The causes, each of the one before it.
    pub causes: Vec<CauseOutput>,
}

/// A cause of a wait.
#[derive(Serialize)]
#[cfg_attr(test, derive(JsonSchema))]
pub(crate) struct CauseOutput {
    /// Its name.
    pub cause: &'static str,
    /// The cause in words.
    pub text: String,
    /// The packets that it names.
    pub packets: Vec<NamedPacketOutput>,
}

/// A packet.
#[derive(Serialize)]
#[cfg_attr(test, derive(JsonSchema))]
pub(crate) struct NamedPacketOutput {
    /// The end that sent it.
    pub end: &'static str,
    /// Its number among that end's, from 0.
    pub packet: usize,
    /// Its number in that end's capture, from 1; null: no capture was written.
    pub frame: Option<u64>,
}

/// What a changed setting would have done to a connection.
#[derive(Serialize)]
#[cfg_attr(test, derive(JsonSchema))]
pub(crate) struct AnswerOutput<'a> {
    /// Its number.
    pub connection: usize,
    /// Packets of each end that are the same.
    pub same_packets: [usize; 2],
    /// The first one that is not; null: none.
    pub departure: Option<DepartureOutput<'a>>,
}

/// The first packet that differs.
#[derive(Serialize)]
#[cfg_attr(test, derive(JsonSchema))]
pub(crate) struct DepartureOutput<'a> {
    /// The end that sends it.
    pub end: &'static str,
    /// Its number among that end's.
    pub packet: usize,
    /// The number of the recorded packet in that end's capture, from 1; null: no capture was written, or it was not sent.
    pub frame: Option<u64>,
    /// Since the end's beginning.
    pub milliseconds: Option<f64>,
    /// The packet as recorded; null: none.
    pub was: Option<HeaderOutput<'a>>,
    /// The packet with the setting changed; null: none.
    pub now: Option<HeaderOutput<'a>>,
}

/// A TCP header.
#[derive(Serialize)]
#[cfg_attr(test, derive(JsonSchema))]
pub(crate) struct HeaderOutput<'a> {
    /// When it was sent.
    pub at_ns: u64,
    /// Its sequence number.
    pub sequence: u32,
    /// Its acknowledgment number; null: it has no ACK.
    pub acknowledgment: Option<u32>,
    /// Its flags, FIN the lowest bit.
    pub flags: u16,
    /// The window as it is in the header.
    pub window: u16,
    /// Bytes of payload.
    pub bytes: u32,
    /// ECN bits of the IP header.
    pub ecn: u8,
    /// Selective acknowledgments, first and behind the last.
    pub sack: &'a [[u32; 2]],
    /// Kinds of its options.
    pub options: Vec<u8>,
}

/// The rest of a message, simulated; or why not.
#[derive(Serialize)]
#[serde(untagged)]
#[cfg_attr(test, derive(JsonSchema))]
pub(crate) enum SimulationOutput<'a> {
    /// It was simulated.
    Simulated(SimulatedOutput),
    /// It was not.
    Refused {
        /// False.
        simulated: bool,
        /// Why not.
        reason: &'a str,
    },
}

/// The rest of a message, simulated.
#[derive(Serialize)]
#[cfg_attr(test, derive(JsonSchema))]
pub(crate) struct SimulatedOutput {
    /// True.
    pub simulated: bool,
    /// What simulated it.
    pub simulator: &'static str,
    /// What that assumes.
    pub assumes: &'static str,
    /// The end that sends the message.
    pub end: &'static str,
    /// Its number.
    pub message: usize,
    /// Bytes that were left.
    pub bytes: u64,
    /// The congestion window there, in packets.
    pub window: u32,
    /// The slow start threshold there, in packets.
    pub slow_start_threshold: Option<u32>,
    /// Of the path.
    pub round_trip_milliseconds: f64,
    /// Of the path; null: not known.
    pub rate_bits_per_second: Option<u64>,
    /// How long the rest takes.
    pub milliseconds: f64,
    /// How long the message takes.
    pub message_milliseconds: f64,
    /// How long it took; null: it did not end.
    pub recorded_message_milliseconds: Option<f64>,
    /// The same, simulated without the change.
    pub control: ControlOutput,
    /// By how much the change makes the message shorter, both simulated; negative: longer.
    pub gain_milliseconds: f64,
}

/// The rest of a message simulated without the change.
#[derive(Serialize)]
#[cfg_attr(test, derive(JsonSchema))]
pub(crate) struct ControlOutput {
    /// How much later than with the change its next packet is sent, where it goes on.
    pub later_milliseconds: f64,
    /// The congestion window there, in packets.
    pub window: u32,
    /// The slow start threshold there, in packets.
    pub slow_start_threshold: Option<u32>,
    /// How long the rest takes.
    pub milliseconds: f64,
    /// How long the message takes.
    pub message_milliseconds: f64,
}
