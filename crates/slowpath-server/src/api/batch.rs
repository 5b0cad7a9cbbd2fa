// SPDX-License-Identifier: Apache-2.0
//! `POST /v1/batch`, `POST /v1/segments`.

use super::refused::json;
use super::{Api, Asking, Refused};
use crate::hosts::Noted;
use crate::intake::{Delivery, Receipt};
use axum::body::Body;
use axum::extract::State;
use axum::http::HeaderMap;
use axum::response::Response;
use slowpath_ship::answers::{
    BATCH_TYPE, Flushed, MAX_ANSWER, MAX_SEGMENTS, RefusalKind, SegmentsAnswer, SegmentsRequest,
    ServerSegment, Versions,
};
use slowpath_ship::batch::{Header, MAX_BATCH, Prefix, ReadError, is_segment_id};
use slowpath_ship::identity::HostName;
use std::net::SocketAddr;
use std::sync::Arc;
use std::sync::PoisonError;
use std::sync::atomic::Ordering;
use tokio::sync::{SemaphorePermit, oneshot};

/// Batches of more bytes than this, decompressed, are large.
const LARGE: usize = 64 << 10;

/// The types of a batch's body.
const TYPES: [&str; 1] = [BATCH_TYPE];

pub(super) async fn post(
    State(api): State<Arc<Api>>,
    asking: Asking,
    headers: HeaderMap,
    body: Body,
) -> Result<Response, Refused> {
    let (peer, body) = api.passed(api.authorised(&asking), body).await?;
    let taken = api.take(&peer.host, asking.0.address, &headers, body).await;
    taken.inspect_err(|refused| {
        let kind = refused.kind();
        // It is how an agent finds its place again.
        if kind != RefusalKind::Behind {
            let now = api.clock.now();
            api.hosts().refused(&peer.host, kind, now);
        }
    })
}

pub(super) async fn segments(
    State(api): State<Arc<Api>>,
    asking: Asking,
    headers: HeaderMap,
    body: Body,
) -> Result<Response, Refused> {
    let (peer, body) = api.passed(api.authorised(&asking), body).await?;
    let request: SegmentsRequest = api.read_json(&headers, body, MAX_ANSWER as usize).await?;
    let ids: Vec<String> = request.segments.into_iter().map(|it| it.id).collect();
    if ids.len() > MAX_SEGMENTS || !ids.iter().all(|id| is_segment_id(id)) {
        let message = format!("it names over {MAX_SEGMENTS} segments, or one that cannot be");
        let refused = api.refuse(RefusalKind::Malformed, message);
        return Err(refused.with(|refusal| refusal.field = Some("segments".to_owned())));
    }
    let (sender, receiver) = oneshot::channel();
    let reply = move |positions| {
        // Who asked may have gone.
        let _ = sender.send(positions);
    };
    api.intake
        .positions(&peer.host, ids.clone(), Box::new(reply));
    let ended = |_| api.refuse(RefusalKind::Busy, "the server is ending");
    let positions = receiver.await.map_err(ended)?;
    let segments = ids.into_iter().zip(positions);
    let segments = segments.map(|(id, (offset, crc))| ServerSegment { id, offset, crc });
    Ok(json(&SegmentsAnswer {
        segments: segments.collect(),
        state: api.state(),
    }))
}

impl Api {
    async fn take(
        &self,
        host: &HostName,
        address: SocketAddr,
        headers: &HeaderMap,
        body: Body,
    ) -> Result<Response, Refused> {
        let held = self.read(headers, body, MAX_BATCH, &TYPES).await?;
        let received = self.clock.now();
        let (header, _) = Header::read(&held.bytes).map_err(|error| self.unreadable(error))?;
        if header.is_newer() {
            return Err(self.newer());
        }
        let _large = self.large(header.items_length as usize).await;
        // Its items live until they are flushed.
        let _memory = self.memory(header.items_length as usize).await?;
        let batch = self
            .reader
            .lock()
            .unwrap_or_else(PoisonError::into_inner)
            .read(&held.bytes);
        let batch = batch.map_err(|error| self.unreadable(error))?;
        drop(held);
        let noted = Noted::of(&batch);
        let delivery = Delivery {
            host: host.clone(),
            address,
            batch,
            received,
        };
        let (offset, crc) = match self.submit(delivery).await {
            Receipt::Flushed { offset, crc } => (offset, crc),
            other => return Err(self.not_taken(host, address, &noted, other)),
        };
        self.batches.fetch_add(1, Ordering::Relaxed);
        let sent = self.clock.now();
        self.hosts().flushed(host, address.ip(), &noted, sent);
        Ok(json(&Flushed {
            offset,
            crc,
            received_us: received.0,
            sent_us: sent.0,
            state: self.state(),
        }))
    }

