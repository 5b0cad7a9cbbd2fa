// SPDX-License-Identifier: Apache-2.0
//! What connections carried, as rows.

use crate::cells::{CellValue, Flat, Row};
use crate::column::{Column, segments, time, us};
use slowpath_model::{ConnectionId, TrafficInterval};

/// A column for each cell of [`TrafficInterval`]'s row after its connection, in the order of
/// `put` and `take`.
pub(crate) const COLUMNS: [Column; 5] = [
    time("end_time", "end of the stretch").of("TrafficInterval::end"),
    us("duration_us", "its length").of("TrafficInterval::duration"),
    segments(
        "data_segments_out",
        "segments with payload sent in it, retransmissions included; NULL, as in the next two: the counter went backwards",
    )
    .of("TrafficInterval::data_segments_out"),
    segments("data_segments_in", "segments with payload received")
        .of("TrafficInterval::data_segments_in"),
    segments("retransmitted", "segments retransmitted for whatever reason")
        .of("TrafficInterval::retransmitted"),
];

/// Appends the cells after the connection's.
pub(crate) fn put(traffic: &TrafficInterval, row: &mut Vec<CellValue>) {
    let TrafficInterval {
        connection: _,
        end,
        duration,
        data_segments_out,
        data_segments_in,
        retransmitted,
    } = traffic;
    end.put(row);
    duration.put(row);
    data_segments_out.put(row);
    data_segments_in.put(row);
    retransmitted.put(row);
}

/// Takes them.
pub(crate) fn take(connection: ConnectionId, row: &mut Row<'_>) -> Option<TrafficInterval> {
    Some(TrafficInterval {
        connection,
        end: Flat::take(row)?,
        duration: Flat::take(row)?,
        data_segments_out: Flat::take(row)?,
        data_segments_in: Flat::take(row)?,
        retransmitted: Flat::take(row)?,
    })
}
