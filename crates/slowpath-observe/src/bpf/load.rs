// SPDX-License-Identifier: Apache-2.0
//! Loading probes: each an object of its own, all with the same maps.

use super::OpenError;
use crate::probes::Probe;
use libbpf_rs::{Link, MapCore, MapHandle, Object, ObjectBuilder, RingBuffer, RingBufferBuilder};
use std::io;
use std::os::fd::AsFd;

/// Maps that every probe declares and the first one makes.
const SHARED: [&str; 7] = [
    "connections",
    "shared",
    "notes",
    "rates",
    "area",
    "listeners",
    "births",
];

/// A probe in the kernel; it ends with this value.
pub(super) struct Loaded {
    pub probe: &'static Probe,
    pub object: Object,
    pub links: Vec<Link>,
}

/// Loads and attaches one probe, sharing the maps that an earlier probe made.
pub(super) fn load(
    probe: &'static Probe,
    shared_maps: &mut Vec<MapHandle>,
    sizes: &[(&str, u32)],
) -> Result<Loaded, libbpf_rs::Error> {
    let mut builder = ObjectBuilder::default();
    builder.name(probe.name)?;
    let mut open = builder.open_memory(probe.object)?;
    for mut map in open.maps_mut() {
        let name = map.name().to_os_string();
        if let Some(made) = shared_maps.iter().find(|m| m.name() == name) {
            map.reuse_fd(made.as_fd())?;
        } else if let Some((_, entries)) = sizes.iter().find(|(sized, _)| name == *sized) {
            map.set_max_entries(*entries)?;
        }
    }
    let object = open.load()?;
    let mut links = Vec::new();
    for program in object.progs_mut() {
        let link = match program.name().to_str() {
            // Run by `BpfTier::collect`, attached to nothing.
            Some("collect") => continue,
            // Attached by `ListenerEyes::open`.
            Some("walk_listeners" | "listener_holders") => continue,
            Some("snapshot" | "unheld") => {
                let connections = shared_maps.iter().find(|m| m.name() == "connections");
                let connections =
                    connections.ok_or_else(|| io::Error::from(io::ErrorKind::NotFound))?;
                program.attach_iter(connections.as_fd())?
            }
            _ => program.attach()?,
        };
        links.push(link);
    }
    for map in object.maps() {
        let name = map.name();
        if SHARED.iter().any(|shared| name == *shared)
            && !shared_maps.iter().any(|m| m.name() == name)
        {
            shared_maps.push(MapHandle::try_from(&map)?);
        }
    }
    Ok(Loaded {
        probe,
        object,
        links,
    })
}

pub(super) fn map(
    loaded: &[Loaded],
    probe: &str,
    name: &'static str,
) -> Result<MapHandle, OpenError> {
    loaded
        .iter()
        .filter(|l| l.probe.name == probe)
        .flat_map(|l| l.object.maps())
        .find(|m| m.name() == name)
        .and_then(|m| MapHandle::try_from(&m).ok())
        .ok_or(OpenError::Map {
            map: name,
            source: io::ErrorKind::NotFound.into(),
        })
}

/// Reads a ring buffer: `take` gets each record when the ring is consumed.
///
/// # Errors
/// What libbpf says.
pub fn ring(
    map: &MapHandle,
    mut take: impl FnMut(&[u8]) + 'static,
) -> Result<RingBuffer<'static>, libbpf_rs::Error> {
    let mut builder = RingBufferBuilder::new();
    builder.add(map, move |bytes| {
        take(bytes);
        0
    })?;
    builder.build()
}
