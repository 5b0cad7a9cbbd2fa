// SPDX-License-Identifier: Apache-2.0
//! At which load DIBS breaks, measured and predicted.
//!
//! **Break**: the load of queries at which switches with DIBS drop one packet in a hundred:
//! the virtual infinite buffer has an end. (The load at which its 99th percentile of QCT is
//! no longer below that of dropping is another, higher one. There both have collapsed and
//! the two curves run side by side: two searches of one point differed by up to 70 %.)
//!
//! **Model**: a query brings a burst of `b` packets, the initial windows of its answers.
//! Bursts come to a receiver at random, so what waits for its link is the work W of an
//! M/D/1 queue with jumps of `b`; `B` of it have room at the receiver's port, the rest goes
//! round in the network. That is `E (W - B)+` for each host. Where it goes round the network
//! has `P` ports between switches for each host, of `B` places each, less
//!
//! - `g` that ordinary traffic needs,
//! - the share `u` of the time in which edge switches' uplinks carry what belongs there
//!   (packets that go round have the rest),
//! - `1 - 1/U` to the power of 3/2 for an edge switch of `U` uplinks, which drops when all
//!   are full at once: the fewer, the sooner.
//!
//! DIBS breaks when `E (W - B)+ = f P (B - g) (1 - u) (1 - 1/U)^(3/2)`; f and g are fitted.

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
/// The links' rate in bits a second.
const RATE: f64 = 1e9;
/// The loads that are searched, of the receivers' links.
const LEAST_LOAD: f64 = 0.02;
const MOST_LOAD: f64 = 1.2;
/// How near a prediction is to be.
const NEAR: f64 = 0.2;
/// The share of packets dropped at which it is broken.
const BROKEN: f64 = 0.01;
/// Halvings of that range, on a scale of ratios: to 7 %, then interpolated.
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

impl Shape {
    fn hosts(self) -> u32 {
        match self {
            Shape::FatTree(k) => k * k * k / 4,
            Shape::LeafSpine { leaves, hosts, .. } => leaves * hosts,
        }
    }

    /// A load of the hosts' links that loads the busiest tier so much, to four places.
    fn background(self, load: f64) -> f64 {
        (load / self.concentration().max(1.0) * 1e4).round() / 1e4
    }

    /// Ports between switches for each host.
    fn ports(self) -> f64 {
        match self {
            Shape::FatTree(_) => 4.0,
            Shape::LeafSpine { spines, hosts, .. } => 2.0 * f64::from(spines) / f64::from(hosts),
        }
    }

    /// Uplinks of an edge switch.
    fn uplinks(self) -> f64 {
        f64::from(match self {
            Shape::FatTree(k) => k / 2,
            Shape::LeafSpine { spines, .. } => spines,
        })
    }

    /// Hosts that share the switches above them: a pod of a fat-tree, all of a leaf-spine.
    fn pool(self) -> f64 {
        match self {
            Shape::FatTree(k) => f64::from(k * k / 4),
            Shape::LeafSpine { .. } => f64::from(self.hosts()),
        }
    }

