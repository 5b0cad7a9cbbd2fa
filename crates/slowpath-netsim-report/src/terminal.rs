// SPDX-License-Identifier: Apache-2.0
//! The summary as text for a terminal.

use super::distribution::Percentiles;
use super::fabric::FlowControlSummary;
use super::slowdown::Slowdowns;
use super::summary::{SizeSummary, Summary};
use slowpath_text::{Columns, Paint, bit_rate, count, percent, plain, plural, wrapped};
use std::cmp::Reverse;
use std::io::{self, Write};

/// Lines of the table of queues: those with the highest mean.
const MAX_QUEUES: usize = 10;
/// Columns of running text.
const WIDTH: usize = 90;

/// Microseconds with three digits and the unit that suits them.
pub fn time(us: f64) -> String {
    let (value, unit) = match us {
        us if us < 0.9995 => (us * 1e3, "ns"),
        us if us < 999.5 => (us, "us"),
        us if us < 999.5e3 => (us / 1e3, "ms"),
        us => (us / 1e6, "s"),
    };
    let digits = match value {
        v if v >= 99.95 => 0,
        v if v >= 9.995 => 1,
        _ => 2,
    };
    format!("{value:.digits$}{unit}")
}

fn size(bytes: u64) -> String {
    match bytes {
        b if b < 1_000 => format!("{b} B"),
        b if b < 1_000_000 => format!("{} kB", b / 1_000),
        b => format!("{} MB", b / 1_000_000),
    }
}

fn sizes(bin: &SizeSummary) -> String {
    size_name(bin.above_bytes, bin.up_to_bytes)
}

/// Flows of a size, below their workload.
pub(crate) fn size_name(above_bytes: u64, up_to_bytes: Option<u64>) -> String {
    match up_to_bytes {
        Some(most) => format!("  up to {}", size(most)),
        None => format!("  above {}", size(above_bytes)),
    }
}

/// Median, 95th, 99th percentile and the largest; `-` of nothing.
pub(crate) fn times(of: Option<Percentiles>) -> [String; 4] {
    match of {
        Some(p) => [p.p50_us, p.p95_us, p.p99_us, p.max_us].map(time),
        None => std::array::from_fn(|_| "-".to_owned()),
    }
}

/// Writes the summary.
///
/// # Errors
/// Writing fails.
pub fn write(summary: &Summary, paint: Paint, out: &mut impl Write) -> io::Result<()> {
    let s = summary;
    writeln!(out, "{}", paint.bold(&plain(&s.scenario)))?;
    if !s.description.is_empty() {
        for line in wrapped(&plain(&s.description), WIDTH) {
            writeln!(out, "{line}")?;
        }
    }
    writeln!(
        out,
        "{} simulated with seed {}: {}, {}; {} packet hops, {} events",
        time(s.simulated_us),
        s.seed,
        plural(s.hosts as u64, "host"),
        plural(s.switches as u64, "switch"),
        count(s.packets.hops),
        count(s.events),
    )?;
    if s.warm_up_us > 0.0 {
        let warm_up = time(s.warm_up_us);
        writeln!(
            out,
            "the first {warm_up} are the warm-up: completion times, slowdowns and queues are of what came after"
        )?;
    }
    let mut tables = vec![completions(s)];
    if s.workloads
        .iter()
        .any(|workload| workload.slowdown.is_some())
    {
        tables.push(slowdowns(s));
    }
    if s.workloads.iter().any(|workload| workload.queries > 0) {
        tables.push(queries(s));
    }
    tables.push(packets(s));
    if !s.links.is_empty() {
        tables.push(links(s));
    }
    if !s.fabric.flowlets.is_empty() {
        tables.push(flowlets(s));
    }
    if let Some(control) = &s.fabric.flow_control {
        tables.push(pauses(control));
    }
    if !s.queues.is_empty() {
        tables.push(queues(s));
    }
    for table in tables {
        writeln!(out)?;
        for line in table.lines(0, paint) {
            writeln!(out, "{line}")?;
        }
    }
    closing(s, out)
}

fn completions(s: &Summary) -> Columns {
    let mut table = Columns::new(&[
        "flows by workload",
        ">flows",
        ">done",
        ">goodput",
        ">FCT p50",
        ">p95",
        ">p99",
        ">max",
    ]);
    for workload in &s.workloads {
        let [p50, p95, p99, max] = times(workload.fct);
        table.row([
            plain(&workload.name),
            workload.flows.to_string(),
            workload.flows_done.to_string(),
            bit_rate(workload.goodput_bits_per_second / 8.0),
            p50,
            p95,
            p99,
            max,
        ]);
        if workload.sizes.len() < 2 {
            continue;
        }
        for bin in &workload.sizes {
            let [p50, p95, p99, max] = times(bin.fct);
            let done = bin.fct.map_or(0, |fct| fct.count).to_string();
            let flows = bin.flows.to_string();
            table.row([sizes(bin), flows, done, String::new(), p50, p95, p99, max]);
        }
    }
    table
}

