// SPDX-License-Identifier: Apache-2.0
//! When to look at who holds which socket, what the looks cost, and what a failed one means.

use crate::observer::PollError;
use slowpath_model::{Capabilities, Micros, MonoNanos, ProblemSet};
use slowpath_observe::{Feature, FeatureState};

/// The feature that owners come from.
const LOOK: &str = "owner";

/// How often is looked, at most.
const APART: Micros = Micros(1_000_000);

/// Looks take at most one part in this of one core: where a look is wanted, for new
/// connections or unknown owners, and where it only confirms what is known.
const SHARE: [u64; 2] = [200, 400];

/// Looks at who holds which socket.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct OwnerScans {
    /// How many there were.
    pub count: u64,
    /// CPU time of all.
    pub cpu: Micros,
    /// CPU time of the longest.
    pub longest: Micros,
}

/// The looks so far and the next one.
#[derive(Debug)]
pub(crate) struct OwnerScanTimes {
    pub(crate) scans: OwnerScans,
    /// When the next one may be, by [`SHARE`].
    next: [MonoNanos; 2],
    /// The feature that owners come from, as it was before a look failed.
    before_failure: Option<Feature>,
}

impl OwnerScanTimes {
    pub(crate) fn new(now: MonoNanos) -> Self {
        OwnerScanTimes {
            scans: OwnerScans::default(),
            next: [now; 2],
            before_failure: None,
        }
    }

    /// Whether a look may be now; `wanted`: it would do more than confirm.
    pub(crate) fn due(&self, now: MonoNanos, wanted: bool) -> bool {
        now >= self.next[usize::from(!wanted)]
    }

    /// A look took so long. One that fails is a feature that is missing until the next one.
    pub(crate) fn looked(
        &mut self,
        now: MonoNanos,
        cost: Micros,
        result: Result<(), PollError>,
        capabilities: &mut Capabilities,
    ) {
        self.scans.count += 1;
        self.scans.cpu += cost;
        self.scans.longest = self.scans.longest.max(cost);
        self.next = SHARE.map(|share| now + APART.max(Micros(cost.0.saturating_mul(share))));
        let Err(error) = result else {
            if let Some(feature) = self.before_failure.take() {
                capabilities.set(feature);
            }
            return;
        };
        let known = capabilities.features.iter().find(|f| f.name == LOOK);
        let feature = known.cloned().unwrap_or(Feature {
            name: LOOK,
            measures: "owners of sockets",
            state: FeatureState::Active,
            serves: ProblemSet::EMPTY,
        });
        capabilities.set(Feature {
            state: FeatureState::Missing {
                reason: error.to_string(),
            },
            ..feature.clone()
        });
        self.before_failure.get_or_insert(feature);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use slowpath_model::Tier;
    use std::io;

    fn reason(capabilities: &Capabilities) -> Option<String> {
        let owner = capabilities.features.iter().find(|f| f.name == LOOK)?;
        match &owner.state {
            FeatureState::Active => None,
            FeatureState::Missing { reason } => Some(reason.clone()),
        }
    }

    #[test]
    fn a_failed_look_is_a_missing_feature_until_one_succeeds() {
        let mut capabilities = Capabilities {
            tier: Tier::InetDiag,
            features: Vec::new(),
            fallback: None,
        };
        let start = MonoNanos(1_000_000_000_000);
        let mut times = OwnerScanTimes::new(start);
        assert!(times.due(start, true) && times.due(start, false));
        for _ in 0..2 {
            let error = PollError::Processes(io::Error::other("no /proc"));
            times.looked(start, Micros(10), Err(error), &mut capabilities);
            assert!(reason(&capabilities).unwrap().contains("no /proc"));
        }
        times.looked(start, Micros(20_000), Ok(()), &mut capabilities);
        assert_eq!(reason(&capabilities), None);
        assert_eq!(times.scans.count, 3);
        assert_eq!(times.scans.longest, Micros(20_000));
        // 20 ms are half a percent of 4 s, a quarter of one of 8 s.
        let after = |ms| start + Micros::from_millis(ms);
        assert!(!times.due(after(3_999), true) && times.due(after(4_000), true));
        assert!(!times.due(after(7_999), false) && times.due(after(8_000), false));
    }
}
