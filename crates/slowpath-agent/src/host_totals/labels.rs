// SPDX-License-Identifier: Apache-2.0
//! What distinguishes the series of applications: the name, and labels that were asked for.

use slowpath_model::{Container, Owner};
use std::fmt;
use std::str::FromStr;
use std::sync::Arc;

/// Digits of a container's id that its label has: as many as container tools print.
const ID_DIGITS: usize = 12;

/// A label beside the application's name.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum OwnerLabel {
    /// The systemd unit.
    Unit,
    /// The container.
    Container,
    /// The Kubernetes pod's uid.
    Pod,
    /// The port of the service.
    Port,
}

impl OwnerLabel {
    /// All, in the order in which they are written.
    pub const ALL: [OwnerLabel; 4] = [
        OwnerLabel::Unit,
        OwnerLabel::Container,
        OwnerLabel::Pod,
        OwnerLabel::Port,
    ];

    /// Its name, in the configuration and in metrics.
    pub const fn name(self) -> &'static str {
        match self {
            OwnerLabel::Unit => "unit",
            OwnerLabel::Container => "container",
            OwnerLabel::Pod => "pod",
            OwnerLabel::Port => "port",
        }
    }
}

/// The labels that were asked for, as in `unit,port`, or `none`.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct OwnerLabels([bool; OwnerLabel::ALL.len()]);

impl OwnerLabels {
    /// Whether this one is among them.
    pub fn contains(self, label: OwnerLabel) -> bool {
        self.0[label as usize]
    }
}

impl FromStr for OwnerLabels {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        let mut labels = OwnerLabels::default();
        if text.trim() == "none" {
            return Ok(labels);
        }
        for name in text.split(',') {
            let mut all = OwnerLabel::ALL.into_iter();
            let Some(label) = all.find(|label| label.name() == name.trim()) else {
                return Err(format!(
                    "{name:?} is none of unit, container, pod, port; write them as unit,port, or none"
                ));
            };
            labels.0[label as usize] = true;
        }
        Ok(labels)
    }
}

impl fmt::Display for OwnerLabels {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let chosen = OwnerLabel::ALL.into_iter().filter(|l| self.contains(*l));
        let names: Vec<&str> = chosen.map(OwnerLabel::name).collect();
        f.write_str(if names.is_empty() { "none" } else { "" })?;
        f.write_str(&names.join(","))
    }
}

/// Whose a connection is, as far as labels go.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Labelled<'a> {
    pub(crate) owner: &'a Owner,
    /// Of the service.
    pub(crate) port: u16,
}

/// The values of the labels of one set; what was not asked for, or is not so, has none.
#[derive(Clone, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct LabelSet {
    /// The application's name.
    pub application: Arc<str>,
    unit: Option<Arc<str>>,
    container: Option<Arc<str>>,
    pod: Option<Arc<str>>,
    port: Option<u16>,
}

impl LabelSet {
    /// That of an application, without further labels.
    pub(crate) fn named(application: Arc<str>) -> Self {
        LabelSet {
            application,
            unit: None,
            container: None,
            pod: None,
            port: None,
        }
    }

    pub(crate) fn of(application: Arc<str>, whose: &Labelled<'_>, labels: OwnerLabels) -> Self {
        let owner = whose.owner;
        let with = |label| labels.contains(label).then_some(());
        let container = || owner.container().map(short);
        LabelSet {
            unit: with(OwnerLabel::Unit).and_then(|()| owner.unit().cloned()),
            container: with(OwnerLabel::Container).and_then(|()| container()),
            pod: with(OwnerLabel::Pod).and_then(|()| owner.pod().cloned()),
            port: with(OwnerLabel::Port).map(|()| whose.port),
            ..LabelSet::named(application)
        }
    }

    /// The value of a label beside the application's name.
    pub fn value(&self, label: OwnerLabel) -> Option<String> {
        match label {
            OwnerLabel::Unit => self.unit.as_deref().map(str::to_owned),
            OwnerLabel::Container => self.container.as_deref().map(str::to_owned),
            OwnerLabel::Pod => self.pod.as_deref().map(str::to_owned),
            OwnerLabel::Port => self.port.map(|port| port.to_string()),
        }
    }
}

/// A container's name, or the beginning of its id where that is a digest.
fn short(container: &Container) -> Arc<str> {
    let id = &container.id;
    let digest = id.len() == 64 && id.bytes().all(|b| b.is_ascii_hexdigit());
    if digest {
        id[..ID_DIGITS].into()
    } else {
        id.clone()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn labels_are_named_in_any_order_and_written_in_one() {
        for (text, written) in [
            ("port,unit", "unit,port"),
            ("pod", "pod"),
            ("none", "none"),
            ("unit, container, pod, port", "unit,container,pod,port"),
        ] {
            let labels: OwnerLabels = text.parse().unwrap();
            assert_eq!(labels.to_string(), written);
            assert_eq!(written.parse(), Ok(labels));
        }
        for wrong in ["", "unit,", "Unit", "application", "unit none"] {
            assert!(wrong.parse::<OwnerLabels>().is_err(), "{wrong}");
        }
    }

    #[test]
    fn digests_are_cut_and_names_are_not() {
        let container = |id: &str| Container {
            id: id.into(),
            runtime: None,
        };
        assert_eq!(
            &*short(&container(&"0123456789abcdef".repeat(4))),
            "0123456789ab"
        );
        assert_eq!(&*short(&container("web-frontend-01")), "web-frontend-01");
    }
}
