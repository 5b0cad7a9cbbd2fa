// SPDX-License-Identifier: Apache-2.0
//! A recorded connection replayed with something changed: a setting of its kernels or sockets, or how an end acts from one of its runs on.
//!
//! Timers that the laboratory's recording does not have fire here when they are due (retransmissions, probes, delayed acknowledgments; not those of pacing
//! and of held acknowledgments); those of an application's connection expire as recorded. Up to the first packet that is not as it was, everything that happened to packets is known. There the answer ends:
//! what the network would have done with another packet was not recorded.

use super::continuation::{Continuation, NotContinued, continued};
use super::explained::{ExplainError, headers_of};
use super::replay::{ReplayError, ReplayOptions, follows, replay};
use super::script::CHANGE;
use slowpath_explain::message_state;
use slowpath_explain::{Change, Departure, Facts, State, Trial};
use slowpath_lab::virtual_time::Kernel;
use slowpath_recording::headers::Header;
use slowpath_recording::{Connection, Handler, Moment, RecorderKind, Recording, Run};
use std::collections::BTreeSet;
use std::path::Path;

/// The setting of a socket that any replay can change.
const CONGESTION: &str = "congestion";

/// What is changed.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Altered {
    /// A setting of both ends, from the beginning on, by the name that the recording has for it: `tcp_recovery`, `congestion`, ...
    Setting {
        /// The name.
        name: String,
        /// The value.
        value: String,
    },
    /// How an end acts.
    Act(Change),
}

/// A setting that a recording does not have, or that its replay cannot change.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum NoSetting {
    /// No end has it.
    #[error("'{name}' is none of the recording's settings: {}", known.join(", "))]
    Unknown {
        /// What was asked for.
        name: String,
        /// Those that can be changed.
        known: Vec<String>,
    },
    /// Sockets of such a replay are set up by the recorded calls only.
    #[error(
        "'{name}' cannot be changed in this recording, whose sockets an application set up; these can: {}",
        known.join(", ")
    )]
    OfApplication {
        /// What was asked for.
        name: String,
        /// Those that can be changed.
        known: Vec<String>,
    },
}

