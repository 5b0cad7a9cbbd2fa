// SPDX-License-Identifier: Apache-2.0
//! One segment behind every link type, tag, extension and tunnel; and what is no TCP.

mod frames;

use frames::{ACK, USUAL, ethernet, ipv4, ipv4_fragment, ipv6, menagerie, tcp, timed, udp};
use slowpath_trace::decode::{DecodeOptions, NotTcp, Undecodable};
use slowpath_trace::read::{Capture, Input, Inputs};
use slowpath_trace::totals::Totals;
use std::io::Cursor;

const ENDS: [[u8; 4]; 2] = [[10, 0, 0, 1], [10, 0, 0, 2]];

/// What comes of one frame: where from, sequence number, length, payload captured.
type DecodeResult = Result<(String, u32, u32, u32), NotTcp>;

fn decode(link: u32, frame: &[u8], wire: u32, options: DecodeOptions) -> (DecodeResult, Totals) {
    let bytes = USUAL.pcap(link, &[(1_700_000_000_000_000_000, frame.to_vec(), wire)]);
    let input = Input::Stream("made".to_owned(), Box::new(Cursor::new(bytes)));
    let inputs = Inputs::new(vec![input]).expect("there is one");
    let mut capture = Capture::new(inputs, options).expect("there is one");
    let packet = capture.next().expect("it reads").expect("a frame");
    let found = packet.segment().map(|s| {
        let from = format!("{}:{}", s.source.address, s.source.port);
        (from, s.sequence, s.length, s.captured)
    });
    (found, capture.totals().clone())
}

fn plain(link: u32, frame: &[u8]) -> DecodeResult {
    decode(link, frame, frame.len() as u32, DecodeOptions::default()).0
}

fn segment() -> Vec<u8> {
    tcp(1234, 80, 42, ACK, b"twelve bytes")
}

fn four(from: &str) -> DecodeResult {
    Ok((from.to_owned(), 42, 12, 12))
}

const FOUR: &str = "10.0.0.1:1234";
const SIX: &str = "2001:db8::1:1234";

#[test]
fn every_link_type() {
    let (v4, v6) = (ipv4(6, ENDS, &segment()), ipv6(6, [1, 2], &segment()));
    let behind = |head: &[u8], packet: &[u8]| [head, packet].concat();
    let sll = |kind: [u8; 2]| [&[0, 0, 0, 1, 0, 6, 2, 0, 0, 0, 0, 1, 0, 0][..], &kind].concat();
    let sll2 = |kind: [u8; 2]| [&kind[..], &[0; 18]].concat();
    let fddi = |kind: [u8; 2]| {
        let head = [&[0x57][..], &[2; 12], &[0xaa, 0xaa, 3, 0, 0, 0], &kind].concat();
        [head, Vec::new()].concat()
    };
    // Family, version, resource; a prefix of two bytes and padding; a packet of any length.
    let nflog = |family| vec![family, 0, 0, 40, 6, 0, 10, 0, b'x', 0, 0, 0, 72, 0, 9, 0];
    for (link, head4, head6) in [
        (1, ethernet(0x0800, &[]), ethernet(0x86dd, &[])),
        (0, vec![2, 0, 0, 0], vec![30, 0, 0, 0]),
        (0, vec![0, 0, 0, 2], vec![0, 0, 0, 24]),
        (108, vec![0, 0, 0, 2], vec![0, 0, 0, 28]),
        (12, vec![], vec![]),
        (14, vec![], vec![]),
        (101, vec![], vec![]),
        (228, vec![], vec![]),
        (229, vec![], vec![]),
        (113, sll([8, 0]), sll([0x86, 0xdd])),
        (276, sll2([8, 0]), sll2([0x86, 0xdd])),
        (10, fddi([8, 0]), fddi([0x86, 0xdd])),
        (9, vec![0xff, 3, 0, 0x21], vec![0x57]),
        (9, vec![0x0f, 0, 8, 0], vec![0x8f, 0, 0x86, 0xdd]),
        (239, nflog(2), nflog(10)),
        (50, vec![0xff, 3, 0, 0x21], vec![0x0f, 0, 0x86, 0xdd]),
        (104, vec![0x8f, 0, 8, 0], vec![0x0f, 0, 0x86, 0xdd]),
    ] {
        assert_eq!(plain(link, &behind(&head4, &v4)), four(FOUR), "{link}");
        assert_eq!(plain(link, &behind(&head6, &v6)), four(SIX), "{link}");
    }
    assert_eq!(plain(105, &v4), Err(NotTcp::LinkType(105)));
}

