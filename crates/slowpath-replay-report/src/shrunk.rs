// SPDX-License-Identifier: Apache-2.0
//! A recording with fewer bytes, compared with the original.

use crate::output::{ShrunkOutput, WithinOutput, value};
use slowpath_replay::Shrunk;
use slowpath_text::{Paint, bytes, plural};
use std::io::Write;

/// As a JSON object; `sizes` in bytes, before and after.
pub fn json(light: &Shrunk, [before, after]: [u64; 2]) -> serde_json::Value {
    let within = light
        .within
        .iter()
        .map(|(bound, connections)| WithinOutput {
            within_ns: *bound,
            connections: *connections,
        });
    value(&ShrunkOutput {
        kind: "shrunk_recording",
        bytes_before: before,
        bytes: after,
        connections: light.recording.connections.len(),
        within: within.collect(),
        left_as_they_are: &light.untouched,
        replays: light.replays,
        wall_seconds: light.wall.as_secs_f64(),
    })
}

/// Writes it as text.
///
/// # Errors
/// Writing fails.
pub fn write(
    light: &Shrunk,
    [before, after]: [u64; 2],
    paint: Paint,
    out: &mut dyn Write,
) -> std::io::Result<()> {
    let share = 100.0 * after as f64 / before.max(1) as f64;
    let line = format!(
        "{} instead of {}: {share:.1} %",
        bytes(after),
        bytes(before)
    );
    writeln!(out, "{}", paint.bold(&line))?;
    for (bound, connections) in &light.within {
        let connections = plural(*connections as u64, "connection");
        match bound {
            0 => writeln!(out, "exact times: {connections}")?,
            ns => writeln!(
                out,
                "times within {} us: {connections}",
                f64::from(*ns) / 1e3
            )?,
        }
    }
    let untouched = light.untouched.len() as u64;
    if untouched > 0 {
        let first = light.untouched[0];
        let many = plural(untouched, "connection");
        writeln!(
            out,
            "left as they are, since they cannot be replayed as recorded or have near times already: {many}, number {first} first"
        )?;
    }
    Ok(())
}
