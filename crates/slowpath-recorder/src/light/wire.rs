// SPDX-License-Identifier: Apache-2.0
//! The mirrors of the light recorder's pieces: `probes/packets/block.bpf.h`, where each field has
//! its comment. Each comes from the ring behind its length.

use crate::stock::wire::RawSocketSettings;
use slowpath_layout::{Mirror, Struct, enumeration, mirror, words};

/// The C side, from the object's BTF.
#[allow(dead_code)]
pub(crate) mod layouts {
    include!(concat!(env!("OUT_DIR"), "/packets.rs"));
}

enumeration! {
    /// `enum piece`: of what a ring's entry is.
    pub(crate) enum Kind: u8 = layouts::piece {
        Opened = OPENED,
        Packets = PACKETS,
        Calls = CALLS,
        Timer = TIMER,
        Gone = GONE,
    }
}

/// Bits of [`PacketEvent::flags`] and [`StateEvent::flags`].
pub(crate) mod flag {
    use super::layouts::flag;

    pub(crate) const OWNED: u8 = flag::OWNED as u8;
    pub(crate) const MARKED: u8 = flag::MARKED as u8;
    pub(crate) const FULL: u8 = flag::FULL as u8;
    pub(crate) const DATA: u8 = flag::DATA as u8;
    pub(crate) const DELIVERED: u8 = flag::DELIVERED as u8;
    pub(crate) const ARRIVED: u8 = flag::ARRIVED as u8;
    pub(crate) const LAST_SENT: u8 = flag::LAST_SENT as u8;
}

/// [`StateEvent::what`], where a [`PacketEvent`] has another value.
pub(crate) const STATE: u8 = layouts::event_kind::STATE as u8;

/// In the upper byte of [`CallEvent::flags`].
pub(crate) const SENT: u32 = layouts::call_direction::SENT;

enumeration! {
    /// `enum timer_name`: of [`TimerEvent::timer`].
    pub(crate) enum TimerName: u8 = layouts::timer_name {
        Write = WRITE_TIMER,
        DelayedAck = DELAYED_ACK_TIMER,
        Keepalive = KEEPALIVE_TIMER,
        Pacing = PACING_TIMER,
        CompressedAck = COMPRESSED_ACK_TIMER,
        SmallQueues = SMALL_QUEUES,
    }
}

words! {
    /// `struct socket_words`.
    pub(crate) struct SocketWords = layouts::SOCKET_WORDS: [u32; 7] = [
        "snd_nxt",
        "snd_una",
        "write_seq",
        "rcv_nxt",
        "copied_seq",
        "wmem_alloc",
        "rcv_wnd",
    ];
    /// `struct state`.
    pub(crate) struct State = layouts::STATE: [u32; 12] = [
        "rcv_wnd",
        "snd_wnd",
        "rcv_ssthresh",
        "snd_cwnd",
        "snd_ssthresh",
        "packets_out",
        "total_retrans",
        "reordering",
        "srtt_us_x8",
        "rcvbuf",
        "sndbuf",
        "window_clamp",
    ];
}

mirror! {
    /// `struct observed`: a packet.
    pub(crate) struct PacketEvent = layouts::PACKET_EVENT {
        id: u16,
        next: u16,
        clock: u32,
        words: u8,
        segments: u8,
        flags: u8,
        kind: u8,
    }

    /// `struct state_event`: another state.
    pub(crate) struct StateEvent = layouts::STATE_EVENT {
        from: u8,
        to: u8,
        next: u16,
        clock: u32,
        words: u8,
        shutdown: u8,
        flags: u8,
        kind: u8,
    }

    /// `struct call_event`: a call that has returned.
    pub(crate) struct CallEvent = layouts::CALL_EVENT {
        result: i32,
        flags: u32,
        clock: u32,
    }

    /// `struct timer_event`: a timer, or small queues.
    pub(crate) struct TimerEvent = layouts::TIMER_EVENT {
        piece: u8,
        timer: u8,
        next: u16,
        jiffies: u32,
        sk: u64,
        at: u64,
        memory: u32,
        owned: u32,
    }

    /// `struct head`: of a block of packets or calls.
    pub(crate) struct Head = layouts::HEAD {
        piece: u8,
        end: u8,
        used: u16,
        serial: u32,
        clock: u64,
        sk: u64,
        lost: u32,
        jiffies: u32,
        state: State,
    }

    /// `struct opened`.
    pub(crate) struct Opened = layouts::OPENED {
        piece: u8,
        end: u8,
        own_port: u16,
        peer_port: u16,
        next: u16,
        own: u32,
        peer: u32,
        sk: u64,
        at: u64,
        clock: u64,
        begun: u64,
        jiffies: u32,
        words: SocketWords,
        lost: u32,
        found: RawSocketSettings,
        pad: u32,
    }

    /// `struct timers`: the kernel's functions of TCP's timers.
    pub(crate) struct Timers = layouts::TIMERS {
        write: u64,
        delayed_ack: u64,
        keepalive: u64,
        pacing: u64,
        compressed_ack: u64,
        small_queues: u64,
    }

    /// `struct counters`.
    pub(crate) struct Counters = layouts::COUNTERS {
        lost: u64,
        ipv6: u64,
        stored: u64,
    }
}

/// All of them, beside those of [`crate::stock::wire`].
pub(crate) const MIRRORS: [Struct<'static>; 10] = [
    SocketWords::LAYOUT,
    State::LAYOUT,
    PacketEvent::LAYOUT,
    StateEvent::LAYOUT,
    CallEvent::LAYOUT,
    TimerEvent::LAYOUT,
    Head::LAYOUT,
    Opened::LAYOUT,
    Timers::LAYOUT,
    Counters::LAYOUT,
];
