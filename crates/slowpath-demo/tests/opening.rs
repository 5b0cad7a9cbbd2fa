// SPDX-License-Identifier: Apache-2.0
//! SYNs and their answers that have to be sent again: what is dropped is counted at the
//! interface, and the agent must say the same.

use slowpath_agent::{Agent, Config, LiveConnection};
use slowpath_model::{Problem, TcpState};
use slowpath_testbed::{
    DropRule, Dropper, LinkOptions, Need, Side, Testbed, attempts, missing_requirements,
};
use std::net::{SocketAddr, TcpListener, TcpStream};
use std::time::{Duration, Instant};

/// How long something may take that is bound to happen: a hang is an error.
const PATIENCE: Duration = Duration::from_secs(20);

/// Which end loses what it is sent while the connection opens.
fn check(what: &str, deaf: Side) {
    if let Some(reason) = missing_requirements(&[Need::Namespaces]) {
        println!("SKIPPED {what}: {reason}");
        return;
    }
    attempts(what, || check_once(what, deaf));
}

fn live(agent: &Agent, netns: u32) -> Option<LiveConnection> {
    let mut all = agent.connections();
    all.find(|c| c.snapshot.id.netns == netns).cloned()
}

/// Polls as the agent wants to until `done`, with patience since `began`.
fn poll_until(agent: &mut Agent, began: Instant, done: impl Fn() -> bool) {
    while !done() {
        assert!(began.elapsed() < PATIENCE);
        std::thread::sleep(agent.until_next_poll());
        agent.poll().expect("polls");
    }
}

/// SYNs and ACKs: what opens a connection.
fn dropped_by(dropper: &Dropper) -> u64 {
    dropper.totals().expect("reads").dropped_without_data
}

fn check_once(what: &str, deaf: Side) {
    let mut agent = match Agent::start(Config {
        interval: Duration::from_millis(200),
        seed: Some(1),
        ..Config::default()
    }) {
        Ok(agent) => agent,
        Err(error) => {
            println!("SKIPPED {what}: {error}");
            return;
        }
    };
    let mut testbed = Testbed::new("opening").expect("makes namespaces");
    testbed
        .add_link(&LinkOptions::default())
        .expect("makes a link");
    let (a, b) = (testbed.namespace(Side::A), testbed.namespace(Side::B));
    let address = testbed.link(0).b_address(Default::default());
    let listener = b
        .run(|| TcpListener::bind(SocketAddr::new(address, 0)))
        .expect("enters")
        .expect("listens");
    let to = listener.local_addr().expect("is bound");
    let interface = testbed.link(0).interface();
    let dropper =
        Dropper::attach(testbed.namespace(deaf), interface, DropRule::default()).expect("attaches");
    agent.poll().expect("polls");

    dropper.set_blackout(true).expect("drops");
    let began = Instant::now();
    let (opened, accepted) = std::thread::scope(|scope| {
        let opening = scope.spawn(|| {
            a.run(|| TcpStream::connect(to))
                .expect("enters")
                .expect("connects")
        });
        poll_until(&mut agent, began, || dropped_by(&dropper) > 0);
        dropper.set_blackout(false).expect("lets through");
        poll_until(&mut agent, began, || opening.is_finished());
        let opened = opening.join().expect("connects");
        (opened, listener.accept().expect("accepts").0)
    });
    let took = began.elapsed();
    agent.poll().expect("polls");
    let dropped = dropped_by(&dropper);

    let number = |side| testbed.namespace(side).inode().expect("has a number");
    let client = live(&agent, number(Side::A)).expect("is live");
    assert_eq!(client.snapshot.stats.state, TcpState::Established);
    let events = client.totals.problem_events;
    println!("{what}: {dropped} dropped, {:?}", client.totals);
    // Every SYN that was dropped, or whose answer was, was sent again; where the answer was
    // lost, the server's own timer may have been the quicker one.
    let again = events[Problem::SynRetransmit as usize];
    let waited = client.totals.problem_time[Problem::SynRetransmit as usize];
    match deaf {
        Side::B => assert_eq!(again, dropped),
        Side::A => assert!(again <= dropped, "{again} {dropped}"),
    }
    if again > 0 {
        // What the last retransmission waited for is clipped to its interval.
        assert!(waited.0 > 0 && Duration::from_micros(waited.0) <= took);
        let dominating = client.totals.dominating(&Default::default());
        assert_eq!(dominating, Problem::SynRetransmit);
    }
    assert_eq!(events[Problem::Timeout as usize], 0, "{:?}", client.totals);
    if deaf == Side::A {
        let server = live(&agent, number(Side::B)).expect("is live");
        let again = server.totals.problem_events[Problem::SynRetransmit as usize];
        assert!(again > 0, "{:?}", server.totals);
    }
    drop((opened, accepted));
}

#[test]
fn a_syn_that_is_lost() {
    check("a SYN that is lost", Side::B);
}

#[test]
fn a_syn_ack_that_is_lost() {
    check("a SYN-ACK that is lost", Side::A);
}
