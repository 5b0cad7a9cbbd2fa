// SPDX-License-Identifier: Apache-2.0
//! What came of a host in each minute: the rows of `hosts`.

use crate::frame::Taken;
use crate::hour::Hour;
use crate::sink::{Placed, Sink, signed};
use crate::tables::Table;
use slowpath_model::WallMicros;
use slowpath_ship::batch::{ClockOffset, SentClock};
use slowpath_table::Value;
use std::collections::BTreeMap;

const MINUTE: i64 = 60_000_000;

/// Minutes of one host, by their number since 1970.
#[derive(Debug, Default)]
pub(crate) struct Minutes(BTreeMap<i64, Minute>);

#[derive(Debug, Default)]
struct Minute {
    address: Option<String>,
    batches: u64,
    records: u64,
    bytes: u64,
    lag: Option<i64>,
    gaps: u64,
    gap_bytes: u64,
    not_understood: u64,
    refused: u64,
    clock: Option<SentClock>,
    clock_offset: Option<ClockOffset>,
    received: i64,
}

impl Minutes {
    fn at(&mut self, received: WallMicros) -> &mut Minute {
        let minute = self.0.entry(received.0.div_euclid(MINUTE)).or_default();
        minute.received = minute.received.max(received.0);
        minute
    }

    pub(crate) fn batch(&mut self, taken: &Taken) {
        let minute = self.at(taken.received);
        minute.batches += 1;
        minute.bytes += taken.items.bytes().len() as u64;
        minute.address = Some(taken.address.to_string());
        minute.clock = Some(taken.clock);
        minute.clock_offset = taken.clock_offset.or(minute.clock_offset);
    }

    pub(crate) fn record(&mut self, received: WallMicros) {
        self.at(received).records += 1;
    }

    pub(crate) fn gap(&mut self, received: WallMicros, length: u64) {
        let minute = self.at(received);
        minute.gaps += 1;
        minute.gap_bytes = minute.gap_bytes.saturating_add(length);
    }

    pub(crate) fn not_understood(&mut self, received: WallMicros) {
        self.at(received).not_understood += 1;
    }

    pub(crate) fn refused(&mut self, received: WallMicros, count: u64) {
        self.at(received).refused += count;
    }

    /// Notes how far a batch is behind: its receipt less the end of its latest record by the server's
    /// clock.
    pub(crate) fn latest(&mut self, taken: &Taken, end: Option<WallMicros>) {
        let Some(end) = end else { return };
        let offset = taken.clock_offset.map_or(0, |clock| clock.offset_us);
        let lag = taken
            .received
            .0
            .saturating_sub(end.0.saturating_add(offset));
        self.at(taken.received).lag = Some(lag);
    }

    /// Gives the rows.
    pub(crate) fn rows(self, host: &str, sink: &mut impl Sink) {
        for (number, minute) in self.0 {
            let begins = WallMicros(number * MINUTE);
            let placed = Placed {
                table: Table::Hosts,
                hour: Hour::of(begins),
                span: (begins, WallMicros(minute.received)),
            };
            sink.row(placed, minute.values(host, begins).into_iter());
        }
    }
}

impl Minute {
    fn values<'a>(&'a self, host: &'a str, begins: WallMicros) -> [Value<'a>; 16] {
        let number = |n: u64| Value::Int(signed(n));
        let known = |n: Option<i64>| n.map_or(Value::Null, Value::Int);
        let clock = self.clock;
        let max_error = clock.and_then(|clock| clock.max_error_us);
        [
            Value::Text(host),
            self.address.as_deref().map_or(Value::Null, Value::Text),
            Value::Time(begins.0),
            number(self.batches),
            number(self.records),
            number(self.bytes),
            known(self.lag),
            number(self.gaps),
            number(self.gap_bytes),
            number(self.not_understood),
            number(self.refused),
            known(self.clock_offset.map(|clock| clock.offset_us)),
            known(self.clock_offset.map(|clock| clock.error_us.into())),
            known(clock.map(|clock| clock.state.into())),
            known(max_error.map(i64::from)),
            Value::Time(self.received),
        ]
    }
}
