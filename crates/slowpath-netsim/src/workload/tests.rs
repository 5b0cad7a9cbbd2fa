// SPDX-License-Identifier: Apache-2.0
//! Distributions against their moments, flows against what was asked for.

use super::random::{exponential, natural_logarithm, uniform};
use super::{
    Arrivals, Bulk, CdfProblem, EndpointError, Endpoints, Flow, FlowStream, Incast, Intensity,
    Kind, Locality, Permutation, Poisson, SizeDistribution, TraceProblem, Workload, parse_trace,
};
use crate::engine::{Application, Transport};
use crate::topology::{Builder, LinkOptions, Links, QueueOverride, Topology, fat_tree, leaf_spine};
use slowpath_switch::{Random, Rate, Span, Time};
use std::collections::{BTreeMap, BTreeSet};
use std::path::PathBuf;

/// DCTCP's web search in the form the traffic generators use.
const WEB_SEARCH: &str = "0 0\n10000 0.15\n20000 0.2\n30000 0.3\n50000 0.4\n80000 0.53\n\
    200000 0.6\n1000000 0.7\n2000000 0.8\n5000000 0.9\n10000000 0.97\n30000000 1\n";

fn link(bits: u64) -> LinkOptions {
    LinkOptions {
        rate: Rate::from_bits_per_second(bits).expect("in range"),
        delay: Span::from_micros(1),
        queue: QueueOverride::default(),
    }
}

fn tree() -> Topology {
    let links = Links {
        host: link(1_000_000_000),
        fabric: link(1_000_000_000),
    };
    fat_tree(4, links).expect("possible")
}

fn all_hosts(topology: &Topology) -> Vec<u32> {
    (0..topology.hosts().len() as u32).collect()
}

fn endpoints(topology: &Topology, among: Locality) -> Endpoints {
    let hosts = all_hosts(topology);
    Endpoints::new(topology, hosts.clone(), hosts, among).expect("possible")
}

fn workload(kind: Kind, stop: Span) -> Workload {
    Workload {
        name: "w".to_owned(),
        class: 0,
        transport: Transport::Tcp(0),
        application: Application::AtOnce,
        keep_connections: false,
        start: Time::ZERO,
        stop: Time::ZERO + stop,
        kind,
    }
}

#[test]
fn the_logarithm_is_one() {
    let mut random = Random::new(1);
    for _ in 0..100_000 {
        let x = uniform(&mut random);
        let (ours, library) = (natural_logarithm(x), x.ln());
        // Two units in the last place.
        assert!(
            (ours - library).abs() <= 4.5e-16 * library.abs().max(1.0),
            "{x}: {ours}"
        );
    }
    assert_eq!(natural_logarithm(1.0), 0.0);
    assert_eq!(natural_logarithm(0.5), -std::f64::consts::LN_2);
    let least = 1.0 / (1u64 << 53) as f64;
    assert!((natural_logarithm(least) - least.ln()).abs() < 1e-14);
}

/// Mean m and variance m^2; the mean of n within 3.29 standard errors with probability
/// 99.9 %, and the share above the mean is 1/e.
#[test]
fn exponential_times_have_their_moments() {
    const COUNT: u32 = 200_000;
    const MEAN: f64 = 1e9;
    let mut random = Random::new(2);
    let times: Vec<f64> = (0..COUNT)
        .map(|_| exponential(&mut random, MEAN).0 as f64)
        .collect();
    let n = f64::from(COUNT);
    let mean = times.iter().sum::<f64>() / n;
    assert!((mean - MEAN).abs() < 3.29 * MEAN / n.sqrt(), "{mean}");
    let above = times.iter().filter(|time| **time > MEAN).count() as f64 / n;
    let expected = 1.0 / std::f64::consts::E;
    let error = (expected * (1.0 - expected) / n).sqrt();
    assert!((above - expected).abs() < 3.29 * error, "{above}");
}

/// By hand: the sum of (p - p') (x + x') / 2 over neighbouring points.
#[test]
fn a_distribution_has_the_mean_of_its_trapezoids() {
    let web = SizeDistribution::parse(WEB_SEARCH).expect("valid");
    assert!((web.mean() - 1_711_250.0).abs() < 1e-6, "{}", web.mean());
    assert_eq!(web.max(), 30_000_000);
    for (u, size) in [
        (0.15, 10_000),
        (0.175, 15_000),
        (1.0, 30_000_000),
        (0.0, 1),
        (0.53, 80_000),
    ] {
        assert_eq!(web.quantile(u), size, "{u}");
    }
    // Percent, a first point that has weight, a jump.
    let text = "# size percent\n100 10\n\n200 50 # half\n200 60\n400 100";
    let other = SizeDistribution::parse(text).expect("valid");
    assert!((other.mean() - (10.0 + 60.0 + 20.0 + 120.0)).abs() < 1e-9);
    for (u, size) in [(0.05, 100), (0.1, 100), (0.3, 150), (0.55, 200), (0.8, 300)] {
        assert_eq!(other.quantile(u), size, "{u}");
    }
    assert_eq!(SizeDistribution::constant(77).quantile(0.3), 77);
}

