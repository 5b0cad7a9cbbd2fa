// SPDX-License-Identifier: Apache-2.0
//! The fleet's tables and their columns: the log's, with what a server adds to each row, and its own.

use slowpath_store::tables::{LogTable, OwnerNames};
use slowpath_table::{Column, Encoding, Kind, Statistics};

/// A table of the fleet.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Table {
    /// One of the log's, with the peer's address, the owner, the receipt and whether the host's
    /// clock is suspect.
    Log(LogTable),
    /// Stretches of segments that the server does not have.
    Gaps,
    /// What came of each host in each minute.
    Hosts,
    /// Both ends of connections between two hosts.
    Ends,
}

/// Columns of [`Table::Gaps`].
const GAPS: [(&str, Kind); 7] = [
    ("host", Kind::Text),
    ("address", Kind::Text),
    ("segment", Kind::Text),
    ("offset", Kind::Int64),
    ("length", Kind::Int64),
    ("reason", Kind::Text),
    ("records", Kind::Int64),
];

/// Columns of [`Table::Hosts`].
const HOSTS: [(&str, Kind); 15] = [
    ("host", Kind::Text),
    ("address", Kind::Text),
    ("minute", Kind::Timestamp),
    ("batches", Kind::Int64),
    ("records", Kind::Int64),
    ("bytes", Kind::Int64),
    ("lag_us", Kind::Int64),
    ("gaps", Kind::Int64),
    ("gap_bytes", Kind::Int64),
    ("not_understood", Kind::Int64),
    ("refused", Kind::Int64),
    ("clock_offset_us", Kind::Int64),
    ("clock_error_us", Kind::Int64),
    ("clock_state", Kind::Int64),
    ("clock_max_error_us", Kind::Int64),
];

/// Columns of [`Table::Ends`].
const ENDS: [(&str, Kind); 11] = [
    ("a_host", Kind::Text),
    ("a_connection_id", Kind::Int64),
    ("a_address", Kind::Text),
    ("a_port", Kind::Int64),
    ("b_host", Kind::Text),
    ("b_connection_id", Kind::Int64),
    ("b_address", Kind::Text),
    ("b_port", Kind::Int64),
    ("start_time", Kind::Timestamp),
    ("end_time", Kind::Timestamp),
    ("translated", Kind::Bool),
];

impl Table {
    /// All of them.
    pub const ALL: [Table; 11] = [
        Table::Log(LogTable::Intervals),
        Table::Log(LogTable::Problems),
        Table::Log(LogTable::Connections),
        Table::Log(LogTable::Coverage),
        Table::Log(LogTable::Listeners),
        Table::Log(LogTable::Interactions),
        Table::Log(LogTable::Traffic),
        Table::Log(LogTable::Hops),
        Table::Gaps,
        Table::Hosts,
        Table::Ends,
    ];

    /// The beginning of its files' names.
    pub fn name(self) -> &'static str {
        match self {
            Table::Log(table) => table.name(),
            Table::Gaps => "gaps",
            Table::Hosts => "hosts",
            Table::Ends => "ends",
        }
    }

    /// By its name.
    pub fn from_name(name: &str) -> Option<Table> {
        Table::ALL.into_iter().find(|table| table.name() == name)
    }

    /// Its columns.
    pub fn columns(self) -> Vec<Column> {
        match self {
            Table::Log(table) => log_columns(table),
            Table::Gaps => [own(&GAPS), vec![received()]].concat(),
            Table::Hosts => [own(&HOSTS), vec![received()]].concat(),
            Table::Ends => own(&ENDS),
        }
    }

    /// Whether rows repeat the names of their connection's owner.
    pub(crate) fn repeats_owner(self) -> bool {
        match self {
            Table::Log(table) => repeats_owner(table),
            _ => false,
        }
    }
}

fn repeats_owner(table: LogTable) -> bool {
    matches!(
        table,
        LogTable::Intervals | LogTable::Problems | LogTable::Interactions | LogTable::Traffic
    )
}

/// What a server adds to a row of the log, after its columns.
fn log_columns(table: LogTable) -> Vec<Column> {
    let mut columns = table.columns();
    columns.push(plain("address", Kind::Text));
    if repeats_owner(table) {
        let names = OwnerNames::COLUMNS.into_iter();
        columns.extend(names.map(|name| plain(name, Kind::Text)));
    }
    columns.push(received());
    columns.push(plain("clock_suspect", Kind::Bool));
    columns
}

fn received() -> Column {
    plain("received", Kind::Timestamp)
}

fn own(columns: &[(&'static str, Kind)]) -> Vec<Column> {
    let columns = columns.iter();
    columns.map(|(name, kind)| plain(name, *kind)).collect()
}

fn plain(name: &str, kind: Kind) -> Column {
    let mut column = Column::new(name, kind);
    column.statistics = match (name, kind) {
        (_, Kind::Timestamp) | ("host", _) => Statistics::Groups,
        _ => Statistics::None,
    };
    if kind == Kind::Int64 {
        column.encoding = Encoding::Dictionary(Some(64 << 10));
    }
    column
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::collections::BTreeSet;

    #[test]
    fn tables_and_their_columns_have_distinct_names() {
        let names: BTreeSet<_> = Table::ALL.iter().map(|table| table.name()).collect();
        assert_eq!(names.len(), Table::ALL.len());
        for table in Table::ALL {
            let columns = table.columns();
            let names: BTreeSet<_> = columns.iter().map(|column| &column.name).collect();
            assert_eq!(names.len(), columns.len(), "{}", table.name());
            assert_eq!(Table::from_name(table.name()), Some(table));
        }
    }

    #[test]
    fn the_document_has_the_servers_own_columns() {
        let document = include_str!("../../../docs/reference/fleet-tables.md");
        for table in [Table::Gaps, Table::Hosts, Table::Ends] {
            let title = format!("\n## {}\n", table.name());
            let from = document.find(&title).expect("the table has a section");
            let section = &document[from + title.len()..];
            let section = &section[..section.find("\n## ").unwrap_or(section.len())];
            for column in table.columns() {
                let name = format!("`{}`", column.name);
                assert!(section.contains(&name), "{}: {name}", table.name());
            }
        }
    }
}