#[test]
fn tags_labels_and_sessions() {
    let v4 = ipv4(6, ENDS, &segment());
    let inside = |kind: u16, head: &[u8]| ethernet(kind, &[head, &v4].concat());
    for frame in [
        inside(0x8100, &[0, 5, 8, 0]),
        inside(0x88a8, &[0, 5, 0x81, 0, 0, 6, 8, 0]),
        inside(0x9100, &[0, 5, 8, 0]),
        inside(0x8847, &[0, 1, 0, 64, 0, 2, 1, 64]),
        inside(0x8864, &[0x11, 0, 0, 1, 0, 70, 0, 0x21]),
        inside(60, &[0xaa, 0xaa, 3, 0, 0, 0, 8, 0]),
        inside(60, &[6, 6, 3]),
        inside(0x8926, &[0, 1, 0, 2, 8, 0]),
        inside(0x893f, &[0, 1, 0, 2, 0, 0, 0x81, 0, 0, 5, 8, 0]),
        ethernet(
            0x88e7,
            &[&[0, 0, 0, 7][..], &ethernet(0x0800, &v4)].concat(),
        ),
    ] {
        assert_eq!(plain(1, &frame), four(FOUR));
    }
    let nested = [[0, 1, 0x81, 0]; 40].concat();
    let deep = Err(NotTcp::Undecodable(Undecodable::Nesting));
    assert_eq!(plain(1, &ethernet(0x8100, &nested)), deep);
}

#[test]
fn ipv6_extensions() {
    let chain = |heads: &[&[u8]]| {
        let carried = [&heads.concat()[..], &segment()].concat();
        ethernet(0x86dd, &ipv6(0, [1, 2], &carried))
    };
    let hops = [60, 0, 1, 4, 0, 0, 0, 0];
    let destination = [43, 1, 1, 12, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0];
    let routing = [51, 0, 0, 0, 0, 0, 0, 0];
    let authentication = [44, 1, 0, 0, 0, 0, 0, 1, 0, 0, 0, 1];
    let first = [6, 0, 0, 1, 0, 0, 0, 9];
    let later = [6, 0, 0, 9, 0, 0, 0, 9];
    let upto = [&hops[..], &destination, &routing, &authentication];
    assert_eq!(plain(1, &chain(&[&upto.concat(), &first])), four(SIX));
    assert_eq!(
        plain(1, &chain(&[&upto.concat(), &later])),
        Err(NotTcp::LaterFragment)
    );
    // No next header, and one of a later protocol.
    let none = ethernet(0x86dd, &ipv6(59, [1, 2], &[]));
    assert_eq!(plain(1, &none), Err(NotTcp::Ip(59)));
    // An extension longer than the packet.
    let long = [6, 200, 0, 0, 0, 0, 0, 0];
    let cut = Err(NotTcp::Undecodable(Undecodable::IpLength));
    assert_eq!(plain(1, &chain(&[&long])), cut);
}

