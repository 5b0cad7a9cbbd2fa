// SPDX-License-Identifier: Apache-2.0
//! Chains of routers as scenarios: host a, routers r1 to rn, host b, and hosts beside them that send cross traffic.

use std::fmt::Write;

/// A chain, and what is wrong with it.
pub struct Chain {
    /// Between a and b.
    pub routers: usize,
    /// Delay of each link, one way, in microseconds; one more than routers.
    pub delays: Vec<f64>,
    /// Rate of each link in Mbit/s; one more than routers.
    pub rates: Vec<f64>,
    /// Routers' buffers.
    pub buffer: String,
    /// The link, counted from 1, that hosts c and d send cross traffic over.
    pub crossed: Option<usize>,
    /// Further lines of TOML.
    pub more: String,
}

impl Chain {
    pub fn new(delays: Vec<f64>) -> Self {
        Chain {
            routers: delays.len() - 1,
            rates: vec![100.0; delays.len()],
            delays,
            buffer: "200 packets".to_owned(),
            crossed: None,
            more: String::new(),
        }
    }

    /// How many links lie between a and b.
    pub fn links(&self) -> usize {
        self.routers + 1
    }

    /// The node that link `link`, counted from 1, begins at.
    pub fn near(&self, link: usize) -> String {
        self.node(link - 1)
    }

    /// The node that it ends at.
    pub fn far(&self, link: usize) -> String {
        self.node(link)
    }

    fn node(&self, at: usize) -> String {
        match at {
            0 => "a".to_owned(),
            at if at > self.routers => "b".to_owned(),
            at => format!("r{at}"),
        }
    }

    /// The scenario.
    pub fn text(&self) -> String {
        let routers: Vec<String> = (1..=self.routers).map(|at| format!("r{at}")).collect();
        let mut hosts = vec!["a", "b"];
        let mut links = String::new();
        for link in 1..=self.links() {
            let _ = writeln!(
                links,
                "  {{ ends = [\"{}\", \"{}\"], rate = \"{:.3} Mbit/s\", delay = \"{:.0} us\" }},",
                self.near(link),
                self.far(link),
                self.rates[link - 1],
                self.delays[link - 1]
            );
        }
        if let Some(link) = self.crossed {
            hosts.extend(["c", "d"]);
            for (host, router) in [("c", self.near(link)), ("d", self.far(link))] {
                let _ = writeln!(links, "  {{ ends = [\"{host}\", \"{router}\"] }},");
            }
        }
        format!(
            "[topology]\nkind = \"custom\"\nhosts = {hosts:?}\nswitches = {routers:?}\n\
             links = {{ rate = \"1 Gbit/s\", delay = \"50 us\" }}\nlink = [\n{links}]\n\
             [switch]\nbuffer = \"{}\"\n[host]\nttl = 64\n{}",
            self.buffer, self.more
        )
    }
}
