// SPDX-License-Identifier: Apache-2.0
//! A host's key and certificate: made on the host, which the key never leaves.
//!
//! [`Identity`] is what lies in a directory; [`join`] makes one from a token, [`renew`] its
//! successor.

mod enrolment;
mod identity;

pub use crate::certificate::{CertificateFacts, KeyError, KeyPair, certificates};
pub use enrolment::{EnrolmentError, fetch_bundle, join, renew};
pub use identity::Identity;

use crate::certificate::{new_key, request};
