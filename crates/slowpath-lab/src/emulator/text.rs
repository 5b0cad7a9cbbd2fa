// SPDX-License-Identifier: Apache-2.0
//! A network's status as text.

use super::control::Status;
use std::io::{self, Write};
use std::net::{Ipv4Addr, Ipv6Addr};

/// What joins the parts of a name.
const JOINTS: [char; 3] = ['-', '_', '.'];

/// A name behind an `@` that no host or router has.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("@{name}: no host or router is called '{name}'; there are {}; @@ is an @", known.join(", "))]
pub struct UnknownName {
    /// The name.
    pub name: String,
    /// Those that there are.
    pub known: Vec<String>,
}

/// A host or a router.
struct Node<'a> {
    kind: &'static str,
    name: &'a str,
    ipv4: Ipv4Addr,
    ipv6: Ipv6Addr,
}

impl Status {
    /// Writes each host and router with its addresses, and how to run a command in one.
    ///
    /// # Errors
    ///
    /// If `out` does not take it.
    pub fn write_hosts(&self, out: &mut impl Write) -> io::Result<()> {
        writeln!(out, "{}, process {}", self.name, self.pid)?;
        let wide = self.nodes().map(|node| node.name.len()).max().unwrap_or(0);
        for Node {
            kind,
            name,
            ipv4,
            ipv6,
        } in self.nodes()
        {
            let ipv4 = ipv4.to_string();
            writeln!(out, "  {kind:6} {name:wide$}  {ipv4:15}  {ipv6}")?;
        }
        if let Some(host) = self.hosts.first() {
            writeln!(
                out,
                "slowpath lab exec -n {} {} -- COMMAND",
                self.name, host.name
            )?;
        }
        Ok(())
    }

    /// Writes what became of the packets, and how late the emulator was: of a
    /// [`Report`](super::Report), the counts above 0.
    ///
    /// # Errors
    ///
    /// If `out` does not take it.
    pub fn write_report(&self, out: &mut impl Write) -> io::Result<()> {
        let report = &self.report;
        let number = |way: &str| {
            report
                .pointer(way)
                .and_then(serde_json::Value::as_u64)
                .unwrap_or(0)
        };
        writeln!(
            out,
            "{}: {} packets sent, {} delivered, {} copied, {} under way",
            self.name,
            number("/sent"),
            number("/delivered"),
            number("/copies"),
            number("/inside"),
        )?;
        let sum = |list: &str, key: &str| {
            let members = report.pointer(list).and_then(serde_json::Value::as_array);
            let numbers = members
                .into_iter()
                .flatten()
                .filter_map(|it| it[key].as_u64());
            numbers.sum::<u64>()
        };
        let causes = [
            ("no room", "/dropped/buffer_full"),
            ("lost", "/dropped/lost"),
            ("link down", "/dropped/link_down"),
            ("no route", "/dropped/no_route"),
            ("time to live", "/dropped/ttl_expired"),
            ("too long", "/dropped/too_long"),
            ("policed", "/dropped/policed"),
            ("too many", "/dropped/too_many"),
            ("not read", "/not_read"),
            ("not taken", "/not_taken"),
        ];
        let found = causes.map(|(word, way)| (word, number(way)));
        let words: Vec<String> = found
            .iter()
            .filter(|(_, count)| *count > 0)
            .map(|(word, count)| format!("{word} {count}"))
            .collect();
        if !words.is_empty() {
            writeln!(out, "  dropped: {}", words.join(", "))?;
        }
        let mut also = vec![
            ("marked", number("/marked")),
            ("detours", number("/detours")),
            ("fragmented", number("/fragmented")),
            ("fragments", number("/fragments")),
            ("ECN cleared", sum("/lines", "ecn_cleared")),
            ("DSCP set", sum("/lines", "dscp_set")),
            ("ICMP suppressed", sum("/routers", "icmp_suppressed")),
        ];
        also.retain(|(_, count)| *count > 0);
        let also: Vec<String> = also.iter().map(|(word, n)| format!("{word} {n}")).collect();
        if !also.is_empty() {
            writeln!(out, "  {}", also.join(", "))?;
        }
        writeln!(
            out,
            "  lateness: median {} us, 99 % {} us, most {} us; {} of {} over {} us",
            number("/lateness/median_us"),
            number("/lateness/p99_us"),
            number("/lateness/most_us"),
            number("/lateness/over_bound"),
            number("/lateness/packets"),
            number("/lateness/bound_us"),
        )?;
        Ok(())
    }

