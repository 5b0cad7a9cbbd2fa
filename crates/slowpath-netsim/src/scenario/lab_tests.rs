// SPDX-License-Identifier: Apache-2.0
//! What scenarios say to those who run them with real kernels, and who refuses what.

use super::tests::{BASE, files};
use super::{
    HostSetup, IcmpOptions, IcmpRate, Problem, RouterChange, Scenario, ScenarioError, Substrate,
};
use proptest::prelude::*;
use slowpath_switch::fabric::{
    Action, BitErrors, Burst, Change, Condition, Fabric, Impairment, Jitter, Late, Mtu, Pick,
    Police, Remark, Route, Share,
};
use slowpath_switch::{Destination, Limit, PortId, Rate, Span, Time};

/// A network of which all that can happen to it is said. Lines are counted from here.
const NETWORK: &str = r#"seed = 3
[topology]
kind = "custom"
hosts = ["a", "b"]
switches = ["s", "t", "u"]
links = { rate = "1 Gbit/s", delay = "1 ms" }
link = [
  { ends = ["a", "s"] },
  { ends = ["b", "t"] },
  { ends = ["s", "t"] },
  { ends = ["s", "u"] },
  { ends = ["u", "t"] },
]
[switch]
buffer = "100 packets"
[host]
queue = "50 packets"
sysctls = { "net.ipv4.tcp_ecn" = 1, "net.ipv4.tcp_rmem" = "4096 131072 6291456" }
[[host.group]]
hosts = ["b"]
clock = "-1.5 s"
sysctls = { "net.ipv4.tcp_ecn" = 0 }
[[line]]
on = "s -> t"
extra-delay = "2 ms"
jitter = { most = "1 ms", overtaking = true }
loss = "0.1 %"
bit-errors = "1e-7"
corruption = { packets = [3, "7-9"], at-least = "100 B" }
duplication = { every = 100, first = 5 }
reordering = { burst = { begin = "1 %", end = 0.25 }, by = "5 ms" }
[[line]]
on = "a <-> s"
at = "2 s"
rate = "10 Mbit/s"
delay = "20 ms"
up = false
[[route]]
on = "t"
to = ["a"]
via = ["u"]
[[route]]
on = "s"
to = ["b"]
via = []
at = "1 s"
[[line]]
on = "t -> s"
mtu = 1400
mtu-icmp = false
police = { rate = "20 Mbit/s", burst = "30 kB" }
ecn = "clear"
dscp = "CS1"
[[line]]
on = "t -> s"
at = "3 s"
mtu = 1500
police = false
ecn = "keep"
dscp = 46
[[router]]
on = "*"
at = "4 s"
icmp-rate = "0.5 /s"
icmp-delay = { least = "1 ms", most = "3 ms" }
[[router]]
on = "t"
icmp-rate = 10
icmp-burst = 6
icmp-delay = "5 ms"
silent = true
"#;

fn read(text: &str, substrate: Substrate) -> Result<Scenario, ScenarioError> {
    Scenario::parse_for(text, &files, substrate)
}

/// What the text says of the line from s to t.
fn impairment() -> Impairment {
    Impairment {
        delay: Span::from_millis(2),
        jitter: Jitter {
            most: Span::from_millis(1),
            overtaking: true,
        },
        loss: Pick {
            share: Share(1_000_000),
            ..Pick::default()
        },
        bit_errors: BitErrors(100_000_000),
        corruption: Pick {
            numbers: vec![(3, 3), (7, 9)],
            at_least: 100,
            ..Pick::default()
        },
        copies: Pick {
            every: Some((5, 100)),
            ..Pick::default()
        },
        late: Late {
            pick: Pick {
                burst: Some(Burst {
                    begin: Share(10_000_000),
                    end: Share(250_000_000),
                    good: Share::NONE,
                    bad: Share::ALL,
                }),
                ..Pick::default()
            },
            by: Span::from_millis(5),
        },
    }
}

