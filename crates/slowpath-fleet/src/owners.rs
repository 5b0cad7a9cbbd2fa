// SPDX-License-Identifier: Apache-2.0
//! What owns the connections that were heard of lately: a connection's summary comes before its
//! first interval of a segment, and may have been in an earlier intake file.

use slowpath_store::ConnectionNumber;
use slowpath_store::tables::OwnerNames;
use std::collections::HashMap;
use std::hash::{BuildHasher as _, RandomState};
use std::sync::Arc;

/// Connections of a generation; the one before is kept. Two are at most some 200 MB.
const GENERATION: usize = 2 << 20;

/// Owners by connection.
#[derive(Debug, Default)]
pub(crate) struct Owners {
    present: Generation,
    before: Generation,
    keys: RandomState,
}

#[derive(Debug, Default)]
struct Generation {
    by_connection: HashMap<u64, u32>,
    names: Vec<Arc<OwnerNames>>,
    index: HashMap<Arc<OwnerNames>, u32>,
}

impl Generation {
    fn put(&mut self, key: u64, names: Arc<OwnerNames>) {
        let next = self.names.len() as u32;
        let at = match self.index.get(&names) {
            Some(at) => *at,
            None => {
                self.names.push(names.clone());
                self.index.insert(names, next);
                next
            }
        };
        self.by_connection.insert(key, at);
    }

    fn get(&self, key: u64) -> Option<&Arc<OwnerNames>> {
        self.names.get(*self.by_connection.get(&key)? as usize)
    }
}

impl Owners {
    /// A host can name its own connections only.
    fn key(&self, host: &str, connection: u64) -> u64 {
        self.keys.hash_one((host, connection))
    }

    pub(crate) fn put(&mut self, host: &str, connection: u64, names: OwnerNames) {
        if self.present.by_connection.len() >= GENERATION {
            self.before = std::mem::take(&mut self.present);
        }
        let key = self.key(host, connection);
        self.present.put(key, Arc::new(names));
    }

    pub(crate) fn get(
        &mut self,
        host: &str,
        connection: ConnectionNumber,
    ) -> Option<Arc<OwnerNames>> {
        let key = self.key(host, connection.get());
        if let Some(names) = self.present.get(key) {
            return Some(names.clone());
        }
        let names = self.before.get(key)?.clone();
        self.present.put(key, names.clone());
        Some(names)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use slowpath_model::{ConnectionId, MonoNanos};

    #[test]
    fn a_host_names_its_own_connections_only() {
        let id = ConnectionId {
            boot_id: 1,
            netns: 1,
            cookie: 1,
            start: MonoNanos(1),
        };
        let number = ConnectionNumber::from(&id);
        let names = OwnerNames {
            unit: Some("a.service".to_owned()),
            ..OwnerNames::default()
        };
        let mut owners = Owners::default();
        owners.put("a", number.get(), names.clone());
        assert_eq!(owners.get("a", number).as_deref(), Some(&names));
        assert_eq!(owners.get("b", number), None);
    }
}
