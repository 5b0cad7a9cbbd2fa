// SPDX-License-Identifier: Apache-2.0
//! Connections and their owners by name.

use crate::plain;
use slowpath_model::{FourTuple, Owner};
use std::net::SocketAddr;

/// A connection's addresses, with the peer behind address translation.
pub fn ends(tuple: &FourTuple, real_peer: Option<SocketAddr>) -> String {
    match real_peer {
        Some(peer) => format!("{tuple} (real peer {peer})"),
        None => tuple.to_string(),
    }
}

/// `command[pid]`, with the application before it if a rule names one; or `?`.
pub fn process(owner: &Owner) -> String {
    let process = match (owner.process(), &owner.listener) {
        (Some(p), _) => format!("{}[{}]", plain(&p.command), p.pid),
        (None, Some(listener)) => format!("? of {}", plain(listener)),
        (None, None) => "?".to_owned(),
    };
    match &owner.application {
        Some(application) => format!("{} {process}", plain(application)),
        None => process,
    }
}

/// Where the owner runs, and why its process is unknown; empty if nothing is known.
pub fn whereabouts(owner: &Owner) -> String {
    let mut words = Vec::new();
    words.extend(owner.why_unknown().map(|r| r.words().to_owned()));
    words.extend(owner.unit().map(|u| plain(u)));
    words.extend(owner.container().map(|c| {
        let id: String = c.id.chars().take(12).collect();
        let runtime = c.runtime.as_deref().unwrap_or("container");
        format!("{} {}", plain(runtime), plain(&id))
    }));
    words.extend(owner.pod().map(|p| format!("pod {}", plain(p))));
    if let Some(line) = owner.process().and_then(|p| p.command_line.as_ref()) {
        words.push(plain(line).chars().take(200).collect());
    }
    words.join(", ")
}