/// Why there is no answer.
#[derive(Debug, thiserror::Error)]
pub enum WhatIfError {
    /// There is no replay.
    #[error(transparent)]
    Explain(#[from] ExplainError),
    /// There is no such setting.
    #[error(transparent)]
    Setting(#[from] NoSetting),
    /// Nothing is simulated.
    #[error(transparent)]
    Continuation(#[from] NotContinued),
    /// A file could not be made.
    #[error("a folder for the replay cannot be made: {0}")]
    Folder(std::io::Error),
}

impl From<ReplayError> for WhatIfError {
    fn from(error: ReplayError) -> Self {
        WhatIfError::Explain(error.into())
    }
}

/// What came of it.
#[derive(Clone, Debug, Default)]
pub struct Answer {
    /// The first packet that differs.
    pub departure: Option<Departure>,
    /// That packet as it was recorded; `None`: there was none.
    pub was: Option<Header>,
    /// That packet with the change; `None`: it is not sent, or not then.
    pub is: Option<Header>,
    /// Packets that each end sends as it did.
    pub same: [usize; 2],
}

/// What a replay shows of both ends.
#[derive(Default)]
struct EndsOfReplay {
    headers: [Vec<Header>; 2],
    /// The states after its runs, and when those were; empty unless they were asked for.
    states: [Vec<State>; 2],
    moments: [Vec<Moment>; 2],
}

impl EndsOfReplay {
    /// The state of an end at a moment.
    fn state(&self, end: usize, at: Moment) -> Option<&State> {
        let runs = self.moments[end].partition_point(|moment| *moment <= at);
        let state = self.states[end].get(runs.checked_sub(1)?)?;
        state.is_there().then_some(state)
    }
}

/// One connection, its exact replay at hand.
pub struct WhatIf<'a> {
    kernel: &'a Kernel,
    recording: &'a Recording,
    number: usize,
    folder: &'a Path,
    exact: [Vec<Header>; 2],
    asked: usize,
}

impl<'a> WhatIf<'a> {
    /// Replays the connection as it was, in a folder that is there and empty.
    ///
    /// # Errors
    /// It cannot be replayed, or not exactly.
    pub fn new(
        kernel: &'a Kernel,
        recording: &'a Recording,
        number: usize,
        folder: &'a Path,
    ) -> Result<Self, WhatIfError> {
        let count = recording.connections.len();
        if number >= count {
            return Err(ExplainError::Missing { number, count }.into());
        }
        let mut it = WhatIf {
            kernel,
            recording,
            number,
            folder,
            exact: Default::default(),
            asked: 0,
        };
        let connection = recording.connections[number].clone();
        it.exact = it.replay(connection, false, false)?.headers;
        Ok(it)
    }

    fn replay(
        &mut self,
        connection: Connection,
        what_if: bool,
        probe: bool,
    ) -> Result<EndsOfReplay, WhatIfError> {
        let own = self.folder.join(format!("replay-{}", self.asked));
        self.asked += 1;
        std::fs::create_dir(&own).map_err(WhatIfError::Folder)?;
        let recording = Recording {
            origin: self.recording.origin.clone(),
            connections: vec![connection],
            one_sided: Vec::new(),
        };
        let options = ReplayOptions {
            what_if,
            probe,
            ..ReplayOptions::default()
        };
        let replayed = replay(self.kernel, &recording, &[0], &options, &own, &mut |_| {})?;
        let headers = headers_of(&replayed)?.pop().unwrap_or_default();
        let _ = std::fs::remove_dir_all(&own);
        if !what_if && let Some(difference) = replayed.results[0].difference.clone() {
            let number = self.number;
            return Err(ExplainError::Differs { number, difference }.into());
        }
        let mut ends = EndsOfReplay {
            headers,
            ..EndsOfReplay::default()
        };
        for probe in &replayed.probes {
            let end = usize::from(probe.end.min(1));
            ends.states[end].push(State::new(*probe.fields));
            ends.moments[end].push(probe.at);
        }
        Ok(ends)
    }

    /// How the message that was under way at an answer's departure might have gone on, with these settings and without. Both are simulated: with
    /// them from the departure on and the windows that the sender has by the changed replay, without them from when the packet was sent
    /// that is not there any more, which may be later, and the windows that it had then.
    ///
    /// # Errors
    /// There is nothing to be simulated, or the simulator cannot.
    pub fn go_on(
        &mut self,
        altered: &[Altered],
        answer: &Answer,
    ) -> Result<Option<Continuation>, WhatIfError> {
        let Some(departure) = answer.departure else {
            return Ok(None);
        };
        let connection = self.recording.connections[self.number].clone();
        let mut changed = connection.clone();
        for one in altered {
            if let Altered::Setting { name, value } = one {
                set(&mut changed, follows(self.recording), name, value)?;
            }
        }
        let was = self.replay(connection.clone(), false, true)?;
        let facts = Facts {
            connection: &connection,
            headers: [&was.headers[0], &was.headers[1]],
            states: [&was.states[0], &was.states[1]],
            one_clock: self.recording.origin.recorder == RecorderKind::Laboratory,
        };
        let stood = |at: Moment| message_state(&facts, at).map_err(NotContinued::from);
        let mut with = stood(departure.at)?;
        let next = answer.was.as_ref().map_or(departure.at, |was| was.at);
        let without = stood(next.max(departure.at))?;
        let now = self.replay(changed.clone(), true, true)?;
        if let Some(state) = now.state(usize::from(with.message.end), departure.at) {
            with.set_windows(state);
        }
        Ok(Some(Continuation {
            changed: continued(with, &changed.settings)?,
            control: continued(without, &connection.settings)?,
        }))
    }

    /// What if?
    ///
    /// # Errors
    /// There is no such setting, or the kernel cannot have that value.
    pub fn ask(&mut self, altered: &[Altered]) -> Result<Answer, WhatIfError> {
        let mut connection = self.recording.connections[self.number].clone();
        // From the last run on, so that places stay what they are.
        let mut acts = Vec::new();
        for one in altered {
            match one {
                Altered::Setting { name, value } => {
                    set(&mut connection, follows(self.recording), name, value)?;
                }
                Altered::Act(change) => acts.push(*change),
            }
        }
        acts.sort_by_key(|change| std::cmp::Reverse(place(change).1));
        for change in acts {
            act(&mut connection, change);
        }
        let changed = self.replay(connection, true, false)?;
        Ok(compare(&self.exact, &changed.headers))
    }
}

impl Trial for WhatIf<'_> {
    type Error = WhatIfError;

    fn replay(&mut self, change: Change) -> Result<Option<Departure>, WhatIfError> {
        Ok(self.ask(&[Altered::Act(change)])?.departure)
    }
}

/// Sets both ends' setting of that name. Sockets that an application set up (`follows`) are replayed by its calls: of their own
/// settings only the congestion control can be another.
fn set(
    connection: &mut Connection,
    follows: bool,
    name: &str,
    value: &str,
) -> Result<(), NoSetting> {
    let settings = &mut connection.settings;
    let can_change = |name: &str| !follows || name == CONGESTION;
    let mut found = false;
    for all in settings.sysctls.iter_mut().chain(&mut settings.socket) {
        if let Some(known) = all.get_mut(name) {
            value.clone_into(known);
            found = true;
        }
    }
    let of_sockets = settings.socket.iter().flat_map(|all| all.keys());
    let of_sockets: BTreeSet<&String> = of_sockets.collect();
    let refused = of_sockets.contains(&name.to_owned()) && !can_change(name);
    if found && !refused {
        return Ok(());
    }
    let of_hosts = settings.sysctls.iter().flat_map(|all| all.keys());
    let changed = of_sockets.into_iter().filter(|name| can_change(name));
    let known: BTreeSet<&String> = of_hosts.chain(changed).collect();
    let (name, known) = (name.to_owned(), known.into_iter().cloned().collect());
    Err(match refused {
        true => NoSetting::OfApplication { name, known },
        false => NoSetting::Unknown { name, known },
    })
}

fn place(change: &Change) -> (u8, usize) {
    match *change {
        Change::AckAtOnce { end, run } | Change::Threshold { end, run, .. } => (end, run),
    }
}

/// As an option that is set right before the run: `enum lab_change`.
fn act(connection: &mut Connection, change: Change) {
    let (end, run) = place(&change);
    let (name, value) = match change {
        Change::AckAtOnce { .. } => (1, 0),
        Change::Threshold { to, .. } => (2, i64::from(to)),
    };
    let runs = &mut connection.ends[usize::from(end)].runs;
    let Some(next) = runs.get(run) else {
        return;
    };
    let option = Run {
        at: next.at,
        jiffies: next.jiffies,
        handler: Handler::Option {
            level: CHANGE,
            name,
            value,
        },
        outcomes: Vec::new(),
        check: None,
    };
    runs.insert(run, option);
}

/// The first packet, by the recording's clocks, that an end does not send as it did. A replay ends soon after that: what is missing behind it
/// means nothing.
fn compare(exact: &[Vec<Header>; 2], changed: &[Vec<Header>; 2]) -> Answer {
    let mut answer = Answer::default();
    for end in 0..2 {
        let own = |all: &[Vec<Header>; 2]| -> Vec<Header> {
            let sent = all[end].iter().filter(|it| it.forward == (end == 0));
            sent.cloned().collect()
        };
        let (was, is) = (own(exact), own(changed));
        let same = was
            .iter()
            .zip(&is)
            .take_while(|(a, b)| a.is_like(b) && a.at == b.at)
            .count();
        answer.same[end] = same;
        let (was, is) = (was.get(same), is.get(same));
        let at = [was, is].into_iter().flatten().map(|it| it.at).min();
        let Some(at) = at else {
            continue;
        };
        if answer.departure.is_none_or(|first| at < first.at) {
            answer.departure = Some(Departure {
                end: end as u8,
                packet: same,
                at,
            });
            answer.was = was.cloned();
            answer.is = is.cloned();
        }
    }
    answer
}

#[cfg(test)]
mod tests {
    use super::*;
    use slowpath_recording::Settings;

