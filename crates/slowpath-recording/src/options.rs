// SPDX-License-Identifier: Apache-2.0
//! Options of sockets: which of them a replay sets, which change nothing of what TCP does, and which cannot be replayed.
//!
//! Numbers are those of Linux (`include/uapi/asm-generic/socket.h`, `include/uapi/linux/{in,tcp}.h`); what they do was read in 6.12: `sk_setsockopt`,
//! `do_tcp_setsockopt`, `do_ip_setsockopt`.

use super::Handler;

/// `SOL_SOCKET`, `IPPROTO_IP`, `IPPROTO_TCP`.
pub const SOCKET: u16 = 1;
/// See [`SOCKET`].
pub const IP: u16 = 0;
/// See [`SOCKET`].
pub const TCP: u16 = 6;
/// No level of any socket: what a program did that no replay can do; [`name`] says what.
pub const OTHER: u16 = 0xfffe;

/// A call that had the socket's lock and changed nothing of what TCP does: `getsockname`, an option that [`Effect::None`] is said of. IP has no option with this number.
pub const LOCKED: Handler = Handler::Option {
    level: IP,
    name: 0,
    value: 0,
};

/// A poll that found no room to send (`SOCK_NOSPACE`): TCP makes the buffer larger then. IP's options have numbers below 256.
pub const NO_ROOM: Handler = Handler::Option {
    level: IP,
    name: 256,
    value: 0,
};

/// What an option is to a replay.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Effect {
    /// It changes what TCP does, and a replay sets it.
    Replayed,
    /// It changes nothing of it.
    None,
    /// It may, and a replay cannot set it.
    Refused,
}

use Effect::{None as Nothing, Refused, Replayed};

