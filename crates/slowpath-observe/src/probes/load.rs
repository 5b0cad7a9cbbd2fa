// SPDX-License-Identifier: Apache-2.0
//! Loading probes: each an object of its own, all with the same maps.

use super::{Probe, connection};
use libbpf_rs::{Link, MapCore, MapHandle, Object, ObjectBuilder, RingBuffer, RingBufferBuilder};
use std::any::Any;
use std::io;
use std::mem::offset_of;
use std::os::fd::AsFd;

/// The section of `struct shared`, a map by this name.
pub(crate) const SHARED: &str = ".bss.shared";

/// A probe in the kernel; it ends with this value.
pub(crate) struct Loaded {
    pub probe: &'static Probe,
    pub object: Object,
    /// What its `attach` gave.
    pub state: Box<dyn Any>,
}

/// Maps that probes have in common by their name; the first one makes them.
#[derive(Default)]
pub(crate) struct Maps(Vec<MapHandle>);

impl Maps {
    pub(crate) fn get(&self, name: &str) -> Result<&MapHandle, libbpf_rs::Error> {
        self.0
            .iter()
            .find(|map| map.name() == name)
            .ok_or_else(|| io::Error::from(io::ErrorKind::NotFound).into())
    }
}

/// A loaded probe whose programs are to be attached.
pub(crate) struct Attaching<'a> {
    object: &'a mut Object,
    maps: &'a Maps,
}

impl Attaching<'_> {
    /// One program, to what its section names.
    pub(crate) fn one(&mut self, program: &str) -> Result<Link, libbpf_rs::Error> {
        self.program(program)?.attach()
    }

    /// Several programs.
    pub(crate) fn attach(&mut self, programs: &[&str]) -> Result<Vec<Link>, libbpf_rs::Error> {
        programs.iter().map(|program| self.one(program)).collect()
    }

    /// All programs of the probe.
    pub(crate) fn attach_all(&mut self) -> Result<Vec<Link>, libbpf_rs::Error> {
        let programs = self.object.progs_mut();
        programs.map(|program| program.attach()).collect()
    }

    /// An iterator over what is in a map.
    pub(crate) fn iterate(&mut self, program: &str, map: &str) -> Result<Link, libbpf_rs::Error> {
        let map = self.maps.get(map)?.as_fd();
        self.program(program)?.attach_iter(map)
    }

    /// A map of the probe's or that it shares.
    pub(crate) fn map(&self, name: &str) -> Result<&MapHandle, libbpf_rs::Error> {
        self.maps.get(name)
    }

    /// Reads a ring buffer: `take` gets each record when the ring is consumed.
    pub(crate) fn ring(
        &self,
        map: &str,
        take: impl FnMut(&[u8]) + 'static,
    ) -> Result<RingBuffer<'static>, libbpf_rs::Error> {
        ring(self.map(map)?, take)
    }

    fn program(&mut self, name: &str) -> Result<libbpf_rs::ProgramMut<'_>, libbpf_rs::Error> {
        let mut programs = self.object.progs_mut();
        let program = programs.find(|program| program.name() == name);
        program.ok_or_else(|| io::Error::from(io::ErrorKind::NotFound).into())
    }
}

/// What maps are when they are made.
pub(crate) struct Setup<'a> {
    /// Entries of maps, by name.
    pub sizes: &'a [(&'a str, u32)],
    /// What `struct shared` has before any program runs.
    pub netns: u32,
}

/// Loads and attaches one probe, with the maps that an earlier probe made. Its mirrored structs
/// are compared with Rust's once more.
pub(crate) fn load(
    probe: &'static Probe,
    maps: &mut Maps,
    setup: &Setup<'_>,
) -> Result<Loaded, libbpf_rs::Error> {
    slowpath_layout::btf::check(probe.object, &[&connection::MIRRORS, probe.mirrors])
        .map_err(io::Error::other)?;
    let mut builder = ObjectBuilder::default();
    builder.name(probe.name)?;
    let mut open = builder.open_memory(probe.object)?;
    for mut map in open.maps_mut() {
        let name = map.name().to_os_string();
        if let Some(made) = maps.0.iter().find(|m| m.name() == name) {
            map.reuse_fd(made.as_fd())?;
        } else if name == SHARED {
            let value = map.initial_value_mut().unwrap_or_default();
            let netns = offset_of!(connection::Shared, netns);
            let netns = value.get_mut(netns..netns + size_of::<u32>());
            netns
                .ok_or_else(|| io::Error::other(format!("map {SHARED} has no initial value")))?
                .copy_from_slice(&setup.netns.to_ne_bytes());
        } else if let Some((_, entries)) = setup.sizes.iter().find(|(sized, _)| name == *sized) {
            map.set_max_entries(*entries)?;
        }
    }
    let mut object = open.load()?;
    let before = maps.0.len();
    for map in object.maps() {
        // What has a dot is data of the object's own, but for one section.
        let name = map.name().to_string_lossy();
        if (!name.contains('.') || name == SHARED)
            && !maps.0.iter().any(|made| made.name() == map.name())
        {
            maps.0.push(MapHandle::try_from(&map)?);
        }
    }
    let attached = (probe.attach)(&mut Attaching {
        object: &mut object,
        maps,
    });
    match attached {
        Ok(state) => Ok(Loaded {
            probe,
            object,
            state,
        }),
        Err(error) => {
            // Its maps go with it.
            maps.0.truncate(before);
            Err(error)
        }
    }
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
