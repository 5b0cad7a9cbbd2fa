// SPDX-License-Identifier: Apache-2.0
//! Verdicts over a time range, from records of the log.

mod answer;
mod groups;
mod interactions;
mod lives;
mod output;

pub use groups::{Group, GroupBy, groups};
pub use lives::{Covered, Records, ReportRange, covered, lives};
pub use output::{
    CoverageEntry, GroupEntry, GroupsEntry, ReportOutput, ReportedConnection, TableRow,
};

use crate::conclusion::Conclusion;
use crate::criterion::Criterion;
use crate::filter::Filter;
use crate::json;
use crate::listeners::{self, ListenerTally};
use crate::points;
use crate::tally::{self, found, trouble};
use crate::watch::loss_line;
use answer::LoggedEnds;
use interactions::InteractionTotals;
use slowpath_diagnose::{ProblemTable, TIME_PERCENTAGES, problem_table};
use slowpath_model::{ConnectionSummary, Micros, Problem, UnknownOwners};
use slowpath_text::{Columns, Paint, bytes, percent, plural, process};

/// Connections and groups listed.
const LISTED: usize = 10;
/// Columns that the text of a point may take.
const WIDTH: usize = 84;

/// How to report.
#[derive(Clone, Debug)]
pub struct Options {
    /// Which time.
    pub range: ReportRange,
    /// Which connections.
    pub filter: Filter,
    /// A table with one line for each of these.
    pub by: Option<GroupBy>,
}

/// The report on some records.
pub struct Report<'a> {
    options: &'a Options,
    lives: Vec<ConnectionSummary>,
    answer: Conclusion,
    lacks: Vec<&'static str>,
    table: ProblemTable,
    groups: Option<(GroupBy, Vec<(Conclusion, Group)>)>,
    covered: Covered,
    unread: Vec<String>,
    listeners: ListenerTally,
    interactions: InteractionTotals,
}

impl<'a> Report<'a> {
    /// The report on these records.
    pub fn of(mut records: Records, options: &'a Options) -> Self {
        let coverage = std::mem::take(&mut records.coverage);
        let unread = std::mem::take(&mut records.unread);
        let mut listeners = ListenerTally::default();
        for interval in std::mem::take(&mut records.listeners) {
            if listeners::selected(&options.filter, &interval) {
                listeners.add(&interval, 0);
            }
        }
        let mut interactions = InteractionTotals::default();
        for found in std::mem::take(&mut records.interactions) {
            interactions.add(found, options.range, &options.filter);
        }
        let (lives, others) = lives(records, options.range, &options.filter);
        let ends = LoggedEnds::new(&lives, &others, options.range, interactions.latest());
        let refusing = listeners.refusing();
        // Whose listener it is has no group.
        let answered = |group: Group| (ends.conclude(&group.places, &[]), group);
        let grouped = |by| {
            let groups = groups(&lives, by);
            (by, groups.into_iter().map(answered).collect())
        };
        Report {
            options,
            answer: ends.answer(&refusing),
            lacks: ends.lacks(),
            table: problem_table(lives.iter()),
            groups: options.by.map(grouped),
            covered: covered(&coverage, options.range),
            lives,
            unread,
            listeners,
            interactions,
        }
    }

    /// Whether a problem was found that counts.
    pub fn problems_found(&self, criterion: &Criterion) -> bool {
        let length = self.options.range.length();
        let mut lives = self.lives.iter();
        lives.any(|l| criterion.is_met_by(&l.problem_time, l.observed))
            || self.listeners.meet(criterion, length)
    }

    /// The connections with any problem, most trouble first.
    fn troubled(&self) -> impl Iterator<Item = &ConnectionSummary> {
        self.lives
            .iter()
            .take_while(|l| trouble(&l.problem_time) > Micros::ZERO)
    }

