// SPDX-License-Identifier: Apache-2.0
//! What can go wrong while a test network is built or used.

use std::io;

/// Why a testbed operation failed.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum TestbedError {
    /// A program is not installed.
    #[error("{program} not found; install the Debian package {package}")]
    ToolMissing {
        /// Its name.
        program: String,
        /// The package that has it.
        package: &'static str,
    },
    /// A program ran and failed.
    #[error("`{command}` failed: {stderr}")]
    Tool {
        /// The command line, with what it was fed.
        command: String,
        /// What it said.
        stderr: String,
    },
    /// A system call failed.
    #[error("{operation} {object}: {source}")]
    Io {
        /// What was attempted.
        operation: &'static str,
        /// On what.
        object: String,
        /// The system's answer.
        source: io::Error,
    },
    /// The drop program could not be loaded, attached, set or read.
    #[error("{operation} the drop program: {source}; it needs root and a kernel with tc-BPF")]
    Bpf {
        /// What was attempted.
        operation: &'static str,
        /// libbpf's answer.
        source: libbpf_rs::Error,
    },
    /// A workload process said something unexpected, or ended.
    #[error("workload {role}: {reason}")]
    Workload {
        /// Which one.
        role: String,
        /// What happened.
        reason: String,
    },
    /// A scenario file cannot be used.
    #[error("scenario {name}: {reason}")]
    Scenario {
        /// The file or the built-in name.
        name: String,
        /// What is wrong with it.
        reason: String,
    },
    /// An analyser's output was not understood.
    #[error("{program}'s output is not understood: {reason}")]
    Oracle {
        /// Which analyser.
        program: &'static str,
        /// What was not understood.
        reason: String,
    },
}

impl TestbedError {
    pub(crate) fn io(
        operation: &'static str,
        object: impl Into<String>,
    ) -> impl FnOnce(io::Error) -> TestbedError {
        let object = object.into();
        move |source| TestbedError::Io {
            operation,
            object,
            source,
        }
    }
}
