// SPDX-License-Identifier: Apache-2.0
//! Several peers, measured all the time: `slowpath path mesh`.
//!
//! What enters: a [`MeshFile`], the reports of stretches. What leaves: the figures of each peer and direction as text for
//! Prometheus ([`Board::text`]).
//!
//! ```text
//!  file     the peers, as MESH.toml has them     ┐ pure
//!  board    sums and latest figures, their text  ┘
//!  run      a thread a peer, the listener          the edge
//! ```
//!
//! What is promised: memory that does not grow with time; a counter that never goes down; a peer that fails is asked
//! again after a pause that doubles up to [`run::LONGEST_PAUSE`], and neither holds nor ends the others.

mod board;
mod file;
mod run;

pub use board::Board;
pub use file::{MeshError, MeshFile, MeshPeer};
pub use run::{LONGEST_PAUSE, Measurement, Mesh, MeshStart};
