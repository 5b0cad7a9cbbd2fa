// SPDX-License-Identifier: Apache-2.0
//! Routers on traced paths, as rows.

use crate::cells::{CellValue, Flat, Row};
use crate::column::{Column, number, text, time, us};
use slowpath_model::{ConnectionId, PathHop};

/// A column for each cell of [`PathHop`]'s row after its connection, in the order of `put` and
/// `take`.
pub(crate) const COLUMNS: [Column; 4] = [
    time(
        "end_time",
        "when answers were no longer awaited, the same for a trace's rows",
    )
    .of("PathHop::end"),
    us("duration_us", "for how long they were").of("PathHop::duration"),
    number("ttl", "how many hops from this host, from 1").of("PathHop::ttl"),
    text(
        "router",
        "the router's address; NULL: none answered, and a later one did",
    )
    .of("PathHop::router"),
];

/// Appends the cells after the connection's.
pub(crate) fn put(hop: &PathHop, row: &mut Vec<CellValue>) {
    let PathHop {
        connection: _,
        end,
        duration,
        ttl,
        router,
    } = hop;
    end.put(row);
    duration.put(row);
    ttl.put(row);
    router.map(|router| router.to_string()).put(row);
}

/// Takes them.
pub(crate) fn take(connection: ConnectionId, row: &mut Row<'_>) -> Option<PathHop> {
    Some(PathHop {
        connection,
        end: Flat::take(row)?,
        duration: Flat::take(row)?,
        ttl: Flat::take(row)?,
        router: match <Option<String> as Flat>::take(row)? {
            Some(router) => Some(router.parse().ok()?),
            None => None,
        },
    })
}
