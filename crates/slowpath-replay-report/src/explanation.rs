// SPDX-License-Identifier: Apache-2.0
//! Why messages of recorded connections were slow.

use crate::end_name;
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

fn shown(everything: bool, messages: &[Explanation]) -> Vec<&Explanation> {
    let all = messages.iter();
    all.filter(|it| everything || it.category != Category::NotSlow)
        .collect()
}

fn ms(time: Duration) -> f64 {
    time.as_secs_f64() * 1e3
}

/// Writes the explanations; slow messages only, unless `everything`.
///
/// # Errors
/// Writing fails.
pub fn write(
    everything: bool,
    recording: &Recording,
    all: &[ConnectionExplanation],
    paint: Paint,
    out: &mut dyn Write,
) -> io::Result<()> {
    for one in all {
        let connection = &recording.connections[one.number];
        let [client, server] = connection.addresses;
        let head = format!("connection {}  {client} -> {server}", one.number);
        match &one.messages {
            Err(reason) => writeln!(out, "{}\n  {reason}", paint.bold(&head))?,
            Ok(messages) => {
                let shown = shown(everything, messages);
                if !shown.is_empty() {
                    writeln!(out, "{}", paint.bold(&head))?;
                }
                for message in shown {
                    message_text(message, out)?;
                }
            }
        }
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
    Ok(())
}

fn message_text(it: &Explanation, out: &mut dyn Write) -> io::Result<()> {
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
        writeln!(
            out,
            "    after {:.3} ms it waited {:.3} ms for {}",
            ms(Duration::from_nanos(from)),
            ms(wait.duration()),
            wait.waited.words()
        )?;
        for link in &wait.links {
            writeln!(out, "      {link}")?;
        }
        match wait.confirmed {
            Some(true) => writeln!(out, "      tried: without that it goes on earlier")?,
            Some(false) => writeln!(out, "      tried: without that nothing changes")?,
            None => {}
        }
    }
    Ok(())
}

/// The explanations as JSON; slow messages only, unless `everything`.
pub fn json(everything: bool, recording: &Recording, all: &[ConnectionExplanation]) -> Value {
    let one = |one: &ConnectionExplanation| {
        let [client, server] = recording.connections[one.number].addresses;
        let messages = one.messages.as_ref();
        ExplainedOutput {
            connection: one.number,
            client: client.to_string(),
            server: server.to_string(),
            messages: messages
                .ok()
                .map(|all| shown(everything, all).into_iter().map(message).collect()),
            error: messages.err().cloned(),
        }
    };
    let sums = sums(all).into_iter();
    value(&ExplanationOutput {
        categories: sums.map(|(it, count)| (it.name(), count)).collect(),
        connections: all.iter().map(one).collect(),
    })
}

fn message(it: &Explanation) -> MessageOutput {
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
        waits: it.waits.iter().map(wait).collect(),
    }
}

fn wait(it: &Wait) -> WaitOutput {
    WaitOutput {
        waited_for: it.waited.name(),
        from_ns: it.from.0,
        milliseconds: ms(it.duration()),
        run: it.run,
        late: it.late,
        confirmed: it.confirmed,
        causes: it.links.iter().map(cause).collect(),
    }
}

fn cause(link: &Link) -> CauseOutput {
    CauseOutput {
        cause: link.name(),
        text: link.to_string(),
    }
}
