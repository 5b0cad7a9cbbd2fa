// SPDX-License-Identifier: Apache-2.0
//! Queries, and how many of their flows are still to finish.

use super::settings::Query;
use crate::results::QueryRecord;
use slowpath_switch::Time;
use std::collections::BTreeMap;

/// All queries by number.
#[derive(Default)]
pub(super) struct Queries {
    records: BTreeMap<u64, QueryRecord>,
    /// Flows that have not finished, of queries that have not.
    unfinished: BTreeMap<u64, u32>,
}

impl Queries {
    /// A flow of the query begins.
    pub fn begin(&mut self, query: Query) {
        let flows = query.flows.max(1);
        self.unfinished.entry(query.id).or_insert(flows);
        self.records.entry(query.id).or_insert(QueryRecord {
            id: query.id,
            start: query.asked,
            finish: None,
            flows,
        });
    }

    /// A flow of the query has finished; with the last one the query has.
    pub fn finish(&mut self, query: Query, now: Time) {
        let Some(left) = self.unfinished.get_mut(&query.id) else {
            return;
        };
        *left -= 1;
        if *left == 0 {
            self.unfinished.remove(&query.id);
            if let Some(record) = self.records.get_mut(&query.id) {
                record.finish = Some(now);
            }
        }
    }

    /// In the order of their numbers.
    pub fn into_records(self) -> Vec<QueryRecord> {
        self.records.into_values().collect()
    }
}
