// SPDX-License-Identifier: Apache-2.0
use super::*;
use crate::owners::cgroup_path;
use proptest::prelude::*;
use slowpath_model::{CgroupSource, Owner};

fn process(command: &str, executable: &str, line: &str) -> Process {
    Process {
        executable: Some(executable.into()),
        command_line: Some(line.into()),
        ..Owner::named(1, command).process().unwrap().clone()
    }
}

fn tuple(local: u16, remote: u16) -> FourTuple {
    FourTuple::new(
        ([10, 0, 0, 1], local).into(),
        ([10, 0, 0, 2], remote).into(),
    )
}

/// The application of a java process in `unit` with these ports.
fn application(rules: &str, unit: &str, local: u16, remote: u16) -> Option<String> {
    let rules = Rules::parse(rules).unwrap();
    let process = process(
        "java",
        "/usr/lib/jvm/bin/java",
        "java -jar /srv/shop.jar -Dx=1",
    );
    let path = format!("/system.slice/{unit}");
    let cgroup = cgroup_path::cgroup(&path, CgroupSource::Process);
    let of = rules.of(Some(&process), Some(&cgroup));
    let first = rules.first(&of, tuple(local, remote))?;
    rules.name(first).map(|n| n.to_string())
}

const RULES: &str = r#"
[[application]]
name = "search"
cmdline = "*-jar /srv/search*"

[[application]]
name = "shop-db"
cmdline = "*-jar /srv/shop*"
remote-port = 5432

[[application]]
name = "shop"
command = "java"
exe = "/usr/lib/*"
cmdline-regex = "shop(-[0-9.]+)?\\.jar"

[[application]]
name = "web"
unit = "web?.service"
port = "8000-8100"
"#;

#[test]
fn the_first_rule_whose_conditions_all_hold_names_the_application() {
    assert_eq!(
        application(RULES, "a.service", 40000, 80).as_deref(),
        Some("shop")
    );
    assert_eq!(
        application(RULES, "a.service", 40000, 5432).as_deref(),
        Some("shop-db")
    );
    let web = RULES.replace("command = \"java\"", "command = \"jav\"");
    for (unit, local, expected) in [
        ("web1.service", 8080, Some("web")),
        ("web1.service", 8101, None),
        ("web10.service", 8080, None),
    ] {
        assert_eq!(
            application(&web, unit, local, 1).as_deref(),
            expected,
            "{unit}"
        );
    }
}

#[test]
fn an_unknown_process_can_be_named_by_its_cgroup() {
    let rules = Rules::parse("[[application]]\nname = \"a\"\nunit = \"a.service\"\n[[application]]\nname = \"b\"\ncommand = \"*\"").unwrap();
    let cgroup = cgroup_path::cgroup("/a.service", CgroupSource::Socket);
    assert_eq!(rules.of(None, Some(&cgroup)), [0]);
    assert!(rules.of(None, None).is_empty());
}

#[test]
fn what_means_nothing_is_refused_with_its_line() {
    for (text, expected) in [
        ("[[application]]\nname = \"x\"\ncomand = \"y\"", "line 3"),
        ("[[application]]\nname = \"x\"\ncomand = \"y\"", "comand"),
        ("[[aplication]]\nname = \"x\"", "line 1"),
        ("[[application]]\ncommand = \"x\"", "name"),
        (
            "[[application]]\nname = \"x\"",
            "line 2: name: the rule has no condition",
        ),
        (
            "[[application]]\nname = \" \"\nport = 1",
            "line 2: name: is empty",
        ),
        (
            "[[application]]\nname = \"x\"\ncmdline-regex = \"(\"",
            "line 3: cmdline-regex",
        ),
        (
            "[[application]]\nname = \"x\"\nport = \"9-8\"",
            "line 3: port: \"9-8\"",
        ),
        ("[[application]]\nname = \"x\"\nport = 70000", "line 3"),
        (
            "[[application]]\nname = \"x\"\nexe = \"\"",
            "line 3: exe: is empty",
        ),
        ("nonsense", "line 1"),
    ] {
        let error = Rules::parse(text).unwrap_err().to_string();
        assert!(error.contains(expected), "{text}: {error}");
    }
    assert!(Rules::parse("").unwrap().is_empty());
}

proptest! {
    #[test]
    fn globs_are_what_their_regular_expressions_are(
        pattern in "[ab*?]{0,8}", text in "[ab]{0,10}",
    ) {
        let regex: String = pattern
            .chars()
            .map(|c| match c {
                '*' => ".*".to_owned(),
                '?' => ".".to_owned(),
                c => c.to_string(),
            })
            .collect();
        let regex = Regex::new(&format!("^{regex}$")).unwrap();
        prop_assert_eq!(glob(pattern.as_bytes(), text.as_bytes()), regex.is_match(&text));
    }
}
