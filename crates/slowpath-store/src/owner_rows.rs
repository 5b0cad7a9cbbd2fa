// SPDX-License-Identifier: Apache-2.0
//! Owners as cells. Process id and command stood in the first schema, in the middle of the
//! row; what is known besides was appended.

use crate::cells::{CellValue, Columns, Flat, Row};
use crate::column::{Column, number, text, word};
use slowpath_model::{
    Cgroup, CgroupSource, Container, Owner, Ownership, Process, ProcessStart, UnknownOwner,
    UnknownOwners,
};
use std::net::{IpAddr, SocketAddr};
use std::sync::Arc;

/// Names of [`CgroupSource`], in its order.
const SOURCE_NAMES: &[&str] = &["process", "socket"];

/// Process id and command name.
pub(crate) type Head = (Option<u32>, Option<String>);

/// The first cells of an owner.
pub(crate) fn put_head(owner: &Owner, row: &mut Vec<CellValue>) {
    owner.pid().put(row);
    string(owner.command()).put(row);
}

/// Takes what [`put_head`] appends.
pub(crate) fn take_head(row: &mut Row<'_>) -> Option<Head> {
    Some((Flat::take(row)?, Flat::take(row)?))
}

/// The columns that were appended; must follow `put_rest` and `take_rest`.
pub(crate) fn columns(into: &mut Vec<Column>) {
    into.extend([
        word(
            "owner_unknown",
            &UnknownOwner::NAMES,
            "why `pid` is not known ([owners](owners.md))",
        )
        .of("Ownership::process"),
        number(
            "process_start_ticks",
            "when the process started, since boot; with `pid` it names one process",
        )
        .unit("10 ms")
        .of("Process::start"),
        text("executable", "its executable").of("Process::executable"),
        text("command_line", "its command line, secrets replaced").of("Process::command_line"),
        text("cgroup", "path of the cgroup").of("Cgroup::path"),
        word(
            "cgroup_source",
            SOURCE_NAMES,
            "`process`: the owner's, or that of all processes that may own it; `socket`: where the socket was made",
        )
        .of("Cgroup::source"),
        text("unit", "systemd unit, from the cgroup's path").of("Cgroup::unit"),
        text("container", "container id, likewise").of("Container::id"),
        text("container_runtime", "its runtime").of("Container::runtime"),
        text("pod", "Kubernetes pod uid, likewise").of("Cgroup::pod"),
        text("application", "name that the user's rules give").of("Ownership::application"),
        text(
            "listener",
            "with an unknown owner: command of the one process that holds the listening socket",
        )
        .of("Ownership::listener"),
    ]);
}

/// The cells that were appended.
pub(crate) fn put_rest(owner: &Owner, row: &mut Vec<CellValue>) {
    let process = owner.process();
    owner.why_unknown().map(|r| r as u64).put(row);
    process.and_then(|p| p.start).map(|s| s.0).put(row);
    string(process.and_then(|p| p.executable.as_ref())).put(row);
    string(process.and_then(|p| p.command_line.as_ref())).put(row);
    let cgroup = owner.cgroup.as_deref();
    string(cgroup.map(|c| &c.path)).put(row);
    cgroup.map(|c| c.source as u64).put(row);
    string(owner.unit()).put(row);
    string(owner.container().map(|c| &c.id)).put(row);
    string(owner.container().and_then(|c| c.runtime.as_ref())).put(row);
    string(owner.pod()).put(row);
    string(owner.application.as_ref()).put(row);
    string(owner.listener.as_ref()).put(row);
}

/// Takes what [`put_rest`] appends, and gives the owner.
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

fn string(text: Option<&Arc<str>>) -> Option<String> {
    text.map(|t| t.to_string())
}

fn take_text(row: &mut Row<'_>) -> Option<Option<Arc<str>>> {
    Some(<Option<String> as Flat>::take(row)?.map(Arc::from))
}

impl Flat for Option<SocketAddr> {
    fn put(&self, row: &mut Vec<CellValue>) {
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
    fn put(&self, row: &mut Vec<CellValue>) {
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
        let meaning = "of them and of those that closed in the stretch: for this reason";
        into.extend(COUNT_NAMES.map(|name| number(name, meaning).of("Coverage::unknown_owners")));
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
