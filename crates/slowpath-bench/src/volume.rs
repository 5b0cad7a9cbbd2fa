// SPDX-License-Identifier: Apache-2.0
//! How much the log takes on disk: the store's own example simulates a host over hours.

use std::error::Error;
use std::process::{Command, Stdio};

/// Megabytes a host a day for 1,000 connections, one poll in a hundred with a problem, a
/// tenth of the connections turning over each hour; file footers included.
///
/// # Errors
/// If the example `volume` of `slowpath-store` has not been built beside this program, or
/// fails.
pub fn measure(quick: bool) -> Result<f64, Box<dyn Error>> {
    let beside = std::env::current_exe()?;
    let example = beside.with_file_name("examples").join("volume");
    let output = Command::new(&example)
        .args(["--hours", if quick { "1" } else { "12" }])
        .stderr(Stdio::inherit())
        .output()
        .map_err(|e| {
            format!(
                "running {}: {e}; build it: cargo build --release -p slowpath-store --example volume",
                example.display()
            )
        })?;
    if !output.status.success() {
        return Err(format!("{}: {}", example.display(), output.status).into());
    }
    let text = String::from_utf8(output.stdout)?;
    let last = text.lines().last().unwrap_or_default();
    let figures: serde_json::Value = serde_json::from_str(last)?;
    figures["mb_per_day"]
        .as_f64()
        .ok_or_else(|| format!("no mb_per_day in {last}").into())
}
