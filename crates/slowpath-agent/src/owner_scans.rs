// SPDX-License-Identifier: Apache-2.0
//! When to scan descriptors for who holds which socket, what the scans cost, and what a
//! failed one means.

use slowpath_model::{Capabilities, Micros, MonoNanos, ProblemSet};
use slowpath_observe::{Feature, FeatureState};

/// The feature that owners come from.
const OWNER: &str = "owner";

/// Shortest time from one scan to the next.
const SHORTEST: Micros = Micros(1_000_000);

/// Scans take at most one part in this of one core: where one is wanted, for new connections
/// or unknown owners, and where it only confirms what is known.
const SHARE: [u64; 2] = [200, 400];

/// Scans of all descriptors for who holds which socket.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct OwnerScans {
    /// How many there were.
    pub count: u64,
    /// CPU time of all.
    pub cpu: Micros,
    /// CPU time of the longest.
    pub longest: Micros,
}

/// The scans so far and the next one.
#[derive(Debug)]
pub(crate) struct OwnerScanTimes {
    pub(crate) scans: OwnerScans,
    /// When the next one may be, by [`SHARE`].
    next: [MonoNanos; 2],
    /// The feature that owners come from, as it was before a scan failed.
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

    /// Whether a scan may be now; `wanted`: it would do more than confirm.
    pub(crate) fn is_due(&self, now: MonoNanos, wanted: bool) -> bool {
        now >= self.next[usize::from(!wanted)]
    }

    /// A scan took so long.
    pub(crate) fn took(&mut self, now: MonoNanos, cost: Micros) {
        self.scans.count += 1;
        self.scans.cpu += cost;
        self.scans.longest = self.scans.longest.max(cost);
        self.next = SHARE.map(|share| now + SHORTEST.max(Micros(cost.0.saturating_mul(share))));
    }

    /// How a scan ended. After one that failed, the feature is missing until the next one.
    pub(crate) fn ended(&mut self, result: Result<(), String>, capabilities: &mut Capabilities) {
        let Err(reason) = result else {
            if let Some(feature) = self.before_failure.take() {
                capabilities.set(feature);
            }
            return;
        };
        let known = capabilities.features.iter().find(|f| f.name == OWNER);
        let feature = known.cloned().unwrap_or(Feature {
            name: OWNER,
            measures: "owners of sockets",
            state: FeatureState::Active,
            serves: ProblemSet::EMPTY,
        });
        capabilities.set(Feature {
            state: FeatureState::Missing { reason },
            ..feature.clone()
        });
        self.before_failure.get_or_insert(feature);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use slowpath_model::Tier;

    fn reason(capabilities: &Capabilities) -> Option<String> {
        let owner = capabilities.features.iter().find(|f| f.name == OWNER)?;
        match &owner.state {
            FeatureState::Active => None,
            FeatureState::Missing { reason } => Some(reason.clone()),
        }
    }

    #[test]
    fn after_a_failed_scan_the_feature_is_missing_until_one_succeeds() {
        let mut capabilities = Capabilities {
            tier: Tier::InetDiag,
            features: Vec::new(),
            fallback: None,
        };
        let start = MonoNanos(1_000_000_000_000);
        let mut times = OwnerScanTimes::new(start);
        assert!(times.is_due(start, true) && times.is_due(start, false));
        for _ in 0..2 {
            times.took(start, Micros(10));
            times.ended(Err("no /proc".to_owned()), &mut capabilities);
            assert!(reason(&capabilities).unwrap().contains("no /proc"));
        }
        times.took(start, Micros(20_000));
        times.ended(Ok(()), &mut capabilities);
        assert_eq!(reason(&capabilities), None);
        assert_eq!(times.scans.count, 3);
        assert_eq!(times.scans.longest, Micros(20_000));
        // 20 ms are half a percent of 4 s, a quarter of one of 8 s.
        let after = |ms| start + Micros::from_millis(ms);
        assert!(!times.is_due(after(3_999), true) && times.is_due(after(4_000), true));
        assert!(!times.is_due(after(7_999), false) && times.is_due(after(8_000), false));
    }
}
