// SPDX-License-Identifier: Apache-2.0
//! Why messages of recorded connections were slow.

use crate::end_name;
use crate::frames::{Frames, HINT};
use crate::output::{
    CauseOutput, ExplainedOutput, ExplanationOutput, MessageOutput, WaitOutput, value,
};
use serde_json::Value;
use slowpath_explain::{Category, Explanation, Link, Wait};
use slowpath_recording::Recording;
use slowpath_text::{Paint, plural};
use std::collections::BTreeMap;
use std::io::{self, Write};
use std::time::Duration;

/// The explanations of one connection's messages.
#[derive(Clone, Debug)]
pub struct ConnectionExplanation {
    /// The connection's number.
    pub number: usize,
    /// Its messages, or why it cannot be explained.
    pub messages: Result<Vec<Explanation>, String>,
}

/// How many messages there are of each category.
pub fn sums(all: &[ConnectionExplanation]) -> BTreeMap<Category, u64> {
    let mut sums = BTreeMap::new();
    for message in all
        .iter()
        .filter_map(|one| one.messages.as_ref().ok())
        .flatten()
    {
        *sums.entry(message.category).or_default() += 1;
    }
    sums
}

/// Which messages are shown.
#[derive(Clone, Copy, Debug, Default)]
pub struct Selection {
    /// Those that were not slow, too.
    pub everything: bool,
    /// At most so many, those that lost the most time.
    pub top: Option<usize>,
}

impl Selection {
    /// Messages with their connections, the one that lost the most time first; and how many were left out.
    pub(crate) fn of(self, all: &[ConnectionExplanation]) -> (Vec<(usize, &Explanation)>, usize) {
        let messages = all.iter().flat_map(|one| {
            let messages = one.messages.iter().flatten();
            messages.map(|message| (one.number, message))
        });
        let mut shown: Vec<_> = messages
            .filter(|(_, it)| self.everything || it.category != Category::NotSlow)
            .collect();
        shown.sort_by_key(|(_, message)| std::cmp::Reverse(lost(message)));
        let count = shown.len();
        shown.truncate(self.top.unwrap_or(count));
        let left_out = count - shown.len();
        (shown, left_out)
    }
}

/// What a message took beyond its unimpeded time; one that never arrived lost most.
fn lost(message: &Explanation) -> Duration {
    let took = message.message.duration().unwrap_or(Duration::MAX);
    took.saturating_sub(message.unimpeded.unwrap_or_default())
}

pub(crate) fn ms(time: Duration) -> f64 {
    time.as_secs_f64() * 1e3
}

/// Writes the explanations, the message that lost the most time first.
///
/// # Errors
/// Writing fails.
pub fn write(
    selection: Selection,
    recording: &Recording,
    all: &[ConnectionExplanation],
    frames: &Frames,
    paint: Paint,
    out: &mut dyn Write,
) -> io::Result<()> {
    let head = |number: usize| {
        let [client, server] = recording.connections[number].addresses;
        paint.bold(&format!("connection {number}  {client} -> {server}"))
    };
    for one in all {
        if let Err(reason) = &one.messages {
            writeln!(out, "{}\n  {reason}", head(one.number))?;
        }
    }
    let (shown, left_out) = selection.of(all);
    let mut before = None;
    let named = names_packets(&shown);
    for (number, message) in shown {
        if before.replace(number) != Some(number) {
            writeln!(out, "{}", head(number))?;
        }
        message_text(number, message, frames, out)?;
    }
    if left_out > 0 {
        let more = plural(left_out as u64, "message");
        writeln!(out, "{more} more, which lost less time")?;
    }
    let sums = sums(all);
    let parts: Vec<String> = sums
        .iter()
        .map(|(category, count)| format!("{count} {}", category.words()))
        .collect();
    let total = plural(sums.values().sum(), "message");
    match parts.is_empty() {
        true => writeln!(out, "no messages")?,
        false => writeln!(out, "{}: {}", paint.bold(&total), parts.join(", "))?,
    }
    if named && frames.is_empty() {
        writeln!(out, "{HINT}")?;
    }
    Ok(())
}

/// Whether a cause of one of them names a packet.
pub(crate) fn names_packets(shown: &[(usize, &Explanation)]) -> bool {
    let mut links = shown.iter().flat_map(|(_, message)| message.chain());
    links.any(|link| link.packets().iter().any(|all| !all.is_empty()))
}

/// The frames of the packets that a cause names, in brackets.
fn frames_of(frames: &Frames, number: usize, sender: u8, link: &Link) -> String {
    let ends = [sender, 1 - sender].into_iter().zip(link.packets());
    let named = ends.filter_map(|(end, packets)| frames.name(number, end, packets));
    let named: Vec<String> = named.collect();
    match named.is_empty() {
        true => String::new(),
        false => format!(" [{}]", named.join("; ")),
    }
}

