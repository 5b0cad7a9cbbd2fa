// SPDX-License-Identifier: Apache-2.0
//! At which load DIBS breaks, measured and predicted.
//!
//! **Break**: the load of queries at which switches with DIBS drop one packet in a hundred:
//! the virtual infinite buffer has an end. (The load at which its 99th percentile of QCT is
//! no longer below that of dropping is another, higher one. There both have collapsed and
//! the two curves run side by side: two searches of one point were up to 70 % apart.)
//!
//! **Model**: bursts of `b` packets, the initial windows of a query's answers, come to a
//! receiver at random. At a load of rho the mean of what waits for its link is
//! `b rho / (2 (1 - rho))` (M/D/1, Pollaczek and Khinchine), rho being the load of queries
//! over what the background leaves of the busiest tier. With DIBS it waits in the network,
//! which has `P` ports of `B` places for each host. With `room = 2 B P / b` DIBS breaks when
//! what waits fills a share f of the places: `rho / (1 - rho) = f room`. Bursts that meet
//! are not spread evenly, so an exponent of the room is fitted besides f.

use crate::experiment::{self, ExperimentError};
use serde_json::{Value as Json, json};
use slowpath_switch::Random;
use std::collections::BTreeMap;
use std::error::Error;
use toml::Value;

/// Payload of a packet, and the packet with its header (`TcpConfig::linux`).
const PAYLOAD: f64 = 1460.0;
const HEADER: f64 = 40.0;
/// Segments, as scenarios/dibs/break.toml says.
const INITIAL_WINDOW: f64 = 10.0;
/// Packets from which on a queue marks, likewise.
const MARKING: u32 = 20;
/// The links' rate in bits a second.
const RATE: f64 = 1e9;
/// The loads that are searched, of the receivers' links.
const LEAST_LOAD: f64 = 0.03;
const MOST_LOAD: f64 = 1.2;
/// How near a prediction is to be.
const NEAR: f64 = 0.2;
/// The share of packets dropped at which it is broken.
const BROKEN: f64 = 0.01;
/// Halvings of that range, on a scale of ratios: to 6 %, then interpolated.
const HALVINGS: u32 = 6;

/// The shapes that points are drawn from.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Shape {
    FatTree(u32),
    LeafSpine {
        leaves: u32,
        spines: u32,
        hosts: u32,
    },
}

const SHAPES: [Shape; 4] = [
    Shape::FatTree(4),
    Shape::FatTree(6),
    Shape::LeafSpine {
        leaves: 8,
        spines: 4,
        hosts: 4,
    },
    Shape::LeafSpine {
        leaves: 8,
        spines: 4,
        hosts: 8,
    },
];

impl Shape {
    fn hosts(self) -> u32 {
        match self {
            Shape::FatTree(k) => k * k * k / 4,
            Shape::LeafSpine { leaves, hosts, .. } => leaves * hosts,
        }
    }

    /// Ports of switches for each host, those to hosts included.
    fn ports(self) -> f64 {
        match self {
            Shape::FatTree(_) => 5.0,
            Shape::LeafSpine { spines, hosts, .. } => {
                1.0 + 2.0 * f64::from(spines) / f64::from(hosts)
            }
        }
    }

    /// How many times the load of the hosts' links the busiest tier has.
    fn concentration(self) -> f64 {
        match self {
            Shape::FatTree(_) => 1.0,
            Shape::LeafSpine {
                spines,
                hosts,
                leaves,
            } => {
                let all = f64::from(leaves * hosts);
                let leave = (all - f64::from(hosts)) / (all - 1.0);
                (leave * f64::from(hosts) / f64::from(spines)).max(1.0)
            }
        }
    }

    pub fn name(self) -> String {
        match self {
            Shape::FatTree(k) => format!("fat-tree {k}"),
            Shape::LeafSpine {
                leaves,
                spines,
                hosts,
            } => format!("leaf-spine {leaves}x{spines}x{hosts}"),
        }
    }

    fn settings(self) -> Value {
        let number = |n: u32| Value::Integer(n.into());
        let links = [("rate", "1 Gbit/s"), ("delay", "1 us")];
        let links = links.map(|(key, value)| (key.to_owned(), Value::String(value.to_owned())));
        let links = Value::Table(links.into_iter().collect());
        let keys = match self {
            Shape::FatTree(k) => vec![("kind", Value::String("fat-tree".into())), ("k", number(k))],
            Shape::LeafSpine {
                leaves,
                spines,
                hosts,
            } => vec![
                ("kind", Value::String("leaf-spine".into())),
                ("leaves", number(leaves)),
                ("spines", number(spines)),
                ("hosts-per-leaf", number(hosts)),
            ],
        };
        let keys = keys.into_iter().chain([("links", links)]);
        Value::Table(keys.map(|(key, value)| (key.to_owned(), value)).collect())
    }
}