type KnownOption = (u16, &'static str, Effect);

const OF_SOCKET: [KnownOption; 33] = [
    (1, "SO_DEBUG", Nothing),
    (2, "SO_REUSEADDR", Nothing),
    (6, "SO_BROADCAST", Nothing),
    (7, "SO_SNDBUF", Replayed),
    (8, "SO_RCVBUF", Replayed),
    (9, "SO_KEEPALIVE", Replayed),
    (10, "SO_OOBINLINE", Replayed),
    (11, "SO_NO_CHECK", Nothing),
    (12, "SO_PRIORITY", Nothing),
    (13, "SO_LINGER", Replayed),
    (15, "SO_REUSEPORT", Nothing),
    (16, "SO_PASSCRED", Nothing),
    (18, "SO_RCVLOWAT", Replayed),
    // When a call ends because of them, its result says so.
    (20, "SO_RCVTIMEO", Nothing),
    (21, "SO_SNDTIMEO", Nothing),
    (25, "SO_BINDTODEVICE", Nothing),
    (27, "SO_DETACH_FILTER", Nothing),
    (29, "SO_TIMESTAMP", Nothing),
    (32, "SO_SNDBUFFORCE", Replayed),
    (33, "SO_RCVBUFFORCE", Replayed),
    (35, "SO_TIMESTAMPNS", Nothing),
    (36, "SO_MARK", Nothing),
    (40, "SO_RXQ_OVFL", Nothing),
    (46, "SO_BUSY_POLL", Nothing),
    (47, "SO_MAX_PACING_RATE", Replayed),
    (49, "SO_INCOMING_CPU", Nothing),
    // Of sends with MSG_ZEROCOPY the connection is refused.
    (60, "SO_ZEROCOPY", Nothing),
    (63, "SO_TIMESTAMP_NEW", Nothing),
    (64, "SO_TIMESTAMPNS_NEW", Nothing),
    (66, "SO_RCVTIMEO_NEW", Nothing),
    (67, "SO_SNDTIMEO_NEW", Nothing),
    (69, "SO_PREFER_BUSY_POLL", Nothing),
    (70, "SO_BUSY_POLL_BUDGET", Nothing),
];

const OF_IP: [KnownOption; 13] = [
    (1, "IP_TOS", Replayed),
    (2, "IP_TTL", Replayed),
    (6, "IP_RECVOPTS", Nothing),
    (8, "IP_PKTINFO", Nothing),
    (10, "IP_MTU_DISCOVER", Replayed),
    (11, "IP_RECVERR", Nothing),
    (12, "IP_RECVTTL", Nothing),
    (13, "IP_RECVTOS", Nothing),
    (15, "IP_FREEBIND", Nothing),
    (19, "IP_TRANSPARENT", Nothing),
    (20, "IP_ORIGDSTADDR", Nothing),
    (24, "IP_BIND_ADDRESS_NO_PORT", Nothing),
    (51, "IP_LOCAL_PORT_RANGE", Nothing),
];

const OF_TCP: [KnownOption; 20] = [
    (1, "TCP_NODELAY", Replayed),
    (2, "TCP_MAXSEG", Replayed),
    (3, "TCP_CORK", Replayed),
    (4, "TCP_KEEPIDLE", Replayed),
    (5, "TCP_KEEPINTVL", Replayed),
    (6, "TCP_KEEPCNT", Replayed),
    (7, "TCP_SYNCNT", Replayed),
    (8, "TCP_LINGER2", Replayed),
    (9, "TCP_DEFER_ACCEPT", Replayed),
    (10, "TCP_WINDOW_CLAMP", Replayed),
    (12, "TCP_QUICKACK", Replayed),
    (13, "TCP_CONGESTION", Replayed),
    (16, "TCP_THIN_LINEAR_TIMEOUTS", Replayed),
    (18, "TCP_USER_TIMEOUT", Replayed),
    // Of sends with MSG_FASTOPEN the connection is refused.
    (23, "TCP_FASTOPEN", Nothing),
    (25, "TCP_NOTSENT_LOWAT", Replayed),
    (27, "TCP_SAVE_SYN", Nothing),
    (33, "TCP_FASTOPEN_KEY", Nothing),
    (36, "TCP_INQ", Nothing),
    (17, "TCP_THIN_DUPACK", Nothing),
];

/// Options with a name that people know, and calls, that no replay can do.
const NOT_REPLAYED: [(u16, u16, &str); 19] = [
    (OTHER, 1, "splice() from the socket"),
    (OTHER, 2, "ss --kill (SOCK_DESTROY)"),
    (OTHER, 3, "calls of two tasks at once"),
    (
        OTHER,
        4,
        "TCP_CONGESTION with a name of more than eight letters",
    ),
    (OTHER, 5, "TCP_FASTOPEN"),
    (SOCKET, 26, "SO_ATTACH_FILTER"),
    (SOCKET, 37, "SO_TIMESTAMPING"),
    (SOCKET, 50, "SO_ATTACH_BPF"),
    (SOCKET, 61, "SO_TXTIME"),
    (SOCKET, 65, "SO_TIMESTAMPING_NEW"),
    (SOCKET, 73, "SO_RESERVE_MEM"),
    (TCP, 14, "TCP_MD5SIG"),
    (TCP, 19, "TCP_REPAIR"),
    (TCP, 24, "TCP_TIMESTAMP"),
    (TCP, 30, "TCP_FASTOPEN_CONNECT"),
    (TCP, 31, "TCP_ULP"),
    (TCP, 32, "TCP_MD5SIG_EXT"),
    (TCP, 37, "TCP_TX_DELAY"),
    (TCP, 38, "TCP_AO_ADD_KEY"),
];

/// Linux's names of congestion controls that a laboratory kernel has: the others are not replayed.
pub const CONGESTION_CONTROLS: [&str; 9] = [
    "reno",
    "cubic",
    "dctcp",
    "bbr",
    "bic",
    "highspeed",
    "scalable",
    "vegas",
    "westwood",
];

/// `TCP_CONGESTION`.
const CONGESTION: u16 = 13;

/// Why sockets with that congestion control cannot be replayed; `None`: they can.
pub(super) fn refused_congestion(name: &str) -> Option<String> {
    let there = CONGESTION_CONTROLS.contains(&name);
    (!there).then(|| format!("congestion control {name}, which the replaying kernel does not have"))
}

/// A name that a value has no room for.
pub const LONG_CONGESTION: Handler = Handler::Option {
    level: OTHER,
    name: 4,
    value: 0,
};

/// Two tasks were in calls of the socket at once.
pub const TWO_TASKS: Handler = Handler::Option {
    level: OTHER,
    name: 3,
    value: 0,
};

/// What stands for a call that no replay can do.
pub fn other(which: u8) -> Handler {
    Handler::Option {
        level: OTHER,
        name: which.into(),
        value: 0,
    }
}

fn known(level: u16) -> &'static [KnownOption] {
    match level {
        SOCKET => &OF_SOCKET,
        IP => &OF_IP,
        TCP => &OF_TCP,
        _ => &[],
    }
}

