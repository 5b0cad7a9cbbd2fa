// SPDX-License-Identifier: Apache-2.0
//! A plan as bytes, for those who take it across a boundary: a kernel's module parameter, a
//! file, a pipe.
//!
//! Little-endian, no padding: the magic `SPFB`, the version, then what stands in
//! [`Plan`], in its order; lists with their length before them; an optional value behind a
//! byte 0 or 1. Bytes are never trusted: a length that what is left cannot hold is an error
//! before any memory is asked for. Another layout gets another version.

use super::plan::{
    Action, BitErrors, Burst, Change, Condition, End, Impairment, Jitter, Late, Mtu, Node, Pick,
    Plan, Police, Remark, Route, Share,
};
use crate::config::{Alpha, Detour, Limit, PortConfig, PortKind, Shared, SwitchConfig, Threshold};
use crate::packet::{Destination, PortId};
use crate::time::{Rate, Span, Time};
use alloc::boxed::Box;
use alloc::vec::Vec;
use core::fmt;

const MAGIC: u32 = u32::from_le_bytes(*b"SPFB");
const VERSION: u32 = 2;

/// Why bytes are not a plan.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum DecodeError {
    /// They do not begin as a plan does.
    NoPlan,
    /// Another version's layout.
    Version(u32),
    /// They end too early, or a length says more than there is.
    Short,
    /// Something stands behind the end.
    Long,
    /// A value that its field cannot have; the offset behind it.
    Value(usize),
}

impl fmt::Display for DecodeError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            DecodeError::NoPlan => write!(f, "not a plan of a fabric"),
            DecodeError::Version(version) => {
                write!(f, "a plan of version {version}, not {VERSION}")
            }
            DecodeError::Short => write!(f, "the plan ends too early"),
            DecodeError::Long => write!(f, "something stands behind the plan"),
            DecodeError::Value(at) => write!(f, "a value before byte {at} is impossible"),
        }
    }
}

impl core::error::Error for DecodeError {}

struct Reader<'a> {
    bytes: &'a [u8],
    at: usize,
}

impl Reader<'_> {
    fn wrong(&self) -> DecodeError {
        DecodeError::Value(self.at)
    }
}

