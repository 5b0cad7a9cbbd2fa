// SPDX-License-Identifier: Apache-2.0
//! `slowpath agent join` and `status`: what they say where there is nothing to join or to show. Joining
//! and shipping are tested in `slowpath-ship`.

use std::process::{Command, Output};

fn agent(arguments: &[&str]) -> Output {
    Command::new(env!("CARGO_BIN_EXE_slowpath"))
        .arg("agent")
        .args(arguments)
        .output()
        .unwrap()
}

fn error(output: &Output) -> String {
    String::from_utf8_lossy(&output.stderr).into_owned()
}

const TOKEN: &str = "sp1.web-17.0000000000000001.00112233445566778899aabbccddeeff.\
                     000102030405060708090a0b0c0d0e0f101112131415161718191a1b1c1d1e1f";

#[test]
fn a_text_that_is_no_token_is_wrong_usage() {
    let output = agent(&["join", "localhost", "--token", "sp1.web-17.short"]);
    assert_eq!(output.status.code(), Some(2));
    assert!(error(&output).contains("slowpath server invite"));
}

#[test]
fn a_server_that_does_not_answer_is_named() {
    let dir = tempfile::tempdir().unwrap();
    // A port that was free a moment ago.
    let port = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
    let server = format!("localhost:{}", port.local_addr().unwrap().port());
    drop(port);
    let state = dir.path().join("identity");
    let output = agent(&[
        "join",
        &server,
        "--token",
        TOKEN,
        "--state",
        state.to_str().unwrap(),
    ]);
    assert_eq!(output.status.code(), Some(1));
    assert!(
        error(&output).contains(&format!("cannot join {server}")),
        "{}",
        error(&output)
    );
    assert!(
        !error(&output).contains("00112233"),
        "no secret in an error"
    );
    assert!(!state.exists());
}

#[test]
fn a_log_that_nothing_ships_has_no_status() {
    let dir = tempfile::tempdir().unwrap();
    let output = agent(&["status", "--log", dir.path().to_str().unwrap()]);
    assert_eq!(output.status.code(), Some(1));
    assert!(
        error(&output).contains("no agent ships the log"),
        "{}",
        error(&output)
    );
}

#[test]
fn a_joined_agent_shows_its_settings_of_shipping() {
    let output = agent(&[
        "--check",
        "--log",
        "/nowhere",
        "--server",
        "fleet.example",
        "--ship-limit",
        "1GiB",
    ]);
    let shown = String::from_utf8(output.stdout).unwrap();
    for line in [
        "server = \"fleet.example:7443\"",
        "server-state = \"/nowhere/identity\"",
        "ship-limit = \"1GiB\"",
        "ship-interval = \"5s\"",
    ] {
        assert!(shown.lines().any(|l| l == line), "{shown}");
    }
}
