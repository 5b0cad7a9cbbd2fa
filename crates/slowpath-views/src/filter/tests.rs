// SPDX-License-Identifier: Apache-2.0
use super::*;
use proptest::prelude::*;

struct FixedNames;

impl Names for FixedNames {
    fn port(&self, service: &str) -> Option<u16> {
        match service {
            "ssh" => Some(22),
            "https" => Some(443),
            _ => None,
        }
    }
    fn addresses(&self, host: &str) -> Vec<IpAddr> {
        match host {
            "db.example" => vec!["10.0.0.7".parse().unwrap(), "2001:db8::7".parse().unwrap()],
            _ => Vec::new(),
        }
    }
    fn ephemeral_ports(&self) -> RangeInclusive<u16> {
        32768..=60999
    }
}

fn parse(text: &str) -> Filter {
    Filter::parse(text, &FixedNames).unwrap_or_else(|e| panic!("{e}"))
}

fn kind(text: &str) -> FilterErrorKind {
    Filter::parse(text, &FixedNames).unwrap_err().kind
}

/// local, remote, selected by a filter; state Established, owner nginx (7), Timeout.
fn selects(text: &str, local: &str, remote: &str) -> bool {
    let owner = Owner::named(7, "nginx");
    parse(text).selects(&Subject {
        local: local.parse().unwrap(),
        remote: remote.parse().unwrap(),
        state: TcpState::Established,
        owner: &owner,
        problems: ProblemSet::EMPTY.with(Problem::Timeout),
    })
}

const CLIENT: &str = "10.0.0.1:40000";
const SERVER: &str = "10.0.0.7:443";

#[test]
fn host_conditions_select_as_ss_does() {
    for (text, expected) in [
        ("", true),
        ("dst 10.0.0.0/8", true),
        ("dst = 10.0.0.7", true),
        ("dst == 10.0.0.7:443", true),
        ("dst 10.0.0.7:https", true),
        ("dst 10.0.0.7:80", false),
        ("dst 10.0.0/24:443", true),
        ("dst 10.0.1/24", false),
        ("dst :443", true),
        ("dst *:443", true),
        ("dst *", true),
        ("dst any", true),
        ("dst 0.0.0.0/0", true),
        ("dst [::]/0", false),
        ("dst [::ffff:10.0.0.7]", true),
        ("dst [::ffff:10.0.0.0/104]:443", true),
        ("dst [2001:db8::/32]", false),
        ("dst db.example", true),
        ("dst inet:db.example:443", true),
        ("dst inet6:db.example", false),
        ("dst inet6:*:443", false),
        ("dst != 10.0.0.7", false),
        ("src 10.0.0.7", false),
        ("src 10.0.0.1", true),
    ] {
        assert_eq!(selects(text, CLIENT, SERVER), expected, "{text}");
    }
    for (text, expected) in [
        ("dst [2001:db8::7]:443", true),
        ("dst [2001:db8::/32]", true),
        ("dst [2001:db8::]/32:443", true),
        ("dst 2001:db8::/32", true),
        ("dst 2001:db8::/32:80", false),
        ("dst db.example:443", true),
        ("dst 10.0.0.0/8", false),
        ("dst 0.0.0.0/0", false),
        ("dst [::/0]", true),
    ] {
        assert_eq!(
            selects(text, "[2001:db8::1]:40000", "[2001:db8::7]:443"),
            expected,
            "{text}"
        );
    }
}

#[test]
fn port_conditions_select_as_ss_does() {
    for (text, expected) in [
        ("dport = :443", true),
        ("dport=:443", true),
        ("dport :443", true),
        ("dport 443", true),
        ("dport eq https", true),
        ("dport = 0x1bb", true),
        ("dport != :443", false),
        ("sport != :22", true),
        ("sport >= :1024", true),
        ("sport gt :40000", false),
        ("sport ge :40000", true),
        ("sport lt :40000", false),
        ("sport le 40000", true),
        ("dport = :*", true),
        ("dport <= :*", false),
        ("dport != :*", false),
        ("dport = inet:443", true),
        ("dport = inet6::443", false),
        ("autobound", true),
        ("! autobound", false),
    ] {
        assert_eq!(selects(text, CLIENT, SERVER), expected, "{text}");
    }
    assert!(!selects("autobound", "10.0.0.1:22", SERVER));
}

/// Observed with iproute2 6.1's `ss`: `a or b and c` is `(a or b) and c`.
#[test]
fn and_and_or_group_from_the_left() {
    let mixed = "sport = :40000 or sport = :1 and dport = :1";
    assert!(!selects(mixed, CLIENT, SERVER));
    assert!(
        parse(mixed)
            .notes()
            .is_some_and(|n| n.contains("( sport = :40000 or sport = :1 )"))
    );
    assert!(selects(
        "sport = :40000 or ( sport = :1 and dport = :1 )",
        CLIENT,
        SERVER
    ));
    assert!(
        parse("dport = :1 or ( sport = :1 and dport = :1 )")
            .notes()
            .is_none()
    );
    assert!(selects(
        "dport = :1 and sport = :1 or sport = :40000",
        CLIENT,
        SERVER
    ));
    assert!(!selects("not sport = :40000 dport = :443", CLIENT, SERVER));
    assert!(selects("(dport=:443 or sport=:443)", CLIENT, SERVER));
    assert!(selects(
        "not ( dport = :22 | sport = :22 ) && dst 10.0.0.7",
        CLIENT,
        SERVER
    ));
}