#[test]
fn samples_follow_the_distribution() {
    const COUNT: u32 = 100_000;
    let web = SizeDistribution::parse(WEB_SEARCH).expect("valid");
    let mut random = Random::new(3);
    let sizes: Vec<u64> = (0..COUNT).map(|_| web.sample(&mut random)).collect();
    for (limit, probability) in [
        (10_000, 0.15),
        (80_000, 0.53),
        (1_000_000, 0.7),
        (5_000_000, 0.9),
    ] {
        let below = sizes.iter().filter(|size| **size <= limit).count() as f64;
        let n = f64::from(COUNT);
        let error = (n * probability * (1.0 - probability)).sqrt();
        assert!(
            (below - n * probability).abs() < 3.29 * error,
            "{limit}: {below}"
        );
    }
}

#[test]
fn wrong_distributions_are_refused_with_their_line() {
    for (text, line, problem) in [
        ("", 1, CdfProblem::Empty),
        ("# only words", 1, CdfProblem::Empty),
        ("0 0\n10", 2, CdfProblem::NotTwoNumbers),
        ("0 0 0", 1, CdfProblem::NotTwoNumbers),
        ("0 0\nten 1", 2, CdfProblem::NotTwoNumbers),
        ("-1 0\n1 1", 1, CdfProblem::Size),
        ("nan 0\n1 1", 1, CdfProblem::Size),
        ("0 0\n1e16 1", 2, CdfProblem::Size),
        ("0 0\n1 101", 2, CdfProblem::Probability),
        ("0 0\n1 nan", 2, CdfProblem::Probability),
        ("5 0\n4 1", 2, CdfProblem::Falls),
        ("5 0.5\n6 0.4\n7 1", 2, CdfProblem::Falls),
        ("0 0\n1 0.9", 2, CdfProblem::Incomplete),
        ("0 0\n0 1", 2, CdfProblem::AllZero),
    ] {
        let error = SizeDistribution::parse(text).expect_err(text);
        assert_eq!((error.line, error.problem), (line, problem), "{text:?}");
    }
}

/// Each file of the published workloads; the means by an independent sum over the file.
#[test]
fn published_distributions_are_read() {
    let folder = PathBuf::from(env!("CARGO_MANIFEST_DIR")).join("../../../shared/data/flow-sizes");
    if !folder.is_dir() {
        println!("SKIPPED published_distributions_are_read: shared/data is not here");
        return;
    }
    let mut read = 0;
    for entry in std::fs::read_dir(&folder).expect("a folder").flatten() {
        let text = std::fs::read_to_string(entry.path()).expect("readable");
        let sizes = SizeDistribution::parse(&text).expect("valid");
        let points: Vec<(f64, f64)> = text
            .lines()
            .filter_map(|line| {
                let mut words = line.split_whitespace();
                Some((words.next()?.parse().ok()?, words.next()?.parse().ok()?))
            })
            .collect();
        let (max, whole) = *points.last().expect("points");
        let mut below = (0.0, 0.0);
        let mut mean = 0.0;
        for point in points {
            mean += (point.1 - below.1) / whole * (point.0 + below.0) / 2.0;
            below = point;
        }
        assert!((sizes.mean() - mean).abs() < 1e-9 * mean, "{entry:?}");
        assert_eq!(sizes.max(), max as u64);
        read += 1;
    }
    assert_eq!(read, 6);
}

/// 30 % of 16 hosts of 1 Gbit/s: 4.8 Gbit/s of payload.
#[test]
fn a_load_offers_that_share_of_the_senders_links() {
    let topology = tree();
    let sizes = SizeDistribution::constant(100_000);
    let poisson = |intensity| Poisson {
        endpoints: endpoints(&topology, Locality::Any),
        sizes: sizes.clone(),
        intensity,
    };
    let count = |intensity| {
        let all = [workload(
            Kind::Poisson(poisson(intensity)),
            Span::from_secs(10),
        )];
        let flows: Vec<Flow> = FlowStream::new(&all, 1).collect();
        assert!(flows.is_sorted_by_key(|flow| flow.start));
        assert!(flows.iter().all(|flow| flow.from != flow.to));
        flows.len() as f64
    };
    // 4.8e9 / 8e5 = 6,000 flows a second; the same as one each 16/6000 s and host.
    let gap = Span(16 * 1_000_000_000_000 / 6_000);
    for intensity in [
        Intensity::Load(0.3),
        Intensity::PerSecond(6_000.0),
        Intensity::Gap(gap),
    ] {
        let flows = count(intensity);
        assert!(
            (flows - 60_000.0).abs() < 3.29 * 60_000f64.sqrt(),
            "{intensity:?}: {flows}"
        );
    }
}