/// A value that can be written and read.
trait Code: Sized {
    /// The fewest bytes that one takes.
    const LEAST: usize;
    fn write(&self, out: &mut Vec<u8>);
    fn read(from: &mut Reader<'_>) -> Result<Self, DecodeError>;
}

macro_rules! number {
    ($($type:ty),*) => {$(
        impl Code for $type {
            const LEAST: usize = size_of::<$type>();
            fn write(&self, out: &mut Vec<u8>) {
                out.extend_from_slice(&self.to_le_bytes());
            }
            fn read(from: &mut Reader<'_>) -> Result<Self, DecodeError> {
                let rest = from.bytes.get(from.at..).and_then(|rest| rest.first_chunk());
                let bytes = rest.ok_or(DecodeError::Short)?;
                from.at += bytes.len();
                Ok(<$type>::from_le_bytes(*bytes))
            }
        }
    )*};
}
number!(u8, u16, u32, u64);

/// A structure: its fields one after the other.
macro_rules! fields {
    ($type:ident { $($field:ident: $of:ty),* $(,)? }) => {
        impl Code for $type {
            const LEAST: usize = 0 $(+ <$of>::LEAST)*;
            fn write(&self, out: &mut Vec<u8>) {
                $(self.$field.write(out);)*
            }
            fn read(from: &mut Reader<'_>) -> Result<Self, DecodeError> {
                Ok($type { $($field: Code::read(from)?),* })
            }
        }
    };
}

/// Something around a number.
macro_rules! around {
    ($($type:ident($of:ty)),*) => {$(
        impl Code for $type {
            const LEAST: usize = <$of>::LEAST;
            fn write(&self, out: &mut Vec<u8>) {
                self.0.write(out);
            }
            fn read(from: &mut Reader<'_>) -> Result<Self, DecodeError> {
                Ok($type(Code::read(from)?))
            }
        }
    )*};
}
around!(
    Time(u64),
    Span(u64),
    PortId(u16),
    Destination(u32),
    Share(u32),
    BitErrors(u64)
);

impl Code for bool {
    const LEAST: usize = 1;
    fn write(&self, out: &mut Vec<u8>) {
        u8::from(*self).write(out);
    }
    fn read(from: &mut Reader<'_>) -> Result<Self, DecodeError> {
        match u8::read(from)? {
            0 => Ok(false),
            1 => Ok(true),
            _ => Err(from.wrong()),
        }
    }
}

impl<T: Code> Code for Option<T> {
    const LEAST: usize = 1;
    fn write(&self, out: &mut Vec<u8>) {
        self.is_some().write(out);
        if let Some(value) = self {
            value.write(out);
        }
    }
    fn read(from: &mut Reader<'_>) -> Result<Self, DecodeError> {
        Ok(match bool::read(from)? {
            true => Some(T::read(from)?),
            false => None,
        })
    }
}

impl<T: Code> Code for Vec<T> {
    const LEAST: usize = 4;
    fn write(&self, out: &mut Vec<u8>) {
        // No list of a plan is longer: nodes, ports and links are below 2^21, and a longer
        // one of the others does not fit its own length and is refused by the reader.
        (self.len() as u32).write(out);
        for value in self {
            value.write(out);
        }
    }
    fn read(from: &mut Reader<'_>) -> Result<Self, DecodeError> {
        let length = u32::read(from)? as usize;
        let left = from.bytes.len() - from.at;
        if length.saturating_mul(T::LEAST.max(1)) > left {
            return Err(DecodeError::Short);
        }
        (0..length).map(|_| T::read(from)).collect()
    }
}

impl<A: Code, B: Code> Code for (A, B) {
    const LEAST: usize = A::LEAST + B::LEAST;
    fn write(&self, out: &mut Vec<u8>) {
        self.0.write(out);
        self.1.write(out);
    }
    fn read(from: &mut Reader<'_>) -> Result<Self, DecodeError> {
        Ok((A::read(from)?, B::read(from)?))
    }
}

impl<T: Code> Code for [T; 2] {
    const LEAST: usize = 2 * T::LEAST;
    fn write(&self, out: &mut Vec<u8>) {
        self[0].write(out);
        self[1].write(out);
    }
    fn read(from: &mut Reader<'_>) -> Result<Self, DecodeError> {
        Ok([T::read(from)?, T::read(from)?])
    }
}

impl Code for Rate {
    const LEAST: usize = 8;
    fn write(&self, out: &mut Vec<u8>) {
        self.bits_per_second().write(out);
    }
    fn read(from: &mut Reader<'_>) -> Result<Self, DecodeError> {
        Rate::from_bits_per_second(Code::read(from)?).ok_or_else(|| from.wrong())
    }
}

impl Code for Alpha {
    const LEAST: usize = 8;
    fn write(&self, out: &mut Vec<u8>) {
        (self.numerator.get(), self.denominator.get()).write(out);
    }
    fn read(from: &mut Reader<'_>) -> Result<Self, DecodeError> {
        let (above, below) = Code::read(from)?;
        Alpha::new(above, below).ok_or_else(|| from.wrong())
    }
}

impl Code for PortKind {
    const LEAST: usize = 1;
    fn write(&self, out: &mut Vec<u8>) {
        (*self as u8).write(out);
    }
    fn read(from: &mut Reader<'_>) -> Result<Self, DecodeError> {
        Ok(match bool::read(from)? {
            false => PortKind::Host,
            true => PortKind::Switch,
        })
    }
}

impl Code for Threshold {
    const LEAST: usize = 5;
    fn write(&self, out: &mut Vec<u8>) {
        match self {
            Threshold::Packets(packets) => (0u8, *packets).write(out),
            Threshold::Bytes(bytes) => (1u8, *bytes).write(out),
        }
    }
    fn read(from: &mut Reader<'_>) -> Result<Self, DecodeError> {
        Ok(match bool::read(from)? {
            false => Threshold::Packets(Code::read(from)?),
            true => Threshold::Bytes(Code::read(from)?),
        })
    }
}

impl Code for Node {
    const LEAST: usize = 5;
    fn write(&self, out: &mut Vec<u8>) {
        match self {
            Node::Host(host) => (0u8, *host).write(out),
            Node::Switch(switch) => (1u8, *switch).write(out),
        }
    }
    fn read(from: &mut Reader<'_>) -> Result<Self, DecodeError> {
        Ok(match bool::read(from)? {
            false => Node::Host(Code::read(from)?),
            true => Node::Switch(Code::read(from)?),
        })
    }
}

impl Code for Action {
    const LEAST: usize = 6;
    fn write(&self, out: &mut Vec<u8>) {
        match self {
            Action::Rate(line, rate) => (0u8, (*line, *rate)).write(out),
            Action::Propagation(line, span) => (1u8, (*line, *span)).write(out),
            Action::Impair(line, impairment) => {
                (2u8, *line).write(out);
                impairment.write(out);
            }
            Action::Up(link, up) => (3u8, (*link, *up)).write(out),
            Action::Route(route) => {
                4u8.write(out);
                route.write(out);
            }
            Action::Condition(line, condition) => {
                (5u8, *line).write(out);
                condition.write(out);
            }
        }
    }
    fn read(from: &mut Reader<'_>) -> Result<Self, DecodeError> {
        Ok(match u8::read(from)? {
            0 => Action::Rate(Code::read(from)?, Code::read(from)?),
            1 => Action::Propagation(Code::read(from)?, Code::read(from)?),
            2 => Action::Impair(Code::read(from)?, Box::new(Code::read(from)?)),
            3 => Action::Up(Code::read(from)?, Code::read(from)?),
            4 => Action::Route(Code::read(from)?),
            5 => Action::Condition(Code::read(from)?, Code::read(from)?),
            _ => return Err(from.wrong()),
        })
    }
}

impl Code for Condition {
    const LEAST: usize = 2;
    fn write(&self, out: &mut Vec<u8>) {
        match self {
            Condition::Mtu(mtu) => (0u8, *mtu).write(out),
            Condition::Police(police) => (1u8, *police).write(out),
            Condition::ClearEcn(clear) => (2u8, *clear).write(out),
            Condition::Dscp(remark) => (3u8, *remark).write(out),
        }
    }
    fn read(from: &mut Reader<'_>) -> Result<Self, DecodeError> {
        Ok(match u8::read(from)? {
            0 => Condition::Mtu(Code::read(from)?),
            1 => Condition::Police(Code::read(from)?),
            2 => Condition::ClearEcn(Code::read(from)?),
            3 => Condition::Dscp(Code::read(from)?),
            _ => return Err(from.wrong()),
        })
    }
}

fields!(Mtu {
    bytes: u32,
    reported: bool
});
fields!(Police {
    rate: Rate,
    burst: u64
});
fields!(Remark {
    dscp: u8,
    class: u8
});
fields!(Limit { packets: Option<u32>, bytes: Option<u64> });
fields!(PortConfig {
    kind: PortKind,
    rate: Rate,
    propagation: Span,
    limit: Limit,
    marking: Option<Threshold>,
});
fields!(Shared {
    total: Limit,
    alpha: Alpha
});
fields!(Detour {
    arrival_port: bool,
    mark: bool
});
fields!(SwitchConfig {
    ports: Vec<PortConfig>,
    classes: u8,
    shared: Option<Shared>,
    detour: Option<Detour>,
    decrement_ttl: bool,
    count_flows: bool,
    seed: u64,
    number: u32,
});
fields!(End {
    node: Node,
    port: PortId
});
fields!(Burst {
    begin: Share,
    end: Share,
    good: Share,
    bad: Share
});
fields!(Pick {
    share: Share,
    burst: Option<Burst>,
    numbers: Vec<(u64, u64)>,
    every: Option<(u64, u64)>,
    at_least: u32,
});
fields!(Jitter {
    most: Span,
    overtaking: bool
});
fields!(Late {
    pick: Pick,
    by: Span
});
fields!(Impairment {
    delay: Span,
    jitter: Jitter,
    loss: Pick,
    bit_errors: BitErrors,
    corruption: Pick,
    copies: Pick,
    late: Late,
});
fields!(Route { switch: u32, destination: Destination, ports: Vec<PortId> });
fields!(Change {
    at: Time,
    action: Action
});
fields!(Plan {
    seed: u64,
    most_packets: u32,
    hosts: Vec<PortConfig>,
    switches: Vec<SwitchConfig>,
    links: Vec<[End; 2]>,
    routes: Vec<Route>,
    impairments: Vec<(u32, Impairment)>,
    changes: Vec<Change>,
});

impl Plan {
    /// The plan as bytes.
    pub fn encode(&self) -> Vec<u8> {
        let mut out = Vec::new();
        (MAGIC, VERSION).write(&mut out);
        self.write(&mut out);
        out
    }

    /// The plan that the bytes say.
    ///
    /// # Errors
    /// They say none. What they say may still be impossible: [`Fabric::new`](super::Fabric::new)
    /// judges that.
    pub fn decode(bytes: &[u8]) -> Result<Self, DecodeError> {
        let mut from = Reader { bytes, at: 0 };
        if u32::read(&mut from) != Ok(MAGIC) {
            return Err(DecodeError::NoPlan);
        }
        let version = u32::read(&mut from)?;
        if version != VERSION {
            return Err(DecodeError::Version(version));
        }
        let plan = Plan::read(&mut from)?;
        if from.at != bytes.len() {
            return Err(DecodeError::Long);
        }
        Ok(plan)
    }
}
