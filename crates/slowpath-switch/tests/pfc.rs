// SPDX-License-Identifier: Apache-2.0
//! Flow control of one switch: when it stops others, what it may not send itself, and what it counts.

use proptest::prelude::*;
use slowpath_switch::{
    Destination, DropReason, Header, Limit, Outcome, PauseFrame, Pfc, PfcError, PortConfig, PortId,
    PortKind, Rate, Span, Switch, SwitchConfig, Time,
};

/// Of packets of 1,000 bytes: 8 us at 1 Gbit/s.
const BYTES: u32 = 1_000;
const IN: PortId = PortId(0);
const OUT: PortId = PortId(1);

/// Two inputs, ports 0 and 2, and an output, port 1, of 1 Gbit/s and 5 us.
fn switch(classes: u8, pfc: Pfc) -> Switch<Header> {
    let port = PortConfig {
        kind: PortKind::Switch,
        rate: Rate::from_bits_per_second(1_000_000_000).unwrap(),
        propagation: Span::from_micros(5),
        limit: Limit::NONE,
        marking: None,
    };
    let config = SwitchConfig {
        classes,
        ..SwitchConfig::new(vec![port; 3], 1, 0)
    };
    let mut switch = Switch::new(&config).unwrap();
    switch.set_route(Destination(0), &[OUT]).unwrap();
    for port in [IN, PortId(2)] {
        switch.set_pfc(port, pfc).unwrap();
    }
    switch
}

fn packet(handle: u64, class: u8) -> Header {
    Header {
        handle,
        class,
        bytes: BYTES,
        ttl: 9,
        ..Header::default()
    }
}

fn at(us: u64) -> Time {
    Time::ZERO + Span::from_micros(us)
}

fn arrive(switch: &mut Switch<Header>, now: Time, by: PortId, packet: Header) -> bool {
    match switch.arrive(now, by, packet, &mut ()) {
        Outcome::Queued(queued) => {
            if queued.start.is_some_and(|start| start <= now) {
                assert!(switch.transmit(now, queued.port, &mut ()).is_some());
            }
            true
        }
        Outcome::Dropped { packet: _, reason } => {
            assert_eq!(reason, DropReason::BufferFull);
            false
        }
    }
}

/// Stopped above 3,000 bytes, continued at 1,000: the fifth packet (the first is on the line) stops, and
/// the fourth that leaves lets go on. Frames take 64 bytes, 512 ns, and 5 us.
#[test]
fn an_input_is_stopped_above_xoff_and_continued_at_xon() {
    let mut switch = switch(
        1,
        Pfc {
            xoff: 3_000,
            xon: 1_000,
            headroom: 2_000,
        },
    );
    for number in 0..4 {
        assert!(arrive(&mut switch, at(number), IN, packet(number, 0)));
        assert_eq!(switch.take_frame(at(number)), None);
    }
    assert!(arrive(&mut switch, at(4), IN, packet(4, 0)));
    let frame = |pause, us: u64| PauseFrame {
        port: IN,
        class: 0,
        pause,
        arrival: at(us + 5) + Span::from_nanos(512),
    };
    assert_eq!(switch.take_frame(at(4)), Some(frame(true, 4)));
    // Once.
    assert_eq!(switch.take_frame(at(4)), None);
    // Of the other input nothing waits.
    assert!(arrive(&mut switch, at(5), PortId(2), packet(5, 0)));
    assert_eq!(switch.take_frame(at(5)), None);
    // The headroom takes one packet more, and is then full.
    assert!(arrive(&mut switch, at(6), IN, packet(6, 0)));
    assert!(!arrive(&mut switch, at(7), IN, packet(7, 0)));
    assert_eq!(switch.counters(OUT).dropped, 1);
    // Five of the first input wait: the one that leaves at 32 us is its fourth.
    for (us, left) in [(8, 4), (16, 3), (24, 2)] {
        switch.transmit(at(us), OUT, &mut ()).unwrap();
        assert_eq!(switch.take_frame(at(us)), None, "{left}");
    }
    // At 32 us the last of four leaves; the other input's packet comes before the last one.
    switch.transmit(at(32), OUT, &mut ()).unwrap();
    assert_eq!(switch.take_frame(at(32)), Some(frame(false, 32)));
    let counts = switch.pause_counts(IN, at(40)).unwrap();
    assert_eq!((counts.sent, counts.overruns, counts.received), (1, 1, 0));
    let counts = switch.pause_counts(PortId(2), at(40)).unwrap();
    assert_eq!((counts.sent, counts.overruns, counts.received), (0, 0, 0));
}

