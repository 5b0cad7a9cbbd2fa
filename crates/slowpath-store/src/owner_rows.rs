// SPDX-License-Identifier: Apache-2.0
//! Owners as cells. Process id and command stood in the first schema, in the middle of the
//! row; what is known besides was appended.

use crate::cells::{Cell, Column, Columns, Flat, Kind, Row};
use slowpath_model::{
    Cgroup, CgroupSource, Container, Owner, Ownership, Process, ProcessStart, UnknownOwner,
    UnknownOwners,
};
use std::net::{IpAddr, SocketAddr};
use std::sync::Arc;

use Kind::{Exact, Name, Text};

/// Names of [`CgroupSource`], in its order.
const SOURCE_NAMES: &[&str] = &["process", "socket"];

/// Process id and command name.
pub(crate) type Head = (Option<u32>, Option<String>);

/// The first cells of an owner.
pub(crate) fn put_head(owner: &Owner, row: &mut Vec<Cell>) {
    owner.pid().put(row);
    text(owner.command()).put(row);
}

/// Takes what [`put_head`] appends.
pub(crate) fn take_head(row: &mut Row<'_>) -> Option<Head> {
    Some((Flat::take(row)?, Flat::take(row)?))
}

/// The columns that were appended; must follow `put_rest` and `take_rest`.
pub(crate) fn columns(into: &mut Vec<Column>) {
    let mut one = |name, kind| into.push(Column { name, kind });
    one("owner_unknown", Name(&UnknownOwner::NAMES));
    one("process_start_ticks", Exact);
    one("executable", Text);
    one("command_line", Text);
    one("cgroup", Text);
    one("cgroup_source", Name(SOURCE_NAMES));
    one("unit", Text);
    one("container", Text);
    one("container_runtime", Text);
    one("pod", Text);
    one("application", Text);
    one("listener", Text);
}

/// The cells that were appended.
pub(crate) fn put_rest(owner: &Owner, row: &mut Vec<Cell>) {
    let process = owner.process();
    owner.why_unknown().map(|r| r as u64).put(row);
    process.and_then(|p| p.start).map(|s| s.0).put(row);
    text(process.and_then(|p| p.executable.as_ref())).put(row);
    text(process.and_then(|p| p.command_line.as_ref())).put(row);
    let cgroup = owner.cgroup.as_deref();
    text(cgroup.map(|c| &c.path)).put(row);
    cgroup.map(|c| c.source as u64).put(row);
    text(owner.unit()).put(row);
    text(owner.container().map(|c| &c.id)).put(row);
    text(owner.container().and_then(|c| c.runtime.as_ref())).put(row);
    text(owner.pod()).put(row);
    text(owner.application.as_ref()).put(row);
    text(owner.listener.as_ref()).put(row);
}

/// Takes what [`put_rest`] appends, and puts the owner together.
pub(crate) fn take_rest(head: Head, row: &mut Row<'_>) -> Option<Owner> {
    let reason = <Option<u64> as Flat>::take(row)?;
    // A reason that a later version added is none that this one can name.
    let reason = reason.map_or(UnknownOwner::NotRecorded, |n| {
        let known = usize::try_from(n).ok();
        let known = known.and_then(|n| UnknownOwner::ALL.get(n).copied());
        known.unwrap_or(UnknownOwner::NotRecorded)
    });
    let start = <Option<u64> as Flat>::take(row)?.map(ProcessStart);
    let executable = take_text(row)?;
    let command_line = take_text(row)?;
    let process = match head {
        (Some(pid), Some(command)) => Ok(Process {
            pid,
            start,
            command: command.into(),
            executable,
            command_line,
        }),
        _ => Err(reason),
    };
    let path = take_text(row)?;
    let source = match <Option<u64> as Flat>::take(row)? {
        Some(1) => CgroupSource::Socket,
        _ => CgroupSource::Process,
    };
    let unit = take_text(row)?;
    let id = take_text(row)?;
    let runtime = take_text(row)?;
    let pod = take_text(row)?;
    let cgroup = path.map(|path| {
        Arc::new(Cgroup {
            path,
            source,
            unit,
            container: id.map(|id| Container { id, runtime }),
            pod,
        })
    });
    Some(Owner::new(Ownership {
        process,
        cgroup,
        application: take_text(row)?,
        listener: take_text(row)?,
    }))
}

fn text(text: Option<&Arc<str>>) -> Option<String> {
    text.map(|t| t.to_string())
}

fn take_text(row: &mut Row<'_>) -> Option<Option<Arc<str>>> {
    Some(<Option<String> as Flat>::take(row)?.map(Arc::from))
}

/// The columns of an address that may be missing.
pub(crate) fn address_columns(names: [&'static str; 2], into: &mut Vec<Column>) {
    let kinds = [Text, Exact];
    into.extend(
        names
            .into_iter()
            .zip(kinds)
            .map(|(name, kind)| Column { name, kind }),
    );
}

impl Flat for Option<SocketAddr> {
    fn put(&self, row: &mut Vec<Cell>) {
        self.map(|a| a.ip().to_string()).put(row);
        self.map(|a| u32::from(a.port())).put(row);
    }

    fn take(row: &mut Row<'_>) -> Option<Self> {
        let ip = <Option<String> as Flat>::take(row)?;
        let port = <Option<u64> as Flat>::take(row)?;
        match ip.zip(port) {
            None => Some(None),
            Some((ip, port)) => {
                let ip: IpAddr = ip.parse().ok()?;
                Some(Some(SocketAddr::new(ip, u16::try_from(port).ok()?)))
            }
        }
    }
}

/// Columns of [`UnknownOwners`], in the order of the reasons.
const COUNT_NAMES: [&str; UnknownOwner::ALL.len()] = [
    "owners_not_looked",
    "owners_not_accepted",
    "owners_closed_before_looked",
    "owners_handed_on",
    "owners_held_by_several",
    "owners_held_by_nobody",
    "owners_in_flight",
    "owners_kernel_socket",
    "owners_holder_vanished",
    "owners_no_permission",
    "owners_outside_pid_namespace",
    "owners_not_supported",
    "owners_look_failed",
    "owners_not_recorded",
];

impl Flat for UnknownOwners {
    fn put(&self, row: &mut Vec<Cell>) {
        for reason in UnknownOwner::ALL {
            self.of(reason).put(row);
        }
    }

    fn take(row: &mut Row<'_>) -> Option<Self> {
        let mut counts = UnknownOwners::default();
        for reason in UnknownOwner::ALL {
            // The first schema's rows end before.
            counts.set(reason, <Option<u64> as Flat>::take(row)?.unwrap_or(0));
        }
        Some(counts)
    }
}

impl Columns for UnknownOwners {
    fn columns(into: &mut Vec<Column>) {
        into.extend(COUNT_NAMES.map(|name| Column { name, kind: Exact }));
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn count_columns_are_named_after_their_reasons() {
        for (column, reason) in COUNT_NAMES.into_iter().zip(UnknownOwner::NAMES) {
            assert_eq!(column.strip_prefix("owners_"), Some(reason));
        }
    }
}
