// SPDX-License-Identifier: Apache-2.0
//! `slowpath path mesh`.

use super::arguments::{Ends, Protocol};
use super::{CommandError, keys, owd};
use crate::mesh::{Measurement, Mesh, MeshFile, MeshPeer, MeshStart};
use crate::report::Reading;
use crate::session::{PathError, TestOptions};
use crate::socket::{monotonic, sleep_until};
use clap::{Args, ValueEnum};
use std::io::Write;
use std::net::SocketAddr;
use std::path::PathBuf;
use std::sync::Arc;
use std::sync::atomic::AtomicBool;
use std::time::Duration;

/// `slowpath path mesh`.
#[derive(Debug, Args)]
#[command(after_help = "\
Example of a file:
  listen = \"127.0.0.1:9862\"
  stretch = \"60s\"

  [[peer]]
  name = \"site-b\"
  address = \"b.example.org\"

  [[peer]]
  name = \"router\"
  address = \"192.0.2.1\"
  protocol = \"stamp\"
  interval = \"1f\"

Metrics are on http://ADDRESS/metrics, for Prometheus. docs/reference/path-mesh.md has all keys.")]
pub struct MeshArguments {
    /// The file with the peers
    #[arg(value_name = "MESH.toml")]
    pub file: PathBuf,
    /// Serve metrics here, whatever the file says
    #[arg(long, value_name = "ADDRESS:PORT")]
    pub listen: Option<SocketAddr>,
}

/// Measures until a signal.
pub(super) fn run(
    arguments: &MeshArguments,
    interrupted: &AtomicBool,
    out: &mut dyn Write,
) -> Result<(), CommandError> {
    let file = MeshFile::load(&arguments.file)?;
    let Some(listen) = arguments.listen.or(file.listen) else {
        let text =
            "nowhere to serve metrics: write `listen` into the file, or --listen 127.0.0.1:9862";
        return Err(CommandError::Usage(text.to_owned()));
    };
    let measurement = |peer: &MeshPeer| Ok((peer.name.clone(), measurement(peer, file.stretch)?));
    let peers: Result<Vec<_>, CommandError> = file.peer.iter().map(measurement).collect();
    let mesh = Mesh::start(MeshStart {
        peers: peers?,
        stretch: file.stretch,
        listen: Some(listen),
    })?;
    let address = mesh.address().unwrap_or(listen);
    writeln!(
        out,
        "{} peers; metrics on http://{address}/metrics",
        file.peer.len()
    )?;
    out.flush()?;
    while sleep_until(monotonic() + 1_000_000_000, interrupted) {}
    drop(mesh);
    Ok(())
}

/// How a peer is measured. Its name is looked up each time: addresses change over months.
fn measurement(peer: &MeshPeer, stretch: Duration) -> Result<Measurement, CommandError> {
    let protocol = Protocol::from_str(&peer.protocol, true).map_err(CommandError::Usage)?;
    let timeout = owd::timeout(peer.timeout)?;
    let credentials = keys::named(peer.user.as_deref(), peer.keys.as_deref())?;
    let modes = owd::modes("AEO")?;
    let mean = peer.interval.mean().as_duration().as_secs_f64();
    // The file has been checked for a million at the most.
    let packets = (stretch.as_secs_f64() / mean.max(1e-9)).ceil().max(1.0) as u32;
    let (address, dscp) = (peer.address.clone(), peer.dscp);
    let (slots, padding) = (peer.interval.clone(), peer.padding);
    let ends = Ends {
        v4: false,
        v6: false,
        source: None,
        ports: None,
    };
    let reading = Reading {
        timeout: timeout.as_duration(),
        ..Reading::default()
    };
    Ok(Arc::new(move |stop: &AtomicBool| {
        let peer = owd::resolve(&address, &ends, protocol).map_err(|error| PathError::Io {
            operation: "find the address of the peer",
            source: std::io::Error::other(error),
        })?;
        let how = (modes, credentials.clone());
        let options = TestOptions {
            packets,
            slots: slots.clone(),
            padding,
            ..owd::test_options(peer, &ends, (timeout, dscp), how)
        };
        Ok(owd::measure_by(owd::kind(protocol), &options, &reading, stop)?.1)
    }))
}
