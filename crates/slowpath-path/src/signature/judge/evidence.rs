// SPDX-License-Identifier: Apache-2.0
//! What the questions are asked of: packets that can be judged, and all tests of them.

use super::{LEVEL, Test, TestName, single, trains};
use crate::signature::plan::{Size, Traffic};
use crate::signature::statistics::{Count, Period, fisher, holm, trend};
use crate::signature::tables::Segment;

/// All that the questions need.
pub(super) struct Evidence {
    pub segments: Vec<Segment>,
    pub tests: Vec<Test>,
    pub periods: [Option<Period>; 2],
    pub sizes: [(f64, Count); 2],
    /// No test finds that rate or place matter: all packets of a size are alike.
    pub alike: bool,
}

impl Evidence {
    pub fn test(&self, name: TestName) -> Option<Test> {
        self.tests.iter().copied().find(|test| test.test == name)
    }

    pub fn significant(&self, name: TestName) -> Option<Test> {
        self.test(name).filter(|test| test.significant)
    }

    pub fn share(&self, wanted: impl Fn(&Segment) -> bool) -> Count {
        count(&self.segments, wanted)
    }
}

pub(super) fn count(segments: &[Segment], wanted: impl Fn(&Segment) -> bool) -> Count {
    let of = segments.iter().filter(|segment| wanted(segment));
    of.fold(Count::default(), |sum, segment| sum.and(segment.count()))
}

pub(super) fn is(traffic: Traffic, size: Size) -> impl Fn(&Segment) -> bool {
    move |segment| segment.cell.traffic == traffic && segment.cell.size == size
}

/// Single packets that were sent while others went in trains or at a rate, or while their queue emptied, are not single;
/// nor are those that a host which was held up sent all at once.
pub(super) fn undisturbed(segments: &[Segment]) -> Vec<Segment> {
    const MARGIN: i64 = 20_000_000;
    let others = segments
        .iter()
        .filter(|segment| segment.cell.traffic != Traffic::Single);
    let mut busy: Vec<(i64, i64)> = others
        .filter_map(|segment| {
            let time = segment.time()?;
            let waits = segment.packets.iter().filter_map(|packet| packet.delay_ns);
            let rise = waits.clone().max().unwrap_or(0) - waits.min().unwrap_or(0);
            Some((
                time.start - MARGIN,
                time.end + rise.clamp(0, 2_000_000_000) + MARGIN,
            ))
        })
        .collect();
    busy.extend(own_bursts(segments));
    busy.sort_unstable();
    // Windows that overlap become one.
    busy.dedup_by(|next, before| {
        let overlap = next.0 <= before.1;
        if overlap {
            before.1 = before.1.max(next.1);
        }
        overlap
    });
    let free = |at: i64| {
        let next = busy.partition_point(|window| window.0 <= at);
        next == 0 || busy[next - 1].1 < at
    };
    let kept = segments.iter().map(|segment| match segment.cell.traffic {
        Traffic::Single => Segment {
            packets: segment
                .packets
                .iter()
                .filter(|p| free(p.sent_ns))
                .copied()
                .collect(),
            ..segment.clone()
        },
        _ => segment.clone(),
    });
    kept.filter(|segment| !segment.packets.is_empty()).collect()
}

/// Times at which more single packets left than the schedules have: a small one each 1 ms and a full one each 4 ms at the
/// most.
fn own_bursts(segments: &[Segment]) -> Vec<(i64, i64)> {
    const WINDOW: i64 = 800_000;
    const AFTER: i64 = 10_000_000;
    let single = segments
        .iter()
        .filter(|segment| segment.cell.traffic == Traffic::Single);
    let mut times: Vec<i64> = single
        .flat_map(|s| s.packets.iter().map(|p| p.sent_ns))
        .collect();
    times.sort_unstable();
    let close = times
        .windows(3)
        .filter(|three| three[2] - three[0] < WINDOW);
    close.map(|three| (three[0], three[2] + AFTER)).collect()
}

/// Losses of full packets, single ones first, by the rank of their rate.
fn by_rate(segments: &[Segment]) -> Vec<(f64, Count)> {
    let mut rates: Vec<u64> = segments
        .iter()
        .filter(|segment| segment.cell.traffic == Traffic::Paced)
        .map(|segment| segment.cell.rate_bps)
        .collect();
    rates.sort_unstable();
    rates.dedup();
    let mut groups = vec![(0.0, count(segments, is(Traffic::Single, Size::Full)))];
    for (rank, rate) in rates.iter().enumerate() {
        let of = |segment: &Segment| {
            segment.cell.traffic == Traffic::Paced && segment.cell.rate_bps == *rate
        };
        groups.push((rank as f64 + 1.0, count(segments, of)));
    }
    groups
}

/// Whether trains lose more than the rest: no place in them need stand out.
fn trains(segments: &[Segment]) -> f64 {
    let others = |segment: &Segment| segment.cell.size == Size::Full && segment.cell.train == 1;
    fisher(
        count(segments, others),
        count(segments, is(Traffic::Train, Size::Full)),
    )
}

pub(super) fn evidence(segments: Vec<Segment>) -> Evidence {
    let rate = trend(&by_rate(&segments));
    let place = trend(&trains::by_place(&segments));
    let alike = rate > LEVEL && place > LEVEL && trains(&segments) > LEVEL;
    let usable = |segment: &Segment| alike || segment.cell.traffic == Traffic::Single;
    let of_size = |size: Size| {
        let bits = segments
            .iter()
            .find(|s| s.cell.size == size)
            .map_or(0, |s| s.cell.bytes * 8);
        (
            f64::from(bits),
            count(&segments, |s| s.cell.size == size && usable(s)),
        )
    };
    let sizes = [of_size(Size::Small), of_size(Size::Full)];
    let plain: Vec<Segment> = segments.iter().filter(|s| usable(s)).cloned().collect();
    let periods = [
        single::period_in_packets(&plain),
        single::period_in_time(&plain),
    ];
    let delay = single::waits(&segments);
    let of_period = |name: TestName, period: Option<Period>| {
        (name, period.map(|p| p.p), period.map(|p| p.concentration))
    };
    let found = [
        (TestName::Delay, delay.map(|d| d.0), delay.map(|d| d.1)),
        (TestName::Rate, Some(rate), None),
        (TestName::Position, Some(place), None),
        of_period(TestName::PeriodInPackets, periods[0]),
        of_period(TestName::PeriodInTime, periods[1]),
        (TestName::Size, Some(fisher(sizes[0].1, sizes[1].1)), None),
        (TestName::Neighbours, Some(single::neighbours(&plain)), None),
        (TestName::Dispersion, Some(single::dispersion(&plain)), None),
    ];
    let values: Vec<f64> = found.iter().map(|(_, p, _)| p.unwrap_or(1.0)).collect();
    let tests = found.iter().zip(holm(&values, LEVEL));
    let tests = tests.map(|(&(test, p_value, effect), significant)| Test {
        test,
        p_value,
        significant,
        effect,
    });
    Evidence {
        tests: tests.collect(),
        segments,
        periods,
        sizes,
        alike,
    }
}
