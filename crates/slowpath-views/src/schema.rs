// SPDX-License-Identifier: Apache-2.0
//! The JSON schemas in `docs/schema/`, compared with the types that serialise.

use crate::interactions::InteractionOutput;
use crate::json::{Evidence, VerdictOutput};
use crate::listeners::ListenerOutput;
use crate::overhead::OverheadOutput;
use crate::report::ReportOutput;
use crate::series::SeriesOutput;
use crate::watch::SummaryOutput;
use crate::why::WhyOutput;
use schemars::generate::SchemaSettings;
use schemars::{JsonSchema, Schema, SchemaGenerator, json_schema};
use serde::Serialize;
use serde_json::{Map, Value, json};
use slowpath_diagnose::Actor;
use slowpath_model::{Deltas, Problem, Stage, TcpState, Tier};
use std::fs;
use std::path::Path;

/// A string that is one of these as they serialise.
fn one_of<T: Serialize>(values: &[T]) -> Schema {
    json_schema!({"type": "string", "enum": values})
}

pub fn problem(_: &mut SchemaGenerator) -> Schema {
    one_of(&Problem::ALL.map(Problem::name))
}

pub fn tier(_: &mut SchemaGenerator) -> Schema {
    one_of(&[Tier::Bpf, Tier::InetDiag, Tier::Imported])
}

pub fn stage(_: &mut SchemaGenerator) -> Schema {
    one_of(&Problem::ALL.map(Problem::stage).into_iter().fold(
        Vec::<Stage>::new(),
        |mut stages, stage| {
            if !stages.contains(&stage) {
                stages.push(stage);
            }
            stages
        },
    ))
}

pub fn state(_: &mut SchemaGenerator) -> Schema {
    let states: Vec<TcpState> = (0..=u8::MAX).filter_map(TcpState::from_kernel).collect();
    one_of(&states)
}

pub fn actor(_: &mut SchemaGenerator) -> Schema {
    one_of(&[
        Actor::SenderDeveloper,
        Actor::HostOperator,
        Actor::NetworkOperator,
        Actor::ReceiverSide,
        Actor::AcceptingDeveloper,
    ])
}

/// Every statistic is a number; those that may not be measured are null in an empty set.
pub fn evidence(_: &mut SchemaGenerator) -> Schema {
    let empty = crate::json::value(&Evidence::from(&Deltas::default()));
    let property = |(key, value): (&String, &Value)| {
        let kind = match value {
            Value::Null => json!(["integer", "null"]),
            _ => json!("integer"),
        };
        (key.clone(), json!({"type": kind, "minimum": 0}))
    };
    let properties: Map<String, Value> = empty
        .as_object()
        .into_iter()
        .flatten()
        .map(property)
        .collect();
    let required: Vec<&String> = properties.keys().collect();
    json_schema!({"type": "object", "required": required, "properties": properties})
}

/// Compares the schema of `T` with the committed one, or writes it where the environment
/// variable `WRITE_SCHEMAS` is set.
fn published<T: JsonSchema>(name: &str) {
    let path = Path::new(env!("CARGO_MANIFEST_DIR"))
        .join("../../docs/schema")
        .join(format!("{name}.json"));
    let settings = SchemaSettings::draft2020_12().for_serialize();
    let schema = settings.into_generator().into_root_schema_for::<T>();
    let schema = serde_json::to_string_pretty(&schema).unwrap() + "\n";
    if std::env::var_os("WRITE_SCHEMAS").is_some() {
        fs::create_dir_all(path.parent().unwrap()).unwrap();
        fs::write(&path, &schema).unwrap();
    }
    let committed = fs::read_to_string(&path).unwrap_or_default();
    assert!(
        committed == schema,
        "docs/schema/{name}.json is not the schema of the type; \
         run WRITE_SCHEMAS=1 cargo test -p slowpath-views schema"
    );
}

#[test]
fn schemas_are_those_of_the_types() {
    published::<VerdictOutput>("verdict");
    published::<ListenerOutput>("listener");
    published::<InteractionOutput>("interaction");
    published::<SummaryOutput>("summary");
    published::<WhyOutput>("why");
    published::<ReportOutput>("report");
    published::<SeriesOutput>("tcp-info");
    published::<OverheadOutput>("overhead");
}
