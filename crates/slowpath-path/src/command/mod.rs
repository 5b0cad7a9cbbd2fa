// SPDX-License-Identifier: Apache-2.0
//! `slowpath path`: arguments, and what is printed.

mod archive;
mod arguments;
mod keys;
mod loss;
mod mesh;
mod neck;
mod owd;
mod route;
mod serve;
mod throughput;

pub use archive::{Archiving, Format};
pub use arguments::{Ends, Owd, PathAction, PathCommand, Protocol, Serve};
pub use keys::{KeyFileError, read_keys};
pub use loss::Loss;
pub use mesh::MeshArguments;
pub use neck::NeckArguments;
pub use route::{EcnChoice, FromPeer, RouteArgs, RouteProtocol};
pub use throughput::{Buffers, Iperf3FileError, Throughput, ThroughputProtocol};

use crate::session::PathError;
use signal_hook::consts::{SIGINT, SIGTERM};
use std::io::{self, Write};
use std::path::PathBuf;
use std::sync::Arc;
use std::sync::atomic::AtomicBool;

/// Why a command could not do its work.
#[derive(Debug, thiserror::Error)]
pub enum CommandError {
    /// An argument that only the command itself can judge.
    #[error("{0}")]
    Usage(String),
    /// The measurement did not come about.
    #[error("{0}")]
    Path(#[from] PathError),
    /// The neck could not be measured.
    #[error("{0}")]
    Neck(#[from] crate::neck::NeckError),
    /// The trace did not come about.
    #[error("{0}")]
    Route(#[from] crate::route::RouteError),
    /// The experiment did not come about.
    #[error("{0}")]
    Loss(#[from] crate::signature::LossError),
    /// An archive does not have a result.
    #[error("{0}")]
    Archive(#[from] crate::pscheduler::ArchiveError),
    /// The file of a mesh is none.
    #[error("{0}")]
    Mesh(#[from] crate::mesh::MeshError),
    /// There is no listener for metrics.
    #[error("{0}")]
    Listen(#[from] slowpath_http::ServerError),
    /// A peer did not do what it was asked for.
    #[error("{0}")]
    Request(#[from] crate::requests::RequestError),
    /// The test with a server of ndt7 did not come about.
    #[error("{0}")]
    Ndt7(#[from] crate::throughput::ndt7::Ndt7Error),
    /// A file of iperf3 is not reported.
    #[error("cannot report {file}: {source}")]
    Iperf3 {
        /// Which.
        file: PathBuf,
        /// Why.
        source: throughput::Iperf3FileError,
    },
    /// A name has no address.
    #[error("cannot find the address of {name}: {source}")]
    Resolve {
        /// The name.
        name: String,
        /// Why.
        source: io::Error,
    },
    /// The keys cannot be read.
    #[error("cannot read the keys in {file}: {source}")]
    Keys {
        /// Where.
        file: PathBuf,
        /// Why.
        source: KeyFileError,
    },
    /// The session file cannot be written.
    #[error("cannot write {file}: {source}")]
    Save {
        /// Which.
        file: PathBuf,
        /// Why.
        source: io::Error,
    },
    /// The output refuses.
    #[error("cannot write the output: {0}")]
    Output(#[from] io::Error),
}

impl CommandError {
    /// The exit status: 2 for wrong usage, else 1.
    #[must_use]
    pub fn code(&self) -> u8 {
        match self {
            CommandError::Usage(_) => 2,
            // A reader of the output that has gone is no failure.
            CommandError::Output(error) if error.kind() == io::ErrorKind::BrokenPipe => 0,
            _ => 1,
        }
    }
}

/// Does what the arguments say, until it is done or a signal ends it.
///
/// # Errors
/// See [`CommandError`].
pub fn run(path: &PathCommand, out: &mut dyn Write) -> Result<(), CommandError> {
    let interrupted = Arc::new(AtomicBool::new(false));
    for signal in [SIGINT, SIGTERM] {
        signal_hook::flag::register(signal, Arc::clone(&interrupted))?;
    }
    match &path.action {
        PathAction::Loss(loss) => loss::run(loss, &interrupted, out),
        PathAction::Mesh(mesh) => mesh::run(mesh, &interrupted, out),
        PathAction::Owd(owd) => owd::run(owd, &interrupted, out),
        PathAction::Neck(neck) => neck::run(neck, &interrupted, out),
        PathAction::Route(route) => route::run(route, &interrupted, out),
        PathAction::Throughput(throughput) => throughput::run(throughput, &interrupted, out),
        PathAction::Serve(serve) => serve::run(serve, &interrupted, out),
    }
}
