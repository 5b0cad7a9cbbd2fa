// SPDX-License-Identifier: Apache-2.0
//! The server's thread: accepts clients, and gives each a task.

use crate::clients::Clients;
use crate::{Events, Limits, client};
use axum::Router;
use std::io;
use std::net::SocketAddr;
use std::sync::Arc;
use std::thread::{self, JoinHandle};
use std::time::Duration;
use tokio::net::TcpListener;
use tokio::runtime::{Builder, Runtime};
use tokio::sync::oneshot;
use tokio::time::{Instant, sleep_until};

/// Why there is no server.
#[derive(Debug, thiserror::Error)]
pub enum ServerError {
    /// The address is not to be had.
    #[error("cannot listen on {address}: {source}")]
    Listen {
        /// Which.
        address: SocketAddr,
        /// What the system says.
        source: io::Error,
    },
    /// No thread, or nothing to wait with.
    #[error("cannot start a thread that serves HTTP: {0}")]
    Start(#[source] io::Error),
}

/// A server, until it is dropped.
#[derive(Debug)]
pub struct Server {
    address: SocketAddr,
    _background: Background,
}

/// A thread in which one task and those that it starts run, until this is dropped.
#[derive(Debug)]
pub(crate) struct Background {
    /// Its end stops the thread.
    stop: Option<oneshot::Sender<()>>,
    thread: Option<JoinHandle<()>>,
}

impl Background {
    pub(crate) fn start(
        name: &str,
        runtime: Runtime,
        task: impl Future<Output = ()> + Send + 'static,
    ) -> Result<Self, ServerError> {
        let (stop, stopped) = oneshot::channel();
        let thread = thread::Builder::new()
            .name(name.to_owned())
            .spawn(move || run(runtime, task, stopped))
            .map_err(ServerError::Start)?;
        Ok(Background {
            stop: Some(stop),
            thread: Some(thread),
        })
    }
}

impl Drop for Background {
    fn drop(&mut self) {
        self.stop.take();
        if let Some(thread) = self.thread.take() {
            // A panic of that thread has been printed.
            let _ = thread.join();
        }
    }
}

impl Server {
    /// Serves `router` on `address` in a thread of this name.
    ///
    /// # Errors
    /// See [`ServerError`].
    pub fn start(
        name: &str,
        address: SocketAddr,
        limits: Limits,
        router: Router,
        events: Arc<dyn Events>,
    ) -> Result<Self, ServerError> {
        let refused = |source| ServerError::Listen { address, source };
        let listener = std::net::TcpListener::bind(address).map_err(refused)?;
        listener.set_nonblocking(true).map_err(refused)?;
        let address = listener.local_addr().map_err(refused)?;
        let runtime = runtime()?;
        let listener = {
            let _within = runtime.enter();
            TcpListener::from_std(listener).map_err(refused)?
        };
        let acceptor = Acceptor {
            listener,
            limits,
            router,
            events,
            clients: Arc::default(),
        };
        Ok(Server {
            address,
            _background: Background::start(name, runtime, acceptor.accept())?,
        })
    }

    /// Where it listens.
    pub fn address(&self) -> SocketAddr {
        self.address
    }
}

/// The runtime of a server's thread.
pub(crate) fn runtime() -> Result<Runtime, ServerError> {
    Builder::new_current_thread()
        .enable_io()
        .enable_time()
        .build()
        .map_err(ServerError::Start)
}

/// The end of the runtime ends every task, and with it every connection.
fn run(
    runtime: Runtime,
    task: impl Future<Output = ()> + Send + 'static,
    stopped: oneshot::Receiver<()>,
) {
    runtime.spawn(task);
    // The sender is dropped and never used: that is the sign.
    let _ = runtime.block_on(stopped);
}

struct Acceptor {
    listener: TcpListener,
    limits: Limits,
    router: Router,
    events: Arc<dyn Events>,
    clients: Arc<Clients>,
}

impl Acceptor {
    async fn accept(self) {
        let most = self.limits.accepted_a_second.max(1);
        let mut second = Instant::now();
        let mut accepted = 0;
        loop {
            if accepted >= most {
                sleep_until(second + Duration::from_secs(1)).await;
            }
            let stream = self.listener.accept().await;
            if second.elapsed() >= Duration::from_secs(1) {
                second = Instant::now();
                accepted = 0;
            }
            match stream {
                Ok((stream, _)) => {
                    accepted += 1;
                    self.clients
                        .admit(self.limits.clients, &*self.events, |membership| {
                            let served = client::serve(
                                stream,
                                self.router.clone(),
                                self.limits,
                                self.events.clone(),
                                membership,
                            );
                            tokio::spawn(served).abort_handle()
                        });
                }
                // No file descriptor is left, perhaps: tried again in the next second.
                Err(_) => accepted = most,
            }
        }
    }
}
