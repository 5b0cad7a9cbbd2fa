// SPDX-License-Identifier: Apache-2.0
//! The mirrors of the recorder's events: `probes/handlers/event.bpf.h`, where each field has its
//! comment. Each comes from the ring behind its length.

#![allow(missing_docs)]

use slowpath_layout::{Mirror, Struct, enumeration, mirror, words};
use slowpath_recording::fields::FIELDS;
use slowpath_recording::sysctls::SYSCTLS;

/// The C side, from the object's BTF.
#[allow(dead_code)]
pub(crate) mod layouts {
    include!(concat!(env!("OUT_DIR"), "/handlers.rs"));
}

enumeration! {
    /// `enum kind`.
    pub enum Kind: u8 = layouts::kind {
        Opened = OPEN,
        Call = CALL,
        Transfer = TRANSFER,
        ShutdownCall = SHUTDOWN_CALL,
        OptionCall = OPTION_CALL,
        CallEnd = CALL_END,
        OptionEnd = OPTION_END,
        Lock = LOCK,
        Release = RELEASE,
        Drain = DRAIN,
        RunEnd = RUN_END,
        Callback = CALLBACK,
        CallbackEnd = CALLBACK_END,
        Packet = PACKET,
        SynPacket = SYN_PACKET,
        Timer = TIMER,
        SmallQueue = SMALL_QUEUE,
        Clock = CLOCK,
        Child = CHILD,
        Sent = SENT,
        HandedOver = HANDED_OVER,
        Queued = QUEUED,
        Drained = DRAINED,
        Gone = GONE,
        Busy = BUSY,
        Settings = SETTINGS,
        Window = WINDOW,
        AnsweredByReset = ANSWERED_BY_RESET,
        Named = NAMED,
        Options = OPTIONS,
        NoRoom = NO_ROOM,
        OtherCall = OTHER_CALL,
        Metrics = METRICS,
        RequestPacket = REQUEST_PACKET,
        RequestTimer = REQUEST_TIMER,
        RequestAnswered = REQUEST_ANSWERED,
        LatePacket = LATE_PACKET,
    }
}

enumeration! {
    /// `enum call_name`: whose call.
    pub enum CallName: u32 = layouts::call_name {
        Connect = CONNECT,
        Accept = ACCEPT,
        Send = SEND,
        Receive = RECEIVE,
        Shutdown = SHUTDOWN,
        Close = CLOSE,
    }
}

enumeration! {
    /// `enum run_name`: what ends.
    pub enum RunName: u32 = layouts::run_name {
        OfPacket = OF_PACKET,
        OfTimer = OF_TIMER,
        OfSmallQueue = OF_SMALL_QUEUE,
    }
}

enumeration! {
    /// `enum timer_name`.
    pub enum TimerName: u32 = layouts::timer_name {
        Write = WRITE_TIMER,
        DelayedAck = DELAYED_ACK_TIMER,
        Keepalive = KEEPALIVE_TIMER,
        Pacing = PACING_TIMER,
        CompressedAck = COMPRESSED_ACK_TIMER,
    }
}

enumeration! {
    /// `enum request`: what was made of a packet that came for a request.
    pub enum RequestName: u8 = layouts::request {
        Asked = ASKED,
        AskedAgain = ASKED_AGAIN,
        Ignored = IGNORED,
    }
}

enumeration! {
    /// `enum late`: what was made of a packet for which there is no socket.
    pub enum Late: u8 = layouts::late {
        Success = LATE_SUCCESS,
        Reset = LATE_RESET,
        Ack = LATE_ACK,
        Syn = LATE_SYN,
        AckOutOfWindow = LATE_ACK_OUT_OF_WINDOW,
        NoSocketReset = NO_SOCKET_RESET,
        NoSocketUnanswered = NO_SOCKET_UNANSWERED,
    }
}

/// Bits of [`Packet::bits`] and [`Queued::bits`].
pub mod bit {
    use super::layouts::packet_bit;

