// SPDX-License-Identifier: Apache-2.0
//! Events of the recorder, whatever they are: no panic, and what fits nowhere is counted.

use proptest::prelude::*;
use slowpath_recorder::stock::{Host, Joined, Joiner, NotEvents};
use slowpath_recording::{Connection, Handler, Outcome, Refused, Timer};

mod events;
use events::Raw;
use events::kind::{OPEN, REQUEST, SETTINGS};

/// One event with its length before it: kind, task, end, and any numbers.
fn event() -> impl Strategy<Value = Vec<u8>> {
    let head = (0u64..1 << 40, 0u64..3, 1u8..=25, 0u8..9);
    let tail = (any::<bool>(), 0u8..2, any::<[u32; 8]>(), any::<u8>());
    (head, tail).prop_map(|((at, socket, kind, what), (owned, end, words, state))| {
        let [a, b, c, d, like, more, lost, noted] = words;
        let raw = Raw {
            at,
            socket,
            jiffies: 1,
            task: 7,
            kind,
            what,
            owned,
            end,
            words: [a, b, c, d],
            noted,
            like,
            more,
            lost,
            state,
            addresses: [[a as u8 % 3; 16]; 2],
            found: None,
        };
        raw.bytes()
    })
}

fn join(events: &[u8]) -> Result<Joined, NotEvents> {
    let mut joiner = Joiner::default();
    joiner.take(events)?;
    Ok(joiner.finish(Host::default()))
}

proptest! {
    #[test]
    fn any_events_are_joined_or_counted(events in prop::collection::vec(event(), 0..200)) {
        let all = events.concat();
        let joined = join(&all).expect("whole events");
        prop_assert!(joined.unplaced <= events.len() as u64);
        // Cut inside an event.
        if let Some(cut) = all.len().checked_sub(1) {
            prop_assert!(join(&all[..cut]).is_err());
        }
    }

    #[test]
    fn any_bytes_do_no_harm(bytes in prop::collection::vec(any::<u8>(), 0..500)) {
        let _ = join(&bytes);
    }
}

/// An event of the stories below, beside its kind and its socket: 1 connects, 2 accepts.
#[derive(Default)]
struct StoryEvent {
    what: u8,
    owned: bool,
    task: u32,
    a: u32,
    b: u32,
    /// Of a packet: its flags of TCP.
    flags: u8,
    like: u32,
    more: u32,
}

fn bytes(at: u64, kind: u8, socket: u64, it: StoryEvent) -> Vec<u8> {
    let server = socket == 2;
    let ports = match server {
        false => [4000, 5000u16],
        true => [5000, 4000],
    };
    let d = match kind {
        OPEN | REQUEST => u32::from(ports[1].to_be()),
        _ => u32::from(it.flags) << 24,
    };
    let ends = [1, 2].map(|last| u128::to_be_bytes(0xfd00 << 112 | last));
    let raw = Raw {
        at,
        socket,
        jiffies: 1,
        task: it.task,
        kind,
        what: it.what,
        owned: it.owned,
        end: server.into(),
        words: [it.a, it.b, u32::from(ports[0]), d],
        like: it.like,
        more: it.more,
        addresses: if server { [ends[1], ends[0]] } else { ends },
        ..Raw::default()
    };
    raw.bytes()
}

/// The only connection of a story in which everything fits.
fn joined(story: Vec<(u8, u64, StoryEvent)>) -> Connection {
    let events = (1..).zip(story);
    let events = events.map(|(at, (kind, socket, it))| bytes(at * 1000, kind, socket, it));
    let joined = join(&events.collect::<Vec<_>>().concat()).expect("events");
    assert_eq!(joined.unplaced, 0);
    let [connection] = &joined.recording.connections[..] else {
        panic!("{joined:?}");
    };
    connection.clone()
}