    /// The report in lines.
    pub fn lines(&self, paint: Paint) -> Vec<String> {
        let range = self.options.range;
        let mut lines = vec![paint.bold(&format!(
            "{} to {}: {} of {}",
            json::wall(range.from),
            json::wall(range.to),
            plural(self.lives.len() as u64, "connection"),
            plural(self.table.applications, "application"),
        ))];
        if let Some(note) = self.options.filter.notes() {
            lines.push(format!("note: {note}"));
        }
        if self.lives.is_empty() {
            lines.push(
                "no such connection in the log; is `slowpath up` running, and since when?"
                    .to_owned(),
            );
        } else {
            lines.push(String::new());
            lines.extend(self.answer_lines(paint));
            lines.push(String::new());
            lines.extend(table_lines(&self.table, paint));
        }
        if let Some((by, groups)) = &self.groups {
            lines.push(String::new());
            lines.extend(group_lines(*by, groups, paint));
        }
        if self.troubled().next().is_some() {
            lines.push(String::new());
            lines.push("worst connections".to_owned());
            lines.extend(self.worst(paint));
        }
        if !self.listeners.is_empty() {
            lines.push(String::new());
            lines.extend(self.listeners.table(LISTED, paint));
        }
        if !self.interactions.is_empty() {
            lines.push(String::new());
            lines.extend(self.interactions.lines(LISTED, paint));
        }
        lines.push(String::new());
        lines.extend(self.coverage_lines());
        lines
    }

    /// What limited, and who has to act.
    fn answer_lines(&self, paint: Paint) -> Vec<String> {
        let headline = paint.bold(&format!("Limited by {}", self.answer.text));
        let mut lines = vec![paint.problem(self.answer.alarming(), &headline)];
        let mut points = vec![("act", self.answer.act.words())];
        points.extend(answer::lacks_lines(&self.lacks).map(|text| ("", text)));
        lines.extend(points::lines(points, WIDTH));
        lines
    }

    fn worst(&self, paint: Paint) -> Vec<String> {
        let mut columns = Columns::new(&[
            "problem",
            ">share",
            ">time",
            ">events",
            ">observed",
            "process",
            "connection",
        ]);
        for life in self.troubled().take(LISTED) {
            for problem in found(&life.problem_time).into_iter().take(1) {
                let i = problem as usize;
                columns.row([
                    problem.name().to_owned(),
                    percent(tally::share(life.problem_time[i], life.observed)),
                    life.problem_time[i].to_string(),
                    life.problem_events[i].to_string(),
                    life.observed.to_string(),
                    process(&life.owner),
                    life.tuple.to_string(),
                ]);
            }
        }
        columns.lines(2, paint)
    }

    fn unknown_owners(&self) -> UnknownOwners {
        let mut counts = UnknownOwners::default();
        for reason in self.lives.iter().filter_map(|l| l.owner.why_unknown()) {
            counts.count(reason);
        }
        counts
    }

    fn coverage_lines(&self) -> Vec<String> {
        let c = &self.covered;
        let length = self.options.range.length();
        let mut lines = vec![if c.polls == 0 {
            "coverage: the log has no coverage record in this range".to_owned()
        } else {
            format!(
                "coverage: looked for {} of {length} ({}), {}, up to {}",
                c.time,
                percent(tally::share(c.time, length)),
                plural(c.polls, "poll"),
                plural(c.sockets, "socket"),
            )
        }];
        if self.table.unobserved > 0 {
            lines.push(format!(
                "observed too briefly for a verdict: {}",
                plural(self.table.unobserved, "connection")
            ));
        }
        if c.missed > 0 {
            lines.push(format!(
                "not observed: {}, summed over stretches",
                plural(c.missed, "socket")
            ));
        }
        if self.table.owner_unknown > 0 {
            let reasons: Vec<String> = self
                .unknown_owners()
                .iter()
                .map(|(reason, count)| format!("{count} {reason}"))
                .collect();
            lines.push(format!(
                "owner unknown: {}; they are in no application: {}",
                plural(self.table.owner_unknown, "connection"),
                reasons.join("; ")
            ));
        }
        lines.extend(loss_line(&c.losses));
        if !c.unmeasured.is_empty() {
            let names: Vec<&str> = c.unmeasured.iter().map(Problem::name).collect();
            lines.push(format!(
                "could not measure in some of the time: {}",
                names.join(", ")
            ));
        }
        lines.extend(self.unread.iter().map(|u| format!("could not read: {u}")));
        lines
    }