    pub const SEVERAL: u8 = packet_bit::SEVERAL as u8;
    pub const ITS_OWN: u8 = packet_bit::ITS_OWN as u8;
    pub const FIRST: u8 = packet_bit::FIRST as u8;
    pub const MERGED: u8 = packet_bit::MERGED as u8;
}

/// The three of a send buffer, then those of which recordings name what is unusual.
pub const FURTHER: usize = 3 + SYSCTLS.len();

const FURTHER_NAMES: [&str; FURTHER] = {
    let mut names = ["tcp_wmem_least", "tcp_wmem_usual", "tcp_wmem_most"].as_slice();
    let mut all = [""; FURTHER];
    let mut i = 0;
    while i < FURTHER {
        all[i] = match names {
            [first, rest @ ..] => {
                names = rest;
                first
            }
            [] => SYSCTLS[i - 3].0,
        };
        i += 1;
    }
    all
};

words! {
    /// `struct probed`: the state that a check is made from.
    pub struct Probed = layouts::PROBED: [u32; FIELDS.len()] = FIELDS;
    /// `struct usual_sysctls`.
    pub struct UsualSysctls = layouts::USUAL_SYSCTLS: [u32; 12] = [
        "tcp_timestamps",
        "tcp_sack",
        "tcp_ecn",
        "tcp_recovery",
        "tcp_early_retrans",
        "tcp_reordering",
        "tcp_slow_start_after_idle",
        "tcp_moderate_rcvbuf",
        "ip_default_ttl",
        "tcp_rmem_least",
        "tcp_rmem_usual",
        "tcp_rmem_most",
    ];
    /// `struct further_sysctls`.
    pub struct FurtherSysctls = layouts::FURTHER_SYSCTLS: [u32; FURTHER] = FURTHER_NAMES;
}

