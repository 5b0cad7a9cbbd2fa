// SPDX-License-Identifier: Apache-2.0
//! The recorder's thread: takes events, works on the ring, writes what is to be kept.

use super::folder::Folder;
use super::requests::KeepRequest;
use super::source::{EventSource, OpenRecorder};
use super::{KeptRecording, Laboratory, RecorderCommand, RecorderState, lock};
use crate::clock::thread_cpu;
use serde_json::json;
use slowpath_model::Micros;
use slowpath_observe::monotonic;
use slowpath_recorder::ring::{Options, Ring, Saved};
use slowpath_recording::{Moment, Origin, ReplayKind};
use std::collections::{HashMap, VecDeque};
use std::net::SocketAddr;
use std::sync::mpsc::{Receiver, RecvTimeoutError, SyncSender};
use std::sync::{Arc, Mutex};
use std::time::{Duration, SystemTime, UNIX_EPOCH};

/// How often events are taken out of the kernel's ring: full speed over loopback fills it in about a second.
const TAKING: Duration = Duration::from_millis(100);
/// How often what was taken is worked on.
const WORKING: u64 = 200_000_000;
/// What was kept and the agent has not asked about; further ones are not reported one by one.
pub(super) const MAX_REPORTED: usize = 1_024;
/// Connections of which the owner is known, until they are kept.
const MOST_OWNERS: usize = 4_096;
/// How long a connection that lives may take until the recorder knows it: the client's is polled from its SYN on, which may be sent again after 1, 2 and 4 s (RFC 6298,
/// section 2), and the recorder knows it once its handshake is complete.
const HANDSHAKE: u64 = 10_000_000_000;
/// Requests that wait for that; further ones are answered at once.
const MAX_WAITING: usize = 4_096;
/// Over that time the share of CPU is measured.
const MEASURED: u64 = 5_000_000_000;

/// Its state.
pub(super) struct Work {
    source: Box<dyn EventSource>,
    ring: Ring,
    origin: Origin,
    limit: u64,
    folder: Folder,
    /// The version of Linux that replays run on.
    replays_on: &'static str,
    /// The share of a core that may be used.
    cpu: Option<f64>,
    /// Moments with the CPU time until then.
    spent: VecDeque<(u64, Micros)>,
    reports: SyncSender<KeptRecording>,
    state: Arc<Mutex<RecorderState>>,
    /// By an end's address and its peer's.
    owners: HashMap<[SocketAddr; 2], String>,
    /// Requests for connections that live and that the ring does not know yet, with when that is final.
    waiting: VecDeque<(u64, KeepRequest)>,
    lost: u64,
    failed: u64,
    worked: u64,
    /// CPU time until it began.
    began: Micros,
}

impl Work {
    pub(super) fn new(
        opened: OpenRecorder,
        options: Options,
        folder: Folder,
        laboratory: Laboratory,
        reports: SyncSender<KeptRecording>,
        state: Arc<Mutex<RecorderState>>,
    ) -> Work {
        let ring = Ring::new(opened.joins, opened.origin.clone(), options);
        Work {
            source: opened.source,
            ring: ring.checking(laboratory.takes),
            origin: opened.origin,
            limit: options.bytes as u64,
            folder,
            replays_on: laboratory.version,
            cpu: None,
            spent: VecDeque::new(),
            reports,
            state,
            owners: HashMap::new(),
            waiting: VecDeque::new(),
            lost: 0,
            failed: 0,
            worked: 0,
            began: thread_cpu(),
        }
    }

    /// With that share of a core.
    pub(super) fn within(self, cpu: Option<f64>) -> Work {
        Work { cpu, ..self }
    }

