// SPDX-License-Identifier: Apache-2.0
//! `slowpath path route` as it is called.

mod network;

use clap::Parser;
use network::{row, up};
use serde_json::Value;
use slowpath_path::command::{CommandError, PathCommand, run};
use std::collections::BTreeSet;

#[derive(Parser)]
struct Cli {
    #[command(flatten)]
    path: PathCommand,
}

/// What the command prints.
fn output(arguments: &str) -> Result<String, CommandError> {
    let words = ["slowpath", "route"]
        .into_iter()
        .chain(arguments.split_whitespace());
    let cli = Cli::try_parse_from(words).expect("valid arguments");
    let mut out = Vec::new();
    run(&cli.path, &mut out)?;
    Ok(String::from_utf8(out).expect("text"))
}

#[test]
fn json_has_the_keys_that_the_reference_names() {
    let json = output("127.0.0.1 --json --echo 10 --rounds 1").expect("a trace");
    let route: Value = serde_json::from_str(&json).expect("one object");
    let keys: BTreeSet<&str> = route
        .as_object()
        .expect("an object")
        .keys()
        .map(String::as_str)
        .collect();
    let page = include_str!("../../../docs/reference/path-route.md");
    for key in &keys {
        assert!(page.contains(&format!("`{key}`")), "{key}");
    }
    for key in [
        "peer", "hops", "flows", "loss", "mtu", "ecn", "dscp", "changes",
    ] {
        assert!(keys.contains(key), "{key}");
    }
    assert_eq!(route["protocol"], "udp");
    assert_eq!(route["hops"][0]["ttl"], 1);
    assert_eq!(route["hops"][0]["kind"], "destination");
    assert_eq!(route["hops"][0]["addresses"][0]["address"], "127.0.0.1");
}

#[test]
fn text_says_what_was_found_in_sentences() {
    let more =
        "[[line]]\non = \"r2 -> r3\"\necn = \"clear\"\n[[router]]\non = \"r4\"\nsilent = true\n";
    let Some(lab) = up("text_says_what_was_found_in_sentences", &row(more)) else {
        return;
    };
    let (a, b) = (
        lab.host("a").expect("a host"),
        lab.host("b").expect("a host"),
    );
    let arguments = format!("{} --echo 20", b.ipv4());
    let text = a
        .run(|| output(&arguments))
        .expect("enters")
        .expect("a trace");
    println!("{text}");
    assert!(text.contains("  4  *  answers nothing\n"), "{text}");
    assert!(
        text.contains("ECN changes from ECT(0) to not ECT on the link before hop 3"),
        "{text}"
    );
    assert!(
        text.contains("The way loses nothing: 20 of 20 echo requests were answered."),
        "{text}"
    );
    assert!(text.contains("The path MTU is 1500 octets."), "{text}");
}

#[test]
fn wrong_arguments_are_usage() {
    let error = output("127.0.0.1 --confidence 2").expect_err("no share");
    assert_eq!(error.code(), 2);
    let error = output("::1 -4").expect_err("the other family");
    assert_eq!(error.code(), 1);
    assert!(error.to_string().contains("::1"), "{error}");
}
