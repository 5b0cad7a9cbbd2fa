// SPDX-License-Identifier: Apache-2.0
//! The configuration file: each key by itself, so that an error has its line (serde's `flatten` loses it).

use super::recording::RecordSettings;
use super::settings::Settings;
use serde::de::{Deserialize, Deserializer, MapAccess, Visitor};
use slowpath_agent::service::as_text;
use std::fmt;
use std::str::FromStr;

/// A key of the file.
#[derive(Clone, Copy, serde::Deserialize)]
#[serde(field_identifier, rename_all = "kebab-case")]
enum Key {
    Log,
    Host,
    Namespaces,
    Interval,
    Tier,
    CpuBudget,
    Owners,
    LogCommandLines,
    RetentionSize,
    RetentionAge,
    Metrics,
    MetricsApplications,
    MetricsLabels,
    Otlp,
    OtlpInterval,
    TracePaths,
    Record,
    RecordPorts,
    RecordTo,
    RecordRing,
    RecordAge,
    RecordSize,
}

/// A value that is text in the file and means what it means on the command line.
#[derive(serde::Deserialize)]
struct Text<T: FromStr<Err: fmt::Display>>(#[serde(deserialize_with = "as_text")] Option<T>);

fn text<'de, A: MapAccess<'de>, T>(map: &mut A) -> Result<Option<T>, A::Error>
where
    T: FromStr<Err: fmt::Display>,
{
    Ok(map.next_value::<Text<T>>()?.0)
}

struct SettingsVisitor;

impl<'de> Visitor<'de> for SettingsVisitor {
    type Value = Settings;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("keys of an agent's configuration")
    }

    fn visit_map<A: MapAccess<'de>>(self, mut map: A) -> Result<Settings, A::Error> {
        let (mut it, mut record) = (Settings::default(), RecordSettings::default());
        while let Some(key) = map.next_key()? {
            match key {
                Key::Log => it.log = text(&mut map)?,
                Key::Host => it.host = text(&mut map)?,
                Key::Namespaces => it.namespaces = text(&mut map)?,
                Key::Interval => it.interval = text(&mut map)?,
                Key::Tier => it.tier = Some(map.next_value()?),
                Key::CpuBudget => it.cpu_budget = text(&mut map)?,
                Key::Owners => it.owners = Some(map.next_value()?),
                Key::LogCommandLines => it.log_command_lines = Some(map.next_value()?),
                Key::RetentionSize => it.retention_size = text(&mut map)?,
                Key::RetentionAge => it.retention_age = text(&mut map)?,
                Key::Metrics => it.metrics = text(&mut map)?,
                Key::MetricsApplications => it.metrics_applications = Some(map.next_value()?),
                Key::MetricsLabels => it.metrics_labels = text(&mut map)?,
                Key::Otlp => it.otlp = text(&mut map)?,
                Key::OtlpInterval => it.otlp_interval = text(&mut map)?,
                Key::TracePaths => {
                    let range = 1..=600;
                    let wanted: u16 = map.next_value()?;
                    if !range.contains(&wanted) {
                        return Err(serde::de::Error::custom("must be between 1 and 600"));
                    }
                    it.trace_paths = Some(wanted);
                }
                Key::Record => record.record = text(&mut map)?,
                Key::RecordPorts => record.record_ports = text(&mut map)?,
                Key::RecordTo => record.record_to = Some(map.next_value()?),
                Key::RecordRing => record.record_ring = text(&mut map)?,
                Key::RecordAge => record.record_age = text(&mut map)?,
                Key::RecordSize => record.record_size = text(&mut map)?,
            }
        }
        Ok(Settings { record, ..it })
    }
}

impl<'de> Deserialize<'de> for Settings {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        deserializer.deserialize_map(SettingsVisitor)
    }
}