#[test]
fn lengths_are_those_of_ip() {
    let whole = ethernet(0x0800, &ipv4(6, ENDS, &segment()));
    // Ethernet's padding.
    let padded = [&whole[..], &[0; 20]].concat();
    assert_eq!(plain(1, &padded), four(FOUR));
    // A snap length within the payload, within the header.
    let options = DecodeOptions::default();
    let cut = |n| decode(1, &whole[..n], whole.len() as u32, options).0;
    assert_eq!(cut(60), Ok((FOUR.to_owned(), 42, 12, 6)));
    assert_eq!(cut(54), Ok((FOUR.to_owned(), 42, 12, 0)));
    assert_eq!(cut(53), Err(NotTcp::Undecodable(Undecodable::TcpHeaderCut)));
    assert_eq!(cut(33), Err(NotTcp::Undecodable(Undecodable::IpHeaderCut)));
    assert_eq!(cut(13), Err(NotTcp::Undecodable(Undecodable::LinkHeader)));
    // Segmentation offload: IP's length is 0, the frame's stands in, past 64 KiB too.
    for (packet, ip_header, at) in [
        (ipv4(6, ENDS, &segment()), 20, 2),
        (ipv6(6, [1, 2], &segment()), 40, 4),
    ] {
        let mut offloaded = ethernet(if ip_header == 20 { 0x0800 } else { 0x86dd }, &packet);
        offloaded[14 + at..16 + at].fill(0);
        let wire = 14 + ip_header + 20 + 190_000;
        let (found, _) = decode(1, &offloaded, wire, options);
        assert_eq!(found.map(|f| f.2), Ok(190_000));
    }
    let mut short = whole.clone();
    short[17] = 39;
    // The header is there although IP says that it is a byte shorter: no payload.
    assert_eq!(plain(1, &short), Ok((FOUR.to_owned(), 42, 0, 0)));
    let cut_short = decode(1, &short[..53], 66, options).0;
    assert_eq!(cut_short, Err(NotTcp::Undecodable(Undecodable::IpLength)));
    let mut header = whole.clone();
    header[46] = 0x40;
    assert_eq!(
        plain(1, &header),
        Err(NotTcp::Undecodable(Undecodable::TcpHeader))
    );
    header[46] = 0xf0;
    assert_eq!(
        plain(1, &header),
        Err(NotTcp::Undecodable(Undecodable::TcpHeader))
    );
}

#[test]
fn tunnels_on_request() {
    let inner = ipv4(6, ENDS, &segment());
    let frame = ethernet(0x0800, &inner);
    let outer = [[1, 1, 1, 1], [2, 2, 2, 2]];
    let vxlan = [&[8, 0, 0, 0, 0, 0, 7, 0][..], &frame].concat();
    let geneve = [&[1, 0, 0x65, 0x58, 0, 0, 7, 0, 9, 9, 9, 0][..], &frame].concat();
    let gre = [&[0x30, 0, 8, 0, 0, 0, 0, 1, 0, 0, 0, 2][..], &inner].concat();
    let eth_gre = [&[0, 0, 0x65, 0x58][..], &frame].concat();
    let all = DecodeOptions {
        tunnels: true,
        ..DecodeOptions::default()
    };
    for (protocol, carried) in [
        (17, udp(9, 4789, &vxlan)),
        (17, udp(9, 8472, &vxlan)),
        (17, udp(9, 6081, &geneve)),
        (47, gre),
        (47, eth_gre),
        (4, inner.clone()),
    ] {
        let frame = ethernet(0x0800, &ipv4(protocol, outer, &carried));
        assert_eq!(plain(1, &frame), Err(NotTcp::Ip(protocol)));
        let (found, totals) = decode(1, &frame, frame.len() as u32, all);
        assert_eq!(found, four(FOUR));
        assert_eq!(totals.tcp().frames, 1);
    }
    // A tunnel in a tunnel in a tunnel.
    let deep = (0..40).fold(inner, |inner, _| ipv4(4, outer, &inner));
    let (found, _) = decode(101, &deep, deep.len() as u32, all);
    assert_eq!(found, Err(NotTcp::Undecodable(Undecodable::Nesting)));
}

