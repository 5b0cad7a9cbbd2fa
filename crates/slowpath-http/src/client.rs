// SPDX-License-Identifier: Apache-2.0
//! One client: its request, its answer, its end.

use crate::clients::Membership;
use crate::io::SharedStream;
use crate::{Events, Limits};
use axum::Router;
use hyper::Request;
use hyper::body::Incoming;
use hyper::server::conn::http1;
use hyper::service::service_fn;
use rustix::net::{Shutdown, shutdown};
use std::io::ErrorKind;
use std::sync::Arc;
use std::time::Duration;
use tokio::net::TcpStream;
use tokio::time::{Instant, timeout_at};
use tower_service::Service;

/// Bytes read after the answer, at most, before the connection is closed: closing with
/// unread bytes resets it, and the client may lose the answer.
const MAX_LINGER: usize = 64 << 10;

/// Time that a client has to close its side after the answer.
const LINGER: Duration = Duration::from_secs(1);

/// Serves one request and closes.
pub(crate) async fn serve(
    stream: TcpStream,
    router: Router,
    limits: Limits,
    events: Arc<dyn Events>,
    membership: Membership,
) {
    let deadline = Instant::now() + limits.patience;
    let stream = Arc::new(stream);
    let service = service_fn(|request: Request<Incoming>| router.clone().call(request));
    let served = http1::Builder::new()
        .keep_alive(false)
        // Clients that close their side after the request read the answer all the same.
        .half_close(true)
        .max_buf_size(limits.head_bytes.max(8192))
        .max_headers(limits.headers)
        .title_case_headers(true)
        .serve_connection(SharedStream(stream.clone()), service);
    match timeout_at(deadline, served).await {
        Err(_) => {
            events.dropped();
            return;
        }
        Ok(Ok(())) => {}
        Ok(Err(error)) if error.is_parse_too_large() => events.refused(431),
        Ok(Err(error)) if error.is_parse() => events.refused(400),
        // It has gone.
        Ok(Err(_)) => return,
    }
    membership.answered();
    // Only now: a client that has read its answer to the end finds it counted. It may have gone.
    let _ = shutdown(&*stream, Shutdown::Write);
    let deadline = deadline.min(Instant::now() + LINGER);
    // Whether it closes or not, this was all.
    let _ = timeout_at(deadline, linger(&stream)).await;
}

/// Reads what the client still sends, until it closes its side.
async fn linger(stream: &TcpStream) {
    let mut piece = [0; 4096];
    let mut read = 0;
    while read <= MAX_LINGER && stream.readable().await.is_ok() {
        match stream.try_read(&mut piece) {
            Ok(0) => return,
            Ok(count) => read += count,
            Err(error) if error.kind() == ErrorKind::WouldBlock => {}
            Err(_) => return,
        }
    }
}
