// SPDX-License-Identifier: Apache-2.0
//! The sections of workloads.

use super::error::{Problem, ScenarioError};
use super::hosts::no_such_host;
use super::network::fits;
use super::section::{Section, Value};
use super::{Files, MAX_TEXT, tcp};
use crate::engine::{Application, Transport};
use crate::results::LABELS;
use crate::tcp::TcpConfig;
use crate::topology::Topology;
use crate::workload::{
    Arrivals, Bulk, EndpointError, Endpoints, Incast, Intensity, Kind, Locality, Permutation,
    Poisson, SizeDistribution, Workload, parse_trace,
};
use slowpath_model::steers;
use slowpath_switch::{Span, Time};
use std::collections::HashMap;

/// The largest flow: 1 PB.
const MAX_BYTES: u64 = 1_000_000_000_000_000;
/// The most patterns of one list.
const MAX_PATTERNS: usize = 64;
/// The most flows of a scenario: a run keeps a record of each, 2 GiB of them.
pub(super) const MAX_FLOWS: u64 = 1 << 24;

#[derive(Clone, Copy)]
enum KindName {
    Poisson,
    Incast,
    Bulk,
    Permutation,
    Trace,
}

/// Reads workloads into a network.
pub(super) struct Reader<'a> {
    pub topology: &'a Topology,
    /// Hosts by name.
    pub by_name: HashMap<&'a str, u32>,
    pub files: &'a Files<'a>,
    /// No flow begins later.
    pub end: Time,
    pub classes: u8,
    pub kinds: &'a mut Vec<TcpConfig>,
}