#[test]
fn states_add_up_and_exclude_takes_away() {
    let state = |text: &str, state| {
        let filter = parse(text);
        filter.selects(&Subject {
            local: CLIENT.parse().unwrap(),
            remote: SERVER.parse().unwrap(),
            state,
            owner: &Owner::default(),
            problems: ProblemSet::EMPTY,
        })
    };
    use TcpState::*;
    for (text, yes, no) in [
        ("state established", Established, CloseWait),
        ("state connected", SynSent, Close),
        ("state connected", TimeWait, Listen),
        ("state synchronized", Established, SynSent),
        ("state bucket", NewSynReceived, Established),
        ("state big", Established, TimeWait),
        ("state fin-wait-1 state fin-wait-2", FinWait2, Established),
        ("exclude established", CloseWait, Established),
        ("state all excl closed", Established, Close),
        ("state ESTABLISHED dport = :443", Established, SynSent),
    ] {
        assert!(state(text, yes), "{text} {yes:?}");
        assert!(!state(text, no), "{text} {no:?}");
    }
    assert!(state("state all", Close) && state("state all", NewSynReceived));
    assert!(!state("state established dport = :22", Established));
}

#[test]
fn our_own_words() {
    for (text, expected) in [
        ("pid 7", true),
        ("pid != 7", false),
        ("pid >= 8", false),
        ("process nginx", true),
        ("process ngi*", true),
        ("process *gin*", true),
        ("process ng*y", false),
        ("process != nginx", false),
        ("process \"nginx\"", true),
        ("problem timeout", true),
        ("problem = DelayedAck", false),
        ("problem != DelayedAck and dport = :443", true),
    ] {
        assert_eq!(selects(text, CLIENT, SERVER), expected, "{text}");
    }
}

#[test]
fn an_unknown_owner_is_no_process() {
    let subject = Subject {
        local: CLIENT.parse().unwrap(),
        remote: SERVER.parse().unwrap(),
        state: TcpState::Established,
        owner: &Owner::default(),
        problems: ProblemSet::EMPTY,
    };
    for (text, expected) in [
        ("pid 7", false),
        ("pid < 7", false),
        ("pid != 7", true),
        ("process *", false),
        ("process != nginx", true),
    ] {
        assert_eq!(parse(text).selects(&subject), expected, "{text}");
    }
}

#[test]
fn errors_say_what_is_wrong() {
    use FilterErrorKind::*;
    assert!(matches!(kind("dst ::1"), Brackets(_)));
    assert!(matches!(kind("dst nowhere.example"), Host(_)));
    assert!(matches!(kind("dst 10.0.0.256"), Host(_)));
    assert!(matches!(kind("dst 10.0.0.0/33"), PrefixLength(_)));
    assert!(matches!(kind("dst [::1]x"), Host(_)));
    assert!(matches!(kind("dst < 10.0.0.1"), Order { .. }));
    assert!(matches!(kind("dport = :70000"), Port(_)));
    assert!(matches!(kind("dport = :nosuch"), Port(_)));
    assert!(matches!(kind("dport ="), Ends { .. }));
    assert!(matches!(kind("( dport = :1"), Ends { .. }));
    assert!(matches!(kind("dport = :1 )"), Unexpected { .. }));
    assert!(matches!(kind("and"), Unexpected { .. }));
    assert!(matches!(kind("10.0.0.1"), Unexpected { .. }));
    assert!(matches!(kind("state nosuch"), State(_)));
    assert!(matches!(kind("dport = :1 state established"), StateLate(_)));
    assert!(matches!(kind("dev = eth0"), Unsupported { .. }));
    assert!(matches!(kind("fwmark = 1"), Unsupported { .. }));
    assert!(matches!(kind("cgroup = /x"), Unsupported { .. }));
    assert!(matches!(kind("src unix:/x"), Unsupported { .. }));
    assert!(matches!(kind("problem Nosuch"), Problem(_)));
    assert!(matches!(kind("problem > Timeout"), Order { .. }));
    assert!(matches!(kind("pid x"), Pid(_)));
    assert!(matches!(kind("process \"x"), Quote));
    assert!(matches!(kind(&"( ".repeat(10_000)), TooLong(_)));
    assert!(matches!(kind(&"autobound ".repeat(10_000)), TooLong(_)));
}

