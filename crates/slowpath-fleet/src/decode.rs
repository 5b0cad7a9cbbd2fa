// SPDX-License-Identifier: Apache-2.0
//! An intake file as rows: sorted by host and, within some MiB of a host's batches, by connection.
//! Each record is decoded once.

use crate::FleetError;
use crate::frame::{self, Frame, Frames, Taken};
use crate::hour::{Hour, assign_hour};
use crate::minutes::Minutes;
use crate::owners::Owners;
use crate::sink::{Placed, Sink, signed};
use crate::tables::Table;
use slowpath_model::WallMicros;
use slowpath_ship::batch::{Content, Gap, GapReason, Prefix};
use slowpath_store::spool::{Payload, RawRecord, Record, kind};
use slowpath_store::tables::{
    LogTable, OwnerNames, RowMaker, connection_of, join_coverage, span_of,
};
use slowpath_table::Value;
use std::collections::BTreeMap;
use std::fs::File;
use std::os::unix::fs::FileExt as _;
use std::path::{Path, PathBuf};
use std::sync::Arc;

/// Bytes of a host's frames that are decoded and sorted at once: at most some 30 MB of records.
const PIECE: usize = 4 << 20;

/// An intake file, opened, and where each host's frames are in it.
#[derive(Debug)]
pub(crate) struct IntakeFile {
    pub path: PathBuf,
    file: File,
    /// By host, in the order of arrival: where they begin, and the length of their payload.
    frames: BTreeMap<String, Vec<(u64, u32)>>,
    /// Bytes that are no frame.
    damaged: u64,
    /// When its latest batch was received.
    received: WallMicros,
}

impl IntakeFile {
    /// Opens a file and finds its frames.
    pub(crate) fn open(path: &Path) -> Result<Self, FleetError> {
        let file = File::open(path).map_err(FleetError::io("open", path))?;
        let mut intake = IntakeFile {
            path: path.to_owned(),
            file: file.try_clone().map_err(FleetError::io("open", path))?,
            frames: BTreeMap::new(),
            damaged: 0,
            received: WallMicros(0),
        };
        let mut frames = Frames::new(file);
        loop {
            let frame = frames.next_frame();
            let Some((at, payload)) = frame.map_err(FleetError::io("read", path))? else {
                break;
            };
            let Some((host, received)) = frame::origin(payload) else {
                continue;
            };
            intake.received = intake.received.max(received);
            let place = (at, payload.len() as u32);
            match intake.frames.get_mut(host) {
                Some(of_host) => of_host.push(place),
                None => drop(intake.frames.insert(host.to_owned(), vec![place])),
            }
        }
        // A frame at the end may be one that is being written.
        intake.damaged = frames.damaged - frames.tail;
        Ok(intake)
    }

    /// Bytes between its frames that are none: what was taken there is lost.
    pub(crate) fn damaged(&self) -> u64 {
        self.damaged
    }

    fn frame(
        &self,
        (at, length): (u64, u32),
        buffer: &mut Vec<u8>,
    ) -> Result<Option<Frame>, FleetError> {
        buffer.resize(length as usize, 0);
        let read = self.file.read_exact_at(buffer, at + frame::HEAD as u64);
        read.map_err(FleetError::io("read", &self.path))?;
        Ok(Frame::read(buffer))
    }

    /// Gives all rows to `sink`; returns how many records there were.
    pub(crate) fn rows(
        &self,
        owners: &mut Owners,
        sink: &mut impl Sink,
    ) -> Result<u64, FleetError> {
        let mut records = 0;
        let mut buffer = Vec::new();
        for (host, places) in &self.frames {
            let mut decoder = Decoder {
                host,
                owners,
                sink,
                minutes: Minutes::default(),
                makers: Vec::new(),
                records: 0,
            };
            let mut batches = Vec::new();
            let mut bytes = 0;
            for place in places {
                match self.frame(*place, &mut buffer)? {
                    Some(Frame::Batch(taken)) => {
                        bytes += buffer.len();
                        batches.push(*taken);
                    }
                    Some(Frame::Refusals {
                        received, count, ..
                    }) => {
                        decoder.minutes.refused(received, count);
                    }
                    None => {}
                }
                if bytes >= PIECE {
                    decoder.batches(&batches);
                    batches.clear();
                    bytes = 0;
                }
            }
            decoder.batches(&batches);
            decoder.end();
            records += decoder.records;
        }
        if self.damaged > 0 {
            self.own_damage(sink);
        }
        Ok(records)
    }

