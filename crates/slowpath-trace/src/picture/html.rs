// SPDX-License-Identifier: Apache-2.0
//! One page with the pictures of some connections: zoom, hover, findings that lead to their
//! place. It needs no network and no other file.

use super::pack::{KINDS, MARKS, pack};
use super::{Drawn, Remark};
use crate::segment::{Endpoint, Timestamp};
use crate::tcp::{Cause, Kind, Side};
use slowpath_model::steers;
use slowpath_text::{PAGE_POLICY, html};
use std::fmt::Write as _;
use std::io::{self, Write};
use std::net::IpAddr;

const STYLE: &str = include_str!("page/style.css");
const BODY: &str = include_str!("page/page.html");
const SCRIPTS: [&str; 3] = [
    include_str!("page/data.js"),
    include_str!("page/draw.js"),
    include_str!("page/page.js"),
];

/// Writes the page: its title, a line about the capture, the connections.
///
/// # Errors
/// `out` refuses.
pub fn write(
    title: &str,
    summary: &str,
    connections: &[Drawn<'_>],
    out: &mut dyn Write,
) -> io::Result<()> {
    let shown = html(title);
    write!(
        out,
        "<!DOCTYPE html>\n<html lang=\"en\">\n<head>\n<meta charset=\"utf-8\">\n\
         <meta http-equiv=\"Content-Security-Policy\" content=\"{PAGE_POLICY}\">\n\
         <meta name=\"viewport\" content=\"width=device-width\">\n<title>{shown}</title>\n\
         <style>\n{STYLE}</style>\n</head>\n{BODY}"
    )?;
    for (place, drawn) in connections.iter().enumerate() {
        let packed = pack(drawn.recording);
        writeln!(
            out,
            "<script type=\"text/plain\" id=\"c{place}\">{packed}</script>"
        )?;
    }
    let report = report(title, summary, connections);
    writeln!(out, "<script>\nconst REPORT = {report};\n</script>")?;
    for script in SCRIPTS {
        writeln!(out, "<script>\n{script}</script>")?;
    }
    writeln!(out, "</body>\n</html>")?;
    out.flush()
}

fn report(title: &str, summary: &str, connections: &[Drawn<'_>]) -> String {
    let kinds = list(KINDS.iter().map(|(_, words)| quoted(words)));
    let classes = list(KINDS.iter().map(|(kind, _)| quoted(class(*kind))));
    let letters = list(KINDS.iter().map(|(kind, _)| quoted(letter(*kind))));
    let marks = list(MARKS.iter().map(|words| quoted(words)));
    let connections = list(connections.iter().map(connection));
    format!(
        "{{\"title\":{},\"summary\":{},\"kinds\":{kinds},\"classes\":{classes},\
         \"letters\":{letters},\"marks\":{marks},\"connections\":{connections}}}",
        quoted(title),
        quoted(summary),
    )
}

fn connection(drawn: &Drawn<'_>) -> String {
    let recording = drawn.recording;
    let report = &recording.report;
    let both = [Side::Client, Side::Server];
    let ends = list(both.iter().map(|s| quoted(&endpoint(report.endpoint(*s)))));
    let sent = list(both.iter().map(|s| {
        let data = &report.sent_by(*s).data;
        quoted(&super::scale::quantity(data.bytes as f64, "B"))
    }));
    let mut note = format!("{} segments.", report.packets());
    if recording.joined > 0 {
        let _ = write!(
            note,
            " {} are drawn as one with their neighbours.",
            recording.joined
        );
    }
    if recording.left_out > 0 {
        let _ = write!(note, " The last {} are not drawn.", recording.left_out);
    }
    let begin = recording.begin();
    let findings = list(drawn.remarks.iter().map(|r| remark(r, begin)));
    format!(
        "{{\"number\":{},\"title\":{},\"ends\":{ends},\"sent\":{sent},\"side\":{},\"points\":{},\
         \"note\":{},\"findings\":{findings}}}",
        drawn.number,
        quoted(drawn.title),
        recording.main_side() as u8,
        recording.points.len(),
        quoted(&note),
    )
}

fn remark(remark: &Remark, begin: Timestamp) -> String {
    let since = |t: Timestamp| t.0.saturating_sub(begin.0) as f64 / 1e9;
    let side = remark
        .side
        .map_or("null".to_owned(), |s| (s as u8).to_string());
    format!(
        "{{\"text\":{},\"side\":{side},\"from\":{},\"to\":{},\"frames\":{}}}",
        quoted(&remark.text),
        since(remark.from),
        since(remark.to),
        list(remark.frames.iter().map(u64::to_string)),
    )
}

/// How it is drawn.
fn class(kind: Kind) -> &'static str {
    match kind {
        Kind::Retransmission(_) => "again",
        Kind::OutOfOrder => "order",
        Kind::Reset => "reset",
        Kind::HardwareDuplicate | Kind::KeepAlive | Kind::ZeroWindowProbe => "other",
        _ => "data",
    }
}

/// What stands above it.
pub(super) fn letter(kind: Kind) -> &'static str {
    match kind {
        Kind::Retransmission(Cause::Fast) => "R",
        Kind::Retransmission(Cause::Timeout) => "RTO",
        Kind::Retransmission(Cause::TailLossProbe) => "TLP",
        Kind::Retransmission(_) => "R",
        Kind::OutOfOrder => "O",
        Kind::HardwareDuplicate => "HD",
        Kind::KeepAlive => "KA",
        Kind::ZeroWindowProbe => "P",
        _ => "",
    }
}

/// Address and port, IPv6 in brackets.
pub(super) fn endpoint(end: Endpoint) -> String {
    match end.address {
        IpAddr::V4(address) => format!("{address}:{}", end.port),
        IpAddr::V6(address) => format!("[{address}]:{}", end.port),
    }
}

fn list(items: impl Iterator<Item = String>) -> String {
    let items: Vec<String> = items.collect();
    format!("[{}]", items.join(","))
}

/// A JSON string that may stand in a script: no `<` that could end it.
fn quoted(text: &str) -> String {
    let mut out = String::from("\"");
    for c in text.chars() {
        match c {
            '"' => out.push_str("\\\""),
            '\\' => out.push_str("\\\\"),
            // In a script, so that what it shows cannot be steered either.
            c if steers(c) => out.push('?'),
            c if matches!(c, '<' | '>' | '&') => {
                let _ = write!(out, "\\u{:04x}", u32::from(c));
            }
            c => out.push(c),
        }
    }
    out.push('"');
    out
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_name_cannot_leave_its_string() {
        let hostile = "</script><script>alert(\"x\")\\\n";
        let text = quoted(hostile);
        assert!(!text.contains('<') && !text.contains('\n'));
        assert_eq!(text.matches('"').count(), 4, "{text}");
    }
}
