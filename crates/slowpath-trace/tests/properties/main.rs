// SPDX-License-Identifier: Apache-2.0
//! What must not change a verdict: the clock, the names of the two ends, frames captured twice, a capture that
//! begins later or ends earlier, one side of it.

mod capture;
mod claims;
mod cut;
mod doubled;
mod one_sided;
mod same;