/// `tcp_add_backlog` writes the window of what it merges into the header of what came before, which looks otherwise then.
#[test]
fn what_was_merged_in_the_backlog_is_known_over_ipv6() {
    let [call, lock, release, drain, run_end, packet] = [2, 4, 5, 6, 7, 10];
    let [queued, drained, ack] = [16, 17, 16];
    let waits = |like, what| StoryEvent {
        like,
        what,
        owned: true,
        task: 20,
        flags: ack,
        ..StoryEvent::default()
    };
    let task = |what, owned| StoryEvent {
        what,
        owned,
        task: 20,
        ..StoryEvent::default()
    };
    let mut story: Vec<_> = opened(1).into();
    story.extend(sends(100));
    story.extend([asked(0, 100, 0, 0), asked(3, 0, 0, 500)]);
    // The run that the SYN-ACK begins sends the ACK.
    let [came, ended] = answered(500);
    story.push(came);
    story.extend(sends(101));
    story.push(ended);
    story.extend(child(101));
    story.extend([102, 103, 104].into_iter().flat_map(sends));
    story.extend([
        (call, 2, task(5, false)),
        (lock, 2, task(0, true)),
        (queued, 2, waits(102, 0)),
        (queued, 2, waits(103, 1)),
        (queued, 2, waits(104, 0)),
        (release, 2, waits(0, 0)),
        (drain, 2, waits(0, 0)),
        (packet, 2, waits(999, 0)),
        (run_end, 2, waits(0, packet)),
        (packet, 2, waits(104, 0)),
        (run_end, 2, waits(0, packet)),
        (drained, 2, waits(0, 0)),
    ]);
    let connection = &joined(story);
    let addresses = ["[fd00::1]:4000", "[fd00::2]:5000"];
    assert_eq!(connection.addresses.map(|it| it.to_string()), addresses);
    let packets = connection.ends[1].runs.iter();
    let packets = packets.filter_map(|run| match run.handler {
        Handler::Packet { number, merged, .. } => Some((number, merged)),
        _ => None,
    });
    // The SYN, the ACK that made the child, two that became one, and one.
    let packets: Vec<_> = packets.collect();
    assert_eq!(packets, [(0, 1), (1, 1), (2, 2), (4, 1)]);
}

fn like(like: u32) -> StoryEvent {
    StoryEvent {
        like,
        ..StoryEvent::default()
    }
}

fn sends(name: u32) -> [(u8, u64, StoryEvent); 2] {
    [(14, 1, like(0)), (25, 1, like(name))]
}

/// The SYN-ACK that looks like this comes to the client.
fn answered(more: u32) -> [(u8, u64, StoryEvent); 2] {
    let came = StoryEvent {
        flags: 18,
        more,
        ..StoryEvent::default()
    };
    let ended = StoryEvent {
        what: 10,
        ..StoryEvent::default()
    };
    [(10, 1, came), (7, 1, ended)]
}

/// `enum request` of the probe, and what the listener's queue is like.
fn asked(what: u8, name: u32, b: u32, more: u32) -> (u8, u64, StoryEvent) {
    let it = StoryEvent {
        what,
        b,
        more,
        like: name,
        ..StoryEvent::default()
    };
    (REQUEST, 2, it)
}

/// A packet comes to the server's socket and is handled; `damaged` if its checksum was wrong.
fn comes(name: u32, damaged: bool) -> [(u8, u64, StoryEvent); 3] {
    let came = StoryEvent {
        flags: 16,
        like: name,
        ..StoryEvent::default()
    };
    let ended = StoryEvent {
        what: 10,
        a: damaged.into(),
        ..StoryEvent::default()
    };
    [(10, 2, came), (13, 2, like(0)), (7, 2, ended)]
}

fn opened(socket: u64) -> [(u8, u64, StoryEvent); 2] {
    [(OPEN, socket, like(0)), (SETTINGS, socket, like(0))]
}

/// The child that the packet makes.
fn child(name: u32) -> Vec<(u8, u64, StoryEvent)> {
    let begins = StoryEvent {
        what: 1,
        ..StoryEvent::default()
    };
    let [mut came, _, ended] = comes(name, false);
    came.2.what = 1;
    let mut all: Vec<_> = opened(2).into();
    all.extend([(13, 2, begins), came, ended]);
    all
}

/// Both ends, after a handshake whose last packet was 101.
fn connected() -> Vec<(u8, u64, StoryEvent)> {
    let mut story: Vec<_> = opened(1).into();
    story.extend(sends(100));
    story.extend([asked(0, 100, 0, 0), asked(3, 0, 0, 500)]);
    story.extend(answered(500));
    story.extend(sends(101));
    story.extend(child(101));
    story
}

/// `sk_acceptq_is_full`: a SYN and the last packet of the handshake are dropped; the SYN-ACK is sent again, less often than usual.
#[test]
fn what_a_full_accept_queue_did_is_recorded() {
    let mut story: Vec<_> = opened(1).into();
    story.extend(sends(100));
    story.push(asked(0, 100, 1, 0));
    story.extend(sends(101));
    story.extend([asked(0, 101, 0, 0), asked(3, 0, 0, 500)]);
    story.extend(answered(500));
    story.extend(sends(102));
    story.push(asked(4, 102, 1, 0));
    story.extend([asked(2, 0, 3, 0), asked(3, 0, 0, 501)]);
    story.extend(answered(501));
    story.extend(sends(103));
    story.extend(child(103));
    let connection = joined(story);
    let runs = connection.ends[1].runs.iter().map(|run| {
        let number = match run.handler {
            Handler::Packet { number, .. } => Some(number),
            Handler::Timer {
                timer: Timer::Request,
                ..
            } => None,
            ref other => panic!("{other:?}"),
        };
        let queue = run.outcomes.iter().find_map(|it| match it {
            Outcome::Refused(Refused::Listener { result }) => Some(*result),
            _ => None,
        });
        (number, queue)
    });
    let wanted = [
        (Some(0), Some(1)),
        (Some(1), None),
        (Some(2), Some(1)),
        (None, Some(3)),
        (Some(3), None),
    ];
    assert_eq!(runs.collect::<Vec<_>>(), wanted);
    assert_eq!(connection.ends[1].gap, None);
}