/// What is varied.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Point {
    pub shape: Shape,
    pub degree: u32,
    pub response: u32,
    pub buffer: u32,
    pub background: f64,
}

/// The slides' setting, but for the kind of its background.
const SLIDES: Point = Point {
    shape: Shape::FatTree(8),
    degree: 40,
    response: 20_000,
    buffer: 100,
    background: 0.113,
};

/// Points drawn by a seed, all of which have bursts that overflow a port: where they do not,
/// there is nothing to detour.
fn drawn(seed: u64, count: usize, buffers: &[u32]) -> Vec<Point> {
    let mut random = Random::new(seed);
    let mut points = Vec::new();
    while points.len() < count {
        let mut one_of = |of: &[u32]| of[random.below(of.len() as u32) as usize];
        let point = Point {
            shape: SHAPES[one_of(&[0, 1, 2, 3]) as usize],
            degree: one_of(&[10, 14, 20, 30, 45]),
            response: one_of(&[10_000, 15_000, 20_000, 30_000]),
            buffer: one_of(buffers),
            background: f64::from(one_of(&[0, 1, 2, 3])) / 10.0,
        };
        let burst = f64::from(point.degree) * (f64::from(point.response) / PAYLOAD).min(10.0);
        if point.degree < point.shape.hosts() && burst >= 1.5 * f64::from(point.buffer) {
            points.push(point);
        }
    }
    points
}

impl Point {
    /// Packets that come at once.
    fn burst(&self) -> f64 {
        let answer = (f64::from(self.response) / PAYLOAD).ceil();
        f64::from(self.degree) * answer.min(INITIAL_WINDOW)
    }

    /// Places for packets in the network for each host, as a multiple of half a burst.
    pub fn room(&self) -> f64 {
        2.0 * f64::from(self.buffer) * self.shape.ports() / self.burst()
    }

    /// Bits of a query on the last link.
    fn bits(&self) -> f64 {
        let packets = (f64::from(self.response) / PAYLOAD).ceil();
        f64::from(self.degree) * (f64::from(self.response) + packets * HEADER) * 8.0
    }

    /// Queries a second that load the receivers' links so much.
    pub fn rate(&self, load: f64) -> f64 {
        load * RATE * f64::from(self.shape.hosts()) / self.bits()
    }

    /// What the background takes of the receivers' links.
    fn background_load(&self) -> f64 {
        let packets = (100_000.0 / PAYLOAD).ceil();
        self.background * (1.0 + packets * HEADER / 100_000.0)
    }

    /// What the background leaves of the busiest tier.
    fn spare(&self) -> f64 {
        1.0 - self.background_load() * self.shape.concentration()
    }

    /// A load of queries over what the background leaves.
    pub fn relative(&self, load: f64) -> f64 {
        load / self.spare()
    }

    /// The share of packets that DIBS drops, and the 99th percentile of QCT in milliseconds.
    fn dropped(&self, load: f64, queries: f64) -> Result<(f64, f64), ExperimentError> {
        let rate = self.rate(load);
        let text = Value::String;
        let mut settings = vec![
            ("topology", self.shape.settings()),
            ("switch.buffer", text(format!("{} packets", self.buffer))),
            (
                "duration",
                text(format!("{} us", (queries / rate * 1e6) as u64)),
            ),
            ("workload.0.rate", text(format!("{rate:.3} /s"))),
            ("workload.0.degree", Value::Integer(self.degree.into())),
            ("workload.0.response", text(format!("{} B", self.response))),
        ];
        if self.background > 0.0 {
            settings.push(("workload.1.load", Value::Float(self.background)));
        } else {
            settings.push(("workload.1.load", Value::Float(1e-6)));
        }
        let scenario = experiment::scenario("break.toml", &settings)?;
        let results = experiment::run(&scenario, true)?;
        let c = results.conservation;
        let tail = experiment::percentile(experiment::queries(&results), 99.0);
        Ok((c.dropped as f64 / c.sent as f64, tail))
    }

    /// Searches the load at which DIBS breaks.
    pub fn search(&self) -> Result<Json, ExperimentError> {
        let queries = f64::from(self.shape.hosts() * 20).max(1000.0);
        let mut tried = Vec::new();
        let (mut low, mut high) = ((LEAST_LOAD, None), (MOST_LOAD, None));
        for _ in 0..HALVINGS {
            let load = f64::sqrt(low.0 * high.0);
            let (dropped, tail) = self.dropped(load, queries)?;
            let figures = [load, dropped, tail];
            tried.push(json!(figures.map(|figure| (figure * 1e5).round() / 1e5)));
            // Of nothing there is no logarithm.
            let excess = (dropped.max(1e-5) / BROKEN).ln();
            if excess < 0.0 {
                low = (load, Some(excess));
            } else {
                high = (load, Some(excess));
            }
        }
        let breaking = match (low, high) {
            ((from, Some(below)), (to, Some(above))) => {
                Json::from(from * (to / from).powf(below / (below - above)))
            }
            _ => Json::Null,
        };
        Ok(json!({
            "topology": self.shape.name(),
            "hosts": self.shape.hosts(),
            "degree": self.degree,
            "response": self.response,
            "buffer": self.buffer,
            "background": self.background,
            "queries": queries,
            "tried": tried,
            "load": breaking,
        }))
    }
}

