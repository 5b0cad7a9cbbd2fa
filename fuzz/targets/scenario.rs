// SPDX-License-Identifier: Apache-2.0
//! A scenario's text, and behind a line of `===` that of every file that it names.
#![no_main]

use libfuzzer_sys::fuzz_target;
use slowpath_netsim::scenario::{Scenario, ScenarioError, Substrate};
use slowpath_switch::fabric::{Fabric, Plan};
use slowpath_switch::{Header, Span, Switch, Time};
use std::io::{Error, ErrorKind};

fuzz_target!(
    init: slowpath_fuzz::write_seeds(seeds),
    |data: &[u8]| {
        let Ok(text) = std::str::from_utf8(data) else {
            return;
        };
        for substrate in [
            Substrate::Simulator,
            Substrate::Emulator,
            Substrate::Network,
            Substrate::VirtualTime,
        ] {
            match parse(text, substrate) {
                Ok(scenario) => check(&scenario),
                Err(error) => {
                    assert!((1..=text.lines().count() + 1).contains(&error.line), "{error}");
                    assert!(!error.to_string().is_empty());
                }
            }
        }
    }
);

fn parse(text: &str, substrate: Substrate) -> Result<Scenario, ScenarioError> {
    let (text, file) = text.split_once("\n===\n").unwrap_or((text, ""));
    let files = |name: &str| match name {
        "" => Err(Error::from(ErrorKind::NotFound)),
        _ => Ok(file.to_owned()),
    };
    Scenario::parse_for(text, &files, substrate)
}

/// What was read can be run.
fn check(scenario: &Scenario) {
    assert!(scenario.duration > Span::ZERO && scenario.until > Time::ZERO);
    assert!(scenario.tcp.iter().all(|tcp| tcp.check().is_ok()));
    let topology = &scenario.topology;
    let hosts = topology.hosts().len() as u32;
    let switches = topology.switches().len() as u32;
    if hosts.saturating_mul(switches) < 10_000 {
        let mut built: Vec<Switch<Header>> = (0..switches)
            .map(|switch| Switch::new(&scenario.switch_config(switch)).expect("it was checked"))
            .collect();
        topology.for_each_route(|switch, host, ports| {
            assert!(!ports.is_empty());
            built[switch as usize]
                .set_route(host, ports)
                .expect("a port that is there");
        });
        let plan = scenario.plan();
        let bytes = plan.encode();
        assert_eq!(
            Plan::decode(&bytes).expect("it was encoded").encode(),
            bytes
        );
        Fabric::new(&plan).expect("it was checked");
    }
    let mut last = Time::ZERO;
    for flow in scenario.flows().take(200) {
        assert!(flow.start >= last && flow.start < scenario.until);
        last = flow.start;
        assert!(flow.source != flow.destination && flow.bytes > 0);
        assert!(flow.source.0 < hosts && flow.destination.0 < hosts);
        assert!(flow.class < scenario.switch.classes);
    }
}

fn seeds() -> Vec<Vec<u8>> {
    let network = "duration = \"1 s\"\ndrain = \"10 ms\"\nseed = 7\n[topology]\n";
    let links = "links = { rate = \"1 Gbit/s\", delay = \"1.5 us\", buffer = \"9 kB\" }\n";
    let switch = "[switch]\nbuffer = [\"100 packets\", \"150 kB\"]\nshared-buffer = \"2 MB\"\n\
        alpha = \"1/2\"\nmarking = \"20 packets\"\nclasses = 2\ndetour = { mark = false }\n\
        [host]\nttl = 64\n";
    let tcp = "[tcp]\npreset = \"dctcp\"\nloss-detection = \"duplicate-acks\"\n\
        duplicate-ack-threshold = 45\nrto-min = \"10 ms\"\ndelayed-ack = \"off\"\n\
        receive-window = { initial = \"64 kB\", max = \"1 MiB\" }\nmss = \"1460 B\"\n";
    let shapes = [
        "kind = \"fat-tree\"\nk = 4\nfabric-links = { rate = \"10 Gbit/s\" }\n",
        "kind = \"leaf-spine\"\nleaves = 3\nspines = 2\nhosts-per-leaf = 2\n",
        "kind = \"dumbbell\"\nleft = 3\nright = 3\n",
        "kind = \"custom\"\nhosts = [\"a\", \"b\"]\nswitches = [\"s\"]\n\
            link = [{ ends = [\"a\", \"s\"] }, { ends = [\"b\", \"s\"], rate = \"5 Mbit/s\" }]\n",
    ];
    let workloads = [
        "[[workload]]\nkind = \"poisson\"\nload = 0.3\nsizes = { file = \"f\" }\n\
            among = \"other-rack\"\n\n===\n0 0\n1000 0.5\n20000 1\n",
        "[[workload]]\nkind = \"incast\"\nrate = \"300 /s\"\ndegree = 1\nresponse = \"20 kB\"\n\
            jitter = \"1 ms\"\nclass = 1\ntcp = { algorithm = \"cubic\", hystart = true }\n",
        "[[workload]]\nkind = \"bulk\"\nfrom = [\"left-*\"]\nto = [\"right-*\"]\nflows = 2\n\
            stagger = \"1 ms\"\nwrite = { bytes = \"1 kB\", every = \"1 ms\" }\n\
            [measure]\nqueues = [\"left -> right\"]\nevery = \"1 ms\"\n",
        "[[workload]]\nkind = \"trace\"\nfile = \"f\"\n[[workload]]\nkind = \"permutation\"\n\
            bytes = \"1 MB\"\ndatagram = \"1500 B\"\n\n===\ntime,from,to,bytes\n0.5,a,b,7\n",
    ];
    let join = |(shape, workload): (&&str, &&str)| {
        let text = [network, shape, links, switch, tcp, workload].concat();
        if let Err(error) = parse(&text, Substrate::Simulator) {
            panic!("{error}\n{text}");
        }
        text.into_bytes()
    };
    let emulated = [
        network,
        shapes[3],
        links,
        "[[line]]\non = \"a <-> s\"\njitter = \"4 ms\"\nloss = \"1 %\"\n\n===\n",
    ];
    let mut seeds: Vec<Vec<u8>> = shapes.iter().zip(&workloads).map(join).collect();
    seeds.push(emulated.concat().into_bytes());
    seeds
}
