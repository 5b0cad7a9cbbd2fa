// SPDX-License-Identifier: Apache-2.0
//! What the connections of each application did: problems, segments, round trips, answers.

use super::{family, problem, seconds};
use crate::family::{Family, Kind, Label, Unit, Value};
use crate::state::State;
use slowpath_agent::{
    Answers, ApplicationTotals, Applications, Histogram, LabelSet, OTHER, OwnerLabel,
};
use slowpath_model::{Micros, Problem};

/// The applications that have labels of their own, in a fixed order, and the others.
struct Rows<'a>(Vec<(Vec<Label>, &'a ApplicationTotals)>);

impl<'a> Rows<'a> {
    fn of(applications: &'a Applications) -> Self {
        let mut named: Vec<(&LabelSet, &ApplicationTotals)> = applications.named().collect();
        named.sort_unstable_by_key(|(set, _)| *set);
        let mut rows: Vec<_> = named.into_iter().map(|(s, t)| (labels(s), t)).collect();
        let other = vec![Label::new("application", OTHER)];
        rows.push((other, applications.other()));
        Rows(rows)
    }

    /// A point of each problem that has a value in an application.
    fn of_problems(
        &self,
        value: impl Fn(&ApplicationTotals, usize) -> Option<Value>,
    ) -> Vec<(Vec<Label>, Value)> {
        let mut points = Vec::new();
        for (labels, totals) in &self.0 {
            for p in Problem::ALL {
                if let Some(value) = value(totals, p as usize) {
                    points.push(([labels.as_slice(), &[problem(p)]].concat(), value));
                }
            }
        }
        points
    }

    /// A point of each application that has a value.
    fn of_each(
        &self,
        value: impl Fn(&ApplicationTotals) -> Option<Value>,
    ) -> Vec<(Vec<Label>, Value)> {
        let rows = self.0.iter();
        rows.filter_map(|(labels, totals)| Some((labels.clone(), value(totals)?)))
            .collect()
    }

    /// Answers that the applications gave, and that they waited for.
    fn of_answers(&self) -> Vec<(Vec<Label>, Value)> {
        let mut points = Vec::new();
        for (labels, totals) in &self.0 {
            for (role, which) in [("server", Answers::Given), ("client", Answers::Awaited)] {
                if let Some(value) = observed(totals.answers(which)) {
                    points.push((
                        [labels.as_slice(), &[Label::new("role", role)]].concat(),
                        value,
                    ));
                }
            }
        }
        points
    }
}

fn labels(set: &LabelSet) -> Vec<Label> {
    let mut labels = vec![Label::new("application", &*set.application)];
    let further = OwnerLabel::ALL.into_iter();
    labels.extend(further.filter_map(|l| Some(Label::new(l.name(), set.value(l)?))));
    labels
}

fn counted(count: u64) -> Option<Value> {
    (count > 0).then_some(Value::Count(count))
}

fn observed(histogram: &Histogram) -> Option<Value> {
    (histogram.count() > 0).then(|| Value::Histogram(histogram.clone()))
}

pub(super) fn applications(state: &State, all: &mut Vec<Family>) {
    let applications = &state.host_totals.applications;
    let rows = Rows::of(applications);
    let segment = Unit::Count("{segment}");
    all.push(
        family(
            Kind::Counter,
            Unit::Seconds,
            "slowpath.application.problem.time",
            "slowpath_application_problem_time_seconds_total",
            "Time that connections of the application had the problem.",
        )
        .with_all(rows.of_problems(|totals, i| {
            let time = totals.problems.time[i];
            (time > Micros::ZERO).then(|| seconds(time))
        })),
    );
    all.push(
        family(
            Kind::Counter,
            Unit::Count("{event}"),
            "slowpath.application.problem.events",
            "slowpath_application_problem_events_total",
            "Events of the problem in connections of the application.",
        )
        .with_all(rows.of_problems(|totals, i| counted(totals.problems.events[i]))),
    );
    all.push(
        family(
            Kind::Counter,
            segment,
            "slowpath.application.segments.sent",
            "slowpath_application_segments_sent_total",
            "Segments with payload that connections of the application sent, those sent again included.",
        )
        .with_all(rows.of_each(|totals| counted(totals.segments_sent))),
    );
    all.push(
        family(
            Kind::Counter,
            segment,
            "slowpath.application.segments.retransmitted",
            "slowpath_application_segments_retransmitted_total",
            "Segments that connections of the application sent again.",
        )
        .with_all(rows.of_each(|totals| {
            // Where segments were sent, none sent again is a finding too.
            let known = totals.segments_sent > 0 || totals.segments_retransmitted > 0;
            known.then_some(Value::Count(totals.segments_retransmitted))
        })),
    );
    all.push(
        family(
            Kind::Histogram,
            Unit::Seconds,
            "slowpath.application.rtt",
            "slowpath_application_rtt_seconds",
            "Smoothed RTT of each connection of the application at each poll that found it changed.",
        )
        .with_all(rows.of_each(|totals| observed(&totals.rtt))),
    );
    all.push(
        family(
            Kind::Histogram,
            Unit::Seconds,
            "slowpath.application.answer",
            "slowpath_application_answer_seconds",
            "How long answers took: the application's own as a server, its peers' with the round trip as a client.",
        )
        .with_all(rows.of_answers()),
    );
    table(applications, all);
}

/// The table of labels itself.
fn table(applications: &Applications, all: &mut Vec<Family>) {
    let label = Unit::Count("{label}");
    for (kind, name, prometheus, help, value) in [
        (
            Kind::Gauge,
            "slowpath.application.labels",
            "slowpath_application_labels",
            "Applications, or sets of labels, that have series of their own.",
            applications.named().len() as u64,
        ),
        (
            Kind::Gauge,
            "slowpath.application.labels.limit",
            "slowpath_application_labels_limit",
            "Applications, or sets of labels, that can have series of their own.",
            applications.limit() as u64,
        ),
        (
            Kind::Counter,
            "slowpath.application.labels.dropped",
            "slowpath_application_labels_dropped_total",
            "Times that a problem went to the application other for want of a label.",
            applications.folded(),
        ),
        (
            Kind::Counter,
            "slowpath.application.labels.displaced",
            "slowpath_application_labels_displaced_total",
            "Times that an application lost its series to one with more problem time.",
            applications.retirements(),
        ),
    ] {
        all.push(family(kind, label, name, prometheus, help).with(Value::Count(value)));
    }
}