/// What is fitted: `ln(rho / (1 - rho)) = offset + slope ln(room)`.
#[derive(Clone, Copy, Debug)]
pub struct Model {
    pub offset: f64,
    pub slope: f64,
}

impl Model {
    /// Least squares over points and the loads at which they broke.
    pub fn fit(points: &[(Point, f64)]) -> Model {
        let count = points.len() as f64;
        let all = points.iter().map(|(point, load)| {
            let total = point.relative(*load).clamp(0.02, 0.98);
            (point.room().ln(), (total / (1.0 - total)).ln())
        });
        let all: Vec<(f64, f64)> = all.collect();
        let mean_x = all.iter().map(|p| p.0).sum::<f64>() / count;
        let mean_y = all.iter().map(|p| p.1).sum::<f64>() / count;
        let xy: f64 = all.iter().map(|p| (p.0 - mean_x) * (p.1 - mean_y)).sum();
        let xx: f64 = all.iter().map(|p| (p.0 - mean_x).powi(2)).sum();
        let slope = xy / xx;
        Model {
            offset: mean_y - slope * mean_x,
            slope,
        }
    }

    /// The load of queries over what the background leaves, at which DIBS breaks.
    pub fn load(&self, room: f64) -> f64 {
        let odds = (self.offset + self.slope * room.ln()).exp();
        odds / (1.0 + odds)
    }

    /// The load of queries at which DIBS breaks.
    pub fn predict(&self, point: &Point) -> f64 {
        self.load(point.room()) * point.spare()
    }

    /// Whether that is within a fifth of where it broke.
    pub fn is_near(&self, point: &Point, load: Option<f64>) -> bool {
        let predicted = self.predict(point);
        match load {
            Some(load) => (predicted / load - 1.0).abs() <= NEAR,
            None => predicted <= (1.0 + NEAR) * LEAST_LOAD,
        }
    }
}

/// Fixed before anything was fitted.
const TRAINING_SEED: u64 = 1;
const HELD_OUT_SEED: u64 = 2;
/// Fixed when the first set had shown where the model does not hold, before this one was run.
const SECOND_SEED: u64 = 3;
const POINTS: usize = 20;

/// What was measured, by the name of the point.
pub type Found = BTreeMap<String, Json>;

/// All points by name, in the order in which they are measured.
pub fn points() -> Vec<(String, Point)> {
    let named = |set: &'static str, seed, buffers: &[u32]| {
        let points = drawn(seed, POINTS, buffers).into_iter().enumerate();
        points.map(move |(number, point)| (format!("{set}-{number:02}"), point))
    };
    let all = [MARKING, 30, 50, 75, 100];
    let slides = std::iter::once(("slides".to_owned(), SLIDES));
    named("training", TRAINING_SEED, &all)
        .chain(slides)
        .chain(named("held-out", HELD_OUT_SEED, &all))
        .chain(named("second", SECOND_SEED, &all[1..]))
        .collect()
}

/// Reads what was measured.
///
/// # Errors
/// The file is there and is not what this program writes.
pub fn found() -> Result<Found, Box<dyn Error>> {
    let Ok(text) = std::fs::read_to_string(experiment::folder().join("break.jsonl")) else {
        return Ok(Found::new());
    };
    let line = |line: &str| -> Result<(String, Json), Box<dyn Error>> {
        let json: Json = serde_json::from_str(line)?;
        let name = json["name"].as_str().ok_or("a line without a name")?;
        Ok((name.to_owned(), json))
    };
    text.lines().map(line).collect()
}

/// The points of a set that were measured, and the load at which each broke; `None`: at
/// less than the least that was tried.
pub fn measured(found: &Found, set: &str) -> Vec<(String, Point, Option<f64>)> {
    let all = points().into_iter();
    let all = all.filter(|(name, _)| name.starts_with(set));
    all.filter_map(|(name, point)| {
        let load = found.get(&name)?["load"].as_f64();
        Some((name, point, load))
    })
    .collect()
}

/// The model, from the training points alone.
pub fn fitted(found: &Found) -> Model {
    let training = measured(found, "training").into_iter();
    // A queue that marks only when it is full slows nobody down before: not the model's.
    let broke = training.filter(|(_, point, _)| point.buffer > MARKING);
    let broke = broke.filter_map(|(_, point, load)| Some((point, load?)));
    Model::fit(&broke.collect::<Vec<_>>())
}
