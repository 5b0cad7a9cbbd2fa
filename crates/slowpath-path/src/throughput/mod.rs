// SPDX-License-Identifier: Apache-2.0
//! Throughput of TCP from memory to memory, and what limited it.
//!
//! What enters: a peer that runs `slowpath path serve`, a server of ndt7, or a file of iperf3. What leaves:
//! [`ThroughputReport`]: what the receiver got, second by second; the round trip before and during the test; both ends'
//! statistics of TCP and processors; and the [`verdict`] on them, with the words of `slowpath why`.
//!
//! ```text
//!  tally    samples of a socket, judged by slowpath-diagnose   ┐
//!  verdict  what limited                                       │ pure
//!  report   numbers, JSON, text                                │
//!  iperf3   others' results                                    ┘
//!  tcp      socket options, tcp_info                           ┐
//!  cpu      what threads took                                  │ the edge
//!  end      threads that send or receive                       │
//!  delay    round trips beside                                 │
//!  client   a test with a slowpath                             │
//!  ndt7     a test with a server of ndt7                       ┘
//! ```
//!
//! What is promised: goodput is the receiver's, over a time that begins after the warm-up; a statistic that a kernel or a
//! file lacks is not zero but missing; a test that a processor limits says so; the peer's figures are bounded and
//! checked before use.

mod client;
pub mod cpu;
pub mod delay;
pub mod end;
mod iperf3;
pub mod ndt7;
pub mod report;
pub mod tally;
pub mod tcp;
pub mod verdict;

pub use client::{ThroughputOptions, measure_throughput};
pub use iperf3::{Iperf3Error, read_iperf3};
pub use report::ThroughputReport;

#[cfg(test)]
pub(crate) use iperf3::tests::result as result_of_iperf3;