#[test]
fn pairs_respect_locality() {
    let topology = tree();
    let mut random = Random::new(4);
    for among in [Locality::Any, Locality::OtherRack, Locality::OtherPod] {
        let endpoints = endpoints(&topology, among);
        let mut pairs = BTreeSet::new();
        for _ in 0..5_000 {
            pairs.insert(endpoints.pair(&mut random));
        }
        let expected: BTreeSet<(u32, u32)> = (0..16)
            .flat_map(|a| (0..16).map(move |b| (a, b)))
            // Two hosts a rack, four a pod.
            .filter(|(a, b)| match among {
                Locality::Any => a != b,
                Locality::OtherRack => a / 2 != b / 2,
                Locality::OtherPod => a / 4 != b / 4,
            })
            .collect();
        // 5,000 draws leave none of 240 out, except with probability 1e-7.
        assert_eq!(pairs, expected);
    }
}

#[test]
fn fast_senders_send_more() {
    let mut builder = Builder::new();
    let switch = builder.switch("s").expect("new");
    for (number, gbit) in [1, 1, 4].into_iter().enumerate() {
        let host = builder.host(format!("h{number}"), None).expect("new");
        builder
            .link(host, switch, link(gbit * 1_000_000_000))
            .expect("possible");
    }
    let topology = builder.build().expect("possible");
    let endpoints = endpoints(&topology, Locality::Any);
    assert_eq!(endpoints.capacity(), 6e9);
    let mut random = Random::new(5);
    let fast = (0..30_000)
        .filter(|_| endpoints.pair(&mut random).0 == 2)
        .count() as f64;
    assert!(
        (fast - 20_000.0).abs() < 3.29 * (30_000f64 * 2.0 / 9.0).sqrt(),
        "{fast}"
    );
}

#[test]
fn impossible_endpoints_are_refused() {
    let tree = tree();
    let refused = |topology: &Topology, from: &[u32], to: &[u32], among| {
        Endpoints::new(topology, from.to_vec(), to.to_vec(), among).expect_err("impossible")
    };
    assert_eq!(
        refused(&tree, &[], &[1], Locality::Any),
        EndpointError::NoHosts
    );
    let no_peer = EndpointError::NoPeer("host-0-0-0".to_owned());
    assert_eq!(refused(&tree, &[0], &[0], Locality::Any), no_peer);
    assert_eq!(refused(&tree, &[0], &[1], Locality::OtherRack), no_peer);
    assert_eq!(refused(&tree, &[0], &[2], Locality::OtherPod), no_peer);
    let links = Links {
        host: link(1_000_000),
        fabric: link(1_000_000),
    };
    let flat = leaf_spine(2, 1, 2, links).expect("possible");
    assert_eq!(
        refused(&flat, &[0], &[3], Locality::OtherPod),
        EndpointError::NoPods
    );
    let few = endpoints(&tree, Locality::OtherPod)
        .check_degree(&tree, 13)
        .expect_err("12 others");
    let expected = EndpointError::TooFew {
        host: "host-0-0-0".to_owned(),
        there: 12,
        wanted: 13,
    };
    assert_eq!(few, expected);
    assert_eq!(
        endpoints(&tree, Locality::OtherPod).check_degree(&tree, 12),
        Ok(())
    );
}

fn incast(topology: &Topology) -> Incast {
    Incast {
        endpoints: endpoints(topology, Locality::Any),
        rate: 1_000.0,
        arrivals: Arrivals::Poisson,
        degree: 5,
        response: 20_000,
        jitter: Span::ZERO,
        count: None,
    }
}

