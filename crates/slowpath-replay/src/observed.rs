// SPDX-License-Identifier: Apache-2.0
//! What the light recorder saw of sockets, compared with a replay: its recordings have no checks, but before each packet some fields of the socket.

use super::result::{Difference, DifferenceKind, Probe, Result};
use slowpath_recording::{Connection, Outcome, RecorderKind, Recording};
use std::collections::HashMap;

/// Whether it was recorded so.
pub(crate) fn is_light(recording: &Recording) -> bool {
    recording.origin.recorder == RecorderKind::Tracepoints
}

/// Gives each result the first difference, if it is before the one that the kernel found.
pub(crate) fn compare(connections: &[&Connection], probes: &[Probe], results: &mut [Result]) {
    let mut after: HashMap<(u32, u8, u64), &Probe> = HashMap::with_capacity(probes.len());
    for probe in probes {
        after.insert((probe.connection, probe.end, probe.run), probe);
    }
    for (place, (connection, result)) in connections.iter().zip(results).enumerate() {
        let when = |it: &Difference| {
            let end = connection.ends.get(usize::from(it.end))?;
            Some(end.runs.get(it.run as usize)?.at)
        };
        let found = (0..2).filter_map(|end| first(connection, place as u32, end, &after));
        let found = found.chain(result.difference.take());
        // One of no run is of the end of all.
        result.difference = found.min_by_key(|it| (when(it).is_none(), when(it)));
    }
}

fn first(
    connection: &Connection,
    place: u32,
    end: u8,
    after: &HashMap<(u32, u8, u64), &Probe>,
) -> Option<Difference> {
    let runs = &connection.ends[usize::from(end)].runs;
    for (run, before) in (1..).zip(0..).take(runs.len().saturating_sub(1)) {
        let Some(probe) = after.get(&(place, end, before)) else {
            continue;
        };
        for outcome in &runs[run as usize].outcomes {
            let Outcome::Observed { field, value } = *outcome else {
                continue;
            };
            let found = probe.fields[field];
            if found != value {
                return Some(Difference {
                    end,
                    run,
                    how: DifferenceKind::Observed(field),
                    expected: value,
                    found,
                });
            }
        }
    }
    None
}
