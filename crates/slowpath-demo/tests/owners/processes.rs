// SPDX-License-Identifier: Apache-2.0
//! What processes and threads are and turn into.

use crate::stage::{AT, BOTH, End::Client, PATIENCE, command, connect, situation};
use std::time::Instant;

#[test]
fn threads_call_themselves_what_they_like() {
    situation("threads_call_themselves_what_they_like", BOTH, |stage| {
        let (_server, _) = stage.listening("server");
        let mut client = stage.actor("client");
        command(&mut client, &format!("thread-connect pool-7 {AT}"));
        let owner = stage.is(Client, &client);
        assert_eq!(owner.command().map(|c| &**c), Some("client.program"));
    });
}

#[test]
fn the_thread_that_connected_has_ended() {
    situation("the_thread_that_connected_has_ended", BOTH, |stage| {
        let (_server, _) = stage.listening("server");
        let mut client = stage.actor("client");
        command(&mut client, &format!("thread-connect-end pool-7 {AT}"));
        stage.is(Client, &client);
    });
}

#[test]
fn a_thread_with_a_table_of_its_own() {
    situation("a_thread_with_a_table_of_its_own", BOTH, |stage| {
        let (_server, _) = stage.listening("server");
        let mut client = stage.actor("client");
        let fd = connect(&mut client);
        command(&mut client, &format!("thread-hold {fd}"));
        stage.is(Client, &client);
    });
}

#[test]
fn another_program_after_connecting() {
    situation("another_program_after_connecting", BOTH, |stage| {
        let (_server, _) = stage.listening("server");
        let mut client = stage.actor("client");
        connect(&mut client);
        stage.is(Client, &client);
        client.exec("turned", None).expect("execs");
        let pid = client.pid();
        stage.expect(Client, "is turned", |o| {
            o.pid() == Some(pid) && o.command().is_some_and(|c| &**c == "turned")
        });
    });
}

#[test]
fn a_pid_that_is_given_again() {
    situation("a_pid_that_is_given_again", BOTH, |stage| {
        let (_server, _) = stage.listening("server");
        let mut parent = stage.actor("parent");
        let patience = Instant::now() + PATIENCE;
        let mut attempt = 0;
        let (heir, again) = loop {
            stage.begin_anew();
            let name = |of: &str| format!("{of}{attempt}");
            let mut opener = parent.child("fork", &name("opener")).expect("forks");
            connect(&mut opener);
            let heir = opener.child("fork", &name("heir")).expect("forks");
            let pid = opener.pid();
            opener.exit().expect("exits");
            // Until its parent has taken note of its end the number is not free; then
            // another process may have got it.
            let mut refused = String::new();
            let given = (0..1_000).find_map(|i| {
                let again = parent.child_as(&format!("again{attempt}-{i}"), pid);
                again.map_err(|e| refused = e.to_string()).ok()
            });
            if let Some(again) = given {
                assert_eq!(again.pid(), pid);
                break (heir, again);
            }
            if refused.contains("not permitted") {
                println!("SKIPPED a_pid_that_is_given_again: {refused}");
                return;
            }
            assert!(Instant::now() < patience, "given again: {refused}");
            attempt += 1;
        };
        stage.is(Client, &heir);
        drop(again);
    });
}

/// The innermost number of a process.
fn namespaced(pid: u32) -> Option<u32> {
    let status = std::fs::read_to_string(format!("/proc/{pid}/status")).ok()?;
    let line = status.lines().find(|l| l.starts_with("NSpid:"))?;
    line.split_whitespace().last()?.parse().ok()
}

#[test]
fn a_pid_namespace_of_its_own() {
    situation("a_pid_namespace_of_its_own", BOTH, |stage| {
        let (_server, _) = stage.listening("server");
        let mut outside = stage.actor("outside");
        let mut inside = outside.child("pid-namespace", "inside").expect("clones");
        connect(&mut inside);
        assert_eq!(namespaced(inside.pid()), Some(1));
        stage.is(Client, &inside);
    });
}
