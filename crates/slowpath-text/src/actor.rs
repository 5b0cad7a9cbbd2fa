// SPDX-License-Identifier: Apache-2.0
//! Who has to act, by name.

use crate::process;
use slowpath_diagnose::Actor;
use slowpath_model::{FourTuple, Owner};

/// Who has to act, by name as far as known.
pub fn who(actor: Actor, owner: Option<&Owner>, tuple: Option<FourTuple>) -> String {
    match (actor, owner, tuple) {
        (Actor::SenderDeveloper, Some(owner), _) if owner.process().is_some() => {
            format!("the developer of {}", process(owner))
        }
        (Actor::SenderDeveloper, ..) => "the developer of the sending application".to_owned(),
        (Actor::AcceptingDeveloper, Some(owner), _) if owner.process().is_some() => {
            format!("the developer of {}", process(owner))
        }
        (Actor::AcceptingDeveloper, ..) => "the developer of the accepting application".to_owned(),
        (Actor::HostOperator, ..) => "the operator of this host".to_owned(),
        (Actor::NetworkOperator, _, Some(t)) => format!(
            "the operator of the network from {} to {}",
            t.local.ip(),
            t.remote.ip()
        ),
        (Actor::NetworkOperator, _, None) => "the operator of the network".to_owned(),
        (Actor::ReceiverSide, _, Some(t)) => format!("the receiver, {}", t.remote),
        (Actor::ReceiverSide, _, None) => "the receivers".to_owned(),
    }
}