fn slowdowns(s: &Summary) -> Columns {
    let mut table = Columns::new(&[
        "slowdown by workload",
        ">flows",
        ">unfinished",
        ">p50",
        ">p95",
        ">p99",
        ">max",
    ]);
    let mut row = |name: String, of: Option<Slowdowns>| {
        let Some(of) = of else {
            return;
        };
        let counts = [of.flows, of.unfinished].map(|count| count.to_string());
        let times = [of.p50, of.p95, of.p99, of.max].map(|it| format!("{it:.2}"));
        table.row([name].into_iter().chain(counts).chain(times));
    };
    for workload in &s.workloads {
        row(plain(&workload.name), workload.slowdown);
        if workload.sizes.len() > 1 {
            for bin in &workload.sizes {
                row(sizes(bin), bin.slowdown);
            }
        }
    }
    table
}

fn queries(s: &Summary) -> Columns {
    let mut table = Columns::new(&[
        "queries by workload",
        ">queries",
        ">done",
        ">QCT p50",
        ">p95",
        ">p99",
        ">max",
    ]);
    for workload in s.workloads.iter().filter(|workload| workload.queries > 0) {
        let counts = [workload.queries, workload.queries_done].map(|count| count.to_string());
        let name = [plain(&workload.name)].into_iter();
        table.row(name.chain(counts).chain(times(workload.qct)));
    }
    table
}

fn packets(s: &Summary) -> Columns {
    let mut table = Columns::new(&[
        "packets by workload",
        ">sent",
        ">marked",
        ">dropped",
        ">detours",
        ">detoured",
        ">retransmitted",
        ">timeouts",
    ]);
    for w in &s.workloads {
        let counts = [
            w.packets_sent,
            w.packets_marked,
            w.packets_dropped,
            w.detours,
            w.packets_detoured,
            w.retransmissions,
            w.timeouts,
        ];
        let name = [plain(&w.name)].into_iter();
        table.row(name.chain(counts.map(|count| count.to_string())));
    }
    table
}

fn queues(s: &Summary) -> Columns {
    let mut table = Columns::new(&["queues, packets", ">mean", ">p50", ">p95", ">p99", ">max"]);
    let mut longest: Vec<_> = s.queues.iter().collect();
    longest.sort_by(|a, b| b.mean_packets.total_cmp(&a.mean_packets));
    for queue in longest.into_iter().take(MAX_QUEUES) {
        let [p50, p95, p99, max] = [
            queue.p50_packets,
            queue.p95_packets,
            queue.p99_packets,
            queue.max_packets,
        ]
        .map(|packets| packets.to_string());
        table.row([
            format!("{} -> {}", plain(&queue.switch), plain(&queue.neighbour)),
            format!("{:.1}", queue.mean_packets),
            p50,
            p95,
            p99,
            max,
        ]);
    }
    table
}

fn links(s: &Summary) -> Columns {
    let mut table = Columns::new(&[
        "links",
        ">lost",
        ">while down",
        ">damaged",
        ">copied",
        ">late",
    ]);
    for link in s.links.iter().take(MAX_QUEUES) {
        let counts = [link.lost, link.cut, link.corrupted, link.copied, link.late];
        let name = format!("{} -> {}", plain(&link.from), plain(&link.to));
        table.row(
            [name]
                .into_iter()
                .chain(counts.map(|count| count.to_string())),
        );
    }
    table
}

fn flowlets(s: &Summary) -> Columns {
    let mut table = Columns::new(&["flowlets by switch", ">flowlets", ">path changes"]);
    let mut most: Vec<_> = s.fabric.flowlets.iter().collect();
    most.sort_by_key(|it| Reverse(it.flowlets));
    for switch in most.into_iter().take(MAX_QUEUES) {
        let counts = [switch.flowlets, switch.path_changes].map(|count| count.to_string());
        table.row([plain(&switch.switch)].into_iter().chain(counts));
    }
    table
}

