// SPDX-License-Identifier: Apache-2.0
//! Ways to alter a connection's recording.

use slowpath_recording::{Connection, Decision, Handler, Outcome, Run, Settings, Timer, alter};
use std::collections::BTreeMap;

/// Numbers that only look random (Knuth, MMIX).
pub struct Random(pub u64);

impl Random {
    pub fn below(&mut self, end: usize) -> usize {
        self.0 = self
            .0
            .wrapping_mul(6_364_136_223_846_793_005)
            .wrapping_add(1_442_695_040_888_963_407);
        (self.0 >> 33) as usize % end
    }
}

/// What was altered, and where.
#[derive(Clone, Debug)]
pub struct Kind {
    what: String,
    /// The handler, or the setting.
    of: String,
    #[allow(dead_code, reason = "printed")]
    place: String,
}

impl Kind {
    pub fn name(&self) -> String {
        format!("{}: {}", self.of, self.what)
    }
}

/// The word that the recording's dump has for it.
fn name(handler: &Handler) -> String {
    let text = format!("{handler:?}");
    let end = text.find(|letter: char| !letter.is_alphanumeric());
    let word = text[..end.unwrap_or(text.len())].to_lowercase();
    match handler {
        Handler::Timer { timer, .. } => format!("{word} {timer:?}").to_lowercase(),
        _ => word,
    }
}

type Alterations = Vec<(Kind, Connection)>;

/// A run of a handler that is not the most frequent one, half of the time.
fn choose(runs: &[Run], random: &mut Random) -> usize {
    let place = random.below(runs.len());
    if random.below(2) == 0 {
        return place;
    }
    let kind = random.below(13);
    let wanted = |run: &Run| std::mem::discriminant(&run.handler);
    let mut kinds: Vec<_> = Vec::new();
    for run in runs {
        if !kinds.contains(&wanted(run)) {
            kinds.push(wanted(run));
        }
    }
    let kind = kinds[kind % kinds.len()];
    let mut places = (0..runs.len()).filter(|place| wanted(&runs[*place]) == kind);
    let count = places.clone().count();
    places.nth(random.below(count)).unwrap_or(place)
}

/// Some alterations of the connection.
pub fn some(whole: &Connection, random: &mut Random) -> Alterations {
    let mut found = Vec::new();
    let side = random.below(2);
    if !whole.ends[side].runs.is_empty() {
        events(whole, side, random, &mut found);
        tails(whole, side, random, &mut found);
    }
    if random.below(4) == 0 {
        settings(whole, side, random, &mut found);
    }
    found.extend(wild(whole, random));
    found
}

/// What an attacker may write: numbers at the ends of what they can be.
pub fn wild(whole: &Connection, random: &mut Random) -> Option<(Kind, Connection)> {
    let mut other = whole.clone();
    let mut what = Vec::new();
    for _ in 0..=random.below(3) {
        let side = random.below(2);
        let runs = &mut other.ends[side].runs;
        let place = random.below(runs.len().max(1));
        let run = runs.get_mut(place)?;
        match random.below(8) {
            0 => run.at.0 = [0, 1, u64::MAX, 1 << 63, u64::MAX / 1000][random.below(5)],
            1 => run.jiffies = [0, u32::MAX, 1 << 31][random.below(3)],
            2 => {
                let decision = Decision::ALL[random.below(Decision::ALL.len())];
                let (first, second) = (large(random), large(random));
                run.outcomes
                    .extend(Outcome::from_numbers(decision, first, second));
            }
            _ => run.handler = handler(random),
        }
        what.push(format!(
            "end {side} run {place}: {:?}",
            other.ends[side].runs[place]
        ));
    }
    if random.below(4) == 0 {
        let side = random.below(2);
        let names: Vec<String> = other.settings.socket[side].keys().cloned().collect();
        let sysctls: Vec<String> = other.settings.sysctls[side].keys().cloned().collect();
        let value = large(random).to_string();
        for end in 0..2 {
            if let Some(name) = names.get(random.below(names.len().max(1)) * side) {
                other.settings.socket[end].insert(name.clone(), value.clone());
            }
            if let Some(name) = sysctls.get(place_of(&sysctls, &value)) {
                other.settings.sysctls[end].insert(name.clone(), value.clone());
            }
        }
        what.push(format!("{:?}", other.settings));
    }
    let kind = Kind {
        what: "wild numbers".to_owned(),
        of: "several".to_owned(),
        place: what.join("; "),
    };
    Some((kind, other))
}

