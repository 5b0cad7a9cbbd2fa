// SPDX-License-Identifier: Apache-2.0
//! The JSON schemas in `docs/schema/`, compared with the types that serialise, and outputs
//! compared with the schemas; the tests of other modules compare theirs too.

use crate::interactions::{FoundInteraction, InteractionOutput};
use crate::json::{Evidence, VerdictOutput, value};
use crate::listeners::ListenerOutput;
use crate::overhead::{Cost, OverheadOutput};
use crate::report::ReportOutput;
use crate::scripted::{ScriptedSource, at, finding, id, seconds};
use crate::series::SeriesOutput;
use crate::source::ProgramCost;
use crate::watch::SummaryOutput;
use crate::why::WhyOutput;
use schemars::generate::SchemaSettings;
use schemars::{JsonSchema, Schema, SchemaGenerator, json_schema};
use serde::Serialize;
use serde_json::{Map, Value, json};
use slowpath_diagnose::{Actor, Advice, Interaction};
use slowpath_model::{
    Deltas, Failure, FourTuple, InteractionEvidence, InteractionKind, ListenerDeltas, ListenerId,
    ListenerInterval, Owner, Problem, ProblemSet, Share, Stage, TcpState, Tier,
};
use slowpath_testbed::json_schema::violations;
use std::fs;
use std::path::{Path, PathBuf};

/// A string that is one of these as they serialise.
fn one_of<T: Serialize>(values: &[T]) -> Schema {
    json_schema!({"type": "string", "enum": values})
}

pub fn problem(_: &mut SchemaGenerator) -> Schema {
    one_of(&Problem::ALL.map(Problem::name))
}

pub fn failure(_: &mut SchemaGenerator) -> Schema {
    one_of(&Failure::ALL)
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
    let empty = value(&Evidence::from(&Deltas::default()));
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

fn committed(name: &str) -> PathBuf {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../docs/schema");
    folder.join(format!("{name}.json"))
}

/// Asserts that an output obeys its published schema.
pub fn conforms(name: &str, output: &Value) {
    let schema = serde_json::from_slice(&fs::read(committed(name)).unwrap()).unwrap();
    let found = violations(&schema, output);
    assert!(found.is_empty(), "{name}: {output}: {found:#?}");
}

/// Compares the schema of `T` with the committed one, or writes it where the environment
/// variable `WRITE_SCHEMAS` is set.
fn published<T: JsonSchema>(name: &str) {
    let path = committed(name);
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

#[test]
fn a_listeners_output_obeys_its_schema() {
    let interval = ListenerInterval {
        listener: ListenerId {
            boot_id: 1,
            netns: 4_026_531_840,
            cookie: 7,
        },
        local: "10.0.0.1:80".parse().unwrap(),
        owner: Owner::named(1, "server"),
        tier: Tier::Bpf,
        end: at(1),
        duration: seconds(1),
        findings: vec![finding(Problem::AcceptQueueOverflow, Share::Coarse)],
        unmeasured: ProblemSet::EMPTY.with(Problem::SynQueueOverflow),
        deltas: ListenerDeltas::default(),
    };
    conforms("listener", &value(&ListenerOutput::of(&interval, 2)));
}

#[test]
fn an_interactions_output_obeys_its_schema() {
    let tuple = FourTuple::new(
        "10.0.0.1:4000".parse().unwrap(),
        "10.0.0.2:80".parse().unwrap(),
    );
    let found = FoundInteraction {
        interaction: Interaction {
            kind: InteractionKind::SendBufferBelowBdp,
            connections: vec![id(1)],
            evidence: InteractionEvidence::SendBufferBelowBdp {
                capacity_bytes: 8_192,
                send_buffer_bytes: 16_384,
                bandwidth_low: 2_000_000,
                bandwidth_high: 3_000_000,
                min_rtt_us: 10_000,
                product_low_bytes: 20_000,
                product_high_bytes: 30_000,
                average_write_bytes: None,
            },
            advice: Advice {
                who: Actor::SenderDeveloper,
                what: "raise SO_SNDBUF".to_owned(),
                source: "tcp(7)",
            },
        },
        members: vec![(id(1), tuple, Owner::named(1, "a"))],
        polls: 3,
    };
    conforms("interaction", &value(&found.output(at(0))));
}

#[test]
fn the_overheads_output_obeys_its_schema() {
    let cost = Cost {
        elapsed: seconds(10),
        polls: 20,
        sockets: 2,
        emitted: 40,
        agent: seconds(1),
        programs: vec![ProgramCost {
            probe: "snapshot",
            program: "snapshot".to_owned(),
            runs: 20,
            nanos: 5_000,
            within_polls: true,
        }],
        uncounted: None,
    };
    let output = value(&cost.output(&ScriptedSource::new(vec![])));
    conforms("overhead", &output);
    let mut broken = output;
    broken["programs"][0]["runs"] = json!("20");
    let schema = serde_json::from_slice(&fs::read(committed("overhead")).unwrap()).unwrap();
    assert_eq!(violations(&schema, &broken).len(), 1);
}
