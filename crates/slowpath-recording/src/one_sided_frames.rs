// SPDX-License-Identifier: Apache-2.0
//! Frames of one-sided ends: which end of which connection, and its packets; and how one-sided ends were joined.

use super::block;
use super::error::{EncodeError, Nonsense};
use super::one_sided::{Joint, OneSided, Packet};
use super::varint::{Bytes, put, put_address, put_map, put_signed};
use super::{End, Moment};
use std::net::SocketAddr;

/// Packets of a frame, about.
pub(super) const FRAME_PACKETS: usize = 1 << 16;
/// A reader takes no more of one frame.
const MOST_PACKETS: u64 = 1 << 20;
/// Each packed by itself: stretches, runs, identifications, beginnings, lengths, marks.
const COLUMNS: usize = 6;
const NAMES: [&str; COLUMNS] = [
    "stretches of packets",
    "runs of packets",
    "identifications",
    "beginnings of packets",
    "lengths of packets",
    "marks of packets",
];

/// Consecutive packets of a one-sided end, one way.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Stretch<'a> {
    pub(super) number: u32,
    /// 0: sent; 1: came.
    pub(super) way: usize,
    /// Number of those before it.
    pub(super) before: u64,
    pub(super) packets: std::borrow::Cow<'a, [Packet]>,
}

/// The packets of an end one way, in stretches that a frame takes.
pub(super) fn stretches(
    number: u32,
    way: usize,
    before: u64,
    packets: &[Packet],
) -> impl Iterator<Item = Stretch<'_>> {
    let parts = packets.chunks(FRAME_PACKETS).enumerate();
    parts.map(move |(place, part)| Stretch {
        number,
        way,
        before: before + (place * FRAME_PACKETS) as u64,
        packets: part.into(),
    })
}

/// Who it is; its runs and packets come in frames of their own.
pub(super) fn put_one_sided(number: u32, one_sided: &OneSided, out: &mut Vec<u8>) {
    put(out, number.into());
    out.push(u8::from(one_sided.side != 0));
    for address in &one_sided.addresses {
        put_address(address, out);
    }
    for initial in one_sided.initial {
        put(out, initial.map_or(0, |it| 1 + u64::from(it)));
    }
    put_map(&one_sided.sysctls, out);
    put_map(&one_sided.socket, out);
    put(out, one_sided.mtu.into());
    put(out, one_sided.end.within.into());
}

pub(super) fn one_sided(bytes: &mut Bytes<'_>) -> Result<(u32, OneSided), Nonsense> {
    let number = bytes.narrow()?;
    let side = match bytes.byte()? {
        side @ 0..=1 => usize::from(side),
        side => {
            let number = side.into();
            return Err(Nonsense::Unknown {
                what: "one-sided end",
                number,
            });
        }
    };
    let addresses: [SocketAddr; 2] = [
        super::decode::address(bytes)?,
        super::decode::address(bytes)?,
    ];
    let mut initial = [None; 2];
    for it in &mut initial {
        let number = bytes.number()?;
        let large = Nonsense::Large {
            what: "one-sided ends",
        };
        *it = number
            .checked_sub(1)
            .map(u32::try_from)
            .transpose()
            .map_err(|_| large)?;
    }
    let one_sided = OneSided {
        addresses,
        side,
        initial,
        sysctls: super::decode::map(bytes)?,
        socket: super::decode::map(bytes)?,
        mtu: bytes.narrow()?,
        end: End {
            within: bytes.narrow()?,
            ..End::default()
        },
        sent: Vec::new(),
        came: Vec::new(),
    };
    Ok((number, one_sided))
}

pub(super) fn put_joint(number: u32, joint: &Joint, out: &mut Vec<u8>) {
    put(out, number.into());
    for clock in &joint.clocks {
        put_signed(out, clock.offset);
        put_signed(out, clock.drift.into());
        put(out, clock.since.0);
    }
    // 0: unbounded.
    put(
        out,
        joint.within.map_or(0, |within| within.saturating_add(1)),
    );
}

