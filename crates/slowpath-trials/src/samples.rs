// SPDX-License-Identifier: Apache-2.0
//! Valid files that trials start from.

use std::path::{Path, PathBuf};

/// A file of the repository.
pub(crate) fn in_repository(path: &str) -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR"))
        .join("../..")
        .join(path)
}

/// A configuration of the agent with most of its keys.
pub(crate) const CONFIGURATION: &str = "log = \"/var/lib/slowpath\"\ninterval = \"500ms\"\ntier = \"auto\"\n\
    cpu-budget = \"1,2\"\nlog-command-lines = \"no-secrets\"\nretention-size = \"2GiB\"\n\
    retention-age = \"30d\"\nmetrics = \"127.0.0.1:9464\"\nmetrics-labels = \"unit,port\"\n\
    otlp = \"http://127.0.0.1:4318\"\notlp-interval = \"1m\"\nrecord = \"dport = :5432\"\n\
    record-ports = \"80,443\"\nrecord-ring = \"64MiB\"\nrecord-age = \"10m\"\n";

/// Rules of owners.
pub(crate) const OWNERS: &str = "[[application]]\nname = \"orders\"\ncommand = \"java\"\n\
    cmdline = \"*orders.jar*\"\nport = \"8000-8100\"\n\n[[application]]\nname = \"db\"\n\
    exe = \"/usr/lib/postgresql/*/bin/postgres\"\nlocal-port = [5432, 5433]\n\n\
    [[application]]\nname = \"web\"\nunit = \"nginx.service\"\nremote-port = 443\n";