/// The packet on the line ends, what waits stays, and goes on when it may and the line is free.
#[test]
fn a_paused_port_starts_nothing() {
    let mut switch = switch(
        1,
        Pfc {
            xoff: 1 << 30,
            xon: 0,
            headroom: 0,
        },
    );
    for number in 0..3 {
        arrive(&mut switch, at(0), IN, packet(number, 0));
    }
    // The first is on the line until 8 us.
    assert_eq!(switch.due(OUT), Some(at(8)));
    assert_eq!(switch.receive_frame(at(2), OUT, 0, true), None);
    assert_eq!(switch.due(OUT), None);
    assert_eq!(switch.transmit(at(50), OUT, &mut ()), None);
    // What comes waits too.
    match switch.arrive(at(51), IN, packet(3, 0), &mut ()) {
        Outcome::Queued(queued) => assert_eq!(queued.start, None),
        Outcome::Dropped { .. } => unreachable!("there is room"),
    }
    assert_eq!(switch.is_held(OUT, 0), Some(at(2)));
    assert_eq!(switch.receive_frame(at(60), OUT, 0, false), Some(at(60)));
    let departure = switch.transmit(at(60), OUT, &mut ()).unwrap();
    assert_eq!((departure.packet.handle, departure.start), (1, at(60)));
    assert_eq!(departure.next, Some(at(68)));
    // A pause that ends before the line is free delays nothing.
    assert_eq!(switch.receive_frame(at(61), OUT, 0, true), None);
    assert_eq!(switch.receive_frame(at(62), OUT, 0, false), Some(at(68)));
    let counts = switch.pause_counts(OUT, at(100)).unwrap();
    assert_eq!(
        (counts.received, counts.paused),
        (2, Span::from_micros(58 + 1))
    );
    // A pause that lasts counts until then.
    switch.receive_frame(at(90), OUT, 0, true);
    let counts = switch.pause_counts(OUT, at(100)).unwrap();
    assert_eq!(counts.paused, Span::from_micros(59 + 10));
}

/// A class that is stopped lets lower ones pass.
#[test]
fn classes_are_stopped_one_by_one() {
    let mut switch = switch(
        3,
        Pfc {
            xoff: 1_000,
            xon: 0,
            headroom: 9_000,
        },
    );
    arrive(&mut switch, at(0), IN, packet(0, 2));
    for (handle, class) in [(1, 0), (2, 1), (3, 0), (4, 1)] {
        arrive(&mut switch, at(1), IN, packet(handle, class));
    }
    // Two of each wait: both are above 1,000 bytes.
    let mut stopped: Vec<u8> = std::iter::from_fn(|| switch.take_frame(at(1)))
        .map(|frame| frame.class)
        .collect();
    stopped.sort_unstable();
    assert_eq!(stopped, [0, 1]);
    assert_eq!(switch.receive_frame(at(2), OUT, 0, true), Some(at(8)));
    let next = switch.transmit(at(8), OUT, &mut ()).unwrap();
    assert_eq!((next.packet.handle, next.next), (2, Some(at(16))));
    assert_eq!(switch.receive_frame(at(9), OUT, 1, true), None);
    // A class that the switch does not have is its last.
    arrive(&mut switch, at(10), IN, packet(5, 2));
    assert_eq!(switch.receive_frame(at(11), OUT, 7, true), None);
    assert_eq!(switch.receive_frame(at(20), OUT, 2, false), Some(at(20)));
    assert_eq!(
        switch.transmit(at(20), OUT, &mut ()).unwrap().packet.handle,
        5
    );
    assert_eq!(switch.receive_frame(at(21), OUT, 0, false), Some(at(28)));
    assert_eq!(
        switch.transmit(at(28), OUT, &mut ()).unwrap().packet.handle,
        1
    );
}

/// 802.1Q annex N by hand: on 10 Gbit/s and 1 us are 1,250 bytes; both ways, the frame, two packets.
#[test]
fn headroom_is_what_comes_until_the_other_end_has_stopped() {
    let gbit = |gbit: u64| Rate::from_bits_per_second(gbit * 1_000_000_000).unwrap();
    assert_eq!(
        Pfc::enough(gbit(10), Span::from_micros(1), 1_500),
        2_500 + 64 + 3_000
    );
    assert_eq!(
        Pfc::enough(gbit(100), Span::from_nanos(500), 9_000),
        12_500 + 64 + 18_000
    );
    assert_eq!(Pfc::enough(gbit(1), Span::ZERO, 1_500), 64 + 3_000);
    // 1.25 bytes are 2.
    assert_eq!(
        Pfc::enough(gbit(10), Span::from_nanos(1), 100),
        4 + 64 + 200
    );
    let pfc = Pfc::for_link(gbit(10), Span::from_micros(1), 1_500);
    assert_eq!(
        (pfc.xon, pfc.xoff),
        (2_500 + 64 + 1_500, 2_500 + 64 + 4_500)
    );
}

