// SPDX-License-Identifier: Apache-2.0
//! What slowpath may not, or cannot, see: unknown, with the reason.

use crate::stage::{AT, BOTH, End::Client, PATIENCE, PORT, command, connect, situation};
use rustix::thread::{CapabilitySet, capabilities, set_capabilities};
use slowpath_agent::TierChoice::{Bpf, InetDiag};
use slowpath_agent::{Agent, Config, TierChoice};
use slowpath_model::{Owner, UnknownOwner};
use slowpath_testbed::Namespace;
use std::process::Command;
use std::time::{Duration, Instant};

/// A process of a user whose descriptors this thread may not read any more.
#[test]
fn descriptors_that_may_not_be_read() {
    situation("descriptors_that_may_not_be_read", BOTH, |stage| {
        let (_server, _) = stage.listening("server");
        let mut client = stage.actor("client");
        command(&mut client, "user 65534");
        connect(&mut client);
        let mut sets = capabilities(None).expect("has capabilities");
        let reading = CapabilitySet::SYS_PTRACE
            | CapabilitySet::DAC_READ_SEARCH
            | CapabilitySet::DAC_OVERRIDE;
        sets.effective -= reading;
        sets.permitted -= reading;
        // Of this thread only, which ends with the situation.
        set_capabilities(None, sets).expect("gives them up");
        match stage.tier {
            // The kernel's own walk asks for no such permission.
            Bpf => stage.is(Client, &client),
            _ => stage.is_unknown(Client, UnknownOwner::NoPermission),
        };
    });
}

/// Says in which tier to look when the program is run again in namespaces of its own.
const INSIDE: &str = "SLOWPATH_OWNERS_INSIDE";

/// Runs the test once more below `unshare` with these options.
fn again(test: &str, options: &[&str], tier: TierChoice, namespace: &Namespace) {
    let program = std::env::current_exe().expect("has a path");
    let tier = match tier {
        Bpf => "bpf",
        _ => "inet_diag",
    };
    let inside = namespace
        .command("unshare")
        .expect("makes a command")
        .args(options)
        .arg(program)
        .args([test, "--exact", "--nocapture"])
        .env(INSIDE, tier)
        .output()
        .expect("runs unshare");
    // What it says is this test's to command, not a test's of its own.
    assert!(inside.status.success(), "{tier}: {inside:?}");
}

/// The agent in this process's namespaces, until the client's end is as expected.
fn inside(tier: &str, meanwhile: impl FnOnce(), is: impl Fn(&Owner) -> bool) {
    let mut agent = Agent::start(Config {
        interval: Duration::from_millis(20),
        tier: if tier == "bpf" { Bpf } else { InetDiag },
        seed: Some(1),
        ..Config::default()
    })
    .expect("starts");
    meanwhile();
    let patience = Instant::now() + PATIENCE;
    loop {
        std::thread::sleep(agent.until_next_poll());
        agent.poll().expect("polls");
        let owner = agent
            .connections()
            .find(|c| c.snapshot.tuple.remote.port() == PORT)
            .map(|c| c.owner.clone());
        if owner.as_ref().is_some_and(&is) {
            return;
        }
        assert!(Instant::now() < patience, "{tier}: {owner:?}");
    }
}

#[test]
fn a_holder_outside_the_pid_namespace() {
    if let Ok(tier) = std::env::var(INSIDE) {
        let outside = Some(UnknownOwner::OutsidePidNamespace);
        return inside(&tier, || {}, |o| o.why_unknown() == outside);
    }
    situation("a_holder_outside_the_pid_namespace", BOTH, |stage| {
        let (_server, _) = stage.listening("server");
        let mut client = stage.actor("client");
        connect(&mut client);
        again(
            "unknown::a_holder_outside_the_pid_namespace",
            &["--pid", "--fork", "--kill-child", "--mount-proc"],
            stage.tier,
            stage.namespace,
        );
    });
}

/// `/proc` goes away under a running agent.
#[test]
fn the_look_fails() {
    if let Ok(tier) = std::env::var(INSIDE) {
        let unmount = || {
            let status = Command::new("umount").args(["-l", "/proc"]).status();
            assert!(status.expect("runs umount").success());
        };
        // The kernel's own walk needs no /proc.
        return inside(&tier, unmount, |o| match tier.as_str() {
            "bpf" => o.command().is_some_and(|c| &**c == "client.program"),
            _ => o.why_unknown() == Some(UnknownOwner::LookFailed),
        });
    }
    situation("the_look_fails", BOTH, |stage| {
        let (_server, _) = stage.listening("server");
        let mut client = stage.actor("client");
        command(&mut client, &format!("connect {AT}"));
        let test = "unknown::the_look_fails";
        again(test, &["--mount"], stage.tier, stage.namespace);
    });
}
