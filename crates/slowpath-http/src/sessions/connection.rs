// SPDX-License-Identifier: Apache-2.0
//! One connection: its first byte, its handshake, its requests.

use super::activity::Activity;
use super::io::SessionStream;
use super::registry::Membership;
use super::{Established, Handshake, Session, SessionLimits, Sessions};
use crate::Events;
use axum::Router;
use hyper::Request;
use hyper::body::Incoming;
use hyper::server::conn::http1;
use hyper::service::service_fn;
use std::future::{Future, poll_fn};
use std::net::SocketAddr;
use std::pin::pin;
use std::sync::Arc;
use std::task::{Poll, ready};
use std::time::Duration;
use tokio::net::TcpStream;
use tokio::sync::{OwnedSemaphorePermit, Semaphore, SemaphorePermit};
use tokio::time::{Instant, sleep_until, timeout, timeout_at};
use tower_service::Service;

/// What all connections of a server share.
pub(crate) struct Shared<H> {
    pub(crate) limits: SessionLimits,
    pub(crate) handshake: Arc<H>,
    pub(crate) router: Router,
    pub(crate) events: Arc<dyn Events>,
    /// For peers, and for handshakes, whose clients may turn out to be peers.
    pub(crate) places: Arc<Semaphore>,
    pub(crate) handshakes: Arc<Semaphore>,
}

/// How often handshakes are looked through that make room for others.
const CROWDED: Duration = Duration::from_millis(100);

impl<H: Handshake> Shared<H> {
    /// Waits for a place for a handshake; those that take long make room.
    pub(crate) async fn handshake_place(
        &self,
        sessions: &Sessions<H::Peer>,
    ) -> Option<SemaphorePermit<'_>> {
        let mut place = pin!(self.handshakes.acquire());
        loop {
            match timeout(CROWDED, &mut place).await {
                // It is never closed.
                Ok(place) => return place.ok(),
                Err(_) => sessions.end_handshakes(self.limits.crowded_handshake, &*self.events),
            }
        }
    }
}

/// Serves a connection to its end.
pub(crate) async fn serve<H: Handshake>(
    stream: TcpStream,
    address: SocketAddr,
    shared: Arc<Shared<H>>,
    membership: Membership<H::Peer>,
) {
    let deadline = Instant::now() + shared.limits.handshake;
    // Who left before is not counted.
    let Ok(shaken) = timeout_at(deadline, shake(stream, &shared, &membership)).await else {
        shared.events.dropped();
        return;
    };
    let Some((established, place)) = shaken else {
        return;
    };
    let place = match &established.peer {
        Some(peer) => {
            membership.become_peer(peer.clone(), H::name(peer), &shared.limits);
            Some(place)
        }
        None => {
            membership.stay_anonymous(&shared.limits, &*shared.events);
            None
        }
    };
    requests(established, address, &shared).await;
    drop(place);
}

/// The session, and its place among all; `None`: there is none.
async fn shake<H: Handshake>(
    stream: TcpStream,
    shared: &Shared<H>,
    membership: &Membership<H::Peer>,
) -> Option<(Established<H::Stream, H::Peer>, OwnedSemaphorePermit)> {
    if !matches!(stream.peek(&mut [0]).await, Ok(1)) {
        return None;
    }
    membership.wait();
    // Neither semaphore is ever closed.
    let place = shared.places.clone().acquire_owned().await.ok()?;
    let _handshake = shared.handshake_place(membership.sessions()).await;
    membership.shake();
    let established = shared.handshake.shake(stream).await.ok()?;
    Some((established, place))
}

async fn requests<H: Handshake>(
    established: Established<H::Stream, H::Peer>,
    address: SocketAddr,
    shared: &Shared<H>,
) {
    let Established { stream, peer } = established;
    let limits = shared.limits;
    let activity = Activity::new(limits, peer.is_none());
    let session = Session { address, peer };
    let service = service_fn(|mut request: Request<Incoming>| {
        activity.request_started();
        request.extensions_mut().insert(session.clone());
        let answer = shared.router.clone().call(request);
        let activity = activity.clone();
        async move {
            let answer = answer.await;
            activity.request_answered();
            answer
        }
    });
    let stream = SessionStream {
        stream,
        activity: activity.clone(),
    };
    let served = http1::Builder::new()
        .max_buf_size(limits.head_bytes.max(8192))
        .max_headers(limits.headers)
        .title_case_headers(true)
        .serve_connection(stream, service);
    match within(&activity, served).await {
        None if activity.is_idle() => {}
        None => shared.events.dropped(),
        Some(Err(error)) if error.is_parse_too_large() => shared.events.refused(431),
        Some(Err(error)) if error.is_parse() => shared.events.refused(400),
        // It closed, or has gone.
        Some(_) => {}
    }
}

/// What `served` gives; `None`: the session's deadline passed before.
async fn within<F: Future>(activity: &Activity, served: F) -> Option<F::Output> {
    let mut served = pin!(served);
    let mut alarm = pin!(sleep_until(activity.deadline()));
    poll_fn(|cx| {
        if let Poll::Ready(output) = served.as_mut().poll(cx) {
            return Poll::Ready(Some(output));
        }
        // What was read or answered in between has moved it.
        let deadline = activity.deadline();
        if deadline != alarm.deadline() {
            alarm.as_mut().reset(deadline);
        }
        ready!(alarm.as_mut().poll(cx));
        Poll::Ready(None)
    })
    .await
}