pub(super) fn joint(bytes: &mut Bytes<'_>) -> Result<(u32, Joint), Nonsense> {
    let number = bytes.narrow()?;
    let mut joint = Joint::default();
    for clock in &mut joint.clocks {
        clock.offset = bytes.signed()?;
        let drift = i32::try_from(bytes.signed()?);
        clock.drift = drift.map_err(|_| Nonsense::Large { what: "joints" })?;
        clock.since = Moment(bytes.number()?);
    }
    joint.within = bytes.number()?.checked_sub(1);
    Ok((number, joint))
}

/// What a packet's fields are expected to be, from the one before it.
#[derive(Clone, Copy, Default)]
struct Expected {
    run: u64,
    id: u16,
    begins: u32,
}

impl Expected {
    fn after(packet: &Packet) -> Expected {
        Expected {
            run: packet.run,
            id: packet.id.wrapping_add(1),
            begins: packet.begins.wrapping_add(packet.length),
        }
    }
}

/// A frame's payload.
pub(super) fn encode(stretches: &[Stretch<'_>], level: i32) -> Result<Vec<u8>, EncodeError> {
    let mut columns: [Vec<u8>; COLUMNS] = Default::default();
    let [heads, runs, ids, begins, lengths, marks] = &mut columns;
    put(heads, stretches.len() as u64);
    let mut last = 0;
    for stretch in stretches {
        let who = i64::from(stretch.number) << 1 | stretch.way as i64;
        put_signed(heads, who - last);
        last = who;
        put(heads, stretch.before);
        put(heads, stretch.packets.len() as u64);
        let mut expected = Expected::default();
        for packet in stretch.packets.iter() {
            put_signed(runs, packet.run.wrapping_sub(expected.run) as i64);
            put_signed(ids, i64::from(packet.id.wrapping_sub(expected.id) as i16));
            put_signed(
                begins,
                i64::from(packet.begins.wrapping_sub(expected.begins) as i32),
            );
            put(lengths, packet.length.into());
            put(marks, packet.mark.into());
            expected = Expected::after(packet);
        }
    }
    let mut out = Vec::new();
    for column in &columns {
        block::compress(column, level, &mut out)?;
    }
    Ok(out)
}

/// And how many bytes they took when decompressed.
pub(super) fn decode(payload: &[u8]) -> Result<(Vec<Stretch<'static>>, usize), Nonsense> {
    let mut payload = Bytes::new(payload, "packets");
    let mut budget = block::MAX_BYTES;
    let mut columns: [Vec<u8>; COLUMNS] = Default::default();
    for (column, name) in columns.iter_mut().zip(NAMES) {
        *column = block::decompress(&mut payload, &mut budget, name)?;
    }
    payload.end()?;
    let bytes = block::MAX_BYTES - budget;
    let mut from: Vec<Bytes<'_>> = columns
        .iter()
        .zip(NAMES)
        .map(|(column, name)| Bytes::new(column, name))
        .collect();
    let [heads, runs, ids, begins, lengths, marks] = &mut from[..] else {
        return Err(Nonsense::Frame);
    };
    let mut left = MOST_PACKETS;
    let mut stretches = Vec::new();
    let mut who = 0i64;
    let count = heads.number()?;
    for _ in 0..count {
        left = left.checked_sub(1).ok_or(Nonsense::Frame)?;
        who = who.wrapping_add(heads.signed()?);
        let large = Nonsense::Large { what: NAMES[0] };
        let number = u32::try_from(who >> 1).map_err(|_| large)?;
        let (before, count) = (heads.number()?, heads.number()?);
        left = left.checked_sub(count).ok_or(Nonsense::Frame)?;
        let mut packets = Vec::new();
        let mut expected = Expected::default();
        for _ in 0..count {
            let packet = Packet {
                run: expected.run.wrapping_add(runs.signed()? as u64),
                id: expected.id.wrapping_add(ids.signed()? as u16),
                begins: expected.begins.wrapping_add(begins.signed()? as u32),
                length: lengths.narrow()?,
                mark: marks.narrow()?,
            };
            expected = Expected::after(&packet);
            packets.push(packet);
        }
        stretches.push(Stretch {
            number,
            way: (who & 1) as usize,
            before,
            packets: packets.into(),
        });
    }
    from.iter().try_for_each(Bytes::end)?;
    Ok((stretches, bytes))
}
