// SPDX-License-Identifier: Apache-2.0
//! A network's status as text.

use super::control::Status;
use std::io::{self, Write};
use std::net::{Ipv4Addr, Ipv6Addr};

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
        let causes = [
            ("no room", "/dropped/buffer_full"),
            ("lost", "/dropped/lost"),
            ("link down", "/dropped/link_down"),
            ("no route", "/dropped/no_route"),
            ("time to live", "/dropped/ttl_expired"),
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

    /// `@NAME` and `@6:NAME` as addresses; any other word as it is.
    pub fn addressed(&self, word: &str) -> String {
        let Some(name) = word.strip_prefix('@') else {
            return word.to_owned();
        };
        let (six, name) = match name.strip_prefix("6:") {
            Some(name) => (true, name),
            None => (false, name),
        };
        let found = self.nodes().find(|node| node.name == name);
        match found {
            Some(node) if six => node.ipv6.to_string(),
            Some(node) => node.ipv4.to_string(),
            None => word.to_owned(),
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