    /// Until it is ordered to stop, or the source ends.
    pub(super) fn run(mut self, commands: &Receiver<RecorderCommand>) {
        let ended = loop {
            match commands.recv_timeout(TAKING) {
                Ok(RecorderCommand::Stop) | Err(RecvTimeoutError::Disconnected) => break None,
                Ok(wish) => {
                    // What it is about may be in what has not been taken.
                    if let Err(reason) = self.step(true) {
                        break Some(reason);
                    }
                    self.fulfil(wish);
                }
                Err(RecvTimeoutError::Timeout) => {}
            }
            if let Err(reason) = self.step(false) {
                break Some(reason);
            }
        };
        // What can be said still is.
        let _ = self.step(true);
        for (_, ask) in std::mem::take(&mut self.waiting) {
            self.keep(&ask);
        }
        for saved in self.ring.finish() {
            self.write(&saved);
        }
        self.report_unkept();
        self.publish(Some(ended.unwrap_or_else(|| "it was stopped".to_owned())));
    }

    fn step(&mut self, now: bool) -> Result<(), String> {
        let events = self.source.take()?;
        self.ring.take(&events).map_err(|error| error.to_string())?;
        let at = monotonic().0;
        if !now && at.saturating_sub(self.worked) < WORKING {
            return Ok(());
        }
        self.worked = at;
        let lost = self.source.lost();
        if lost != self.lost {
            self.lost = lost;
            for socket in self.ring.sockets() {
                self.ring.lost(socket, self.source.lost_of(socket));
            }
        }
        for saved in self.ring.work(Moment(at), lost) {
            self.write(&saved);
        }
        self.report_unkept();
        self.keep_waiting(at);
        for socket in self.ring.unwanted() {
            self.source.forget(socket);
        }
        self.mind_cpu(at);
        self.publish(None);
        Ok(())
    }

    /// New connections are refused while too much CPU is used.
    fn mind_cpu(&mut self, now: u64) {
        let cpu = thread_cpu();
        self.spent.push_back((now, cpu));
        while let Some((since, _)) = self.spent.get(1)
            && now.saturating_sub(*since) >= MEASURED
        {
            self.spent.pop_front();
        }
        if let (Some(share), Some((since, before))) = (self.cpu, self.spent.front()) {
            let used = cpu.saturating_sub(*before).0 as f64 * 1e3;
            // The first moments are measured as if they had taken a second.
            let time = now.saturating_sub(*since).max(1_000_000_000) as f64;
            self.ring.refuse(used > share * time);
        }
    }

    fn fulfil(&mut self, wish: RecorderCommand) {
        match wish {
            RecorderCommand::Keep(asks) => {
                let now = monotonic().0;
                for ask in asks {
                    let addresses = [ask.tuple.local, ask.tuple.remote];
                    let known = !ask.lives || self.ring.knows(addresses, Moment(now));
                    if known || self.waiting.len() >= MAX_WAITING {
                        self.keep(&ask);
                    } else {
                        self.waiting.push_back((now.saturating_add(HANDSHAKE), ask));
                    }
                }
            }
            RecorderCommand::KeepAll(reason) => {
                self.ring.keep_all(Moment(monotonic().0), &reason);
            }
            RecorderCommand::Stop => {}
        }
    }

    /// Keeps those that the ring knows by now; of those that have waited long enough it is reported that they are missing.
    fn keep_waiting(&mut self, now: u64) {
        for (until, ask) in std::mem::take(&mut self.waiting) {
            let addresses = [ask.tuple.local, ask.tuple.remote];
            if now >= until || self.ring.knows(addresses, Moment(now)) {
                self.keep(&ask);
            } else {
                self.waiting.push_back((until, ask));
            }
        }
    }

    fn keep(&mut self, ask: &KeepRequest) {
        let addresses = [ask.tuple.local, ask.tuple.remote];
        // One that lives may have opened after the poll that observed it had begun.
        let at = if ask.lives { monotonic().0 } else { ask.at.0 };
        let mut missing = None;
        for reason in &ask.reasons {
            // Once is enough to report that it is not there.
            missing = self.ring.keep(addresses, Moment(at), reason).err();
            if missing.is_some() {
                break;
            }
        }
        let owner = ask.owner.clone();
        if let Some(missing) = missing {
            self.report(KeptRecording {
                addresses,
                reasons: ask.reasons.iter().map(|it| (*it).to_owned()).collect(),
                owners: [owner, None],
                file: Err(missing.to_string()),
                replay: None,
                lives: false,
            });
        } else if let (Some(owner), true) = (owner, self.owners.len() < MOST_OWNERS) {
            self.owners.insert(addresses, owner);
        }
    }

