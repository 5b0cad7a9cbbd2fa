// SPDX-License-Identifier: Apache-2.0
//! Advice on the problems past SNAP's six.

use super::{Actor, Advice, AdviceContext};
use slowpath_model::{Finding, IntervalVerdict, Problem, Stage};

pub(super) fn advise(
    problem: Problem,
    _finding: &Finding,
    _verdict: &IntervalVerdict,
    _context: &AdviceContext,
) -> Advice {
    Advice {
        who: match problem.stage() {
            Stage::SenderApp => Actor::SenderDeveloper,
            Stage::SendBuffer => Actor::HostOperator,
            Stage::Network => Actor::NetworkOperator,
            Stage::Receiver | Stage::ReceiverApp => Actor::ReceiverSide,
        },
        what: format!("See {problem} in docs/verdicts.md."),
        source: "docs/verdicts.md",
    }
}
