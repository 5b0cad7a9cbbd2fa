// SPDX-License-Identifier: Apache-2.0
//! The C ABI of `include/slowpath_switch.h`, where each name is explained.
//!
//! Every pointer that comes in is null or points to what its type says, valid for the call
//! and not used elsewhere during it: that is the callers' side of the contract. Null gives
//! [`INVALID`]; so does whatever else is impossible.
#![allow(unsafe_code)]

use crate::config::{Alpha, Detour, Limit, PortConfig, PortKind, Shared, SwitchConfig, Threshold};
use crate::counters::Counters;
use crate::observer::{DropReason, Observer};
use crate::packet::{Destination, Header, PortId};
use crate::queue::Depth;
use crate::switch::{Outcome, Switch};
use crate::time::{Rate, Span, Time};
use alloc::boxed::Box;
use alloc::vec::Vec;
use core::ffi::{c_int, c_void};
use core::ptr;

/// The packet waits in a queue; also: done.
pub const QUEUED: c_int = 0;
/// The packet is the caller's again.
pub const DROPPED: c_int = 1;
/// Nothing was due.
pub const NOTHING: c_int = 2;
/// A null pointer, or an impossible argument.
pub const INVALID: c_int = -1;

/// Bits of [`Config::flags`].
pub mod flags {
    /// Ports share memory.
    pub const SHARED: u32 = 1;
    /// Detour instead of drop.
    pub const DETOUR: u32 = 2;
    /// [`crate::Detour::arrival_port`].
    pub const DETOUR_TO_ARRIVAL_PORT: u32 = 4;
    /// [`crate::Detour::mark`].
    pub const DETOUR_MARKS: u32 = 8;
    /// [`crate::SwitchConfig::decrement_ttl`].
    pub const DECREMENT_TTL: u32 = 16;
    /// [`crate::SwitchConfig::count_flows`].
    pub const COUNT_FLOWS: u32 = 32;
}

/// Bits of [`QueuedAt::flags`].
const WAS_MARKED: u16 = 1;
const WAS_DETOURED: u16 = 2;
/// Not a time.
pub(crate) const NEVER: u64 = u64::MAX;
/// Not a port.
pub(crate) const NO_PORT: u16 = u16::MAX;

/// A [`Limit`]; the largest numbers bound nothing.
#[derive(Clone, Copy, Debug)]
#[repr(C)]
pub struct CLimit {
    /// Bytes.
    pub bytes: u64,
    /// Packets.
    pub packets: u32,
}

impl CLimit {
    fn limit(self) -> Limit {
        Limit {
            bytes: (self.bytes != u64::MAX).then_some(self.bytes),
            packets: (self.packets != u32::MAX).then_some(self.packets),
        }
    }
}

/// A [`PortConfig`].
#[derive(Clone, Copy, Debug)]
#[repr(C)]
pub struct Port {
    /// The link's rate.
    pub bits_per_second: u64,
    /// Picoseconds to the other end.
    pub propagation: u64,
    /// What all classes may hold.
    pub limit: CLimit,
    /// Where marking begins, in packets or in bytes.
    pub marking: CLimit,
    /// 0 a host, 1 a switch.
    pub kind: u32,
}

impl Port {
    fn config(self) -> Option<PortConfig> {
        let marking = match (self.marking.limit().packets, self.marking.limit().bytes) {
            (None, None) => None,
            (Some(packets), None) => Some(Threshold::Packets(packets)),
            (None, Some(bytes)) => Some(Threshold::Bytes(bytes)),
            (Some(_), Some(_)) => return None,
        };
        Some(PortConfig {
            kind: match self.kind {
                0 => PortKind::Host,
                1 => PortKind::Switch,
                _ => return None,
            },
            rate: Rate::from_bits_per_second(self.bits_per_second)?,
            propagation: Span(self.propagation),
            limit: self.limit.limit(),
            marking,
        })
    }
}

/// A [`SwitchConfig`].
#[derive(Clone, Copy, Debug)]
#[repr(C)]
pub struct Config {
    /// The first of the ports.
    pub ports: *const Port,
    /// How many there are.
    pub port_count: u32,
    /// 1 to 8.
    pub classes: u32,
    /// See [`flags`].
    pub flags: u32,
    /// See [`SwitchConfig::number`].
    pub number: u32,
    /// See [`SwitchConfig::seed`].
    pub seed: u64,
    /// See [`Shared::total`].
    pub shared: CLimit,
    /// See [`Shared::alpha`].
    pub alpha_numerator: u32,
    /// See [`Shared::alpha`].
    pub alpha_denominator: u32,
}

