// SPDX-License-Identifier: Apache-2.0
//! The JSON schemas in `docs/schema/`, compared with the types that serialise.

use crate::output::{
    AnswerOutput, ConnectionOutput, DivergenceOutput, EndOutput, ExplanationOutput, FittedOutput,
    InfoOutput, ListOutput, ObservedOutput, OriginOutput, PacketOutput, RecordedEndOutput,
    RunOutput, SampleOutput, ShrunkOutput, SimulationOutput,
};
use schemars::JsonSchema;
use schemars::generate::SchemaSettings;
use serde::Serialize;
use std::fs;
use std::path::Path;

/// A line of `slowpath recording dump --json`.
#[derive(Serialize, JsonSchema)]
#[serde(untagged)]
#[allow(dead_code, reason = "its schema is all that is wanted")]
enum DumpOutput<'a> {
    Origin(OriginOutput),
    Connection(ConnectionOutput<'a>),
    RecordedEnd(RecordedEndOutput<'a>),
    Run(RunOutput),
    Sample(SampleOutput),
    End(EndOutput),
    Packet(PacketOutput),
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
        fs::write(&path, &schema).unwrap();
    }
    let committed = fs::read_to_string(&path).unwrap_or_default();
    assert!(
        committed == schema,
        "docs/schema/{name}.json is not the schema of the type; \
         run WRITE_SCHEMAS=1 cargo test -p slowpath-replay-report schema"
    );
}

#[test]
fn schemas_are_those_of_the_types() {
    published::<DumpOutput<'_>>("recording-dump");
    published::<InfoOutput>("recording-info");
    published::<ListOutput>("recording-list");
    published::<ShrunkOutput<'_>>("recording-shrink");
    published::<ExplanationOutput>("explain");
    published::<DivergenceOutput>("replay-divergence");
    published::<FittedOutput>("replay-fitted");
    published::<ObservedOutput>("replay-observed");
    published::<AnswerOutput<'_>>("what-if");
    published::<SimulationOutput<'_>>("what-if-simulation");
}
