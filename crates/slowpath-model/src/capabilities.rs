// SPDX-License-Identifier: Apache-2.0
//! What can be measured on a machine, and why the rest cannot.

use crate::{Problem, ProblemSet, Tier};

/// One kind of measurement, and whether it works here.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Feature {
    /// Its name.
    pub name: &'static str,
    /// What it measures.
    pub measures: &'static str,
    /// Whether it is active.
    pub state: FeatureState,
    /// Problems that cannot be measured without it.
    pub serves: ProblemSet,
}

/// Whether a feature is active.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum FeatureState {
    /// It is.
    Active,
    /// It is not.
    Missing {
        /// Why.
        reason: String,
    },
}

/// What can be measured on a machine.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Capabilities {
    /// The tier in use.
    pub tier: Tier,
    /// Every feature, in use or not.
    pub features: Vec<Feature>,
    /// Why a better tier is not used, if one was tried.
    pub fallback: Option<String>,
}

impl Capabilities {
    /// Problems that cannot be measured, each with the reason.
    pub fn unmeasured(&self) -> Vec<(Problem, &str)> {
        self.features
            .iter()
            .filter_map(|f| match &f.state {
                FeatureState::Active => None,
                FeatureState::Missing { reason } => Some((f, reason)),
            })
            .flat_map(|(f, reason)| f.serves.iter().map(move |p| (p, reason.as_str())))
            .collect()
    }

    /// Problems that cannot be measured.
    pub fn unmeasured_set(&self) -> ProblemSet {
        self.unmeasured().into_iter().map(|(p, _)| p).collect()
    }

    /// Adds a feature, in the place of one of the same name.
    pub fn set(&mut self, feature: Feature) {
        self.features.retain(|f| f.name != feature.name);
        self.features.push(feature);
    }
}
