// SPDX-License-Identifier: Apache-2.0
//! Clients that are slow or many, and an agent meanwhile.

use crate::client::{Client, head};
use crate::setting::{Fleet, batch, batch_of, wait_until};
use rustix::process::{Resource, Rlimit, getrlimit, setrlimit};
use slowpath_http::sessions::SessionLimits;
use slowpath_server::refusals::Reason;
use slowpath_server::server::LIMITS;
use std::io::{Read, Write};
use std::net::TcpStream;
use std::sync::atomic::Ordering;
use std::time::Duration;

#[test]
fn ten_thousand_idle_connections_hold_up_no_agent() {
    let limit = getrlimit(Resource::Nofile);
    let hard = limit.maximum.unwrap_or(u64::MAX);
    // Both ends are here; the server keeps some 1,300 of its own.
    if hard < 12_000 {
        println!("SKIPPED ten_thousand_idle_connections_hold_up_no_agent: RLIMIT_NOFILE is {hard}");
        return;
    }
    let raised = Rlimit {
        current: Some(hard.min(1 << 20)),
        maximum: limit.maximum,
    };
    setrlimit(Resource::Nofile, raised).unwrap();
    let fleet = Fleet::new();
    let mine = fleet.join("web-1");
    let later = fleet.join("web-2");
    let mut before = fleet.connect(&mine);
    assert_eq!(before.ship(&batch("a")).status, 200);
    let address = fleet.server().address();
    let idle: Vec<TcpStream> = (0..10_000)
        .map(|_| TcpStream::connect(address).unwrap())
        .collect();
    assert_eq!(before.ship(&batch("b")).status, 200);
    assert_eq!(fleet.connect(&later).ship(&batch("a")).status, 200);
    let least = (idle.len() - LIMITS.silent) as u64;
    wait_until(|| fleet.server().refusals().of(Reason::Dropped) >= least);
    assert_eq!(before.ship(&batch("c")).status, 200);
}

#[test]
fn a_byte_a_second_lasts_no_longer_than_the_deadlines() {
    let short = Duration::from_millis(700);
    let fleet = Fleet::with(SessionLimits {
        handshake: short,
        head: short,
        request: short,
        ..LIMITS
    });
    let mine = fleet.join("web-1");
    let other = fleet.join("web-2");
    let mut undisturbed = fleet.connect(&other);
    let address = fleet.server().address();
    // In the handshake: a record of TLS that never ends.
    let handshake = std::thread::spawn(move || {
        let mut stream = TcpStream::connect(address).unwrap();
        for byte in [22, 3, 1, 1].into_iter().chain(std::iter::repeat(0)) {
            if stream.write_all(&[byte]).is_err() {
                break;
            }
            std::thread::sleep(Duration::from_millis(50));
        }
        let mut rest = Vec::new();
        let _ = stream.read_to_end(&mut rest);
    });
    // In the head of a request, and in its body.
    let trickle = |start: String| {
        let mut client = fleet.connect(&mine);
        std::thread::spawn(move || {
            client.write(start.as_bytes()).unwrap();
            while client.write(b"a").is_ok() {
                std::thread::sleep(Duration::from_millis(50));
            }
        })
    };
    let in_head = trickle("POST /v1/batch HTTP/1.1\r\nX: ".to_owned());
    let in_body = trickle(head("POST", "/v1/batch", "Content-Length: 100000\r\n"));
    for thread in [handshake, in_head, in_body] {
        assert_eq!(undisturbed.ship(&batch("a")).status, 200);
        thread.join().unwrap();
    }
    wait_until(|| fleet.server().refusals().of(Reason::Dropped) >= 3);
    assert_eq!(undisturbed.ship(&batch("b")).status, 200);
}

#[test]
fn who_has_no_certificate_gives_way_and_agents_do_not() {
    let fleet = Fleet::with(SessionLimits {
        anonymous: 4,
        ..LIMITS
    });
    let mine = fleet.join("web-1");
    let mut agent = fleet.connect(&mine);
    assert_eq!(agent.ship(&batch("a")).status, 200);
    let address = fleet.server().address();
    let mut all: Vec<Client> = Vec::new();
    for _ in 0..20 {
        let mut client = Client::anonymous(address, &mine.bundle, fleet.now());
        assert_eq!(client.get("/v1/ca").status, 200);
        all.push(client);
    }
    assert!(all[0].end().is_err() || all[0].try_ship(b"").is_err());
    assert_eq!(agent.ship(&batch("b")).status, 200);
}

#[test]
fn a_thousand_connections_of_one_host_hold_up_no_other() {
    let fleet = Fleet::with(SessionLimits {
        sessions: 20,
        ..LIMITS
    });
    let rogue = fleet.join("web-1");
    let mut agent = fleet.connect(&fleet.join("web-2"));
    assert_eq!(agent.ship(&batch("a")).status, 200);
    let mut all = Vec::new();
    for _ in 0..100 {
        let mut client = fleet.connect(&rogue);
        assert_eq!(client.ship(&batch("a")).status, 200);
        all.push(client);
    }
    assert_eq!(agent.ship(&batch("b")).status, 200);
    assert_eq!(
        fleet.connect(&fleet.join("web-3")).ship(&batch("a")).status,
        200
    );
    let status = fleet.server().status();
    assert!(status.running.unwrap().sessions <= 4 + 2);
}

/// Hosts that were away ship large batches, all at once; a live one is not behind all of them.
#[test]
fn a_backlog_of_many_hosts_leaves_room_for_what_is_live() {
    const AT_ONCE: usize = 12;
    let fleet = Fleet::new();
    let intake = &fleet.intake;
    intake.holds.store(true, Ordering::SeqCst);
    let large = batch_of("backlog", 40_000);
    let back: Vec<_> = (0..AT_ONCE + 3)
        .map(|host| fleet.connect(&fleet.join(&format!("web-{host}"))))
        .collect();
    let mut live = fleet.connect(&fleet.join("live"));
    std::thread::scope(|scope| {
        let large = &large;
        let shipped: Vec<_> = back
            .into_iter()
            .map(|mut client| scope.spawn(move || client.ship(large).status))
            .collect();
        wait_until(|| intake.held.lock().unwrap().len() == AT_ONCE);
        assert_eq!(live.ship(&batch("live")).status, 200);
        assert_eq!(intake.held.lock().unwrap().len(), AT_ONCE);
        // All of them are taken in the end.
        intake.holds.store(false, Ordering::SeqCst);
        for (reply, receipt) in std::mem::take(&mut *intake.held.lock().unwrap()) {
            reply(receipt);
        }
        for one in shipped {
            assert_eq!(one.join().unwrap(), 200);
        }
    });
    assert_eq!(fleet.taken(), AT_ONCE + 3 + 1);
}