fn place_of(names: &[String], value: &str) -> usize {
    value.len() % names.len().max(1)
}

fn large(random: &mut Random) -> u32 {
    [
        0,
        1,
        2,
        1000,
        65_535,
        1 << 16,
        1 << 20,
        1 << 24,
        1 << 30,
        i32::MAX as u32,
        1 << 31,
        u32::MAX,
    ][random.below(12)]
}

fn handler(random: &mut Random) -> Handler {
    match random.below(11) {
        0 => Handler::Begin { fresh: true },
        1 => Handler::Send {
            bytes: large(random),
            flags: large(random),
            result: large(random) as i32,
        },
        2 => Handler::Receive {
            bytes: large(random),
            flags: large(random),
            result: large(random) as i32,
        },
        3 => Handler::Resume,
        4 => Handler::Shutdown {
            how: random.below(4) as u8,
        },
        5 => Handler::Close,
        6 => Handler::Option {
            level: large(random) as u16,
            name: random.below(80) as u16,
            value: i64::from(large(random)) << random.below(32),
        },
        7 => Handler::Packet {
            number: large(random),
            marked: random.below(2) == 0,
            backlog: random.below(2) == 0,
            merged: large(random) as u16,
            truesize: large(random),
        },
        8 => Handler::Release {
            flags: large(random),
        },
        9 => Handler::Timer {
            timer: Timer::ALL[random.below(6)],
            deferred: random.below(2) == 0,
        },
        _ => [Handler::Connect, Handler::Accept, Handler::SmallQueue][random.below(3)].clone(),
    }
}

fn events(whole: &Connection, side: usize, random: &mut Random, found: &mut Alterations) {
    let runs = &whole.ends[side].runs;
    let place = choose(runs, random);
    let run = &runs[place];
    let mut put = |what: &str, instead_of: usize, by: &[Run]| {
        let mut other = whole.clone();
        let range = place..place + instead_of;
        other.ends[side].runs.splice(range, by.iter().cloned());
        let kind = Kind {
            what: what.to_owned(),
            of: name(&run.handler),
            place: format!(
                "end {side} run {place} of {}: {run:?} became {by:?}",
                runs.len()
            ),
        };
        found.push((kind, other));
    };
    put("deleted", 1, &[]);
    put("twice", 1, &[run.clone(), run.clone()]);
    if let Some(next) = runs.get(place + 1).filter(|next| *next != run) {
        let same = next.handler == run.handler;
        let what = if same {
            "exchanged with an equal next one"
        } else {
            "exchanged with the next"
        };
        put(what, 2, &[next.clone(), run.clone()]);
        // As before, but only what happened, at the moments that there were.
        let mut two = [next.clone(), run.clone()];
        let [first, second] = &mut two;
        std::mem::swap(&mut first.at, &mut second.at);
        std::mem::swap(&mut first.jiffies, &mut second.jiffies);
        std::mem::swap(&mut first.check, &mut second.check);
        put("exchanged, times kept", 2, &two);
    }
    for (what, other) in alter::runs(run) {
        let what = match what {
            "a decision less" | "a decision's value" | "a decision's place" => {
                let gone = run
                    .outcomes
                    .iter()
                    .zip(&other.outcomes)
                    .find(|(a, b)| a != b);
                let which = gone
                    .map(|(a, _)| a.decision())
                    .or(run.outcomes.last().map(|it| it.decision()));
                format!("{what} ({which:?})")
            }
            _ => what.to_owned(),
        };
        put(&what, 1, &[other]);
    }
    let mut later = run.clone();
    later.at.0 += 1_000_000;
    put("a millisecond later", 1, &[later]);
    if place > 0 {
        let between = runs[place - 1].at.0.midpoint(run.at.0);
        let mut earlier = run.clone();
        earlier.at.0 = between;
        if between != run.at.0 {
            put("half the gap earlier", 1, &[earlier]);
        }
    }
}