impl Config {
    fn config(&self, ports: &[Port]) -> Option<SwitchConfig> {
        let has = |flag| self.flags & flag != 0;
        let shared = if has(flags::SHARED) {
            Some(Shared {
                total: self.shared.limit(),
                alpha: Alpha::new(self.alpha_numerator, self.alpha_denominator)?,
            })
        } else {
            None
        };
        Some(SwitchConfig {
            ports: ports
                .iter()
                .map(|port| port.config())
                .collect::<Option<_>>()?,
            classes: u8::try_from(self.classes).ok()?,
            shared,
            detour: has(flags::DETOUR).then(|| Detour {
                arrival_port: has(flags::DETOUR_TO_ARRIVAL_PORT),
                mark: has(flags::DETOUR_MARKS),
            }),
            decrement_ttl: has(flags::DECREMENT_TTL),
            count_flows: has(flags::COUNT_FLOWS),
            seed: self.seed,
            number: self.number,
        })
    }
}

/// What became of a packet.
#[derive(Clone, Copy, Debug)]
#[repr(C)]
pub struct QueuedAt {
    /// When to transmit, or never.
    pub start: u64,
    /// Where it waits.
    pub port: u16,
    /// Bit 0: marked; bit 1: detoured.
    pub flags: u16,
    /// Why it was dropped.
    pub reason: u32,
}

/// A [`Departure`](crate::Departure).
#[derive(Clone, Copy, Debug)]
#[repr(C)]
pub struct Leaving {
    /// The packet.
    pub packet: Header,
    /// The first bit leaves.
    pub start: u64,
    /// The last bit has left.
    pub finish: u64,
    /// The last bit is at the other end.
    pub arrival: u64,
    /// When to call again, or never.
    pub next: u64,
}

/// An event.
#[derive(Clone, Copy, Debug)]
#[repr(C)]
pub struct Event {
    /// When.
    pub at: u64,
    /// Of which packet.
    pub packet: *const Header,
    /// What waits at the port, or in the queue that marks.
    pub depth: Depth,
    /// 0 enqueued, 1 dequeued, 2 marked, 3 dropped, 4 detoured.
    pub kind: u32,
    /// A drop's.
    pub reason: u32,
    /// Where.
    pub port: u16,
    /// Where a detour leads.
    pub to: u16,
}

/// Called for every event.
pub type Callback = extern "C" fn(context: *mut c_void, event: *const Event);

struct CallbackObserver {
    callback: Option<Callback>,
    context: *mut c_void,
}

impl CallbackObserver {
    fn report(&self, kind: u32, at: Time, port: PortId, packet: &Header, depth: Depth) {
        self.report_event(Event {
            at: at.0,
            packet: ptr::from_ref(packet),
            depth,
            kind,
            reason: 0,
            port: port.0,
            to: NO_PORT,
        });
    }

    fn report_event(&self, event: Event) {
        if let Some(callback) = self.callback {
            callback(self.context, &raw const event);
        }
    }
}

impl Observer<Header> for CallbackObserver {
    fn enqueued(&mut self, at: Time, port: PortId, packet: &Header, depth: Depth) {
        self.report(0, at, port, packet, depth);
    }

    fn dequeued(&mut self, at: Time, port: PortId, packet: &Header, depth: Depth) {
        self.report(1, at, port, packet, depth);
    }

    fn marked(&mut self, at: Time, port: PortId, packet: &Header, queue: Depth) {
        self.report(2, at, port, packet, queue);
    }

    fn dropped(&mut self, at: Time, port: Option<PortId>, packet: &Header, reason: DropReason) {
        self.report_event(Event {
            at: at.0,
            packet: ptr::from_ref(packet),
            depth: Depth::default(),
            kind: 3,
            reason: reason as u32,
            port: port.map_or(NO_PORT, |port| port.0),
            to: NO_PORT,
        });
    }

    fn detoured(&mut self, at: Time, from: PortId, to: PortId, packet: &Header) {
        self.report_event(Event {
            at: at.0,
            packet: ptr::from_ref(packet),
            depth: Depth::default(),
            kind: 4,
            reason: 0,
            port: from.0,
            to: to.0,
        });
    }
}

/// A switch and what its events go to.
pub struct Handle {
    switch: Switch<Header>,
    observer: CallbackObserver,
}