/// RFC 9293, 3.1: a segment with a wrong checksum is dropped. Its sequence number may be what is wrong, and then it matches no packet that was sent.
#[test]
fn damaged_packets_are_as_if_lost() {
    let handshake = || {
        let mut story = connected();
        story.extend(sends(102));
        story.extend(sends(103));
        story
    };
    let packets = |story| {
        let [_, server] = joined(story).ends;
        let runs = server.runs.iter().filter_map(|run| match run.handler {
            Handler::Packet { number, .. } => Some(number),
            _ => None,
        });
        (runs.collect::<Vec<_>>(), server.gap)
    };
    let mut story = handshake();
    story.extend(comes(999, true));
    story.extend(comes(102, true));
    story.extend(comes(103, false));
    assert_eq!(packets(story), (vec![0, 1, 3], None));
    let mut story = handshake();
    story.extend(comes(999, false));
    story.extend(comes(103, false));
    assert_eq!(packets(story), (vec![0, 1], Some(2)));
}

/// The lock is a spin lock: a timer that another CPU's packet or call keeps from it runs behind that, or finds the socket in use (`tcp_delack_timer`).
#[test]
fn timers_of_other_cpus_have_the_lock_when_something_happens_in_them() {
    const TIMER: u8 = 11;
    let [call, lock, release] = [2, 4, 5];
    let timer = || {
        let it = StoryEvent {
            what: 1,
            ..StoryEvent::default()
        };
        (TIMER, 2, it)
    };
    let timer_ends = |owned| {
        let it = StoryEvent {
            what: TIMER,
            owned,
            ..StoryEvent::default()
        };
        (7, 2, it)
    };
    let clock = || (13, 2, like(0));
    let task = |what, owned| StoryEvent {
        what,
        owned,
        task: 20,
        ..StoryEvent::default()
    };
    let stories = [
        // The packet has the lock first; and had it when the timer fired.
        {
            let mut all = vec![timer()];
            all.extend(comes(102, false));
            all.extend([clock(), timer_ends(false)]);
            all
        },
        {
            let [came, read, ended] = comes(102, false);
            let timers = [timer_ends(false)];
            let all = [came, timer(), read, ended, clock()];
            all.into_iter().chain(timers).collect()
        },
        vec![
            timer(),
            (call, 2, task(5, false)),
            (lock, 2, task(0, true)),
            timer_ends(true),
            (release, 2, task(0, true)),
        ],
    ];
    let found = stories.map(|then| {
        let mut story = connected();
        story.extend(sends(102));
        story.extend(then);
        let [_, server] = joined(story).ends;
        let last = server.runs.iter().skip(2).map(|run| match run.handler {
            Handler::Packet { number, .. } => format!("packet {number}"),
            Handler::Receive { .. } => "call".to_owned(),
            Handler::Timer {
                timer: Timer::DelayedAck,
                deferred,
            } => format!("timer, put off: {deferred}"),
            ref other => panic!("{other:?}"),
        });
        (last.collect::<Vec<_>>().join("; "), server.gap)
    });
    let behind = ("packet 2; timer, put off: false".to_owned(), None);
    let put_off = ("call; timer, put off: true".to_owned(), None);
    assert_eq!(found, [behind.clone(), behind, put_off]);
}

/// POSIX, `connect`: of a socket that connects asynchronously, once more, it fails or succeeds and sends nothing.
#[test]
fn a_connect_that_only_asks_is_a_call_without_effect() {
    let task = |what, owned| StoryEvent {
        what,
        owned,
        task: 20,
        ..StoryEvent::default()
    };
    let mut story: Vec<_> = opened(1).into();
    story.extend([(2, 1, task(1, true)), (14, 1, like(0)), (25, 1, like(100))]);
    story.extend([(5, 1, task(0, true)), (3, 1, task(1, false))]);
    story.extend([asked(0, 100, 0, 0), asked(3, 0, 0, 500)]);
    story.extend(answered(500));
    story.extend([(4, 1, task(0, true)), (5, 1, task(0, true))]);
    story.push((3, 1, task(1, false)));
    story.extend(sends(101));
    story.extend(child(101));
    let [client, _] = joined(story).ends;
    let connects = client
        .runs
        .iter()
        .filter(|run| run.handler == Handler::Connect);
    assert_eq!((connects.count(), client.gap), (1, None));
}
