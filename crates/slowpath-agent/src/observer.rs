// SPDX-License-Identifier: Apache-2.0
//! The choice of tier, and both tiers behind one interface: what reads the kernel.

mod holders;
mod listeners;

pub(crate) use listeners::ListenerScanner;

use crate::budget::priority::Change;
use rustc_hash::FxHashMap;
use slowpath_model::{Capabilities, LossCounters, MonoNanos, Problem, ProblemSet, Snapshot, Tier};
use slowpath_observe::bpf::{self, BpfTier};
use slowpath_observe::inet_diag::{self, InetDiag, OtherNamespaces};
use slowpath_observe::{
    Call, Feature, FeatureState, Namespaces, PollReport, ProgramCost, Sink, monotonic, with_limit,
};

/// Which tier to use.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum TierChoice {
    /// BPF where it loads, inet_diag otherwise.
    #[default]
    Auto,
    /// BPF or nothing.
    Bpf,
    /// inet_diag, whatever else could be had.
    InetDiag,
}

/// Why a tier could not be opened.
#[derive(Debug, thiserror::Error)]
pub enum OpenError {
    /// BPF was asked for.
    #[error(transparent)]
    Bpf(bpf::OpenError),
    /// Neither tier is to be had.
    #[error("{inet_diag}{}", .bpf.as_ref().map(|e| format!("; before that, BPF: {e}")).unwrap_or_default())]
    InetDiag {
        /// Why inet_diag failed.
        inet_diag: inet_diag::OpenError,
        /// Why BPF failed, if it was tried.
        bpf: Option<bpf::OpenError>,
    },
}

