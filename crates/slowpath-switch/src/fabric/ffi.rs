// SPDX-License-Identifier: Apache-2.0
//! The C ABI of a fabric; `include/slowpath_switch.h` explains each name.
//!
//! As in [`crate::ffi`], every pointer that comes in is null or points to what its type
//! says, valid for the call and not used elsewhere during it. The bytes of a plan may say
//! anything.
#![allow(unsafe_code)]

use super::network::{Counts, Fabric, LineCounters};
use super::plan::{End, Node, Plan};
use super::sink::{Delivered, Dropped, Sink};
use crate::ffi::{INVALID, NEVER, NO_PORT, QUEUED};
use crate::packet::{Header, PortId};
use crate::queue::Depth;
use crate::time::Time;
use alloc::boxed::Box;
use core::ffi::{c_int, c_void};
use core::ptr;

/// In a node's number: a switch.
pub const SWITCH: u32 = 1 << 31;

/// The bytes are no plan.
const UNREADABLE: c_int = -2;
/// The plan is impossible.
const IMPOSSIBLE: c_int = -3;

/// An event.
#[derive(Clone, Copy, Debug)]
#[repr(C)]
pub struct FabricEvent {
    /// When.
    pub at: u64,
    /// The packet as it is then.
    pub packet: Header,
    /// Enqueued, dequeued: what waits at the port; marked: in the queue.
    pub depth: Depth,
    /// 0 delivered, 1 dropped, 2 copied, 3 enqueued, 4 dequeued, 5 marked, 6 detoured.
    pub kind: u32,
    /// A drop's cause.
    pub cause: u32,
    /// A host, or a switch with [`SWITCH`].
    pub node: u32,
    /// Bit 0 marked, 1 damaged, 2 a copy.
    pub flags: u32,
    /// The port, or none.
    pub port: u16,
    /// Where a detour leads, or none.
    pub to: u16,
    /// Switches passed.
    pub hops: u16,
}

/// Called for every event of the kinds asked for.
pub type FabricCallback = extern "C" fn(context: *mut c_void, event: *const FabricEvent);

struct CallbackSink {
    callback: Option<FabricCallback>,
    context: *mut c_void,
    kinds: u32,
}

fn number(node: Node) -> u32 {
    match node {
        Node::Host(host) => host,
        Node::Switch(switch) => switch | SWITCH,
    }
}

impl CallbackSink {
    fn report(&self, kind: u32, event: FabricEvent) {
        if self.kinds & (1 << kind) != 0
            && let Some(callback) = self.callback
        {
            callback(self.context, &raw const event);
        }
    }

    /// An event of that kind with what all have in common.
    fn event(kind: u32, at: Time, packet: &Header) -> FabricEvent {
        FabricEvent {
            at: at.0,
            packet: *packet,
            depth: Depth::default(),
            kind,
            cause: 0,
            node: 0,
            flags: 0,
            port: NO_PORT,
            to: NO_PORT,
            hops: 0,
        }
    }

    fn report_at(&self, kind: u32, at: Time, end: End, packet: &Header, depth: Depth, to: u16) {
        let event = FabricEvent {
            node: number(end.node),
            port: end.port.0,
            depth,
            to,
            ..Self::event(kind, at, packet)
        };
        self.report(kind, event);
    }
}

impl Sink for CallbackSink {
    fn delivered(&mut self, at: Time, delivered: Delivered) {
        let flag = |set: bool, bit| u32::from(set) << bit;
        let event = FabricEvent {
            node: number(delivered.node),
            flags: flag(delivered.marked, 0)
                | flag(delivered.corrupted, 1)
                | flag(delivered.copy, 2),
            hops: delivered.hops,
            ..Self::event(0, at, &delivered.packet)
        };
        self.report(0, event);
    }

    fn dropped(&mut self, at: Time, dropped: Dropped) {
        let event = FabricEvent {
            node: number(dropped.node),
            port: dropped.port.map_or(NO_PORT, |port| port.0),
            cause: dropped.cause as u32,
            flags: u32::from(dropped.copy) << 2,
            hops: dropped.hops,
            ..Self::event(1, at, &dropped.packet)
        };
        self.report(1, event);
    }

    fn copied(&mut self, at: Time, packet: &Header) {
        self.report(2, Self::event(2, at, packet));
    }

    fn enqueued(&mut self, at: Time, end: End, packet: &Header, depth: Depth) {
        self.report_at(3, at, end, packet, depth, NO_PORT);
    }

    fn dequeued(&mut self, at: Time, end: End, packet: &Header, depth: Depth) {
        self.report_at(4, at, end, packet, depth, NO_PORT);
    }

    fn marked(&mut self, at: Time, end: End, packet: &Header, queue: Depth) {
        self.report_at(5, at, end, packet, queue, NO_PORT);
    }

    fn detoured(&mut self, at: Time, end: End, to: PortId, packet: &Header) {
        self.report_at(6, at, end, packet, Depth::default(), to.0);
    }
}

/// A fabric and what its events go to.
pub struct FabricHandle {
    fabric: Fabric,
    sink: CallbackSink,
}

