// SPDX-License-Identifier: Apache-2.0
//! Brings emulated networks up.

use slowpath_lab::emulator::{Lab, LabError, Options};
use slowpath_netsim::scenario::{Scenario, Substrate};

/// Brings a network up; `None`, with the reason, where that is not possible.
pub fn up(test: &str, text: &str) -> Option<Lab> {
    let files = |_: &str| Err(std::io::ErrorKind::NotFound.into());
    let scenario = Scenario::parse_for(text, &files, Substrate::Emulator).expect("possible");
    match Lab::up(&scenario, &Options::default()) {
        Ok(lab) => Some(lab),
        Err(error @ (LabError::NotPermitted | LabError::NoTun(_))) => {
            println!("SKIPPED {test}: {error}");
            None
        }
        Err(error) => panic!("{error}"),
    }
}