/// Why a poll failed.
#[derive(Debug, thiserror::Error)]
pub enum PollError {
    /// The BPF tier's reason.
    #[error(transparent)]
    Bpf(#[from] bpf::PollError),
    /// The inet_diag tier's reason.
    #[error("dumping sockets over netlink: {0}")]
    InetDiag(#[from] inet_diag::PollError),
    /// Not every process could be looked at.
    #[error("looking at processes in /proc: {0}")]
    Exhausted(String),
    /// The processes could not be listed.
    #[error("listing processes in /proc: {0}")]
    Processes(#[source] std::io::Error),
}

/// The tier in use.
pub(crate) enum Observer {
    Bpf(Box<BpfTier>),
    InetDiag {
        tier: Box<InetDiag>,
        /// `None`: only the own one is observed.
        other_namespaces: Option<Box<OtherNamespaces>>,
        out: Vec<Snapshot>,
        inodes: FxHashMap<u64, u32>,
        /// Those of the listening sockets, as of the latest walk.
        listening: FxHashMap<u64, u32>,
    },
}

/// What the inet_diag tier cannot measure.
fn inet_diag_features(reason: &str) -> Vec<Feature> {
    let missing = |name, measures, serves| Feature {
        name,
        measures,
        state: FeatureState::Missing {
            reason: reason.to_owned(),
        },
        serves,
    };
    vec![
        Feature {
            name: "snapshot",
            measures: "the statistics of tcp_info",
            state: FeatureState::Active,
            serves: ProblemSet::EMPTY,
        },
        missing(
            "lifecycle",
            "opening and closing; connections shorter than a poll are not observed",
            ProblemSet::EMPTY,
        ),
        missing(
            "segment",
            "RTT sums, sample by sample, and what data waits for",
            ProblemSet::EMPTY
                .with(Problem::DelayedAck)
                .with(Problem::SmallWrites),
        ),
        missing(
            "recovery",
            "recovery episodes",
            ProblemSet::EMPTY
                .with(Problem::FastRetransmit)
                .with(Problem::IdleBurst),
        ),
        missing(
            "calls",
            "socket calls, and with `segment` whose turn it is",
            ProblemSet::EMPTY.with(Problem::SmallWrites),
        ),
    ]
}

/// Whether connections in other network namespaces are observed.
fn namespaces_feature(unobserved: Option<String>) -> Feature {
    Feature {
        name: "namespaces",
        measures: "connections in other network namespaces",
        state: match unobserved {
            None => FeatureState::Active,
            Some(reason) => FeatureState::Missing { reason },
        },
        serves: ProblemSet::EMPTY,
    }
}

impl Observer {
    /// Opens the tier that was chosen. A capability states it if only the own network namespace
    /// is observed.
    ///
    /// # Errors
    /// What could not be opened, and why.
    pub(crate) fn open(
        choice: TierChoice,
        options: &bpf::Options,
    ) -> Result<(Self, Capabilities), OpenError> {
        let (observer, mut capabilities) = Self::open_tier(choice, options)?;
        if options.namespaces == Namespaces::Own {
            let reason = "only the own one is to be observed".to_owned();
            capabilities.set(namespaces_feature(Some(reason)));
        }
        Ok((observer, capabilities))
    }

    fn open_tier(
        choice: TierChoice,
        options: &bpf::Options,
    ) -> Result<(Self, Capabilities), OpenError> {
        let refused = match choice {
            TierChoice::InetDiag => None,
            TierChoice::Auto | TierChoice::Bpf => match BpfTier::open(options) {
                Ok(tier) => {
                    let capabilities = Capabilities {
                        tier: Tier::Bpf,
                        features: tier.features().to_vec(),
                        fallback: None,
                    };
                    return Ok((Observer::Bpf(Box::new(tier)), capabilities));
                }
                Err(error) if choice == TierChoice::Bpf => return Err(OpenError::Bpf(error)),
                Err(error) => Some(error),
            },
        };
        let fallback = refused.as_ref().map(|error| with_limit(&error.to_string()));
        let namespaces = options.namespaces;
        let options = inet_diag::Options {
            changed_only: true,
            ..Default::default()
        };
        match InetDiag::with_options(options) {
            Ok(tier) => {
                let reason = match &fallback {
                    Some(error) => format!("the inet_diag tier is in use because {error}"),
                    None => "the inet_diag tier was asked for".to_owned(),
                };
                let capabilities = Capabilities {
                    tier: Tier::InetDiag,
                    features: inet_diag_features(&reason),
                    fallback,
                };
                let observer = Observer::InetDiag {
                    tier: Box::new(tier),
                    other_namespaces: (namespaces == Namespaces::All)
                        .then(|| Box::new(OtherNamespaces::new(options))),
                    out: Vec::new(),
                    inodes: FxHashMap::default(),
                    listening: FxHashMap::default(),
                };
                Ok((observer, capabilities))
            }
            Err(inet_diag) => Err(OpenError::InetDiag {
                inet_diag,
                bpf: refused,
            }),
        }
    }

    pub(crate) fn poll(&mut self, sink: &mut impl Sink) -> Result<PollReport, PollError> {
        match self {
            Observer::Bpf(tier) => Ok(tier.poll(sink)?),
            Observer::InetDiag {
                tier,
                other_namespaces,
                out,
                inodes,
                ..
            } => {
                let at: MonoNanos = monotonic();
                out.clear();
                let report = tier.poll(out)?;
                let mut hand_over = |snapshot: &Snapshot, inode| {
                    if snapshot.closed {
                        inodes.remove(&snapshot.id.cookie);
                    } else {
                        inodes.insert(snapshot.id.cookie, inode);
                    }
                    sink.see(snapshot);
                };
                for (snapshot, key) in out.iter().zip(tier.keys()) {
                    hand_over(snapshot, key.inode);
                }
                let others = other_namespaces
                    .as_mut()
                    .map(|others| others.poll(hand_over));
                let others = others.unwrap_or_default();
                Ok(PollReport {
                    at,
                    visited: report.open + others.open,
                    live: report.open + others.open,
                    missed: report.dropped + others.dropped,
                    repeats: report.repeated + others.repeated,
                    emitted: report.emitted + others.emitted - report.closed - others.closed,
                    closed: report.closed + others.closed,
                    left_over: 0,
                    passes: 1,
                    walked: true,
                })
            }
        }
    }

    /// Whether all network namespaces are observed; `None` where that does not depend on entering them.
    pub(crate) fn namespaces(&mut self) -> Option<Feature> {
        let Observer::InetDiag {
            other_namespaces: Some(others),
            ..
        } = self
        else {
            return None;
        };
        Some(namespaces_feature(others.unobserved()))
    }

    /// Searches for connections that the polls do not meet, among all or among `sockets`
    /// that it has not searched yet; gives their number once it has searched all.
    pub(crate) fn search(&mut self, sockets: Option<usize>) -> Option<u64> {
        match self {
            Observer::Bpf(tier) => {
                let found = match sockets {
                    None => tier.seed(),
                    Some(sockets) => tier.seed_some(sockets)?,
                };
                tier.walk_next();
                Some(found)
            }
            Observer::InetDiag { .. } => Some(0),
        }
    }

    /// Whether the next polls hand over every connection, changed or not.
    pub(crate) fn emit_all(&mut self, all: bool) {
        if let Observer::Bpf(tier) = self {
            tier.emit_all(all);
        }
    }

    /// With which probability each poll samples a connection, by its priority.
    pub(crate) fn thin(&mut self, probabilities: &[f64]) {
        if let Observer::Bpf(tier) = self {
            let mut all = [1.0; bpf::RATE_COUNT];
            for (place, probability) in all.iter_mut().zip(probabilities) {
                *place = *probability;
            }
            tier.thin(&all);
        }
    }

    /// Treats a connection by its priority from now on.
    pub(crate) fn set_priority(&mut self, change: &Change) {
        if let Observer::Bpf(tier) = self {
            tier.set_rate(change.cookie, change.priority);
            tier.set_suspect(change.cookie, change.suspect);
        }
    }

    /// Has the kernel measure what the BPF programs cost for a while, unless it does anyway;
    /// whether it does.
    pub(crate) fn sample_statistics(&mut self, on: bool) -> bool {
        match self {
            Observer::Bpf(tier) => tier.sample_statistics(on).is_ok(),
            Observer::InetDiag { .. } => false,
        }
    }

    pub(crate) fn suspect(&mut self, cookies: &[u64]) {
        if let Observer::Bpf(tier) = self {
            tier.suspect(cookies);
        }
    }

    pub(crate) fn take_calls(&mut self) -> Vec<Call> {
        match self {
            Observer::Bpf(tier) => tier.take_calls(),
            Observer::InetDiag { .. } => Vec::new(),
        }
    }

    pub(crate) fn losses(&self) -> LossCounters {
        match self {
            Observer::Bpf(tier) => tier.losses(),
            Observer::InetDiag { .. } => LossCounters::default(),
        }
    }

    pub(crate) fn turnover(&self) -> Option<(u64, u64)> {
        match self {
            Observer::Bpf(tier) => Some(tier.turnover()),
            Observer::InetDiag { .. } => None,
        }
    }

    pub(crate) fn programs(&self) -> Vec<ProgramCost> {
        match self {
            Observer::Bpf(tier) => tier.programs(),
            Observer::InetDiag { .. } => Vec::new(),
        }
    }

    pub(crate) fn enable_statistics(&mut self) -> std::io::Result<()> {
        match self {
            Observer::Bpf(tier) => tier.enable_statistics(),
            Observer::InetDiag { .. } => Ok(()),
        }
    }
}