    /// Reports what was asked for, and turned out not to be replayable.
    fn report_unkept(&mut self) {
        for it in self.ring.unkept() {
            let [client, server] = it.addresses;
            let ends = [[client, server], [server, client]];
            let owners = ends.map(|end| self.owners.remove(&end));
            self.report(KeptRecording {
                addresses: it.addresses,
                reasons: it.reasons,
                owners,
                file: Err(it.missing.to_string()),
                replay: None,
                lives: false,
            });
        }
    }

    fn write(&mut self, saved: &Saved) {
        let [client, server] = saved.addresses;
        let at = |moment: Moment| {
            let nanos = self.origin.epoch.saturating_add_unsigned(moment.0);
            UNIX_EPOCH + Duration::from_nanos(u64::try_from(nanos).unwrap_or(0))
        };
        let time = |moment| humantime::format_rfc3339_micros(at(moment)).to_string();
        let named = humantime::format_rfc3339_millis(at(saved.opened)).to_string();
        let named: String = named.chars().filter(|it| !"-:".contains(*it)).collect();
        let stem = format!(
            "{named}-{}.{}-{}.{}",
            client.ip(),
            client.port(),
            server.ip(),
            server.port()
        );
        // Those of IPv6 stand for other things where a file's name is given (scp, tar).
        let stem = stem.replace(':', "_");
        let over = saved.ended.is_some() || saved.cut_short;
        let owners = [[client, server], [server, client]].map(|end| match over {
            true => self.owners.remove(&end),
            false => self.owners.get(&end).cloned(),
        });
        let replay = ReplayKind::of(&self.origin, saved.one_sided, self.replays_on);
        let description = json!({
            "type": "kept-recording",
            "recording": format!("{stem}.rec"),
            "client": client,
            "server": server,
            "opened": time(saved.opened),
            "ended": saved.ended.map(time),
            "kept": humantime::format_rfc3339_micros(SystemTime::now()).to_string(),
            "reasons": saved.reasons,
            "owners": { "client": owners[0], "server": owners[1] },
            "runs": saved.runs,
            "bytes": saved.file.len(),
            // What lacks events is not kept.
            "gap": null,
            "replay": replay.name(),
            "cut_short": saved.cut_short,
            "kernel": self.origin.kernel,
            "recorder": self.origin.recorder.name(),
        });
        let file = self
            .folder
            .write(&stem, &saved.file, description.to_string().as_bytes());
        self.failed += u64::from(file.is_err());
        self.report(KeptRecording {
            addresses: saved.addresses,
            reasons: saved.reasons.clone(),
            owners,
            replay: file.is_ok().then_some(replay),
            file: file.map_err(|error| format!("writing {stem}.rec: {error}")),
            lives: !over,
        });
    }

    fn report(&self, kept: KeptRecording) {
        // Counted all the same, and its file is there.
        let _ = self.reports.try_send(kept);
    }

    pub(super) fn publish(&self, ended: Option<String>) {
        let state = RecorderState {
            recorder: self.origin.recorder.clone(),
            ring_bytes: self.ring.bytes() as u64,
            ring_limit: self.limit,
            ring_connections: self.ring.connections() as u64,
            counts: self.ring.counts(),
            lost_events: self.lost,
            excess_sockets: self.source.refused(),
            ipv6_sockets: self.source.ipv6(),
            // Without what opening it took, once.
            cpu: thread_cpu().saturating_sub(self.began),
            files: self.folder.count(),
            file_bytes: self.folder.bytes,
            files_deleted: self.folder.deleted,
            files_failed: self.failed,
            ended,
        };
        *lock(&self.state) = state;
    }
}
