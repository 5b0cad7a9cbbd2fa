// SPDX-License-Identifier: Apache-2.0
//! The thread of a session server: accepts connections while there is room.

use super::connection::{Shared, serve};
use super::{Handshake, SessionLimits, Sessions};
use crate::server::{Background, runtime};
use crate::{Events, ServerError};
use axum::Router;
use std::io;
use std::net::SocketAddr;
use std::sync::Arc;
use std::time::Duration;
use tokio::net::{TcpListener, TcpSocket};
use tokio::sync::Semaphore;
use tokio::time::sleep;

/// Connections that wait in the kernel's queue to be accepted: `net.core.somaxconn`'s default
/// since Linux 5.4, which bounds it.
const BACKLOG: u32 = 4096;

/// Until the next attempt when no file descriptor is left.
const EXHAUSTED: Duration = Duration::from_secs(1);

/// A server of sessions, until it is dropped.
#[derive(Debug)]
pub struct SessionServer<P> {
    address: SocketAddr,
    sessions: Sessions<P>,
    _background: Background,
}

impl<P: Clone + Send + Sync + 'static> SessionServer<P> {
    /// Serves `router` on `address`, to those whose `handshake` succeeds, in a thread of this
    /// name.
    ///
    /// # Errors
    /// See [`ServerError`].
    pub fn start<H: Handshake<Peer = P>>(
        name: &str,
        address: SocketAddr,
        limits: SessionLimits,
        handshake: Arc<H>,
        (router, events): (Router, Arc<dyn Events>),
    ) -> Result<Self, ServerError> {
        let runtime = runtime()?;
        let listener = {
            let _within = runtime.enter();
            listen(address).map_err(|source| ServerError::Listen { address, source })?
        };
        let refused = |source| ServerError::Listen { address, source };
        let address = listener.local_addr().map_err(refused)?;
        let sessions = Sessions::default();
        let acceptor = Acceptor {
            listener,
            sessions: sessions.clone(),
            shared: Arc::new(Shared {
                limits,
                handshake,
                router,
                events,
                places: Arc::new(Semaphore::new(limits.sessions.max(1))),
                handshakes: Arc::new(Semaphore::new(limits.handshakes.max(1))),
            }),
        };
        let background = Background::start(name, runtime, acceptor.accept())?;
        Ok(SessionServer {
            address,
            sessions,
            _background: background,
        })
    }

    /// Where it listens.
    pub fn address(&self) -> SocketAddr {
        self.address
    }

    /// Its connections.
    pub fn sessions(&self) -> Sessions<P> {
        self.sessions.clone()
    }
}

fn listen(address: SocketAddr) -> io::Result<TcpListener> {
    let socket = match address {
        SocketAddr::V4(_) => TcpSocket::new_v4()?,
        SocketAddr::V6(_) => TcpSocket::new_v6()?,
    };
    // As std does: a restart need not wait for connections in TIME-WAIT.
    socket.set_reuseaddr(true)?;
    socket.bind(address)?;
    socket.listen(BACKLOG)
}

struct Acceptor<H: Handshake> {
    listener: TcpListener,
    sessions: Sessions<H::Peer>,
    shared: Arc<Shared<H>>,
}

impl<H: Handshake> Acceptor<H> {
    async fn accept(self) {
        loop {
            self.wait_for_room().await;
            match self.listener.accept().await {
                Ok((stream, address)) => {
                    // Answers are small, and clients wait for them. Where it is refused they
                    // come later.
                    let _ = stream.set_nodelay(true);
                    let shared = &self.shared;
                    self.sessions
                        .admit(&shared.limits, &*shared.events, |membership| {
                            let served = serve(stream, address, shared.clone(), membership);
                            tokio::spawn(served).abort_handle()
                        });
                }
                // It has gone already, or no file descriptor is left.
                Err(_) => sleep(EXHAUSTED).await,
            }
        }
    }

    /// Waits until a handshake could begin.
    async fn wait_for_room(&self) {
        // It is never closed; the permits go back at once.
        drop(self.shared.places.acquire().await);
        drop(self.shared.handshake_place(&self.sessions).await);
    }
}
