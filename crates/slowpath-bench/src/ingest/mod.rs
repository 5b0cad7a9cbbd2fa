// SPDX-License-Identifier: Apache-2.0
//! What a fleet's server takes: thousands of agents over TLS, a restart, a backlog.
//!
//! The server is the command `slowpath server` as a process of its own. Its agents are held by
//! processes that are this very program called with [`load::ARGUMENT`]: each agent has a connection,
//! a certificate of the server's CA, and batches of real spool records that were made before the
//! bench, so that the load takes little of the processors that the server has to share with it.
//!
//! - `host`: what happens on a host; `hosts`: what its agent has to ship; `identities`: who it is.
//! - `connection`: TLS and HTTP of one agent; `agent`: when it ships what, as the agent's own
//!   client does; `load`: many of them in one process; `loads`: those processes.
//! - `server`: the server's process; `trial`: the phases, and what was measured in each.
//! - `ship_cost`: what shipping costs a real agent.

mod agent;
mod connection;
mod host;
mod hosts;
mod identities;
pub mod load;
mod loads;
pub mod server;
mod ship_cost;
mod trial;

// The workload of the store's own bench.
#[allow(dead_code)]
#[path = "../../../slowpath-store/examples/volume/workload.rs"]
mod workload;

pub use ship_cost::{ShipCost, ship_cost};
pub use trial::{Figures, Plan, measure};

use rustix::time::{ClockId, clock_gettime};

/// A monotonic clock that all processes of the machine share, microseconds.
fn monotonic() -> u64 {
    let now = clock_gettime(ClockId::Monotonic);
    now.tv_sec as u64 * 1_000_000 + now.tv_nsec as u64 / 1_000
}