/// The first packet that the run sent which ended a wait.
fn next_packet(wait: &Wait) -> Option<usize> {
    (!wait.sent.is_empty()).then_some(wait.sent.start)
}

pub(crate) fn message_text(
    number: usize,
    it: &Explanation,
    frames: &Frames,
    out: &mut dyn Write,
) -> io::Result<()> {
    let sender = it.message.end;
    let bytes = it.message.bytes.end - it.message.bytes.start;
    write!(
        out,
        "  message {} of the {}: {bytes} bytes",
        it.message.number,
        end_name(it.message.end)
    )?;
    if let Some(took) = it.message.duration() {
        write!(out, " in {:.3} ms", ms(took))?;
    }
    if let Some(single) = it.unimpeded {
        write!(out, ", unimpeded {:.3} ms", ms(single))?;
    }
    writeln!(out, ": {}", it.category.words())?;
    for wait in &it.waits {
        let from = wait.from.0.saturating_sub(it.message.begun.0);
        write!(
            out,
            "    after {:.3} ms it waited {:.3} ms for {}",
            ms(Duration::from_nanos(from)),
            ms(wait.duration()),
            wait.waited.words()
        )?;
        let next = next_packet(wait);
        if let Some(next) = next.and_then(|next| frames.name(number, sender, &[next])) {
            write!(out, "; then it sent {next}")?;
        }
        writeln!(out)?;
        for link in &wait.links {
            let frames = frames_of(frames, number, sender, link);
            writeln!(out, "      {link}{frames}")?;
        }
        match wait.confirmed {
            Some(true) => writeln!(
                out,
                "      tried: in a replay without that the message goes on earlier"
            )?,
            Some(false) => writeln!(out, "      tried: in a replay without that nothing changes")?,
            None => {}
        }
    }
    Ok(())
}

/// The explanations as JSON, in the order of the recording.
pub fn json(
    selection: Selection,
    recording: &Recording,
    all: &[ConnectionExplanation],
    frames: &Frames,
) -> Value {
    let (shown, _) = selection.of(all);
    let one = |one: &ConnectionExplanation| {
        let [client, server] = recording.connections[one.number].addresses;
        let is_shown =
            |message: &&Explanation| shown.iter().any(|(_, it)| std::ptr::eq(*it, *message));
        let messages = one.messages.as_ref();
        ExplainedOutput {
            connection: one.number,
            client: client.to_string(),
            server: server.to_string(),
            messages: messages
                .ok()
                .map(|all| all.iter().filter(is_shown))
                .map(|shown| shown.map(|it| message(one.number, it, frames)).collect()),
            error: messages.err().cloned(),
        }
    };
    let sums = sums(all).into_iter();
    value(&ExplanationOutput {
        categories: sums.map(|(it, count)| (it.name(), count)).collect(),
        connections: all.iter().map(one).collect(),
    })
}

fn message(number: usize, it: &Explanation, frames: &Frames) -> MessageOutput {
    let sender = it.message.end;
    let waits = it.waits.iter();
    MessageOutput {
        end: end_name(it.message.end),
        message: it.message.number,
        first_byte: it.message.bytes.start,
        bytes: it.message.bytes.end - it.message.bytes.start,
        begun_ns: it.message.begun.0,
        milliseconds: it.message.duration().map(ms),
        alone_milliseconds: it.unimpeded.map(ms),
        slowdown: it.slowdown(),
        category: it.category.name(),
        bytes_sent_again: it.sent_again,
        waits: waits.map(|it| wait(number, sender, it, frames)).collect(),
    }
}

fn wait(number: usize, sender: u8, it: &Wait, frames: &Frames) -> WaitOutput {
    let next = next_packet(it);
    let links = it.links.iter();
    WaitOutput {
        waited_for: it.waited.name(),
        from_ns: it.from.0,
        milliseconds: ms(it.duration()),
        run: it.run,
        packet: next.map(|packet| frames.json(number, sender, packet)),
        late: it.late,
        confirmed: it.confirmed,
        causes: links.map(|it| cause(number, sender, it, frames)).collect(),
    }
}

fn cause(number: usize, sender: u8, link: &Link, frames: &Frames) -> CauseOutput {
    let ends = [sender, 1 - sender].into_iter().zip(link.packets());
    let packets = ends.flat_map(|(end, all)| all.iter().map(move |packet| (end, *packet)));
    CauseOutput {
        cause: link.name(),
        text: link.to_string(),
        packets: packets
            .map(|(end, packet)| frames.json(number, end, packet))
            .collect(),
    }
}
