// SPDX-License-Identifier: Apache-2.0
//! What of a row is left out or replaced.

use super::Export;
use crate::failure::Failure;
use slowpath_export::anonymise::Anonymiser;
use std::fs::File;
use std::io::Read;
use std::net::IpAddr;
use std::path::Path;

/// How much is hidden.
pub(super) struct Hide {
    /// Command lines and paths.
    words: bool,
    names: Option<Anonymiser>,
}

impl Hide {
    /// Nothing is hidden.
    pub(super) const NOTHING: Hide = Hide {
        words: false,
        names: None,
    };

    /// As the command line says.
    pub(super) fn of(args: &Export) -> Result<Self, Failure> {
        let names = if args.anonymise {
            let file = args.key_file.as_deref();
            Some(Anonymiser::new(key(
                file.unwrap_or(Path::new("/dev/urandom"))
            )?))
        } else {
            None
        };
        Ok(Hide {
            words: args.redact || args.anonymise,
            names,
        })
    }

    pub(super) fn address(&self, address: IpAddr) -> String {
        match &self.names {
            Some(names) => names.address(address).to_string(),
            None => address.to_string(),
        }
    }

    /// A name that tells whose machine it is.
    pub(super) fn name(&self, name: &str) -> String {
        match &self.names {
            Some(names) => names.name(name),
            None => name.to_owned(),
        }
    }

    /// Words that may hold a secret.
    pub(super) fn words(&self, words: &str) -> Option<String> {
        (!self.words).then(|| words.to_owned())
    }
}

fn key(file: &Path) -> Result<[u8; 16], Failure> {
    let mut key = [0; 16];
    let read = File::open(file).and_then(|mut f| f.read_exact(&mut key));
    read.map_err(|error| {
        let text = "cannot read 16 bytes of a key from";
        let way = "make one with: head -c 16 /dev/urandom > FILE";
        Failure::Usage(format!("{text} {}: {error}; {way}", file.display()))
    })?;
    Ok(key)
}