mirror! {
    /// `struct socket_settings`: what a socket and its namespace are set to.
    pub struct RawSocketSettings = layouts::SOCKET_SETTINGS {
        mtu: u32,
        usual: UsualSysctls,
        congestion: [u8; 16],
        further: FurtherSysctls,
        segments: u32,
    }

    /// `struct tracked_socket`: what the programs keep of a socket.
    pub struct TrackedSocket = layouts::TRACKED_SOCKET {
        clock: u64,
        congestion: u64,
        lost: u32,
        cubic: u32,
        delayed_ack: u32,
        handled: u32,
        backlog: u32,
        queued_begins: u32,
        queued_ends: u32,
        queued_alike: u32,
        queued_id: u16,
        queued_bits: u8,
        end: u8,
        ipv6: u8,
        callback: u8,
        sent: u8,
        no_space: u8,
        receiving: u8,
        gone: u8,
        inside: u8,
        slowed: u8,
        bbr: u8,
        pad: [u8; 3],
        metrics: [u32; 3],
        pad2: u32,
    }

    /// `struct chosen`: the ports whose connections are recorded.
    pub struct Chosen = layouts::CHOSEN {
        count: u16,
        ports: [u16; 16],
    }

    /// `struct counters`.
    pub struct Counters = layouts::COUNTERS {
        lost: u64,
        healed: u64,
        unrecorded: u64,
    }

    /// `struct set`: of the socket: SO_*, TCP_* and IP_* as they are kept there.
    pub struct Set = layouts::SET {
        locked: u32,
        send_buffer: u32,
        receive_buffer: u32,
        nagle: u32,
        segment: u32,
        window_clamp: u32,
        flags: u32,
        keep_idle: u32,
        keep_interval: u32,
        keep_count: u32,
        linger: u32,
        low_water: u32,
        unsent_low_water: u32,
        user_timeout: u32,
        syn_count: u32,
        linger_2: i32,
        defer_accept: u32,
        pacing: u32,
        pacing_high: u32,
        service: u32,
        time_to_live: i32,
        discovery: u32,
        pingpong: u32,
    }

    /// `struct head`: what each begins with.
    pub struct Head = layouts::HEAD {
        at: u64,
        jiffies: u32,
        kind: u8,
        end: u8,
        owned: u8,
        pad: u8,
    }

    /// `struct event`: of a socket.
    pub struct Event = layouts::EVENT {
        head: Head,
        sk: u64,
        clock: u64,
        task: u32,
        lost: u32,
        memory: u32,
        backlog: u32,
        received: u32,
        data_sent: u32,
        window_changed: u32,
        cubic: u32,
        delayed_ack: u32,
        out_of_window: u32,
    }

    /// `struct addresses`: those of IPv4 as ::ffff:0:0/96.
    pub struct Addresses = layouts::ADDRESSES {
        own: [u8; 16],
        peer: [u8; 16],
    }

    /// `struct opened`.
    pub struct Opened = layouts::OPENED {
        event: Event,
        addresses: Addresses,
        own_port: u16,
        peer_port: u16,
        pad: u32,
    }

    /// `struct call`.
    pub struct Call = layouts::CALL {
        event: Event,
        call: u32,
        pad: u32,
    }

    /// `struct transfer`.
    pub struct Transfer = layouts::TRANSFER {
        event: Event,
        call: u32,
        bytes: u32,
        flags: u32,
        first_page: u32,
    }

    /// `struct shutdown_call`.
    pub struct ShutdownCall = layouts::SHUTDOWN_CALL {
        event: Event,
        how: u32,
        pad: u32,
    }

    /// `struct option_call`.
    pub struct OptionCall = layouts::OPTION_CALL {
        event: Event,
        value: u64,
        level: u32,
        name: u32,
        length: u32,
        pad: u32,
    }

    /// `struct call_end`.
    pub struct CallEnd = layouts::CALL_END {
        event: Event,
        call: u32,
        result: i32,
    }

    /// `struct lock`.
    pub struct Lock = layouts::LOCK {
        event: Event,
        fragment: u32,
        pad: u32,
    }

    /// `struct snapshot`: the state that a check is made from.
    pub struct Snapshot = layouts::SNAPSHOT {
        event: Event,
        phase: u32,
        probed: Probed,
        pad: u32,
    }

    /// `struct option_end`.
    pub struct OptionEnd = layouts::OPTION_END {
        snapshot: Snapshot,
        result: i32,
        pad: u32,
    }

    /// `struct run_end`.
    pub struct RunEnd = layouts::RUN_END {
        snapshot: Snapshot,
        run: u32,
        damaged: u32,
    }

    /// `struct callback`.
    pub struct Callback = layouts::CALLBACK {
        snapshot: Snapshot,
        flags: u32,
        pad: u32,
    }

    /// `struct packet`.
    pub struct Packet = layouts::PACKET {
        event: Event,
        begins: u32,
        ends: u32,
        truesize: u32,
        acknowledges: u32,
        alike: u32,
        id: u16,
        ecn: u8,
        bits: u8,
    }

    /// `struct syn_packet`.
    pub struct SynPacket = layouts::SYN_PACKET {
        packet: Packet,
        likeness: u32,
        pad: u32,
    }

    /// `struct timer`.
    pub struct Timer = layouts::TIMER {
        event: Event,
        timer: u32,
        pad: u32,
    }

    /// `struct child`.
    pub struct Child = layouts::CHILD {
        event: Event,
        sent: u64,
        round_trip: u32,
        pad: u32,
    }

    /// `struct sent`.
    pub struct Sent = layouts::SENT {
        event: Event,
        begins: u32,
        ends: u32,
        id: u32,
        pad: u32,
    }

    /// `struct handed_over`.
    pub struct HandedOver = layouts::HANDED_OVER {
        event: Event,
        result: i32,
        pad: u32,
    }

    /// `struct queued`: as it came; it may be made smaller, and part of the one before it, on its way into the backlog.
    pub struct Queued = layouts::QUEUED {
        event: Event,
        begins: u32,
        ends: u32,
        alike: u32,
        id: u16,
        bits: u8,
        pad: u8,
    }

    /// `struct settings`.
    pub struct Settings = layouts::SETTINGS {
        event: Event,
        found: RawSocketSettings,
    }

    /// `struct answered_by_reset`.
    pub struct AnsweredByReset = layouts::ANSWERED_BY_RESET {
        event: Event,
        begins: u32,
        acknowledges: u32,
    }

    /// `struct named`: what was SENT last, over IPv6.
    pub struct Named = layouts::NAMED {
        event: Event,
        alike: u32,
        pad: u32,
    }

    /// `struct options`: options that were set before.
    pub struct Options = layouts::OPTIONS {
        event: Event,
        set: Set,
        pad: u32,
    }

    /// `struct other_call`.
    pub struct OtherCall = layouts::OTHER_CALL {
        event: Event,
        other: u32,
        pad: u32,
    }

    /// `struct metrics`: what earlier connections left changed these.
    pub struct Metrics = layouts::METRICS {
        event: Event,
        timeout: u32,
        reordering: u32,
        threshold: u32,
        largest_window: u32,
    }

    /// `struct stub`: of what has no socket: a request for a connection, or what is left of one.
    pub struct Stub = layouts::STUB {
        head: Head,
        addresses: Addresses,
        own_port: u16,
        peer_port: u16,
        pad: u32,
    }

    /// `struct request_packet`.
    pub struct RequestPacket = layouts::REQUEST_PACKET {
        stub: Stub,
        begins: u32,
        alike: u32,
        id: u16,
        ecn: u8,
        request: u8,
        full: u32,
    }

    /// `struct request_timer`.
    pub struct RequestTimer = layouts::REQUEST_TIMER {
        stub: Stub,
        tries: u32,
        pad: u32,
    }

    /// `struct request_answered`: a SYN-ACK was made.
    pub struct RequestAnswered = layouts::REQUEST_ANSWERED {
        stub: Stub,
        clock: u64,
        theirs: u32,
        own: u32,
        likeness: u32,
        cookie: u32,
    }

    /// `struct late_packet`.
    pub struct LatePacket = layouts::LATE_PACKET {
        stub: Stub,
        begins: u32,
        acknowledges: u32,
        answer_begins: u32,
        answer_acknowledges: u32,
        alike: u32,
        id: u16,
        ecn: u8,
        late: u8,
    }
}

