// SPDX-License-Identifier: Apache-2.0
//! A test network: two namespaces and the links between them.

use crate::netns::{self, Namespace};
use crate::process::{self, Process};
use crate::workload::{DriveOptions, ServeOptions};
use crate::{Counters, Link, LinkOptions, TestbedError};
use std::sync::atomic::{AtomicU32, Ordering};

/// One of a testbed's two namespaces.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Side {
    /// Where connections are opened: the data sender of every scenario.
    A,
    /// Where they are accepted.
    B,
}

/// Sysctls pinned in every namespace, and why. A scenario may set others on top.
pub const PINNED_SYSCTLS: &[(&str, &str, &str)] = &[
    (
        "net.ipv4.tcp_congestion_control",
        "reno",
        "a namespace takes only what the machine's tcp_allowed_congestion_control lists, \
         which always has reno; workloads choose cubic on their sockets",
    ),
    (
        "net.ipv4.tcp_no_metrics_save",
        "1",
        "one connection's ssthresh and RTT must not start the next one",
    ),
    (
        "net.ipv4.tcp_rmem",
        "4096 131072 6291456",
        "the kernel's default, which it scales with memory",
    ),
    (
        "net.ipv4.tcp_wmem",
        "4096 16384 4194304",
        "the kernel's default, which it scales with memory",
    ),
    (
        "net.ipv4.tcp_slow_start_after_idle",
        "1",
        "the kernel's default; it decides the window after a pause",
    ),
    ("net.ipv4.tcp_sack", "1", "RACK needs SACK (RFC 8985)"),
    (
        "net.ipv4.tcp_timestamps",
        "1",
        "they take 12 bytes of each segment",
    ),
    (
        "net.ipv4.tcp_recovery",
        "1",
        "RACK loss detection (RFC 8985), the only one of Linux 6.18",
    ),
    (
        "net.ipv4.tcp_early_retrans",
        "3",
        "tail loss probes (RFC 8985 section 7) on",
    ),
    (
        "net.ipv4.tcp_reordering",
        "3",
        "the initial duplicate-ACK threshold",
    ),
    (
        "net.ipv4.tcp_ecn",
        "0",
        "congestion is signalled by the chosen losses only",
    ),
    (
        "net.ipv4.tcp_fin_timeout",
        "60",
        "the kernel's default; it decides when ports are free",
    ),
    (
        "net.ipv6.conf.default.accept_ra",
        "0",
        "no router solicitations in captures",
    ),
];

/// Two namespaces and the links between them; removed when dropped.
#[derive(Debug)]
pub struct Testbed {
    // Links before namespaces: their delay lines end first.
    links: Vec<Link>,
    a: Namespace,
    b: Namespace,
    name: String,
}

static NEXT: AtomicU32 = AtomicU32::new(0);

impl Testbed {
    /// Two fresh namespaces `sp-<pid>-<n>-a` and `-b` without links. `name` is for
    /// messages only. Leftovers of testbeds whose process died are removed first.
    ///
    /// # Errors
    /// No root, or `ip` is missing, or a sysctl is.
    pub fn new(name: &str) -> Result<Self, TestbedError> {
        netns::remove_leftovers();
        let stem = format!(
            "sp-{}-{}",
            std::process::id(),
            NEXT.fetch_add(1, Ordering::Relaxed)
        );
        let testbed = Testbed {
            links: Vec::new(),
            a: Namespace::new(&format!("{stem}-a"))?,
            b: Namespace::new(&format!("{stem}-b"))?,
            name: name.to_owned(),
        };
        for (sysctl, value, _) in PINNED_SYSCTLS {
            testbed.sysctl(sysctl, value)?;
        }
        Ok(testbed)
    }

    /// The name given to it.
    pub fn name(&self) -> &str {
        &self.name
    }

    /// One of its namespaces.
    pub fn namespace(&self, side: Side) -> &Namespace {
        match side {
            Side::A => &self.a,
            Side::B => &self.b,
        }
    }

    /// Adds a link and returns its number.
    ///
    /// # Errors
    /// More than 250 links, or `ip` or `tc` refuse the options.
    pub fn add_link(&mut self, options: &LinkOptions) -> Result<usize, TestbedError> {
        let number = self.links.len();
        let label = u8::try_from(number)
            .ok()
            .filter(|n| *n < 250)
            .ok_or_else(|| TestbedError::Scenario {
                name: self.name.clone(),
                reason: "more than 250 links".to_owned(),
            })?;
        self.links
            .push(Link::new(&self.a, &self.b, label, options)?);
        Ok(number)
    }

    /// The link that [`add_link`](Self::add_link) numbered so.
    ///
    /// # Panics
    /// If there is no such link.
    pub fn link(&self, number: usize) -> &Link {
        &self.links[number]
    }

    /// Sets a sysctl in both namespaces.
    ///
    /// # Errors
    /// See [`Namespace::sysctl`].
    pub fn sysctl(&self, name: &str, value: &str) -> Result<(), TestbedError> {
        self.a.sysctl(name, value)?;
        self.b.sysctl(name, value)
    }

    /// The kernel's counters of one side.
    ///
    /// # Errors
    /// The namespace cannot be entered or `/proc` read.
    pub fn counters(&self, side: Side) -> Result<Counters, TestbedError> {
        Counters::read(self.namespace(side))
    }

    /// Starts a server in namespace b and waits until it listens.
    ///
    /// # Errors
    /// The workload program is missing or says something unexpected.
    pub fn serve(&self, options: &ServeOptions) -> Result<Process, TestbedError> {
        self.serve_on(Side::B, options)
    }

    /// The same in either namespace: both ends on one side make a loopback connection.
    ///
    /// # Errors
    /// See [`serve`](Self::serve).
    pub fn serve_on(&self, side: Side, options: &ServeOptions) -> Result<Process, TestbedError> {
        let arguments = process::arguments("serve", options);
        Process::start(self.namespace(side), "serve", arguments)
    }

    /// Starts a driver in namespace a and waits until its connections stand; it sends
    /// nothing until [`Process::go`].
    ///
    /// # Errors
    /// The workload program is missing or says something unexpected.
    pub fn drive(&self, options: &DriveOptions) -> Result<Process, TestbedError> {
        self.drive_on(Side::A, options)
    }

    /// The same in either namespace.
    ///
    /// # Errors
    /// See [`drive`](Self::drive).
    pub fn drive_on(&self, side: Side, options: &DriveOptions) -> Result<Process, TestbedError> {
        let arguments = process::arguments("drive", options);
        Process::start(self.namespace(side), "drive", arguments)
    }
}
