// SPDX-License-Identifier: Apache-2.0
//! Random numbers from the kernel.

use ring::rand::{SecureRandom as _, SystemRandom};
use std::io;

fn fill(bytes: &mut [u8]) -> io::Result<()> {
    SystemRandom::new()
        .fill(bytes)
        .map_err(|_| io::Error::other("the kernel gives no random numbers"))
}

/// 128 random bits.
pub(crate) fn number() -> io::Result<u128> {
    let mut bytes = [0; 16];
    fill(&mut bytes)?;
    Ok(u128::from_le_bytes(bytes))
}

/// A number in [0, 1).
pub(crate) fn fraction() -> io::Result<f64> {
    let mut bytes = [0; 4];
    fill(&mut bytes)?;
    Ok(f64::from(u32::from_le_bytes(bytes)) / (f64::from(u32::MAX) + 1.0))
}
