// SPDX-License-Identifier: Apache-2.0
//! The sections of links, switches and hosts.

use super::error::{Problem, ScenarioError};
use super::section::{Section, Value};
use super::{SwitchOptions, aqm, ecmp, pfc};
use crate::topology::{
    Builder, LinkOptions, Links, QueueOverride, Topology, TopologyError, dumbbell, fat_tree,
    leaf_spine,
};
use slowpath_switch::{Alpha, Detour, Limit, Rate, Shared, Span};

/// The most switches or hosts of a shape's dimension.
const MAX_COUNT: u32 = 1 << 16;

/// A link's keys, as far as they are there.
#[derive(Clone, Copy, Default)]
struct LinkKeys {
    rate: Option<Rate>,
    delay: Option<Span>,
    queue: QueueOverride,
}

impl LinkKeys {
    fn read(section: &Section<'_>) -> Result<Self, ScenarioError> {
        Ok(LinkKeys {
            rate: section.get("rate").map(|value| value.rate()).transpose()?,
            delay: section.get("delay").map(|value| value.span()).transpose()?,
            queue: QueueOverride {
                buffer: section
                    .get("buffer")
                    .map(|value| value.limit())
                    .transpose()?,
                marking: section
                    .get("marking")
                    .map(|value| value.threshold(0))
                    .transpose()?,
                aqm: section
                    .get("aqm")
                    .map(|value| aqm::read(&value))
                    .transpose()?,
            },
        })
    }

    /// These, and what is missing from `other`.
    fn or(self, other: LinkKeys) -> Self {
        LinkKeys {
            rate: self.rate.or(other.rate),
            delay: self.delay.or(other.delay),
            queue: QueueOverride {
                buffer: self.queue.buffer.or(other.queue.buffer),
                marking: self.queue.marking.or(other.queue.marking),
                aqm: self.queue.aqm.or(other.queue.aqm),
            },
        }
    }

    /// The options; a key that is missing is one of `section`.
    fn options(self, section: &Section<'_>) -> Result<LinkOptions, ScenarioError> {
        let rate = match self.rate {
            Some(rate) => rate,
            None => section.need("rate")?.rate()?,
        };
        let delay = match self.delay {
            Some(delay) => delay,
            None => section.need("delay")?.span()?,
        };
        Ok(LinkOptions {
            rate,
            delay,
            queue: self.queue,
        })
    }
}

#[derive(Clone, Copy)]
enum Shape {
    FatTree,
    LeafSpine,
    Dumbbell,
    Custom,
}