impl Reader<'_> {
    /// All of them; at least one.
    pub fn all(&mut self, root: &Section<'_>) -> Result<Vec<Workload>, ScenarioError> {
        let Some(list) = root.get("workload") else {
            return Err(root.error(Problem::NoWorkload));
        };
        let sections = list.list()?;
        if sections.is_empty() {
            return Err(list.error(Problem::NoWorkload));
        }
        if sections.len() > LABELS {
            return Err(list.error(Problem::TooMany(LABELS)));
        }
        let mut flows = 0.0;
        let mut workloads = Vec::new();
        for value in &sections {
            let workload = self.one(&value.section()?)?;
            flows += workload.expected_flows();
            // Of a network for itself nothing is run.
            if self.end != Time::MAX && flows > MAX_FLOWS as f64 {
                return Err(value.error(Problem::TooManyFlows {
                    flows: flows.round() as u64,
                    most: MAX_FLOWS,
                }));
            }
            workloads.push(workload);
        }
        Ok(workloads)
    }

    fn one(&mut self, section: &Section<'_>) -> Result<Workload, ScenarioError> {
        let kinds = [
            ("poisson", KindName::Poisson),
            ("incast", KindName::Incast),
            ("bulk", KindName::Bulk),
            ("permutation", KindName::Permutation),
            ("trace", KindName::Trace),
        ];
        let word = section.need("kind")?;
        let kind = match word.choice(&kinds)? {
            KindName::Poisson => Kind::Poisson(self.poisson(section)?),
            KindName::Incast => Kind::Incast(self.incast(section)?),
            KindName::Bulk => Kind::Bulk(self.bulk(section)?),
            KindName::Permutation => Kind::Permutation(self.permutation(section)?),
            KindName::Trace => self.trace(section)?,
        };
        let name = match section.get("name") {
            Some(name) => {
                let text = name.string()?;
                if text.contains(steers) {
                    return Err(name.error(Problem::Unprintable(text.to_owned())));
                }
                text.chars().take(MAX_TEXT).collect()
            }
            None => word.string()?.to_owned(),
        };
        let moment = |key, otherwise| match section.get(key) {
            Some(value) => value.span().map(|span| (Time::ZERO + span).min(self.end)),
            None => Ok(otherwise),
        };
        let start = moment("start", Time::ZERO)?;
        let stop = moment("stop", self.end)?;
        let class = match section.get("class") {
            // At most 7, so it fits.
            Some(class) => class.small(0..=u32::from(self.classes - 1))? as u8,
            None => 0,
        };
        let transport = self.transport(section)?;
        let keep_connections = section
            .get("keep-connections")
            .map_or(Ok(false), |value| value.boolean())?;
        let application = match section.get("write") {
            None => Application::AtOnce,
            Some(value) if keep_connections => {
                return Err(value.error(Problem::Conflict("keep-connections")));
            }
            Some(value) => periodic(&value)?,
        };
        section.done()?;
        Ok(Workload {
            name,
            class,
            transport,
            application,
            keep_connections,
            start,
            stop,
            kind,
        })
    }

    fn transport(&mut self, section: &Section<'_>) -> Result<Transport, ScenarioError> {
        let datagram = section.get("datagram");
        let tcp = section.section("tcp")?;
        match (datagram, tcp) {
            (None, None) => Ok(Transport::Tcp(0)),
            (Some(datagram), Some(_)) => Err(datagram.error(Problem::Conflict("tcp"))),
            (Some(datagram), None) => {
                if section.get("keep-connections").is_some() {
                    return Err(datagram.error(Problem::Conflict("keep-connections")));
                }
                // IPv4 and UDP take 28; at most 65,535, so it fits.
                Ok(Transport::Datagrams(datagram.size(29..=65_535)? as u16))
            }
            (None, Some(keys)) => {
                let own = tcp::read(keys, self.kinds[0].clone())?;
                self.kinds.push(own);
                // One more than there are workloads, at most.
                Ok(Transport::Tcp((self.kinds.len() - 1) as u8))
            }
        }
    }

    /// The hosts that a list of names and patterns means, each once, in their order.
    fn hosts(&self, list: &Value<'_>) -> Result<Vec<u32>, ScenarioError> {
        let all = self.topology.hosts();
        let mut chosen = vec![false; all.len()];
        let mut patterns = 0;
        let names = list.list()?;
        if names.is_empty() {
            return Err(list.error(EndpointError::NoHosts));
        }
        for pattern in names {
            let text = pattern.string()?;
            let no_such_host = || pattern.error(no_such_host(text, self.topology));
            if !text.ends_with('*') {
                let host = self.by_name.get(text).ok_or_else(no_such_host)?;
                chosen[*host as usize] = true;
                continue;
            }
            patterns += 1;
            if patterns > MAX_PATTERNS {
                return Err(pattern.error(Problem::TooMany(MAX_PATTERNS)));
            }
            let mut found = false;
            for (host, chosen) in all.iter().zip(&mut chosen) {
                if fits(text, &host.name) {
                    *chosen = true;
                    found = true;
                }
            }
            if !found {
                return Err(no_such_host());
            }
        }
        Ok((0..)
            .zip(chosen)
            .filter(|(_, chosen)| *chosen)
            .map(|(host, _)| host)
            .collect())
    }

    fn endpoints(&self, section: &Section<'_>) -> Result<Endpoints, ScenarioError> {
        let list = |key| section.get(key).map(|list| self.hosts(&list)).transpose();
        let (from, to) = (list("from")?, list("to")?);
        let among = match section.get("among") {
            None => Locality::Any,
            Some(among) => among.choice(&[
                ("any", Locality::Any),
                ("other-rack", Locality::OtherRack),
                ("other-pod", Locality::OtherPod),
            ])?,
        };
        Endpoints::choose(self.topology, from, to, among).map_err(|error| section.error(error))
    }

    fn poisson(&self, section: &Section<'_>) -> Result<Poisson, ScenarioError> {
        let endpoints = self.endpoints(section)?;
        let sizes = self.sizes(&section.need("sizes")?)?;
        let keys = (section.get("load"), section.get("rate"), section.get("gap"));
        let intensity = match keys {
            (Some(load), None, None) => Intensity::Load(load.share()?),
            (None, Some(rate), None) => Intensity::PerSecond(rate.frequency()?),
            (None, None, Some(gap)) => Intensity::Gap(gap.positive_span()?),
            (None, None, None) => {
                return Err(section.needs_one_of(&["load", "rate", "gap"]));
            }
            (Some(load), ..) => return Err(load.error(Problem::Conflict("rate or gap"))),
            (_, Some(rate), _) => return Err(rate.error(Problem::Conflict("gap"))),
        };
        Ok(Poisson {
            endpoints,
            sizes,
            intensity,
        })
    }

    fn sizes(&self, value: &Value<'_>) -> Result<SizeDistribution, ScenarioError> {
        if let Ok(text) = value.string()
            && !text.trim_start().starts_with(|c: char| c.is_ascii_digit())
        {
            return Err(value.error(Problem::FileOfSizes(text.to_owned())));
        }
        if !value.is_table() {
            return value.size(1..=MAX_BYTES).map(SizeDistribution::constant);
        }
        let section = value.section()?;
        let file = section.need("file")?;
        let (name, text) = self.file(&file)?;
        section.finish()?;
        SizeDistribution::parse(&text)
            .map_err(|error| file.error(Problem::Cdf { file: name, error }))
    }

    fn file(&self, value: &Value<'_>) -> Result<(String, String), ScenarioError> {
        let name = value.string()?.to_owned();
        match (self.files)(&name) {
            Ok(text) => Ok((name, text)),
            Err(error) => Err(value.error(Problem::File {
                file: name,
                kind: error.kind(),
            })),
        }
    }

    fn incast(&self, section: &Section<'_>) -> Result<Incast, ScenarioError> {
        let endpoints = self.endpoints(section)?;
        let most = self.topology.hosts().len() as u32 - 1;
        let degree_key = section.need("degree")?;
        let degree = degree_key.small(1..=most)?;
        let checked = endpoints.check_degree(self.topology, degree);
        checked.map_err(|error| degree_key.error(error))?;
        let arrivals = match section.get("arrivals") {
            None => Arrivals::Poisson,
            Some(arrivals) => arrivals.choice(&[
                ("poisson", Arrivals::Poisson),
                ("periodic", Arrivals::Periodic),
            ])?,
        };
        Ok(Incast {
            endpoints,
            rate: section.need("rate")?.frequency()?,
            arrivals,
            degree,
            response: section.need("response")?.size(1..=MAX_BYTES)?,
            jitter: section
                .get("jitter")
                .map_or(Ok(Span::ZERO), |value| value.span())?,
            count: section
                .get("count")
                .map(|value| value.integer(1..=u64::from(u32::MAX)))
                .transpose()?,
        })
    }

    fn bulk(&self, section: &Section<'_>) -> Result<Bulk, ScenarioError> {
        let from = self.hosts(&section.need("from")?)?;
        let to_key = section.need("to")?;
        let to = self.hosts(&to_key)?;
        let pairs: Vec<(u32, u32)> = match (&from[..], &to[..]) {
            (from, [to]) => from.iter().map(|from| (*from, *to)).collect(),
            ([from], to) => to.iter().map(|to| (*from, *to)).collect(),
            (from, to) if from.len() == to.len() => {
                from.iter().copied().zip(to.iter().copied()).collect()
            }
            (from, to) => {
                return Err(to_key.error(Problem::Pairs {
                    from: from.len(),
                    to: to.len(),
                }));
            }
        };
        if pairs.is_empty() {
            return Err(section.error(EndpointError::NoHosts));
        }
        if let Some((host, _)) = pairs.iter().find(|(from, to)| from == to) {
            let name = self.topology.hosts()[*host as usize].name.clone();
            return Err(to_key.error(EndpointError::NoPeer(name)));
        }
        let most = MAX_FLOWS / pairs.len() as u64;
        Ok(Bulk {
            flows: section
                .get("flows")
                // At most 2^24, so it fits.
                .map_or(Ok(1), |value| {
                    value.integer(1..=most).map(|flows| flows as u32)
                })?,
            pairs,
            bytes: self.bytes(section)?,
            stagger: section
                .get("stagger")
                .map_or(Ok(Span::ZERO), |value| value.span())?,
            jitter: section
                .get("jitter")
                .map_or(Ok(Span::ZERO), |value| value.span())?,
        })
    }

    fn bytes(&self, section: &Section<'_>) -> Result<Option<u64>, ScenarioError> {
        section
            .get("bytes")
            .map(|value| value.size(1..=MAX_BYTES))
            .transpose()
    }

    fn permutation(&self, section: &Section<'_>) -> Result<Permutation, ScenarioError> {
        let hosts = match section.get("hosts") {
            Some(list) => self.hosts(&list)?,
            None => (0..self.topology.hosts().len() as u32).collect(),
        };
        if hosts.len() < 2 {
            return Err(section.error(EndpointError::NoHosts));
        }
        Ok(Permutation {
            hosts,
            bytes: self.bytes(section)?,
        })
    }

    fn trace(&self, section: &Section<'_>) -> Result<Kind, ScenarioError> {
        let file = section.need("file")?;
        let (name, text) = self.file(&file)?;
        parse_trace(&text, self.topology)
            .map(Kind::Trace)
            .map_err(|error| file.error(Problem::Trace { file: name, error }))
    }
}

fn periodic(value: &Value<'_>) -> Result<Application, ScenarioError> {
    let section = value.section()?;
    let application = Application::Periodic {
        // At most 2^30, so it fits.
        chunk: section.need("bytes")?.size(1..=1 << 30)? as u32,
        every: section.need("every")?.positive_span()?,
    };
    section.finish()?;
    Ok(application)
}