    /// What serialises.
    pub fn output(&self) -> ReportOutput {
        let c = &self.covered;
        ReportOutput {
            kind: "report",
            from: json::wall(self.options.range.from),
            to: json::wall(self.options.range.to),
            filter: self.options.filter.to_string(),
            answer: self.answer.clone(),
            answer_lacks: self.lacks.clone(),
            connections: self.lives.len(),
            applications: self.table.applications,
            owners: self.lives.iter().map(|l| &l.owner).collect(),
            time_percentages: TIME_PERCENTAGES,
            table: self.table.rows.iter().map(TableRow::from).collect(),
            by: self.groups.as_ref().map(|(by, groups)| GroupsEntry {
                by: by.name(),
                groups: groups.iter().map(GroupEntry::from).collect(),
            }),
            problem_connections: self.troubled().map(ReportedConnection::from).collect(),
            listeners: self.listeners.output(),
            interactions: self.interactions.output(),
            limits_reached: [
                self.listeners.limit_reached(),
                self.interactions.limit_reached(),
            ]
            .into_iter()
            .flatten()
            .collect(),
            coverage: CoverageEntry {
                time_us: c.time.0,
                range_us: self.options.range.length().0,
                polls: c.polls,
                sockets: c.sockets,
                missed: c.missed,
                unobserved_connections: self.table.unobserved,
                owner_unknown_connections: self.table.owner_unknown,
                unknown_owners: json::unknown_owners(&self.unknown_owners()),
                losses: (&c.losses).into(),
                unmeasured: json::problems(c.unmeasured),
            },
            unread: self.unread.clone(),
        }
    }
}

/// SNAP's Table 4 in lines.
fn table_lines(table: &ProblemTable, paint: Paint) -> Vec<String> {
    let mut columns = Columns::new(&[
        "",
        ">>0%",
        ">>25%",
        ">>50%",
        ">>75%",
        ">>99.9%",
        ">apps >5%",
        ">apps >50%",
        "",
    ]);
    for row in &table.rows {
        let mut cells = vec![row.problem.name().to_owned()];
        match row.connections_percent {
            Some(percents) => cells.extend(percents.map(|p| format!("{p:.2}%"))),
            None => cells.extend(TIME_PERCENTAGES.map(|_| "-".to_owned())),
        }
        let unknown = row.connections_percent.is_none();
        for count in [
            row.applications_over_5_percent,
            row.applications_over_50_percent,
        ] {
            cells.push(if unknown {
                "-".to_owned()
            } else {
                count.to_string()
            });
        }
        cells.push(match row.unmeasured {
            0 => String::new(),
            n if n == table.connections => "could not measure".to_owned(),
            n => format!(
                "measured in {} of {}",
                table.connections - n,
                table.connections
            ),
        });
        columns.row(cells);
    }
    let title = "connections, and applications, limited for more than this share of their time";
    std::iter::once(title.to_owned())
        .chain(columns.lines(2, paint))
        .collect()
}

fn group_lines(by: GroupBy, groups: &[(Conclusion, Group)], paint: Paint) -> Vec<String> {
    let mut columns = Columns::new(&[
        by.name(),
        ">connections",
        ">with problems",
        ">bytes",
        "limited by",
        "worst problem",
        ">share",
        ">events",
    ]);
    for (answer, group) in groups.iter().take(LISTED) {
        let mut cells = vec![
            group.name.clone(),
            group.connections.to_string(),
            group.troubled.to_string(),
            bytes(group.bytes),
            answer.brief().to_owned(),
        ];
        if let Some(worst) = found(&group.totals.problem_time).first() {
            cells.push(worst.name().to_owned());
            cells.push(percent(group.totals.share(*worst)));
            cells.push(group.totals.problem_events[*worst as usize].to_string());
        }
        columns.row(cells);
    }
    let mut lines = columns.lines(2, paint);
    if groups.len() > LISTED {
        lines.push(format!(
            "  and {} more (--json lists all)",
            groups.len() - LISTED
        ));
    }
    lines
}

#[cfg(test)]
mod tests;