#[test]
fn impossible_flow_control_is_an_error() {
    let pfc = Pfc {
        xoff: 10,
        xon: 10,
        headroom: 0,
    };
    let mut switch = switch(1, pfc);
    assert_eq!(switch.set_pfc(PortId(3), pfc), Err(PfcError::NoSuchPort));
    let pfc = Pfc { xon: 11, ..pfc };
    assert_eq!(switch.set_pfc(IN, pfc), Err(PfcError::Thresholds));
    assert_eq!(switch.receive_frame(at(1), PortId(3), 0, true), None);
    assert_eq!(switch.pause_counts(PortId(3), at(1)), None);
}

/// What a model of counters expects of an input.
#[derive(Default)]
struct Input {
    waiting: u64,
    stopped: bool,
}

impl Input {
    /// Whether the other end is to stop, by the two thresholds.
    fn stops(&self, xon: u64, xoff: u64) -> bool {
        self.waiting > if self.stopped { xon } else { xoff }
    }
}

proptest! {
    /// Against a model that counts packets by input and class, whatever comes, goes and stops.
    #[test]
    fn inputs_are_counted_and_bounded(
        steps in prop::collection::vec((0u8..6, 0u8..2, any::<bool>(), 0u64..12), 1..400),
        limits in (0u64..6, 0u64..6, 0u64..4),
        classes in 1u8..3,
    ) {
        let (xon, more, headroom) = limits;
        let xoff = xon + more;
        let bytes = |packets: u64| packets * u64::from(BYTES);
        let pfc = Pfc { xoff: bytes(xoff), xon: bytes(xon), headroom: bytes(headroom) };
        let mut switch = switch(classes, pfc);
        let mut inputs: [[Input; 2]; 2] = Default::default();
        let mut paused = [false; 2];
        let mut waiting: Vec<Header> = Vec::new();
        let (mut now, mut handle, mut dropped) = (0, 0, 0);
        for (step, class, second, gap) in steps {
            now += gap;
            let class = class.min(classes - 1);
            let mut left = None;
            match step {
                0..4 => {
                    handle += 1;
                    let number = usize::from(second);
                    let header = Header { tag: number as u8, ..packet(handle, class) };
                    let by = PortId(2 * number as u16);
                    let fits = inputs[number][usize::from(class)].waiting < xoff + headroom;
                    match switch.arrive(at(now), by, header, &mut ()) {
                        Outcome::Queued(queued) => {
                            prop_assert!(fits);
                            waiting.push(header);
                            inputs[number][usize::from(class)].waiting += 1;
                            prop_assert!(queued.start.is_none() || !paused[usize::from(class)]);
                        }
                        Outcome::Dropped { .. } => {
                            prop_assert!(!fits);
                            dropped += 1;
                        }
                    }
                }
                4 => {
                    paused[usize::from(class)] = second;
                    switch.receive_frame(at(now), OUT, class, second);
                }
                _ => left = switch.transmit(at(now), OUT, &mut ()),
            }
            if let Some(departure) = left {
                // The first of the highest class that may leave.
                let sent = departure.packet;
                let class = usize::from(sent.class);
                prop_assert!(!paused[class]);
                let first = waiting.iter().position(|it| it.class == sent.class).unwrap();
                prop_assert_eq!(waiting.remove(first).handle, sent.handle);
                prop_assert!(!waiting.iter().any(|it| it.class < sent.class && !paused[usize::from(it.class)]));
                inputs[usize::from(sent.tag)][class].waiting -= 1;
            }
            while let Some(frame) = switch.take_frame(at(now)) {
                let input = &mut inputs[usize::from(frame.port.0 / 2)][usize::from(frame.class)];
                prop_assert_eq!(frame.pause, !input.stopped);
                prop_assert_eq!(frame.pause, input.stops(xon, xoff));
                input.stopped = frame.pause;
            }
            for input in inputs.iter().flatten() {
                prop_assert_eq!(input.stops(xon, xoff), input.stopped);
                prop_assert!(input.waiting <= xoff + headroom);
            }
            // It is due exactly while something may leave.
            let may = waiting.iter().any(|it| !paused[usize::from(it.class)]);
            prop_assert_eq!(switch.due(OUT).is_some(), may);
        }
        let overruns: u64 = [IN, PortId(2)].map(|port| switch.pause_counts(port, at(now)).unwrap().overruns).iter().sum();
        prop_assert_eq!(overruns, dropped);
        prop_assert_eq!(switch.counters(OUT).dropped, dropped);
        prop_assert_eq!(switch.depth(OUT).packets as usize, waiting.len());
    }
}