#[test]
fn all_that_happens_to_a_network_is_in_its_plan() {
    let scenario = read(NETWORK, Substrate::Emulator).expect("possible");
    let mut plan = scenario.plan();
    assert_eq!(
        (plan.seed, plan.hosts.len(), plan.switches.len()),
        (3, 2, 3)
    );
    assert_eq!(plan.hosts[0].limit, Limit::packets(50));
    // Link 2 is s - t, so lines 4 and 5.
    assert_eq!(plan.impairments, [(4, impairment())]);
    let at = |ms, action| Change {
        at: Time::ZERO + Span::from_millis(ms),
        action,
    };
    let rate = Rate::from_bits_per_second(10_000_000).expect("in bounds");
    let delay = Span::from_millis(20);
    let no_way = Route {
        switch: 0,
        destination: Destination(1),
        ports: vec![],
    };
    let is_condition = |change: &Change| matches!(change.action, Action::Condition(..));
    plan.changes.retain(|change| !is_condition(change));
    assert_eq!(
        plan.changes,
        [
            at(2000, Action::Rate(0, rate)),
            at(2000, Action::Rate(1, rate)),
            at(2000, Action::Propagation(0, delay)),
            at(2000, Action::Propagation(1, delay)),
            at(2000, Action::Up(0, false)),
            at(1000, Action::Route(no_way)),
        ]
    );
    // t reaches a by u, its third port, after the shortest way was said.
    let last = plan
        .routes
        .iter()
        .rfind(|r| (r.switch, r.destination) == (1, Destination(0)));
    assert_eq!(last.expect("there").ports, [PortId(2)]);
    // The switches themselves can be reached: u is 2 + 2, from s by its third port.
    let to_u = plan
        .routes
        .iter()
        .find(|r| (r.switch, r.destination) == (0, Destination(4)));
    assert_eq!(to_u.expect("there").ports, [PortId(2)]);
    Fabric::new(&scenario.plan()).expect("possible");
}

#[test]
fn conditions_of_lines_are_in_the_plan_at_their_time() {
    let scenario = read(NETWORK, Substrate::Emulator).expect("possible");
    // Back from t to s. The class is the precedence from above: 1 of CS1, 5 of EF.
    let condition = |ms, condition| Change {
        at: Time::ZERO + Span::from_millis(ms),
        action: Action::Condition(5, condition),
    };
    let mtu = Condition::Mtu(Some(Mtu {
        bytes: 1400,
        reported: false,
    }));
    let police = Condition::Police(Some(Police {
        rate: Rate::from_bits_per_second(20_000_000).expect("in bounds"),
        burst: 30_000,
    }));
    let dscp = |dscp, class| Condition::Dscp(Some(Remark { dscp, class }));
    let mut changes = scenario.plan().changes;
    changes.retain(|change| matches!(change.action, Action::Condition(..)));
    assert_eq!(
        changes,
        [
            condition(0, mtu),
            condition(0, police),
            condition(0, Condition::ClearEcn(true)),
            condition(0, dscp(8, 6)),
            condition(3000, Condition::Mtu(None)),
            condition(3000, Condition::Police(None)),
            condition(3000, Condition::ClearEcn(false)),
            condition(3000, dscp(46, 2)),
        ]
    );
}

#[test]
fn routers_answer_as_their_last_entry_says() {
    let scenario = read(NETWORK, Substrate::Emulator).expect("possible");
    let ms = Span::from_millis;
    let t = IcmpOptions {
        silent: true,
        rate: Some(IcmpRate {
            millionths: 10_000_000,
            burst: 6,
        }),
        delay: ms(5),
        jitter: Span::ZERO,
    };
    let all = IcmpOptions {
        silent: false,
        rate: Some(IcmpRate {
            millionths: 500_000,
            burst: 1,
        }),
        delay: ms(1),
        jitter: ms(2),
    };
    let change = |at, router, icmp| RouterChange {
        at: Time::ZERO + ms(at),
        router,
        icmp,
    };
    // In the order of time.
    let expected = [
        change(0, 1, t),
        change(4000, 0, all),
        change(4000, 1, all),
        change(4000, 2, all),
    ];
    assert_eq!(scenario.routers, expected);
}

