// SPDX-License-Identifier: Apache-2.0
//! The recording's file: what comes back, and what of a broken one.

mod arbitrary;
mod broken;
mod inexact;
mod meaning;
mod roundtrip;
mod sample;
mod writer;
