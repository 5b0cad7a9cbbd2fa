// SPDX-License-Identifier: Apache-2.0
//! Scenarios as data: one TOML file a situation.

use crate::workload::{DriveOptions, ServeOptions};
use crate::{DropRule, DroppedSegment, Family, LinkOptions, TestbedError};
use serde::Deserialize;
use slowpath_model::Problem;
use std::collections::BTreeMap;
use std::path::Path;

macro_rules! builtin {
    ($($name:literal),* $(,)?) => {
        /// The scenarios of `scenarios/`, by name, with their text.
        pub const BUILTIN_SCENARIOS: &[(&str, &str)] = &[
            $(($name, include_str!(concat!("../../../scenarios/", $name, ".toml")))),*
        ];
    };
}

builtin![
    "sender-app-limited",
    "send-buffer-limited",
    "fast-retransmit",
    "timeout",
    "delayed-ack",
    "delayed-ack-one-way",
    "receiver-window-limited",
    "tail-loss-probe",
    "congestion-window-limited",
    "zero-window",
    "small-writes",
];

/// One situation: a network, an injected problem and what must be found.
///
/// The injected connection runs over a link of its own, link 0, a healthy control over
/// another, link 1, which is always a plain one.
#[derive(Clone, Debug, PartialEq, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Scenario {
    /// The file's name without its ending.
    #[serde(skip)]
    pub name: String,
    /// What happens, for a person.
    pub description: String,
    /// The injected connection's addresses.
    #[serde(default)]
    pub family: Family,
    /// The injected connection's link.
    #[serde(default)]
    pub link: LinkOptions,
    /// Sysctls of both namespaces, on top of [`crate::PINNED_SYSCTLS`].
    #[serde(default)]
    pub sysctls: BTreeMap<String, String>,
    /// What is dropped at the receiver's end; its port is filled in.
    pub drop: Option<DropRule>,
    /// The receiving end, in namespace b; `bind` and `port` are filled in.
    pub serve: ServeOptions,
    /// The sending end, in namespace a; `connect` is filled in.
    pub drive: DriveOptions,
    /// What must be found.
    pub expect: Expectation,
}

/// What must be found of the injected connection's sending end. The control's answer is
/// always [`Problem::SenderAppLimited`].
#[derive(Clone, Debug, PartialEq, Eq, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Expectation {
    /// The dominating problem.
    pub dominating: Problem,
    /// Problems found beside it.
    #[serde(default)]
    pub found: Vec<Problem>,
    /// Problems found at the receiving end.
    #[serde(default)]
    pub receiver: Vec<Problem>,
    /// Entries to fast recovery; `None`: not asserted.
    pub fast_recoveries: Option<Count>,
    /// Expirations of the retransmission timer; `None`: not asserted.
    pub timeouts: Option<Count>,
    /// Segments retransmitted; `None`: not asserted.
    pub retransmitted: Option<Count>,
}

/// A number that follows from what was dropped.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Count {
    /// None at all.
    Zero,
    /// One for each segment that was dropped at least once. With losses at a greater distance
    /// than the congestion window: the entries to fast recovery.
    EachSegment,
    /// One for each dropped transmission after a segment's first. Where the first lost
    /// one is a tail's original and the second its tail loss probe: the expirations.
    EachRepeat,
    /// One for each dropped transmission: every one is sent again.
    EachDrop,
}

impl Count {
    /// The number.
    pub fn of(self, dropped: &[DroppedSegment]) -> u64 {
        let count = |keep: fn(&&DroppedSegment) -> bool| dropped.iter().filter(keep).count();
        let number = match self {
            Count::Zero => 0,
            Count::EachSegment => count(|d| d.transmission == 1),
            Count::EachRepeat => count(|d| d.transmission > 1),
            Count::EachDrop => dropped.len(),
        };
        number as u64
    }
}

impl Scenario {
    /// Reads a scenario file.
    ///
    /// # Errors
    /// It cannot be read, has an unknown key, or misses one.
    pub fn load(path: &Path) -> Result<Self, TestbedError> {
        let text = std::fs::read_to_string(path)
            .map_err(TestbedError::io("read", path.to_string_lossy()))?;
        let name = path.file_stem().unwrap_or_default().to_string_lossy();
        Self::parse(&name, &text)
    }

    /// One of [`BUILTIN_SCENARIOS`].
    ///
    /// # Errors
    /// There is none of that name.
    pub fn builtin(name: &str) -> Result<Self, TestbedError> {
        let found = BUILTIN_SCENARIOS.iter().find(|(n, _)| *n == name);
        let Some((name, text)) = found else {
            let names: Vec<_> = BUILTIN_SCENARIOS.iter().map(|(n, _)| *n).collect();
            return Err(TestbedError::Scenario {
                name: name.to_owned(),
                reason: format!("there is none of that name, but {}", names.join(", ")),
            });
        };
        Self::parse(name, text)
    }

    /// A scenario from a file's text.
    ///
    /// # Errors
    /// It is not TOML, has an unknown key, or misses one.
    pub fn parse(name: &str, text: &str) -> Result<Self, TestbedError> {
        let mut scenario: Scenario = toml::from_str(text).map_err(|e| TestbedError::Scenario {
            name: name.to_owned(),
            reason: e.to_string(),
        })?;
        scenario.name = name.to_owned();
        Ok(scenario)
    }

    /// The same with another congestion control at the sending end.
    #[must_use]
    pub fn with_congestion_control(mut self, name: &str) -> Self {
        self.drive.cc = Some(name.to_owned());
        self
    }

    /// The same with other addresses.
    #[must_use]
    pub fn with_family(mut self, family: Family) -> Self {
        self.family = family;
        self
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_builtin_scenario_parses_and_every_file_is_built_in() {
        for (name, _) in BUILTIN_SCENARIOS {
            Scenario::builtin(name).expect("parses");
        }
        let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../scenarios");
        let files = std::fs::read_dir(folder).expect("the folder is there");
        let mut count = 0;
        for file in files {
            let path = file.expect("can be read").path();
            if path.extension().is_some_and(|e| e == "toml") {
                let scenario = Scenario::load(&path).expect("parses");
                assert_eq!(
                    Some(scenario),
                    Scenario::builtin(
                        path.file_stem()
                            .and_then(|s| s.to_str())
                            .expect("has a name")
                    )
                    .ok()
                );
                count += 1;
            }
        }
        assert_eq!(count, BUILTIN_SCENARIOS.len());
    }

    #[test]
    fn unknown_keys_are_rejected_everywhere() {
        let (name, text) = BUILTIN_SCENARIOS[2];
        for header in ["", "[link]", "[drop]", "[serve]", "[drive]", "[expect]"] {
            let at = text.find(header).expect("this scenario has every table");
            let mut bad = text.to_owned();
            bad.insert_str(at + header.len(), "\nunknown_key = 1\n");
            let error = Scenario::parse(name, &bad).expect_err("must not parse");
            assert!(error.to_string().contains("unknown_key"), "{error}");
        }
    }
}