#[test]
fn checksums_only_where_they_can_be_verified() {
    // RFC 1071's sum of this very segment, computed by hand: see the steps.
    let packet = ipv4(6, ENDS, &segment());
    let words = |bytes: &[u8]| -> u32 {
        let pairs = bytes.chunks(2);
        pairs
            .map(|p| u32::from(p[0]) << 8 | p.get(1).map_or(0, |b| u32::from(*b)))
            .sum()
    };
    let fold = |sum: u32| (sum & 0xffff) + (sum >> 16);
    let pseudo = words(&ENDS.concat()) + 6 + 32;
    let right = !fold(fold(pseudo + words(&segment()))) as u16;
    let verified = |packet: &[u8], captured: usize| {
        let frame = packet[..captured].to_vec();
        let bytes = USUAL.pcap(101, &[(0, frame, packet.len() as u32)]);
        let input = Input::Stream("made".to_owned(), Box::new(Cursor::new(bytes)));
        let options = DecodeOptions {
            checksums: true,
            ..DecodeOptions::default()
        };
        let inputs = Inputs::new(vec![input]).expect("there is one");
        let mut capture = Capture::new(inputs, options).expect("there is one");
        let packet = capture.next().expect("it reads").expect("a frame");
        packet.segment().ok().and_then(|s| s.checksum_ok)
    };
    let check = |value: u16, captured: usize, fragment: u16| {
        let mut packet = packet.clone();
        packet[6..8].copy_from_slice(&fragment.to_be_bytes());
        packet[36..38].copy_from_slice(&value.to_be_bytes());
        verified(&packet, captured)
    };
    assert_eq!(check(right, 52, 0x4000), Some(true));
    assert_eq!(check(right ^ 1, 52, 0x4000), Some(false));
    assert_eq!(check(right, 51, 0x4000), None);
    assert_eq!(check(right, 52, 0x2000), None);
    // IP says that the segment ends before its checksum.
    for length in 20..38_u16 {
        let mut packet = packet.clone();
        packet[2..4].copy_from_slice(&length.to_be_bytes());
        assert_eq!(verified(&packet, packet.len()), None, "{length}");
    }
    // Left to the network card: the pseudo-header's sum only.
    assert_eq!(check(fold(pseudo) as u16, 52, 0x4000), None);
}

#[test]
fn nothing_vanishes() {
    let frames = timed(menagerie());
    let bytes = USUAL.pcap(1, &frames);
    let input = Input::Stream("made".to_owned(), Box::new(Cursor::new(bytes)));
    let inputs = Inputs::new(vec![input]).expect("there is one");
    let mut capture = Capture::new(inputs, DecodeOptions::default()).expect("there is one");
    while capture.next().expect("it reads").is_some() {}
    let totals = capture.totals();
    assert_eq!(totals.all().frames, frames.len() as u64);
    let bytes: u64 = frames.iter().map(|f| u64::from(f.2)).sum();
    assert_eq!(totals.all().bytes, bytes);
    assert_eq!(totals.tcp().frames, 11);
    assert_eq!(totals.udp().frames, 2);
    assert_eq!(totals.icmp().frames, 2);
    assert_eq!(totals.arp().frames, 1);
    assert_eq!(totals.later_fragments.frames, 2);
    assert_eq!(totals.llc.frames, 1);
    assert_eq!(totals.ether_types[&0x88cc].frames, 1);
    assert_eq!(totals.undecodable(Undecodable::IpHeaderCut).frames, 1);
    assert_eq!(totals.undecodable(Undecodable::TcpHeaderCut).frames, 1);
    assert_eq!(totals.undecodable(Undecodable::LinkHeader).frames, 1);
    let other: Vec<u8> = totals.ip_protocols().map(|(number, _)| number).collect();
    assert_eq!(other, [1, 2, 6, 17, 50, 58, 132]);
}

#[test]
fn the_first_fragment_counts_by_its_own_length() {
    let first = ethernet(0x0800, &ipv4_fragment(6, ENDS, 0x2000, &segment()));
    assert_eq!(plain(1, &first), four(FOUR));
    let later = ethernet(0x0800, &ipv4_fragment(6, ENDS, 0x2003, &segment()));
    assert_eq!(plain(1, &later), Err(NotTcp::LaterFragment));
}