    /// How many times the load of the hosts' links the uplinks of edge switches have.
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
                leave * f64::from(hosts) / f64::from(spines)
            }
        }
    }

    fn parse(name: &str) -> Option<Shape> {
        let (kind, numbers) = name.split_once(' ')?;
        let numbers: Result<Vec<u32>, _> = numbers.split('x').map(str::parse).collect();
        match (kind, &numbers.ok()?[..]) {
            ("fat-tree", &[k]) => Some(Shape::FatTree(k)),
            ("leaf-spine", &[leaves, spines, hosts]) => Some(Shape::LeafSpine {
                leaves,
                spines,
                hosts,
            }),
            _ => None,
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

/// The shapes that held-out points are drawn from: fat-trees, and leaf-spines of 1, 2, 3 and
/// 4 times as many hosts as uplinks a leaf. None of these leaf-spines was fitted to.
const HELD_OUT: [&str; 8] = [
    "fat-tree 4",
    "fat-tree 6",
    "fat-tree 8",
    "leaf-spine 6x4x4",
    "leaf-spine 8x5x5",
    "leaf-spine 10x3x6",
    "leaf-spine 6x4x12",
    "leaf-spine 5x4x16",
];

/// Points drawn by a seed. All have bursts that overflow a port, as there is nothing to
/// detour where they do not, and that fit into half of the ports around.
fn drawn(seed: u64, count: usize, wanted: impl Fn(&Point) -> bool) -> Vec<Point> {
    let mut random = Random::new(seed);
    let mut points = Vec::new();
    while points.len() < count {
        let mut one_of = |of: &[u32]| of[random.below(of.len() as u32) as usize];
        let name = HELD_OUT[one_of(&[0, 1, 2, 3, 4, 5, 6, 7]) as usize];
        let Some(shape) = Shape::parse(name) else {
            continue;
        };
        let point = Point {
            shape,
            degree: one_of(&[10, 14, 20, 30, 45]),
            response: one_of(&[10_000, 15_000, 20_000, 30_000]),
            buffer: one_of(&[20, 30, 50, 75, 100]),
            background: shape.background(f64::from(one_of(&[0, 1, 2, 3])) / 10.0),
        };
        let buffer = f64::from(point.buffer);
        let around = buffer * shape.ports() * shape.pool();
        let burst = point.burst();
        let fits = burst >= 1.5 * buffer && burst <= 0.5 * around;
        if point.degree < shape.hosts() && fits && wanted(&point) {
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

    /// How much of what the background leaves of a receiver's link queries take.
    fn relative(&self, load: f64) -> f64 {
        load / (1.0 - self.background_load())
    }

    /// The mean of what waits beyond the receiver's port, packets a host: of an M/D/1 queue
    /// with work W, `E W - B + integral of P(W <= x) over x from 0 to B`. Below one jump that
    /// probability is `(1 - rho) e^(rho x / b)` (Erlang).
    fn waiting(&self, load: f64) -> f64 {
        let rho = self.relative(load);
        if rho >= 1.0 {
            return f64::INFINITY;
        }
        let (burst, buffer) = (self.burst(), f64::from(self.buffer));
        let mean = burst * rho / (2.0 * (1.0 - rho));
        let growth = rho / burst;
        mean - buffer + (1.0 - rho) * (growth * buffer).exp_m1() / growth
    }

    /// The free space of the bound but for its factor, packets a host.
    fn places(&self, load: f64, reserve: f64) -> f64 {
        let carried = (load + self.background_load()) * self.shape.concentration();
        let free = (f64::from(self.buffer) - reserve).max(0.0);
        let joint = (1.0 - 1.0 / self.shape.uplinks()).powf(1.5);
        self.shape.ports() * free * (1.0 - carried).max(0.0) * joint
    }

    fn from_json(json: &Json) -> Option<Point> {
        let small = |key: &str| u32::try_from(json[key].as_u64()?).ok();
        Some(Point {
            shape: Shape::parse(json["topology"].as_str()?)?,
            degree: small("degree")?,
            response: small("response")?,
            buffer: small("buffer")?,
            background: json["background"].as_f64()?,
        })
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

/// What is fitted.
#[derive(Clone, Copy, Debug)]
pub struct Model {
    /// The share of the places that may be taken.
    pub share: f64,
    /// Places of each port that ordinary traffic needs.
    pub reserve: f64,
}

impl Model {
    /// Least squares of the logarithms over points and the loads at which they broke.
    /// Anything further off than a half counts as a half: what fits a few points that are
    /// not the model's would be worse for all others.
    pub fn fit(points: &[(Point, f64)]) -> Model {
        let cost = |model: &Model| -> f64 {
            let off = points.iter().map(|(p, load)| model.predict(p) / load);
            off.map(|ratio| ratio.ln().powi(2).min(0.25)).sum()
        };
        let mut best = Model {
            share: 0.5,
            reserve: 5.0,
        };
        let mut least = cost(&best);
        let (mut share, mut reserve) = (0.1, 4.0);
        while share > 1e-4 {
            let steps = [(share, 0.0), (-share, 0.0), (0.0, reserve), (0.0, -reserve)];
            let tried = steps.map(|(share, reserve)| {
                let model = Model {
                    share: best.share + share,
                    reserve: best.reserve + reserve,
                };
                (cost(&model), model)
            });
            match tried.into_iter().min_by(|a, b| a.0.total_cmp(&b.0)) {
                Some((cost, model)) if cost < least => (least, best) = (cost, model),
                _ => (share, reserve) = (share / 2.0, reserve / 2.0),
            }
        }
        best
    }

    /// The load of queries at which DIBS breaks.
    pub fn predict(&self, point: &Point) -> f64 {
        let (mut low, mut high) = (1e-4, 1.0);
        for _ in 0..40 {
            let load = f64::sqrt(low * high);
            if point.waiting(load) > self.share * point.places(load, self.reserve) {
                high = load;
            } else {
                low = load;
            }
        }
        low
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

/// What the two numbers were fitted to: points of earlier searches, the held-out ones of
/// earlier models among them.
pub const FITTED: [&str; 5] = ["training", "held-out", "second", "slides", "wide"];
/// Points that were drawn when the model was fixed, and run after that.
pub const FRESH: &str = "fresh";
const FRESH_SEED: u64 = 20_261_121;
/// More of them, for the same model, where it says that DIBS works at all: drawn when the
/// first set had shown that at less than the least load one burst is enough.
pub const SECOND_FRESH: &str = "usable";
const SECOND_FRESH_SEED: u64 = 20_261_122;
/// What the model says at least of those.
const USABLE: f64 = 0.03;
const POINTS: usize = 20;

/// What was measured, by the name of the point.
pub type Measurements = BTreeMap<String, Json>;

/// A panel of the phase diagram: one thing varied along it, another from curve to curve.
pub struct Panel {
    pub name: &'static str,
    pub title: &'static str,
    pub x: &'static str,
    /// Whether the axis is one of ratios.
    pub log: bool,
    pub curves: Vec<(&'static str, Vec<(f64, Point)>)>,
}

/// The phase diagram: load of queries over buffer, degree and background.
pub fn panels() -> Vec<Panel> {
    let shapes = [
        "fat-tree 6",
        "leaf-spine 8x4x4",
        "leaf-spine 8x4x8",
        "leaf-spine 6x4x12",
    ];
    let point = |name: &str, degree, buffer, busiest: f64| {
        let shape = Shape::parse(name)?;
        let background = shape.background(busiest);
        Some(Point {
            shape,
            degree,
            response: 20_000,
            buffer,
            background,
        })
    };
    let by_buffer = shapes.map(|name| {
        let points = [20, 30, 50, 75, 100].into_iter();
        let points = points.filter_map(|b| Some((f64::from(b), point(name, 20, b, 0.1)?)));
        (name, points.collect())
    });
    let buffers = [("30 packets", 30), ("50 packets", 50), ("100 packets", 100)];
    let by_degree = buffers.map(|(name, buffer)| {
        let degrees = [10, 14, 20, 30, 45].into_iter();
        let overflow = degrees.filter(|degree| degree * 10 * 2 >= buffer * 3);
        let points =
            overflow.filter_map(|d| Some((f64::from(d), point("fat-tree 6", d, buffer, 0.1)?)));
        (name, points.collect())
    });
    let by_background = shapes.map(|name| {
        let loads = [0.0, 0.1, 0.2, 0.3, 0.4].into_iter();
        let points = loads.filter_map(|load| Some((load, point(name, 20, 50, load)?)));
        (name, points.collect())
    });
    vec![
        Panel {
            name: "buffer",
            title: "20 answers of 20 kB, background of 10 %",
            x: "buffer of a port, packets",
            log: true,
            curves: by_buffer.into(),
        },
        Panel {
            name: "degree",
            title: "Fat-tree of 54 hosts, answers of 20 kB, background of 10 %",
            x: "answers to a query",
            log: true,
            curves: by_degree.into(),
        },
        Panel {
            name: "background",
            title: "20 answers of 20 kB, buffers of 50 packets",
            x: "background, of the busiest links",
            log: false,
            curves: by_background.into(),
        },
    ]
}

/// The points of the phase diagram, by name.
pub fn sliced() -> Vec<(String, Point)> {
    let mut named: Vec<(String, Point)> = Vec::new();
    for point in panels()
        .iter()
        .flat_map(|panel| &panel.curves)
        .flat_map(|(_, points)| points)
    {
        if !named.iter().any(|(_, known)| *known == point.1) {
            named.push((format!("slice-{:02}", named.len()), point.1));
        }
    }
    named
}

/// The held-out points, by name.
pub fn fresh(model: &Model) -> Vec<(String, Point)> {
    let first = drawn(FRESH_SEED, POINTS, |_| true);
    let second = drawn(SECOND_FRESH_SEED, POINTS, |p| model.predict(p) >= USABLE);
    let named = |set, points: Vec<Point>| {
        let points = points.into_iter().enumerate();
        points.map(move |(number, point)| (format!("{set}-{number:02}"), point))
    };
    named(FRESH, first)
        .chain(named(SECOND_FRESH, second))
        .collect()
}

/// Reads what was measured.
///
/// # Errors
/// The file is there and is not what this program writes.
pub fn found() -> Result<Measurements, Box<dyn Error>> {
    let Ok(text) = std::fs::read_to_string(experiment::folder().join("break.jsonl")) else {
        return Ok(Measurements::new());
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
pub fn measured(found: &Measurements, set: &str) -> Vec<(String, Point, Option<f64>)> {
    let all = found.iter().filter(|(name, _)| name.starts_with(set));
    all.filter_map(|(name, json)| {
        Some((name.clone(), Point::from_json(json)?, json["load"].as_f64()))
    })
    .collect()
}

/// The model, from all points but the fresh ones and the slices of the phase diagram.
pub fn fitted(found: &Measurements) -> Model {
    let points = FITTED.iter().flat_map(|set| measured(found, set));
    let broke = points.filter_map(|(_, point, load)| Some((point, load?)));
    Model::fit(&broke.collect::<Vec<_>>())
}