pub(super) fn topology(section: &Section<'_>) -> Result<Topology, ScenarioError> {
    let shape = section.need("kind")?.choice(&[
        ("fat-tree", Shape::FatTree),
        ("leaf-spine", Shape::LeafSpine),
        ("dumbbell", Shape::Dumbbell),
        ("custom", Shape::Custom),
    ])?;
    if let Shape::Custom = shape {
        return custom(section);
    }
    let all_section = section.need("links")?.section()?;
    let all = LinkKeys::read(&all_section)?;
    let host = all.options(&all_section)?;
    all_section.finish()?;
    let fabric = match section.section("fabric-links")? {
        Some(fabric) => {
            let keys = LinkKeys::read(&fabric)?.or(all);
            let options = keys.options(&fabric)?;
            fabric.finish()?;
            options
        }
        None => host,
    };
    let links = Links { host, fabric };
    let count = |key| {
        section
            .need(key)
            .and_then(|value: Value<'_>| value.small(1..=MAX_COUNT))
    };
    let topology = match shape {
        Shape::FatTree => {
            let k = section.need("k")?;
            fat_tree(k.small(0..=MAX_COUNT)?, links).map_err(|error| k.error(error))
        }
        Shape::LeafSpine => {
            let (leaves, spines) = (count("leaves")?, count("spines")?);
            let hosts = count("hosts-per-leaf")?;
            // Before millions of links are made.
            let size = u64::from(leaves) * u64::from(spines.max(hosts));
            if size > u64::from(MAX_COUNT) {
                return Err(section.error(TopologyError::TooLarge));
            }
            leaf_spine(leaves, spines, hosts, links).map_err(|error| section.error(error))
        }
        _ => {
            let (left, right) = (count("left")?, count("right")?);
            dumbbell(left, right, links).map_err(|error| section.error(error))
        }
    }?;
    section.done()?;
    Ok(topology)
}

fn custom(section: &Section<'_>) -> Result<Topology, ScenarioError> {
    let mut builder = Builder::new();
    for name in section.need("hosts")?.list()? {
        builder
            .host(name.string()?, None)
            .map_err(|error| name.error(error))?;
    }
    for name in section.need("switches")?.list()? {
        builder
            .switch(name.string()?)
            .map_err(|error| name.error(error))?;
    }
    let all = match section.section("links")? {
        Some(links) => {
            let keys = LinkKeys::read(&links)?;
            links.finish()?;
            keys
        }
        None => LinkKeys::default(),
    };
    for link in section.need("link")?.list()? {
        let keys = link.section()?;
        let ends = keys.need("ends")?;
        let names = ends.list()?;
        let [a, b] = &names[..] else {
            return Err(ends.error(Problem::Type {
                wanted: "an array of two names",
                found: "another length",
            }));
        };
        let [a, b] = [a, b].map(|name| -> Result<_, ScenarioError> {
            builder
                .find(name.string()?)
                .map_err(|error| name.error(error))
        });
        let options = LinkKeys::read(&keys)?.or(all).options(&keys)?;
        builder
            .link(a?, b?, options)
            .map_err(|error| ends.error(error))?;
        keys.finish()?;
    }
    section.done()?;
    builder.build().map_err(|error| section.error(error))
}

pub(super) fn switch(section: &Section<'_>) -> Result<SwitchOptions, ScenarioError> {
    let total = section
        .get("shared-buffer")
        .map(|value| value.limit())
        .transpose()?;
    let alpha = section.get("alpha");
    if let (Some(alpha), None) = (&alpha, total) {
        return Err(alpha.error(Problem::OneOf(&["shared-buffer"])));
    }
    let alpha = alpha
        .map(|value| value.alpha())
        .transpose()?
        .unwrap_or(Alpha::ONE);
    let pfc = section
        .get("pfc")
        .map_or(Ok(None), |value| pfc::read(&value))?;
    let buffer = match section.get("buffer") {
        Some(buffer) => buffer.limit()?,
        None if total.is_some() || pfc.is_some() => Limit::NONE,
        None => return Err(section.needs_one_of(&["buffer", "shared-buffer", "pfc"])),
    };
    let flag = |key, otherwise: bool| match section.get(key) {
        Some(value) => value.boolean(),
        None => Ok(otherwise),
    };
    let options = SwitchOptions {
        buffer,
        shared: total.map(|total| Shared { total, alpha }),
        marking: section
            .get("marking")
            .map(|value| value.threshold(0))
            .transpose()?,
        aqm: section
            .get("aqm")
            .map(|value| aqm::read(&value))
            .transpose()?,
        flowlets: section
            .get("ecmp")
            .map_or(Ok(None), |value| ecmp::read(&value))?,
        pfc,
        classes: match section.get("classes") {
            // At most 8, so it fits.
            Some(classes) => classes.small(1..=u32::from(slowpath_switch::MAX_CLASSES))? as u8,
            None => 1,
        },
        detour: section
            .get("detour")
            .map_or(Ok(None), |value| detour(&value))?,
        decrement_ttl: flag("decrement-ttl", true)?,
        count_flows: flag("count-flows", false)?,
    };
    if let (Some(_), Some(value)) = (options.marking, section.get("aqm")) {
        return Err(value.error(Problem::Conflict("marking")));
    }
    if let (Some(_), Some(_), Some(value)) = (options.detour, pfc, section.get("pfc")) {
        return Err(value.error(Problem::Conflict("detour")));
    }
    section.done()?;
    Ok(options)
}

fn detour(value: &Value<'_>) -> Result<Option<Detour>, ScenarioError> {
    let mut detour = Detour::default();
    if !value.is_table() {
        return Ok(value.boolean()?.then_some(detour));
    }
    let section = value.section()?;
    if let Some(arrival_port) = section.get("arrival-port") {
        detour.arrival_port = arrival_port.boolean()?;
    }
    if let Some(mark) = section.get("mark") {
        detour.mark = mark.boolean()?;
    }
    section.finish()?;
    Ok(Some(detour))
}

/// Whether a name fits a pattern: they are the same, or the pattern ends in `*` and the name
/// begins as it does.
pub fn fits(pattern: &str, name: &str) -> bool {
    match pattern.strip_suffix('*') {
        Some(beginning) => name.starts_with(beginning),
        None => name == pattern,
    }
}
