// SPDX-License-Identifier: Apache-2.0
//! The schema `docs/schema/trace.json`, compared with the types that serialise; `tests/schema.rs`
//! compares outputs with it.

use super::super::figures::{self, Value as Figure};
use super::TraceOutput;
use crate::tcp::Direction;
use crate::verdict::TraceProblem;
use schemars::generate::SchemaSettings;
use schemars::{Schema, SchemaGenerator, json_schema};
use serde::Serialize;
use serde_json::{Map, Value, json};
use slowpath_diagnose::Actor;
use slowpath_model::{Deltas, Problem};
use slowpath_text::evidence::Evidence;
use std::fs;
use std::path::Path;
use std::time::Duration;

/// A string that is one of these as they serialise.
fn one_of<T: Serialize>(values: &[T]) -> Schema {
    json_schema!({"type": "string", "enum": values})
}

pub fn problem(_: &mut SchemaGenerator) -> Schema {
    one_of(&Problem::ALL.map(Problem::name))
}

pub fn trace_problem(_: &mut SchemaGenerator) -> Schema {
    one_of(&TraceProblem::ALL.map(TraceProblem::name))
}

pub fn headline_problem(_: &mut SchemaGenerator) -> Schema {
    let problems = TraceProblem::ALL.map(TraceProblem::name);
    one_of(&[&["none"], &problems[..]].concat())
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

/// An object with all of these properties.
fn object(properties: Map<String, Value>) -> Schema {
    let required: Vec<&String> = properties.keys().collect();
    json_schema!({"type": "object", "required": required, "properties": properties})
}

/// Every statistic is a number; those that may not be measured are null in an empty set.
pub fn evidence(_: &mut SchemaGenerator) -> Schema {
    let empty = serde_json::to_value(Evidence::from(&Deltas::default())).unwrap();
    let property = |(key, value): (&String, &Value)| {
        let kind = match value {
            Value::Null => json!(["integer", "null"]),
            _ => json!("integer"),
        };
        (key.clone(), json!({"type": kind, "minimum": 0}))
    };
    let properties = empty.as_object().unwrap();
    object(properties.iter().map(property).collect())
}

/// Counts and times that are always known are so for a direction without packets.
pub fn figures(_: &mut SchemaGenerator) -> Schema {
    let rows = figures::of_direction(&Direction::default(), Duration::ZERO);
    let property = |(field, value): (figures::Field, Figure)| {
        let kind = match value {
            Figure::Count(_) => json!({"type": "integer", "minimum": 0}),
            Figure::Time(_) | Figure::Rate(_) => json!({"type": "number"}),
            Figure::Flag(_) => json!({"type": "boolean"}),
            Figure::Unknown => json!({"type": ["number", "boolean", "null"]}),
        };
        (field.key.into_owned(), kind)
    };
    object(rows.into_iter().map(property).collect())
}

/// Writes the schema where the environment variable `WRITE_SCHEMAS` is set.
#[test]
fn schema_is_that_of_the_types() {
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../docs/schema/trace.json");
    let settings = SchemaSettings::draft2020_12().for_serialize();
    let schema = settings
        .into_generator()
        .into_root_schema_for::<TraceOutput>();
    let schema = serde_json::to_string_pretty(&schema).unwrap() + "\n";
    if std::env::var_os("WRITE_SCHEMAS").is_some() {
        fs::write(&path, &schema).unwrap();
    }
    assert!(
        fs::read_to_string(&path).unwrap_or_default() == schema,
        "docs/schema/trace.json is not the schema of the type; \
         run WRITE_SCHEMAS=1 cargo test -p slowpath-trace schema"
    );
}