/// What an option is to a replay; one that is not known is refused.
pub fn effect(level: u16, name: u16) -> Effect {
    let found = known(level).iter().find(|(number, ..)| *number == name);
    found.map_or(Refused, |(_, _, effect)| *effect)
}

/// An option's name, or its numbers.
pub fn name(level: u16, name: u16) -> String {
    let found = known(level).iter().find(|(number, ..)| *number == name);
    let found = found.map(|(_, text, _)| *text).or_else(|| {
        let mut all = NOT_REPLAYED.iter();
        Some(all.find(|it| (it.0, it.1) == (level, name))?.2)
    });
    match found {
        Some(text) => text.to_owned(),
        None if (level, name) == (IP, 0) => "a call that changes nothing".to_owned(),
        None if (level, name) == (IP, 256) => "a poll without room".to_owned(),
        None => format!("option {level}/{name}"),
    }
}

/// Flags of sends that need what a replay does not have: `MSG_ZEROCOPY`, `MSG_FASTOPEN`.
const FLAGS: [(u32, &str); 2] = [(0x400_0000, "MSG_ZEROCOPY"), (0x2000_0000, "MSG_FASTOPEN")];

/// What of a run no replay can do; `None`: nothing.
pub(super) fn refused(handler: &Handler) -> Option<String> {
    match *handler {
        Handler::Option {
            level: TCP,
            name: CONGESTION,
            value,
        } => {
            let name = value.to_le_bytes();
            let name = name.split(|byte| *byte == 0).next().unwrap_or_default();
            refused_congestion(&String::from_utf8_lossy(name))
        }
        Handler::Option { level, name, .. } if level != u16::MAX => {
            let pseudo = level == IP && (name == 0 || name == 256);
            let fine = pseudo || effect(level, name) == Replayed;
            (!fine).then(|| self::name(level, name))
        }
        Handler::Send { flags, .. } => {
            let flag = FLAGS.iter().find(|(flag, _)| flags & flag != 0);
            flag.map(|(_, name)| (*name).to_owned())
        }
        _ => None,
    }
}

#[cfg(test)]
mod tests {
    use super::{Effect, LOCKED, NO_ROOM, TWO_TASKS, effect, name, refused};
    use crate::Handler;

    #[test]
    fn what_no_replay_can_do_has_a_name() {
        let option = |level, name| Handler::Option {
            level,
            name,
            value: 1,
        };
        assert_eq!(refused(&option(1, 37)).as_deref(), Some("SO_TIMESTAMPING"));
        assert_eq!(refused(&option(6, 31)).as_deref(), Some("TCP_ULP"));
        assert_eq!(refused(&option(6, 200)).as_deref(), Some("option 6/200"));
        assert_eq!(
            refused(&TWO_TASKS).as_deref(),
            Some("calls of two tasks at once")
        );
        let send = |flags| Handler::Send {
            bytes: 1,
            flags,
            result: 1,
        };
        // MSG_ZEROCOPY of include/linux/socket.h; MSG_NOSIGNAL.
        assert_eq!(refused(&send(0x400_0000)).as_deref(), Some("MSG_ZEROCOPY"));
        assert_eq!(refused(&send(0x4000)), None);
        for fine in [LOCKED, NO_ROOM, option(6, 1)] {
            assert_eq!(refused(&fine), None);
        }
    }

    #[test]
    fn an_option_has_one_effect() {
        assert_eq!(effect(1, 2), Effect::None);
        assert_eq!(effect(6, 13), Effect::Replayed);
        assert_eq!(effect(41, 1), Effect::Refused);
        assert_eq!(name(6, 25), "TCP_NOTSENT_LOWAT");
    }
}
