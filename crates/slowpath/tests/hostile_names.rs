// SPDX-License-Identifier: Apache-2.0
//! What others named does not steer the terminal, wherever it is quoted.

mod command;

use command::{slowpath, text};
use std::fs;
use std::path::Path;

/// Sets a terminal's title, turns text red by ESC and by C1's CSI, reverses the reading order, goes
/// back over the line.
const HOSTILE: &str = "\x1b]0;owned\x07\x1b[31m\u{9b}31m\u{202e}\u{2066}\u{200f}\u{61c}\rx";

/// The same in a TOML string.
const ESCAPED: &str = r#"\u001b]0;owned\u0007\u001b[31m\u009b31m\u202e\u2066\u200f\u061c\rx"#;

/// The characters that steer: written out here, not taken from the code that replaces them.
fn steers(c: char) -> bool {
    let bidirectional = [
        '\u{61c}', '\u{200e}', '\u{200f}', '\u{202a}', '\u{202b}', '\u{202c}', '\u{202d}',
        '\u{202e}', '\u{2066}', '\u{2067}', '\u{2068}', '\u{2069}',
    ];
    c != '\n' && (c < ' ' || ('\u{7f}'..'\u{a0}').contains(&c)) || bidirectional.contains(&c)
}

#[track_caller]
fn is_clean(shown: &[u8]) {
    let shown = text(shown);
    assert!(!shown.contains(steers), "{shown:?}");
}

const SCENARIO: &str = r#"duration = "1 ms"
[topology]
kind = "custom"
hosts = ["HOST", "b"]
switches = ["s"]
[topology.links]
rate = "1 Gbit/s"
delay = "5 us"
[[topology.link]]
ends = ["HOST", "s"]
[[topology.link]]
ends = ["b", "s"]
[switch]
buffer = "100 packets"
[[workload]]
kind = "poisson"
name = "WORKLOAD"
gap = "100 us"
sizes = "20 kB"
"#;

/// A scenario with `to` in the place of `from`, and harmless names elsewhere.
fn scenario(folder: &Path, from: &str, to: &str) -> String {
    let text = SCENARIO.replace(from, to);
    let text = text.replace("HOST", "a").replace("WORKLOAD", "w");
    let file = folder.join(format!("{}.toml", text.len()));
    fs::write(&file, text).unwrap();
    file.to_str().unwrap().to_owned()
}

#[test]
fn errors_quote_nothing_that_steers() {
    let folder = tempfile::tempdir().unwrap();
    let here = folder.path();
    let plain = scenario(here, "", "");
    let rate = scenario(here, "1 Gbit/s", &format!("1 {ESCAPED}"));
    let sizes = scenario(here, "\"20 kB\"", &format!("{{ file = \"{ESCAPED}\" }}"));
    let host = scenario(here, "HOST", ESCAPED);
    let workload = scenario(here, "WORKLOAD", ESCAPED);
    let key = scenario(here, "duration", &format!("\"{ESCAPED}\" = 1\nduration"));
    let config = here.join("agent.toml");
    fs::write(&config, format!("tier = \"{ESCAPED}\"\n")).unwrap();
    let config = config.to_str().unwrap();
    let set = format!("duration={HOSTILE}");
    let set = set.replace('\r', "");
    let path = format!("{}/{HOSTILE}\n", here.display());
    let here = here.to_str().unwrap();
    for arguments in [
        &["watch", "--for", "100ms", HOSTILE][..],
        &["watch", "--for", "100ms", "process", "=", HOSTILE, HOSTILE],
        &["report", "--log", here, "dst", HOSTILE],
        &["report", "--log", &path],
        &["trace", &path],
        &["trace", "--filter", HOSTILE, "/dev/null"],
        &["recording", "info", &path],
        &["why", HOSTILE],
        &["watch", "--interval", HOSTILE],
        &["watch", "--owners", &path],
        &[HOSTILE],
        &["agent", "--check", "--config", config],
        &["sim", &path],
        &["sim", &rate],
        &["sim", &sizes],
        &["sim", &host],
        &["sim", &workload],
        &["sim", &key],
        &["sim", &plain, "--set", &set],
        &["sim", &plain, "--html", &format!("{path}/x")],
        &["queues", here, "--topology", &host],
        &["queues", here, "--topology", &plain, "--address", HOSTILE],
    ] {
        let output = slowpath(arguments);
        assert!(!output.status.success(), "{arguments:?}");
        assert!(!output.stderr.is_empty(), "{arguments:?}");
        is_clean(&output.stderr);
        is_clean(&output.stdout);
    }
}

#[test]
fn errors_quote_no_secret_of_a_url() {
    let folder = tempfile::tempdir().unwrap();
    let config = folder.path().join("agent.toml");
    let url = "ftp://ann:hunter2@collector/p?token=hunter2";
    fs::write(&config, format!("otlp = \"{url}\"\n")).unwrap();
    for arguments in [
        &["agent", "--check", "--otlp", url][..],
        &["agent", "--check", "--config", config.to_str().unwrap()],
        &["report", "--log", url],
    ] {
        let output = slowpath(arguments);
        assert!(!output.status.success(), "{arguments:?}");
        let said = text(&output.stderr);
        assert!(!said.is_empty() && !said.contains("hunter2"), "{said}");
    }
}

#[test]
fn an_error_about_a_path_is_one_line() {
    let output = slowpath(&["trace", "/nonexistent/a\nslowpath: all is well"]);
    assert_eq!(text(&output.stderr).lines().count(), 1);
}

#[test]
fn a_captures_name_is_shown_clean() {
    let folder = tempfile::tempdir().unwrap();
    let capture = folder.path().join(format!("{HOSTILE}\n.pcap"));
    let captures = concat!(env!("CARGO_MANIFEST_DIR"), "/../../captures");
    let from = Path::new(captures).join("refused-2ms.pcap.gz");
    fs::copy(from, &capture).unwrap();
    let page = folder.path().join("page.html");
    let output = slowpath(&[
        "trace",
        capture.to_str().unwrap(),
        "--html",
        page.to_str().unwrap(),
    ]);
    assert!(output.status.success(), "{}", text(&output.stderr));
    let first = text(&output.stdout);
    let first = first.lines().next().unwrap_or_default();
    assert!(first.contains(".pcap: "), "{first:?}");
    is_clean(&output.stdout);
    // Scripts have tabs in none of their lines.
    is_clean(&fs::read(&page).unwrap());
}

#[test]
fn the_simulators_page_loads_nothing() {
    let folder = tempfile::tempdir().unwrap();
    let plain = scenario(folder.path(), "", "");
    let page = folder.path().join("page.html");
    let output = slowpath(&["sim", &plain, "--html", page.to_str().unwrap()]);
    assert!(output.status.success(), "{}", text(&output.stderr));
    let page = fs::read_to_string(&page).unwrap();
    let (head, _) = page.split_once("</head>").unwrap();
    let policy = "http-equiv=\"Content-Security-Policy\" content=\"default-src 'none'; ";
    assert!(head.contains(policy), "{head}");
}