    fn connection() -> Connection {
        let values = |names: &[&str]| {
            let one = names
                .iter()
                .map(|name| ((*name).to_owned(), "1".to_owned()));
            one.collect::<std::collections::BTreeMap<_, _>>()
        };
        let (hosts, sockets) = (values(&["tcp_sack"]), values(&["congestion", "rto_min_ns"]));
        Connection {
            addresses: ["10.0.0.1:1", "10.0.0.2:2"].map(|text| text.parse().expect("an address")),
            settings: Settings {
                sysctls: [hosts.clone(), hosts],
                socket: [sockets.clone(), sockets],
                ..Settings::default()
            },
            ends: Default::default(),
            joint: None,
        }
    }

    #[test]
    fn a_socket_of_an_application_keeps_what_its_calls_have_set() {
        let mut own = connection();
        assert_eq!(set(&mut own, false, "rto_min_ns", "7"), Ok(()));
        assert_eq!(own.settings.socket[1]["rto_min_ns"], "7");
        let mut recorded = connection();
        let known: Vec<String> = ["congestion", "tcp_sack"].map(str::to_owned).to_vec();
        let refused = NoSetting::OfApplication {
            name: "rto_min_ns".to_owned(),
            known: known.clone(),
        };
        assert_eq!(set(&mut recorded, true, "rto_min_ns", "7"), Err(refused));
        for name in ["congestion", "tcp_sack"] {
            assert_eq!(set(&mut recorded, true, name, "0"), Ok(()));
        }
        let unknown = NoSetting::Unknown {
            name: "tcp_sick".to_owned(),
            known,
        };
        assert_eq!(set(&mut recorded, true, "tcp_sick", "0"), Err(unknown));
    }
}