/// All of them.
pub(crate) const MIRRORS: [Struct<'static>; 40] = [
    Probed::LAYOUT,
    UsualSysctls::LAYOUT,
    FurtherSysctls::LAYOUT,
    RawSocketSettings::LAYOUT,
    TrackedSocket::LAYOUT,
    Chosen::LAYOUT,
    Counters::LAYOUT,
    Set::LAYOUT,
    Head::LAYOUT,
    Event::LAYOUT,
    Addresses::LAYOUT,
    Opened::LAYOUT,
    Call::LAYOUT,
    Transfer::LAYOUT,
    ShutdownCall::LAYOUT,
    OptionCall::LAYOUT,
    CallEnd::LAYOUT,
    Lock::LAYOUT,
    Snapshot::LAYOUT,
    OptionEnd::LAYOUT,
    RunEnd::LAYOUT,
    Callback::LAYOUT,
    Packet::LAYOUT,
    SynPacket::LAYOUT,
    Timer::LAYOUT,
    Child::LAYOUT,
    Sent::LAYOUT,
    HandedOver::LAYOUT,
    Queued::LAYOUT,
    Settings::LAYOUT,
    AnsweredByReset::LAYOUT,
    Named::LAYOUT,
    Options::LAYOUT,
    OtherCall::LAYOUT,
    Metrics::LAYOUT,
    Stub::LAYOUT,
    RequestPacket::LAYOUT,
    RequestTimer::LAYOUT,
    RequestAnswered::LAYOUT,
    LatePacket::LAYOUT,
];