#[test]
fn the_caret_stands_under_the_place() {
    let text = "dst 10.0.0.1 and dport = :nosuch";
    let error = Filter::parse(text, &FixedNames).unwrap_err().to_string();
    let lines: Vec<&str> = error.lines().collect();
    assert_eq!(lines[1].trim_start(), text);
    let start = lines[2].find('^').unwrap();
    assert_eq!(&lines[1][start..start + lines[2].trim().len()], ":nosuch");
}

fn names() -> impl Strategy<Value = String> {
    prop_oneof![
        "[a-z*\"\\\\ ()!=&é]{0,8}",
        Just("and".to_owned()),
        Just("nginx: worker".to_owned())
    ]
}

fn prefix() -> impl Strategy<Value = Option<Prefix>> {
    prop_oneof![
        Just(None),
        (any::<u32>(), 0..=32u8).prop_map(|(a, l)| Prefix::new(IpAddr::V4(a.into()), l)),
        (any::<u128>(), 0..=128u8).prop_map(|(a, l)| Prefix::new(IpAddr::V6(a.into()), l)),
        any::<u32>()
            .prop_map(|a| Prefix::new(IpAddr::V6((0xffff_0000_0000 | u128::from(a)).into()), 100)),
    ]
}

fn comparison() -> impl Strategy<Value = Comparison> {
    use Comparison::*;
    prop::sample::select(vec![
        Equal,
        NotEqual,
        Less,
        LessOrEqual,
        Greater,
        GreaterOrEqual,
    ])
}

fn expression() -> impl Strategy<Value = Expression> {
    let side = || prop::sample::select(vec![Side::Local, Side::Remote]);
    let family = prop::sample::select(vec![None, Some(Family::Inet), Some(Family::Inet6)]);
    let leaf = prop_oneof![
        (side(), family, prefix(), any::<Option<u16>>()).prop_map(
            |(side, family, prefix, port)| {
                Expression::Host {
                    side,
                    family,
                    prefix,
                    port,
                }
            }
        ),
        (side(), comparison(), any::<Option<u16>>()).prop_map(|(side, comparison, port)| {
            Expression::Port {
                side,
                comparison,
                port,
            }
        }),
        Just(Expression::Autobound),
        (comparison(), any::<u32>())
            .prop_map(|(comparison, pid)| Expression::Pid { comparison, pid }),
        (any::<bool>(), names())
            .prop_map(|(negated, pattern)| Expression::Process { negated, pattern }),
        (any::<bool>(), prop::sample::select(Problem::ALL.to_vec()))
            .prop_map(|(negated, problem)| Expression::Problem { negated, problem }),
    ];
    leaf.prop_recursive(6, 40, 2, |inner| {
        prop_oneof![
            (inner.clone(), inner.clone())
                .prop_map(|(a, b)| Expression::And(Box::new(a), Box::new(b))),
            (inner.clone(), inner.clone())
                .prop_map(|(a, b)| Expression::Or(Box::new(a), Box::new(b))),
            inner.prop_map(|a| Expression::Not(Box::new(a))),
        ]
    })
}

proptest! {
    #[test]
    fn printing_and_parsing_gives_the_same(expression in expression()) {
        let text = expression.to_string();
        let filter = Filter::parse(&text, &FixedNames).unwrap();
        prop_assert_eq!(filter.expression.as_ref(), Some(&expression), "{}", text);
        prop_assert!(filter.notes().is_none(), "{}", text);
    }

    #[test]
    fn states_print_and_parse(names in prop::collection::vec(
        ("state|exclude", prop::sample::select(vec![
            "all", "connected", "synchronized", "bucket", "big", "closed", "syn-recv", "established",
        ])), 1..5)) {
        let text: Vec<String> = names.iter().map(|(word, name)| format!("{word} {name}")).collect();
        let filter = Filter::parse(&text.join(" "), &FixedNames).unwrap();
        prop_assert_eq!(Filter::parse(&filter.to_string(), &FixedNames).unwrap().states, filter.states);
    }

    #[test]
    fn no_text_panics(text in "\\PC{0,60}") {
        if let Err(error) = Filter::parse(&text, &FixedNames) {
            let _ = error.to_string();
        }
    }

    #[test]
    fn no_words_panic(words in prop::collection::vec(prop::sample::select(vec![
        "dst", "src", "dport", "sport", "=", "!=", "<", "(", ")", "and", "or", "not", "[::1]:80",
        "10.0.0.0/8", ":443", "*", "[", "]", "/", ":", "state", "exclude", "pid", "process",
        "problem", "\"", "é", "inet:", "autobound", "&", "|", "!",
    ]), 0..12), gap in "| ") {
        let text = words.join(&gap);
        match Filter::parse(&text, &FixedNames) {
            Err(error) => { let _ = error.to_string(); }
            Ok(filter) => {
                let again = Filter::parse(&filter.to_string(), &FixedNames).unwrap();
                prop_assert_eq!(again.expression, filter.expression);
            }
        }
    }
}