    fn own_damage(&self, sink: &mut impl Sink) {
        let at = self.received;
        let placed = Placed {
            table: Table::Gaps,
            hour: Hour::of(at),
            span: (at, at),
        };
        let row = [
            Value::Null,
            Value::Null,
            Value::Null,
            Value::Null,
            Value::Int(signed(self.damaged)),
            Value::Text("damaged-at-server"),
            Value::Null,
            Value::Time(at.0),
        ];
        sink.row(placed, row.into_iter());
    }
}

/// A record, and what its row has besides.
struct Decoded {
    connection: u64,
    end: WallMicros,
    /// Where it is in its segment.
    offset: u64,
    /// The batch that it came in.
    batch: usize,
    hour: Hour,
    suspect: bool,
    record: Record,
}

/// Makes rows of a host's batches.
struct Decoder<'a, S> {
    host: &'a str,
    owners: &'a mut Owners,
    sink: &'a mut S,
    minutes: Minutes,
    /// By segment: a piece has few.
    makers: Vec<(String, RowMaker)>,
    records: u64,
}

impl<S: Sink> Decoder<'_, S> {
    fn batches(&mut self, batches: &[Taken]) {
        let mut decoded = Vec::new();
        for (number, taken) in batches.iter().enumerate() {
            self.decode(number, taken, &mut decoded);
        }
        join_stretches(batches, &mut decoded);
        decoded.sort_unstable_by_key(|d| (d.connection, d.end, d.batch, d.offset));
        self.makers.clear();
        for one in &decoded {
            self.emit(&batches[one.batch], one);
        }
    }

    fn decode(&mut self, batch: usize, taken: &Taken, into: &mut Vec<Decoded>) {
        let mut latest = None;
        self.minutes.batch(taken);
        for piece in taken.items.pieces(taken.offset, Prefix::default()) {
            match piece.content {
                Content::Header(_) => {}
                Content::Gap(gap) => {
                    self.minutes.gap(taken.received, gap.length);
                    self.gap(taken, piece.offset, (&gap, gap.reason.as_str()));
                }
                Content::Record(raw) => {
                    self.records += 1;
                    self.minutes.record(taken.received);
                    if !self.is_wanted(raw.kind()) {
                        continue;
                    }
                    let Payload::Record(record) = raw.decode(taken.boot_id) else {
                        self.not_understood(taken, piece.offset, raw);
                        continue;
                    };
                    let (_, end) = span_of(&record);
                    latest = latest.max(Some(end));
                    let (hour, suspect) = assign_hour(end, taken.clock_offset, taken.received);
                    let connection = connection_of(&record);
                    if let (Record::Summary(summary), Some(number)) = (&record, connection) {
                        let names = OwnerNames::from(&summary.owner);
                        self.owners.put(self.host, number.get(), names);
                    }
                    into.push(Decoded {
                        connection: connection.map_or(0, |number| number.get()),
                        end,
                        offset: piece.offset,
                        batch,
                        hour,
                        suspect,
                        record,
                    });
                }
            }
        }
        self.minutes.latest(taken, latest);
    }

    /// Whether records of a kind are decoded; summaries name the owners of other rows.
    fn is_wanted(&self, kind_of_record: u8) -> bool {
        let wants = |table| self.sink.wants(Table::Log(table));
        match kind_of_record {
            kind::PROBLEM => wants(LogTable::Intervals) || wants(LogTable::Problems),
            kind::COVERAGE => wants(LogTable::Coverage),
            kind::LISTENER => wants(LogTable::Listeners),
            kind::INTERACTION => wants(LogTable::Interactions),
            kind::TRAFFIC => wants(LogTable::Traffic),
            kind::HOP => wants(LogTable::Hops),
            _ => true,
        }
    }

    fn not_understood(&mut self, taken: &Taken, offset: u64, raw: RawRecord<'_>) {
        self.minutes.not_understood(taken.received);
        let gap = Gap {
            length: raw.bytes().len() as u64,
            reason: GapReason::Damaged,
            records: Some(1),
        };
        self.gap(taken, offset, (&gap, "not-understood"));
    }

    fn gap(&mut self, taken: &Taken, offset: u64, (gap, reason): (&Gap, &str)) {
        if !self.sink.wants(Table::Gaps) {
            return;
        }
        let received = taken.received;
        let placed = Placed {
            table: Table::Gaps,
            hour: Hour::of(received),
            span: (received, received),
        };
        let address = taken.address.to_string();
        let row = [
            Value::Text(self.host),
            Value::Text(&address),
            Value::Text(&taken.segment),
            Value::Int(signed(offset)),
            Value::Int(signed(gap.length)),
            Value::Text(reason),
            gap.records.map_or(Value::Null, |n| Value::Int(n.into())),
            Value::Time(received.0),
        ];
        self.sink.row(placed, row.into_iter());
    }

    fn emit(&mut self, taken: &Taken, one: &Decoded) {
        let maker = match self.makers.iter().position(|(id, _)| *id == taken.segment) {
            Some(at) => &mut self.makers[at].1,
            None => {
                let maker = RowMaker::new(&taken.segment, self.host);
                self.makers.push((taken.segment.clone(), maker));
                &mut self.makers.last_mut().expect("one was pushed").1
            }
        };
        let owner: Option<Arc<OwnerNames>> = match (&one.record, connection_of(&one.record)) {
            (Record::Problem(_) | Record::Interaction(_) | Record::Traffic(_), Some(number)) => {
                self.owners.get(self.host, number)
            }
            _ => None,
        };
        let address = taken.address.to_string();
        let sink = &mut *self.sink;
        maker.each(one.offset, &one.record, |row| {
            let table = Table::Log(row.table);
            if !sink.wants(table) {
                return;
            }
            let placed = Placed {
                table,
                hour: one.hour,
                span: span_of(&one.record),
            };
            let names = table
                .repeats_owner()
                .then(|| owner_values(owner.as_deref()));
            let values = row
                .values()
                .chain([Value::Text(&address)])
                .chain(names.into_iter().flatten())
                .chain([Value::Time(taken.received.0), Value::Bool(one.suspect)]);
            sink.row(placed, values);
        });
    }

    fn end(&mut self) {
        if self.sink.wants(Table::Hosts) {
            std::mem::take(&mut self.minutes).rows(self.host, self.sink);
        }
    }
}

fn owner_values(owner: Option<&OwnerNames>) -> [Value<'_>; 4] {
    let Some(owner) = owner else {
        return [const { Value::Null }; 4];
    };
    let names = [
        &owner.application,
        &owner.unit,
        &owner.container,
        &owner.pod,
    ];
    names.map(|name| name.as_deref().map_or(Value::Null, Value::Text))
}

/// Joins coverage records that the agent logs every few seconds into minutes, as the log does.
fn join_stretches(batches: &[Taken], decoded: &mut Vec<Decoded>) {
    let all = std::mem::take(decoded);
    let mut last: Option<usize> = None;
    for next in all {
        let Record::Coverage(coverage) = &next.record else {
            decoded.push(next);
            continue;
        };
        if let Some(before) = last.map(|at| &mut decoded[at]) {
            let same = (before.hour, before.suspect) == (next.hour, next.suspect)
                && batches[before.batch].segment == batches[next.batch].segment;
            if let Record::Coverage(sum) = &mut before.record
                && same
                && join_coverage(sum, coverage)
            {
                before.end = next.end;
                continue;
            }
        }
        last = Some(decoded.len());
        decoded.push(next);
    }
}
