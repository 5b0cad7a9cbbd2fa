// SPDX-License-Identifier: Apache-2.0
//! A host in simulated time: connections of which some have a problem in a poll, and of which some
//! close while others open.

use super::workload::{Connection, Random};
use slowpath_model::WallMicros;
use slowpath_store::LogWriter;

const HOUR: i64 = 3_600_000_000;

/// What happens on a host.
pub(super) struct Rates {
    /// Connections at once.
    pub connections: u64,
    /// Polls of a connection that find a problem.
    pub problems: f64,
    /// Connections that close in an hour, and as many that open.
    pub turnover: f64,
}

/// A host.
pub(super) struct Host {
    pub random: Random,
    boot: u128,
    began: WallMicros,
    rates: Rates,
    /// The latest connection's.
    cookie: u64,
    connections: Vec<Connection>,
}

impl Host {
    /// A host whose connections all open when it begins.
    pub(super) fn new(random: Random, boot: u128, began: WallMicros, rates: Rates) -> Self {
        let mut host = Host {
            random,
            boot,
            began,
            cookie: 1_000,
            connections: Vec::new(),
            rates,
        };
        for _ in 0..host.rates.connections {
            let connection = host.open(began);
            host.connections.push(connection);
        }
        host
    }

    /// A connection that opens then.
    fn open(&mut self, now: WallMicros) -> Connection {
        self.cookie += 1 + self.random.exponential(3.0) as u64;
        let mono = (now.0 - self.began.0) as u64 + 86_400_000_000;
        Connection::new(&mut self.random, self.boot, self.cookie, now, mono)
    }

    /// A poll of so many microseconds: problems of some connections, after their summaries where
    /// `segment` has none yet, and some that close while others open. Returns how many records it logged.
    pub(super) fn poll(
        &mut self,
        log: &mut LogWriter,
        segment: u32,
        now: WallMicros,
        length: u64,
    ) -> u64 {
        let mut records = 0;
        let turnover = self.rates.turnover * length as f64 / HOUR as f64;
        for at in 0..self.connections.len() {
            if self.random.chance(self.rates.problems) {
                let connection = &mut self.connections[at];
                let interval = connection.trouble(&mut self.random, now, length);
                // As the agent does.
                if connection.logged_in == segment {
                    log.problem(&interval);
                } else {
                    connection.logged_in = segment;
                    let summary = connection.checkpoint(&mut self.random, now, false);
                    log.problem_of(summary, &interval);
                    records += 1;
                }
                records += 1;
            }
            if self.random.chance(turnover) {
                log.summary(self.connections[at].checkpoint(&mut self.random, now, true));
                self.connections[at] = self.open(now);
                log.summary(self.connections[at].checkpoint(&mut self.random, now, false));
                records += 2;
            }
        }
        records
    }
}
