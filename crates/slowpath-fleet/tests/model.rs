// SPDX-License-Identifier: Apache-2.0
//! Agents and a server that lose answers, start anew, come back from copies, send twice and out of
//! order: the rows taken are the rows of the agents, each once.

mod agents;

use agents::{Random, Segment, numbers};
use proptest::prelude::*;
use slowpath_fleet::{Decision, Judgement, Offsets, Position};
use slowpath_ship::batch::{Batch, Items};
use std::collections::{BTreeSet, HashMap};

/// What the server keeps: what it took, in order.
#[derive(Clone, Default)]
struct Server {
    offsets: Offsets,
    taken: Vec<(String, u64, Items, Position)>,
}

enum Answer {
    Flushed(Position),
    GoTo(Position),
    Conflict,
    Refused,
}

impl Server {
    fn receive(&mut self, batch: &Batch) -> Answer {
        match self.offsets.judge("host", batch) {
            Judgement::Decided(known, decision) => match decision {
                Decision::Take {
                    items, from, then, ..
                } => {
                    let id = &batch.header.segment;
                    self.offsets.take("host", id, then);
                    self.taken.push((id.clone(), from, items, then));
                    Answer::Flushed(then)
                }
                Decision::Known => Answer::Flushed(known),
                Decision::Behind => Answer::GoTo(known),
                Decision::OtherBytes => Answer::Conflict,
            },
            Judgement::Clone | Judgement::TooManySegments => Answer::Refused,
        }
    }

    /// Offsets follow from what was taken.
    fn restart(&mut self) {
        self.offsets = Offsets::default();
        for (id, _, _, then) in &self.taken {
            self.offsets.take("host", id, *then);
        }
    }

    fn rows(&self) -> Vec<u64> {
        let rows = self.taken.iter();
        rows.flat_map(|(_, offset, items, _)| numbers(items, *offset))
            .collect()
    }
}

#[derive(Clone)]
struct Agent {
    run: u128,
    segments: Vec<Segment>,
    acknowledged: HashMap<String, u64>,
    conflicts: BTreeSet<String>,
}

struct World {
    random: Random,
    server: Server,
    agent: Agent,
    copies: (Server, Agent),
    under_way: Vec<Batch>,
    next_row: u64,
    next_segment: u64,
    next_run: u128,
}

impl World {
    fn new(seed: u64) -> Self {
        let agent = Agent {
            run: 1,
            segments: vec![Segment::new("b-0")],
            acknowledged: HashMap::new(),
            conflicts: BTreeSet::new(),
        };
        World {
            random: Random(seed),
            server: Server::default(),
            copies: (Server::default(), agent.clone()),
            agent,
            under_way: Vec::new(),
            next_row: 0,
            next_segment: 1,
            next_run: 2,
        }
    }

    fn log(&mut self) {
        let segment = self.agent.segments.last_mut().expect("one is live");
        for _ in 0..1 + self.random.below(4) {
            if self.random.below(10) == 0 {
                segment.push_gap(1 + self.random.below(1_000));
            } else {
                segment.push_numbered(self.next_row, agents::MIDNIGHT);
                self.next_row += 1;
            }
        }
        if self.random.below(4) == 0 {
            segment.ended = true;
            let id = format!("b-{}", self.next_segment);
            self.next_segment += 1;
            self.agent.segments.push(Segment::new(&id));
        }
    }

    /// A batch as the agent would send it, or once more from some earlier place.
    fn draw_batch(&mut self) -> Option<Batch> {
        let which = self.random.below(self.agent.segments.len() as u64) as usize;
        let segment = &self.agent.segments[which];
        if self.agent.conflicts.contains(&segment.id) {
            return None;
        }
        let boundaries: Vec<u64> = segment.boundaries().iter().map(|(at, _)| *at).collect();
        let acknowledged = self.agent.acknowledged.get(&segment.id);
        let acknowledged = acknowledged.copied().unwrap_or(0);
        let at = boundaries.iter().position(|at| *at == acknowledged)?;
        let from = match self.random.below(3) {
            0 => self.random.below(at as u64 + 1) as usize,
            _ => at,
        };
        let to = from + self.random.below((boundaries.len() - from) as u64) as usize;
        Some(segment.batch(self.agent.run, boundaries[from], boundaries[to]))
    }

    fn deliver(&mut self, batch: &Batch, answered: bool) {
        let answer = self.server.receive(batch);
        if !answered {
            return;
        }
        let id = batch.header.segment.clone();
        match answer {
            Answer::Flushed(position) | Answer::GoTo(position) => {
                let segment = self.agent.segments.iter().find(|s| s.id == id);
                let mut boundaries = segment.map(Segment::boundaries).unwrap_or_default();
                boundaries.retain(|(at, crc)| *at == position.offset && *crc == position.crc);
                match boundaries.is_empty() {
                    true => drop(self.agent.conflicts.insert(id)),
                    false => drop(self.agent.acknowledged.insert(id, position.offset)),
                }
            }
            Answer::Conflict => drop(self.agent.conflicts.insert(id)),
            Answer::Refused => {}
        }
    }

