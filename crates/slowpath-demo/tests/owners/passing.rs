// SPDX-License-Identifier: Apache-2.0
//! Sockets that processes inherit, share and pass on.

use crate::stage::{
    AT, BOTH,
    End::{Client, Server},
    TestCgroup, command, connect, situation, unheld, unique,
};
use slowpath_agent::TierChoice::Bpf;
use slowpath_model::UnknownOwner;

#[test]
fn fork_and_pass() {
    situation("fork_and_pass", BOTH, |stage| {
        let (_server, _) = stage.listening("server");
        let mut opener = stage.actor("opener");
        let fd = connect(&mut opener);
        let child = opener.child("fork", "child").expect("forks");
        if stage.tier == Bpf {
            stage.is(Client, &opener);
        } else {
            // No process was observed opening it.
            stage.is_unknown(Client, UnknownOwner::HeldBySeveral);
        }
        command(&mut opener, &format!("close {fd}"));
        stage.is(Client, &child);
    });
}

#[test]
fn a_server_that_forks_for_each_connection() {
    situation("a_server_that_forks_for_each_connection", BOTH, |stage| {
        let (mut server, listener) = stage.listening("server");
        let mut client = stage.actor("client");
        connect(&mut client);
        let fd = command(&mut server, &format!("accept {listener}"));
        stage.is(Server, &server);
        let worker = server.child("fork", "worker").expect("forks");
        command(&mut server, &format!("close {fd}"));
        stage.is(Server, &worker);
        stage.is(Client, &client);
    });
}

#[test]
fn passed_over_a_unix_socket() {
    situation("passed_over_a_unix_socket", BOTH, |stage| {
        let (_server, _) = stage.listening("server");
        let mut opener = stage.actor("opener");
        let pair = command(&mut opener, "pair");
        let mut other = opener.child("fork", "other").expect("forks");
        let fd = connect(&mut opener);
        command(&mut opener, &format!("pass {} {fd}", pair / 1_000));
        stage.is(Client, &opener);
        command(&mut opener, &format!("close {fd}"));
        let on_its_way = match stage.tier {
            Bpf => UnknownOwner::InFlight,
            _ => unheld(stage.tier),
        };
        stage.is_unknown(Client, on_its_way);
        command(&mut other, &format!("receive {}", pair % 1_000));
        stage.is(Client, &other);
    });
}

#[test]
fn accepts_in_one_process_and_serves_in_another() {
    situation(
        "accepts_in_one_process_and_serves_in_another",
        BOTH,
        |stage| {
            let mut front = stage.actor("front");
            let pair = command(&mut front, "pair");
            let mut worker = front.child("fork", "worker").expect("forks");
            let listener = command(&mut front, &format!("listen {AT}"));
            let mut client = stage.actor("client");
            connect(&mut client);
            stage.is_unknown(Server, UnknownOwner::NotAccepted);
            let fd = command(&mut front, &format!("accept {listener}"));
            command(&mut front, &format!("pass {} {fd}", pair / 1_000));
            command(&mut worker, &format!("receive {}", pair % 1_000));
            stage.is_unknown(Server, UnknownOwner::HeldBySeveral);
            command(&mut front, &format!("close {fd}"));
            stage.is(Server, &worker);
        },
    );
}

#[test]
fn a_service_manager_keeps_the_socket_that_it_accepted() {
    let test = "a_service_manager_keeps_the_socket_that_it_accepted";
    situation(test, BOTH, |stage| {
        let slice = unique("activation.slice");
        let Some(init) = TestCgroup::new(test, &format!("{slice}/init.scope")) else {
            return;
        };
        let unit = init.0[0].join("echo@1.service");
        std::fs::create_dir(&unit).expect("makes a cgroup");
        let unit = TestCgroup(vec![unit]);
        let (mut manager, listener) = stage.listening("manager");
        command(&mut manager, &format!("join {}", init.path().display()));
        let mut client = stage.actor("client");
        connect(&mut client);
        let fd = command(&mut manager, &format!("accept {listener}"));
        let mut service = manager.child("fork", "service").expect("forks");
        command(&mut service, &format!("join {}", unit.path().display()));
        service.exec("served", None).expect("execs");
        let owner = stage.is(Server, &service);
        assert_eq!(owner.unit().map(|u| &**u), Some("echo@1.service"));
        if stage.tier == Bpf {
            // The manager lets go of it when the service has ended: who that was is known
            // still, unless a look came in between that met only the manager.
            let (pid, of_manager) = (service.pid(), manager.pid());
            command(&mut service, &format!("close {fd}"));
            command(&mut manager, &format!("close {fd}"));
            let closed = stage.closes(Server).pid();
            assert!(
                closed == Some(pid) || closed == Some(of_manager),
                "{closed:?}"
            );
        }
        drop((manager, client, service));
        drop(unit);
    });
}

