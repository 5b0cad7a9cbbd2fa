// SPDX-License-Identifier: Apache-2.0
//! Bodies of requests, within a bound for each and one for all.

use super::{Api, Refused};
use axum::body::{Body, Bytes, to_bytes};
use axum::http::HeaderMap;
use axum::http::header::{CONTENT_ENCODING, CONTENT_LENGTH, CONTENT_TYPE};
use http_body::Body as _;
use slowpath_ship::answers::RefusalKind;
use std::future::poll_fn;
use std::pin::Pin;
use std::time::Duration;
use tokio::sync::OwnedSemaphorePermit;
use tokio::time::timeout;

/// How long a body waits for memory.
const WAIT: Duration = Duration::from_secs(1);
/// Bytes of a body that is too long that are read before it is answered, so that its sender reads
/// the answer.
const DISCARDED: usize = 4 << 20;
/// Bytes that one permit stands for.
const UNIT: usize = 1024;

/// Permits, one a byte.
pub(crate) fn units(bytes: usize) -> u32 {
    u32::try_from(bytes.div_ceil(UNIT)).unwrap_or(u32::MAX)
}

/// A body, and the memory that it takes of all bodies' until this is dropped.
pub(crate) struct BodyInMemory {
    pub(crate) bytes: Bytes,
    _memory: OwnedSemaphorePermit,
}

impl Api {
    /// Reads a body of at most `most` bytes.
    pub(crate) async fn read(
        &self,
        headers: &HeaderMap,
        body: Body,
        most: usize,
        types: &[&str],
    ) -> Result<BodyInMemory, Refused> {
        let text = |name| headers.get(name).and_then(|value| value.to_str().ok());
        let of_type = |value: &str| types.contains(&value);
        let encoded = text(CONTENT_ENCODING).is_some_and(|it| it != "identity");
        if encoded || headers.contains_key(CONTENT_TYPE) && !text(CONTENT_TYPE).is_some_and(of_type)
        {
            let message = format!("the body has to be of the type {}", types[0]);
            discard(body).await;
            return Err(self.refuse(RefusalKind::MediaType, message));
        }
        let stated = text(CONTENT_LENGTH).and_then(|it| it.parse::<usize>().ok());
        if stated.is_some_and(|stated| stated > most) {
            discard(body).await;
            return Err(self.too_large(most));
        }
        let memory = self.memory(stated.unwrap_or(most)).await;
        let (memory, body) = self.passed(memory, body).await?;
        match to_bytes(body, most).await {
            Ok(bytes) => Ok(BodyInMemory {
                bytes,
                _memory: memory,
            }),
            Err(_) if stated.is_none() => Err(self.too_large(most)),
            Err(_) => Err(self.refuse(RefusalKind::Malformed, "the body was cut off")),
        }
    }

    /// Memory for this number of bytes.
    pub(crate) async fn memory(&self, bytes: usize) -> Result<OwnedSemaphorePermit, Refused> {
        let memory = self.bodies.clone().acquire_many_owned(units(bytes));
        // The semaphore is never closed.
        match timeout(WAIT, memory).await {
            Ok(Ok(memory)) => Ok(memory),
            _ => Err(self.refuse(RefusalKind::Busy, "too much is being received at once")),
        }
    }

    fn too_large(&self, most: usize) -> Refused {
        let message = format!("the body may have {most} bytes at most");
        self.refuse(RefusalKind::TooLarge, message)
            .with(|refusal| refusal.limit = Some(most as u64))
    }
}

/// Reads a body and keeps none of it.
pub(crate) async fn discard(mut body: Body) {
    let mut read = 0;
    while read < DISCARDED {
        let frame = poll_fn(|cx| Pin::new(&mut body).poll_frame(cx)).await;
        let Some(Ok(frame)) = frame else {
            return;
        };
        read += frame.data_ref().map_or(0, Bytes::len);
    }
}