/// A fabric from a plan's bytes; null if they are none. `problem`, if not null, gets 0 or why.
///
/// # Safety
/// `plan` is null or points to `length` bytes; `problem` is null or valid.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn slowpath_fabric_new(
    plan: *const u8,
    length: usize,
    problem: *mut c_int,
) -> *mut FabricHandle {
    let made = if plan.is_null() || isize::try_from(length).is_err() {
        Err(INVALID)
    } else {
        // SAFETY: the caller's side of the contract; `length` bytes fit an address space.
        let bytes = unsafe { core::slice::from_raw_parts(plan, length) };
        let plan = Plan::decode(bytes).map_err(|_| UNREADABLE);
        plan.and_then(|plan| Fabric::new(&plan).map_err(|_| IMPOSSIBLE))
    };
    // SAFETY: the caller's side of the contract.
    if let Some(problem) = unsafe { problem.as_mut() } {
        *problem = made.as_ref().err().copied().unwrap_or(QUEUED);
    }
    let sink = CallbackSink {
        callback: None,
        context: ptr::null_mut(),
        kinds: 0,
    };
    made.map_or(ptr::null_mut(), |fabric| {
        Box::into_raw(Box::new(FabricHandle { fabric, sink }))
    })
}

/// Frees a fabric and what is in it, silently; null does nothing.
///
/// # Safety
/// `fabric` came from [`slowpath_fabric_new`] and is not used again.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn slowpath_fabric_free(fabric: *mut FabricHandle) {
    if !fabric.is_null() {
        // SAFETY: it came from `Box::into_raw`, and no one else has it.
        drop(unsafe { Box::from_raw(fabric) });
    }
}

/// Sets the callback of the events of some kinds from now on.
///
/// # Safety
/// `fabric` is null or valid; the callback may be called with `context` until replaced.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn slowpath_fabric_observe(
    fabric: *mut FabricHandle,
    callback: Option<FabricCallback>,
    context: *mut c_void,
    kinds: u32,
) -> c_int {
    let sink = CallbackSink {
        callback,
        context,
        kinds,
    };
    // SAFETY: the caller's side of the contract.
    unsafe { with(fabric, |handle| handle.sink = sink) }
}

/// Does something with a fabric.
///
/// # Safety
/// `fabric` is null or valid, and no one else uses it.
unsafe fn with(fabric: *mut FabricHandle, act: impl FnOnce(&mut FabricHandle)) -> c_int {
    // SAFETY: the caller's side of the contract.
    match unsafe { fabric.as_mut() } {
        None => INVALID,
        Some(handle) => {
            act(handle);
            QUEUED
        }
    }
}

/// See [`Fabric::send`] and [`Fabric::send_from`].
///
/// # Safety
/// Each pointer is null or valid, and no one else writes what it points to.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn slowpath_fabric_send(
    fabric: *mut FabricHandle,
    now: u64,
    node: u32,
    packet: *const Header,
) -> c_int {
    // SAFETY: the caller's side of the contract.
    let Some(packet) = (unsafe { packet.as_ref() }) else {
        return INVALID;
    };
    let send = |handle: &mut FabricHandle| {
        let FabricHandle { fabric, sink } = handle;
        match node & SWITCH {
            0 => fabric.send(Time(now), node, *packet, sink),
            _ => fabric.send_from(Time(now), node & !SWITCH, *packet, sink),
        }
    };
    // SAFETY: the caller's side of the contract.
    unsafe { with(fabric, send) }
}

/// See [`Fabric::next_event`]; never for null.
///
/// # Safety
/// `fabric` is null or valid.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn slowpath_fabric_next(fabric: *const FabricHandle) -> u64 {
    // SAFETY: the caller's side of the contract.
    let handle = unsafe { fabric.as_ref() };
    let next = handle.and_then(|handle| handle.fabric.next_event());
    next.map_or(NEVER, |next| next.0)
}

/// See [`Fabric::advance`].
///
/// # Safety
/// `fabric` is null or valid, and no one else uses it.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn slowpath_fabric_advance(fabric: *mut FabricHandle, now: u64) -> c_int {
    let advance = |handle: &mut FabricHandle| {
        handle.fabric.advance(Time(now), &mut handle.sink);
    };
    // SAFETY: the caller's side of the contract.
    unsafe { with(fabric, advance) }
}

/// Writes what `read` makes of the fabric to `out`.
///
/// # Safety
/// Each pointer is null or valid, and no one else writes what it points to.
unsafe fn read_out<T>(
    fabric: *const FabricHandle,
    out: *mut T,
    read: impl FnOnce(&Fabric) -> T,
) -> c_int {
    // SAFETY: the caller's side of the contract.
    let (Some(handle), Some(out)) = (unsafe { (fabric.as_ref(), out.as_mut()) }) else {
        return INVALID;
    };
    *out = read(&handle.fabric);
    QUEUED
}

/// See [`Fabric::counts`].
///
/// # Safety
/// Each pointer is null or valid, and no one else writes what it points to.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn slowpath_fabric_counts(
    fabric: *const FabricHandle,
    counts: *mut Counts,
) -> c_int {
    // SAFETY: the caller's side of the contract.
    unsafe { read_out(fabric, counts, Fabric::counts) }
}

/// See [`Fabric::depth`].
///
/// # Safety
/// Each pointer is null or valid, and no one else writes what it points to.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn slowpath_fabric_depth(
    fabric: *const FabricHandle,
    node: u32,
    port: u16,
    depth: *mut Depth,
) -> c_int {
    let node = match node & SWITCH {
        0 => Node::Host(node),
        _ => Node::Switch(node & !SWITCH),
    };
    let port = PortId(port);
    // SAFETY: the caller's side of the contract.
    unsafe { read_out(fabric, depth, |fabric| fabric.depth(End { node, port })) }
}

/// See [`Fabric::line_counters`].
///
/// # Safety
/// Each pointer is null or valid, and no one else writes what it points to.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn slowpath_fabric_line(
    fabric: *const FabricHandle,
    line: u32,
    counters: *mut LineCounters,
) -> c_int {
    // SAFETY: the caller's side of the contract.
    unsafe { read_out(fabric, counters, |fabric| fabric.line_counters(line)) }
}
