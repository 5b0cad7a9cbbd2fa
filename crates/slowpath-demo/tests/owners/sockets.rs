// SPDX-License-Identifier: Apache-2.0
//! Kinds of sockets, and ways to make them.

use crate::stage::{
    AT, BOTH,
    End::{Client, ClientAt, Server, ServerOf},
    PATIENCE, PORT, Stage, command, connect, situation, unheld,
};
use slowpath_agent::TierChoice::Bpf;
use slowpath_model::{Origin, TcpState};
use slowpath_testbed::Actor;
use std::net::IpAddr;
use std::time::Instant;

#[test]
fn the_first_subflow_of_mptcp() {
    situation("the_first_subflow_of_mptcp", &[Bpf], |stage| {
        if stage.namespace.sysctl("net.mptcp.enabled", "1").is_err() {
            println!("SKIPPED the_first_subflow_of_mptcp: no MPTCP in this kernel");
            return;
        }
        let mut server = stage.actor("server");
        let listener = command(&mut server, &format!("listen-mptcp {AT}"));
        let mut client = stage.actor("client");
        command(&mut client, &format!("connect-mptcp {AT}"));
        command(&mut server, &format!("accept {listener}"));
        stage.is(Client, &client);
        stage.is(Server, &server);
    });
}

#[test]
fn origins_are_what_they_are() {
    situation("origins_are_what_they_are", &[Bpf], |stage| {
        let (_server, _) = stage.listening("server");
        let mut client = stage.actor("client");
        connect(&mut client);
        stage.is(Client, &client);
        let netns = stage.netns;
        let ends = stage
            .agent
            .connections()
            .filter(|c| c.snapshot.id.netns == netns);
        for end in ends {
            let opened = end.snapshot.tuple.remote.port() == PORT;
            let origin = if opened {
                Origin::Opened
            } else {
                Origin::Accepted
            };
            assert_eq!(end.snapshot.origin, origin);
            assert_eq!(end.snapshot.stats.state, TcpState::Established);
        }
    });
}

/// Whom further subflows belong to: a worker of the kernel opens them.
#[test]
fn further_subflows_of_mptcp() {
    situation("further_subflows_of_mptcp", &[Bpf], |stage| {
        let namespace = stage.namespace;
        let further: IpAddr = [127, 0, 0, 2].into();
        let ready = namespace
            .sysctl("net.mptcp.enabled", "1")
            .and_then(|()| namespace.ip("mptcp limits set subflow 2 add_addr_accepted 2"))
            .and_then(|()| namespace.ip("mptcp endpoint add 127.0.0.2 dev lo subflow"));
        if let Err(error) = ready {
            println!("SKIPPED further_subflows_of_mptcp: {error}");
            return;
        }
        let mut server = stage.actor("server");
        let listener = command(&mut server, &format!("listen-mptcp {AT}"));
        let mut client = stage.actor("client");
        let fd = command(&mut client, &format!("connect-mptcp {AT}"));
        let accepted = command(&mut server, &format!("accept {listener}"));
        // Data has to be acknowledged both ways first (RFC 8684 section 3.2).
        command(&mut client, &format!("write {fd}"));
        command(&mut server, &format!("read {accepted}"));
        command(&mut server, &format!("write {accepted}"));
        command(&mut client, &format!("read {fd}"));
        stage.is(ClientAt(further), &client);
        stage.is(Client, &client);
        let ends = |stage: &Stage<'_>| stage.owners(Server);
        let patience = Instant::now() + PATIENCE;
        while ends(stage).len() < 2 {
            assert!(Instant::now() < patience, "both subflows are observed");
            stage.poll();
        }
        stage.is(Server, &server);
        assert!(ends(stage).iter().all(|o| o.pid() == Some(server.pid())));
    });
}

/// Workers that each listen at the same address (SO_REUSEPORT).
#[test]
fn workers_that_listen_at_one_address() {
    situation("workers_that_listen_at_one_address", BOTH, |stage| {
        let (first, at_first) = stage.listening("first");
        let (second, at_second) = stage.listening("second");
        let mut workers = [
            (first, at_first, Vec::new()),
            (second, at_second, Vec::new()),
        ];
        let mut client = stage.actor("client");
        // The kernel chooses by a hash of the addresses; each gets one sooner or later.
        while workers.iter().any(|w| w.2.is_empty()) {
            let fd = connect(&mut client);
            let port = command(&mut client, &format!("port {fd}"));
            // The last segment of the handshake may still be on its way.
            let patience = Instant::now() + PATIENCE;
            let mut accepts = |(worker, listener, ports): &mut (Actor, i32, Vec<u16>)| {
                let accepted = command(worker, &format!("accept-waiting {listener}")) >= 0;
                ports.extend(accepted.then_some(port as u16));
                accepted
            };
            while !workers.iter_mut().any(&mut accepts) {
                assert!(Instant::now() < patience, "a process accepts");
            }
        }
        for (worker, _, ports) in &workers {
            for port in ports {
                stage.is(ServerOf(*port), worker);
            }
        }
        stage.is(Client, &client);
    });
}

/// Has io_uring do it; `false` where the kernel refuses it, which it says.
fn ring(actor: &mut Actor, command: &str) -> Option<i32> {
    match actor.command(command) {
        Ok(value) => Some(value),
        Err(error) => {
            println!("SKIPPED {command}: {error}");
            None
        }
    }
}

#[test]
fn io_uring_connects() {
    situation("io_uring_connects", BOTH, |stage| {
        let (_server, _) = stage.listening("server");
        for by in ["caller", "worker", "poller"] {
            stage.begin_anew();
            let mut client = stage.actor(by);
            if ring(&mut client, &format!("ring-connect {AT} {by}")).is_some() {
                stage.is(Client, &client);
            }
        }
    });
}

#[test]
fn io_uring_accepts() {
    situation("io_uring_accepts", BOTH, |stage| {
        let (mut server, listener) = stage.listening("server");
        let mut client = stage.actor("client");
        connect(&mut client);
        if ring(&mut server, &format!("ring-accept {listener}")).is_none() {
            return;
        }
        stage.is(Server, &server);
        // In the ring's own table no descriptor stands for it.
        stage.begin_anew();
        connect(&mut client);
        if ring(&mut server, &format!("ring-accept-fixed {listener}")).is_some() {
            stage.is_unknown(Server, unheld(stage.tier));
        }
    });
}

#[test]
fn only_io_uring_keeps_it() {
    situation("only_io_uring_keeps_it", BOTH, |stage| {
        let (_server, _) = stage.listening("server");
        let mut client = stage.actor("client");
        let fd = connect(&mut client);
        stage.is(Client, &client);
        if ring(&mut client, &format!("ring-keep {fd}")).is_some() {
            stage.is_unknown(Client, unheld(stage.tier));
        }
    });
}

#[test]
fn the_kernel_encrypts() {
    situation("the_kernel_encrypts", BOTH, |stage| {
        let (mut server, listener) = stage.listening("server");
        let mut client = stage.actor("client");
        let fd = connect(&mut client);
        let accepted = command(&mut server, &format!("accept {listener}"));
        let tls = client
            .command(&format!("tls {fd}"))
            .and_then(|_| server.command(&format!("tls {accepted}")));
        if let Err(error) = tls {
            println!("SKIPPED the_kernel_encrypts: kTLS: {error}");
            return;
        }
        stage.is(Client, &client);
        stage.is(Server, &server);
    });
}