    /// A word with `@NAME` and `@6:NAME` as addresses, wherever they stand in it. Behind a letter or digit the `@` stays, and only a name that is known is
    /// replaced (`me@b`); `@@` is an `@`.
    ///
    /// # Errors
    /// A name that no host or router has.
    pub fn addressed(&self, word: &str) -> Result<String, UnknownName> {
        let mut text = String::new();
        let mut rest = word;
        while let Some((before, after)) = rest.split_once('@') {
            text.push_str(before);
            if let Some(after) = after.strip_prefix('@') {
                text.push('@');
                rest = after;
                continue;
            }
            let is_user = before.ends_with(|it: char| it.is_ascii_alphanumeric());
            if is_user {
                text.push('@');
            }
            rest = match self.address(after) {
                Some((address, behind)) => {
                    text += &address;
                    behind
                }
                None if is_user => after,
                // A shell's `$@` and the like.
                None if self.unknown(after).name.is_empty() => {
                    text.push('@');
                    after
                }
                None => return Err(self.unknown(after)),
            };
        }
        text.push_str(rest);
        Ok(text)
    }

    /// The address of the longest name that the text begins with, and the text behind it.
    fn address<'t>(&self, text: &'t str) -> Option<(String, &'t str)> {
        let (six, text) = match text.strip_prefix("6:") {
            Some(text) => (true, text),
            None => (false, text),
        };
        let goes_on = |behind: &str| behind.starts_with(|it: char| it.is_ascii_alphanumeric());
        // `left-9` is not `left` where there is one.
        let whole = |behind: &str| !goes_on(behind) && !goes_on(behind.trim_start_matches(JOINTS));
        let named = self.nodes().filter_map(|node| {
            let behind = text.strip_prefix(node.name).filter(|it| whole(it))?;
            Some((node, behind))
        });
        let (node, behind) = named.max_by_key(|(node, _)| node.name.len())?;
        let address = if six {
            node.ipv6.to_string()
        } else {
            node.ipv4.to_string()
        };
        Some((address, behind))
    }

    fn unknown(&self, text: &str) -> UnknownName {
        let text = text.strip_prefix("6:").unwrap_or(text);
        let part = |it: char| it.is_ascii_alphanumeric() || JOINTS.contains(&it);
        let end = text.find(|it| !part(it)).unwrap_or(text.len());
        UnknownName {
            name: text[..end].to_owned(),
            known: self.nodes().map(|node| node.name.to_owned()).collect(),
        }
    }

    /// Hosts, then routers.
    fn nodes(&self) -> impl Iterator<Item = Node<'_>> {
        let hosts = self.hosts.iter().map(|host| Node {
            kind: "host",
            name: &host.name,
            ipv4: host.ipv4,
            ipv6: host.ipv6,
        });
        hosts.chain(self.routers.iter().map(|router| Node {
            kind: "router",
            name: &router.name,
            ipv4: router.ipv4,
            ipv6: router.ipv6,
        }))
    }
}

#[cfg(test)]
mod tests {
    use super::super::control::{HostStatus, RouterStatus};
    use super::*;

    fn status() -> Status {
        let host = |name: &str, last: u8| HostStatus {
            name: name.to_owned(),
            ipv4: Ipv4Addr::new(10, 0, 0, last),
            ipv6: Ipv6Addr::new(0xfd00, 0, 0, 0, 0, 0, 0, u16::from(last)),
            descriptors: (0, 0, None),
        };
        Status {
            name: "net".to_owned(),
            pid: 1,
            hosts: vec![host("a", 1), host("left-0", 2)],
            routers: vec![RouterStatus {
                name: "left".to_owned(),
                ipv4: Ipv4Addr::new(10, 0, 9, 1),
                ipv6: Ipv6Addr::LOCALHOST,
            }],
            report: serde_json::Value::Null,
            complaint: None,
        }
    }

    #[test]
    fn names_are_addresses_wherever_they_stand() {
        let status = status();
        for (word, expected) in [
            ("@a", "10.0.0.1"),
            ("@6:a", "fd00::1"),
            ("http://@left-0:8080/@left", "http://10.0.0.2:8080/10.0.9.1"),
            ("http://[@6:left-0]:80/", "http://[fd00::2]:80/"),
            ("me@a", "me@10.0.0.1"),
            ("me@example.org", "me@example.org"),
            ("@@file", "@file"),
            ("echo \"$@\" ${all[@]}", "echo \"$@\" ${all[@]}"),
            ("@a.", "10.0.0.1."),
            ("plain", "plain"),
        ] {
            assert_eq!(status.addressed(word).as_deref(), Ok(expected), "{word}");
        }
    }

    #[test]
    fn unknown_names_are_refused_with_those_there_are() {
        let status = status();
        for (word, name) in [
            ("@b", "b"),
            ("x:@left-9/y", "left-9"),
            ("@6:c", "c"),
            ("@ab", "ab"),
        ] {
            let error = status.addressed(word).unwrap_err();
            assert_eq!(error.name, name);
            assert!(error.to_string().contains("a, left-0, left"), "{error}");
        }
    }
}