#[test]
fn a_hosts_interface_has_the_mtu_of_its_line() {
    let base = NETWORK.split("[[line]]").next().expect("before");
    let with = |more: &str| read(&format!("{base}[[line]]\n{more}"), Substrate::Emulator);
    let scenario = with("on = \"* -> *\"\nmtu = 1300").expect("possible");
    assert_eq!(
        [scenario.host_mtu(0), scenario.host_mtu(1)],
        [Some(1300); 2]
    );
    let scenario = with("on = \"s -> a\"\nmtu = 68").expect("a router is at its beginning");
    assert_eq!(scenario.host_mtu(0), None);
    let late = with("on = \"a <-> s\"\nmtu = 1300\nat = \"1 s\"").expect_err("an interface's");
    assert_eq!(late.problem, Problem::HostMtu("a -> s".into()));
    // RFC 8200 section 5: IPv6 needs 1,280.
    let short = with("on = \"a <-> s\"\nmtu = 1279").expect_err("too short for IPv6");
    assert!(
        short
            .to_string()
            .ends_with("1279 is not between 1280 and 1500"),
        "{short}"
    );
}

#[test]
fn impossible_conditions_and_answers_are_named() {
    let base = NETWORK.split("[[line]]").next().expect("before");
    for (more, says) in [
        ("mtu = 9000", "line[0].mtu: 9000 is not between 68 and 1500"),
        (
            "mtu = \"1400 B\"",
            "line[0].mtu: an integer is wanted, not string",
        ),
        ("mtu-icmp = false", "line[0].mtu-icmp: one of mtu is needed"),
        ("mtu-imcp = false", "Did you mean 'mtu-icmp'?"),
        ("ecn = \"claer\"", "Did you mean 'clear'?"),
        (
            "ecn = 0",
            "one of \"clear\", \"keep\" is wanted, not integer",
        ),
        ("dscp = 64", "line[0].dscp: 64 is not between 0 and 63"),
        ("dscp = \"AF31 \"", "Did you mean 'AF31'?"),
        (
            "police = true",
            "police: { rate = \"20 Mbit/s\", burst = \"30 kB\" }, or false, is wanted",
        ),
        (
            "police = { rate = \"1 Mbit/s\" }",
            "line[0].police.burst: missing",
        ),
        (
            "police = { rate = \"1 Mbit/s\", burst = 3 }",
            "line[0].police.burst: 3 of what?",
        ),
        (
            "police = { rate = \"1 Mbit/s\", brust = \"3 kB\" }",
            "Did you mean 'burst'?",
        ),
        (
            "police = { rate = \"1 Mbit/s\", burst = \"3 kB\", x = 1 }",
            "line[0].police.x: unknown key",
        ),
    ] {
        let text = format!("{base}[[line]]\non = \"s -> t\"\n{more}");
        let error = read(&text, Substrate::Emulator)
            .expect_err(more)
            .to_string();
        assert!(error.contains(says), "{more}: {error}");
    }
    for (more, says) in [
        ("on = \"x*\"", "router[0].on: no switch is called 'x*'"),
        ("silent = true", "router[0].on: missing"),
        (
            "on = \"s\"\nicmp-burst = 3",
            "router[0].icmp-burst: one of icmp-rate is needed",
        ),
        (
            "on = \"s\"\nicmp-rate = 0",
            "router[0].icmp-rate: 0 is not between 1 and 1000000",
        ),
        (
            "on = \"s\"\nicmp-rate = \"3\"",
            "the unit is one of /s, /ms, k/s",
        ),
        ("on = \"s\"\nicmp-rat = 3", "Did you mean 'icmp-rate'?"),
        (
            "on = \"s\"\nicmp-delay = 3",
            "router[0].icmp-delay: 3 of what?",
        ),
        (
            "on = \"s\"\nicmp-delay = { least = \"2 s\", most = \"1 s\" }",
            "router[0].icmp-delay.most: is less than least",
        ),
    ] {
        let text = format!("{base}[[router]]\n{more}");
        let error = read(&text, Substrate::Emulator)
            .expect_err(more)
            .to_string();
        assert!(error.contains(says), "{more}: {error}");
    }
}

