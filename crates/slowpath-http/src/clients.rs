// SPDX-License-Identifier: Apache-2.0
//! The clients that are connected.

use crate::Events;
use std::collections::BTreeMap;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use tokio::task::AbortHandle;

/// Those that are connected, by the order in which they came.
#[derive(Default)]
pub(crate) struct Clients {
    inner: Mutex<Inner>,
}

#[derive(Default)]
struct Inner {
    next: u64,
    connected: BTreeMap<u64, Connected>,
}

struct Connected {
    answered: Arc<AtomicBool>,
    task: AbortHandle,
}

impl Clients {
    /// Starts a client with `start`; the one that is there longest makes room if `most` are there.
    pub(crate) fn admit(
        self: &Arc<Self>,
        most: usize,
        events: &dyn Events,
        start: impl FnOnce(Membership) -> AbortHandle,
    ) {
        // A task that ends at once waits for this lock before it removes its entry.
        let mut inner = self.lock();
        while inner.connected.len() >= most.max(1)
            && let Some((_, oldest)) = inner.connected.pop_first()
        {
            oldest.task.abort();
            if !oldest.answered.load(Ordering::Relaxed) {
                events.dropped();
            }
        }
        let number = inner.next;
        inner.next += 1;
        let answered = Arc::new(AtomicBool::new(false));
        let task = start(Membership {
            clients: self.clone(),
            number,
            answered: answered.clone(),
        });
        inner.connected.insert(number, Connected { answered, task });
    }

    fn lock(&self) -> MutexGuard<'_, Inner> {
        // Entries are inserted and removed whole: a panic elsewhere leaves a good map.
        self.inner.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// A client's entry, until it is dropped.
pub(crate) struct Membership {
    clients: Arc<Clients>,
    number: u64,
    answered: Arc<AtomicBool>,
}

impl Membership {
    /// It has its answer.
    pub(crate) fn answered(&self) {
        self.answered.store(true, Ordering::Relaxed);
    }
}

impl Drop for Membership {
    fn drop(&mut self) {
        self.clients.lock().connected.remove(&self.number);
    }
}