#[test]
fn a_service_accepts_from_a_socket_that_its_manager_made() {
    situation(
        "a_service_accepts_from_a_socket_that_its_manager_made",
        BOTH,
        |stage| {
            let (mut manager, listener) = stage.listening("manager");
            let mut service = manager.child("fork", "service").expect("forks");
            let mut client = stage.actor("client");
            connect(&mut client);
            command(&mut service, &format!("accept {listener}"));
            stage.is(Server, &service);
        },
    );
}

#[test]
fn inetd_hands_over_standard_input() {
    situation("inetd_hands_over_standard_input", BOTH, |stage| {
        let (mut inetd, listener) = stage.listening("inetd");
        let mut client = stage.actor("client");
        connect(&mut client);
        let fd = command(&mut inetd, &format!("accept {listener}"));
        let mut served = inetd.child("fork", "served").expect("forks");
        command(&mut inetd, &format!("close {fd}"));
        served.exec("in.served", Some(fd)).expect("execs");
        let pid = served.pid();
        let owner = stage.expect(Server, "is in.served", |o| {
            o.pid() == Some(pid) && o.command().is_some_and(|c| &**c == "in.served")
        });
        let line = &owner.process().expect("is known").command_line;
        let words: Vec<&str> = line.as_deref().expect("has one").split(' ').collect();
        assert!(words[0].ends_with("in.served"), "{words:?}");
    });
}

#[test]
fn a_daemon_forks_twice() {
    situation("a_daemon_forks_twice", BOTH, |stage| {
        let (_server, _) = stage.listening("server");
        let mut first = stage.actor("first");
        connect(&mut first);
        let mut second = first.child("fork", "second").expect("forks");
        first.exit().expect("exits");
        command(&mut second, "setsid");
        let third = second.child("fork", "third").expect("forks");
        second.exit().expect("exits");
        stage.is(Client, &third);
    });
}

#[test]
fn the_opener_is_killed_and_another_holds_on() {
    situation("the_opener_is_killed_and_another_holds_on", BOTH, |stage| {
        let (_server, _) = stage.listening("server");
        let mut opener = stage.actor("opener");
        connect(&mut opener);
        let child = opener.child("fork", "child").expect("forks");
        // Its drop kills it.
        drop(opener);
        stage.is(Client, &child);
    });
}

#[test]
fn processes_that_share_a_table() {
    situation("processes_that_share_a_table", BOTH, |stage| {
        let (mut server, listener) = stage.listening("server");
        let mut client = stage.actor("client");
        let _sharer = client.child("share", "sharer").expect("clones");
        connect(&mut client);
        let _partner = server.child("share", "partner").expect("clones");
        command(&mut server, &format!("accept {listener}"));
        stage.is_unknown(Server, UnknownOwner::HeldBySeveral);
        match stage.tier {
            Bpf => stage.is(Client, &client),
            _ => stage.is_unknown(Client, UnknownOwner::HeldBySeveral),
        };
    });
}

#[test]
fn duplicates_of_a_descriptor() {
    situation("duplicates_of_a_descriptor", BOTH, |stage| {
        let (_server, _) = stage.listening("server");
        let mut client = stage.actor("client");
        let fd = connect(&mut client);
        command(&mut client, &format!("dup {fd}"));
        stage.is(Client, &client);
        command(&mut client, &format!("close {fd}"));
        stage.is(Client, &client);
    });
}