    /// A place among the large batches, those of a backlog; `None`: it is not large. So what comes in live
    /// waits for a few of them, and not for one of every host that was away.
    async fn large(&self, bytes: usize) -> Option<SemaphorePermit<'_>> {
        if bytes <= LARGE {
            return None;
        }
        // It is never closed.
        self.large.acquire().await.ok()
    }

    async fn submit(&self, delivery: Delivery) -> Receipt {
        let (sender, receiver) = oneshot::channel();
        let reply = move |receipt| {
            // Who asked may have gone.
            let _ = sender.send(receipt);
        };
        self.intake.submit(delivery, Box::new(reply));
        let gone = |_| Receipt::Failed("the intake has ended".to_owned());
        receiver.await.unwrap_or_else(gone)
    }

    fn unreadable(&self, error: ReadError) -> Refused {
        match error {
            ReadError::Newer { .. } => self.newer(),
            ReadError::Malformed { field, .. } => self
                .refuse(RefusalKind::Malformed, error.to_string())
                .with(|refusal| refusal.field = Some(field.to_owned())),
        }
    }

    fn newer(&self) -> Refused {
        let text = "the batch is of a newer slowpath; upgrade the server";
        self.refuse(RefusalKind::Newer, text)
            .with(|refusal| refusal.versions = Some(Versions::OWN))
    }

    fn not_taken(
        &self,
        host: &HostName,
        address: SocketAddr,
        noted: &Noted,
        receipt: Receipt,
    ) -> Refused {
        let at = |offset: u64, crc: Prefix| {
            move |refusal: &mut slowpath_ship::answers::Refusal| {
                refusal.offset = Some(offset);
                refusal.crc = Some(crc);
            }
        };
        match receipt {
            Receipt::Behind { offset, crc } => self
                .refuse(
                    RefusalKind::Behind,
                    "the server has less than what comes before",
                )
                .with(at(offset, crc)),
            Receipt::OtherBytes { offset, crc } => {
                self.hosts().conflict(host, noted.segment());
                self.refuse(RefusalKind::OtherBytes, "the server has other bytes there")
                    .with(at(offset, crc))
            }
            Receipt::Clone => self.clone_met(host, address, noted),
            Receipt::Busy => self.refuse(RefusalKind::Busy, "too much waits to be stored"),
            Receipt::Full => self.refuse(RefusalKind::Full, "the server's disk is full"),
            Receipt::Failed(reason) => {
                self.journal
                    .warn(&format!("cannot store a batch: {reason}"));
                self.refuse(RefusalKind::Busy, "the server cannot store it now")
            }
            // Who calls this has handled it.
            Receipt::Flushed { .. } => self.refuse(RefusalKind::Unknown, "it is flushed"),
        }
    }

    fn clone_met(&self, host: &HostName, address: SocketAddr, noted: &Noted) -> Refused {
        let now = self.clock.now();
        let mut hosts = self.hosts();
        let is_new = hosts.clone_met(host, address.ip(), noted, now);
        let first = hosts.records().get(host.as_str());
        let first = first.map(|it| (it.address, it.boot_id.clone()));
        drop(hosts);
        let (first_address, first_boot) = first.unwrap_or_default();
        let first_address = first_address.map_or("unknown".to_owned(), |it| it.to_string());
        let text = format!(
            "two machines ship as {host}: {first_address} (boot id {first_boot}) goes on, \
             {} (boot id {}) is refused; let it join by a name of its own",
            address.ip(),
            noted.boot_id(),
        );
        if is_new {
            self.journal.warn(&text);
        }
        self.refuse(RefusalKind::Clone, text)
    }
}
