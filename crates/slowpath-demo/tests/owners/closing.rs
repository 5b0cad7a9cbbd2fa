// SPDX-License-Identifier: Apache-2.0
//! Connections that close before a look, or before the next one. The inet_diag tier does not
//! see the first kind at all.

use crate::stage::{
    End::{Client, Server},
    command, connect, situation,
};
use slowpath_agent::TierChoice::Bpf;
use slowpath_model::UnknownOwner;

#[test]
fn a_process_shorter_than_a_look() {
    // The inet_diag tier never sees such a connection.
    situation("a_process_shorter_than_a_look", &[Bpf], |stage| {
        let (mut server, listener) = stage.listening("server");
        stage.poll();
        let mut client = stage.actor("client");
        let pid = client.pid();
        connect(&mut client);
        let fd = command(&mut server, &format!("accept {listener}"));
        client.exit().expect("exits");
        command(&mut server, &format!("close {fd}"));
        let owner = stage.closes(Client);
        assert_eq!(owner.pid(), Some(pid));
        assert_eq!(owner.command().map(|c| &**c), Some("client.program"));
        let owner = stage.closes(Server);
        // Perhaps a look came in between.
        assert!(
            owner.pid() == Some(server.pid())
                || owner.why_unknown() == Some(UnknownOwner::ClosedBeforeLooked),
            "{owner:?}"
        );
    });
}

#[test]
fn handed_on_and_closed_between_two_looks() {
    situation("handed_on_and_closed_between_two_looks", &[Bpf], |stage| {
        let (mut server, listener) = stage.listening("server");
        let mut opener = stage.actor("opener");
        // A look has just been: the next one is a second away.
        let mut other = stage.actor("other");
        connect(&mut other);
        stage.is(Client, &other);
        stage.begin_anew();
        let fd = connect(&mut opener);
        let mut child = opener.child("fork", "child").expect("forks");
        command(&mut opener, &format!("close {fd}"));
        command(&mut child, &format!("close {fd}"));
        drop((other, child, opener));
        command(&mut server, &format!("close {listener}"));
        let owner = stage.closes(Client);
        assert!(
            owner.why_unknown() == Some(UnknownOwner::HandedOn),
            "{owner:?}"
        );
    });
}

#[test]
fn a_closed_connection_names_who_listened() {
    situation("a_closed_connection_names_who_listened", &[Bpf], |stage| {
        let (mut server, listener) = stage.listening("server");
        let mut client = stage.actor("client");
        // A look that sees the listening socket, and the next one a second away.
        connect(&mut client);
        command(&mut server, &format!("accept {listener}"));
        stage.is(Server, &server);
        stage.begin_anew();
        let fd = connect(&mut client);
        let accepted = command(&mut server, &format!("accept {listener}"));
        command(&mut server, &format!("close {accepted}"));
        command(&mut client, &format!("close {fd}"));
        let owner = stage.closes(Server);
        assert_eq!(owner.why_unknown(), Some(UnknownOwner::ClosedBeforeLooked));
        assert_eq!(owner.listener.as_deref(), Some("server.program"));
    });
}

/// A look has named a process; another one closes the connection before the next look.
#[test]
fn passed_on_after_a_look_and_closed_before_the_next() {
    let test = "passed_on_after_a_look_and_closed_before_the_next";
    situation(test, &[Bpf], |stage| {
        let (mut server, listener) = stage.listening("server");
        let mut client = stage.actor("client");
        let fd = connect(&mut client);
        let accepted = command(&mut server, &format!("accept {listener}"));
        stage.is(Client, &client);
        stage.is(Server, &server);
        let mut worker = server.child("fork", "worker").expect("forks");
        command(&mut server, &format!("close {accepted}"));
        command(&mut worker, &format!("close {accepted}"));
        let mut heir = client.child("fork", "heir").expect("forks");
        command(&mut client, &format!("close {fd}"));
        command(&mut heir, &format!("close {fd}"));
        for (end, heir) in [(Server, &worker), (Client, &heir)] {
            let owner = stage.closes(end);
            // Perhaps a look came in between.
            let right = [UnknownOwner::HandedOn, UnknownOwner::HeldBySeveral];
            assert!(
                owner.pid() == Some(heir.pid())
                    || owner.why_unknown().is_some_and(|why| right.contains(&why)),
                "{end:?}: {owner:?}"
            );
        }
    });
}

#[test]
fn closed_by_whom_a_look_had_named() {
    situation("closed_by_whom_a_look_had_named", &[Bpf], |stage| {
        let (mut server, listener) = stage.listening("server");
        let mut client = stage.actor("client");
        let fd = connect(&mut client);
        let accepted = command(&mut server, &format!("accept {listener}"));
        stage.is(Client, &client);
        stage.is(Server, &server);
        command(&mut server, &format!("close {accepted}"));
        command(&mut client, &format!("close {fd}"));
        assert_eq!(stage.closes(Server).pid(), Some(server.pid()));
        assert_eq!(stage.closes(Client).pid(), Some(client.pid()));
    });
}
