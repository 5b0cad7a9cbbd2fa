// SPDX-License-Identifier: Apache-2.0
//! What the command says where it is refused something: no root, an unwritable directory.

use std::os::unix::fs::PermissionsExt;
use std::os::unix::process::CommandExt;
use std::process::{Command, Output};

/// Runs the command as a user without any privilege; `None` if this test may not.
fn as_unprivileged_user(test: &str, arguments: &[&str]) -> Option<Output> {
    // The binary may lie where only its owner can reach it.
    let folder = tempfile::tempdir().unwrap();
    std::fs::set_permissions(folder.path(), PermissionsExt::from_mode(0o755)).unwrap();
    let program = folder.path().join("slowpath");
    std::fs::copy(env!("CARGO_BIN_EXE_slowpath"), &program).unwrap();
    let start = || {
        Command::new(&program)
            .args(arguments)
            .env_remove("XDG_STATE_HOME")
            .env("HOME", "/nonexistent")
            .current_dir("/")
            .gid(65_534)
            .uid(65_534)
            .output()
    };
    // A child that another test is just starting holds the copy open until it is replaced.
    let mut output = start();
    while matches!(&output, Err(e) if e.kind() == std::io::ErrorKind::ExecutableFileBusy) {
        std::thread::yield_now();
        output = start();
    }
    match output {
        Ok(output) => Some(output),
        Err(error) => {
            println!("SKIPPED {test}: running as another user: {error}");
            None
        }
    }
}

fn text(output: &Output) -> String {
    format!(
        "{}{}",
        String::from_utf8_lossy(&output.stdout),
        String::from_utf8_lossy(&output.stderr)
    )
}

#[test]
fn without_root_the_next_tier_is_used_and_named() {
    let test = "without_root_the_next_tier_is_used_and_named";
    let Some(output) = as_unprivileged_user(test, &["watch", "--lines", "--for", "300ms"]) else {
        return;
    };
    let said = text(&output);
    assert_eq!(output.status.code(), Some(0), "{said}");
    assert!(said.contains("inet_diag"), "{said}");
    assert!(
        said.contains("DelayedAck"),
        "what it cannot measure: {said}"
    );
}

#[test]
fn without_root_only_bpf_is_an_error_that_names_the_way_out() {
    let test = "without_root_only_bpf_is_an_error_that_names_the_way_out";
    let Some(output) = as_unprivileged_user(test, &["watch", "--tier", "bpf", "--for", "300ms"])
    else {
        return;
    };
    let said = text(&output);
    assert_eq!(output.status.code(), Some(1), "{said}");
    assert!(said.contains("root"), "{said}");
}

#[test]
fn an_unwritable_log_is_an_error_that_names_it() {
    let test = "an_unwritable_log_is_an_error_that_names_it";
    for directory in ["/proc/slowpath", "/dev/null/log"] {
        let arguments = ["up", "--lines", "--for", "300ms", "--log", directory];
        let Some(output) = as_unprivileged_user(test, &arguments) else {
            return;
        };
        let said = text(&output);
        assert_eq!(output.status.code(), Some(1), "{said}");
        assert!(said.contains(directory), "{said}");
    }
}
