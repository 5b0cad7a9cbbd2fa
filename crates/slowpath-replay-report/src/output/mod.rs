// SPDX-License-Identifier: Apache-2.0
//! The objects that this crate's reports print as JSON. `docs/schema/` publishes their schemas; the
//! keys are those of `docs/reference/cli.md`.

mod explanation;
mod recording;
mod replay;

pub(crate) use explanation::{
    AnswerOutput, CauseOutput, ControlOutput, DepartureOutput, ExplainedOutput, ExplanationOutput,
    HeaderOutput, MessageOutput, NamedPacketOutput, SimulatedOutput, SimulationOutput, WaitOutput,
};
pub(crate) use recording::{
    ArgumentsOutput, ColumnOutput, ConnectionOutput, DamageOutput, EndOutput, GapOutput,
    InfoOutput, ListOutput, ListedConnection, OriginOutput, OutcomeOutput, PacketOutput,
    RecordedEndOutput, RunOutput, SampleOutput, ShrunkOutput, SizesOutput, WithinOutput,
};
pub(crate) use replay::{
    ChangeOutput, DivergenceOutput, ExactRunsOutput, FittedOutput, ObservedOutput,
    ObservedRunOutput,
};

use serde::Serialize;
use serde_json::Value;

/// An output as JSON, its keys in alphabetical order.
pub(crate) fn value<T: Serialize>(output: &T) -> Value {
    // Serialising to a value fails for maps without string keys only; no output has one.
    serde_json::to_value(output).unwrap_or_default()
}