fn pauses(control: &FlowControlSummary) -> Columns {
    let mut table = Columns::new(&[
        "pauses by port",
        ">sent",
        ">received",
        ">paused for",
        ">overruns",
    ]);
    let mut longest: Vec<_> = control.ports.iter().collect();
    longest.sort_by(|a, b| b.paused_us.total_cmp(&a.paused_us));
    for port in longest.into_iter().take(MAX_QUEUES) {
        table.row([
            format!("{} -> {}", plain(&port.node), plain(&port.neighbour)),
            port.pauses_sent.to_string(),
            port.pauses_received.to_string(),
            time(port.paused_us),
            port.overruns.to_string(),
        ]);
    }
    table
}

fn deadlock(control: &FlowControlSummary, out: &mut impl Write) -> io::Result<()> {
    if control.ports.len() > MAX_QUEUES {
        let more = control.ports.len() - MAX_QUEUES;
        writeln!(out, "{more} more ports with shorter pauses")?;
    }
    let Some(deadlock) = &control.deadlock else {
        return Ok(());
    };
    let circle = deadlock.circle.iter().map(|port| plain(port));
    let circle: Vec<String> = circle.collect();
    writeln!(
        out,
        "deadlock since {}: {} wait for each other in a circle: {}; {} in all will never send again",
        time(deadlock.since_us),
        plural(circle.len() as u64, "port"),
        circle.join(", "),
        plural(deadlock.ports as u64, "port"),
    )
}

fn closing(s: &Summary, out: &mut impl Write) -> io::Result<()> {
    writeln!(out)?;
    let spreads = s.workloads.iter().flat_map(|workload| {
        let name = plain(&workload.name);
        let both = [
            ("FCT", workload.p99_spread.fct),
            ("QCT", workload.p99_spread.qct),
        ];
        both.into_iter().filter_map(move |(what, spread)| {
            let (low, high) = spread.map(|it| (time(it.low_us), time(it.high_us)))?;
            Some(format!("{name} {what} {low} to {high}"))
        })
    });
    let spreads: Vec<String> = spreads.collect();
    if !spreads.is_empty() {
        writeln!(
            out,
            "another seed would give a p99 of about: {} (--seeds N measures it)",
            spreads.join(", ")
        )?;
    }
    if s.queues.len() > MAX_QUEUES {
        let more = s.queues.len() - MAX_QUEUES;
        writeln!(out, "{more} more queues with shorter means")?;
    }
    if let Some(control) = &s.fabric.flow_control {
        deadlock(control, out)?;
    }
    if s.queue_samples_lost > 0 {
        let lost = plural(s.queue_samples_lost, "queue sample");
        writeln!(
            out,
            "{lost} not kept: too many; sample less often or fewer queues"
        )?;
    }
    if let Some(link) = &s.hottest_link {
        writeln!(
            out,
            "hottest link {} -> {}: {} of its rate",
            plain(&link.from),
            plain(&link.to),
            percent(link.load_share)
        )?;
    }
    let unfinished = s.flows - s.flows_done - s.flows_endless;
    if unfinished > 0 {
        let flows = plural(unfinished, "flow");
        writeln!(
            out,
            "{flows} not done at the end: their times are in no percentile"
        )?;
    }
    let p = &s.packets;
    if p.dropped > 0 {
        let early = match p.dropped_early {
            0 => String::new(),
            early => format!(", {early} early by active queue management"),
        };
        let on_links = match p.dropped_on_links {
            0 => String::new(),
            lost => format!(", {lost} on links"),
        };
        writeln!(
            out,
            "dropped: {} for want of room, {} with their time to live over, {} without a route{early}{on_links}",
            p.dropped_buffer_full, p.dropped_ttl_expired, p.dropped_no_route
        )?;
    }
    writeln!(
        out,
        "every packet is accounted for: {} sent = {} delivered + {} dropped + {} still in the \
         network",
        p.sent, p.delivered, p.dropped, p.in_network
    )
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn times_have_three_digits_and_a_unit() {
        for (us, text) in [
            (0.0123, "12.3ns"),
            (1.0, "1.00us"),
            (999.6, "1.00ms"),
            (27_340.0, "27.3ms"),
            (123_456.0, "123ms"),
            (1_500_000.0, "1.50s"),
        ] {
            assert_eq!(time(us), text);
        }
    }

    #[test]
    fn sizes_are_named_by_their_bounds() {
        let bin = |above_bytes, up_to_bytes| SizeSummary {
            above_bytes,
            up_to_bytes,
            flows: 0,
            fct: None,
            slowdown: None,
        };
        assert_eq!(sizes(&bin(0, Some(10_000))).trim(), "up to 10 kB");
        assert_eq!(sizes(&bin(10_000_000, None)).trim(), "above 10 MB");
    }
}
