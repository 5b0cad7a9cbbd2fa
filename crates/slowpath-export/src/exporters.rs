// SPDX-License-Identifier: Apache-2.0
//! Exporters of the agent's sums: the server for Prometheus, the pusher for OpenTelemetry.

use crate::http::Server;
use crate::otlp::Resource;
use crate::push::{Endpoint, Options, Pusher};
use crate::{Board, Polls, State};
use slowpath_agent::service::{HostName, MetricsExport};
use slowpath_agent::{Agent, OwnerLabels, PollReport};
use slowpath_model::WallMicros;
use slowpath_ship::clock::wall;
use slowpath_ship::shipper::ShipWatch;
use std::net::SocketAddr;
use std::sync::Arc;
use std::time::{Duration, Instant};

const VERSION: &str = env!("CARGO_PKG_VERSION");

/// The shortest time between two states that are left on the board.
const PUBLISH_EVERY: Duration = Duration::from_millis(950);

/// Which exporters are asked for, and how they work.
#[derive(Clone, Debug, PartialEq)]
pub struct ExportSettings {
    /// Where metrics are served to Prometheus.
    pub metrics: Option<SocketAddr>,
    /// Applications that have series of their own.
    pub applications: usize,
    /// Their labels beside the name.
    pub labels: OwnerLabels,
    /// Where metrics are pushed.
    pub otlp: Option<Endpoint>,
    /// Time between two pushes.
    pub otlp_interval: Duration,
    /// Mean time between two polls.
    pub poll_interval: Duration,
    /// This host's name, if the configuration has one.
    pub host: Option<HostName>,
}

/// Why an exporter does not start.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{0}")]
pub struct ExportError(String);

/// The exporters that are asked for.
pub struct Exporters {
    board: Arc<Board>,
    polls: Polls,
    started: WallMicros,
    published: Option<Instant>,
    server: Option<Server>,
    pusher: Option<Pusher>,
    ship: Option<ShipWatch>,
}

impl Exporters {
    /// None yet; `ship` knows how shipping the log fares, if it is shipped.
    pub fn new(ship: Option<ShipWatch>) -> Self {
        Exporters {
            board: Arc::default(),
            polls: Polls::default(),
            started: wall(),
            published: None,
            server: None,
            pusher: None,
            ship,
        }
    }

    /// Starts, moves and ends what `wanted` asks for beyond or short of `before`; gives a line
    /// about each thing that it did.
    ///
    /// # Errors
    /// When the server or a thread cannot be had; the other exporter is as wanted then.
    pub fn follow(
        &mut self,
        agent: &mut Agent,
        before: Option<&ExportSettings>,
        wanted: &ExportSettings,
    ) -> Result<Vec<String>, ExportError> {
        let mut done = Vec::new();
        if wanted.metrics.is_some() || wanted.otlp.is_some() {
            agent.keep_host_totals(wanted.applications, wanted.labels);
        }
        let otlp = |s: &ExportSettings| (s.otlp.clone(), s.otlp_interval);
        let lacks = wanted.otlp.is_some() && self.pusher.is_none();
        if lacks || before.map(otlp) != Some(otlp(wanted)) {
            // The old one pushes what it has.
            let ended = self.pusher.take().is_some();
            if let Some(endpoint) = &wanted.otlp {
                let pusher = Pusher::start(
                    endpoint.clone(),
                    &options()?,
                    wanted.otlp_interval,
                    resource(wanted.host.as_ref(), self.started),
                    self.board.clone(),
                );
                self.pusher = Some(pusher.map_err(|e| ExportError(e.to_string()))?);
                done.push(format!("pushes metrics to {endpoint}"));
            } else if ended {
                done.push("pushes metrics no more".to_owned());
            }
        }
        let served = |s: &ExportSettings| s.metrics.map(|address| (address, s.poll_interval));
        let lacks = wanted.metrics.is_some() && self.server.is_none();
        if lacks || before.and_then(served) != served(wanted) {
            // The old one first: it may hold the address.
            let ended = self.server.take().is_some();
            if let Some(address) = wanted.metrics {
                let server = Server::start(address, self.board.clone(), wanted.poll_interval)
                    .map_err(|e| ExportError(e.to_string()))?;
                done.push(format!("serves http://{}/metrics", server.address()));
                self.server = Some(server);
            } else if ended {
                done.push("serves metrics no more".to_owned());
            }
        }
        Ok(done)
    }

    fn publish(&mut self, agent: &Agent) {
        if let Some(mut state) = State::of(agent, &self.polls, VERSION, self.started, wall()) {
            state.ship = self.ship.as_ref().map(ShipWatch::status);
            self.published = Some(Instant::now());
            self.board.publish(state);
        }
    }
}

impl MetricsExport for Exporters {
    fn polled(&mut self, agent: &Agent, report: &PollReport, took: Duration) {
        self.polls.add(report, took);
        if self
            .published
            .is_none_or(|at| at.elapsed() >= PUBLISH_EVERY)
        {
            self.publish(agent);
        }
    }

    fn poll_failed(&mut self) {
        self.polls.failed += 1;
    }

    fn push_error(&self) -> Option<String> {
        self.board.push.last_trouble()
    }

    /// Leaves the last state and ends; what can be pushed is pushed.
    fn finish(mut self, agent: &Agent) {
        self.publish(agent);
    }
}

/// What OpenTelemetry's variables for exporters say: the one for metrics only, or else the
/// one for everything.
fn options() -> Result<Options, ExportError> {
    let variable = |name: &str| {
        let set = |name: String| std::env::var(name).ok().filter(|value| !value.is_empty());
        set(format!("OTEL_EXPORTER_OTLP_METRICS_{name}"))
            .or_else(|| set(format!("OTEL_EXPORTER_OTLP_{name}")))
    };
    let gzip = match variable("COMPRESSION").as_deref() {
        None | Some("none") => false,
        Some("gzip") => true,
        Some(other) => {
            return Err(ExportError(format!(
                "$OTEL_EXPORTER_OTLP_COMPRESSION is {other:?}; gzip and none can be had"
            )));
        }
    };
    Ok(Options {
        headers: variable("HEADERS").unwrap_or_default(),
        gzip,
        certificate: variable("CERTIFICATE").map(Into::into),
    })
}

fn resource(host: Option<&HostName>, started: WallMicros) -> Resource {
    let host = host.map_or_else(slowpath_agent::host_name, HostName::to_string);
    // Distinguishes the runs of a host.
    let instance = format!("{host}-{}-{}", std::process::id(), started.0);
    let attributes = std::env::var("OTEL_RESOURCE_ATTRIBUTES").unwrap_or_default();
    Resource::new(&host, VERSION, &instance).with(&attributes)
}
