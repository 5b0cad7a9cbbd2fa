// SPDX-License-Identifier: Apache-2.0
//! Sysctls that each end of a replay has of its own: `lab_set_sysctls` of the kernel's driver is the twin.

use super::tcp::Sysctls;
use slowpath_recording::sysctls::{SEGMENTATION, SYSCTLS, WRITE_BUFFER, WRITE_BUFFERS};
use std::collections::BTreeMap;

/// Those that every recording names, and the most that they can be.
const NAMED: [(&str, u64); 9] = [
    ("tcp_timestamps", 1),
    ("tcp_sack", 1),
    ("tcp_ecn", 2),
    ("tcp_recovery", 7),
    ("tcp_early_retrans", 4),
    ("tcp_reordering", 1000),
    ("tcp_slow_start_after_idle", 1),
    ("tcp_moderate_rcvbuf", 1),
    ("ip_default_ttl", 255),
];
/// Sizes of a receive buffer.
const READ_BUFFER: &str = "tcp_rmem";
/// `LAB_SYSCTLS`.
pub const OWN: usize = NAMED.len() + 2 * WRITE_BUFFERS.len() + SYSCTLS.len();
/// `LAB_CUTS`.
const CUTS: u32 = 1 << 31;
/// `LAB_USUAL`.
const USUAL: u32 = u32::MAX;

/// Of one that every recording names.
const MISSING: &str = "not there";

/// What a setting is called, and why it cannot be.
pub type Unfit = (String, String);

/// One end's.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Own {
    /// Bytes of its device's largest IP packet.
    pub mtu: u32,
    /// Its device takes packets that are larger.
    pub segments: bool,
    /// Those of `NAMED`, then sizes of buffers, then [`SYSCTLS`].
    pub values: [u32; OWN],
}

impl Own {
    /// As all hosts have it.
    pub fn usual(mtu: u32) -> Own {
        Own {
            mtu,
            segments: true,
            values: [USUAL; OWN],
        }
    }

    /// As the plan has it: `own_mtu`.
    pub(super) fn device(&self) -> u32 {
        self.mtu | if self.segments { 0 } else { CUTS }
    }

    /// What a plan says of all hosts, with the time to live.
    pub fn shared(&self, hystart: bool) -> (Sysctls, u8) {
        let [
            timestamps,
            sack,
            ecn,
            recovery,
            early_retrans,
            reordering,
            slow_start_after_idle,
            moderate_rcvbuf,
            ttl,
            _,
            default,
            most,
            ..,
        ] = self.values;
        let sysctls = Sysctls {
            mtu: self.mtu,
            timestamps: timestamps == 1,
            sack: sack == 1,
            ecn,
            recovery,
            early_retrans,
            reordering,
            slow_start_after_idle: slow_start_after_idle == 1,
            moderate_rcvbuf: moderate_rcvbuf == 1,
            rmem: [default, most],
            hystart,
        };
        (sysctls, ttl as u8)
    }

    /// Takes those that are known out of `named`.
    ///
    /// # Errors
    /// The name and value of one that cannot be.
    pub fn take(named: &mut BTreeMap<String, String>, mtu: u32) -> Result<Own, Unfit> {
        let mut own = Own::usual(mtu);
        own.segments = one(named, SEGMENTATION, 0, 1)? != Some(0);
        let (values, rest) = own.values.split_at_mut(NAMED.len());
        for (value, (name, most)) in values.iter_mut().zip(NAMED) {
            *value =
                one(named, name, 0, most)?.ok_or_else(|| (name.to_owned(), MISSING.to_owned()))?;
        }
        let (buffers, rest) = rest.split_at_mut(2 * WRITE_BUFFERS.len());
        for (values, name) in buffers
            .chunks_mut(WRITE_BUFFERS.len())
            .zip([READ_BUFFER, WRITE_BUFFER])
        {
            let text = match named.remove(name) {
                Some(text) => text,
                None if name == WRITE_BUFFER => continue,
                None => return Err((name.to_owned(), MISSING.to_owned())),
            };
            let sizes: Option<Vec<u32>> = text
                .split_whitespace()
                .map(|size| {
                    size.parse()
                        .ok()
                        .filter(|size| (1..=i32::MAX as u32).contains(size))
                })
                .collect();
            match sizes {
                Some(sizes) if sizes.len() == values.len() => values.copy_from_slice(&sizes),
                _ => return Err((name.to_owned(), text)),
            }
        }
        for (value, (name, usual, least, most)) in rest.iter_mut().zip(SYSCTLS) {
            let name = usual.name(name);
            *value = one(named, &name, least.into(), most.into())?.unwrap_or(USUAL);
        }
        Ok(own)
    }
}

fn one(
    named: &mut BTreeMap<String, String>,
    name: &str,
    least: u64,
    most: u64,
) -> Result<Option<u32>, Unfit> {
    let Some(text) = named.remove(name) else {
        return Ok(None);
    };
    match text
        .parse::<u64>()
        .ok()
        .filter(|value| (least..=most).contains(value))
    {
        Some(value) => Ok(Some(value as u32)),
        None => Err((name.to_owned(), text)),
    }
}