#[test]
fn a_query_is_answered_by_as_many_different_hosts() {
    let topology = tree();
    for (jitter, arrivals) in [
        (Span::ZERO, Arrivals::Poisson),
        (Span::from_millis(5), Arrivals::Poisson),
        (Span::from_millis(5), Arrivals::Periodic),
    ] {
        let incast = Incast {
            jitter,
            arrivals,
            ..incast(&topology)
        };
        assert_eq!(incast.offered(), 1_000.0 * 5.0 * 20_000.0 * 8.0);
        let all = [workload(Kind::Incast(incast), Span::from_secs(4))];
        let flows: Vec<Flow> = FlowStream::new(&all, 9).collect();
        assert!(flows.is_sorted_by_key(|flow| flow.start));
        let mut queries: BTreeMap<u32, Vec<Flow>> = BTreeMap::new();
        for flow in &flows {
            let query = flow.query.expect("an answer");
            let delay = flow.start.since(query.asked);
            assert!(flow.start >= query.asked && (delay < jitter || delay == Span::ZERO));
            assert_eq!((flow.bytes, query.degree), (Some(20_000), 5));
            queries.entry(query.number).or_default().push(*flow);
        }
        let answered: u32 = queries.len() as u32;
        let whole = queries
            .values()
            .filter(|answers| answers.len() == 5)
            .count() as u32;
        // A query in time has all its answers, also those that begin after the end.
        assert_eq!(whole, answered);
        let end = Time::ZERO + Span::from_secs(4);
        assert!(queries.values().all(|answers| {
            let asked = answers[0].query.map(|query| query.asked);
            asked.is_some_and(|asked| asked < end)
        }));
        assert_eq!(
            flows.iter().any(|flow| flow.start >= end),
            jitter > Span::ZERO
        );
        for answers in queries.values() {
            let from: BTreeSet<u32> = answers.iter().map(|flow| flow.from).collect();
            assert_eq!(from.len(), answers.len());
            assert!(
                answers
                    .iter()
                    .all(|flow| flow.to == answers[0].to && flow.from != flow.to)
            );
        }
        let expected = 4_000.0;
        match arrivals {
            Arrivals::Periodic => assert_eq!(answered, 4_000),
            Arrivals::Poisson => {
                assert!((f64::from(answered) - expected).abs() < 3.29 * f64::sqrt(expected));
            }
        }
    }
}

/// Everybody answers equally often: 15 of 16 hosts are not the one that asks.
#[test]
fn answers_come_from_everywhere() {
    let topology = tree();
    let all = [workload(
        Kind::Incast(incast(&topology)),
        Span::from_secs(20),
    )];
    let mut counts = [0u32; 16];
    for flow in FlowStream::new(&all, 10) {
        counts[flow.from as usize] += 1;
    }
    let expected = f64::from(counts.iter().sum::<u32>()) / 16.0;
    // 16 classes: below 37.70 with probability 99.9 % (15 degrees of freedom). Answers to
    // one query are drawn without putting back, which makes it smaller still.
    let pearson: f64 = counts
        .iter()
        .map(|count| (f64::from(*count) - expected).powi(2) / expected)
        .sum();
    assert!(pearson < 37.70, "{counts:?}: {pearson}");
}

#[test]
fn a_count_ends_the_queries() {
    let topology = tree();
    let incast = Incast {
        count: Some(3),
        ..incast(&topology)
    };
    let all = [workload(Kind::Incast(incast), Span::from_secs(4))];
    assert_eq!(FlowStream::new(&all, 1).count(), 15);
}

#[test]
fn the_seed_decides_and_workloads_do_not_disturb_each_other() {
    let topology = tree();
    let poisson = Kind::Poisson(Poisson {
        endpoints: endpoints(&topology, Locality::Any),
        sizes: SizeDistribution::parse(WEB_SEARCH).expect("valid"),
        intensity: Intensity::Load(0.5),
    });
    let one = [workload(poisson.clone(), Span::from_millis(500))];
    let second = workload(Kind::Incast(incast(&topology)), Span::from_millis(500));
    let both = [one[0].clone(), second];
    let single: Vec<Flow> = FlowStream::new(&one, 1).collect();
    assert!(single.len() > 100);
    let again: Vec<Flow> = FlowStream::new(&one, 1).collect();
    assert_eq!(single, again);
    let among: Vec<Flow> = FlowStream::new(&both, 1)
        .filter(|flow| flow.workload == 0)
        .collect();
    assert_eq!(single, among);
    let other: Vec<Flow> = FlowStream::new(&one, 2).collect();
    assert_ne!(single, other);
    assert!(
        FlowStream::new(&both, 1)
            .collect::<Vec<_>>()
            .is_sorted_by_key(|flow| flow.start)
    );
}

#[test]
fn a_permutation_leaves_no_host_out() {
    let hosts: Vec<u32> = (0..16).collect();
    for seed in 0..50 {
        let kind = Kind::Permutation(Permutation {
            hosts: hosts.clone(),
            bytes: Some(5),
        });
        let all = [workload(kind, Span::from_secs(1))];
        let flows: Vec<Flow> = FlowStream::new(&all, seed).collect();
        let to: BTreeSet<u32> = flows.iter().map(|flow| flow.to).collect();
        assert_eq!((flows.len(), to.len()), (16, 16));
        assert!(
            flows
                .iter()
                .all(|flow| flow.from != flow.to && flow.bytes == Some(5))
        );
    }
}