/// A switch; null if the configuration is impossible.
///
/// # Safety
/// `config` and its ports are null or valid.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn slowpath_switch_new(config: *const Config) -> *mut Handle {
    // SAFETY: the caller's side of the contract.
    let Some(config) = (unsafe { config.as_ref() }) else {
        return ptr::null_mut();
    };
    if config.ports.is_null() || config.port_count >= u32::from(u16::MAX) {
        return ptr::null_mut();
    }
    // SAFETY: the caller's side of the contract; `port_count` ports fit an address space.
    let ports = unsafe { core::slice::from_raw_parts(config.ports, config.port_count as usize) };
    let made = config
        .config(ports)
        .and_then(|config| Switch::new(&config).ok());
    let observer = CallbackObserver {
        callback: None,
        context: ptr::null_mut(),
    };
    made.map_or(ptr::null_mut(), |switch| {
        Box::into_raw(Box::new(Handle { switch, observer }))
    })
}

/// Frees a switch and what waits in it; null does nothing.
///
/// # Safety
/// `switch` came from [`slowpath_switch_new`] and is not used again.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn slowpath_switch_free(switch: *mut Handle) {
    if !switch.is_null() {
        // SAFETY: it came from `Box::into_raw`, and no one else has it.
        drop(unsafe { Box::from_raw(switch) });
    }
}

/// Sets the callback of every event from now on.
///
/// # Safety
/// `switch` is null or valid; the callback may be called with `context` until replaced.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn slowpath_switch_observe(
    switch: *mut Handle,
    callback: Option<Callback>,
    context: *mut c_void,
) -> c_int {
    // SAFETY: the caller's side of the contract.
    let Some(handle) = (unsafe { switch.as_mut() }) else {
        return INVALID;
    };
    handle.observer = CallbackObserver { callback, context };
    QUEUED
}

/// See [`Switch::set_route`].
///
/// # Safety
/// `switch` is null or valid; `ports` points to `count` ports, or `count` is 0.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn slowpath_switch_set_route(
    switch: *mut Handle,
    destination: u32,
    ports: *const u16,
    count: usize,
) -> c_int {
    // SAFETY: the caller's side of the contract.
    let Some(handle) = (unsafe { switch.as_mut() }) else {
        return INVALID;
    };
    if (ports.is_null() && count > 0) || count > usize::from(u16::MAX) {
        return INVALID;
    }
    let ports: Vec<PortId> = (0..count)
        // SAFETY: the caller's side of the contract.
        .map(|at| PortId(unsafe { *ports.add(at) }))
        .collect();
    match handle.switch.set_route(Destination(destination), &ports) {
        Ok(()) => QUEUED,
        Err(_) => INVALID,
    }
}

/// What `arrive` and `send` have in common: the pointers, and the answer's form.
///
/// # Safety
/// Each pointer is null or valid, and no one else uses what it points to.
unsafe fn take(
    switch: *mut Handle,
    packet: *mut Header,
    queued: *mut QueuedAt,
    forward: impl FnOnce(&mut Switch<Header>, Header, &mut CallbackObserver) -> Outcome<Header>,
) -> c_int {
    // SAFETY: the caller's side of the contract.
    let pointers = unsafe { (switch.as_mut(), packet.as_mut(), queued.as_mut()) };
    let (Some(handle), Some(packet), Some(queued)) = pointers else {
        return INVALID;
    };
    match forward(&mut handle.switch, *packet, &mut handle.observer) {
        Outcome::Queued(at) => {
            let marked = if at.marked { WAS_MARKED } else { 0 };
            let detoured = if at.detoured { WAS_DETOURED } else { 0 };
            *queued = QueuedAt {
                start: at.start.map_or(NEVER, |start| start.0),
                port: at.port.0,
                flags: marked | detoured,
                reason: 0,
            };
            QUEUED
        }
        Outcome::Dropped {
            packet: back,
            reason,
        } => {
            *packet = back;
            *queued = QueuedAt {
                start: NEVER,
                port: NO_PORT,
                flags: 0,
                reason: reason as u32,
            };
            DROPPED
        }
    }
}

/// See [`Switch::arrive`].
///
/// # Safety
/// Each pointer is null or valid, and no one else uses what it points to.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn slowpath_switch_arrive(
    switch: *mut Handle,
    now: u64,
    by: u16,
    packet: *mut Header,
    queued: *mut QueuedAt,
) -> c_int {
    let arrive = |switch: &mut Switch<Header>, packet, observer: &mut CallbackObserver| {
        switch.arrive(Time(now), PortId(by), packet, observer)
    };
    // SAFETY: the caller's side of the contract.
    unsafe { take(switch, packet, queued, arrive) }
}