#[test]
fn only_real_packets_have_conditions_and_only_real_routers_answer() {
    let with = |more: &str| format!("{BASE}{more}");
    for (more, key) in [
        (
            "[[line]]\non = \"left -> right\"\nmtu = 1400\n",
            "line[0].mtu",
        ),
        (
            "[[line]]\non = \"left -> right\"\necn = \"clear\"\n",
            "line[0].ecn",
        ),
        (
            "[[line]]\non = \"left -> right\"\ndscp = 8\n",
            "line[0].dscp",
        ),
        (
            "[[line]]\non = \"left -> right\"\npolice = false\n",
            "line[0].police",
        ),
        ("[[router]]\non = \"left\"\n", "router"),
    ] {
        for substrate in [Substrate::Simulator, Substrate::VirtualTime] {
            let error = read(&with(more), substrate).expect_err(key);
            assert_eq!(
                (&*error.key, &error.problem),
                (key, &Problem::Substrate(substrate))
            );
            let text = error.to_string();
            assert!(
                text.ends_with("cannot do this, but `slowpath lab up` can"),
                "{text}"
            );
        }
        read(&with(more), Substrate::Network).expect("the emulator can");
    }
}

#[test]
fn hosts_have_the_settings_of_all_and_their_own() {
    let scenario = read(NETWORK, Substrate::Emulator).expect("possible");
    let pairs = |pairs: &[(&str, &str)]| {
        let own = pairs
            .iter()
            .map(|(name, value)| ((*name).to_owned(), (*value).to_owned()));
        own.collect::<Vec<_>>()
    };
    let all = [
        ("net.ipv4.tcp_ecn", "1"),
        ("net.ipv4.tcp_rmem", "4096 131072 6291456"),
    ];
    let a = HostSetup {
        clock: 0,
        sysctls: pairs(&all),
    };
    assert_eq!(scenario.host.of(0), a);
    let b = HostSetup {
        clock: -1_500_000_000,
        sysctls: pairs(&[all[0], all[1], ("net.ipv4.tcp_ecn", "0")]),
    };
    assert_eq!(scenario.host.of(1), b);
}

#[test]
fn what_a_substrate_cannot_do_is_an_error_with_its_place() {
    let refused = |text: &str, substrate, line, key: &str| {
        let expected = ScenarioError {
            line,
            key: key.to_owned(),
            problem: Problem::Substrate(substrate),
        };
        assert_eq!(read(text, substrate).expect_err(key), expected);
    };
    let with = |more: &str| format!("{BASE}{more}");
    let lines = BASE.lines().count();
    for (more, key) in [
        ("[host]\nqueue = \"3 packets\"\n", "host.queue"),
        ("[host]\nsysctls = { }\n", "host.sysctls"),
        (
            "[[host.group]]\nhosts = [\"left-0\"]\nclock = \"1 s\"\n",
            "host.group",
        ),
    ] {
        let error = read(&with(more), Substrate::Simulator).expect_err(key);
        assert_eq!(error.key, key);
        assert!(error.line > lines, "{error}");
        assert_eq!(error.problem, Problem::Substrate(Substrate::Simulator));
        // A kernel in virtual time has no sysctls of a host's own.
        let refused = Substrate::VirtualTime.refused().contains(&key);
        assert_eq!(refused, key == "host.sysctls" || key == "host.group");
        assert_eq!(read(&with(more), Substrate::VirtualTime).is_err(), refused);
    }
    let emulator = Substrate::Emulator;
    refused(BASE, emulator, 11, "workload");
    let network = BASE.split("[[workload]]").next().expect("before");
    read(network, emulator).expect("no traffic, no end needed");
    refused(
        &format!("{network}[tcp]\nmss = \"1 kB\"\n"),
        emulator,
        11,
        "tcp",
    );
    refused(
        &network.replace("[switch]", "[switch]\ncount-flows = true"),
        emulator,
        10,
        "switch.count-flows",
    );
    // Whoever wants only the network takes it from any file.
    read(BASE, Substrate::Network).expect("the rest is left aside");
    // A value, and a key below an array.
    let fixed = with("[tcp]\nalgorithm = \"fixed\"\n");
    refused(&fixed, Substrate::VirtualTime, lines + 2, "tcp.algorithm");
    let cubic = with("[tcp]\nalgorithm = \"cubic\"\n");
    read(&cubic, Substrate::VirtualTime).expect("Linux has it");
    let own = with("[workload.tcp]\nslow-start-limit = 5\n");
    refused(
        &own,
        Substrate::VirtualTime,
        lines + 2,
        "workload[0].tcp.slow-start-limit",
    );
    let text = read(&own, Substrate::VirtualTime)
        .expect_err("refused")
        .to_string();
    let place = lines + 2;
    assert_eq!(
        text,
        format!(
            "line {place}: workload[0].tcp.slow-start-limit: virtual time cannot do this, \
             but `slowpath sim` and `slowpath lab up` can"
        )
    );
}

