// SPDX-License-Identifier: Apache-2.0
//! What the queue has: for a server that started anew, and for people.

use super::form::Form;
use super::{Class, Queue};
use crate::answers::{ClientSegment, MAX_SEGMENTS, SegmentsAnswer, SegmentsRequest};
use crate::batch::GapReason;
use std::collections::BTreeMap;
use std::io;

/// How a queue fares.
#[derive(Clone, Debug, Default, PartialEq, Eq, serde::Serialize, serde::Deserialize)]
pub struct QueueStatus {
    /// Bytes that the server has not flushed, gaps included.
    pub waiting_bytes: u64,
    /// Segments of which the server has not all.
    pub waiting_segments: u64,
    /// When the oldest of them began, microseconds since 1970 by this host's clock.
    pub oldest_us: Option<i64>,
    /// Bytes that `ship` takes.
    pub ship_bytes: u64,
    /// Segments of which some records gave way, or all.
    pub thinned: u64,
    /// Segments of which the server has other bytes, by id; the first few.
    pub conflicts: Vec<String>,
    /// Segments that the server is too old for.
    pub newer: u64,
    /// Bytes that the server will never get, by reason; since the agent joined.
    pub lost_bytes: BTreeMap<GapReason, u64>,
}

/// Conflicts that are named.
const NAMED: usize = 8;

impl Queue {
    /// How it fares, as of the last look at the folders.
    pub fn status(&self) -> QueueStatus {
        let mut status = QueueStatus {
            ship_bytes: self.ship_bytes,
            lost_bytes: self.lost_bytes.clone(),
            ..QueueStatus::default()
        };
        for (id, segment) in &self.segments {
            let bytes = segment.waiting_bytes();
            status.waiting_bytes += bytes;
            if bytes > 0 {
                status.waiting_segments += 1;
                let begun = segment.facts().map(|facts| facts.begun_us);
                status.oldest_us = match (status.oldest_us, begun) {
                    (Some(a), Some(b)) => Some(a.min(b)),
                    (a, b) => a.or(b),
                };
            }
            if let Some(Form::Thinned(..) | Form::Gone(_)) = segment.form {
                status.thinned += 1;
            }
            if segment.kept.conflict && status.conflicts.len() < NAMED {
                status.conflicts.push(id.clone());
            }
            status.newer += u64::from(segment.newer || segment.foreign);
        }
        status
    }

    /// What it has, for a server that started anew: the latest segments, as many as may be asked
    /// about at once.
    pub fn inventory(&self) -> SegmentsRequest {
        let ids = self.oldest_first();
        let latest = &ids[ids.len().saturating_sub(MAX_SEGMENTS)..];
        let segments = latest.iter().map(|id| {
            let segment = &self.segments[id];
            ClientSegment {
                id: id.clone(),
                length: segment.length,
                offset: segment.kept.acknowledged,
                crc: segment.kept.prefix,
            }
        });
        SegmentsRequest {
            segments: segments.collect(),
        }
    }

    /// Goes back to where the server stands in each segment that it has less of.
    ///
    /// # Errors
    /// A segment cannot be read, `ship/state` not be written.
    pub fn reconcile(
        &mut self,
        answer: &SegmentsAnswer,
        now: std::time::Duration,
    ) -> io::Result<()> {
        for server in &answer.segments {
            let Some(segment) = self.segments.get_mut(&server.id) else {
                continue;
            };
            if server.offset < segment.kept.acknowledged {
                if !segment.go_back(server.offset, server.crc)? {
                    segment.hold_in_conflict(now);
                }
            } else {
                // That it ended may be what the server lost: it is stated again.
                segment.kept.complete = false;
            }
        }
        self.server_start.clone_from(&answer.state.start);
        self.save()
    }

    /// Whether something waits that is not held back, of any class.
    pub fn has_waiting(&self, now: std::time::Duration) -> bool {
        self.segments
            .values()
            .any(|s| s.class() == Class::Waiting && s.is_due(now))
    }
}