#[test]
fn bulk_flows_begin_one_after_the_other() {
    let bulk = Bulk {
        pairs: vec![(0, 2), (1, 3)],
        flows: 2,
        bytes: None,
        stagger: Span::from_millis(10),
        jitter: Span::ZERO,
    };
    let mut from = workload(Kind::Bulk(bulk), Span::from_millis(1_025));
    from.start = Time::ZERO + Span::from_secs(1);
    let all = [from];
    let flows: Vec<_> = FlowStream::new(&all, 1)
        .map(|flow| (flow.start.as_nanos() / 1_000_000, flow.from, flow.to))
        .collect();
    // The fourth would begin after the end.
    assert_eq!(flows, [(1_000, 0, 2), (1_010, 1, 3), (1_020, 0, 2)]);
}

#[test]
fn a_trace_is_read_exactly() {
    let text = "# a comment\ntime,from,to,bytes\n0,host-0-0-0,host-1-0-0,1\n\n\
        0.000000000001, host-0-0-1 ,host-0-0-0,1000\n12.5,host-3-1-1,host-0-0-0,7\n";
    let flows = parse_trace(text, &tree()).expect("valid");
    let flows: Vec<_> = flows
        .iter()
        .map(|flow| (flow.start.0, flow.from, flow.to, flow.bytes))
        .collect();
    let expected = [
        (0, 0, 4, Some(1)),
        (1, 1, 0, Some(1000)),
        (12_500_000_000_000, 15, 0, Some(7)),
    ];
    assert_eq!(flows, expected);
}

#[test]
fn wrong_traces_are_refused_with_their_line() {
    let heading = "time,from,to,bytes\n";
    for (lines, line, problem) in [
        ("1,host-0-0-0,host-1-0-0", 2, TraceProblem::Fields),
        (
            "1e3,host-0-0-0,host-1-0-0,5",
            2,
            TraceProblem::Time("1e3".to_owned()),
        ),
        (
            "-1,host-0-0-0,host-1-0-0,5",
            2,
            TraceProblem::Time("-1".to_owned()),
        ),
        (
            "99999999999,host-0-0-0,host-1-0-0,5",
            2,
            TraceProblem::Time("99999999999".to_owned()),
        ),
        (
            "1,host-9-0-0,host-1-0-0,5",
            2,
            TraceProblem::NoSuchHost("host-9-0-0".to_owned()),
        ),
        (
            "1,host-1-0-0,host-1-0-0,5",
            2,
            TraceProblem::ToItself("host-1-0-0".to_owned()),
        ),
        (
            "1,host-0-0-0,host-1-0-0,0",
            2,
            TraceProblem::Bytes("0".to_owned()),
        ),
        (
            "2,host-0-0-0,host-1-0-0,5\n\n1,host-0-0-0,host-1-0-0,5",
            4,
            TraceProblem::Falls,
        ),
    ] {
        let error = parse_trace(&format!("{heading}{lines}"), &tree()).expect_err(lines);
        assert_eq!((error.line, error.problem), (line, problem));
    }
    let error = parse_trace("\nfrom,to\n", &tree()).expect_err("no heading");
    assert_eq!((error.line, error.problem), (2, TraceProblem::Heading));
    assert_eq!(parse_trace("", &tree()).expect_err("empty").line, 1);
}

/// Uniform in 1 s: of 400 flows the mean is half of it, give or take 1 s / sqrt(12 * 400) = 14 ms,
/// here five times that; another seed gives other starts.
#[test]
fn bulk_flows_may_begin_at_random() {
    let bulk = Bulk {
        pairs: vec![(0, 1)],
        flows: 400,
        bytes: None,
        stagger: Span::ZERO,
        jitter: Span::from_secs(1),
    };
    let from = [workload(Kind::Bulk(bulk), Span::from_secs(5))];
    let starts = |seed| -> Vec<u64> {
        FlowStream::new(&from, seed)
            .map(|flow| flow.start.0)
            .collect()
    };
    let some = starts(1);
    assert_eq!(some.len(), 400);
    assert!(some.is_sorted());
    let mean = some.iter().sum::<u64>() / 400;
    assert!(mean.abs_diff(Span::from_millis(500).0) < Span::from_millis(70).0);
    assert_eq!(some, starts(1));
    assert_ne!(some, starts(2));
}
