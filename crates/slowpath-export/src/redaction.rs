// SPDX-License-Identifier: Apache-2.0
//! Leaves out or replaces sensitive parts of rows.

use crate::anonymise::Anonymiser;
use std::net::IpAddr;

/// What to leave out or replace.
#[derive(Clone, Debug)]
pub struct Redaction {
    /// Leave out command lines and paths.
    text: bool,
    /// Replaces addresses and names.
    names: Option<Anonymiser>,
}

impl Redaction {
    /// Keeps everything.
    pub const NOTHING: Redaction = Redaction {
        text: false,
        names: None,
    };

    /// Leaves out command lines and paths if `text`; replaces addresses and names if `names`.
    pub fn new(text: bool, names: Option<Anonymiser>) -> Self {
        Redaction { text, names }
    }

    /// An address, perhaps replaced.
    pub fn address(&self, address: IpAddr) -> String {
        match &self.names {
            Some(names) => names.address(address).to_string(),
            None => address.to_string(),
        }
    }

    /// A name that identifies a machine, perhaps replaced.
    pub fn name(&self, name: &str) -> String {
        match &self.names {
            Some(names) => names.name(name),
            None => name.to_owned(),
        }
    }

    /// Text that may hold a secret, unless it is left out.
    pub fn text(&self, text: &str) -> Option<String> {
        (!self.text).then(|| text.to_owned())
    }
}
