// SPDX-License-Identifier: Apache-2.0
//! A connection on which this end asks.

use super::message::{Answer, Command, Octets, Opened, Opening, Refusal, Request, StreamOptions};
use super::{Greeting, GreetingError, Link, LinkError, Proofs, Side};
use crate::control::Credentials;
use crate::route::{Route, TraceOptions};
use crate::session::{PathError, random};
use crate::throughput::tcp::{self, SocketError};
use std::net::{IpAddr, SocketAddr};
use std::sync::atomic::AtomicBool;
use std::time::{Duration, Instant};

/// How long the peer may take for a message.
pub(crate) const PATIENCE: Duration = Duration::from_secs(15);

/// How long it may take for a trace, beyond the time for which rounds are to be repeated.
const TRACE_PATIENCE: Duration = Duration::from_secs(120);

/// Why a request did not come about.
#[derive(Debug, thiserror::Error)]
pub enum RequestError {
    /// The peer is not there, or a call to the kernel failed.
    #[error("{0}")]
    Path(#[from] PathError),
    /// A socket could not be made as asked.
    #[error("{peer}: {source}")]
    Socket {
        /// To whom.
        peer: SocketAddr,
        /// Why.
        source: SocketError,
    },
    /// The peer does not answer requests.
    #[error(
        "cannot connect to {peer}: {source}; `slowpath path serve` has to run there, and let this host in (--allow)"
    )]
    Connect {
        /// Where.
        peer: SocketAddr,
        /// Why.
        source: SocketError,
    },
    /// It is no slowpath, or of another version.
    #[error("{peer}: {source}")]
    Greeting {
        /// Who.
        peer: SocketAddr,
        /// How.
        source: GreetingError,
    },
    /// The conversation ended.
    #[error("{peer}, asked for {what}: {source}")]
    Link {
        /// Who.
        peer: SocketAddr,
        /// What it was asked for.
        what: &'static str,
        /// How.
        source: LinkError,
    },
    /// It closed the connection at once.
    #[error(
        "{peer} closed the connection at once: it does not let this host in (`slowpath path serve --allow`), or has too many connections"
    )]
    NotAllowed {
        /// Who.
        peer: SocketAddr,
    },
    /// It refuses.
    #[error("{peer} refuses: {reason}")]
    Refused {
        /// Who.
        peer: SocketAddr,
        /// Why.
        reason: Refusal,
    },
    /// It does not know the key that this end knows.
    #[error("{peer} does not know the key: compare the files at both ends")]
    Key {
        /// Who.
        peer: SocketAddr,
    },
    /// What it said last is not what was due.
    #[error("{peer} sent a message that was not due")]
    Unexpected {
        /// Who.
        peer: SocketAddr,
    },
}

/// Asks a peer.
#[derive(Clone, Copy, Debug)]
pub struct Requester<'a> {
    /// Where the other slowpath answers requests.
    pub peer: SocketAddr,
    /// From which address; `None`: the route's.
    pub local: Option<IpAddr>,
    /// The key, if it asks for one.
    pub credentials: Option<&'a Credentials>,
    /// Ends it early.
    pub interrupted: &'a AtomicBool,
}

impl Requester<'_> {
    /// The route from the peer to this host, by UDP: the peer's bounds hold.
    ///
    /// # Errors
    /// See [`RequestError`].
    pub fn route(&self, options: &TraceOptions) -> Result<Route, RequestError> {
        const WHAT: &str = "a route";
        let mut control = self.control()?;
        let request = Request::Route(options.clone());
        let sent = control.send(&Command::ask(&request));
        sent.map_err(self.failed(WHAT))?;
        let deadline = Instant::now() + TRACE_PATIENCE + options.repeat_for.unwrap_or_default();
        let peer = self.peer;
        loop {
            let answer = control.receive(deadline, self.interrupted);
            match answer.map_err(self.failed(WHAT))? {
                Answer::Started {} => {}
                Answer::Refused { reason } => return Err(self.refused(reason)),
                Answer::Finished { result } => {
                    let route = serde_json::from_value(result);
                    return route.map_err(|_| RequestError::Unexpected { peer });
                }
                Answer::Accepted { .. } => return Err(RequestError::Unexpected { peer }),
            }
        }
    }

    pub(crate) fn failed(&self, what: &'static str) -> impl FnOnce(LinkError) -> RequestError {
        let peer = self.peer;
        move |source| RequestError::Link { peer, what, source }
    }

    pub(crate) fn connect(
        &self,
        options: &StreamOptions,
    ) -> Result<(Link, Greeting), RequestError> {
        let peer = self.peer;
        let stream = tcp::connect(peer, self.local, options).map_err(|source| match source {
            SocketError::Connect(_) => RequestError::Connect { peer, source },
            source => RequestError::Socket { peer, source },
        })?;
        let mut link =
            Link::new(stream, Side::Client).map_err(PathError::io("prepare a connection"))?;
        let octets = link
            .greeting(Instant::now() + PATIENCE, self.interrupted)
            .map_err(|error| match error {
                LinkError::Closed => RequestError::NotAllowed { peer },
                error => self.failed("a greeting")(error),
            })?;
        let greeting =
            Greeting::decode(&octets).map_err(|source| RequestError::Greeting { peer, source })?;
        Ok((link, greeting))
    }

    pub(crate) fn receive<T: serde::de::DeserializeOwned>(
        &self,
        link: &mut Link,
        what: &'static str,
    ) -> Result<T, RequestError> {
        link.receive(Instant::now() + PATIENCE, self.interrupted)
            .map_err(self.failed(what))
    }

    pub(crate) fn refused(&self, reason: Refusal) -> RequestError {
        let peer = self.peer;
        RequestError::Refused { peer, reason }
    }

    /// Opens the connection that everything else is asked on.
    pub(crate) fn control(&self) -> Result<Link, RequestError> {
        let (mut link, greeting) = self.connect(&StreamOptions::default())?;
        let nonce = random()?;
        let credentials = self.credentials;
        if greeting.keyed && credentials.is_none() {
            return Err(self.refused(Refusal::Key));
        }
        let proofs = credentials
            .filter(|_| greeting.keyed)
            .map(|key| Proofs::new(&key.name, &key.passphrase, greeting.nonce, nonce));
        link.send(&Opening::Control {
            nonce: Octets(nonce),
            key: credentials
                .filter(|_| greeting.keyed)
                .map(|key| key.name.clone()),
            proof: proofs.as_ref().map(|proofs| proofs.proof(Side::Client)),
        })
        .map_err(self.failed("a connection"))?;
        match (self.receive(&mut link, "a connection")?, &proofs) {
            (Opened::Refused { reason }, _) => return Err(self.refused(reason)),
            (Opened::Welcome { proof }, Some(proofs)) => {
                let proven = proof.is_some_and(|proof| proofs.verify(Side::Server, &proof));
                if !proven {
                    let peer = self.peer;
                    return Err(RequestError::Key { peer });
                }
            }
            (Opened::Welcome { .. }, None) => {}
        }
        link.channel().open(proofs.as_ref());
        Ok(link)
    }
}