#[test]
fn impossible_lines_routes_and_hosts_are_named() {
    let base = NETWORK.split("[[line]]").next().expect("before");
    let wrong = |more: &str| {
        let text = format!("{base}{more}");
        let error = read(&text, Substrate::Emulator).expect_err(more);
        (error.key, error.problem)
    };
    let line = |more: &str| wrong(&format!("[[line]]\non = \"s -> t\"\n{more}"));
    let no_line = |name: &str| Problem::NoSuchLine(name.to_owned());
    assert_eq!(
        wrong("[[line]]\non = \"a -> t\""),
        ("line[0].on".into(), no_line("a -> t"))
    );
    assert_eq!(
        wrong("[[line]]\non = \"s\""),
        ("line[0].on".into(), no_line("s"))
    );
    let key = |name: &str| format!("line[0].{name}");
    assert_eq!(
        line("loss = { packets = [3, 2] }").0,
        key("loss.packets[1]")
    );
    assert_eq!(
        line("loss = { packets = [\"9-7\"] }"),
        (key("loss.packets[0]"), Problem::NotInOrder)
    );
    assert_eq!(line("loss = { at-least = \"9 B\" }").0, key("loss"));
    assert_eq!(line("loss = { every = 0 }").0, key("loss.every"));
    assert_eq!(line("loss = { first = 3 }").0, key("loss.first"));
    assert_eq!(line("loss = \"101 %\"").0, key("loss"));
    assert_eq!(line("loss = 1e-3").0, key("loss"));
    assert_eq!(line("loss = \"0.00000001 %\"").0, key("loss"));
    assert_eq!(
        line("reordering = { share = \"1 %\" }").0,
        key("reordering.by")
    );
    assert_eq!(line("wrong = 1").0, key("wrong"));
    let route = |more: &str| wrong(&format!("[[route]]\n{more}"));
    let (place, problem) = route("on = \"x\"\nto = [\"a\"]\nvia = []");
    assert_eq!(
        (place.as_str(), problem),
        ("route[0].on", Problem::NoSuchSwitch("x".into()))
    );
    let (place, problem) = route("on = \"s\"\nto = [\"b\"]\nvia = [\"a\"]");
    assert_eq!(
        (place.as_str(), problem),
        ("route[0].via", Problem::Astray("b".into()))
    );
    let (place, problem) = route("on = \"s\"\nto = [\"b\"]\nvia = [\"b\"]");
    assert_eq!(
        (place.as_str(), problem),
        ("route[0].via[0]", Problem::NoSuchPort("s -> b".into()))
    );
    let (place, problem) = wrong("[[host.group]]\nhosts = [\"c\"]");
    assert_eq!(
        (place.as_str(), problem),
        (
            "host.group[1].hosts[0]",
            Problem::NoSuchHost {
                given: "c".to_owned(),
                hosts: "a, b".to_owned(),
            }
        )
    );
    for name in ["kernel.panic", "net.ipv4/../../x", "net..x"] {
        let (place, problem) = wrong(&format!(
            "[[host.group]]\nhosts = [\"a\"]\nsysctls = {{ \"{name}\" = 1 }}"
        ));
        assert_eq!(place, format!("host.group[1].sysctls.\"{name}\""));
        assert_eq!(problem, Problem::NotOfNamespace(name.to_owned()));
    }
}

proptest! {
    #![proptest_config(ProptestConfig { failure_persistence: None, ..ProptestConfig::with_cases(300) })]

    #[test]
    fn a_network_that_is_read_can_be_made(
        changes in proptest::collection::vec((any::<prop::sample::Index>(), any::<u8>()), 0..4),
    ) {
        let mut text = NETWORK.as_bytes().to_vec();
        for (at, byte) in changes {
            let at = at.index(text.len());
            // Characters that mean something to TOML, to numbers and to names.
            text[at] = b"0123456789.-<>*\"[]{}=, abstu"[usize::from(byte) % 28];
        }
        let text = String::from_utf8(text).expect("ASCII");
        if let Ok(scenario) = read(&text, Substrate::Emulator) {
            Fabric::new(&scenario.plan()).expect("the reader has checked it");
        }
    }
}