/// See [`Switch::send`].
///
/// # Safety
/// Each pointer is null or valid, and no one else uses what it points to.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn slowpath_switch_send(
    switch: *mut Handle,
    now: u64,
    port: u16,
    packet: *mut Header,
    queued: *mut QueuedAt,
) -> c_int {
    let send = |switch: &mut Switch<Header>, packet, observer: &mut CallbackObserver| {
        switch.send(Time(now), PortId(port), packet, observer)
    };
    // SAFETY: the caller's side of the contract.
    unsafe { take(switch, packet, queued, send) }
}

/// See [`Switch::transmit`].
///
/// # Safety
/// Each pointer is null or valid, and no one else uses what it points to.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn slowpath_switch_transmit(
    switch: *mut Handle,
    now: u64,
    port: u16,
    departure: *mut Leaving,
) -> c_int {
    // SAFETY: the caller's side of the contract.
    let (Some(handle), Some(departure)) = (unsafe { (switch.as_mut(), departure.as_mut()) }) else {
        return INVALID;
    };
    let Some(left) = handle
        .switch
        .transmit(Time(now), PortId(port), &mut handle.observer)
    else {
        return NOTHING;
    };
    *departure = Leaving {
        packet: left.packet,
        start: left.start.0,
        finish: left.finish.0,
        arrival: left.arrival.0,
        next: left.next.map_or(NEVER, |next| next.0),
    };
    QUEUED
}

/// Writes what `read` makes of the switch to `out`.
///
/// # Safety
/// Each pointer is null or valid, and no one else writes what it points to.
unsafe fn read_out<T>(
    switch: *const Handle,
    out: *mut T,
    read: impl FnOnce(&Switch<Header>) -> Option<T>,
) -> c_int {
    // SAFETY: the caller's side of the contract.
    let (Some(handle), Some(out)) = (unsafe { (switch.as_ref(), out.as_mut()) }) else {
        return INVALID;
    };
    let Some(value) = read(&handle.switch) else {
        return NOTHING;
    };
    *out = value;
    QUEUED
}

/// See [`Switch::depth`].
///
/// # Safety
/// Each pointer is null or valid, and no one else writes what it points to.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn slowpath_switch_depth(
    switch: *const Handle,
    port: u16,
    depth: *mut Depth,
) -> c_int {
    // SAFETY: the caller's side of the contract.
    unsafe { read_out(switch, depth, |switch| Some(switch.depth(PortId(port)))) }
}

/// See [`Switch::class_depth`].
///
/// # Safety
/// Each pointer is null or valid, and no one else writes what it points to.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn slowpath_switch_class_depth(
    switch: *const Handle,
    port: u16,
    class: u8,
    depth: *mut Depth,
) -> c_int {
    // SAFETY: the caller's side of the contract.
    unsafe {
        read_out(switch, depth, |switch| {
            Some(switch.class_depth(PortId(port), class))
        })
    }
}

/// See [`Switch::flow_depth`].
///
/// # Safety
/// Each pointer is null or valid, and no one else writes what it points to.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn slowpath_switch_flow_depth(
    switch: *const Handle,
    port: u16,
    flow: u64,
    depth: *mut Depth,
) -> c_int {
    // SAFETY: the caller's side of the contract.
    unsafe {
        read_out(switch, depth, |switch| {
            switch.flow_depth(PortId(port), flow)
        })
    }
}

/// See [`Switch::counters`].
///
/// # Safety
/// Each pointer is null or valid, and no one else writes what it points to.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn slowpath_switch_counters(
    switch: *const Handle,
    port: u16,
    counters: *mut Counters,
) -> c_int {
    // SAFETY: the caller's side of the contract.
    unsafe {
        read_out(switch, counters, |switch| {
            Some(switch.counters(PortId(port)))
        })
    }
}

/// See [`Switch::dropped`]; 0 for a reason that does not exist.
///
/// # Safety
/// `switch` is null or valid.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn slowpath_switch_dropped(switch: *const Handle, reason: u32) -> u64 {
    // SAFETY: the caller's side of the contract.
    let Some(handle) = (unsafe { switch.as_ref() }) else {
        return 0;
    };
    let reason = DropReason::ALL.get(reason as usize);
    reason.map_or(0, |reason| handle.switch.dropped(*reason))
}