fn tails(whole: &Connection, side: usize, random: &mut Random, found: &mut Alterations) {
    let runs = whole.ends[side].runs.len();
    let mut put = |what: &str, keep: [usize; 2]| {
        let mut other = whole.clone();
        for (end, keep) in other.ends.iter_mut().zip(keep) {
            end.runs.truncate(keep);
        }
        let last = name(&whole.ends[side].runs[runs - 1].handler);
        let kind = Kind {
            what: what.to_owned(),
            of: "an end".to_owned(),
            place: format!(
                "end {side}, kept {keep:?} of {} and {}, last {last}",
                whole.ends[0].runs.len(),
                whole.ends[1].runs.len()
            ),
        };
        found.push((kind, other));
    };
    let all = [whole.ends[0].runs.len(), whole.ends[1].runs.len()];
    let one = |keep: usize| {
        let mut kept = all;
        kept[side] = keep;
        kept
    };
    put("last event deleted", one(runs - 1));
    put("tail deleted", one(random.below(runs)));
    put("everything deleted", one(0));
    put(
        "both tails deleted",
        [random.below(all[0]), random.below(all[1].max(1))],
    );
    put(
        "both last events deleted",
        all.map(|runs| runs.saturating_sub(1)),
    );
    put("both empty", [0, 0]);
    let mut other = whole.clone();
    other.ends.swap(0, 1);
    let kind = Kind {
        what: "exchanged with the other".into(),
        of: "an end".into(),
        place: String::new(),
    };
    found.push((kind, other));
    for by in [1_u32, 1 << 31] {
        let mut other = whole.clone();
        other.ends[side].digest ^= by;
        let kind = Kind {
            what: "digest".into(),
            of: "an end".into(),
            place: format!("end {side}"),
        };
        found.push((kind, other));
    }
}

/// Another value of a setting: of several the last one is another.
fn another(name: &str, value: &str) -> String {
    let (before, last) = value.rsplit_once(' ').unwrap_or(("", value));
    let next = match last.parse::<u64>() {
        Ok(0) => "1".to_owned(),
        Ok(1) => "0".to_owned(),
        Ok(number) => (number / 2).to_string(),
        Err(_) if name == "congestion" => {
            if value == "cubic" { "reno" } else { "cubic" }.to_owned()
        }
        Err(_) => format!("{value}x"),
    };
    format!("{before} {next}").trim().to_owned()
}

/// The settings of one kind of an end: the socket's, or sysctls.
fn settings_of(settings: &mut Settings, socket: bool, end: usize) -> &mut BTreeMap<String, String> {
    match socket {
        false => &mut settings.sysctls[end],
        true => &mut settings.socket[end],
    }
}

fn settings(whole: &Connection, side: usize, random: &mut Random, found: &mut Alterations) {
    let mut put = |what: &str, of: &str, change: &dyn Fn(&mut Connection)| {
        let mut other = whole.clone();
        change(&mut other);
        let kind = Kind {
            what: what.into(),
            of: of.to_owned(),
            place: format!("end {side}"),
        };
        if other != *whole {
            found.push((kind, other));
        }
    };
    let settings = &whole.settings;
    for (socket, map) in [
        (false, &settings.sysctls[side]),
        (true, &settings.socket[side]),
    ] {
        for (name, value) in map {
            let title = format!("setting {name}");
            let with = |value: Option<String>| {
                move |other: &mut Connection| {
                    for end in 0..2 {
                        let map = settings_of(&mut other.settings, socket, end);
                        if !map.contains_key(name) {
                            continue;
                        }
                        match &value {
                            Some(value) => map.insert(name.clone(), value.clone()),
                            None => map.remove(name),
                        };
                    }
                }
            };
            let next = another(name, value);
            put("other at both ends", &title, &with(Some(next.clone())));
            put("gone at both ends", &title, &with(None));
            put("other at one end", &title, &|it| {
                settings_of(&mut it.settings, socket, side).insert(name.clone(), next.clone());
            });
            put("gone at one end", &title, &|it| {
                settings_of(&mut it.settings, socket, side).remove(name);
            });
        }
    }
    put("one more", "setting", &|it| {
        it.settings.sysctls[side].insert("tcp_other".into(), "1".into());
    });
    let less = 1 + random.below(50) as u32;
    put("smaller at both ends", "mtu", &|it| {
        it.settings.mtu.iter_mut().for_each(|mtu| *mtu -= less)
    });
    put("smaller at one end", "mtu", &|it| {
        it.settings.mtu[side] -= less
    });
    put("other port", "address", &|it| {
        let port = it.addresses[side].port();
        it.addresses[side].set_port(port ^ 1);
    });
    put("times' bound", "an end", &|it| it.ends[side].within += 1);
}