    fn step(&mut self) {
        match self.random.below(16) {
            0..=4 => self.log(),
            5..=9 => {
                let Some(batch) = self.draw_batch() else {
                    return;
                };
                match self.random.below(6) {
                    0 => self.under_way.push(batch),
                    1 => self.deliver(&batch, false),
                    2 => {
                        self.deliver(&batch, true);
                        self.under_way.push(batch);
                    }
                    _ => self.deliver(&batch, true),
                }
            }
            10 if !self.under_way.is_empty() => {
                let which = self.random.below(self.under_way.len() as u64) as usize;
                let batch = self.under_way.swap_remove(which);
                let answered = self.random.below(2) == 0;
                self.deliver(&batch, answered);
            }
            11 => {
                self.agent.run = self.next_run;
                self.next_run += 1;
                self.agent.segments.last_mut().expect("one is live").ended = true;
                let id = format!("b-{}", self.next_segment);
                self.next_segment += 1;
                self.agent.segments.push(Segment::new(&id));
                // Acknowledgements are not flushed.
                self.agent.acknowledged = self.copies.1.acknowledged.clone();
            }
            12 => self.server.restart(),
            13 => self.copies = (self.server.clone(), self.agent.clone()),
            14 if self.random.below(4) == 0 => {
                self.server = self.copies.0.clone();
                self.server.restart();
            }
            15 if self.random.below(4) == 0 => {
                // The agent's machine comes back from a copy and logs other rows under old ids.
                self.agent = self.copies.1.clone();
                self.agent.run = self.next_run;
                self.next_run += 1;
            }
            _ => {}
        }
    }

    /// All is sent; after an answer that names another place, from there.
    fn send_all(&mut self) {
        self.agent.run = self.next_run;
        for segment in self.agent.segments.clone() {
            let mut from = 0;
            for _ in 0..3 {
                let boundaries = segment.boundaries();
                if !boundaries.iter().any(|(at, _)| *at == from) {
                    self.agent.conflicts.insert(segment.id.clone());
                    break;
                }
                match self.server.receive(&segment.rest(self.agent.run, from)) {
                    Answer::Flushed(position) if position.offset == segment.items.covered() => {
                        break;
                    }
                    Answer::Flushed(position) | Answer::GoTo(position) => from = position.offset,
                    Answer::Conflict => {
                        self.agent.conflicts.insert(segment.id.clone());
                        break;
                    }
                    Answer::Refused => panic!("the only agent is refused"),
                }
            }
        }
    }
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(300))]

    #[test]
    fn rows_taken_are_the_rows_of_the_agents_each_once(seed in any::<u64>(), steps in 1usize..150) {
        let mut world = World::new(seed);
        for _ in 0..steps {
            world.step();
        }
        let rows = world.server.rows();
        let distinct: BTreeSet<u64> = rows.iter().copied().collect();
        prop_assert_eq!(rows.len(), distinct.len(), "a row was taken twice");
        world.under_way.clear();
        world.send_all();
        let rows = world.server.rows();
        let distinct: BTreeSet<u64> = rows.iter().copied().collect();
        prop_assert_eq!(rows.len(), distinct.len(), "a row was taken twice");
        for segment in &world.agent.segments {
            if world.agent.conflicts.contains(&segment.id) {
                continue;
            }
            for row in numbers(&segment.items, 0) {
                prop_assert!(distinct.contains(&row), "row {} of {} is missing", row, segment.id);
            }
        }
    }
}

#[test]
fn other_bytes_at_a_known_place_are_refused() {
    let mut first = Segment::new("b-0");
    first.push_numbered(1, agents::MIDNIGHT);
    let mut other = first.clone();
    first.push_numbered(2, agents::MIDNIGHT);
    other.push_numbered(3, agents::MIDNIGHT);
    let mut server = Server::default();
    assert!(matches!(
        server.receive(&first.rest(1, 0)),
        Answer::Flushed(_)
    ));
    // As long, and longer.
    assert!(matches!(
        server.receive(&other.rest(1, 0)),
        Answer::Conflict
    ));
    other.push_numbered(4, agents::MIDNIGHT);
    assert!(matches!(
        server.receive(&other.rest(1, 0)),
        Answer::Conflict
    ));
    let end = first.items.covered();
    assert!(matches!(
        server.receive(&other.rest(1, end)),
        Answer::Conflict
    ));
    assert_eq!(server.rows(), [1, 2]);
}
