// SPDX-License-Identifier: Apache-2.0
//! The section of how routers answer.
//!
//! ```toml
//! [[router]]                  # an entry says all: keys that it leaves out are as usual
//! on = "r3"                   # a router; names may end in *
//! at = "2 s"                  # from the beginning unless given
//! icmp-rate = 10              # messages a second, or "0.5 /s"; no limit unless given
//! icmp-burst = 6              # as many at once; 1 unless given
//! icmp-delay = "5 ms"         # how long an answer takes; or { least = "1 ms", most = "20 ms" }
//! silent = true               # no ICMP at all
//! ```

use super::error::{Problem, ScenarioError};
use super::lines::{entries, moment};
use super::network::fits;
use super::section::{Section, Value};
use super::units::FREQUENCY;
use crate::topology::Topology;
use slowpath_switch::{Span, Time};

/// The most that all entries say in all.
const MAX_CHANGES: usize = 1 << 20;
/// The most messages a second, and at once.
const MOST_MESSAGES: u64 = 1_000_000;

/// A token bucket of ICMP messages.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct IcmpRate {
    /// Millionths of a message that come a second.
    pub millionths: u64,
    /// Messages that it holds.
    pub burst: u32,
}

/// How a router answers: errors about packets, and echo replies.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct IcmpOptions {
    /// Not at all.
    pub silent: bool,
    /// No more often than this; what exceeds it is never sent.
    pub rate: Option<IcmpRate>,
    /// So much later at least.
    pub delay: Span,
    /// And by up to so much more, each as likely as another.
    pub jitter: Span,
}

/// A router answers otherwise from then on.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct RouterChange {
    /// When.
    pub at: Time,
    /// The switch, by its number in the topology.
    pub router: u32,
    /// How.
    pub icmp: IcmpOptions,
}

/// What the entries say, in the order of time.
pub(super) fn read(
    root: &Section<'_>,
    topology: &Topology,
) -> Result<Vec<RouterChange>, ScenarioError> {
    let mut changes = Vec::new();
    for entry in entries(root.get("router"))? {
        let section = entry.section()?;
        let on = section.need("on")?;
        let pattern = on.string()?;
        let at = moment(&section)?;
        let icmp = options(&section)?;
        section.done()?;
        let before = changes.len();
        let fitting = (0..)
            .zip(topology.switches())
            .filter(|(_, switch)| fits(pattern, &switch.name));
        changes.extend(fitting.map(|(router, _)| RouterChange { at, router, icmp }));
        if changes.len() == before {
            return Err(on.error(Problem::NoSuchSwitch(pattern.to_owned())));
        }
        if changes.len() > MAX_CHANGES {
            return Err(on.error(Problem::TooMany(MAX_CHANGES)));
        }
    }
    // Stable: at one moment in the order of the file.
    changes.sort_by_key(|change| change.at);
    Ok(changes)
}

fn options(section: &Section<'_>) -> Result<IcmpOptions, ScenarioError> {
    let mut options = IcmpOptions::default();
    if let Some(silent) = section.get("silent") {
        options.silent = silent.boolean()?;
    }
    let burst = section.get("icmp-burst");
    match (section.get("icmp-rate"), &burst) {
        (None, Some(burst)) => return Err(burst.error(Problem::OneOf(&["icmp-rate"]))),
        (None, None) => {}
        (Some(rate), _) => {
            options.rate = Some(IcmpRate {
                millionths: millionths(&rate)?,
                // At most a million, so it fits.
                burst: burst.map_or(Ok(1), |burst| burst.small(1..=MOST_MESSAGES as u32))?,
            });
        }
    }
    if let Some(delay) = section.get("icmp-delay") {
        (options.delay, options.jitter) = read_delay(&delay)?;
    }
    Ok(options)
}

/// Messages a second as a number, or with a unit.
fn millionths(value: &Value<'_>) -> Result<u64, ScenarioError> {
    match value.string() {
        Ok(_) => value.bounded(
            &FREQUENCY,
            1..=MOST_MESSAGES * 1_000_000,
            ["0.000001 /s", "1000000 /s"],
        ),
        Err(_) => Ok(value.integer(1..=MOST_MESSAGES)? * 1_000_000),
    }
}

fn read_delay(value: &Value<'_>) -> Result<(Span, Span), ScenarioError> {
    if !value.is_table() {
        return Ok((value.span()?, Span::ZERO));
    }
    let section = value.section()?;
    let least = section
        .get("least")
        .map_or(Ok(Span::ZERO), |least| least.span())?;
    let most = section.need("most")?;
    let jitter = most.span()?.0.checked_sub(least.0);
    let jitter = jitter.ok_or_else(|| most.error(Problem::LessThan("least")))?;
    section.finish()?;
    Ok((least, Span(jitter)))
}
